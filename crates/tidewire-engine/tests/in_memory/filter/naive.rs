//! Filters again, written for being evident: over a parsed tree, field by field.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Map, Value, json};
use std::cmp::Ordering;
use std::fmt::Write;

/// A payload, in which an object may have members with the same name.
#[derive(Debug, Clone)]
pub(crate) enum Tree {
    Null,
    Bool(bool),
    /// In quarters, so that it is exact here.
    Number(i128),
    Text(&'static str),
    Array(Vec<Tree>),
    Object(Vec<(&'static str, Tree)>),
}

pub(crate) fn tree() -> impl Strategy<Value = Tree> {
    vec((select(NAMES), value()), 0..6).prop_map(Tree::Object)
}

fn value() -> impl Strategy<Value = Tree> {
    let scalar = prop_oneof![
        Just(Tree::Null),
        any::<bool>().prop_map(Tree::Bool),
        select(NUMBERS).prop_map(Tree::Number),
        select(TEXTS).prop_map(Tree::Text),
    ];
    scalar.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Tree::Array),
            vec((select(NAMES), inner), 0..4).prop_map(Tree::Object),
        ]
    })
}

pub(crate) fn document() -> impl Strategy<Value = Value> {
    let leaf = vec((path(), condition()), 0..4).prop_map(Value::from_iter);
    leaf.prop_recursive(2, 6, 2, |inner| {
        let some = vec(inner.clone(), 1..3);
        prop_oneof![
            some.clone()
                .prop_map(|documents| json!({"$and": documents})),
            (some, inner.clone()).prop_map(|(documents, mut other)| {
                other["$or"] = json!(documents);
                other
            }),
            inner.prop_map(|document| json!({"$not": document})),
        ]
    })
}

fn path() -> impl Strategy<Value = String> {
    vec(select(NAMES), 1..4).prop_map(|names| names.join("."))
}

fn condition() -> impl Strategy<Value = Value> {
    let operators = || vec(operator(), 1..3).prop_map(Value::from_iter);
    let contrary = operators().prop_map(|operators| json!({"$not": operators}));
    prop_oneof![3 => operators(), 1 => contrary, 1 => value().prop_map(|tree| tree.json())]
}

fn operator() -> impl Strategy<Value = (&'static str, Value)> {
    let constant = || value().prop_map(|tree| tree.json());
    let scalar = prop_oneof![
        select(NUMBERS).prop_map(|number| Tree::Number(number).json()),
        select(TEXTS).prop_map(Value::from),
    ];
    let text = || select(TEXTS).prop_map(Value::from);
    prop_oneof![
        (select(&["$eq", "$ne", "$contains"][..]), constant()),
        (select(&["$gt", "$gte", "$lt", "$lte"][..]), scalar),
        (
            select(&["$in", "$nin"][..]),
            vec(constant(), 0..4).prop_map(Value::from)
        ),
        (
            select(&["$startswith", "$endswith", "$contains"][..]),
            text()
        ),
        (
            Just("$regex"),
            select(&["^a", "b$", "^$", "."][..]).prop_map(Value::from)
        ),
        (Just("$exists"), any::<bool>().prop_map(Value::from)),
    ]
}

impl Tree {
    fn at(&self, path: &str) -> Option<&Tree> {
        path.split('.').try_fold(self, |tree, name| match tree {
            Tree::Object(members) => Some(&members.iter().find(|(other, _)| *other == name)?.1),
            Tree::Array(elements) if name == "0" || !name.starts_with('0') => {
                elements.get(name.parse::<usize>().ok()?)
            }
            _ => None,
        })
    }

    /// As it stands in documents. Numbers are written with as little as they need.
    fn json(&self) -> Value {
        serde_json::from_str(&self.text(0)).unwrap()
    }

    /// As text, with the liberties that JSON gives taken as the bits of `style` say.
    pub(crate) fn text(&self, style: u64) -> String {
        let mut out = String::new();
        self.write(&mut Style(style), &mut out);
        out
    }

    fn write(&self, style: &mut Style, out: &mut String) {
        let space = if style.next() { " \n" } else { "" };
        match self {
            Tree::Null => out.push_str("null"),
            Tree::Bool(value) => write!(out, "{value}").unwrap(),
            Tree::Number(quarters) => write_number(*quarters, style, out),
            Tree::Text(text) => write_text(text, style, out),
            Tree::Array(elements) => {
                for (index, element) in elements.iter().enumerate() {
                    out.push_str(if index == 0 { "[" } else { "," });
                    out.push_str(space);
                    element.write(style, out);
                }
                out.push_str(if elements.is_empty() { "[ ]" } else { "]" });
            }
            Tree::Object(members) => {
                for (index, (name, value)) in members.iter().enumerate() {
                    out.push(if index == 0 { '{' } else { ',' });
                    out.push_str(space);
                    write_text(name, style, out);
                    write!(out, "{space}:{space}").unwrap();
                    value.write(style, out);
                }
                write!(
                    out,
                    "{}{space}}}",
                    if members.is_empty() { "{" } else { "" }
                )
                .unwrap();
            }
        }
    }
}

/// Bits from a number, and from what follows from it (a step of `xorshift64`); from 0 only zeros.
struct Style(u64);

impl Style {
    fn next(&mut self) -> bool {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 & 1 == 1
    }
}

fn write_number(quarters: i128, style: &mut Style, out: &mut String) {
    let sign = if quarters < 0 { "-" } else { "" };
    let (whole, rest) = (quarters.unsigned_abs() / 4, quarters.unsigned_abs() % 4);
    let is_small = whole < 1 << 50;
    let fraction = ["", ".25", ".5", ".75"][rest as usize];
    match (rest, is_small && style.next(), style.next()) {
        (0, true, false) => write!(out, "{sign}{whole}.0"),
        (0, true, true) if whole > 0 => write!(out, "{sign}{whole}000E-3"),
        (_, true, false) => write!(out, "{sign}{whole}{fraction}000"),
        (_, true, true) => write!(out, "{sign}{whole}{fraction}e+00"),
        _ => write!(out, "{sign}{whole}{fraction}"),
    }
    .unwrap();
}

fn write_text(text: &str, style: &mut Style, out: &mut String) {
    out.push('"');
    for character in text.chars() {
        if style.next() {
            let mut units = [0; 2];
            for unit in character.encode_utf16(&mut units) {
                write!(out, "\\u{unit:04x}").unwrap();
            }
        } else {
            let quoted = Value::from(character.to_string()).to_string();
            out.push_str(&quoted[1..quoted.len() - 1]);
        }
    }
    out.push('"');
}

pub(crate) fn takes(document: &Value, tree: &Tree) -> bool {
    document
        .as_object()
        .unwrap()
        .iter()
        .all(|(name, value)| match name.as_str() {
            "$and" => value.as_array().unwrap().iter().all(|one| takes(one, tree)),
            "$or" => value.as_array().unwrap().iter().any(|one| takes(one, tree)),
            "$not" => !takes(value, tree),
            path => {
                let field = tree.at(path);
                match value.as_object() {
                    Some(members) if members.keys().any(|name| name.starts_with('$')) => {
                        all_hold(members, field)
                    }
                    _ => holds("$eq", value, field),
                }
            }
        })
}

fn all_hold(operators: &Map<String, Value>, field: Option<&Tree>) -> bool {
    operators
        .iter()
        .all(|(name, operand)| holds(name, operand, field))
}

fn holds(operator: &str, operand: &Value, field: Option<&Tree>) -> bool {
    match operator {
        "$not" => return !all_hold(operand.as_object().unwrap(), field),
        "$ne" => return !holds("$eq", operand, field),
        "$nin" => return !holds("$in", operand, field),
        "$exists" => return operand.as_bool().unwrap() == field.is_some(),
        _ => {}
    }
    let Some(field) = field else {
        return false;
    };
    let order = order(field, operand);
    match operator {
        "$eq" => equal(field, operand),
        "$in" => operand
            .as_array()
            .unwrap()
            .iter()
            .any(|one| equal(field, one)),
        "$gt" => order == Some(Ordering::Greater),
        "$lt" => order == Some(Ordering::Less),
        "$gte" => order.is_some_and(Ordering::is_ge),
        "$lte" => order.is_some_and(Ordering::is_le),
        "$contains" => match (field, operand.as_str()) {
            (Tree::Text(text), Some(part)) => text.contains(part),
            (Tree::Array(elements), _) => elements.iter().any(|one| equal(one, operand)),
            _ => false,
        },
        _ => match (field, operator, operand.as_str().unwrap()) {
            (Tree::Text(text), "$startswith", start) => text.starts_with(start),
            (Tree::Text(text), "$endswith", end) => text.ends_with(end),
            (Tree::Text(text), "$regex", "^a") => text.starts_with('a'),
            (Tree::Text(text), "$regex", "b$") => text.ends_with('b'),
            (Tree::Text(text), "$regex", "^$") => text.is_empty(),
            (Tree::Text(text), "$regex", ".") => text.chars().any(|one| one != '\n'),
            _ => false,
        },
    }
}

fn equal(tree: &Tree, value: &Value) -> bool {
    match (tree, value) {
        (Tree::Null, Value::Null) => true,
        (Tree::Bool(a), Value::Bool(b)) => a == b,
        (Tree::Number(_), Value::Number(_)) | (Tree::Text(_), Value::String(_)) => {
            order(tree, value) == Some(Ordering::Equal)
        }
        (Tree::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b))
        }
        (Tree::Object(a), Value::Object(b)) => {
            a.iter().all(|(name, _)| b.contains_key(*name))
                && b.iter()
                    .all(|(name, b)| tree.at(name).is_some_and(|a| equal(a, b)))
        }
        _ => false,
    }
}

fn order(tree: &Tree, value: &Value) -> Option<Ordering> {
    match (tree, value) {
        (Tree::Number(a), Value::Number(b)) => {
            let b = b
                .as_i128()
                .map_or_else(|| (b.as_f64().unwrap() * 4.0) as i128, |b| b * 4);
            Some(a.cmp(&b))
        }
        (Tree::Text(a), Value::String(b)) => Some(a.chars().cmp(b.chars())),
        _ => None,
    }
}

/// Some are indexes too, and one needs escapes.
const NAMES: &[&str] = &["a", "b", "0", "1", "\u{e9}\"\\"];

const TEXTS: &[&str] = &[
    "",
    "a",
    "b",
    "ab",
    "a\"b",
    "\\",
    "\u{e9}",
    "\u{ffff}",
    "\u{1f600}a",
    "\n",
    "abcdefgh\"ij{[,",
];

const NUMBERS: &[i128] = &[
    0,
    1,
    4,
    -4,
    -5,
    6,
    400,
    (1 << 53) * 4,
    ((1 << 53) + 1) * 4,
    (u64::MAX as i128) * 4,
    (u64::MAX as i128 - 1) * 4,
    (i64::MIN as i128) * 4,
    (1 << 51) + 3,
];

//! Fillings: values of a field by their shape.

use super::Random;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt::Write as _;

/// A value that fills a field: `count` times `width` leaves, each time inside of `depth` arrays or objects. Where there is
/// less room there are fewer of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Filling {
    /// The kind of its content.
    pub shape: Shape,
    /// The levels around the leaves.
    pub depth: usize,
    /// The leaves of a group.
    pub width: usize,
    /// The groups.
    pub count: usize,
}

/// The kind of a filling's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shape {
    /// Empty arrays in arrays.
    Arrays,
    /// Empty objects in objects with one member each.
    Objects,
    /// Digits.
    Numbers,
    /// Numbers with an exponent.
    Floats,
    /// `true`.
    Flags,
    /// Empty texts.
    Texts,
    /// One text of nothing but escapes.
    Escapes,
    /// One long text.
    Text,
    /// One number, as large as 64 bits hold.
    Number,
    /// An array of names, all different, like the first of the field.
    Names,
    /// The first element of the field, again and again.
    Same,
    /// An object whose names are all different, with the value of the field's first member.
    Members,
    /// An object with the same member again and again.
    Doubles,
}

impl Shape {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::Arrays,
        Self::Objects,
        Self::Numbers,
        Self::Floats,
        Self::Flags,
        Self::Texts,
        Self::Escapes,
        Self::Text,
        Self::Number,
        Self::Names,
        Self::Same,
        Self::Members,
        Self::Doubles,
    ];
}

impl Filling {
    /// Some filling.
    pub(super) fn any(random: &mut Random) -> Self {
        Self {
            shape: *random.pick(&Shape::ALL),
            depth: *random.pick(&DEPTHS),
            width: *random.pick(&WIDTHS),
            count: *random.pick(&COUNTS),
        }
    }

    /// Changes one of its figures.
    pub(super) fn vary(&mut self, random: &mut Random) {
        match random.below(4) {
            0 => self.shape = *random.pick(&Shape::ALL),
            1 => self.depth = *random.pick(&DEPTHS),
            2 => self.width = *random.pick(&WIDTHS),
            _ => self.count = *random.pick(&COUNTS),
        }
    }

    /// Appends its JSON, of about `bytes_max` bytes at most. `sample` is a value that the field may have.
    pub(super) fn write(&self, sample: Option<&Value>, bytes_max: usize, out: &mut String) {
        let end = out.len() + bytes_max;
        match self.shape {
            Shape::Escapes => self.text("\\u0001", end, out),
            Shape::Text => self.text("a", end, out),
            Shape::Number => out.push_str("18446744073709551615"),
            Shape::Names => {
                let first = sample.and_then(|sample| sample.as_array()?.first()?.as_str());
                let stem = first.unwrap_or("a").to_owned();
                self.list('[', ']', end, out, |number, out| {
                    let _ = write!(out, "\"{stem}.{number}\"");
                });
            }
            Shape::Same => {
                let first = sample.and_then(|sample| sample.as_array()?.first());
                let first = first.unwrap_or(&Value::Null).to_string();
                self.list('[', ']', end, out, |_, out| out.push_str(&first));
            }
            Shape::Members | Shape::Doubles => {
                let first = sample.and_then(|sample| sample.as_object()?.iter().next());
                let (stem, value) = match first {
                    Some((name, value)) => (name.as_str(), value.to_string()),
                    None => ("a", "0".to_owned()),
                };
                let is_same = self.shape == Shape::Doubles;
                self.list('{', '}', end, out, |number, out| {
                    let number = if is_same { 0 } else { number };
                    let _ = write!(out, "\"{stem}.{number}\":{value}");
                });
            }
            Shape::Arrays => self.groups("[", "]", "[]", end, out),
            Shape::Objects => self.groups("{\"\":", "}", "{}", end, out),
            Shape::Numbers => self.groups("[", "]", "0", end, out),
            Shape::Floats => self.groups("[", "]", "1e9", end, out),
            Shape::Flags => self.groups("[", "]", "true", end, out),
            Shape::Texts => self.groups("[", "]", "\"\"", end, out),
        }
    }

    fn text(&self, unit: &str, end: usize, out: &mut String) {
        let room = end.saturating_sub(out.len() + 2) / unit.len();
        let units = (self.width * self.count).min(room);
        out.push('"');
        out.push_str(&unit.repeat(units));
        out.push('"');
    }

    fn list(
        &self,
        open: char,
        close: char,
        end: usize,
        out: &mut String,
        mut write: impl FnMut(usize, &mut String),
    ) {
        out.push(open);
        for number in 0..self.width * self.count {
            let before = out.len();
            if number > 0 {
                out.push(',');
            }
            write(number, out);
            if out.len() >= end {
                out.truncate(before);
                break;
            }
        }
        out.push(close);
    }

    fn groups(&self, open: &str, close: &str, leaf: &str, end: usize, out: &mut String) {
        let (open, close) = (open.repeat(self.depth), close.repeat(self.depth));
        let is_object = open.starts_with('{');
        out.push('[');
        for group in 0..self.count {
            let around = open.len() + close.len() + leaf.len() + 4;
            let room = end.saturating_sub(out.len() + around) / (leaf.len() + 1);
            if room == 0 {
                break;
            }
            if group > 0 {
                out.push(',');
            }
            // Only the groups of arrays can be wide.
            let width = if is_object {
                1
            } else {
                self.width.clamp(1, room)
            };
            out.push_str(&open);
            let is_bare = self.depth == 0 && width > 1;
            out.push_str(if is_bare { "[" } else { "" });
            for index in 0..width {
                out.push_str(if index > 0 && self.depth + usize::from(is_bare) > 0 {
                    ","
                } else {
                    ""
                });
                out.push_str(leaf);
            }
            out.push_str(if is_bare { "]" } else { "" });
            out.push_str(&close);
        }
        out.push(']');
    }
}

/// With the levels of a batch, its array, the message, its payload and the list of the groups around them, no more than
/// the 64 that a message may have.
const DEPTHS: [usize; 8] = [0, 1, 2, 4, 8, 16, 32, 56];
const WIDTHS: [usize; 7] = [1, 2, 4, 16, 100, 1_000, 1_000_000];
const COUNTS: [usize; 7] = [1, 2, 16, 100, 1_000, 10_000, 1_000_000];

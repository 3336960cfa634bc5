//! The conditions of a filter on its fields.

use super::automaton::Automaton;
use super::constant::{Constant, SEARCHED_BYTES_MAX};
use memchr::memmem::Finder;
use std::cmp::Ordering;
use tidewire_wire::json::{Cursor, Found, Number};

/// A condition.
#[derive(Debug)]
pub(super) enum Expression {
    All(Vec<Expression>),
    Any(Vec<Expression>),
    Not(Box<Expression>),
    /// For the field in this slot.
    Field(usize, Condition),
}

/// A condition of one field. Only `Exists` can hold if the field is missing.
#[derive(Debug)]
pub(super) enum Condition {
    Exists(bool),
    Equal(Constant),
    OneOf(Options),
    NumberIs(Relation, Number),
    TextIs(Relation, Box<[u8]>),
    StartsWith(Box<[u8]>),
    EndsWith(Box<[u8]>),
    Matches(Box<Automaton>),
    Contains {
        element: Constant,
        /// The value as a search in strings, if it is a string.
        needle: Option<Box<Finder<'static>>>,
    },
}

/// How the field must stand to the value.
#[derive(Debug, Clone, Copy)]
pub(super) enum Relation {
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// The values of a list, so that a long one needs no more than a few comparisons.
#[derive(Debug, Default)]
pub(super) struct Options {
    numbers: Vec<Number>,
    texts: Vec<Box<[u8]>>,
    others: Vec<Constant>,
}

impl Expression {
    /// The recursion is as deep as the document.
    pub(super) fn holds(&self, found: &[Found<'_>]) -> bool {
        match self {
            Self::All(several) => several.iter().all(|one| one.holds(found)),
            Self::Any(several) => several.iter().any(|one| one.holds(found)),
            Self::Not(one) => !one.holds(found),
            Self::Field(slot, condition) => condition.holds(&found[*slot]),
        }
    }
}

impl Condition {
    fn holds(&self, found: &Found<'_>) -> bool {
        match (self, found) {
            (Self::Exists(expected), _) => matches!(found, Found::Missing) != *expected,
            (_, Found::Missing) => false,
            (Self::Equal(constant), _) => constant.equals(found),
            (Self::OneOf(options), _) => options.contain(found),
            (Self::NumberIs(relation, bound), Found::Number(number)) => {
                relation.holds(number.compare(*bound))
            }
            (Self::TextIs(relation, bound), Found::Text(text)) => {
                relation.holds((**text).cmp(&**bound))
            }
            (Self::StartsWith(start), Found::Text(text)) => text.starts_with(start),
            (Self::EndsWith(end), Found::Text(text)) => text.ends_with(end),
            (Self::Matches(automaton), Found::Text(text)) => automaton.matches(text),
            (
                Self::Contains {
                    needle: Some(needle),
                    ..
                },
                Found::Text(text),
            ) => text.len() <= SEARCHED_BYTES_MAX && needle.find(text).is_some(),
            (Self::Contains { element, .. }, Found::Array(text)) => has_element(text, element),
            _ => false,
        }
    }
}

impl Relation {
    fn holds(self, order: Ordering) -> bool {
        match self {
            Self::Less => order.is_lt(),
            Self::LessOrEqual => order.is_le(),
            Self::Greater => order.is_gt(),
            Self::GreaterOrEqual => order.is_ge(),
        }
    }
}

impl Options {
    pub(super) fn new(values: Vec<Constant>) -> Self {
        let mut options = Self::default();
        for value in values {
            match value {
                Constant::Number(number) => options.numbers.push(number),
                Constant::Text(text) => options.texts.push(text),
                other => options.others.push(other),
            }
        }
        options.numbers.sort_by(|a, b| a.compare(*b));
        options.texts.sort();
        options
    }

    fn contain(&self, found: &Found<'_>) -> bool {
        match found {
            Found::Number(number) => self
                .numbers
                .binary_search_by(|other| other.compare(*number))
                .is_ok(),
            Found::Text(text) => self
                .texts
                .binary_search_by(|other| (**other).cmp(text))
                .is_ok(),
            other => self.others.iter().any(|constant| constant.equals(other)),
        }
    }
}

fn has_element(array: &[u8], wanted: &Constant) -> bool {
    let mut cursor = Cursor::new(&array[..array.len().min(SEARCHED_BYTES_MAX)]);
    cursor.enter();
    while cursor.next_element().is_some() {
        let Some(element) = cursor.value() else {
            return false;
        };
        if wanted.equals(&element) {
            return true;
        }
        let is_passed = !matches!(element, Found::Array(_) | Found::Object(_));
        if !is_passed && cursor.pass_value().is_none() {
            return false;
        }
    }
    false
}

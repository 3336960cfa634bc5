//! Values of a filter's document, and when a payload's are equal to them.

use serde_json::Value;
use std::cmp::Ordering;
use tidewire_wire::json::{Cursor, Found, Number};

/// A value of the document.
#[derive(Debug)]
pub(super) enum Constant {
    Null,
    Bool(bool),
    Number(Number),
    Text(Box<[u8]>),
    Array(Box<[Constant]>),
    /// Sorted by name.
    Object(Box<[(Box<[u8]>, Constant)]>),
}

impl Constant {
    /// The recursion is as deep as the value, of which the caller has checked the nesting.
    pub(super) fn new(value: &Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(value) => Self::Bool(*value),
            // Only a build of the reader that keeps the text has numbers that are neither 64-bit
            // integers nor floats.
            Value::Number(number) => Number::from_json(number).map_or(Self::Null, Self::Number),
            Value::String(text) => Self::Text(text.as_bytes().into()),
            Value::Array(elements) => Self::Array(elements.iter().map(Self::new).collect()),
            Value::Object(members) => {
                let member = |(name, value): (&String, &Value)| {
                    (Box::from(name.as_bytes()), Self::new(value))
                };
                let mut members: Box<[(Box<[u8]>, Self)]> = members.iter().map(member).collect();
                members.sort_by(|(a, _), (b, _)| a.cmp(b));
                Self::Object(members)
            }
        }
    }

    /// Whether the value found in the payload is equal to this one.
    pub(super) fn equals(&self, found: &Found<'_>) -> bool {
        match (self, found) {
            (Self::Null, Found::Null) => true,
            (Self::Bool(a), Found::Bool(b)) => a == b,
            (Self::Number(a), Found::Number(b)) => a.compare(*b) == Ordering::Equal,
            (Self::Text(a), Found::Text(b)) => **a == **b,
            (Self::Array(elements), Found::Array(text)) => {
                equal_elements(elements, &mut Cursor::new(searched(text))).is_some()
            }
            (Self::Object(members), Found::Object(text)) => {
                equal_members(members, &mut Cursor::new(searched(text))).is_some()
            }
            _ => false,
        }
    }

    /// Whether the value at the cursor is equal to this; if so, goes past it.
    fn equals_next(&self, cursor: &mut Cursor<'_>) -> Option<()> {
        match (self, cursor.value()?) {
            (Self::Array(elements), Found::Array(_)) => equal_elements(elements, cursor),
            (Self::Object(members), Found::Object(_)) => equal_members(members, cursor),
            (_, found) => self.equals(&found).then_some(()),
        }
    }
}

fn equal_elements(elements: &[Constant], cursor: &mut Cursor<'_>) -> Option<()> {
    cursor.enter();
    for element in elements {
        cursor.next_element()?;
        element.equals_next(cursor)?;
    }
    cursor.next_element().is_none().then_some(())
}

fn equal_members(members: &[(Box<[u8]>, Constant)], cursor: &mut Cursor<'_>) -> Option<()> {
    let mut is_seen = vec![false; members.len()];
    cursor.enter();
    while let Some(name) = cursor.next_name() {
        let index = members
            .binary_search_by(|(other, _)| (**other).cmp(&name))
            .ok()?;
        if is_seen[index] {
            cursor.pass_value()?;
        } else {
            is_seen[index] = true;
            members[index].1.equals_next(cursor)?;
        }
    }
    is_seen.iter().all(|&is_seen| is_seen).then_some(())
}

/// As much of a text as is looked at.
fn searched(text: &[u8]) -> &[u8] {
    &text[..text.len().min(SEARCHED_BYTES_MAX)]
}

/// How far a search goes: `$contains` does not hold in a longer string, and of an array the
/// elements that end behind this many bytes are not looked at; values that are arrays or objects
/// are not equal to longer text.
pub(super) const SEARCHED_BYTES_MAX: usize = 64 * 1024;

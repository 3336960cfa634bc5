//! Kinds of users: what they send once, what they repeat, and on which conditions.

use std::ops::{Range, RangeInclusive};

use super::template::{Template, Value, Values};

/// A kind of user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kind {
    /// How many of all users are of it, relative to the other kinds.
    pub weight: u64,
    /// The steps that each user sends once, before the others, which follow them.
    pub setup: Range<usize>,
    /// The steps that it repeats.
    pub steps: Range<usize>,
    /// The choice of the next of them.
    pub order: StepOrder,
    /// The steps that each user sends once when the load is over.
    pub teardown: Range<usize>,
}

/// The choice of the next request.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum StepOrder {
    /// One after another, repeatedly.
    #[default]
    InOrder,
    /// At random, each by its weight: the sums of the weights up to each step.
    Weighted(Vec<u64>),
}

/// How often a step of a journey is sent in a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Repeat {
    /// A number, drawn between the two each time.
    Times(RangeInclusive<u32>),
    /// As long as this holds.
    While(Condition),
}

/// A condition on the values of a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// Its left side.
    pub left: Template,
    /// The comparison and its right side; without one, the left side must not be empty.
    pub right: Option<(Comparison, Template)>,
}

/// A comparison of two texts, or of two numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    /// `==`: the same text.
    Equal,
    /// `!=`: another text.
    Unequal,
    /// `<` of numbers.
    Below,
    /// `<=` of numbers.
    AtMost,
    /// `>` of numbers.
    Above,
    /// `>=` of numbers.
    AtLeast,
}

impl Kind {
    /// The share of one of its steps among those that it repeats.
    pub(super) fn share_of(&self, step: usize) -> f64 {
        let index = step - self.steps.start;
        match &self.order {
            StepOrder::InOrder => 1.0 / self.steps.len().max(1) as f64,
            StepOrder::Weighted(sums) => {
                let before = index.checked_sub(1).map_or(0, |before| sums[before]);
                let all = sums.last().copied().unwrap_or(0).max(1);
                (sums[index] - before) as f64 / all as f64
            }
        }
    }
}

impl Condition {
    /// The value in it that means nothing in a condition, because it belongs to a request.
    #[must_use]
    pub fn value_of_a_request(&self) -> Option<&'static str> {
        let sides = [Some(&self.left), self.right.as_ref().map(|right| &right.1)];
        let has = |wanted: &Value| {
            let mut sides = sides.iter().flatten();
            sides.any(|side| side.has(|value| value == wanted))
        };
        let values = [(Value::Sequence, "seq"), (Value::Uuid, "uuid")];
        values
            .into_iter()
            .find(|(value, _)| has(value))
            .map(|(_, name)| name)
    }

    pub(super) fn holds(&self, values: &mut Values<'_>) -> bool {
        let mut written = |template: &Template| {
            let mut text = Vec::new();
            // A condition has no part that makes bytes, so that it can be written with all values.
            template.write(values, &mut text).unwrap_or_default();
            text
        };
        let left = written(&self.left);
        match &self.right {
            None => !left.is_empty(),
            Some((comparison, right)) => comparison.holds(left.trim_ascii(), &written(right)),
        }
    }
}

impl Comparison {
    /// Each with the text for it; of two that begin alike the longer comes first.
    pub const ALL: [(&'static str, Self); 6] = [
        ("==", Self::Equal),
        ("!=", Self::Unequal),
        ("<=", Self::AtMost),
        (">=", Self::AtLeast),
        ("<", Self::Below),
        (">", Self::Above),
    ];

    /// A text that is no number is neither above nor below another.
    fn holds(self, left: &[u8], right: &[u8]) -> bool {
        let number = |text: &[u8]| std::str::from_utf8(text).ok()?.trim().parse::<f64>().ok();
        let compare = |is: fn(&f64, &f64) -> bool| {
            let numbers = number(left).zip(number(right));
            numbers.is_some_and(|(left, right)| is(&left, &right))
        };
        match self {
            Self::Equal => left == right,
            Self::Unequal => left != right,
            Self::Below => compare(f64::lt),
            Self::AtMost => compare(f64::le),
            Self::Above => compare(f64::gt),
            Self::AtLeast => compare(f64::ge),
        }
    }
}

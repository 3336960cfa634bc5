//! Source of the value of an option.

use super::SettingError;
use super::spec::Way;
use super::value::Unusable;

/// The source of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    pub(super) way: Way,
    /// `file:line`, or empty.
    place: String,
}

impl Origin {
    /// A flag, a variable or a keyword, which its name identifies.
    #[must_use]
    pub fn of(way: Way) -> Self {
        Self {
            way,
            place: String::new(),
        }
    }

    /// A key of a file; `place` is `file:line`.
    #[must_use]
    pub fn file(place: &str) -> Self {
        Self {
            way: Way::File,
            place: format!("{place}: "),
        }
    }

    /// A part of an option, such as `topic_rules[0]`, whose values have types.
    pub(super) fn within(&self, part: &str) -> Self {
        Self {
            way: Way::Keyword,
            place: format!("{}{part}: ", self.place),
        }
    }

    /// `name` where it stands, for errors.
    pub(super) fn label(&self, name: &str) -> String {
        format!("{}{name}", self.place)
    }

    /// Whether numbers and booleans are texts here.
    pub(super) fn is_text(&self) -> bool {
        self.way != Way::Keyword
    }
}

/// An error about a value of `option`.
pub(super) fn unusable(option: String, error: Unusable) -> SettingError {
    let Unusable { value, problem } = error;
    SettingError::Value {
        option,
        value,
        problem,
    }
}

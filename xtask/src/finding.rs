//! A finding: a broken rule, and what to do about it.

use std::fmt;
use std::path::{Path, PathBuf};

/// One broken rule at one place. Shown as `path:line: what, what to do`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    /// The file, relative to the root of the repository.
    pub(crate) path: PathBuf,
    /// The line, from 1.
    pub(crate) line: usize,
    /// The fault and its remedy.
    pub(crate) message: String,
}

impl Finding {
    pub(crate) fn new(path: &Path, line: usize, message: impl Into<String>) -> Self {
        Self {
            path: path.to_owned(),
            line,
            message: message.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{}:{}: {}",
            self.path.display(),
            self.line,
            self.message
        )
    }
}

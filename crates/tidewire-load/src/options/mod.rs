//! Options: the user's input, parsed into the values of a plan.

pub mod body;
mod checks;
mod contents;
pub mod conversation;
mod credentials;
mod endpoint;
mod expected;
mod json;
pub mod load;
pub mod matching;
pub mod message;
mod proxy;
pub mod quantity;
pub mod request;
mod retry;
pub mod run;
pub mod scenario;
pub mod spec;
pub mod table;
pub mod terms;
pub mod tls;
mod upgrade;
pub mod workers;

use std::path::Path;

/// Each of these names once, in their order.
fn distinct<'a>(names: impl Iterator<Item = &'a String>) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for name in names {
        if !found.contains(name) {
            found.push(name.clone());
        }
    }
    found
}

/// A mistake in the options, in one line that names the correction.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct OptionError(pub String);

impl OptionError {
    pub(crate) fn new(message: impl std::fmt::Display) -> Self {
        Self(message.to_string())
    }

    /// A file that cannot be read.
    fn unreadable(path: &Path, error: &std::io::Error) -> Self {
        Self(format!("cannot read {}: {error}", path.display()))
    }
}

//! The one line with which a command ends that could not do its work.

use std::fmt;
use tidewire_load::report::model::EXIT_USAGE;

/// Why a command ended, for the person who typed it.
#[derive(Debug)]
pub(crate) struct Failure {
    /// What to end the program with.
    pub(crate) exit_code: u8,
    message: String,
}

impl Failure {
    /// The command line, the environment, a file or the machine has to be changed first.
    pub(crate) fn usage(message: impl fmt::Display) -> Self {
        Self {
            exit_code: EXIT_USAGE,
            message: one_line(&message.to_string()),
        }
    }

    /// The command was right, but its work failed.
    pub(crate) fn run(message: impl fmt::Display) -> Self {
        Self {
            exit_code: EXIT_FAILED,
            message: one_line(&message.to_string()),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Errors of other crates may span lines; scripts and logs want one.
fn one_line(text: &str) -> String {
    let mut line = String::new();
    for part in text.lines().map(str::trim).filter(|part| !part.is_empty()) {
        if !line.is_empty() {
            line.push_str(if line.ends_with([':', ';', ',']) {
                " "
            } else {
                "; "
            });
        }
        line.push_str(part);
    }
    line
}

/// Exit code of work that failed.
const EXIT_FAILED: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_line() {
        assert_eq!(
            Failure::usage("missing:\n  --a\n\n  tip: b\n").to_string(),
            "missing: --a; tip: b"
        );
        assert_eq!(Failure::run("plain").to_string(), "plain");
    }
}

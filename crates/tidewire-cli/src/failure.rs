//! Failures of commands: one line on standard error, and an exit code.

use std::fmt;
use tidewire_load::report::model::{EXIT_INTERRUPTED, EXIT_USAGE};
use tidewire_load::report::printable::printable_line;

/// The reason for which a command ended, for the user.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The exit code of the program.
    pub(crate) exit_code: u8,
    message: String,
}

impl Failure {
    /// A mistake of the user: the command line, the environment, a file or the machine must be
    /// corrected first.
    pub(crate) fn usage(message: impl fmt::Display) -> Self {
        Self {
            exit_code: EXIT_USAGE,
            message: one_line(&message.to_string()),
        }
    }

    /// A correct command that the user has ended before it had results.
    pub(crate) fn interrupted(message: impl fmt::Display) -> Self {
        Self {
            exit_code: EXIT_INTERRUPTED,
            ..Self::run(message)
        }
    }

    /// A correct command whose work failed.
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

/// Errors of other crates may span several lines; scripts and logs need one.
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
    without_error_numbers(printable_line(&line).into_owned())
}

/// Removes the error number that the standard library appends: `Permission denied (os error 13)`.
fn without_error_numbers(mut line: String) -> String {
    const OPENING: &str = " (os error ";
    let mut from = 0;
    while let Some(found) = line[from..].find(OPENING) {
        let start = from + found;
        let number = &line[start + OPENING.len()..];
        let digits = number.bytes().take_while(u8::is_ascii_digit).count();
        if digits > 0 && number[digits..].starts_with(')') {
            line.replace_range(start..start + OPENING.len() + digits + 1, "");
            from = start;
        } else {
            from = start + OPENING.len();
        }
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
        assert_eq!(Failure::run("a\u{1b}c").to_string(), "a\\u{1b}c");
    }

    #[test]
    fn a_message_has_no_numbers_of_system_errors() {
        let denied = std::io::Error::from_raw_os_error(13);
        let words = Failure::run(format_args!("a.toml: {denied}: check its mode")).to_string();
        assert_eq!(words, "a.toml: Permission denied: check its mode");
        for kept in ["(os error 13", "a (os error ) b", "a (os error x)"] {
            assert_eq!(Failure::run(kept).to_string(), kept);
        }
    }
}

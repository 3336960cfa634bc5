//! Regular expressions of filters as automata: the time of a search is some nanoseconds for each
//! byte, whatever the expression, and the memory is known when it is compiled. What would need a
//! large automaton is refused.

use regex_automata::Input;
use regex_automata::dfa::dense::{Builder, Config, DFA};
use regex_automata::dfa::{Automaton as _, StartKind};
use regex_automata::nfa::thompson::{self, WhichCaptures};
use regex_automata::util::syntax;

/// A regular expression that can be searched for.
#[derive(Debug)]
pub(super) struct Automaton(DFA<Vec<u32>>);

impl Automaton {
    /// Compiles an expression, or returns why it cannot be used.
    pub(super) fn new(text: &str) -> Result<Self, String> {
        if text.len() > REGEX_BYTES_MAX {
            return Err(format!("more than {REGEX_BYTES_MAX} bytes"));
        }
        let config = Config::new()
            .start_kind(StartKind::Unanchored)
            .dfa_size_limit(Some(AUTOMATON_BYTES_MAX))
            .determinize_size_limit(Some(AUTOMATON_BYTES_MAX));
        let nfa = thompson::Config::new()
            .utf8(false)
            .which_captures(WhichCaptures::None)
            .nfa_size_limit(Some(NFA_BYTES_MAX));
        Builder::new()
            .configure(config)
            .thompson(nfa)
            .syntax(
                syntax::Config::new()
                    .utf8(false)
                    .nest_limit(PATTERN_NESTING_MAX),
            )
            .build(&with_ascii_classes(text))
            .map(Self)
            .map_err(|error| {
                let is_too_large = error.is_size_limit_exceeded();
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                match cause {
                    Some(cause) if !is_too_large && !cause.contains("size limit") => cause,
                    _ => TOO_LARGE.to_owned(),
                }
            })
    }

    /// Whether the expression matches somewhere in the text; never in one that is too long.
    pub(super) fn matches(&self, text: &[u8]) -> bool {
        text.len() <= REGEX_TEXT_BYTES_MAX
            && self
                .0
                .try_search_fwd(&Input::new(text).earliest(true))
                .is_ok_and(|found| found.is_some())
    }

    /// Its memory.
    pub(super) fn bytes(&self) -> usize {
        self.0.memory_usage()
    }
}

/// The expression with `\d`, `\w`, `\s`, `\b` and their contraries about ASCII alone: their tables
/// in Unicode would make every automaton large.
fn with_ascii_classes(text: &str) -> String {
    let mut ascii = String::with_capacity(text.len());
    let mut rest = text;
    let mut class_depth = 0_u32;
    while let Some(character) = rest.chars().next() {
        let mut bytes = character.len_utf8();
        match character {
            '\\' => {
                bytes += rest[bytes..].chars().next().map_or(0, char::len_utf8);
                let class = match &rest[..bytes] {
                    "\\d" => Some("[0-9]"),
                    "\\D" => Some("[^0-9]"),
                    "\\w" => Some("[0-9A-Za-z_]"),
                    "\\W" => Some("[^0-9A-Za-z_]"),
                    "\\s" => Some("[\\t\\n\\x0B\\f\\r ]"),
                    "\\S" => Some("[^\\t\\n\\x0B\\f\\r ]"),
                    _ => None,
                };
                let is_boundary = matches!(&rest[..bytes], "\\b" | "\\B") && class_depth == 0;
                if let Some(class) = class {
                    ascii.push_str(class);
                } else if is_boundary {
                    // `\b{start}` and its like are one assertion.
                    if rest[bytes..].starts_with('{')
                        && let Some(end) = rest.find('}')
                    {
                        bytes = end + 1;
                    }
                    ascii.push_str("(?-u:");
                    ascii.push_str(&rest[..bytes]);
                    ascii.push(')');
                } else {
                    ascii.push_str(&rest[..bytes]);
                }
                rest = &rest[bytes..];
                continue;
            }
            '[' => class_depth += 1,
            ']' => class_depth = class_depth.saturating_sub(1),
            _ => {}
        }
        ascii.push(character);
        rest = &rest[bytes..];
    }
    ascii
}

const TOO_LARGE: &str =
    "it needs too large an automaton: repeat less, or name the characters of a class";
const REGEX_BYTES_MAX: usize = 512;
const PATTERN_NESTING_MAX: u32 = 64;
const NFA_BYTES_MAX: usize = 64 * 1024;
/// With this limit the worst expressions compile in about a millisecond.
const AUTOMATON_BYTES_MAX: usize = 32 * 1024;

/// The longest string that `$regex` looks at.
pub(super) const REGEX_TEXT_BYTES_MAX: usize = 4 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_about_ascii() {
        for (text, ascii) in [
            (r"\d+", "[0-9]+"),
            (r"[\w.]", "[[0-9A-Za-z_].]"),
            (r"\\d", r"\\d"),
            (r"\bx\B", r"(?-u:\b)x(?-u:\B)"),
            (r"\b{start}x", r"(?-u:\b{start})x"),
            ("ä\\", "ä\\"),
        ] {
            assert_eq!(with_ascii_classes(text), ascii);
        }
    }

    #[test]
    fn it_finds_what_it_says() {
        for (expression, text, expected) in [
            (r"^EUR\w{3}$", "EURUSD", true),
            (r"^EUR\w{3}$", "EURUSDX", false),
            (r"(?i)straße", "Hauptstraße 5", true),
            (r"\bcat\b", "the cat sat", true),
            (r"\bcat\b", "concatenate", false),
            (r"^[^\s]+$", "größe", true),
            (r"^.$", "ß", true),
            (r"\d{4}-\d{2}-\d{2}", "on 2026-11-22", true),
            ("", "", true),
        ] {
            let automaton = Automaton::new(expression).unwrap();
            assert_eq!(automaton.matches(text.as_bytes()), expected, "{expression}");
            assert!(automaton.bytes() <= AUTOMATON_BYTES_MAX);
        }
    }

    #[test]
    fn what_would_be_large_is_refused_and_said() {
        for expression in [
            "(?:a[ab]{10}|b[ab]{12}){2}c",
            "(?s).{1,500}z",
            "((a{100}){100}){100}",
            r"\p{L}",
            "(",
            "(?P<n",
        ] {
            let error = Automaton::new(expression).unwrap_err();
            assert!(!error.is_empty() && error.len() < 500, "{error}");
        }
        let error = Automaton::new("(?:a[ab]{10}|b[ab]{12}){2}c").unwrap_err();
        assert_eq!(error, TOO_LARGE);
    }
}

//! Ways to match the replies of a server with messages.

use regex_lite::Regex;

use super::OptionError;
use crate::worker::messages::{Matching, Pattern, Pointer};

/// The evidence that a message has arrived: `pong`, `order` or `field:NAME`.
///
/// # Errors
/// The text is no message.
pub fn matching(text: &str) -> Result<Matching, OptionError> {
    match text.split_once(':') {
        None if text == "pong" => Ok(Matching::None),
        None if text == "order" => Ok(Matching::Order),
        Some(("field", name)) if !name.is_empty() => Ok(Matching::Field(Pointer::new(name))),
        Some(("regex", pattern)) if !pattern.is_empty() => {
            Ok(Matching::Regex(Pattern(regex(pattern)?)))
        }
        _ => Err(OptionError::new(format_args!(
            "`{text}` does not define how to match replies: write pong, order, field:NAME such as field:id or field:/p/id, \
             or regex:EXPRESSION with the identification as its first group"
        ))),
    }
}

/// A regular expression.
///
/// # Errors
/// It is none.
pub(super) fn regex(pattern: &str) -> Result<Regex, OptionError> {
    Regex::new(pattern).map_err(|error| {
        OptionError::new(format_args!(
            "`{pattern}` is not a regular expression: {error}"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_to_match_have_names() {
        assert_eq!(matching("pong").unwrap(), Matching::None);
        assert_eq!(matching("order").unwrap(), Matching::Order);
        let field = Matching::Field(Pointer::new("/p/id"));
        assert_eq!(matching("field:/p/id").unwrap(), field);
        for wrong in ["", "field:", "fields", "order:1"] {
            assert!(
                matching(wrong).unwrap_err().0.contains("field:id"),
                "{wrong}"
            );
        }
    }
}

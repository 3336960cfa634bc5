//! Ways to match the replies of a server with messages.

use regex_lite::Regex;

use super::OptionError;
use crate::worker::messages::{Matching, Pattern, Pointer};

/// The evidence that a message has arrived: `pong`, `order`, `field:NAME`, `regex:EXPRESSION` or `seq:FROM..TO`.
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
        Some(("seq", place)) => {
            let number = place.parse().map_err(|()| wrong(text))?;
            Ok(Matching::Sequence(number))
        }
        _ => Err(wrong(text)),
    }
}

fn wrong(text: &str) -> OptionError {
    OptionError::new(format_args!(
        "`{text}` does not define how to match replies: write pong, order, field:NAME such as field:id or field:/p/id, \
         regex:EXPRESSION with the identification as its first group, or seq:2..4 for the bytes of the reply that have \
         the number of the message"
    ))
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
        for right in ["seq:2..4", "seq:0..1", "seq:+0..+2", "seq:-4..-0"] {
            assert!(
                matches!(matching(right), Ok(Matching::Sequence(_))),
                "{right}"
            );
        }
        assert_eq!(matching("pong").unwrap(), Matching::None);
        assert_eq!(matching("order").unwrap(), Matching::Order);
        let field = Matching::Field(Pointer::new("/p/id"));
        assert_eq!(matching("field:/p/id").unwrap(), field);
        for wrong in [
            "", "field:", "fields", "order:1", "seq", "seq:", "seq:2", "seq:2..5", "seq:2..",
        ] {
            assert!(
                matching(wrong).unwrap_err().0.contains("field:id"),
                "{wrong}"
            );
        }
    }
}

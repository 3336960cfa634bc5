//! Numbers of flags: errors name the range that is accepted.

use clap::builder::ValueParser;
use std::any::TypeId;
use std::error::Error as _;
use std::num::{ParseFloatError, ParseIntError};

/// A whole number from 1 on, as large as its type.
pub(crate) fn positive<T: TryFrom<u64>>(text: &str) -> Result<T, String> {
    let number = text.parse::<u64>().ok().filter(|&number| number > 0);
    let number = number.and_then(|number| T::try_from(number).ok());
    number.ok_or_else(|| match size_of::<T>() {
        size if size < size_of::<u64>() => format!("expected a number from 1 to {}", largest(size)),
        _ => "expected a number from 1".to_owned(),
    })
}

/// The expectation of a flag whose text the number type of its value refused, in place of the words of the type;
/// `None` for any other error.
pub(crate) fn expected(error: &clap::Error, parser: &ValueParser) -> Option<String> {
    let source = error.source()?;
    if source.is::<ParseFloatError>() {
        return Some("expected a number, such as 5 or 0.5".to_owned());
    }
    let is_range = source.to_string().contains(" is not in ");
    if !source.is::<ParseIntError>() && !is_range {
        return None;
    }
    let id = parser.type_id();
    let sizes = [
        (TypeId::of::<u8>(), 1),
        (TypeId::of::<u16>(), 2),
        (TypeId::of::<u32>(), 4),
        (TypeId::of::<u64>(), 8),
        (TypeId::of::<usize>(), size_of::<usize>()),
    ];
    let (_, size) = sizes.into_iter().find(|(known, _)| id == *known)?;
    Some(format!(
        "expected a whole number from 0 to {}",
        largest(size)
    ))
}

/// The largest number of N bytes.
fn largest(size: usize) -> u64 {
    u64::MAX >> (64 - 8 * size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_ends_with_the_type() {
        assert_eq!(positive::<u32>("4294967295"), Ok(u32::MAX));
        let range = "expected a number from 1 to 4294967295";
        for bad in ["0", "4294967296", "-1", "x", "", "99999999999999999999"] {
            assert_eq!(positive::<u32>(bad), Err(range.to_owned()), "{bad}");
        }
        let error = positive::<u64>("0");
        assert_eq!(error, Err("expected a number from 1".to_owned()));
    }
}

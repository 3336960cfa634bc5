//! Objections: why the payload of a request is refused, and the fields that all requests read alike.

use crate::codes::ErrorCode;
use serde_json::Value;

/// An error code, and its explanation in words.
pub(super) type Objection = (ErrorCode, &'static str);

/// A boolean that may be missing or null, which means false.
pub(super) fn parse_flag(value: Option<&Value>, words: &'static str) -> Result<bool, Objection> {
    match value {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(flag)) => Ok(*flag),
        Some(_) => Err((ErrorCode::InvalidSubscription, words)),
    }
}

/// A number that may be missing or null.
pub(super) fn parse_number(
    value: Option<&Value>,
    words: &'static str,
) -> Result<Option<u64>, Objection> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(number) => match number.as_u64() {
            Some(number) => Ok(Some(number)),
            None => Err((ErrorCode::InvalidSubscription, words)),
        },
    }
}

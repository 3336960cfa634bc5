//! Objections: why the payload of a request is refused, and the fields that all requests read alike.

use crate::codes::ErrorCode;
use crate::envelope::raw::Raw;

/// An error code, and its explanation in words.
pub(super) type Objection = (ErrorCode, &'static str);

/// A boolean that may be missing or null, which means false.
pub(super) fn parse_flag(value: Raw<'_>, words: &'static str) -> Result<bool, Objection> {
    if value.is_null() {
        return Ok(false);
    }
    value.flag().ok_or((ErrorCode::InvalidSubscription, words))
}

/// A number that may be missing or null.
pub(super) fn parse_number(value: Raw<'_>, words: &'static str) -> Result<Option<u64>, Objection> {
    if value.is_null() {
        return Ok(None);
    }
    let wrong = (ErrorCode::InvalidSubscription, words);
    value.unsigned().map(Some).ok_or(wrong)
}

//! Payloads on their way between JavaScript and the engine: JSON text, or the mark of bytes and their base64 in quotes.
//!
//! The mark is a NUL. No JSON text begins with it, so that no text of an application is mistaken for bytes;
//! `lib/json.js` writes and reads it.

use crate::errors::{Failure, argument};
use std::borrow::Cow;
use tidewire_engine::Content;

/// A payload that JavaScript has written.
pub(crate) fn content_of(text: impl Into<String> + AsRef<str>) -> Result<Content, Failure> {
    let Some(base64) = text.as_ref().strip_prefix(MARK) else {
        return Ok(Content::json(text));
    };
    let bytes = tidewire_wire::format::binary_bytes(base64.as_bytes());
    let bytes = bytes.ok_or_else(|| argument("a payload of bytes is damaged"))?;
    Ok(Content::binary(bytes))
}

/// A payload as JavaScript reads it.
pub(crate) fn shown_content(json: &str, is_binary: bool) -> Cow<'_, str> {
    if is_binary {
        Cow::Owned(format!("{MARK}{json}"))
    } else {
        Cow::Borrowed(json)
    }
}

const MARK: char = '\0';

//! Inspection of a response: the parts that its checks and captures need, kept until it is
//! complete.

use std::collections::HashMap;
use std::io::Read;

use flate2::read::{MultiGzDecoder, ZlibDecoder};
use serde_json::value::RawValue;
use tidewire_http::response::Head;

use crate::worker::script::{CaptureFrom, ScriptState, Step};

/// The kept parts of a response.
#[derive(Debug, Default)]
pub(super) struct Inspection {
    /// Values of the captured headers, in the order of the captures.
    headers: Vec<Option<Vec<u8>>>,
    /// The target of a redirect.
    pub(super) location: Option<Vec<u8>>,
    coding: Coding,
    /// The body, if it is needed.
    body: Option<Vec<u8>>,
    is_too_long: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Coding {
    #[default]
    None,
    Gzip,
    Deflate,
    Other,
}

impl Inspection {
    pub(super) fn of(step: &Step, head: &Head<'_>) -> Self {
        let captured = |from: &CaptureFrom| match from {
            CaptureFrom::Header(name) => head.header(name).map(<[u8]>::to_vec),
            CaptureFrom::Json(_) => None,
        };
        Self {
            headers: step
                .captures
                .iter()
                .map(|capture| captured(&capture.from))
                .collect(),
            location: head.header("location").map(<[u8]>::to_vec),
            coding: Coding::of(head.header("content-encoding")),
            body: step.needs_body().then(Vec::new),
            is_too_long: false,
        }
    }

    /// Keeps a piece of the body.
    pub(super) fn add(&mut self, bytes: &[u8]) {
        if let Some(body) = &mut self.body {
            let room = INSPECTED_BYTES_MAX.saturating_sub(body.len());
            self.is_too_long |= bytes.len() > room;
            body.extend_from_slice(&bytes[..bytes.len().min(room)]);
        }
    }

    /// The error of the complete response; captures its values if there is none.
    pub(super) fn judge(self, step: &Step, state: &mut ScriptState) -> Option<&'static str> {
        if self.is_too_long {
            return Some(TOO_LONG);
        }
        let body = match self.body.map(|body| self.coding.decode(body)) {
            Some(Err(name)) => return Some(name),
            Some(Ok(body)) => Some(body),
            None => None,
        };
        if let (Some(part), Some(body)) = (&step.checks.body_contains, &body)
            && !contains(body, part)
        {
            return Some("unexpected-body");
        }
        for (capture, header) in step.captures.iter().zip(self.headers) {
            let value = match &capture.from {
                CaptureFrom::Header(_) => header,
                CaptureFrom::Json(pointer) => {
                    value_at(body.as_deref().unwrap_or_default(), pointer).and_then(text_of)
                }
            };
            let Some(value) = value else {
                return Some("capture-missing");
            };
            state.captured[capture.variable] = value;
        }
        None
    }
}

impl Coding {
    fn of(value: Option<&[u8]>) -> Self {
        let Some(value) = value else {
            return Self::None;
        };
        let is = |name: &str| value.trim_ascii().eq_ignore_ascii_case(name.as_bytes());
        if is("gzip") || is("x-gzip") {
            Self::Gzip
        } else if is("deflate") {
            Self::Deflate
        } else if is("identity") {
            Self::None
        } else {
            Self::Other
        }
    }

    /// The content, or the name of the error.
    fn decode(self, body: Vec<u8>) -> Result<Vec<u8>, &'static str> {
        match self {
            Self::None => Ok(body),
            Self::Gzip => read_all(MultiGzDecoder::new(&body[..])),
            Self::Deflate => read_all(ZlibDecoder::new(&body[..])),
            Self::Other => Err(BAD_CODING),
        }
    }
}

fn read_all(decoder: impl Read) -> Result<Vec<u8>, &'static str> {
    let mut content = Vec::new();
    let mut bounded = decoder.take(INSPECTED_BYTES_MAX as u64 + 1);
    bounded.read_to_end(&mut content).map_err(|_| BAD_CODING)?;
    match content.len() <= INSPECTED_BYTES_MAX {
        true => Ok(content),
        false => Err(TOO_LONG),
    }
}

/// The value at a pointer (RFC 6901), as it is written: a number keeps its digits.
fn value_at<'a>(json: &'a [u8], pointer: &str) -> Option<&'a RawValue> {
    let mut value: &RawValue = serde_json::from_slice(json).ok()?;
    for token in pointer.split('/').skip(1) {
        let token = token.replace("~1", "/").replace("~0", "~");
        value = match value.get().as_bytes().first() {
            Some(b'{') => {
                let mut fields: HashMap<String, &RawValue> =
                    serde_json::from_str(value.get()).ok()?;
                fields.remove(&token)?
            }
            Some(b'[') => {
                let is_index = token == "0" || !token.starts_with(['0', '+']);
                let index: usize = token.parse().ok().filter(|_| is_index)?;
                let items: Vec<&RawValue> = serde_json::from_str(value.get()).ok()?;
                *items.get(index)?
            }
            _ => return None,
        };
    }
    Some(value)
}

/// A value in the form for a template: a string without its quotes, anything else as JSON.
fn text_of(value: &RawValue) -> Option<Vec<u8>> {
    match value.get() {
        "null" => None,
        text if text.starts_with('"') => {
            let text: String = serde_json::from_str(text).ok()?;
            Some(text.into_bytes())
        }
        other => Some(other.as_bytes().to_vec()),
    }
}

fn contains(body: &[u8], part: &[u8]) -> bool {
    part.is_empty() || body.windows(part.len()).any(|window| window == part)
}

/// Names of errors.
const BAD_CODING: &str = "bad-content-encoding";
const TOO_LONG: &str = "body-too-long-to-check";

/// The largest kept body, before and after decoding.
const INSPECTED_BYTES_MAX: usize = 16 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_keep_the_form_in_which_they_were_sent() {
        let json =
            br#"{"a/b":[1.10,123456789012345678901234567890,"x\u00e4",null,{"c": [ 1E400 ]}]}"#;
        let captured = |pointer| {
            let text = text_of(value_at(json, pointer)?)?;
            Some(String::from_utf8(text).unwrap())
        };
        for (pointer, expected) in [
            ("/a~1b/0", Some("1.10")),
            ("/a~1b/1", Some("123456789012345678901234567890")),
            ("/a~1b/2", Some("x\u{e4}")),
            ("/a~1b/4/c", Some("[ 1E400 ]")),
            ("/a~1b/3", None),
            ("/a~1b/5", None),
            ("/a~1b/00", None),
            ("/a~1b/0/x", None),
            ("/b", None),
        ] {
            assert_eq!(captured(pointer).as_deref(), expected, "{pointer}");
        }
    }
}

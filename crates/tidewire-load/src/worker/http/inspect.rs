//! Inspection of a response: the parts that its checks and captures need, kept until it is
//! complete.

use std::io::Read;

use flate2::read::{MultiGzDecoder, ZlibDecoder};
use tidewire_http::Fields;

use super::extract::{form_field, json_value};
use crate::worker::jar::{CookieOrigin, Jar};
use crate::worker::messages::first_group;
use crate::worker::script::{CaptureFrom, Step};
use crate::worker::walk::ScriptState;

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
    pub(super) fn of(step: &Step, fields: &Fields<'_>) -> Self {
        let captured = |from: &CaptureFrom| match from {
            CaptureFrom::Header(name) => fields.value(name).map(<[u8]>::to_vec),
            _ => None,
        };
        Self {
            headers: step
                .captures
                .iter()
                .map(|capture| captured(&capture.from))
                .collect(),
            location: fields.value("location").map(<[u8]>::to_vec),
            coding: Coding::of(fields.value("content-encoding")),
            body: step.needs_body().then(Vec::new),
            is_too_long: false,
        }
    }

    /// Bytes that are kept of the body.
    pub(super) fn kept_bytes(&self) -> usize {
        self.body.as_ref().map_or(0, Vec::len)
    }

    /// Keeps a piece of the body, as far as there is room.
    pub(super) fn add(&mut self, bytes: &[u8], room: usize) {
        if let Some(body) = &mut self.body {
            self.is_too_long |= bytes.len() > room;
            body.extend_from_slice(&bytes[..bytes.len().min(room)]);
        }
    }

    /// The error of the complete response; captures its values if there is none.
    pub(super) fn judge(
        self,
        step: &Step,
        (jar, origin): (&Jar, Option<&CookieOrigin>),
        state: &mut ScriptState,
    ) -> Option<&'static str> {
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
        let body = body.as_deref().unwrap_or_default();
        for (capture, header) in step.captures.iter().zip(self.headers) {
            let value = match &capture.from {
                CaptureFrom::Header(_) => header,
                CaptureFrom::Cookie(name) => {
                    let value = origin.and_then(|origin| jar.value(name, origin));
                    value.map(|text| text.as_bytes().to_vec())
                }
                CaptureFrom::Json(pointer) => json_value(body, pointer),
                CaptureFrom::Form(name) => form_field(body, name),
                CaptureFrom::Regex(regex) => first_group(body, regex),
            };
            let Some(value) = value.or_else(|| capture.default.clone()) else {
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

fn contains(body: &[u8], part: &[u8]) -> bool {
    part.is_empty() || body.windows(part.len()).any(|window| window == part)
}

/// Names of errors.
const BAD_CODING: &str = "bad-content-encoding";
const TOO_LONG: &str = "body-too-long-to-check";

/// The largest kept body, before and after decoding, and all that is kept for one connection.
pub(super) const INSPECTED_BYTES_MAX: usize = 16 * 1024 * 1024;

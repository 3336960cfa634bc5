//! `call_request` and `call_response`: calls of either side, which the application of the other side answers.

use super::Object;
use super::objection::Objection;
use super::publish::{BINARY_NO_FLAG, KEY_BYTES_MAX, TYPE_BYTES_MAX, binary_payload};
use super::walk::{Unusable, as_json, bounded, flag, unsigned, walk};
use crate::codes::ErrorCode;
use crate::envelope::SystemType;
use crate::envelope::raw::Raw;
use crate::format::{Format, NOT_BASE64, Place, binary_text};
use std::borrow::Cow;

/// A call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// `type`: 1 to [`TYPE_BYTES_MAX`] bytes, defined by the application.
    pub t: String,
    /// One validated JSON value; `{}` if it is missing. If it is binary, the base64 of the bytes in quotes.
    pub payload: Vec<u8>,
    /// Whether the payload is binary.
    pub binary: bool,
    /// The time for which the caller waits, in milliseconds.
    pub timeout_ms: Option<u64>,
}

/// The answer to a call: a payload, or an error.
pub type CallResult = Result<CallAnswer, CallError>;

/// The payload of the answer to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallAnswer {
    /// One validated JSON value; `null` if it is missing. If it is binary, the base64 of the bytes in quotes.
    pub payload: Vec<u8>,
    /// Whether the payload is binary.
    pub binary: bool,
}

/// The error of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallError {
    /// An error code of the protocol or of the application.
    pub code: String,
    /// The explanation in words.
    pub message: String,
}

impl CallAnswer {
    /// An answer of one JSON value, which is not checked.
    pub fn json(payload: impl Into<Vec<u8>>) -> Self {
        Self {
            payload: payload.into(),
            binary: false,
        }
    }

    /// An answer of bytes.
    pub fn binary(bytes: &[u8]) -> Self {
        Self {
            payload: binary_text(bytes).into_bytes(),
            binary: true,
        }
    }
}

impl Call {
    pub(super) fn write_payload(&self, out: &mut Vec<u8>) {
        let mut object = Object::open(out);
        object.text("type", &self.t);
        if let Some(timeout_ms) = self.timeout_ms {
            object.number("timeout_ms", timeout_ms);
        }
        write_answer(&mut object, &self.payload, self.binary);
        object.close();
    }
}

fn write_answer(object: &mut Object<'_>, payload: &[u8], binary: bool) {
    if binary {
        object.boolean("binary", true);
    }
    object.with("payload", |out| out.extend_from_slice(payload));
}

/// The payload of `call_response`.
pub(super) fn write_result(result: &CallResult, out: &mut Vec<u8>) {
    let mut object = Object::open(out);
    match result {
        Ok(answer) => write_answer(&mut object, &answer.payload, answer.binary),
        Err(error) => object.with("error", |out| {
            let mut object = Object::open(out);
            object.text("code", &error.code);
            object.text("message", &error.message);
            object.close();
        }),
    }
    object.close();
}

/// A call or the answer to one.
pub(super) enum Either {
    Request(Call),
    Response(CallResult),
}

/// Reads either of the two, from either side, with its correlation id.
pub(super) fn parse(
    system: SystemType,
    encoding: Format,
    bytes: &[u8],
) -> Result<(Either, String), Unusable> {
    let mut scratch = Vec::new();
    let text = as_json(encoding, Place::Carrier, bytes, &mut scratch)?;
    let (either, correlation_id) = if system == SystemType::CallRequest {
        parse_request(text)?
    } else {
        parse_response(text)?
    };
    match correlation_id {
        Some(id) if !id.is_empty() && id.len() <= KEY_BYTES_MAX => Ok((either, id.into_owned())),
        id => Err(Unusable::payload(
            "a call has no cid of 1 to 128 bytes",
            id.filter(|id| !id.is_empty()),
        )),
    }
}

fn parse_request(text: &[u8]) -> Result<(Either, Option<Cow<'_, str>>), Unusable> {
    let no_type = "type is not 1 to 128 bytes of text";
    let mut call = Call {
        t: String::new(),
        payload: Vec::new(),
        binary: false,
        timeout_ms: None,
    };
    let mut payload = &b"{}"[..];
    let correlation_id = walk(text, |name, value| {
        match name {
            b"type" => call.t = bounded(value, TYPE_BYTES_MAX, no_type)?.into_owned(),
            b"payload" => payload = value,
            b"binary" => call.binary = flag(value, BINARY_NO_FLAG)?,
            b"timeout_ms" => {
                call.timeout_ms = Some(unsigned(value, "timeout_ms is not a number")?);
            }
            _ => {}
        }
        Ok(())
    })?;
    if call.t.is_empty() {
        return Err(Unusable::payload(no_type, correlation_id));
    }
    let Some(payload) = checked(payload, call.binary) else {
        return Err(Unusable::payload(NOT_BASE64, correlation_id));
    };
    call.payload = payload.into_owned();
    Ok((Either::Request(call), correlation_id))
}

fn parse_response(text: &[u8]) -> Result<(Either, Option<Cow<'_, str>>), Unusable> {
    let mut payload = &b"{}"[..];
    let mut binary = false;
    let mut error = None;
    let correlation_id = walk(text, |name, value| {
        match name {
            b"payload" => payload = value,
            b"binary" => binary = flag(value, BINARY_NO_FLAG)?,
            b"error" => error = Some(parse_error(value)?),
            _ => {}
        }
        Ok(())
    })?;
    let result = match error {
        Some(error) => Err(error),
        None => match checked(payload, binary) {
            Some(payload) => Ok(CallAnswer {
                payload: payload.into_owned(),
                binary,
            }),
            None => return Err(Unusable::payload(NOT_BASE64, correlation_id)),
        },
    };
    Ok((Either::Response(result), correlation_id))
}

/// A payload, without escapes if it is binary; `None` if it is marked as binary and is not base64.
fn checked(payload: &[u8], binary: bool) -> Option<Cow<'_, [u8]>> {
    let payload = Cow::Borrowed(payload);
    if binary {
        binary_payload(payload)
    } else {
        Some(payload)
    }
}

fn parse_error(value: &[u8]) -> Result<CallError, Objection> {
    let objection = (
        ErrorCode::InvalidMessage,
        "error has no code that is a text",
    );
    let [code, message] = Raw::json(value).pick(["code", "message"]);
    let code = code.text().filter(|code| !code.is_empty());
    Ok(CallError {
        code: code.ok_or(objection)?.into_owned(),
        message: message.text().unwrap_or_default().into_owned(),
    })
}

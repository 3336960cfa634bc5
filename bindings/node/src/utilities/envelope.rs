//! The envelope around the payload of a message.

use crate::content::{content_of, shown_content};
use crate::errors::{Failure, argument, invalid_message};
use napi::bindgen_prelude::{Buffer, BufferSlice, Either};
use napi_derive::napi;
use serde_json::json;
use tidewire_bindings::utilities::envelope::{Envelope, EnvelopeFields};
use tidewire_wire::envelope::parse_epoch;

/// The fields of a message besides its type and payload.
#[napi(object)]
pub struct NativeEnvelopeFields {
    pub category: Option<String>,
    pub id: Option<String>,
    pub unix_ms: Option<f64>,
    pub sequence: Option<f64>,
    pub correlation_id: Option<String>,
    pub signature: Option<String>,
    pub number: Option<f64>,
    pub topic: Option<String>,
    pub epoch: Option<String>,
    pub offset: Option<f64>,
    pub priority: Option<u32>,
    pub format: Option<String>,
}

/// Reads a message: its fields as a JSON array, and the JSON text of its payload.
#[napi]
pub fn parse_envelope(message: BufferSlice<'_>) -> napi::Result<(String, Option<String>)> {
    let read = Envelope::parse(&*message).map_err(Failure::from)?;
    let payload = read.payload_text().map(std::str::from_utf8).transpose();
    let payload = payload.map_err(invalid_message)?;
    let head = read.head();
    let payload = payload.map(|payload| shown_content(payload, head.binary).into_owned());
    let position = read.position();
    let fields = json!([
        read.category(),
        head.t,
        head.id,
        head.ts,
        // `null` beside a text is a text that is no time.
        read.unix_ms().unwrap_or_default(),
        head.seq,
        read.priority(),
        head.correlation_id,
        head.signature,
        head.topic,
        position.map(|(epoch, _)| epoch),
        position.map(|(_, offset)| offset),
        head.number,
        head.delivery,
        head.redelivered.unwrap_or_default(),
    ]);
    Ok((fields.to_string(), payload))
}

/// The message of a type with a payload, JSON text: text, or bytes in MessagePack.
#[napi]
pub fn encode_envelope(
    name: String,
    payload: String,
    fields: NativeEnvelopeFields,
) -> napi::Result<Either<String, Buffer>> {
    let whole = |number: Option<f64>| number.map(|number| number as u64);
    let position = match (fields.epoch, fields.offset) {
        (Some(epoch), Some(offset)) => {
            let problem = "an epoch is 8 hexadecimal digits";
            let epoch = parse_epoch(&epoch).ok_or_else(|| argument(problem))?;
            Some((epoch, offset as u64))
        }
        _ => None,
    };
    let payload = content_of(payload)?;
    let is_binary = fields.format.as_deref() == Some("msgpack");
    let fields = EnvelopeFields {
        category: fields.category.map(Into::into),
        id: fields.id.map(Into::into),
        unix_ms: whole(fields.unix_ms),
        sequence: whole(fields.sequence),
        correlation_id: fields.correlation_id.map(Into::into),
        signature: fields.signature.map(Into::into),
        number: whole(fields.number),
        topic: fields.topic.map(Into::into),
        position,
        priority: fields.priority.map(Into::into),
        format: fields.format.map(Into::into),
        binary: payload.is_binary(),
    };
    let message = fields.encode(&name, payload.as_json().as_bytes());
    let message = message.map_err(Failure::from)?;
    Ok(match is_binary {
        true => Either::B(message.into()),
        false => Either::A(String::from_utf8(message).map_err(argument)?),
    })
}

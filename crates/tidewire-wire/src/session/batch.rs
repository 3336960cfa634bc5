//! Batches: the messages inside a `batch`, read and written.

use super::{Now, Object, op_code};
use crate::envelope::{
    Category, EnvelopeError, EnvelopeHeader, Kind, SystemType, classify_json, classify_msgpack,
    pack_event, pack_number, write_event,
};
use crate::format::{Format, FormatError, Item, Place, Reader, pack};
use crate::frame::OpCode;
use crate::json::fields::{Fields, elements};
use crate::uuid::Uuid;

/// The encoded messages of a batch. Each has a type; the rest of a message is not checked.
pub(super) fn unpack(encoding: Format, bytes: &[u8]) -> Result<Vec<Vec<u8>>, EnvelopeError> {
    match encoding {
        Format::Json => unpack_json(bytes),
        Format::MessagePack => unpack_msgpack(bytes),
    }
}

/// Appends a batch of JSON envelopes in `format`; on an error `out` is unchanged.
pub(super) fn write(
    messages: &[&[u8]],
    format: Format,
    id: Uuid,
    now: Now,
    seq: u64,
    out: &mut Vec<u8>,
) -> Result<OpCode, FormatError> {
    let header = EnvelopeHeader {
        category: Category::System,
        t: SystemType::Batch.as_str(),
        id,
        unix_ms: now.unix_ms,
        seq,
        correlation_id: None,
        signature: None,
        number: None,
        binary: false,
    };
    match format {
        Format::Json => header.write_json_with(out, |out| write_payload(messages, out)),
        Format::MessagePack => {
            let mut text = Vec::new();
            write_payload(messages, &mut text);
            let mut payload = Vec::with_capacity(text.len());
            pack(Place::Messages, &text, &mut payload)?;
            header.write_msgpack(&payload, out);
        }
    }
    Ok(op_code(format))
}

/// Appends one `batch` for many clients, which therefore has no `seq`. Each of
/// `messages` is an envelope in `format`, without the prefix of MessagePack; none of them is checked,
/// none may be a batch, and there may be at most [`BATCH_MESSAGES_MAX`].
pub fn write_shared_batch(
    messages: &[&[u8]],
    format: Format,
    id: Uuid,
    unix_ms: u64,
    out: &mut Vec<u8>,
) -> OpCode {
    let kind = SystemType::Batch;
    match format {
        Format::Json => write_event(kind, id, unix_ms, out, |out| write_payload(messages, out)),
        Format::MessagePack => {
            pack_event(kind, id, unix_ms, out, |out| pack_payload(messages, out));
        }
    }
    op_code(format)
}

fn pack_payload(messages: &[&[u8]], out: &mut Vec<u8>) {
    out.extend_from_slice(b"\x82\xa8messages");
    // At most 1000: two bytes are enough.
    let count = u16::try_from(messages.len()).unwrap_or(u16::MAX);
    out.push(0xdc);
    out.extend_from_slice(&count.to_be_bytes());
    for message in messages {
        out.extend_from_slice(message);
    }
    out.extend_from_slice(b"\xa5count");
    pack_number(u64::from(count), out);
}

fn write_payload(messages: &[&[u8]], out: &mut Vec<u8>) {
    let mut object = Object::open(out);
    object.with("messages", |out| {
        out.push(b'[');
        for (index, message) in messages.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            out.extend_from_slice(message);
        }
        out.push(b']');
    });
    object.number("count", messages.len() as u64);
    object.close();
}

fn unpack_json(text: &[u8]) -> Result<Vec<Vec<u8>>, EnvelopeError> {
    let wrong = EnvelopeError::InvalidField("messages");
    let (_, object) = crate::envelope::strip_category(text);
    let payload = Fields::open(object)?
        .find(&["p", "payload"])?
        .ok_or(wrong.clone())?;
    let array = Fields::open(payload)?
        .find(&["messages"])?
        .ok_or(wrong.clone())?;
    let mut messages = Vec::new();
    elements(array, |message| {
        if comes_alone(classify_json(message)) || messages.len() == BATCH_MESSAGES_MAX {
            return Err(wrong.clone());
        }
        messages.push(message.to_vec());
        Ok(())
    })?;
    Ok(messages)
}

fn unpack_msgpack(bytes: &[u8]) -> Result<Vec<Vec<u8>>, EnvelopeError> {
    let wrong = EnvelopeError::InvalidField("messages");
    let mut whole = Reader::new(bytes);
    whole.skip(0)?;
    whole.finish()?;
    let mut reader = Reader::new(bytes);
    let Item::Map(pairs) = reader.item()? else {
        return Err(EnvelopeError::NotAnObject);
    };
    if !reader.seek_any(pairs, &[b"p", b"payload"])? {
        return Err(wrong);
    }
    let Item::Map(pairs) = reader.item()? else {
        return Err(EnvelopeError::NotAnObject);
    };
    if !reader.seek_any(pairs, &[b"messages"])? {
        return Err(wrong);
    }
    let Item::Array(count) = reader.item()? else {
        return Err(EnvelopeError::Malformed);
    };
    if count as usize > BATCH_MESSAGES_MAX {
        return Err(wrong);
    }
    let mut messages = Vec::new();
    for _ in 0..count {
        let message = reader.value(LEVELS)?;
        if comes_alone(classify_msgpack(message)) {
            return Err(wrong);
        }
        messages.push(message.to_vec());
    }
    Ok(messages)
}

/// Whether a message must not be in a batch. A hello and a key update change the encryption of the messages
/// after them, so they are sent alone. A message without a kind is rejected by itself, so that the others are
/// not rejected with it.
fn comes_alone(kind: Result<Kind, EnvelopeError>) -> bool {
    matches!(
        kind,
        Ok(Kind::System(
            SystemType::Batch | SystemType::ClientHello | SystemType::KeyUpdate
        )) | Err(EnvelopeError::NotAnObject)
    )
}

/// The levels of a batch around a message: the batch, its payload, its array.
const LEVELS: usize = 3;

/// The maximum number of messages in a `batch`.
pub const BATCH_MESSAGES_MAX: usize = 1000;

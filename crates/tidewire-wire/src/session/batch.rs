//! The messages inside a `batch`.

use crate::envelope::scan::{Fields, elements};
use crate::envelope::{EnvelopeError, Kind, SystemType, classify_json};
use crate::format::{Format, msgpack_to_json};

/// The messages of a batch as JSON bytes each, whatever the batch's own encoding. Each is known to have
/// a type; the rest of it has not been looked at, as with any message.
pub(super) fn unpack(encoding: Format, bytes: &[u8]) -> Result<Vec<Vec<u8>>, EnvelopeError> {
    match encoding {
        Format::Json => unpack_json(bytes),
        Format::MessagePack => {
            let mut text = Vec::with_capacity(bytes.len() * 2);
            msgpack_to_json(bytes, &mut text)?;
            unpack_json(&text)
        }
    }
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
        let nested = classify_json(message)? == Kind::System(SystemType::Batch);
        if nested || messages.len() == BATCH_MESSAGES_MAX {
            return Err(wrong.clone());
        }
        messages.push(message.to_vec());
        Ok(())
    })?;
    Ok(messages)
}

/// Messages that one `batch` may hold.
pub const BATCH_MESSAGES_MAX: usize = 1000;

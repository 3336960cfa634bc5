//! zlib, and MessagePack from and to JSON.

use crate::errors::{Failure, invalid_message};
use napi::bindgen_prelude::{Buffer, BufferSlice};
use napi_derive::napi;
use tidewire_bindings::utilities::compression::{Scratch, with_scratch};
use tidewire_wire::envelope::msgpack_envelope_to_json;

/// The zlib stream of some bytes; the level is 0 to 9. With a prefix it begins with `C:`.
#[napi]
pub fn compress(data: BufferSlice<'_>, level: u32, has_prefix: bool) -> napi::Result<Buffer> {
    built(|scratch| scratch.compress(&data, level.into(), has_prefix))
}

/// The content of a zlib stream, with or without its prefix, up to `bytes_max` bytes.
#[napi]
pub fn decompress(data: BufferSlice<'_>, bytes_max: f64) -> napi::Result<Buffer> {
    built(|scratch| scratch.decompress(&data, bytes_max as usize))
}

/// MessagePack with the value of JSON text. With a prefix it begins with `M:`.
#[napi]
pub fn json_to_messagepack(text: String, has_prefix: bool) -> napi::Result<Buffer> {
    built(|scratch| scratch.json_to_msgpack(text.as_bytes(), has_prefix))
}

/// JSON text with the value of MessagePack, with or without its prefix.
#[napi]
pub fn messagepack_to_json(bytes: BufferSlice<'_>) -> napi::Result<String> {
    with_scratch(|scratch| {
        scratch.msgpack_to_json(&bytes).map_err(Failure::from)?;
        let text = std::str::from_utf8(scratch.output()).map_err(invalid_message)?;
        Ok(text.to_owned())
    })
}

/// JSON text of a message in MessagePack, without its prefix; a binary payload has its mark there.
#[napi]
pub fn message_to_json(bytes: BufferSlice<'_>) -> napi::Result<String> {
    let mut text = Vec::with_capacity(2 * bytes.len());
    msgpack_envelope_to_json(&bytes, &mut text).map_err(invalid_message)?;
    Ok(String::from_utf8(text).map_err(invalid_message)?)
}

fn built(
    work: impl FnOnce(&mut Scratch) -> Result<(), tidewire_bindings::Failure>,
) -> napi::Result<Buffer> {
    with_scratch(|scratch| {
        work(scratch).map_err(Failure::from)?;
        Ok(scratch.output().into())
    })
}

//! What is useful without a server.

use crate::errors::{Failure, invalid_message};
use napi::bindgen_prelude::BufferSlice;
use napi_derive::napi;
use tidewire_wire::format::Format;

/// The version of the package.
#[napi]
pub(crate) fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

/// JSON text with the value of a MessagePack text.
#[napi]
pub(crate) fn messagepack_to_json(bytes: BufferSlice<'_>) -> napi::Result<String> {
    let text = Format::MessagePack.json_of(&bytes);
    let text = text.map_err(invalid_message).map_err(napi::Error::from)?;
    let text = String::from_utf8(text.into_owned());
    text.map_err(|error| Failure::from(invalid_message(error)).into())
}

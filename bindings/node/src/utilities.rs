//! What is useful without a server.
//!
//! - `filter`: filters of documents
//! - `jwt`: JSON Web Tokens

mod filter;
mod jwt;

use crate::errors::invalid_message;
use napi::bindgen_prelude::{Buffer, BufferSlice};
use napi_derive::napi;
use tidewire_engine::settings::nearest;
use tidewire_wire::format::{json_to_msgpack, msgpack_to_json};

/// The version of the package.
#[napi]
pub fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

/// The known name that is most like `name`, if one is alike.
#[napi]
pub fn nearest_name(name: String, known: Vec<String>) -> Option<String> {
    nearest(&name, known.iter().map(String::as_str)).map(str::to_owned)
}

/// JSON text with the value of a MessagePack text.
#[napi]
pub fn messagepack_to_json(bytes: BufferSlice<'_>) -> napi::Result<String> {
    let mut text = Vec::with_capacity(bytes.len() * 2);
    msgpack_to_json(&bytes, &mut text).map_err(invalid_message)?;
    let text = String::from_utf8(text);
    text.map_err(|error| invalid_message(error).into())
}

/// MessagePack with the value of JSON text.
#[napi]
pub fn json_to_messagepack(text: String) -> napi::Result<Buffer> {
    let mut bytes = Vec::with_capacity(text.len());
    json_to_msgpack(text.as_bytes(), &mut bytes).map_err(invalid_message)?;
    Ok(bytes.into())
}

//! The version 1 envelope: classification as a message of the system or of the application, reading and writing.

mod classify;
pub(crate) mod field;
mod outline;
pub(crate) mod peek;
mod priority;
mod publication;
pub(crate) mod raw;
mod read;
mod salvage;
mod untyped;
mod write;

pub(crate) use classify::strip_category;
pub use classify::{
    Kind, SystemType, accept_json, accept_msgpack, classify_json, classify_msgpack,
};
pub use outline::Outline;
pub use peek::{
    correlation_id, message_id, message_number, message_payload, message_topic,
    message_traceparent, message_type, payload_bytes,
};
pub use priority::Priority;
pub use publication::{
    PublicationHeader, epoch_text, parse_epoch, write_epoch, write_presence_event,
};
pub(crate) use publication::{pack_event, write_event};
pub use read::{
    Envelope, PAYLOAD_TREE_BYTES_MAX, message_content, msgpack_envelope_to_json, parse_json,
    parse_json_head, parse_msgpack,
};
pub use salvage::readable_correlation_id;
pub use untyped::with_type;
pub(crate) use write::pack_number;
pub use write::{EnvelopeHeader, pack_payload};

use crate::format::FormatError;
use crate::json::{self, JsonError};

/// The category (`c`): the part of the protocol to which a message belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Category {
    /// `WSE`: a message of the protocol.
    System,
    /// `S`: a whole state.
    Snapshot,
    /// `U`: a change.
    Update,
}

impl Category {
    /// The spelling on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::System => "WSE",
            Self::Snapshot => "S",
            Self::Update => "U",
        }
    }

    /// The category with this spelling.
    pub fn parse(spelling: &str) -> Option<Self> {
        [Self::System, Self::Snapshot, Self::Update]
            .into_iter()
            .find(|category| category.as_str() == spelling)
    }
}

/// The reason why bytes are not an envelope: the fault of their sender, who receives `INVALID_MESSAGE`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnvelopeError {
    /// Not a JSON object or MessagePack map.
    #[error("the message is not an object")]
    NotAnObject,
    /// Neither `t` nor `type`.
    #[error("the message has no type (`t`)")]
    NoType,
    /// `t` or `type` is not a string, or is empty.
    #[error("the type (`t`) is not a string with something in it")]
    InvalidType,
    /// A field other than the type has a wrong type.
    #[error("the field `{0}` has a wrong type")]
    InvalidField(&'static str),
    /// Not valid JSON or MessagePack.
    #[error("the message is malformed")]
    Malformed,
    /// Nested deeper than [`NESTING_MAX`](crate::format::NESTING_MAX).
    #[error("the message is nested too deep")]
    TooDeep,
    /// As a tree of values the payload would need more than [`PAYLOAD_TREE_BYTES_MAX`] of memory.
    #[error("the payload has too many values")]
    TooLarge,
}

impl From<JsonError> for EnvelopeError {
    fn from(error: JsonError) -> Self {
        match error {
            JsonError::NotAnObject => Self::NotAnObject,
            JsonError::Malformed => Self::Malformed,
            JsonError::TooDeep => Self::TooDeep,
            JsonError::TooLarge => Self::TooLarge,
        }
    }
}

impl From<FormatError> for EnvelopeError {
    fn from(error: FormatError) -> Self {
        match error {
            FormatError::TooDeep => Self::TooDeep,
            _ => Self::Malformed,
        }
    }
}

/// Checks that a text is one strict JSON value.
///
/// # Errors
/// It is malformed, or nested deeper than [`NESTING_MAX`](crate::format::NESTING_MAX).
pub fn check_value(text: &str) -> Result<(), EnvelopeError> {
    Ok(json::strict::check_value(text, 0)?)
}

/// Checks that a text is one strict JSON value that every message can carry as its payload.
///
/// # Errors
/// It is malformed, or nested deeper than [`PAYLOAD_NESTING_MAX`](crate::format::PAYLOAD_NESTING_MAX).
pub fn check_payload(text: &str) -> Result<(), EnvelopeError> {
    Ok(json::strict::check_value(text, json::AROUND_PAYLOAD)?)
}

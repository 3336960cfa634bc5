//! Encodings of a message: JSON, MessagePack (`M:`), zlib (`C:`), and their identification in a binary frame.

mod binary;
mod msgpack;
mod pack;
mod time;
mod zlib;

pub use crate::json::{NESTING_MAX, PAYLOAD_NESTING_MAX};
pub use binary::{NOT_BASE64, base64_text_bytes, binary_bytes, binary_text, check_binary_text};
pub(crate) use binary::{Place, base64_bytes, is_base64, write_base64};
pub use msgpack::msgpack_to_json;
pub(crate) use msgpack::{
    Item, Reader, message_to_exact_json, message_to_json, msgpack_to_json_within,
};
pub(crate) use pack::pack;
pub use pack::{envelope_to_msgpack, json_to_msgpack};
pub(crate) use time::write_timestamp;
pub use zlib::{Deflater, Inflater, deflate, inflate};

use std::borrow::Cow;

/// The encoding of the messages of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Format {
    /// JSON in text frames.
    #[default]
    Json,
    /// MessagePack behind `M:` in binary frames.
    MessagePack,
}

impl Format {
    /// The JSON text of a value in this encoding; MessagePack without the prefix `M:`. JSON is not checked.
    ///
    /// # Errors
    /// As [`msgpack_to_json`].
    pub fn json_of(self, bytes: &[u8]) -> Result<Cow<'_, [u8]>, FormatError> {
        match self {
            Self::Json => Ok(Cow::Borrowed(bytes)),
            Self::MessagePack => {
                let mut text = Vec::with_capacity(bytes.len() * 2);
                msgpack_to_json(bytes, &mut text)?;
                Ok(Cow::Owned(text))
            }
        }
    }
}

/// The form of a binary frame, by its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// JSON from the first byte.
    Json,
    /// MessagePack after the two bytes `M:`.
    MessagePack,
    /// A zlib stream after `prefix_bytes` bytes: 2 for `C:`, 0 for a bare stream. It inflates to any
    /// other form.
    Zlib {
        /// Bytes before the stream.
        prefix_bytes: usize,
    },
    /// `E:`, a 12-byte IV, AES-256-GCM ciphertext and tag.
    Encrypted,
}

impl Framing {
    /// The number of bytes before the content.
    pub fn prefix_bytes(self) -> usize {
        match self {
            Self::Json => 0,
            Self::MessagePack | Self::Encrypted => 2,
            Self::Zlib { prefix_bytes } => prefix_bytes,
        }
    }
}

/// Identifies the form of a binary frame by its first bytes. It never fails: an unknown form counts as JSON.
#[inline]
pub fn identify(binary: &[u8]) -> Framing {
    match binary {
        [b'M', b':', ..] => Framing::MessagePack,
        [b'C', b':', ..] => Framing::Zlib { prefix_bytes: 2 },
        [b'E', b':', ..] => Framing::Encrypted,
        [0x78, ..] => Framing::Zlib { prefix_bytes: 0 },
        _ => Framing::Json,
    }
}

/// The reason why bytes cannot be converted: the fault of their producer. The same bytes fail again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// The bytes end in the middle of a value.
    #[error("ends in the middle of a value")]
    Truncated,
    /// The bytes are invalid.
    #[error("{0}")]
    Malformed(&'static str),
    /// Bytes follow the end of the value.
    #[error("bytes follow the end of the value")]
    TrailingBytes,
    /// Arrays and objects are nested deeper than [`NESTING_MAX`].
    #[error("nested deeper than {NESTING_MAX}")]
    TooDeep,
    /// The result would be larger than the limit.
    #[error("larger than {bytes_max} bytes")]
    TooLarge {
        /// The limit.
        bytes_max: usize,
    },
}

/// The first bytes of a binary frame that holds MessagePack.
pub const MESSAGEPACK_PREFIX: &[u8; 2] = b"M:";

/// The first bytes of a binary frame that holds a zlib stream.
pub const ZLIB_PREFIX: &[u8; 2] = b"C:";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_bytes_tell_the_form() {
        assert_eq!(identify(b"M:\x80"), Framing::MessagePack);
        assert_eq!(identify(b"C:\x78\x9c"), Framing::Zlib { prefix_bytes: 2 });
        assert_eq!(identify(b"\x78\x9c"), Framing::Zlib { prefix_bytes: 0 });
        assert_eq!(identify(b"E:"), Framing::Encrypted);
        assert_eq!(identify(b"{\"t\":\"a\"}"), Framing::Json);
        assert_eq!(identify(b"M"), Framing::Json);
        assert_eq!(identify(b""), Framing::Json);
    }
}

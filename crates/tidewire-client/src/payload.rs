//! Payloads to be sent and answers: one JSON value, or bytes.

use crate::error::Error;
use std::borrow::Cow;
use tidewire_wire::envelope::check_payload;
use tidewire_wire::format::{binary_bytes, binary_text};

/// A payload: one JSON value as text, or bytes. Every method with a payload accepts a JSON text as it is.
///
/// Bytes are kept as their base64, which is how they travel in JSON. A client sends them only to a server that offers
/// binary payloads; otherwise the call fails with [`Error::Unsupported`].
///
/// ```
/// use tidewire_client::Payload;
///
/// let order = Payload::from(r#"{"order":17}"#);
/// assert_eq!(order.to_bytes(), None);
/// let image = Payload::binary([0, 1, 255]);
/// assert_eq!((image.as_json(), image.to_bytes()), (r#""AAH/""#, Some(vec![0, 1, 255])));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Payload<'a> {
    text: Cow<'a, str>,
    is_binary: bool,
}

impl<'a> Payload<'a> {
    /// One JSON value, as text. It is checked when it is sent.
    #[must_use]
    pub fn json(text: impl Into<Cow<'a, str>>) -> Self {
        Self {
            text: text.into(),
            is_binary: false,
        }
    }

    /// Bytes.
    #[must_use]
    pub fn binary(bytes: impl AsRef<[u8]>) -> Self {
        Self {
            text: binary_text(bytes.as_ref()).into(),
            is_binary: true,
        }
    }

    /// A text that was received or checked before.
    pub(crate) fn checked(text: impl Into<Cow<'a, str>>, is_binary: bool) -> Self {
        Self {
            text: text.into(),
            is_binary,
        }
    }

    /// Whether the payload is bytes.
    #[must_use]
    pub fn is_binary(&self) -> bool {
        self.is_binary
    }

    /// The JSON text; of bytes their base64 in quotes.
    #[must_use]
    pub fn as_json(&self) -> &str {
        &self.text
    }

    /// The same, as a text of its own.
    #[must_use]
    pub fn into_json(self) -> String {
        self.text.into_owned()
    }

    /// The bytes; `None` if the payload is a JSON value.
    #[must_use]
    pub fn to_bytes(&self) -> Option<Vec<u8>> {
        bytes_of(&self.text, self.is_binary)
    }

    /// The same payload without a borrowed text.
    #[must_use]
    pub fn into_owned(self) -> Payload<'static> {
        Payload {
            text: Cow::Owned(self.text.into_owned()),
            is_binary: self.is_binary,
        }
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.is_binary {
            return Ok(());
        }
        check_payload(&self.text).map_err(|error| Error::invalid(format!("the payload: {error}")))
    }
}

impl<'a> From<&'a str> for Payload<'a> {
    fn from(json: &'a str) -> Self {
        Self::json(json)
    }
}

impl<'a> From<&'a String> for Payload<'a> {
    fn from(json: &'a String) -> Self {
        Self::json(json.as_str())
    }
}

impl From<String> for Payload<'_> {
    fn from(json: String) -> Self {
        Self::json(json)
    }
}

/// The bytes of a payload that is binary.
pub(crate) fn bytes_of(json: &str, is_binary: bool) -> Option<Vec<u8>> {
    is_binary.then(|| binary_bytes(json.as_bytes())).flatten()
}

/// The feature that a server needs for bytes, as [`Error::Unsupported`] names it.
pub(crate) const BINARY: &str = "binary payloads";

//! The payload of a message, a call or an answer: one JSON value, or bytes.

use crate::model::is_payload;
use tidewire_wire::format::{binary_bytes, binary_text, check_binary_text};

/// The payload of a publication, a call or an answer: one JSON value, or bytes.
///
/// A JSON text is checked where the payload is used. Bytes are kept as their base64, because most clients read JSON:
/// they count as that towards all limits of payloads.
///
/// ```
/// use tidewire_engine::Content;
///
/// let order = Content::from(r#"{"order":17}"#);
/// assert_eq!(order.to_bytes(), None);
/// let image = Content::binary([0, 1, 255]);
/// assert_eq!(image.as_json(), r#""AAH/""#);
/// assert_eq!(image.to_bytes(), Some(vec![0, 1, 255]));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    json: String,
    is_binary: bool,
}

impl Content {
    /// One JSON value, as text. It is checked where it is used.
    #[must_use]
    pub fn json(text: impl Into<String>) -> Self {
        Self {
            json: text.into(),
            is_binary: false,
        }
    }

    /// Bytes.
    #[must_use]
    pub fn binary(bytes: impl AsRef<[u8]>) -> Self {
        Self {
            json: binary_text(bytes.as_ref()),
            is_binary: true,
        }
    }

    /// A payload as another program writes it: JSON text, and whether it is binary. `None` if it is marked as binary and
    /// is not base64.
    pub(crate) fn read(json: &str, is_binary: bool) -> Option<Self> {
        if !is_binary {
            return Some(Self::json(json));
        }
        let text = check_binary_text(json.as_bytes())?.into_owned();
        Some(Self {
            json: String::from_utf8(text).ok()?,
            is_binary,
        })
    }

    /// A payload that was checked before.
    pub(crate) fn checked(json: String, is_binary: bool) -> Self {
        Self { json, is_binary }
    }

    /// Whether the payload is bytes.
    #[must_use]
    pub fn is_binary(&self) -> bool {
        self.is_binary
    }

    /// The JSON text; of bytes their base64 in quotes.
    #[must_use]
    pub fn as_json(&self) -> &str {
        &self.json
    }

    /// The same without a copy.
    #[must_use]
    pub fn into_json(self) -> String {
        self.json
    }

    /// The bytes; `None` if the payload is a JSON value.
    #[must_use]
    pub fn to_bytes(&self) -> Option<Vec<u8>> {
        self.is_binary
            .then(|| binary_bytes(self.json.as_bytes()))
            .flatten()
    }

    /// Whether every client can read it.
    pub(crate) fn is_readable(&self) -> bool {
        self.is_binary || is_payload(&self.json)
    }
}

impl From<String> for Content {
    fn from(json: String) -> Self {
        Self::json(json)
    }
}

impl From<&String> for Content {
    fn from(json: &String) -> Self {
        Self::json(json)
    }
}

impl From<&str> for Content {
    fn from(json: &str) -> Self {
        Self::json(json)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_program_marks_what_is_binary() {
        let text = r#""AAH/""#;
        assert_eq!(Content::read(text, false), Some(Content::json(text)));
        let bytes = Content::binary([0, 1, 255]);
        assert_eq!(Content::read(text, true), Some(bytes.clone()));
        assert_eq!(Content::read(r#""AAH\/""#, true), Some(bytes));
        for wrong in ["null", "{}", r#""AAH""#, ""] {
            assert_eq!(Content::read(wrong, true), None, "{wrong}");
        }
    }
}

//! Binary payloads: their base64 text in JSON, and where an envelope has a payload that may be binary
//! (`PROTOCOL.md`, section 5.5).

use crate::json;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::borrow::Cow;

/// Appends bytes as a base64 string with its quotes.
pub(crate) fn write_base64(bytes: &[u8], out: &mut Vec<u8>) {
    out.reserve(base64_text_bytes(bytes.len()));
    out.push(b'"');
    let start = out.len();
    out.resize(start + bytes.len().div_ceil(3) * 4, 0);
    let written = STANDARD.encode_slice(bytes, &mut out[start..]);
    debug_assert!(written.is_ok(), "four bytes for three");
    out.push(b'"');
}

/// The JSON text of a binary payload: the base64 of `bytes` in quotes.
#[must_use]
pub fn binary_text(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(base64_text_bytes(bytes.len()));
    text.push('"');
    STANDARD.encode_string(bytes, &mut text);
    text.push('"');
    text
}

/// The size of the JSON text of N bytes, in bytes.
#[must_use]
pub const fn base64_text_bytes(bytes: usize) -> usize {
    bytes.div_ceil(3) * 4 + 2
}

/// The bytes of a binary payload from its JSON text: a string with its quotes that is strict base64. `None` for
/// anything else.
#[must_use]
pub fn binary_bytes(text: &[u8]) -> Option<Vec<u8>> {
    base64_bytes(&content(text)?)
}

/// The bytes of strict base64 without quotes.
pub(crate) fn base64_bytes(text: &[u8]) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}

/// The JSON text of a binary payload without escapes, if it is one. Nothing is copied unless it has escapes.
#[must_use]
pub fn check_binary_text(text: &[u8]) -> Option<Cow<'_, [u8]>> {
    let content = content(text)?;
    if !is_base64(&content) {
        return None;
    }
    Some(match content {
        Cow::Borrowed(_) => Cow::Borrowed(text),
        Cow::Owned(content) => Cow::Owned([b"\"", &content[..], b"\""].concat()),
    })
}

/// The content of a string without its escapes. It may contain anything.
fn content(text: &[u8]) -> Option<Cow<'_, [u8]>> {
    let [b'"', raw @ .., b'"'] = text else {
        return None;
    };
    if !raw.contains(&b'\\') {
        return Some(Cow::Borrowed(raw));
    }
    Some(Cow::Owned(
        json::text::text(text)?.into_owned().into_bytes(),
    ))
}

/// Whether a text is base64 as section 5.5 (3) has it, without decoding it.
pub(crate) fn is_base64(text: &[u8]) -> bool {
    let whole = text.len() / 4 * 4;
    if whole != text.len() {
        return false;
    }
    let Some(last_at) = whole.checked_sub(4) else {
        return true;
    };
    // No branch in the loop: it is as long as the payload.
    let wrong = text[..last_at].iter().fold(0, |wrong, byte| {
        wrong | (DIGITS[usize::from(*byte)] & WRONG)
    });
    wrong == 0 && STANDARD.decode(&text[last_at..]).is_ok()
}

/// The value of each digit, or [`WRONG`].
const DIGITS: [u8; 256] = {
    let mut digits = [WRONG; 256];
    let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut value = 0;
    while value < alphabet.len() {
        digits[alphabet[value] as usize] = value as u8;
        value += 1;
    }
    digits
};

const WRONG: u8 = 0x80;

/// Why a payload is refused that is marked as binary and is not.
pub const NOT_BASE64: &str = "the payload is marked as binary and is not base64";

/// The place of a value in a message, as far as it determines where payloads of the application are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Without a payload of the application that may be binary; or inside one.
    Other,
    /// A payload of the application.
    Payload,
    /// An envelope of the application's.
    Envelope,
    /// An envelope whose payload has one of the application's: a publication, a call, or an answer.
    Carrier,
    /// The content of `p` of a carrier.
    Carried,
    /// The envelope of a `history_response`.
    History,
    /// The content of `p` of a history: `publications`.
    Page,
    /// The content of `p` of a `batch`: `messages`.
    Messages,
}

impl Place {
    /// The place of an envelope of this type, as it stands in JSON or MessagePack.
    pub(crate) fn of_type(name: &[u8]) -> Self {
        match name {
            b"publish_request" | b"call_request" | b"call_response" => Self::Carrier,
            b"history_response" => Self::History,
            _ => Self::Envelope,
        }
    }

    /// The place of the member `name` of an object at this place.
    pub(crate) fn member(self, name: &[u8]) -> Self {
        match (self, name) {
            (Self::Envelope, b"p" | b"payload") | (Self::Carried, b"payload") => Self::Payload,
            (Self::Carrier, b"p" | b"payload") => Self::Carried,
            (Self::History, b"p" | b"payload") => Self::Page,
            (Self::Page, b"publications") | (Self::Messages, b"messages") => Self::Envelope,
            _ => Self::Other,
        }
    }

    /// The place of the content of a value at this place: nothing inside a payload is a payload.
    pub(crate) fn inside(self) -> Self {
        match self {
            Self::Payload => Self::Other,
            place => place,
        }
    }

    /// The member that marks the payload of an object at this place as binary.
    pub(crate) fn mark(self) -> Option<&'static str> {
        match self {
            Self::Envelope => Some("b"),
            Self::Carried => Some("binary"),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_strict_base64_is_binary() {
        for (text, bytes) in [
            (r#""""#, &b""[..]),
            (r#""AA==""#, b"\0"),
            (r#""AAH/""#, b"\0\x01\xff"),
            (r#""AAH\/""#, b"\0\x01\xff"),
            (r#""\u0041A==""#, b"\0"),
        ] {
            assert_eq!(binary_bytes(text.as_bytes()).as_deref(), Some(bytes));
            let checked = check_binary_text(text.as_bytes()).expect(text);
            assert_eq!(*checked, *binary_text(bytes).as_bytes(), "{text}");
        }
        for wrong in [
            "",
            "\"",
            "null",
            "{}",
            "7",
            r#""AA""#,
            r#""AA=""#,
            r#""AB==""#,
            r#""AAB=""#,
            r#""A A=""#,
            r#""AAAA\n""#,
            r#""AA-_""#,
            r#""AA==AAAA""#,
            r#""====""#,
            r#""AAAA="#,
            r#""é===""#,
        ] {
            assert_eq!(binary_bytes(wrong.as_bytes()), None, "{wrong}");
            assert_eq!(check_binary_text(wrong.as_bytes()), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn bytes_come_back(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let text = binary_text(&bytes);
            prop_assert_eq!(text.len(), base64_text_bytes(bytes.len()));
            prop_assert_eq!(binary_bytes(text.as_bytes()), Some(bytes.clone()));
            let mut written = Vec::new();
            write_base64(&bytes, &mut written);
            prop_assert_eq!(written, text.into_bytes());
        }

        #[test]
        fn the_check_agrees_with_the_decoder(text in "[A-D/+=_ ]{0,12}") {
            let text = format!("\"{text}\"");
            let checked = check_binary_text(text.as_bytes()).is_some();
            prop_assert_eq!(checked, binary_bytes(text.as_bytes()).is_some(), "{}", text);
        }
    }
}

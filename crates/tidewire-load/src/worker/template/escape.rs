//! Escapes: the forms of a value at the places of a request.

/// The restrictions of a value at its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Escape {
    /// None.
    #[default]
    None,
    /// At the start of a request's target, where a value is a path with its query, such as a captured
    /// `Location`: characters that are not valid in a URL are percent-encoded.
    Target,
    /// In the path of a request's target: what would end the path or is not valid in it is
    /// percent-encoded. A slash stays, so that a value may name several segments.
    Path,
    /// In the query of a request's target: everything but letters, digits and `-._~` is percent-encoded.
    Query,
    /// In a header: control characters become spaces.
    Header,
    /// Within quotes in JSON: quotes, backslashes and control characters are escaped.
    JsonString,
    /// Within quotes of a part of a form: quotes and line ends are percent-encoded.
    Quoted,
    /// In a form: everything but letters, digits and a few signs is percent-encoded, and a space is
    /// a plus sign.
    Form,
}

impl Escape {
    pub(super) fn apply(self, out: &mut Vec<u8>, start: usize) {
        let is_bad = |byte: &u8| match self {
            Self::None => false,
            Self::Header => byte.is_ascii_control(),
            Self::Target => !byte.is_ascii_graphic() || b"\"#<>\\^`{|}".contains(byte),
            // RFC 3986, section 3.3: unreserved, sub-delims, `:`, `@`, and the slash between segments.
            Self::Path => !byte.is_ascii_alphanumeric() && !b"-._~!$&'()*+,;=:@/".contains(byte),
            Self::Query => !byte.is_ascii_alphanumeric() && !b"-._~".contains(byte),
            Self::JsonString => *byte < b' ' || b"\"\\".contains(byte),
            Self::Quoted => b"\"\r\n".contains(byte),
            Self::Form => !byte.is_ascii_alphanumeric() && !b"-._*".contains(byte),
        };
        if !out[start..].iter().any(is_bad) {
            return;
        }
        let raw = out.split_off(start);
        for byte in raw {
            match self {
                _ if !is_bad(&byte) => out.push(byte),
                Self::Form if byte == b' ' => out.push(b'+'),
                Self::Target | Self::Path | Self::Query | Self::Form | Self::Quoted => {
                    out.push(b'%');
                    out.extend(digits(byte).map(|digit| digit.to_ascii_uppercase()));
                }
                Self::JsonString if byte >= b' ' => out.extend([b'\\', byte]),
                Self::JsonString => {
                    out.extend_from_slice(b"\\u00");
                    out.extend(digits(byte));
                }
                Self::None | Self::Header => out.push(b' '),
            }
        }
    }
}

/// The two hexadecimal digits of a byte.
fn digits(byte: u8) -> [u8; 2] {
    [byte >> 4, byte & 15].map(|digit| HEX[usize::from(digit)])
}

pub(super) const HEX: &[u8; 16] = b"0123456789abcdef";

//! Values of HTTP header fields: lists, tokens and optional white space (RFC 9110, section 5.6).

/// The comma-separated elements of a header value, without the empty ones.
pub(crate) fn list(value: &str) -> impl Iterator<Item = &str> {
    value
        .split(',')
        .map(trim)
        .filter(|element| !element.is_empty())
}

/// Whether one of the elements of a list is `token`, in any case.
pub(crate) fn list_has(value: &str, token: &str) -> bool {
    list(value).any(|element| element.eq_ignore_ascii_case(token))
}

/// The text without optional white space (RFC 9110, section 5.6.3) at both ends, and without the line end of a folded
/// line.
pub(crate) fn trim(text: &str) -> &str {
    text.trim_ascii()
}

/// A token of RFC 9110, section 5.6.2.
pub(crate) fn is_token(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(allowed)
}

/// True for text of one or more characters, without white space, controls and non-ASCII characters.
pub(crate) fn is_visible(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// A header value that cannot end its line.
pub(crate) fn is_header_value(text: &str) -> bool {
    text.bytes()
        .all(|byte| byte == b'\t' || (byte >= 0x20 && byte != 0x7f))
}

/// Appends a header line.
pub(crate) fn write_header(name: &str, value: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value.as_bytes());
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists() {
        assert!(list_has("keep-alive,\t Upgrade", "upgrade"));
        assert!(!list_has("upgraded, up grade", "upgrade"));
        assert_eq!(list(" a,, b ,").collect::<Vec<_>>(), ["a", "b"]);
    }
}

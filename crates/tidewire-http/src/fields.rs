//! Field lines of a head, and the values in them (RFC 9110, section 5).

/// A version of HTTP that this crate reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.0: connections end after a response unless both sides agree otherwise.
    Http10,
    /// HTTP/1.1.
    Http11,
}

/// The field lines of a head, as names and values in their order. Nothing is copied.
///
/// White space around values is left out. A value that was folded over several lines (RFC 9112, section 5.2) is given
/// as it was received, with its line ends.
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    /// The fields of a whole and valid head: `head` begins with its first line.
    pub(crate) fn of(head: &'a [u8]) -> Self {
        let start = memchr::memchr(b'\n', head).map_or(head.len(), |end| end + 1);
        Self {
            rest: &head[start..],
        }
    }

    /// The value of the first field called `name`, in any case.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<&'a [u8]> {
        self.values(name).next()
    }

    /// The values of all fields called `name`, in any case, in their order.
    pub fn values<'n>(&self, name: &'n str) -> impl Iterator<Item = &'a [u8]> + use<'a, 'n> {
        let name = name.as_bytes();
        self.clone()
            .filter(move |(other, _)| other.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let colon = memchr::memchr2(b':', b'\n', self.rest)?;
        if self.rest[colon] == b'\n' {
            // The empty line, or a line that is no field: the head ends.
            return None;
        }
        let mut end = colon;
        loop {
            end += memchr::memchr(b'\n', &self.rest[end..])?;
            let after = self.rest.get(end + 1);
            if !matches!(after, Some(b' ' | b'\t')) {
                break;
            }
            end += 1;
        }
        let (name, value) = (&self.rest[..colon], &self.rest[colon + 1..end]);
        self.rest = &self.rest[end + 1..];
        Some((name, value.trim_ascii()))
    }
}

/// The combined value of the `Content-Length` fields of a head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ContentLength {
    #[default]
    Absent,
    Bytes(u64),
    /// Not a number, or too large for one.
    Invalid,
    /// Several that differ.
    Conflicting,
}

impl ContentLength {
    /// Adds the value of one more field. A list of equal numbers counts as one of them (RFC 9112, section 6.3).
    pub(crate) fn add(&mut self, value: &[u8]) {
        for element in value.split(|byte| *byte == b',') {
            let element = element.trim_ascii();
            let number = decimal(element);
            *self = match (*self, number) {
                (Self::Invalid, _) | (_, None) => Self::Invalid,
                (Self::Absent, Some(number)) => Self::Bytes(number),
                (Self::Bytes(known), Some(number)) if known == number => Self::Bytes(known),
                _ => Self::Conflicting,
            };
        }
    }
}

fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |number, digit| {
        let digit = digit.is_ascii_digit().then(|| digit - b'0')?;
        number.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

/// The combined value of the `Transfer-Encoding` fields of a head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum TransferCoding {
    #[default]
    Absent,
    /// Chunked is the last coding and occurs once.
    Chunked {
        /// Whether other codings were applied before.
        alone: bool,
    },
    /// The last coding is another one.
    Other,
    /// Chunked occurs twice in a row, or the value is not a list of codings.
    Invalid,
}

impl TransferCoding {
    /// Adds the value of one more field.
    pub(crate) fn add(&mut self, value: &[u8]) {
        for coding in value.split(|byte| *byte == b',') {
            let coding = coding.trim_ascii();
            if coding.is_empty() {
                continue;
            }
            let name = coding
                .split(|byte| *byte == b';')
                .next()
                .unwrap_or_default()
                .trim_ascii_end();
            let is_chunked = coding.eq_ignore_ascii_case(b"chunked");
            *self = match *self {
                _ if !is_token(name) => Self::Invalid,
                Self::Invalid => Self::Invalid,
                Self::Chunked { .. } if is_chunked => Self::Invalid,
                Self::Chunked { .. } => Self::Other,
                Self::Absent if is_chunked => Self::Chunked { alone: true },
                Self::Other if is_chunked => Self::Chunked { alone: false },
                Self::Absent | Self::Other => Self::Other,
            };
        }
        if *self == Self::Absent {
            *self = Self::Invalid;
        }
    }
}

/// The combined value of the `Connection` fields of a head (RFC 9110, section 7.6.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ConnectionOptions {
    pub(crate) close: bool,
    pub(crate) keep_alive: bool,
}

impl ConnectionOptions {
    /// Adds the value of one more field.
    pub(crate) fn add(&mut self, value: &[u8]) {
        for option in value.split(|byte| *byte == b',') {
            let option = option.trim_ascii();
            self.close |= option.eq_ignore_ascii_case(b"close");
            self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
        }
    }
}

/// A token of RFC 9110, section 5.6.2.
pub(crate) fn is_token(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(|byte| is_token_byte(*byte))
}

pub(crate) fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// A field value that cannot end its line (RFC 9110, section 5.5).
pub(crate) fn is_field_value(value: &[u8]) -> bool {
    value
        .iter()
        .all(|byte| *byte == b'\t' || (*byte >= 0x20 && *byte != 0x7f))
}

pub(crate) fn write_field(name: impl AsRef<[u8]>, value: impl AsRef<[u8]>, out: &mut Vec<u8>) {
    out.extend_from_slice(name.as_ref());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value.as_ref());
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_in_any_case_and_with_any_line_end() {
        let head = b"HTTP/1.1 200 OK\r\nA:1\nb: two \r\nB:\t3\r\nfold: x\r\n  y\r\nlast:\r\n\r\n";
        let fields = Fields::of(head);
        assert_eq!(fields.value("B"), Some(&b"two"[..]));
        assert_eq!(
            fields.values("b").collect::<Vec<_>>(),
            [&b"two"[..], &b"3"[..]]
        );
        assert_eq!(fields.value("fold"), Some(&b"x\r\n  y"[..]));
        assert_eq!(fields.value("last"), Some(&b""[..]));
        assert_eq!(fields.value("none"), None);
        assert_eq!(fields.count(), 5);
    }

    #[test]
    fn content_lengths() {
        let read = |values: &[&str]| {
            let mut length = ContentLength::default();
            for value in values {
                length.add(value.as_bytes());
            }
            length
        };
        assert_eq!(read(&["0"]), ContentLength::Bytes(0));
        assert_eq!(read(&["5", "5, 5"]), ContentLength::Bytes(5));
        assert_eq!(read(&["5", "6"]), ContentLength::Conflicting);
        assert_eq!(
            read(&["18446744073709551615"]),
            ContentLength::Bytes(u64::MAX)
        );
        for wrong in [
            "",
            "-1",
            "+1",
            "0x1",
            "1 1",
            "1,",
            "a",
            "18446744073709551616",
        ] {
            assert_eq!(read(&[wrong]), ContentLength::Invalid, "{wrong:?}");
        }
        assert_eq!(read(&["5, 6", "x"]), ContentLength::Invalid);
    }

    #[test]
    fn transfer_codings() {
        let read = |values: &[&str]| {
            let mut coding = TransferCoding::default();
            for value in values {
                coding.add(value.as_bytes());
            }
            coding
        };
        assert_eq!(
            read(&[" Chunked "]),
            TransferCoding::Chunked { alone: true }
        );
        let after_gzip = TransferCoding::Chunked { alone: false };
        assert_eq!(read(&["gzip;q=1 , chunked"]), after_gzip);
        assert_eq!(read(&["gzip", "chunked"]), after_gzip);
        assert_eq!(read(&["gzip"]), TransferCoding::Other);
        assert_eq!(read(&["identity"]), TransferCoding::Other);
        assert_eq!(read(&["chunked, gzip"]), TransferCoding::Other);
        assert_eq!(read(&["chunked;x=1"]), TransferCoding::Other);
        for wrong in ["", ",", "chunked, chunked", "a b", "chunked, a b"] {
            assert_eq!(read(&[wrong]), TransferCoding::Invalid, "{wrong:?}");
        }
    }
}

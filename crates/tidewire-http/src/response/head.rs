//! The head of a response: status line, fields, and the framing of the body that they mean.

use super::{Expected, HEADERS_MAX, ResponseError};
use crate::fields::{ConnectionOptions, ContentLength, Fields, TransferCoding, Version};
use crate::heads::has_bare_line_feed;
use std::mem::MaybeUninit;

/// A whole head, where it lies in the received bytes.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    /// The status of the final response.
    pub status: u16,
    /// The version that the server states.
    pub version: Version,
    /// The framing of the body.
    pub framing: Framing,
    /// Whether it has a field `Set-Cookie`.
    pub sets_cookies: bool,
    raw: &'a [u8],
}

/// The framing of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// There is no body.
    None,
    /// This number of bytes.
    Length(u64),
    /// Chunked transfer coding.
    Chunked,
    /// The body ends with the connection.
    UntilClose,
    /// The bytes after the head are not HTTP.
    Tunnel,
}

impl<'a> Head<'a> {
    pub(super) fn new(raw: &'a [u8], facts: Facts, framing: Framing) -> Self {
        Self {
            status: facts.status,
            version: facts.version,
            framing,
            sets_cookies: facts.sets_cookies,
            raw,
        }
    }

    /// The reason phrase; empty if there is none, or one that is not UTF-8.
    #[must_use]
    pub fn reason(&self) -> &'a str {
        let line = self.raw.split(|byte| *byte == b'\n').next();
        let reason = line.and_then(|line| line.get(STATUS_BYTES..));
        let reason = std::str::from_utf8(reason.unwrap_or_default());
        reason.unwrap_or_default().trim_ascii()
    }

    /// Whether a line ends with LF alone. A client of HTTP accepts that as a line end; other programs do not.
    #[must_use]
    pub fn has_bare_line_feed(&self) -> bool {
        has_bare_line_feed(self.raw)
    }

    /// The value of the first header called `name`, in any case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&'a [u8]> {
        self.headers().value(name)
    }

    /// All headers, in their order.
    #[must_use]
    pub fn headers(&self) -> Fields<'a> {
        Fields::of(self.raw)
    }

    /// The bytes of the head, from the status line to the empty line.
    #[must_use]
    pub fn raw(&self) -> &'a [u8] {
        self.raw
    }
}

/// The fields of a head that determine the end of the response, for any request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    pub(super) status: u16,
    version: Version,
    length: ContentLength,
    coding: TransferCoding,
    connection: ConnectionOptions,
    sets_cookies: bool,
}

impl Default for Facts {
    fn default() -> Self {
        Self {
            status: 0,
            version: Version::Http11,
            length: ContentLength::Absent,
            coding: TransferCoding::Absent,
            connection: ConnectionOptions::default(),
            sets_cookies: false,
        }
    }
}

impl Facts {
    pub(super) fn is_interim(&self) -> bool {
        matches!(self.status, 100..=199) && self.status != SWITCHING_PROTOCOLS
    }

    /// RFC 9112, section 9.3.
    pub(super) fn keeps_alive(&self) -> bool {
        let by_default = self.version == Version::Http11;
        !self.connection.close && (by_default || self.connection.keep_alive) && !self.is_suspect()
    }

    /// RFC 9112, section 6.1: a length beside a transfer coding, or a transfer coding in HTTP/1.0.
    pub(super) fn is_suspect(&self) -> bool {
        self.coding != TransferCoding::Absent
            && (self.length != ContentLength::Absent || self.version == Version::Http10)
    }

    /// RFC 9112, section 6.3, in its order.
    pub(super) fn framing(&self, expected: Expected) -> Result<Framing, ResponseError> {
        match (self.status, expected) {
            (SWITCHING_PROTOCOLS, Expected::Upgrade) => return Ok(Framing::Tunnel),
            (SWITCHING_PROTOCOLS, _) => return Err(ResponseError::UnaskedUpgrade),
            (200..=299, Expected::Connect) => return Ok(Framing::Tunnel),
            (100..=199 | 204 | 304, _) | (_, Expected::Head) => return Ok(Framing::None),
            _ => {}
        }
        match (self.coding, self.length) {
            (TransferCoding::Invalid, _) => Err(ResponseError::BadTransferEncoding),
            (TransferCoding::Chunked { .. }, _) => Ok(Framing::Chunked),
            (TransferCoding::Other, _) => Ok(Framing::UntilClose),
            (TransferCoding::Absent, ContentLength::Invalid) => {
                Err(ResponseError::BadContentLength)
            }
            (TransferCoding::Absent, ContentLength::Conflicting) => {
                Err(ResponseError::ConflictingLengths)
            }
            (TransferCoding::Absent, ContentLength::Bytes(bytes)) => Ok(Framing::Length(bytes)),
            (TransferCoding::Absent, ContentLength::Absent) => Ok(Framing::UntilClose),
        }
    }
}

/// Rejects noise and other protocols by their first bytes, before a line end that may never arrive.
pub(super) fn check_start(data: &[u8]) -> Result<(), ResponseError> {
    let differs = START
        .iter()
        .zip(data)
        .position(|(wanted, byte)| wanted != byte);
    match differs {
        None => Ok(()),
        Some(at) if at < PROTOCOL_BYTES => Err(ResponseError::BadStatusLine),
        Some(_) => Err(ResponseError::UnsupportedVersion),
    }
}

/// Reads a whole head, with its empty line.
pub(super) fn parse(head: &[u8]) -> Result<Facts, ResponseError> {
    let mut config = httparse::ParserConfig::default();
    config.allow_obsolete_multiline_headers_in_responses(true);
    let mut headers = [const { MaybeUninit::uninit() }; HEADERS_MAX];
    let mut parsed = httparse::Response::new(&mut []);
    let status = config.parse_response_with_uninit_headers(&mut parsed, head, &mut headers);
    match status.map_err(http_error)? {
        httparse::Status::Complete(bytes) if bytes == head.len() => {}
        _ => return Err(ResponseError::BadHeader),
    }
    let mut facts = Facts {
        status: parsed.code.unwrap_or_default(),
        version: match parsed.version {
            Some(0) => Version::Http10,
            _ => Version::Http11,
        },
        ..Facts::default()
    };
    if facts.status < 100 {
        return Err(ResponseError::BadStatusLine);
    }
    for header in parsed.headers.iter() {
        let (name, value) = (header.name, header.value);
        match name.len() {
            14 if name.eq_ignore_ascii_case("content-length") => facts.length.add(value),
            17 if name.eq_ignore_ascii_case("transfer-encoding") => facts.coding.add(value),
            10 if name.eq_ignore_ascii_case("connection") => facts.connection.add(value),
            10 if name.eq_ignore_ascii_case("set-cookie") => facts.sets_cookies = true,
            _ => {}
        }
    }
    Ok(facts)
}

fn http_error(error: httparse::Error) -> ResponseError {
    match error {
        httparse::Error::Status | httparse::Error::Token => ResponseError::BadStatusLine,
        httparse::Error::Version => ResponseError::UnsupportedVersion,
        httparse::Error::TooManyHeaders => ResponseError::TooManyHeaders,
        _ => ResponseError::BadHeader,
    }
}

const START: &[u8] = b"HTTP/1.";
const PROTOCOL_BYTES: usize = 5;
/// Bytes before the reason phrase: a version, a space, three digits.
const STATUS_BYTES: usize = 12;
const SWITCHING_PROTOCOLS: u16 = 101;

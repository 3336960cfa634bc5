//! The head of a request: request line, fields, and the framing of the body that they mean.

use super::{HEADERS_MAX, RequestError};
use crate::fields::{
    ConnectionOptions, ContentLength, Fields, TransferCoding, Version, is_token_byte,
};
use crate::heads::{EndSearch, has_bare_line_feed};
use crate::request::BodyLength;
use std::mem::MaybeUninit;

/// The head of a request, where it lies in the received bytes.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The method, such as `GET`; any token.
    pub method: &'a str,
    /// The target as the client wrote it: printable ASCII, without a fragment.
    pub target: &'a str,
    /// The version that the client speaks.
    pub version: Version,
    /// The body that follows.
    pub body: BodyLength,
    /// Whether the client leaves the connection open for another request (RFC 9112, section 9.3).
    pub keeps_alive: bool,
    /// Whether the client waits for `100 Continue` before it sends the body (RFC 9110, section 10.1.1).
    pub expects_continue: bool,
    raw: &'a [u8],
}

impl<'a> Request<'a> {
    pub(super) fn new(raw: &'a [u8], facts: Facts) -> Self {
        let (method, rest) = raw.split_at(facts.method_bytes);
        let target = &rest[1..=facts.target_bytes];
        Self {
            // Both were checked to be ASCII.
            method: std::str::from_utf8(method).unwrap_or_default(),
            target: std::str::from_utf8(target).unwrap_or_default(),
            version: facts.version,
            body: facts.body,
            keeps_alive: facts.keeps_alive,
            expects_continue: facts.expects_continue,
            raw,
        }
    }

    /// The path of the target, still percent-encoded, without its query: of an absolute target what follows the
    /// authority.
    #[must_use]
    pub fn path(&self) -> &'a str {
        let path = self.origin_form().split('?').next().unwrap_or_default();
        if path.is_empty() { "/" } else { path }
    }

    /// The query of the target, the part behind `?`, still percent-encoded; empty if there is none.
    #[must_use]
    pub fn query(&self) -> &'a str {
        let parts = self.origin_form().split_once('?');
        parts.map_or("", |(_, query)| query)
    }

    /// The target without scheme and authority (RFC 9112, section 3.2).
    fn origin_form(&self) -> &'a str {
        if self.target.starts_with('/') {
            return self.target;
        }
        match self.target.split_once("://") {
            Some((scheme, rest)) if !scheme.contains(['/', '?']) => {
                rest.find(['/', '?']).map_or("/", |at| &rest[at..])
            }
            _ => self.target,
        }
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

    /// The bytes of the head, from the request line to the empty line.
    #[must_use]
    pub fn raw(&self) -> &'a [u8] {
        self.raw
    }
}

/// The parsed fields of a head.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    method_bytes: usize,
    target_bytes: usize,
    version: Version,
    pub(super) body: BodyLength,
    keeps_alive: bool,
    expects_continue: bool,
}

impl Default for Facts {
    fn default() -> Self {
        Self {
            method_bytes: 0,
            target_bytes: 0,
            version: Version::Http11,
            body: BodyLength::None,
            keeps_alive: false,
            expects_continue: false,
        }
    }
}

/// A method is a token and a space follows. Anything else in its place (TLS, a port scan, noise) is rejected
/// by its first bytes, before a line end that may never arrive.
pub(super) fn check_method(data: &[u8]) -> Result<(), RequestError> {
    let start = &data[..data.len().min(METHOD_BYTES_MAX + 1)];
    match start.iter().position(|byte| !is_token_byte(*byte)) {
        Some(0) => Err(RequestError::BadRequestLine),
        Some(at) if start[at] == b' ' => Ok(()),
        Some(_) => Err(RequestError::BadRequestLine),
        None if start.len() <= METHOD_BYTES_MAX => Ok(()),
        None => Err(RequestError::MethodTooLong),
    }
}

/// Reads a whole head, with its empty line.
pub(super) fn parse(head: &[u8]) -> Result<Facts, RequestError> {
    match parse_front(head, |_, _| ())? {
        Some((length, facts)) if length == head.len() => Ok(facts),
        _ => Err(RequestError::BadHeader),
    }
}

/// Reads the head at the front of `data`, with its length; `None` if it is not whole. Gives each header to `visit`, in
/// their order.
pub(super) fn parse_front<'a>(
    data: &'a [u8],
    mut visit: impl FnMut(&'a str, &'a [u8]),
) -> Result<Option<(usize, Facts)>, RequestError> {
    let mut headers = [const { MaybeUninit::uninit() }; HEADERS_MAX];
    let mut parsed = httparse::Request::new(&mut []);
    let length = match parsed.parse_with_uninit_headers(data, &mut headers) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) if has_bare_line_feed(data) => {
            return Err(RequestError::BareLineFeed);
        }
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(error) => {
            let length = EndSearch::default().find(data).unwrap_or(data.len());
            return Err(http_error(error, &data[..length]));
        }
    };
    if has_bare_line_feed(&data[..length]) {
        return Err(RequestError::BareLineFeed);
    }
    let (method, target) = (
        parsed.method.unwrap_or_default(),
        parsed.path.unwrap_or_default(),
    );
    let is_target_byte = |byte: u8| byte.is_ascii_graphic() && byte != b'#';
    if target.is_empty() || !target.bytes().all(is_target_byte) {
        return Err(RequestError::BadRequestLine);
    }
    let version = match parsed.version {
        Some(0) => Version::Http10,
        _ => Version::Http11,
    };
    let said = Said::by(parsed.headers)?;
    if !said.has_host && version == Version::Http11 {
        return Err(RequestError::BadHost);
    }
    let body = said.body(version)?;
    for header in parsed.headers.iter() {
        visit(header.name, header.value);
    }
    let facts = Facts {
        method_bytes: method.len(),
        target_bytes: target.len(),
        version,
        body,
        keeps_alive: !said.connection.close
            && (version == Version::Http11 || said.connection.keep_alive),
        expects_continue: said.expects_continue
            && version == Version::Http11
            && !matches!(body, BodyLength::None | BodyLength::Bytes(0)),
    };
    Ok(Some((length, facts)))
}

/// The relevant headers.
#[derive(Default)]
struct Said {
    has_host: bool,
    connection: ConnectionOptions,
    expects_continue: bool,
    length: ContentLength,
    coding: TransferCoding,
}

impl Said {
    fn by(headers: &[httparse::Header<'_>]) -> Result<Self, RequestError> {
        let mut said = Self::default();
        for header in headers {
            let (name, value) = (header.name, header.value);
            match name.len() {
                4 if name.eq_ignore_ascii_case("host") => {
                    let is_host = value.iter().all(u8::is_ascii_graphic);
                    if said.has_host || !is_host {
                        return Err(RequestError::BadHost);
                    }
                    said.has_host = true;
                }
                6 if name.eq_ignore_ascii_case("expect") => {
                    if !value.eq_ignore_ascii_case(b"100-continue") {
                        return Err(RequestError::UnknownExpectation);
                    }
                    said.expects_continue = true;
                }
                10 if name.eq_ignore_ascii_case("connection") => said.connection.add(value),
                14 if name.eq_ignore_ascii_case("content-length") => {
                    if said.length != ContentLength::Absent || value.contains(&b',') {
                        return Err(RequestError::ConflictingLengths);
                    }
                    said.length.add(value);
                }
                17 if name.eq_ignore_ascii_case("transfer-encoding") => said.coding.add(value),
                _ => {}
            }
        }
        Ok(said)
    }

    /// RFC 9112, section 6.3.
    fn body(&self, version: Version) -> Result<BodyLength, RequestError> {
        match (self.coding, self.length) {
            (TransferCoding::Absent, ContentLength::Absent) => Ok(BodyLength::None),
            (TransferCoding::Absent, ContentLength::Bytes(bytes)) => Ok(BodyLength::Bytes(bytes)),
            (TransferCoding::Absent, ContentLength::Invalid) => Err(RequestError::BadContentLength),
            (TransferCoding::Absent, ContentLength::Conflicting) => {
                Err(RequestError::ConflictingLengths)
            }
            (_, length) if length != ContentLength::Absent || version == Version::Http10 => {
                Err(RequestError::AmbiguousLength)
            }
            (TransferCoding::Chunked { alone: true }, _) => Ok(BodyLength::Chunked),
            (TransferCoding::Chunked { alone: false }, _) => Err(RequestError::UnsupportedCoding),
            (TransferCoding::Other | TransferCoding::Invalid, _) => {
                Err(RequestError::BadTransferEncoding)
            }
        }
    }
}

fn http_error(error: httparse::Error, head: &[u8]) -> RequestError {
    match error {
        _ if has_bare_line_feed(head) => RequestError::BareLineFeed,
        httparse::Error::TooManyHeaders => RequestError::TooManyHeaders,
        httparse::Error::HeaderName | httparse::Error::HeaderValue => RequestError::BadHeader,
        // A preface of HTTP/2 and the like; `GET / nonsense` is not even HTTP.
        httparse::Error::Version => {
            let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
            let version = line.rsplit(|byte| *byte == b' ').next().unwrap_or_default();
            match version {
                b"HTTP/1.0" | b"HTTP/1.1" => RequestError::BadRequestLine,
                [b'H', b'T', b'T', b'P', b'/', b'0'..=b'9', ..] => RequestError::UnsupportedVersion,
                _ => RequestError::BadRequestLine,
            }
        }
        httparse::Error::NewLine => RequestError::BadHeader,
        _ => RequestError::BadRequestLine,
    }
}

const METHOD_BYTES_MAX: usize = 32;

//! Heads of HTTP requests and responses, without input or output.

use crate::config::TrustedProxies;
use std::borrow::Cow;
use std::net::SocketAddr;
use tidewire_wire::forwarded::ForwardedHeader;
use tidewire_wire::handshake::server::reason_phrase;

/// The head of a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Request<'a> {
    pub(crate) method: &'a str,
    /// Without the query.
    pub(crate) path: &'a str,
    /// The query: the part behind the question mark.
    pub(crate) query: &'a str,
    /// The value of `Host`; missing only in HTTP/1.0.
    pub(crate) host: Option<&'a [u8]>,
    /// The key that it shows, if any.
    pub(crate) key: Option<&'a [u8]>,
    /// The origin of the page that sends it (RFC 6454), if it names one.
    pub(crate) origin: Option<&'a [u8]>,
    pub(crate) cookie: Option<&'a [u8]>,
    /// The values of `X-Forwarded-For` and of `Forwarded`, in their order.
    pub(crate) forwarded: [Vec<&'a [u8]>; 2],
    /// The sender's address, or that of the client that a trusted proxy names.
    pub(crate) peer: Option<SocketAddr>,
    pub(crate) body: Body,
    /// Whether the sender waits for a word before it sends the body (RFC 9110, section 10.1.1).
    pub(crate) expects_continue: bool,
    /// Whether another request may follow on the connection, once the body was read.
    pub(crate) keep_alive: bool,
    /// How many bytes the head was.
    pub(crate) head_bytes: usize,
}

/// The body that follows the head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Body {
    /// This many bytes, or none.
    Bytes(u64),
    /// A body in a form that is not read.
    Coded,
}

/// Why bytes are not a request; the connection cannot go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestError {
    /// Not HTTP/1.
    Malformed,
    /// More than [`REQUEST_HEAD_BYTES_MAX`] or [`HEADERS_MAX`].
    TooLarge,
}

/// A response.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) content_type: &'static str,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Cow<'static, str>,
}

impl Request<'_> {
    /// Notes who has sent the request: `peer`, or the client for whom it has sent it if it is a trusted proxy.
    pub(crate) fn set_peer(&mut self, peer: Option<SocketAddr>, proxies: &TrustedProxies) {
        let is_trusted = |address| proxies.is_trusted(address);
        let Some(proxy) = peer.filter(|peer| is_trusted(peer.ip())) else {
            self.peer = peer;
            return;
        };
        let lines = match proxies.header {
            ForwardedHeader::XForwardedFor => &self.forwarded[0],
            ForwardedHeader::Forwarded => &self.forwarded[1],
        };
        // A value that is no text is one that is no address.
        let lines = lines.iter();
        let lines = lines.map(|value| std::str::from_utf8(value).unwrap_or_default());
        self.peer = Some(proxies.header.client(lines, proxy, is_trusted));
    }
}

impl RequestError {
    pub(crate) fn response(self) -> Response {
        match self {
            Self::Malformed => {
                Response::text(400, "this is not a request that can be understood\n")
            }
            Self::TooLarge => Response::text(431, "the head of the request is too large\n"),
        }
    }
}

impl Response {
    pub(crate) fn text(status: u16, body: &'static str) -> Self {
        Self::new(status, "text/plain; charset=utf-8", body)
    }

    pub(crate) fn json(status: u16, body: impl Into<Cow<'static, str>>) -> Self {
        Self::new(status, "application/json", body)
    }

    pub(crate) fn new(
        status: u16,
        content_type: &'static str,
        body: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self {
            status,
            content_type,
            headers: Vec::new(),
            body: body.into(),
        }
    }

    /// With a further header, whose value is no peer's.
    pub(crate) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// Appends the answer; to HEAD without the body.
    pub(crate) fn write(&self, is_head: bool, keep_alive: bool, out: &mut Vec<u8>) {
        let (status, reason) = (self.status, phrase(self.status));
        let (kind, length) = (self.content_type, self.body.len());
        let connection = if keep_alive { "keep-alive" } else { "close" };
        let mut head = format!(
            "HTTP/1.1 {status} {reason}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\
             Cache-Control: no-store\r\nConnection: {connection}\r\n"
        );
        for (name, value) in &self.headers {
            head.extend([name, ": ", value, "\r\n"]);
        }
        head.push_str("\r\n");
        out.extend_from_slice(head.as_bytes());
        if !is_head {
            out.extend_from_slice(self.body.as_bytes());
        }
    }
}

fn phrase(status: u16) -> &'static str {
    match status {
        409 => "Conflict",
        411 => "Length Required",
        413 => "Content Too Large",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        504 => "Gateway Timeout",
        _ => reason_phrase(status),
    }
}

/// Reads the head at the front of `data`; `None` while it is not complete.
pub(crate) fn parse(data: &[u8]) -> Result<Option<Request<'_>>, RequestError> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    let window = &data[..data.len().min(REQUEST_HEAD_BYTES_MAX)];
    let head_bytes = match request.parse(window) {
        Ok(httparse::Status::Complete(bytes)) => bytes,
        Ok(httparse::Status::Partial) if data.len() >= REQUEST_HEAD_BYTES_MAX => {
            return Err(RequestError::TooLarge);
        }
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err(RequestError::TooLarge),
        Err(_) => return Err(RequestError::Malformed),
    };
    let (Some(method), Some(target), Some(version)) =
        (request.method, request.path, request.version)
    else {
        return Err(RequestError::Malformed);
    };
    let headers = Headers::read(request.headers)?;
    // RFC 9112, section 3.2.
    if version == 1 && headers.host.is_none() {
        return Err(RequestError::Malformed);
    }
    let (path, query) = parts(target);
    Ok(Some(Request {
        method,
        path,
        query,
        host: headers.host,
        key: headers.key,
        origin: headers.origin,
        cookie: headers.cookie,
        forwarded: headers.forwarded,
        peer: None,
        body: match headers.is_coded {
            true => Body::Coded,
            false => Body::Bytes(headers.length.unwrap_or(0)),
        },
        expects_continue: headers.expects_continue,
        keep_alive: version == 1 && !headers.wants_close,
        head_bytes,
    }))
}

/// The values of the header lines.
#[derive(Default)]
struct Headers<'a> {
    host: Option<&'a [u8]>,
    is_coded: bool,
    wants_close: bool,
    expects_continue: bool,
    length: Option<u64>,
    key: Option<&'a [u8]>,
    origin: Option<&'a [u8]>,
    cookie: Option<&'a [u8]>,
    forwarded: [Vec<&'a [u8]>; 2],
}

impl<'a> Headers<'a> {
    fn read(lines: &[httparse::Header<'a>]) -> Result<Self, RequestError> {
        let mut headers = Self::default();
        for line in lines {
            let value = line.value.trim_ascii();
            let is = |name: &str| line.name.eq_ignore_ascii_case(name);
            if is("host") {
                if headers.host.replace(value).is_some() {
                    return Err(RequestError::Malformed);
                }
            } else if is("content-length") {
                let length = length(value).ok_or(RequestError::Malformed)?;
                // Two that differ are an attempt at something (RFC 9112, section 6.3).
                if headers.length.is_some_and(|other| other != length) {
                    return Err(RequestError::Malformed);
                }
                headers.length = Some(length);
            } else if is("transfer-encoding") {
                headers.is_coded = true;
            } else if is("connection") {
                headers.wants_close |= has_word(value, b"close");
            } else if is("expect") {
                headers.expects_continue |= value.eq_ignore_ascii_case(b"100-continue");
            } else if is("origin") {
                headers.origin = Some(value);
            } else if is("cookie") {
                headers.cookie = Some(value);
            } else if is("x-forwarded-for") {
                headers.forwarded[0].push(value);
            } else if is("forwarded") {
                headers.forwarded[1].push(value);
            } else if is("x-api-key") {
                headers.key = Some(value);
            } else if is("authorization") && headers.key.is_none() {
                headers.key = bearer(value);
            }
        }
        Ok(headers)
    }
}

fn length(value: &[u8]) -> Option<u64> {
    let is_number = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    let digits = std::str::from_utf8(value).ok().filter(|_| is_number)?;
    digits.parse().ok()
}

/// The token behind `Bearer` (RFC 6750, section 2.1).
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(7)?;
    scheme
        .eq_ignore_ascii_case(b"bearer ")
        .then(|| token.trim_ascii())
}

/// Path and query of a target in origin form or absolute form (RFC 9112, section 3.2).
fn parts(target: &str) -> (&str, &str) {
    let target = match target.split_once("://") {
        Some((scheme, rest)) if !scheme.contains('/') => {
            rest.find('/').map_or("/", |at| &rest[at..])
        }
        _ => target,
    };
    target.split_once('?').unwrap_or((target, ""))
}

/// The text behind percent signs (RFC 3986, section 2.1), and in a query behind `+`; `None` if it
/// is no UTF-8.
pub(crate) fn percent_decoded(text: &str, is_query: bool) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        match byte {
            b'%' => {
                let (digits, behind) = rest.split_at_checked(2)?;
                let digits = std::str::from_utf8(digits).ok()?;
                let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
                let digits = Some(digits).filter(|_| is_hex)?;
                bytes.push(u8::from_str_radix(digits, 16).ok()?);
                rest = behind;
            }
            b'+' if is_query => bytes.push(b' '),
            byte => bytes.push(byte),
        }
    }
    String::from_utf8(bytes).ok()
}

fn has_word(list: &[u8], word: &[u8]) -> bool {
    list.split(|byte| *byte == b',')
        .any(|item| item.trim_ascii().eq_ignore_ascii_case(word))
}

/// The longest head of a request, in bytes.
pub(crate) const REQUEST_HEAD_BYTES_MAX: usize = 8 * 1024;

/// The most header lines.
const HEADERS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Request<'_> {
        parse(text.as_bytes()).unwrap().unwrap()
    }

    #[test]
    fn a_request_is_read_up_to_its_end() {
        let text = "GET /stats?pretty HTTP/1.1\r\nHost: a\r\n\r\nGET /next";
        let bytes = text.len() - "GET /next".len();
        let expected = Request {
            method: "GET",
            path: "/stats",
            query: "pretty",
            host: Some(b"a"),
            key: None,
            origin: None,
            cookie: None,
            forwarded: Default::default(),
            peer: None,
            body: Body::Bytes(0),
            expects_continue: false,
            keep_alive: true,
            head_bytes: bytes,
        };
        assert_eq!(parsed(text), expected);
        for end in 0..bytes {
            assert_eq!(parse(&text.as_bytes()[..end]), Ok(None));
        }
    }

    #[test]
    fn the_connection_ends_for_those_who_say_so() {
        assert!(!parsed("GET / HTTP/1.0\r\n\r\n").keep_alive);
        let closing = "GET / HTTP/1.1\r\nHost: a\r\nConnection: x, Close\r\n\r\n";
        assert!(!parsed(closing).keep_alive);
    }

    #[test]
    fn what_follows_the_head_is_known() {
        let request = |lines: &str| format!("POST / HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
        let body = |lines: &str| parse(request(lines).as_bytes()).map(|found| found.unwrap().body);
        assert_eq!(body("Content-Length: 0\r\n"), Ok(Body::Bytes(0)));
        assert_eq!(body("content-length:  5 \r\n"), Ok(Body::Bytes(5)));
        let twice = "Content-Length: 5\r\nContent-Length: 5\r\n";
        assert_eq!(body(twice), Ok(Body::Bytes(5)));
        let coded = "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n";
        assert_eq!(body(coded), Ok(Body::Coded));
        for bad in ["-5", "+5", "5, 5", "", "0x5", "18446744073709551616"] {
            let lines = format!("Content-Length: {bad}\r\n");
            assert_eq!(body(&lines), Err(RequestError::Malformed), "{bad}");
        }
        let two = "Content-Length: 5\r\nContent-Length: 6\r\n";
        assert_eq!(body(two), Err(RequestError::Malformed));
    }

    #[test]
    fn a_key_is_found_in_either_header() {
        let key = |lines: &str| {
            let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
            parsed(&text).key.map(<[u8]>::to_vec)
        };
        assert_eq!(
            key("Authorization: bearer  abc \r\n"),
            Some(b"abc".to_vec())
        );
        assert_eq!(key("X-API-Key: abc\r\n"), Some(b"abc".to_vec()));
        assert_eq!(key("Authorization: Basic abc\r\n"), None);
        assert_eq!(key("Authorization: x\r\n"), None);
    }

    #[test]
    fn percent_signs() {
        let decoded = percent_decoded("a%2Eb+c%C3%A4", true);
        assert_eq!(decoded.as_deref(), Some("a.b c\u{e4}"));
        assert_eq!(percent_decoded("a+b", false).as_deref(), Some("a+b"));
        for bad in ["%", "%2", "%zz", "%+1", "%ff"] {
            assert_eq!(percent_decoded(bad, true), None, "{bad}");
        }
    }

    #[test]
    fn an_absolute_target_has_a_path() {
        for (target, expected) in [
            ("http://ops:9/ready?x=/y", "/ready"),
            ("http://ops:9", "/"),
            ("/a?u=http://b/c", "/a"),
            ("/a://b/c", "/a://b/c"),
            ("*", "*"),
        ] {
            assert_eq!(parts(target).0, expected, "{target}");
        }
    }

    #[test]
    fn bad_requests_are_told_apart() {
        assert_eq!(parse(b"\x16\x03\x01\x02\x00"), Err(RequestError::Malformed));
        assert_eq!(
            parse(b"GET / HTTP/1.1\r\n\r\n"),
            Err(RequestError::Malformed)
        );
        assert_eq!(parse(b"GET / HTTP/2.0\r\n"), Err(RequestError::Malformed));
        let endless = format!("GET /{}", "a".repeat(REQUEST_HEAD_BYTES_MAX));
        assert_eq!(parse(endless.as_bytes()), Err(RequestError::TooLarge));
        let many = format!("GET / HTTP/1.1\r\n{}", "a: b\r\n".repeat(HEADERS_MAX + 1));
        assert_eq!(parse(many.as_bytes()), Err(RequestError::TooLarge));
    }
}

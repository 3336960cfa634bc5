//! Requests of the listener, made of the heads that `tidewire-http` reads, and its responses.

use crate::config::TrustedProxies;
use std::borrow::Cow;
use std::net::SocketAddr;
use tidewire_http::BodyLength;
use tidewire_http::server::{self as http, reason_phrase};
use tidewire_wire::forwarded::ForwardedHeader;

#[cfg(test)]
pub(crate) use tests::read;

/// A request, by its head.
#[derive(Debug, Default)]
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
    /// The length of its body; `None` for chunks, whose sum is not known.
    pub(crate) body_bytes: Option<u64>,
    /// Whether the sender waits for a word before it sends the body (RFC 9110, section 10.1.1).
    pub(crate) expects_continue: bool,
    /// Whether another request may follow on the connection, once the body was read.
    pub(crate) keep_alive: bool,
    /// The bytes of the head.
    pub(crate) head: &'a [u8],
}

/// A response.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) content_type: &'static str,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Cow<'static, str>,
}

impl<'a> Request<'a> {
    pub(crate) fn of(request: &http::Request<'a>) -> Self {
        let mut found = Self {
            method: request.method,
            path: request.path(),
            query: request.query(),
            body_bytes: match request.body {
                BodyLength::None => Some(0),
                BodyLength::Bytes(bytes) => Some(bytes),
                BodyLength::Chunked => None,
            },
            expects_continue: request.expects_continue,
            keep_alive: request.keeps_alive,
            head: request.raw(),
            ..Self::default()
        };
        for (name, value) in request.headers() {
            let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
            if is("host") {
                found.host = Some(value);
            } else if is("origin") {
                found.origin = Some(value);
            } else if is("cookie") {
                found.cookie = Some(value);
            } else if is("x-forwarded-for") {
                found.forwarded[0].push(value);
            } else if is("forwarded") {
                found.forwarded[1].push(value);
            } else if is("x-api-key") {
                found.key = Some(value);
            } else if is("authorization") && found.key.is_none() {
                found.key = bearer(value);
            }
        }
        found
    }

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

impl Response {
    pub(crate) fn text(status: u16, body: &'static str) -> Self {
        Self::new(status, "text/plain; charset=utf-8", body)
    }

    /// Of a request that cannot be read, after which the connection cannot go on.
    pub(crate) fn unreadable(error: http::RequestError) -> Self {
        let words = format!("{error}\n");
        Self::new(error.status(), "text/plain; charset=utf-8", words)
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
        let (status, reason) = (self.status, reason_phrase(self.status));
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

/// The token behind `Bearer` (RFC 6750, section 2.1).
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(7)?;
    scheme
        .eq_ignore_ascii_case(b"bearer ")
        .then(|| token.trim_ascii())
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::listener::LIMITS;

    /// Gives a request of `text` to `look`.
    pub(crate) fn read<T>(text: &str, look: impl FnOnce(Request<'_>) -> T) -> T {
        let head = http::read_head(text.as_bytes(), &LIMITS, |_, _| ());
        look(Request::of(&head.unwrap().unwrap().1))
    }

    #[test]
    fn a_request_has_what_the_listener_looks_at() {
        let text = "GET http://ops:9/stats?pretty HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: b\r\n\
            Origin: c\r\nX-forwarded-for: d\r\nConnection: x, Close\r\n\r\n";
        read(text, |request| {
            assert_eq!((request.path, request.query), ("/stats", "pretty"));
            assert_eq!(request.host, Some(&b"a"[..]));
            assert_eq!(request.origin, Some(&b"c"[..]));
            assert_eq!(request.forwarded[0], [b"b", b"d"]);
            assert_eq!(request.body_bytes, Some(0));
            assert!(!request.keep_alive);
        });
    }

    #[test]
    fn a_key_is_found_in_either_header() {
        let key = |lines: &str| {
            let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
            read(&text, |request| request.key.map(<[u8]>::to_vec))
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
}

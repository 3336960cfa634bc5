//! Requests as a client writes them: checked, then encoded.

use crate::fields::{is_field_value, is_token, write_field};

/// The head of a request to be written.
#[derive(Clone, Copy, Debug)]
pub struct RequestHead<'a> {
    /// The method, such as `GET`; any token.
    pub method: &'a str,
    /// The target: a path with its query, `*` for OPTIONS, a whole URL for a proxy, `host:port` for CONNECT.
    pub target: &'a str,
    /// The value of `Host`, as [`host_value`] makes it. A header called `Host` replaces it.
    pub host: &'a str,
    /// Further headers, in their order. None may be a header of the body's framing: see `body`.
    pub headers: &'a [(&'a str, &'a str)],
    /// The body that follows.
    pub body: BodyLength,
}

/// The framing of a body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BodyLength {
    /// There is no body. POST, PUT and PATCH then send `Content-Length: 0`.
    #[default]
    None,
    /// A body of this number of bytes.
    Bytes(u64),
    /// Chunks follow.
    Chunked,
}

/// The reason why a request cannot be written: the caller's fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The method is not a token.
    #[error("the method {0:?} has a character that a method may not have")]
    Method(String),
    /// The target is empty, or has a space, a control, a `#` or a character beyond ASCII.
    #[error("the target {0:?} is empty or has a character that must be percent-encoded")]
    Target(String),
    /// The host is empty or would break its line.
    #[error("the host {0:?} is not a host")]
    Host(String),
    /// A header's name is not a token.
    #[error("the header name {0:?} has a character that a name may not have")]
    HeaderName(String),
    /// A header's value has a line end or another control.
    #[error("the value of the header {0} has a line end or another control character")]
    HeaderValue(String),
    /// `Content-Length` or `Transfer-Encoding` among the headers.
    #[error("the header {0} follows from the body and cannot be given")]
    Framing(String),
    /// `Host` is given twice.
    #[error("the header Host is given twice")]
    HostTwice,
}

impl RequestHead<'_> {
    /// Appends the head to `out`, `Host` first. Nothing is appended on an error.
    ///
    /// # Errors
    /// A part would break the request, or could be read as another request by somebody.
    pub fn write(&self, out: &mut Vec<u8>) -> Result<(), RequestError> {
        let host = self.check()?;
        out.extend_from_slice(self.method.as_bytes());
        out.push(b' ');
        out.extend_from_slice(self.target.as_bytes());
        out.extend_from_slice(b" HTTP/1.1\r\n");
        write_field("Host", host, out);
        for (name, value) in self.headers {
            if !name.eq_ignore_ascii_case("host") {
                write_field(name, value, out);
            }
        }
        match self.body {
            BodyLength::Bytes(bytes) => write_length(bytes, out),
            BodyLength::Chunked => write_field("Transfer-Encoding", "chunked", out),
            BodyLength::None if expects_a_body(self.method) => write_length(0, out),
            BodyLength::None => {}
        }
        out.extend_from_slice(b"\r\n");
        Ok(())
    }

    /// The value of `Host`, if all is in order.
    fn check(&self) -> Result<&str, RequestError> {
        if !is_token(self.method.as_bytes()) {
            return Err(RequestError::Method(self.method.to_owned()));
        }
        let is_target_byte = |byte: u8| byte.is_ascii_graphic() && byte != b'#';
        if self.target.is_empty() || !self.target.bytes().all(is_target_byte) {
            return Err(RequestError::Target(self.target.to_owned()));
        }
        let mut given_host = None;
        for (name, value) in self.headers {
            if !is_token(name.as_bytes()) {
                return Err(RequestError::HeaderName((*name).to_owned()));
            }
            if !is_field_value(value.as_bytes()) {
                return Err(RequestError::HeaderValue((*name).to_owned()));
            }
            if ["content-length", "transfer-encoding"]
                .iter()
                .any(|framing| name.eq_ignore_ascii_case(framing))
            {
                return Err(RequestError::Framing((*name).to_owned()));
            }
            if name.eq_ignore_ascii_case("host") && given_host.replace(*value).is_some() {
                return Err(RequestError::HostTwice);
            }
        }
        let host = given_host.unwrap_or(self.host);
        if host.is_empty() || !host.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(RequestError::Host(host.to_owned()));
        }
        Ok(host)
    }
}

/// The value of `Host` for a server: an IPv6 address in brackets, the scheme's own port left out (RFC 9110,
/// section 7.2).
#[must_use]
pub fn host_value(host: &str, port: u16, scheme_port: u16) -> String {
    let is_bare_ipv6 = host.contains(':') && !host.starts_with('[');
    let host = if is_bare_ipv6 {
        format!("[{host}]")
    } else {
        host.to_owned()
    };
    if port == scheme_port {
        host
    } else {
        format!("{host}:{port}")
    }
}

/// Appends a chunk; nothing for no bytes, because an empty chunk would end the body.
pub fn write_chunk(bytes: &[u8], out: &mut Vec<u8>) {
    if bytes.is_empty() {
        return;
    }
    let mut digits = [0; 16];
    let mut start = digits.len();
    let mut rest = bytes.len();
    while rest > 0 {
        start -= 1;
        digits[start] = b"0123456789abcdef"[rest & 15];
        rest >>= 4;
    }
    out.extend_from_slice(&digits[start..]);
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// Appends the end of a chunked body, without trailers.
pub fn write_last_chunk(out: &mut Vec<u8>) {
    out.extend_from_slice(b"0\r\n\r\n");
}

pub(crate) fn write_length(bytes: u64, out: &mut Vec<u8>) {
    write_field("Content-Length", itoa::Buffer::new().format(bytes), out);
}

/// Methods that give a body a meaning: a server may wait for one (RFC 9110, section 8.6).
fn expects_a_body(method: &str) -> bool {
    ["POST", "PUT", "PATCH"].contains(&method)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: RequestHead<'_> = RequestHead {
        method: "GET",
        target: "/a?b=c",
        host: "example.com",
        headers: &[],
        body: BodyLength::None,
    };

    fn written(head: &RequestHead<'_>) -> Result<String, RequestError> {
        let mut out = Vec::new();
        let result = head.write(&mut out);
        assert!(result.is_ok() || out.is_empty());
        result.map(|()| String::from_utf8(out).unwrap())
    }

    #[test]
    fn the_host_comes_first_and_may_be_replaced() {
        let head = RequestHead {
            headers: &[("Accept", "*/*"), ("X", "")],
            ..PLAIN
        };
        assert_eq!(
            written(&head).unwrap(),
            "GET /a?b=c HTTP/1.1\r\nHost: example.com\r\nAccept: */*\r\nX: \r\n\r\n"
        );
        let head = RequestHead {
            headers: &[("Accept", "*/*"), ("host", "other")],
            ..PLAIN
        };
        assert_eq!(
            written(&head).unwrap(),
            "GET /a?b=c HTTP/1.1\r\nHost: other\r\nAccept: */*\r\n\r\n"
        );
    }

    #[test]
    fn a_body_is_announced_in_one_way() {
        for (method, body, line) in [
            ("GET", BodyLength::None, ""),
            ("DELETE", BodyLength::None, ""),
            ("POST", BodyLength::None, "Content-Length: 0\r\n"),
            ("PUT", BodyLength::None, "Content-Length: 0\r\n"),
            ("PATCH", BodyLength::None, "Content-Length: 0\r\n"),
            ("GET", BodyLength::Bytes(0), "Content-Length: 0\r\n"),
            (
                "POST",
                BodyLength::Bytes(u64::MAX),
                "Content-Length: 18446744073709551615\r\n",
            ),
            (
                "POST",
                BodyLength::Chunked,
                "Transfer-Encoding: chunked\r\n",
            ),
        ] {
            let head = RequestHead {
                method,
                body,
                ..PLAIN
            };
            let expected = format!("{method} /a?b=c HTTP/1.1\r\nHost: example.com\r\n{line}\r\n");
            assert_eq!(written(&head).unwrap(), expected);
        }
    }

    #[test]
    fn nothing_can_break_out_of_its_line() {
        let error = |head: RequestHead<'_>| written(&head).unwrap_err().to_string();
        for method in ["", "GE T", "GET\r\n", "GÉT"] {
            assert!(error(RequestHead { method, ..PLAIN }).contains("method"));
        }
        for target in ["", "/a b", "/a\r\nX: y", "/\0", "/ü", "/a#b", "/\x7f"] {
            assert!(error(RequestHead { target, ..PLAIN }).contains("target"));
        }
        for host in ["", "a b", "a\r\nX: y"] {
            assert!(error(RequestHead { host, ..PLAIN }).contains("host"));
        }
        for header in [
            ("", "v"),
            ("a:", "v"),
            ("a b", "v"),
            ("a", "x\r\ny: z"),
            ("a", "x\ny"),
            ("a", "x\0"),
            ("Content-Length", "5"),
            ("transfer-encoding", "chunked"),
        ] {
            let headers = &[header];
            assert!(error(RequestHead { headers, ..PLAIN }).contains("header"));
        }
        let headers = &[("Host", "a"), ("host", "a")];
        assert!(error(RequestHead { headers, ..PLAIN }).contains("twice"));
    }

    #[test]
    fn hosts() {
        assert_eq!(host_value("a.example", 80, 80), "a.example");
        assert_eq!(host_value("a.example", 8080, 80), "a.example:8080");
        assert_eq!(host_value("::1", 443, 443), "[::1]");
        assert_eq!(host_value("[::1]", 80, 443), "[::1]:80");
    }

    #[test]
    fn chunks() {
        let mut out = Vec::new();
        write_chunk(b"abc", &mut out);
        write_chunk(b"", &mut out);
        write_chunk(&[b'x'; 0x1a2], &mut out);
        write_last_chunk(&mut out);
        let expected = format!("3\r\nabc\r\n1a2\r\n{}\r\n0\r\n\r\n", "x".repeat(0x1a2));
        assert_eq!(out, expected.as_bytes());
    }
}

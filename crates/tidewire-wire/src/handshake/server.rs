//! The server's side: reads the request and writes the response.

mod request;

pub use request::{Request, parse_request};

pub use tidewire_http::server::reason_phrase;

use super::accept_value;
use crate::header::{is_header_value, is_token, write_header};

/// The limits of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the request line and all header lines, with the empty line; 16,384 by default. The number of header
    /// lines is limited by [`HEADERS_MAX`](tidewire_http::server::HEADERS_MAX).
    pub head_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            head_bytes_max: 16_384,
        }
    }
}

/// The reason why a request is not an opening handshake: the peer's fault. The same request fails again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// Not HTTP/1.1, HTTP that different servers could read differently, or a head beyond a limit.
    #[error(transparent)]
    Http(#[from] tidewire_http::server::RequestError),
    /// 400: a header of the handshake, or the target, cannot be read.
    #[error("malformed request: {0}")]
    Malformed(&'static str),
    /// 400: a body is announced, or a header that may occur once is repeated.
    #[error("ambiguous request: {0}")]
    Ambiguous(&'static str),
    /// 400: `Sec-WebSocket-Key` is missing or not 16 bytes of base64.
    #[error("Sec-WebSocket-Key is missing or not 16 bytes of base64")]
    BadKey,
    /// 405: a method other than GET.
    #[error("the method is not GET")]
    MethodNotAllowed,
    /// 426: a plain GET, without the upgrade to WebSocket.
    #[error("this address takes WebSocket connections only")]
    NotWebSocket,
    /// 426: `Sec-WebSocket-Version` is not 13.
    #[error("the WebSocket version is not 13")]
    VersionNotSupported,
}

impl RequestError {
    /// The HTTP status to answer with.
    pub fn status(&self) -> u16 {
        match self {
            Self::Http(error) => error.status(),
            Self::Malformed(_) | Self::Ambiguous(_) | Self::BadKey => 400,
            Self::MethodNotAllowed => 405,
            Self::NotWebSocket | Self::VersionNotSupported => 426,
        }
    }

    /// A stable name for counters and logs, in kebab case.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Http(error) => error.name(),
            Self::Malformed(_) => "malformed",
            Self::Ambiguous(_) => "ambiguous",
            Self::BadKey => "bad-key",
            Self::MethodNotAllowed => "method-not-allowed",
            Self::NotWebSocket => "not-websocket",
            Self::VersionNotSupported => "version-not-supported",
        }
    }

    /// The headers that this status requires.
    pub fn headers(&self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::MethodNotAllowed => &[("Allow", "GET")],
            Self::NotWebSocket => &[("Upgrade", "websocket")],
            Self::VersionNotSupported => {
                &[("Upgrade", "websocket"), ("Sec-WebSocket-Version", "13")]
            }
            _ => &[],
        }
    }

    /// Appends the whole rejection: status, headers, and the text of the error as the body.
    pub fn write(&self, out: &mut Vec<u8>) {
        write_rejection(self.status(), self.headers(), &format!("{self}\n"), out);
    }
}

/// Appends the response 101 to a request with the key `key`. It allocates only in `out`.
///
/// `protocol` is one of those the request offered, or none. A header whose name or value would break
/// the line structure is left out.
pub fn write_accept(
    key: &str,
    protocol: Option<&str>,
    headers: &[(&str, &str)],
    out: &mut Vec<u8>,
) {
    out.extend_from_slice(
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
          Sec-WebSocket-Accept: ",
    );
    out.extend_from_slice(&accept_value(key.as_bytes()));
    out.extend_from_slice(b"\r\n");
    if let Some(protocol) = protocol {
        write_safe_header("Sec-WebSocket-Protocol", protocol, out);
    }
    for (name, value) in headers {
        write_safe_header(name, value, out);
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends a response that rejects the upgrade and ends the connection, with `body` as plain text.
///
/// A header whose name or value would break the line structure is left out.
pub fn write_rejection(status: u16, headers: &[(&str, &str)], body: &str, out: &mut Vec<u8>) {
    let mut number = itoa::Buffer::new();
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(number.format(status).as_bytes());
    out.push(b' ');
    out.extend_from_slice(reason_phrase(status).as_bytes());
    out.extend_from_slice(b"\r\n");
    // RFC 9110, section 7.8: who sends Upgrade names it in Connection.
    let upgrade = headers
        .iter()
        .any(|(name, _)| name.eq_ignore_ascii_case("upgrade"));
    write_header(
        "Connection",
        if upgrade { "upgrade, close" } else { "close" },
        out,
    );
    write_header("Content-Type", "text/plain; charset=utf-8", out);
    write_header("Content-Length", number.format(body.len()), out);
    for (name, value) in headers {
        write_safe_header(name, value, out);
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(body.as_bytes());
}

fn write_safe_header(name: &str, value: &str, out: &mut Vec<u8>) {
    if is_token(name) && is_header_value(value) {
        write_header(name, value, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidewire_http::server::RequestError as HttpError;

    fn text(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn accept() {
        let answer = text(|out| {
            let headers = [("Server", "x"), ("Bad", "a\r\nInjected: 1"), ("Bad:", "b")];
            write_accept("dGhlIHNhbXBsZSBub25jZQ==", Some("chat"), &headers, out);
        });
        assert_eq!(
            answer,
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\
             Sec-WebSocket-Protocol: chat\r\nServer: x\r\n\r\n"
        );
    }

    #[test]
    fn rejection() {
        let answer = text(|out| write_rejection(503, &[("Retry-After", "5")], "full\n", out));
        assert_eq!(
            answer,
            "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\n\
             Content-Type: text/plain; charset=utf-8\r\nContent-Length: 5\r\n\
             Retry-After: 5\r\n\r\nfull\n"
        );
    }

    #[test]
    fn each_error_says_what_its_status_calls_for() {
        let wrong_version = text(|out| RequestError::VersionNotSupported.write(out));
        assert!(wrong_version.starts_with("HTTP/1.1 426 Upgrade Required\r\n"));
        assert!(wrong_version.contains("\r\nSec-WebSocket-Version: 13\r\n"));
        assert!(wrong_version.contains("\r\nConnection: upgrade, close\r\n"));
        let post = text(|out| RequestError::MethodNotAllowed.write(out));
        assert!(post.starts_with("HTTP/1.1 405 Method Not Allowed\r\n"));
        assert!(post.contains("\r\nAllow: GET\r\n"));
        assert!(text(|out| RequestError::NotWebSocket.write(out)).contains("Upgrade: websocket"));
        for (error, start) in [
            (HttpError::UnsupportedVersion, "HTTP/1.1 505 HTTP "),
            (HttpError::HeadTooLong, "HTTP/1.1 431 Request "),
            (HttpError::UnknownExpectation, "HTTP/1.1 417 Exp"),
        ] {
            assert!(text(|out| RequestError::from(error).write(out)).starts_with(start));
        }
    }
}

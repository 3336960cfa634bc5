//! Reading one HTTP request without a body and writing the answer, without input or output.

use tidewire_wire::handshake::server::reason_phrase;

/// A request that was read whole.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Request<'a> {
    pub(crate) method: &'a str,
    /// Without the query.
    pub(crate) path: &'a str,
    /// Whether another request may follow on the connection.
    pub(crate) keep_alive: bool,
    /// How many bytes it was.
    pub(crate) bytes: usize,
}

/// Why bytes are not a request; the connection cannot go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestError {
    /// Not HTTP/1.
    Malformed,
    /// More than [`HEAD_BYTES_MAX`] or [`HEADERS_MAX`].
    TooLarge,
}

/// What is answered.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) content_type: &'static str,
    pub(crate) body: String,
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
    pub(crate) fn text(status: u16, body: &str) -> Self {
        Self {
            status,
            content_type: "text/plain; charset=utf-8",
            body: body.to_owned(),
        }
    }

    /// Appends the answer; to HEAD without the body.
    pub(crate) fn write(&self, is_head: bool, keep_alive: bool, out: &mut Vec<u8>) {
        let (status, reason) = (self.status, reason_phrase(self.status));
        let (kind, length) = (self.content_type, self.body.len());
        let connection = if keep_alive { "keep-alive" } else { "close" };
        let extra = match status {
            405 => "Allow: GET, HEAD\r\n",
            503 => "Retry-After: 5\r\n",
            _ => "",
        };
        let head = format!(
            "HTTP/1.1 {status} {reason}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\
             Cache-Control: no-store\r\nConnection: {connection}\r\n{extra}\r\n"
        );
        out.extend_from_slice(head.as_bytes());
        if !is_head {
            out.extend_from_slice(self.body.as_bytes());
        }
    }
}

/// Reads the request at the front of `data`; `None` while it is not complete.
pub(crate) fn parse(data: &[u8]) -> Result<Option<Request<'_>>, RequestError> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    let window = &data[..data.len().min(HEAD_BYTES_MAX)];
    let bytes = match request.parse(window) {
        Ok(httparse::Status::Complete(bytes)) => bytes,
        Ok(httparse::Status::Partial) if data.len() >= HEAD_BYTES_MAX => {
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
    let mut has_host = false;
    let mut has_body = false;
    let mut wants_close = version == 0;
    for header in request.headers.iter() {
        match header.name {
            name if name.eq_ignore_ascii_case("host") => has_host = true,
            name if name.eq_ignore_ascii_case("content-length") => {
                has_body |= header.value.trim_ascii() != b"0";
            }
            name if name.eq_ignore_ascii_case("transfer-encoding") => has_body = true,
            name if name.eq_ignore_ascii_case("connection") => {
                wants_close |= has_word(header.value, b"close");
            }
            _ => {}
        }
    }
    // RFC 9112, section 3.2.
    if version == 1 && !has_host {
        return Err(RequestError::Malformed);
    }
    // A body is never read, so what follows it cannot be found.
    let keep_alive = !wants_close && !has_body;
    Ok(Some(Request {
        method,
        path: path(target),
        keep_alive,
        bytes,
    }))
}

/// The path of a target in origin form or absolute form (RFC 9112, section 3.2), without the query.
fn path(target: &str) -> &str {
    let target = match target.split_once("://") {
        Some((scheme, rest)) if !scheme.contains('/') => {
            rest.find('/').map_or("/", |at| &rest[at..])
        }
        _ => target,
    };
    target.split_once('?').map_or(target, |(path, _)| path)
}

fn has_word(list: &[u8], word: &[u8]) -> bool {
    list.split(|byte| *byte == b',')
        .any(|item| item.trim_ascii().eq_ignore_ascii_case(word))
}

/// The longest head of a request, in bytes.
pub(crate) const HEAD_BYTES_MAX: usize = 8 * 1024;

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
            keep_alive: true,
            bytes,
        };
        assert_eq!(parsed(text), expected);
        for end in 0..bytes {
            assert_eq!(parse(&text.as_bytes()[..end]), Ok(None));
        }
    }

    #[test]
    fn the_connection_ends_where_the_next_request_cannot_be_found() {
        let closing = [
            "GET / HTTP/1.0\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: x, Close\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
        ];
        for text in closing {
            assert!(!parsed(text).keep_alive, "{text}");
        }
        assert!(parsed("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n").keep_alive);
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
            assert_eq!(path(target), expected, "{target}");
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
        let endless = format!("GET /{}", "a".repeat(HEAD_BYTES_MAX));
        assert_eq!(parse(endless.as_bytes()), Err(RequestError::TooLarge));
        let many = format!("GET / HTTP/1.1\r\n{}", "a: b\r\n".repeat(HEADERS_MAX + 1));
        assert_eq!(parse(many.as_bytes()), Err(RequestError::TooLarge));
    }
}

//! Responses as a server writes them.

use crate::fields::{is_field_value, is_token, write_field};
use crate::request::{BodyLength, write_length};

/// The head of a response to be written.
#[derive(Clone, Copy, Debug)]
pub struct ResponseHead<'a> {
    /// The status, 100 to 999.
    pub status: u16,
    /// Further headers, in their order. None may be a header of the body's framing: see `body`.
    pub headers: &'a [(&'a str, &'a str)],
    /// The body that follows. `None` sends `Content-Length: 0`, except for 1xx, 204 and 304, which have no
    /// body. To HEAD, give the length that GET would have.
    pub body: BodyLength,
    /// The value of `Date`, as [RFC 9110, section 5.6.7](https://www.rfc-editor.org/rfc/rfc9110#section-5.6.7) has it.
    pub date: Option<&'a str>,
    /// Whether to announce that the connection ends after this response.
    pub closes: bool,
}

/// The reason why a response cannot be written: the caller's fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// Not a number of three digits.
    #[error("the status {0} is not 100 to 999")]
    Status(u16),
    /// A header's name is not a token.
    #[error("the header name {0:?} has a character that a name may not have")]
    HeaderName(String),
    /// A header's value has a line end or another control.
    #[error("the value of the header {0} has a line end or another control character")]
    HeaderValue(String),
    /// `Content-Length` or `Transfer-Encoding` among the headers.
    #[error("the header {0} follows from the body and cannot be given")]
    Framing(String),
}

impl ResponseHead<'_> {
    /// Appends the head to `out`. Nothing is appended on an error. Chunks are written by
    /// [`write_chunk`](crate::request::write_chunk) and [`write_last_chunk`](crate::request::write_last_chunk).
    ///
    /// # Errors
    /// A part would break the response.
    pub fn write(&self, out: &mut Vec<u8>) -> Result<(), WriteError> {
        self.check()?;
        out.extend_from_slice(b"HTTP/1.1 ");
        out.extend_from_slice(itoa::Buffer::new().format(self.status).as_bytes());
        out.push(b' ');
        out.extend_from_slice(reason_phrase(self.status).as_bytes());
        out.extend_from_slice(b"\r\n");
        if let Some(date) = self.date {
            write_field("Date", date, out);
        }
        for (name, value) in self.headers {
            write_field(name, value, out);
        }
        // RFC 9110, section 8.6: no length in 1xx and 204.
        let may_have_body = !matches!(self.status, 100..=199 | 204);
        match self.body {
            _ if !may_have_body => {}
            BodyLength::Bytes(bytes) => write_length(bytes, out),
            BodyLength::Chunked => write_field("Transfer-Encoding", "chunked", out),
            BodyLength::None if self.status == 304 => {}
            BodyLength::None => write_length(0, out),
        }
        if self.closes {
            write_field("Connection", "close", out);
        }
        out.extend_from_slice(b"\r\n");
        Ok(())
    }

    fn check(&self) -> Result<(), WriteError> {
        if !(100..=999).contains(&self.status) {
            return Err(WriteError::Status(self.status));
        }
        let date = self.date.map(|date| ("Date", date));
        for (name, value) in self.headers.iter().copied().chain(date) {
            if !is_token(name.as_bytes()) {
                return Err(WriteError::HeaderName(name.to_owned()));
            }
            if !is_field_value(value.as_bytes()) {
                return Err(WriteError::HeaderValue(name.to_owned()));
            }
            let framing = ["content-length", "transfer-encoding"];
            if framing.iter().any(|other| name.eq_ignore_ascii_case(other)) {
                return Err(WriteError::Framing(name.to_owned()));
            }
        }
        Ok(())
    }
}

/// The words that go with a status (RFC 9110, section 15, RFC 6585); empty for one without.
#[must_use]
pub fn reason_phrase(status: u16) -> &'static str {
    REASONS
        .iter()
        .find(|(known, _)| *known == status)
        .map_or("", |(_, words)| words)
}

const REASONS: &[(u16, &str)] = &[
    (200, "OK"),
    (100, "Continue"),
    (101, "Switching Protocols"),
    (103, "Early Hints"),
    (201, "Created"),
    (202, "Accepted"),
    (203, "Non-Authoritative Information"),
    (204, "No Content"),
    (205, "Reset Content"),
    (206, "Partial Content"),
    (300, "Multiple Choices"),
    (301, "Moved Permanently"),
    (302, "Found"),
    (303, "See Other"),
    (304, "Not Modified"),
    (307, "Temporary Redirect"),
    (308, "Permanent Redirect"),
    (400, "Bad Request"),
    (401, "Unauthorized"),
    (402, "Payment Required"),
    (403, "Forbidden"),
    (404, "Not Found"),
    (405, "Method Not Allowed"),
    (406, "Not Acceptable"),
    (407, "Proxy Authentication Required"),
    (408, "Request Timeout"),
    (409, "Conflict"),
    (410, "Gone"),
    (411, "Length Required"),
    (412, "Precondition Failed"),
    (413, "Content Too Large"),
    (414, "URI Too Long"),
    (415, "Unsupported Media Type"),
    (416, "Range Not Satisfiable"),
    (417, "Expectation Failed"),
    (418, "I'm a teapot"),
    (421, "Misdirected Request"),
    (422, "Unprocessable Content"),
    (425, "Too Early"),
    (426, "Upgrade Required"),
    (428, "Precondition Required"),
    (429, "Too Many Requests"),
    (431, "Request Header Fields Too Large"),
    (500, "Internal Server Error"),
    (501, "Not Implemented"),
    (502, "Bad Gateway"),
    (503, "Service Unavailable"),
    (504, "Gateway Timeout"),
    (505, "HTTP Version Not Supported"),
    (511, "Network Authentication Required"),
];

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: ResponseHead<'_> = ResponseHead {
        status: 200,
        headers: &[],
        body: BodyLength::None,
        date: None,
        closes: false,
    };

    fn written(head: &ResponseHead<'_>) -> Result<String, WriteError> {
        let mut out = Vec::new();
        let result = head.write(&mut out);
        assert!(result.is_ok() || out.is_empty());
        result.map(|()| String::from_utf8(out).unwrap())
    }

    #[test]
    fn heads() {
        let head = ResponseHead {
            headers: &[("A", "b")],
            body: BodyLength::Bytes(2),
            date: Some("Sun, 06 Nov 1994 08:49:37 GMT"),
            closes: true,
            ..PLAIN
        };
        assert_eq!(
            written(&head).unwrap(),
            "HTTP/1.1 200 OK\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\nA: b\r\nContent-Length: 2\r\n\
             Connection: close\r\n\r\n"
        );
        for (status, body, expected) in [
            (200, BodyLength::None, "200 OK\r\nContent-Length: 0\r\n"),
            (100, BodyLength::None, "100 Continue\r\n"),
            (204, BodyLength::Bytes(3), "204 No Content\r\n"),
            (304, BodyLength::None, "304 Not Modified\r\n"),
            (
                304,
                BodyLength::Bytes(7),
                "304 Not Modified\r\nContent-Length: 7\r\n",
            ),
            (
                599,
                BodyLength::Chunked,
                "599 \r\nTransfer-Encoding: chunked\r\n",
            ),
        ] {
            let head = ResponseHead {
                status,
                body,
                ..PLAIN
            };
            assert_eq!(written(&head).unwrap(), format!("HTTP/1.1 {expected}\r\n"));
        }
    }

    #[test]
    fn nothing_can_break_out_of_its_line() {
        for status in [0, 99, 1000] {
            let error = written(&ResponseHead { status, ..PLAIN }).unwrap_err();
            assert_eq!(error, WriteError::Status(status));
        }
        for header in [
            ("a b", "v"),
            ("a", "x\r\ny: z"),
            ("content-length", "5"),
            ("Transfer-Encoding", "chunked"),
        ] {
            let headers = &[header];
            written(&ResponseHead { headers, ..PLAIN }).unwrap_err();
        }
        let date = Some("x\n");
        written(&ResponseHead { date, ..PLAIN }).unwrap_err();
    }
}

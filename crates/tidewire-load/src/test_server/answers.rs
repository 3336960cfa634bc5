//! Responses of a test server, encoded once.

use super::Conduct;
use std::sync::Arc;
use tidewire_http::http2::write_response;
use tidewire_http::request::{write_chunk, write_last_chunk};
use tidewire_http::server::{Request, ResponseHead};
use tidewire_http::{BodyLength, Version};

/// An encoded response.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub(super) status: u16,
    bytes: Vec<u8>,
    head_bytes: usize,
}

impl Answer {
    /// The bytes on the wire; of a response to HEAD, only the head.
    pub(super) fn bytes(&self, is_head: bool) -> &[u8] {
        if is_head {
            &self.bytes[..self.head_bytes]
        } else {
            &self.bytes
        }
    }
}

/// The fate of the connection after the response, as the request defines it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// HTTP/1.1: it stays open, which is the default.
    Open,
    /// The client asks to close it, and the response announces the close.
    Close,
    /// HTTP/1.0: it stays open, and the response must announce that.
    OpenHttp10,
    /// HTTP/1.0: it is closed, which is the default.
    CloseHttp10,
}

impl Ending {
    pub(super) fn of(request: &Request<'_>) -> Self {
        match (request.version, request.keeps_alive) {
            (Version::Http11, true) => Self::Open,
            (Version::Http11, false) => Self::Close,
            (Version::Http10, true) => Self::OpenHttp10,
            (Version::Http10, false) => Self::CloseHttp10,
        }
    }

    pub(super) fn closes(self) -> bool {
        matches!(self, Self::Close | Self::CloseHttp10)
    }

    fn is_http_10(self) -> bool {
        matches!(self, Self::OpenHttp10 | Self::CloseHttp10)
    }
}

/// A response of HTTP/2.
#[derive(Debug)]
pub(super) struct StreamAnswer {
    pub(super) status: u16,
    pub(super) block: Vec<u8>,
    pub(super) body: Arc<[u8]>,
}

/// All responses to requests for an ordinary path.
#[derive(Debug)]
pub(super) struct Answers {
    good: [Answer; 4],
    bad: [Answer; 4],
    /// Those of HTTP/2: bad and good.
    streams: [StreamAnswer; 2],
}

impl Answers {
    pub(super) fn new(conduct: &Conduct) -> Self {
        let mut body = b"OK".to_vec();
        body.resize(conduct.body_bytes, b'.');
        let encode = |status, body: &[u8]| {
            ENDINGS.map(|ending| encode(status, TEXT, body, conduct.chunked, ending))
        };
        Self {
            good: encode(200, &body),
            bad: encode(conduct.error_status, b"ERROR"),
            streams: [
                encode_stream(conduct.error_status, TEXT, b"ERROR", conduct.chunked),
                encode_stream(200, TEXT, &body, conduct.chunked),
            ],
        }
    }

    pub(super) fn of_stream(&self, is_good: bool) -> &StreamAnswer {
        &self.streams[usize::from(is_good)]
    }

    #[inline]
    pub(super) fn get(&self, is_good: bool, ending: Ending) -> &Answer {
        let answers = if is_good { &self.good } else { &self.bad };
        &answers[ending as usize]
    }
}

/// A response with JSON, created on request.
pub(super) fn json(body: &[u8], ending: Ending) -> Answer {
    encode(200, JSON, body, false, ending)
}

/// A response of HTTP/2 with JSON, created on request.
pub(super) fn stream_json(body: &[u8]) -> StreamAnswer {
    encode_stream(200, JSON, body, false)
}

/// Chunks are frames here, and only the length of the body is left out.
fn encode_stream(status: u16, media_type: &str, body: &[u8], is_chunked: bool) -> StreamAnswer {
    let has_body = !matches!(status, 204 | 304);
    let length = body.len().to_string();
    let headers = [("content-type", media_type), ("content-length", &length)];
    let says_length = has_body && !is_chunked;
    let mut block = Vec::new();
    write_response(status, &headers[..1 + usize::from(says_length)], &mut block);
    StreamAnswer {
        status,
        block,
        body: if has_body { body.into() } else { Arc::new([]) },
    }
}

fn encode(status: u16, media_type: &str, body: &[u8], is_chunked: bool, ending: Ending) -> Answer {
    // RFC 9112, section 6.1: no chunks to a client that did not declare support for them.
    let is_chunked = is_chunked && !ending.is_http_10();
    let has_body = !matches!(status, 204 | 304);
    let keep_alive = [("Connection", "keep-alive"), ("Content-Type", media_type)];
    let head = ResponseHead {
        status,
        headers: if ending == Ending::OpenHttp10 {
            &keep_alive
        } else {
            &keep_alive[1..]
        },
        body: match (has_body, is_chunked) {
            (false, _) => BodyLength::None,
            (true, true) => BodyLength::Chunked,
            (true, false) => BodyLength::Bytes(body.len() as u64),
        },
        date: None,
        closes: ending == Ending::Close,
    };
    let mut bytes = Vec::new();
    // This module defines status and headers, so they are always valid.
    if head.write(&mut bytes).is_err() {
        return Answer::default();
    }
    let head_bytes = bytes.len();
    if has_body && is_chunked {
        for chunk in body.chunks(CHUNK_BYTES) {
            write_chunk(chunk, &mut bytes);
        }
        write_last_chunk(&mut bytes);
    } else if has_body {
        bytes.extend_from_slice(body);
    }
    Answer {
        status,
        bytes,
        head_bytes,
    }
}

/// In the order in which they are declared.
const ENDINGS: [Ending; 4] = [
    Ending::Open,
    Ending::Close,
    Ending::OpenHttp10,
    Ending::CloseHttp10,
];

const TEXT: &str = "text/plain";
const JSON: &str = "application/json";
const CHUNK_BYTES: usize = 16 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn text(conduct: &Conduct, is_good: bool, ending: Ending) -> String {
        let answers = Answers::new(conduct);
        String::from_utf8(answers.get(is_good, ending).bytes(false).to_vec()).unwrap()
    }

    #[test]
    fn answers_say_what_the_client_has_to_know() {
        let conduct = Conduct::default();
        let plain = "Content-Type: text/plain\r\nContent-Length: 2\r\n";
        for (ending, before, after) in [
            (Ending::Open, "", ""),
            (Ending::Close, "", "Connection: close\r\n"),
            (Ending::OpenHttp10, "Connection: keep-alive\r\n", ""),
            (Ending::CloseHttp10, "", ""),
        ] {
            let expected = format!("HTTP/1.1 200 OK\r\n{before}{plain}{after}\r\nOK");
            assert_eq!(text(&conduct, true, ending), expected);
        }
        let bad = text(&conduct, false, Ending::Open);
        assert!(bad.starts_with("HTTP/1.1 500 Internal Server Error\r\n"));
        assert!(bad.ends_with("\r\n\r\nERROR"));
        let answers = Answers::new(&conduct);
        let head = answers.get(true, Ending::Open).bytes(true);
        assert!(head.ends_with(b"Content-Length: 2\r\n\r\n"));
    }

    #[test]
    fn bodies_have_the_size_that_is_asked_for() {
        for (body_bytes, end) in [(0, "\r\n\r\n"), (1, "\r\n\r\nO"), (5, "\r\n\r\nOK...")] {
            let conduct = Conduct {
                body_bytes,
                ..Conduct::default()
            };
            let answer = text(&conduct, true, Ending::Open);
            assert!(answer.ends_with(end), "{answer}");
        }
        let conduct = Conduct {
            body_bytes: CHUNK_BYTES + 1,
            chunked: true,
            ..Conduct::default()
        };
        let answer = text(&conduct, true, Ending::Open);
        assert!(answer.contains("\r\n\r\n4000\r\nOK"), "{}", &answer[..100]);
        assert!(answer.ends_with("\r\n1\r\n.\r\n0\r\n\r\n"));
        let old = text(&conduct, true, Ending::CloseHttp10);
        assert!(old.contains("Content-Length: 16385\r\n"));
    }

    #[test]
    fn some_errors_have_no_body() {
        let conduct = Conduct {
            error_status: 304,
            ..Conduct::default()
        };
        assert!(text(&conduct, false, Ending::Open).ends_with("\r\n\r\n"));
    }
}

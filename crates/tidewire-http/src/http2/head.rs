//! The head of a message: a decoded block, as lines like those of HTTP/1.1.

use super::error::{Fault, StreamFault};
use super::hpack::{Decoder, Scratch};
use crate::fields::{ContentLength, Fields, is_token_byte, write_field};
use memchr::memchr3;

/// The part of a message that a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Request,
    Response,
    Trailers,
}

/// Room for the header block that is being read, for all connections of a thread.
#[derive(Clone, Debug, Default)]
pub struct Heads {
    scratch: Scratch,
    parsed: Parsed,
    lines: Vec<u8>,
}

/// The limits of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a header block, and those of the fields that it stands for, each counted with 32 more; 65,535 by
    /// default.
    pub head_bytes_max: usize,
    /// Streams that the peer may have open at a time, on a server; 128 by default.
    pub streams_max: u32,
    /// Bytes of a body that the peer may send before its receiver has read them, on each stream; 1 MiB by default.
    pub stream_window: u32,
    /// The same on the connection; 16 MiB by default. At least 65,535.
    pub connection_window: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            head_bytes_max: 65_535,
            streams_max: 128,
            stream_window: 1 << 20,
            connection_window: 16 << 20,
        }
    }
}

/// The facts of a head.
#[derive(Clone, Debug, Default)]
pub(super) struct Parsed {
    pub(super) status: u16,
    pub(super) length: ContentLength,
    pub(super) sets_cookies: bool,
    pub(super) fault: Option<StreamFault>,
    /// The first line and the fields: `HTTP/2 200` or `GET /path`.
    pub(super) text: Vec<u8>,
}

impl Parsed {
    pub(super) fn fields(&self) -> Fields<'_> {
        Fields::of(&self.text)
    }

    /// The method and the target of a request.
    pub(super) fn request_line(&self) -> (&str, &str) {
        let line = self.text.split(|byte| *byte == b'\r').next();
        let line = std::str::from_utf8(line.unwrap_or_default()).unwrap_or_default();
        line.split_once(' ').unwrap_or((line, ""))
    }
}

/// The last head of a connection, which is not read again while blocks are equal.
#[derive(Debug, Default)]
pub(super) struct Memory {
    block: Vec<u8>,
    kind: Option<Kind>,
    changes: u64,
    parsed: Parsed,
}

impl Memory {
    /// The facts of a block. Every block must be read, because it may change the decoder's table.
    #[inline]
    pub(super) fn read<'a>(
        &'a mut self,
        decoder: &mut Decoder,
        heads: &'a mut Heads,
        (kind, block): (Kind, &[u8]),
        bytes_max: usize,
    ) -> Result<&'a Parsed, Fault> {
        let is_known =
            self.kind == Some(kind) && self.changes == decoder.changes() && self.block == block;
        if is_known {
            return Ok(&self.parsed);
        }
        let before = decoder.changes();
        parse(decoder, heads, (kind, block), bytes_max)?;
        self.kind = None;
        let bytes = block.len() + heads.parsed.text.len();
        if before == decoder.changes() && bytes <= REMEMBERED_BYTES_MAX {
            self.kind = Some(kind);
            self.changes = before;
            self.block.clear();
            self.block.extend_from_slice(block);
            self.parsed.clone_from(&heads.parsed);
        }
        Ok(&heads.parsed)
    }
}

fn parse(
    decoder: &mut Decoder,
    heads: &mut Heads,
    (kind, block): (Kind, &[u8]),
    bytes_max: usize,
) -> Result<(), Fault> {
    let mut reading = Reading {
        kind,
        parsed: &mut heads.parsed,
        lines: &mut heads.lines,
        pseudo: Pseudo::default(),
        is_past_pseudo: false,
    };
    reading.begin();
    decoder.decode(block, bytes_max, &mut heads.scratch, |name, value| {
        reading.add(name, value);
    })?;
    reading.end();
    Ok(())
}

/// A head while its block is decoded.
struct Reading<'a> {
    kind: Kind,
    parsed: &'a mut Parsed,
    lines: &'a mut Vec<u8>,
    pseudo: Pseudo,
    is_past_pseudo: bool,
}

/// The pseudo-headers of a request.
#[derive(Default)]
struct Pseudo {
    method: Vec<u8>,
    path: Vec<u8>,
    authority: Vec<u8>,
    has_scheme: bool,
}

impl Reading<'_> {
    fn begin(&mut self) {
        self.lines.clear();
        self.parsed.status = 0;
        self.parsed.length = ContentLength::Absent;
        self.parsed.sets_cookies = false;
        self.parsed.fault = None;
        self.parsed.text.clear();
    }

    fn add(&mut self, name: &[u8], value: &[u8]) {
        let is_bad = memchr3(0, b'\r', b'\n', value).is_some()
            || match name.split_first() {
                Some((b':', name)) => self.is_past_pseudo || !self.add_pseudo(name, value),
                _ => !self.add_field(name, value),
            };
        if is_bad {
            self.parsed.fault = Some(StreamFault::BadHeader);
        }
    }

    /// A pseudo-header (RFC 9113, section 8.3); false if it may not be here.
    fn add_pseudo(&mut self, name: &[u8], value: &[u8]) -> bool {
        let place = match (self.kind, name) {
            (Kind::Response, b"status") => {
                let is_first = self.parsed.status == 0;
                self.parsed.status = status(value);
                return is_first && self.parsed.status != 0;
            }
            (Kind::Request, b"scheme") => {
                return !value.is_empty() && !std::mem::replace(&mut self.pseudo.has_scheme, true);
            }
            (Kind::Request, b"method") => &mut self.pseudo.method,
            (Kind::Request, b"path") => &mut self.pseudo.path,
            (Kind::Request, b"authority") => &mut self.pseudo.authority,
            _ => return false,
        };
        let is_first = place.is_empty();
        place.extend_from_slice(value);
        is_first && !value.is_empty() && value.iter().all(u8::is_ascii_graphic)
    }

    /// A field (RFC 9113, section 8.2); false if it is not allowed.
    fn add_field(&mut self, name: &[u8], value: &[u8]) -> bool {
        self.is_past_pseudo = true;
        let is_name_byte = |byte: &u8| is_token_byte(*byte) && !byte.is_ascii_uppercase();
        if name.is_empty() || !name.iter().all(is_name_byte) {
            return false;
        }
        if is_of_http1(name, value) {
            return false;
        }
        match name {
            b"content-length" => self.parsed.length.add(value),
            b"set-cookie" => self.parsed.sets_cookies = true,
            _ => {}
        }
        write_field(name, value, self.lines);
        true
    }

    fn end(&mut self) {
        let text = &mut self.parsed.text;
        let pseudo = &self.pseudo;
        let is_whole = match self.kind {
            Kind::Trailers => true,
            Kind::Response => {
                text.extend_from_slice(b"HTTP/2 ");
                text.extend_from_slice(itoa::Buffer::new().format(self.parsed.status).as_bytes());
                self.parsed.status != 0
            }
            Kind::Request => {
                let is_connect = pseudo.method == b"CONNECT";
                let target = if is_connect {
                    &pseudo.authority
                } else {
                    &pseudo.path
                };
                text.extend_from_slice(&pseudo.method);
                text.push(b' ');
                text.extend_from_slice(target);
                let is_whole = !pseudo.method.is_empty()
                    && !target.is_empty()
                    && (is_connect || target[0] == b'/' || *target == b"*");
                // CONNECT has neither a path nor a scheme (RFC 9113, section 8.5).
                is_whole && pseudo.has_scheme != is_connect && is_connect == pseudo.path.is_empty()
            }
        };
        text.extend_from_slice(b"\r\n");
        if !pseudo.authority.is_empty() {
            write_field("host", &pseudo.authority, text);
        }
        text.extend_from_slice(self.lines);
        let is_length = matches!(
            self.parsed.length,
            ContentLength::Absent | ContentLength::Bytes(_)
        );
        if !is_whole {
            self.parsed.fault = Some(StreamFault::BadHeader);
        } else if !is_length {
            self.parsed
                .fault
                .get_or_insert(StreamFault::BadContentLength);
        }
    }
}

/// Whether a field belongs to a connection of HTTP/1.1, so that HTTP/2 does not allow it (RFC 9113, section 8.2.2). The
/// name is in lower case.
pub(super) fn is_of_http1(name: &[u8], value: &[u8]) -> bool {
    match name {
        b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding" | b"upgrade" => {
            true
        }
        b"te" => value != b"trailers",
        _ => false,
    }
}

/// A status of three digits, or 0.
fn status(value: &[u8]) -> u16 {
    match value {
        // There are no upgrades (RFC 9113, section 8.6).
        b"101" => 0,
        [b'1'..=b'9', b'0'..=b'9', b'0'..=b'9'] => value
            .iter()
            .fold(0, |status, digit| status * 10 + u16::from(digit - b'0')),
        _ => 0,
    }
}

/// Larger heads and blocks are read each time.
const REMEMBERED_BYTES_MAX: usize = 2048;

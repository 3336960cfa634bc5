//! Responses as a client reads them: where each ends, by RFC 9112, section 6.3, and what breaks a rule.

mod error;
mod head;

pub use error::ResponseError;
pub use head::{Framing, Head};

use crate::chunked::{Chunks, Piece, Rules};
use crate::heads::{EndSearch, Memory};
use head::Facts;

/// The effect of the request on the framing of its response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Expected {
    /// Any method but those below.
    #[default]
    Ordinary,
    /// HEAD: no body follows, whatever the head states.
    Head,
    /// CONNECT: a 2xx makes the connection a tunnel.
    Connect,
    /// The request asked for an upgrade: 101 makes the connection a tunnel.
    Upgrade,
}

/// The limits of a response. A body has no limit, because the reader stores no byte of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the status line and all header lines, with the empty line; 65,535 by default. The caller keeps a head
    /// until it is whole. The number of header lines is limited by [`HEADERS_MAX`].
    pub head_bytes_max: usize,
    /// Bytes of all trailers of a chunked body; 16,384 by default.
    pub trailer_bytes_max: usize,
    /// Interim (1xx) responses before a final one; 100 by default.
    pub interim_max: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            head_bytes_max: 65_535,
            trailer_bytes_max: 16_384,
            interim_max: 100,
        }
    }
}

/// Shared state of the readers of many connections: limits, and the last head, which is not parsed again while heads
/// are equal. One per thread.
#[derive(Clone, Debug, Default)]
pub struct ResponseHeads {
    limits: Limits,
    last: Memory<Facts>,
}

impl ResponseHeads {
    /// Nothing remembered yet.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            last: Memory::default(),
        }
    }
}

/// The reader of one connection's responses. Small, and it allocates nothing.
#[derive(Clone, Debug, Default)]
pub struct ResponseReader {
    place: Place,
    search: EndSearch,
    interims: u32,
    stray_bytes: u32,
    response: Response,
}

/// The result of one step.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// Bytes that the caller must not pass again.
    pub consumed: usize,
    /// The event of these bytes.
    pub event: Event<'a>,
}

/// An event of a [`ResponseReader`]. A response is `Head`, any number of `Body`, `Done`; an interim response
/// precedes its head.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// Call again when more bytes have arrived, with the unconsumed bytes at their front.
    More,
    /// A whole 1xx response that is not the end of an exchange. The request stays open.
    Interim {
        /// Its status.
        status: u16,
    },
    /// The head of the final response.
    Head(Head<'a>),
    /// The next bytes of its body, without the framing of chunks.
    Body(&'a [u8]),
    /// The response is whole. The next call reads the next one.
    Done(Response),
}

/// A whole response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Response {
    /// The status of the final response.
    pub status: u16,
    /// Bytes of its head and of the interim responses before it.
    pub head_bytes: u64,
    /// Bytes of its body: without the framing of chunks, before any content decoding.
    pub body_bytes: u64,
    /// All bytes of it on the connection.
    pub wire_bytes: u64,
    /// Whether another request may follow on the connection (RFC 9112, section 9.3).
    pub keeps_alive: bool,
    /// The connection is a tunnel or another protocol now: the bytes that follow are not HTTP.
    pub is_tunnel: bool,
    /// The head had both `Transfer-Encoding` and `Content-Length`, or a transfer coding in HTTP/1.0: programs could
    /// disagree about its end (RFC 9112, sections 6.1 and 11.2). The connection must be closed.
    pub is_suspect: bool,
}

#[derive(Clone, Copy, Debug, Default)]
enum Place {
    #[default]
    Head,
    /// Bytes that are left.
    Length(u64),
    Chunked(Chunks),
    UntilClose,
    Failed(ResponseError),
}

impl ResponseReader {
    /// A reader at the beginning of a connection.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads from the front of `data`, which begins where the bytes consumed so far end. `expected` belongs
    /// to the oldest request without a whole response. The caller must not read while no response is due:
    /// [`stray_line_end_bytes`] shows whether bytes that arrive then are harmless.
    ///
    /// # Errors
    /// The response breaks a rule or a limit. Where the next one begins is not known: the connection must be closed.
    #[inline]
    pub fn read<'a>(
        &mut self,
        heads: &mut ResponseHeads,
        data: &'a [u8],
        expected: Expected,
    ) -> Result<Step<'a>, ResponseError> {
        let step = match &mut self.place {
            Place::Head => self.read_head(heads, data, expected),
            Place::Length(0) => return Ok(self.done()),
            Place::Length(left) => {
                let length = usize::try_from(*left).map_or(data.len(), |left| left.min(data.len()));
                *left -= length as u64;
                Ok(self.body(length, &data[..length]))
            }
            Place::Chunked(chunks) => match chunks.read(data, heads.limits.trailer_bytes_max) {
                Ok((consumed, Piece::Data(bytes))) => Ok(self.body(consumed, bytes)),
                Ok((consumed, Piece::More)) => Ok(self.body(consumed, &[])),
                Ok((consumed, Piece::End)) => {
                    self.response.wire_bytes += consumed as u64;
                    return Ok(Step {
                        consumed,
                        ..self.done()
                    });
                }
                Err(error) => Err(error.into()),
            },
            Place::UntilClose => Ok(self.body(data.len(), data)),
            Place::Failed(error) => Err(*error),
        };
        if let Err(error) = step {
            self.place = Place::Failed(error);
        }
        step
    }

    /// The connection has ended. Gives the response that its end completes, if there is one. `is_clean` is whether it
    /// ended in order: by FIN without TLS, by `close_notify` with TLS (RFC 9112, section 9.8).
    ///
    /// # Errors
    /// The response is cut off.
    pub fn finish(&mut self, is_clean: bool) -> Result<Option<Response>, ResponseError> {
        match self.place {
            Place::Head if self.is_between() => Ok(None),
            Place::Head => Err(ResponseError::TruncatedHead),
            // The caller has not asked for the end of a response that is whole.
            Place::Length(0) => Ok(Some(self.take_response())),
            Place::Length(_) => Err(ResponseError::TruncatedBody),
            Place::Chunked(_) => Err(ResponseError::TruncatedChunks),
            Place::UntilClose if is_clean => Ok(Some(self.take_response())),
            Place::UntilClose => Err(ResponseError::UncleanClose),
            Place::Failed(error) => Err(error),
        }
    }

    /// Whether nothing of a response has been read since the last one was whole.
    #[must_use]
    pub fn is_between(&self) -> bool {
        matches!(self.place, Place::Head)
            && !self.search.has_begun()
            && self.response.head_bytes == 0
    }

    #[inline]
    fn read_head<'a>(
        &mut self,
        heads: &mut ResponseHeads,
        data: &'a [u8],
        expected: Expected,
    ) -> Result<Step<'a>, ResponseError> {
        let stray = self.skip_stray(data)?;
        let data = &data[stray..];
        let known = match heads.last.recall(data) {
            Some(known) => Some(known),
            None => self.parse_head(heads, data)?,
        };
        let Some((length, facts)) = known else {
            self.response.wire_bytes += stray as u64;
            return Ok(Step {
                consumed: stray,
                event: Event::More,
            });
        };
        let consumed = stray + length;
        let framing = facts.framing(expected)?;
        self.search = EndSearch::default();
        self.response.head_bytes += length as u64;
        self.response.wire_bytes += consumed as u64;
        if facts.is_interim() {
            self.interims += 1;
            if self.interims > heads.limits.interim_max {
                return Err(ResponseError::TooManyInterims);
            }
            let event = Event::Interim {
                status: facts.status,
            };
            return Ok(Step { consumed, event });
        }
        self.response.status = facts.status;
        self.response.is_suspect = facts.is_suspect();
        self.response.keeps_alive = facts.keeps_alive() && framing != Framing::UntilClose;
        self.response.is_tunnel = framing == Framing::Tunnel;
        self.place = match framing {
            Framing::None | Framing::Tunnel => Place::Length(0),
            Framing::Length(bytes) => Place::Length(bytes),
            Framing::Chunked => Place::Chunked(Chunks::new(Rules::Lenient)),
            Framing::UntilClose => Place::UntilClose,
        };
        Ok(Step {
            consumed,
            event: Event::Head(Head::new(&data[..length], facts, framing)),
        })
    }

    /// Bytes of empty lines before the head.
    fn skip_stray(&mut self, data: &[u8]) -> Result<usize, ResponseError> {
        if self.search.has_begun() || !matches!(data.first(), Some(b'\r' | b'\n')) {
            return Ok(0);
        }
        let stray = stray_line_end_bytes(data);
        self.stray_bytes = self.stray_bytes.saturating_add(stray as u32);
        if self.stray_bytes > STRAY_BYTES_MAX {
            return Err(ResponseError::BadStatusLine);
        }
        Ok(stray)
    }

    /// The length of the head and its facts; `None` if it is not whole.
    fn parse_head(
        &mut self,
        heads: &mut ResponseHeads,
        data: &[u8],
    ) -> Result<Option<(usize, Facts)>, ResponseError> {
        head::check_start(data)?;
        let window = &data[..data.len().min(heads.limits.head_bytes_max)];
        match self.search.find(window) {
            Some(length) => {
                let facts = head::parse(&data[..length])?;
                heads.last.remember(&data[..length], facts);
                Ok(Some((length, facts)))
            }
            None if data.len() >= heads.limits.head_bytes_max => Err(ResponseError::HeadTooLong),
            None => Ok(None),
        }
    }

    fn body<'a>(&mut self, consumed: usize, bytes: &'a [u8]) -> Step<'a> {
        self.response.wire_bytes += consumed as u64;
        self.response.body_bytes += bytes.len() as u64;
        let event = if bytes.is_empty() {
            Event::More
        } else {
            Event::Body(bytes)
        };
        Step { consumed, event }
    }

    fn done<'a>(&mut self) -> Step<'a> {
        Step {
            consumed: 0,
            event: Event::Done(self.take_response()),
        }
    }

    fn take_response(&mut self) -> Response {
        std::mem::take(self).response
    }
}

/// Reads the head of a final response from `data`, which begins with the first byte of a connection, for a client that
/// reads no body and goes on with another protocol. Gives the bytes before and of the head, and the head; `None` if it is
/// not whole. Interim responses are skipped: at most `interim_max`, and `head_bytes_max` for all of them.
///
/// # Errors
/// The response breaks a rule or a limit. The fields of its head about a body are not checked.
pub fn read_final_head<'a>(
    data: &'a [u8],
    limits: &Limits,
) -> Result<Option<(usize, Head<'a>)>, ResponseError> {
    let mut consumed = 0;
    for interims in 0.. {
        if interims > limits.interim_max || consumed > limits.head_bytes_max {
            return Err(ResponseError::TooManyInterims);
        }
        let rest = &data[consumed..];
        head::check_start(rest)?;
        let window = &rest[..rest.len().min(limits.head_bytes_max)];
        let Some(length) = EndSearch::default().find(window) else {
            let is_full = rest.len() >= limits.head_bytes_max;
            return if is_full {
                Err(ResponseError::HeadTooLong)
            } else {
                Ok(None)
            };
        };
        let facts = head::parse(&rest[..length])?;
        consumed += length;
        if !facts.is_interim() {
            let framing = facts.framing(Expected::Upgrade);
            let framing = framing.unwrap_or(Framing::UntilClose);
            return Ok(Some((consumed, Head::new(&rest[..length], facts, framing))));
        }
    }
    Ok(None)
}

/// The number of CR and LF bytes at the front of `data`. Some servers send an empty line after a body; between two responses
/// it means nothing (RFC 9112, section 2.2). Any other byte that arrives while no response is due is a fault of the
/// server.
#[must_use]
pub fn stray_line_end_bytes(data: &[u8]) -> usize {
    let is_line_end = |byte: &&u8| matches!(byte, b'\r' | b'\n');
    data.iter().take_while(is_line_end).count()
}

/// Header lines that a response may have.
pub const HEADERS_MAX: usize = 128;

/// Bytes of empty lines before a status line.
const STRAY_BYTES_MAX: u32 = 8;

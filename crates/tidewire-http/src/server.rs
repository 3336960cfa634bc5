//! The server side: requests as a server reads them, responses as it writes them.
//!
//! Where HTTP leaves room, the strict reading is used: a request that a proxy in front could understand
//! differently is refused.

mod error;
mod head;
mod write;

pub use error::RequestError;
pub use head::Request;
pub use write::{ResponseHead, WriteError, reason_phrase};

use crate::chunked::{Chunks, Piece, Rules};
use crate::heads::{EndSearch, Memory};
use crate::request::BodyLength;
use crate::response::stray_line_end_bytes;
use head::Facts;

/// The limits of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the request line and all header lines, with the empty line; 16,384 by default. The caller keeps a head
    /// until it is whole. The number of header lines is limited by [`HEADERS_MAX`].
    pub head_bytes_max: usize,
    /// Bytes of the request line; 8,192 by default.
    pub request_line_bytes_max: usize,
    /// Bytes of a body, without the framing of chunks; 1 MiB by default.
    pub body_bytes_max: u64,
    /// Bytes of all trailers of a chunked body; 4,096 by default.
    pub trailer_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            head_bytes_max: 16_384,
            request_line_bytes_max: 8192,
            body_bytes_max: 1 << 20,
            trailer_bytes_max: 4096,
        }
    }
}

impl Limits {
    /// The bytes that a head may fill, if they can begin with one.
    fn window<'a>(&self, data: &'a [u8]) -> Result<&'a [u8], RequestError> {
        head::check_method(data)?;
        let line_bytes_max = self.request_line_bytes_max.min(self.head_bytes_max);
        if data.len() >= line_bytes_max && memchr::memchr(b'\n', &data[..line_bytes_max]).is_none()
        {
            return Err(RequestError::TargetTooLong);
        }
        Ok(&data[..data.len().min(self.head_bytes_max)])
    }
}

/// Shared state of the readers of many connections: limits, and the last head, which is not parsed again while heads
/// are equal. One per thread.
#[derive(Clone, Debug, Default)]
pub struct RequestHeads {
    limits: Limits,
    last: Memory<Facts>,
}

impl RequestHeads {
    /// Nothing remembered yet.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            last: Memory::default(),
        }
    }
}

/// Reads the head at the front of `data`, which begins with the first byte of a connection, for a request after which
/// the connection is no HTTP any more. Gives the bytes before and of the head, and the request; `None` if it is not whole.
/// It reads a whole head as [`RequestReader::read`] does, and refuses a part of one as soon as it cannot become one. Gives
/// the name and the value of each header of a whole head to `visit`, which saves the caller a search for those it needs.
///
/// # Errors
/// The head breaks a rule or a limit. Of the body, only the fields of the head are checked.
#[inline]
pub fn read_head<'a>(
    data: &'a [u8],
    limits: &Limits,
    visit: impl FnMut(&'a str, &'a [u8]),
) -> Result<Option<(usize, Request<'a>)>, RequestError> {
    let stray = match data.first() {
        Some(b'\r' | b'\n') => stray_line_end_bytes(data),
        _ => 0,
    };
    if stray > STRAY_BYTES_MAX as usize {
        return Err(RequestError::BadRequestLine);
    }
    let data = &data[stray..];
    let window = limits.window(data)?;
    match head::parse_front(window, visit)? {
        Some((length, facts)) => {
            let request = Request::new(&data[..length], facts);
            Ok(Some((stray + length, request)))
        }
        None if data.len() >= limits.head_bytes_max => Err(RequestError::HeadTooLong),
        None => Ok(None),
    }
}

/// The reader of one connection's requests. Small, and it allocates nothing. Pipelined requests are read one after the
/// other.
#[derive(Clone, Debug, Default)]
pub struct RequestReader {
    place: Place,
    search: EndSearch,
    stray_bytes: u32,
    received: Received,
}

/// The result of one step.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// Bytes that the caller must not pass again.
    pub consumed: usize,
    /// The event of these bytes.
    pub event: Event<'a>,
}

/// An event of a [`RequestReader`]. A request is `Head`, any number of `Body`, `Done`.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// Call again when more bytes have arrived, with the unconsumed bytes at their front.
    More,
    /// The head of a request.
    Head(Request<'a>),
    /// The next bytes of its body, without the framing of chunks.
    Body(&'a [u8]),
    /// The request is whole. The next call reads the next one.
    Done(Received),
}

/// The size of a whole request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Bytes of its head.
    pub head_bytes: u64,
    /// Bytes of its body, without the framing of chunks.
    pub body_bytes: u64,
    /// All bytes of it on the connection.
    pub wire_bytes: u64,
}

#[derive(Clone, Copy, Debug, Default)]
enum Place {
    #[default]
    Head,
    /// Bytes that are left.
    Length(u64),
    Chunked(Chunks),
    Failed(RequestError),
}

impl RequestReader {
    /// A reader at the beginning of a connection.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads from the front of `data`, which begins where the bytes consumed so far end.
    ///
    /// # Errors
    /// The request breaks a rule or a limit. Answer with [`RequestError::status`], then close: where the next request
    /// begins is not known.
    #[inline]
    pub fn read<'a>(
        &mut self,
        heads: &mut RequestHeads,
        data: &'a [u8],
    ) -> Result<Step<'a>, RequestError> {
        let step = match &mut self.place {
            Place::Head => self.read_head(heads, data),
            Place::Length(0) => return Ok(self.done(0)),
            Place::Length(left) => {
                let length = usize::try_from(*left).map_or(data.len(), |left| left.min(data.len()));
                *left -= length as u64;
                Ok(self.body(length, &data[..length]))
            }
            Place::Chunked(chunks) => match chunks.read(data, heads.limits.trailer_bytes_max) {
                Ok((consumed, Piece::Data(bytes))) => {
                    let body_bytes = self.received.body_bytes + bytes.len() as u64;
                    if body_bytes > heads.limits.body_bytes_max {
                        Err(RequestError::BodyTooLarge)
                    } else {
                        Ok(self.body(consumed, bytes))
                    }
                }
                Ok((consumed, Piece::More)) => Ok(self.body(consumed, &[])),
                Ok((consumed, Piece::End)) => return Ok(self.done(consumed)),
                Err(error) => Err(error.into()),
            },
            Place::Failed(error) => Err(*error),
        };
        if let Err(error) = step {
            self.place = Place::Failed(error);
        }
        step
    }

    /// The peer has ended its side.
    ///
    /// # Errors
    /// A request is cut off.
    pub fn finish(&self) -> Result<(), RequestError> {
        match self.place {
            Place::Head if self.is_between() => Ok(()),
            Place::Head => Err(RequestError::TruncatedHead),
            Place::Length(0) => Ok(()),
            Place::Length(_) | Place::Chunked(_) => Err(RequestError::TruncatedBody),
            Place::Failed(error) => Err(error),
        }
    }

    /// Whether nothing of a request has been read since the last one was whole.
    #[must_use]
    pub fn is_between(&self) -> bool {
        matches!(self.place, Place::Head) && !self.search.has_begun()
    }

    #[inline]
    fn read_head<'a>(
        &mut self,
        heads: &mut RequestHeads,
        data: &'a [u8],
    ) -> Result<Step<'a>, RequestError> {
        let stray = self.skip_stray(data)?;
        let data = &data[stray..];
        let known = match heads.last.recall(data) {
            Some(known) => Some(known),
            None => self.parse_head(heads, data)?,
        };
        let Some((length, facts)) = known else {
            return Ok(self.body(stray, &[]));
        };
        self.search = EndSearch::default();
        self.received.head_bytes = length as u64;
        self.received.wire_bytes += (stray + length) as u64;
        self.place = match facts.body {
            BodyLength::None => Place::Length(0),
            BodyLength::Bytes(bytes) if bytes > heads.limits.body_bytes_max => {
                return Err(RequestError::BodyTooLarge);
            }
            BodyLength::Bytes(bytes) => Place::Length(bytes),
            BodyLength::Chunked => Place::Chunked(Chunks::new(Rules::Strict)),
        };
        Ok(Step {
            consumed: stray + length,
            event: Event::Head(Request::new(&data[..length], facts)),
        })
    }

    /// Bytes of empty lines before the request line, which RFC 9112, section 2.2, lets a server skip.
    fn skip_stray(&mut self, data: &[u8]) -> Result<usize, RequestError> {
        if self.search.has_begun() || !matches!(data.first(), Some(b'\r' | b'\n')) {
            return Ok(0);
        }
        let stray = stray_line_end_bytes(data);
        self.stray_bytes = self.stray_bytes.saturating_add(stray as u32);
        if self.stray_bytes > STRAY_BYTES_MAX {
            return Err(RequestError::BadRequestLine);
        }
        Ok(stray)
    }

    /// The length of the head and its facts; `None` if it is not whole.
    fn parse_head(
        &mut self,
        heads: &mut RequestHeads,
        data: &[u8],
    ) -> Result<Option<(usize, Facts)>, RequestError> {
        let window = heads.limits.window(data)?;
        match self.search.find(window) {
            Some(length) => {
                let facts = head::parse(&data[..length])?;
                heads.last.remember(&data[..length], facts);
                Ok(Some((length, facts)))
            }
            None if data.len() >= heads.limits.head_bytes_max => Err(RequestError::HeadTooLong),
            None => Ok(None),
        }
    }

    fn body<'a>(&mut self, consumed: usize, bytes: &'a [u8]) -> Step<'a> {
        self.received.wire_bytes += consumed as u64;
        self.received.body_bytes += bytes.len() as u64;
        let event = if bytes.is_empty() {
            Event::More
        } else {
            Event::Body(bytes)
        };
        Step { consumed, event }
    }

    fn done<'a>(&mut self, consumed: usize) -> Step<'a> {
        let mut received = std::mem::take(self).received;
        received.wire_bytes += consumed as u64;
        Step {
            consumed,
            event: Event::Done(received),
        }
    }
}

/// Header lines that a request may have.
pub const HEADERS_MAX: usize = 100;

/// Bytes of empty lines before a request line.
const STRAY_BYTES_MAX: u32 = 8;

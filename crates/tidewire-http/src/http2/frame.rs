//! Frames (RFC 9113, sections 4 and 6): bytes in, frames of the right shape out; and their writers.
//!
//! The meaning of a frame depends on its connection, which judges it.

use super::error::{ErrorCode, Fault};

/// A frame, or a piece of one.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Frame<'a> {
    /// A piece of a DATA frame.
    Data(Piece<'a>),
    /// HEADERS with all its CONTINUATION frames.
    Headers {
        stream: u32,
        block: &'a [u8],
        ends: bool,
        depends_on: Option<u32>,
        /// The bytes of all these frames.
        wire_bytes: usize,
    },
    Priority {
        stream: u32,
        /// `None` if it has another length than it must have.
        depends_on: Option<u32>,
    },
    Reset {
        stream: u32,
        code: ErrorCode,
    },
    Settings(&'a [u8]),
    SettingsAck,
    Ping([u8; 8]),
    PingAck,
    GoAway {
        last: u32,
        code: ErrorCode,
    },
    Window {
        stream: u32,
        by: u32,
    },
    /// A frame of a type that this version does not know.
    Unknown,
}

/// A piece of a DATA frame.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Piece<'a> {
    pub(super) stream: u32,
    /// The bytes that the whole frame counts in the windows; only in its first piece.
    pub(super) flow_bytes: Option<u32>,
    pub(super) bytes: &'a [u8],
    /// This is the last piece of a frame without any content.
    pub(super) is_empty: bool,
    /// The frame is the last one of its stream.
    pub(super) is_last: bool,
    /// This is the last piece of that frame.
    pub(super) ends: bool,
}

/// Finds the frames in the bytes of one connection.
#[derive(Debug, Default)]
pub(super) struct FrameReader {
    data: Option<DataPlace>,
    headers: Option<Box<Pieces>>,
    /// The last header block in several pieces.
    joined: Vec<u8>,
}

/// Within a DATA frame.
#[derive(Clone, Copy, Debug)]
struct DataPlace {
    stream: u32,
    left: usize,
    padding: usize,
    is_empty: bool,
    ends: bool,
}

/// A header block without its end.
#[derive(Debug)]
struct Pieces {
    stream: u32,
    ends: bool,
    depends_on: Option<u32>,
    block: Vec<u8>,
    count: u32,
    wire_bytes: usize,
}

struct Head {
    length: usize,
    kind: u8,
    flags: u8,
    stream: u32,
}

impl FrameReader {
    /// Reads one frame, or a piece of DATA, from the front of `data`: how many bytes were consumed, and the frame;
    /// `None` if more bytes are needed.
    ///
    /// # Errors
    /// The frame has a shape that it may not have. The connection cannot go on.
    #[inline]
    pub(super) fn read<'a>(
        &'a mut self,
        data: &'a [u8],
        block_bytes_max: usize,
    ) -> Result<(usize, Option<Frame<'a>>), Fault> {
        if let Some(place) = self.data {
            return Ok(self.read_data(data, 0, place, None));
        }
        let Some(head) = Head::parse(data) else {
            return Ok((0, None));
        };
        if head.length > FRAME_BYTES_MAX {
            return Err(Fault::BadFrameSize);
        }
        if let Some(pieces) = &self.headers
            && (head.kind != CONTINUATION || head.stream != pieces.stream)
        {
            return Err(Fault::UnexpectedFrame);
        }
        if head.kind == DATA {
            return self.begin_data(data, &head);
        }
        let end = HEAD_BYTES + head.length;
        let Some(payload) = data.get(HEAD_BYTES..end) else {
            return Ok((0, None));
        };
        let frame = match head.kind {
            HEADERS => self.read_headers(&head, payload, block_bytes_max)?,
            CONTINUATION => self.read_continuation(&head, payload, block_bytes_max)?,
            _ => Some(simple_frame(&head, payload)?),
        };
        Ok((end, frame))
    }

    /// Whether the bytes read so far end between two frames.
    pub(super) fn is_between(&self) -> bool {
        self.data.is_none() && self.headers.is_none()
    }

    fn begin_data<'a>(
        &'a mut self,
        data: &'a [u8],
        head: &Head,
    ) -> Result<(usize, Option<Frame<'a>>), Fault> {
        if head.stream == 0 {
            return Err(Fault::UnexpectedFrame);
        }
        let mut start = HEAD_BYTES;
        let (mut left, mut padding) = (head.length, 0);
        if head.flags & PADDED != 0 {
            if left == 0 {
                return Err(Fault::BadFrameSize);
            }
            let Some(bytes) = data.get(HEAD_BYTES) else {
                return Ok((0, None));
            };
            padding = usize::from(*bytes);
            start += 1;
            left = (left - 1).checked_sub(padding).ok_or(Fault::BadPadding)?;
        }
        let place = DataPlace {
            stream: head.stream,
            left,
            padding,
            is_empty: left == 0,
            ends: head.flags & END_STREAM != 0,
        };
        Ok(self.read_data(data, start, place, Some(head.length as u32)))
    }

    /// The next piece of a DATA frame, from `start` on.
    #[inline]
    fn read_data<'a>(
        &'a mut self,
        data: &'a [u8],
        start: usize,
        mut place: DataPlace,
        flow_bytes: Option<u32>,
    ) -> (usize, Option<Frame<'a>>) {
        let content = place.left.min(data.len() - start);
        let bytes = &data[start..start + content];
        place.left -= content;
        let padding = place.padding.min(data.len() - start - content);
        place.padding -= padding;
        let is_whole = place.left == 0 && place.padding == 0;
        self.data = (!is_whole).then_some(place);
        let consumed = start + content + padding;
        if consumed == 0 && !is_whole {
            return (0, None);
        }
        let piece = Piece {
            stream: place.stream,
            flow_bytes,
            bytes,
            is_empty: place.is_empty && is_whole,
            is_last: place.ends,
            ends: place.ends && is_whole,
        };
        (consumed, Some(Frame::Data(piece)))
    }

    fn read_headers<'a>(
        &'a mut self,
        head: &Head,
        payload: &'a [u8],
        block_bytes_max: usize,
    ) -> Result<Option<Frame<'a>>, Fault> {
        if head.stream == 0 {
            return Err(Fault::UnexpectedFrame);
        }
        let mut block = unpadded(head, payload)?;
        let mut depends_on = None;
        if head.flags & PRIORITIZED != 0 {
            let (priority, rest) = block.split_at_checked(5).ok_or(Fault::BadFrameSize)?;
            depends_on = Some(stream_number(priority));
            block = rest;
        }
        let (stream, ends) = (head.stream, head.flags & END_STREAM != 0);
        let wire_bytes = HEAD_BYTES + head.length;
        if head.flags & END_HEADERS != 0 {
            return Ok(Some(Frame::Headers {
                stream,
                block,
                ends,
                depends_on,
                wire_bytes,
            }));
        }
        let mut pieces = Pieces {
            stream,
            ends,
            depends_on,
            block: Vec::new(),
            count: 0,
            wire_bytes,
        };
        pieces.add(block, block_bytes_max)?;
        self.headers = Some(Box::new(pieces));
        Ok(None)
    }

    fn read_continuation<'a>(
        &'a mut self,
        head: &Head,
        payload: &'a [u8],
        block_bytes_max: usize,
    ) -> Result<Option<Frame<'a>>, Fault> {
        let mut pieces = self.headers.take().ok_or(Fault::UnexpectedFrame)?;
        pieces.add(payload, block_bytes_max)?;
        pieces.wire_bytes += HEAD_BYTES + head.length;
        if head.flags & END_HEADERS == 0 {
            self.headers = Some(pieces);
            return Ok(None);
        }
        self.joined = pieces.block;
        Ok(Some(Frame::Headers {
            stream: pieces.stream,
            block: &self.joined,
            ends: pieces.ends,
            depends_on: pieces.depends_on,
            wire_bytes: pieces.wire_bytes,
        }))
    }
}

impl Pieces {
    fn add(&mut self, piece: &[u8], bytes_max: usize) -> Result<(), Fault> {
        self.count += 1;
        if self.count > PIECES_MAX || self.block.len() + piece.len() > bytes_max {
            return Err(Fault::HeadersTooLong);
        }
        self.block.extend_from_slice(piece);
        Ok(())
    }
}

impl Head {
    #[inline]
    fn parse(data: &[u8]) -> Option<Self> {
        let head: &[u8; HEAD_BYTES] = data.first_chunk()?;
        Some(Self {
            length: u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize,
            kind: head[3],
            flags: head[4],
            stream: stream_number(&head[5..]),
        })
    }
}

/// A frame that is neither DATA nor a part of a header block.
fn simple_frame<'a>(head: &Head, payload: &'a [u8]) -> Result<Frame<'a>, Fault> {
    let stream = head.stream;
    let is_of_stream = match head.kind {
        PRIORITY | RST_STREAM => Some(true),
        SETTINGS | PING | GOAWAY => Some(false),
        _ => None,
    };
    if is_of_stream.is_some_and(|of_stream| of_stream == (stream == 0)) {
        return Err(Fault::UnexpectedFrame);
    }
    let is_ack = head.flags & ACK != 0;
    Ok(match head.kind {
        PRIORITY => Frame::Priority {
            stream,
            depends_on: (payload.len() == 5).then(|| stream_number(payload)),
        },
        RST_STREAM => Frame::Reset {
            stream,
            code: ErrorCode(number(exactly(payload)?)),
        },
        SETTINGS if is_ack && !payload.is_empty() => return Err(Fault::BadFrameSize),
        SETTINGS if is_ack => Frame::SettingsAck,
        SETTINGS if !payload.len().is_multiple_of(SETTING_BYTES) => {
            return Err(Fault::BadFrameSize);
        }
        SETTINGS => Frame::Settings(payload),
        // This side's settings forbid it, and a client never sends it.
        PUSH_PROMISE => return Err(Fault::UnexpectedFrame),
        PING if is_ack => {
            exactly::<8>(payload)?;
            Frame::PingAck
        }
        PING => Frame::Ping(exactly(payload)?),
        GOAWAY => {
            let (last, rest) = payload.split_first_chunk().ok_or(Fault::BadFrameSize)?;
            let code: &[u8; 4] = rest.first_chunk().ok_or(Fault::BadFrameSize)?;
            Frame::GoAway {
                last: number(*last) & STREAM_MASK,
                code: ErrorCode(number(*code)),
            }
        }
        WINDOW_UPDATE => Frame::Window {
            stream,
            by: number(exactly(payload)?) & STREAM_MASK,
        },
        _ => Frame::Unknown,
    })
}

/// The settings of a SETTINGS frame, each a number and a value.
pub(super) fn settings(payload: &[u8]) -> impl Iterator<Item = (u16, u32)> {
    payload.chunks_exact(SETTING_BYTES).map(|setting| {
        let value = [setting[2], setting[3], setting[4], setting[5]];
        (u16::from_be_bytes([setting[0], setting[1]]), number(value))
    })
}

/// The payload without its padding.
fn unpadded<'a>(head: &Head, payload: &'a [u8]) -> Result<&'a [u8], Fault> {
    if head.flags & PADDED == 0 {
        return Ok(payload);
    }
    let (padding, rest) = payload.split_first().ok_or(Fault::BadFrameSize)?;
    let length = rest.len().checked_sub(usize::from(*padding));
    length
        .map(|length| &rest[..length])
        .ok_or(Fault::BadPadding)
}

fn exactly<const BYTES: usize>(payload: &[u8]) -> Result<[u8; BYTES], Fault> {
    payload.try_into().map_err(|_| Fault::BadFrameSize)
}

fn number(bytes: [u8; 4]) -> u32 {
    u32::from_be_bytes(bytes)
}

/// The number of a stream, without the bit before it. `bytes` has at least four.
fn stream_number(bytes: &[u8]) -> u32 {
    bytes.first_chunk().map_or(0, |bytes| number(*bytes)) & STREAM_MASK
}

#[inline]
pub(super) fn write_head(length: usize, kind: u8, flags: u8, stream: u32, out: &mut Vec<u8>) {
    let length = (length as u32).to_be_bytes();
    let stream = stream.to_be_bytes();
    out.extend_from_slice(&[
        length[1], length[2], length[3], kind, flags, stream[0], stream[1], stream[2], stream[3],
    ]);
}

/// Appends a header block: HEADERS, and CONTINUATION for what does not fit. Returns the number of bytes.
#[inline]
pub(super) fn write_headers(
    stream: u32,
    block: &[u8],
    ends: bool,
    frame_bytes_max: usize,
    out: &mut Vec<u8>,
) -> usize {
    let before = out.len();
    let end_stream = if ends { END_STREAM } else { 0 };
    if block.len() <= frame_bytes_max {
        write_head(block.len(), HEADERS, END_HEADERS | end_stream, stream, out);
        out.extend_from_slice(block);
        return out.len() - before;
    }
    let mut pieces = block.chunks(frame_bytes_max).peekable();
    let mut kind = (HEADERS, end_stream);
    while let Some(piece) = pieces.next() {
        let end_headers = if pieces.peek().is_none() {
            END_HEADERS
        } else {
            0
        };
        write_head(piece.len(), kind.0, kind.1 | end_headers, stream, out);
        out.extend_from_slice(piece);
        kind = (CONTINUATION, 0);
    }
    out.len() - before
}

pub(super) fn write_data(stream: u32, bytes: &[u8], ends: bool, out: &mut Vec<u8>) {
    let flags = if ends { END_STREAM } else { 0 };
    write_head(bytes.len(), DATA, flags, stream, out);
    out.extend_from_slice(bytes);
}

pub(super) fn write_settings(values: &[(u16, u32)], out: &mut Vec<u8>) {
    write_head(values.len() * SETTING_BYTES, SETTINGS, 0, 0, out);
    for (name, value) in values {
        out.extend_from_slice(&name.to_be_bytes());
        out.extend_from_slice(&value.to_be_bytes());
    }
}

pub(super) fn write_settings_ack(out: &mut Vec<u8>) {
    write_head(0, SETTINGS, ACK, 0, out);
}

pub(super) fn write_ping(payload: [u8; 8], out: &mut Vec<u8>) {
    write_head(payload.len(), PING, 0, 0, out);
    out.extend_from_slice(&payload);
}

pub(super) fn write_ping_ack(payload: [u8; 8], out: &mut Vec<u8>) {
    write_head(payload.len(), PING, ACK, 0, out);
    out.extend_from_slice(&payload);
}

pub(super) fn write_reset(stream: u32, code: ErrorCode, out: &mut Vec<u8>) {
    write_head(4, RST_STREAM, 0, stream, out);
    out.extend_from_slice(&code.0.to_be_bytes());
}

pub(super) fn write_go_away(last: u32, code: ErrorCode, out: &mut Vec<u8>) {
    write_head(8, GOAWAY, 0, 0, out);
    out.extend_from_slice(&last.to_be_bytes());
    out.extend_from_slice(&code.0.to_be_bytes());
}

pub(super) fn write_window(stream: u32, by: u32, out: &mut Vec<u8>) {
    write_head(4, WINDOW_UPDATE, 0, stream, out);
    out.extend_from_slice(&by.to_be_bytes());
}

/// The bytes that a client sends first.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The bytes before each payload.
pub(super) const HEAD_BYTES: usize = 9;
/// The largest payload that this side accepts: the default (RFC 9113, section 6.5.2).
pub(super) const FRAME_BYTES_MAX: usize = 16_384;
/// The largest number of a stream, and of a window.
pub(super) const STREAM_MASK: u32 = (1 << 31) - 1;
/// Frames of one header block.
const PIECES_MAX: u32 = 16;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PUSH_PROMISE: u8 = 5;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 0x1;
const ACK: u8 = 0x1;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITIZED: u8 = 0x20;

const SETTING_BYTES: usize = 6;
pub(super) const HEADER_TABLE_SIZE: u16 = 1;
pub(super) const ENABLE_PUSH: u16 = 2;
pub(super) const MAX_CONCURRENT_STREAMS: u16 = 3;
pub(super) const INITIAL_WINDOW_SIZE: u16 = 4;
pub(super) const MAX_FRAME_SIZE: u16 = 5;
pub(super) const MAX_HEADER_LIST_SIZE: u16 = 6;

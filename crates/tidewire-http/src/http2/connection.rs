//! One side of a connection (RFC 9113): bytes in, events out; requests or responses in, bytes out.

use super::error::{ErrorCode, Fault};
use super::event::{Event, Step};
use super::frame::{self, Frame, FrameReader, PREFACE};
use super::head::{Heads, Limits, Memory};
use super::hpack::Decoder;
use super::state::{Start, State};
use std::sync::Arc;

/// One side of a connection.
#[derive(Debug)]
pub struct Connection {
    reader: FrameReader,
    decoder: Decoder,
    memory: Memory,
    state: State,
}

impl Connection {
    /// The side of the client. Appends what it sends first.
    #[must_use]
    pub fn client(limits: &Limits, out: &mut Vec<u8>) -> Self {
        out.extend_from_slice(PREFACE);
        let settings = [
            (frame::ENABLE_PUSH, 0),
            (frame::INITIAL_WINDOW_SIZE, limits.stream_window),
        ];
        frame::write_settings(&settings, out);
        Self::new(true, limits, out)
    }

    /// The side of the server. Appends what it sends first.
    #[must_use]
    pub fn server(limits: &Limits, out: &mut Vec<u8>) -> Self {
        let head_bytes = u32::try_from(limits.head_bytes_max).unwrap_or(u32::MAX);
        let settings = [
            (frame::MAX_CONCURRENT_STREAMS, limits.streams_max),
            (frame::INITIAL_WINDOW_SIZE, limits.stream_window),
            (frame::MAX_HEADER_LIST_SIZE, head_bytes),
        ];
        frame::write_settings(&settings, out);
        Self::new(false, limits, out)
    }

    fn new(is_client: bool, limits: &Limits, out: &mut Vec<u8>) -> Self {
        Self {
            reader: FrameReader::default(),
            decoder: Decoder::default(),
            memory: Memory::default(),
            state: State::new(is_client, limits, out),
        }
    }

    /// Reads the next event from the front of `data`. The frames for the peer are appended to `out`, and must be
    /// sent, also after an error. `now_ms` is any clock that does not go back.
    ///
    /// # Errors
    /// The peer breaks a rule of the connection. It must be closed; `out` ends with a GOAWAY.
    #[inline]
    pub fn receive<'a>(
        &'a mut self,
        heads: &'a mut Heads,
        data: &'a [u8],
        now_ms: u64,
        out: &mut Vec<u8>,
    ) -> Result<Step<'a>, Fault> {
        let Self {
            reader,
            decoder,
            memory,
            state,
        } = self;
        if let Some((stream, message)) = state.take_done() {
            let event = Event::Done { stream, message };
            return Ok(Step { consumed: 0, event });
        }
        state.now_ms = now_ms;
        let read = state.read_start(data).and_then(|start| match start {
            Start::Missing => Ok((0, None)),
            Start::Preface(bytes) => Ok((bytes, None)),
            Start::Past => reader.read(data, state.head_bytes_max()),
        });
        let handled = read.and_then(|(consumed, frame)| {
            let event = match frame {
                None => Event::More,
                Some(Frame::Headers {
                    stream,
                    block,
                    ends,
                    depends_on,
                    wire_bytes,
                }) => {
                    let kind = state.kind_of(stream);
                    let bytes_max = state.head_bytes_max();
                    let parsed = memory.read(decoder, heads, (kind, block), bytes_max)?;
                    let on_itself = depends_on == Some(stream);
                    let place = (stream, ends, on_itself);
                    state.receive_head(place, parsed, wire_bytes, out)?
                }
                Some(Frame::Data(piece)) => match state.receive_data(&piece, consumed, out)? {
                    Some(event) => event,
                    None if piece.bytes.is_empty() => Event::More,
                    None => Event::Body {
                        stream: piece.stream,
                        bytes: piece.bytes,
                    },
                },
                Some(other) => state.receive_control(&other, out)?,
            };
            Ok((consumed, event))
        });
        match handled {
            Ok((consumed, event)) => Ok(Step { consumed, event }),
            Err(fault) => {
                state.go_away(fault.code(), out);
                Err(fault)
            }
        }
    }

    /// Opens a stream with a request; `block` is its head, from [`write_request`](super::write_request). What the windows
    /// do not allow yet of its body is kept, see [`Connection::pump`]. Returns the number of the stream; `None` if the
    /// connection accepts no more.
    pub fn open(
        &mut self,
        block: &[u8],
        body: &[u8],
        is_head: bool,
        out: &mut Vec<u8>,
    ) -> Option<u32> {
        self.state.open(block, body, is_head, out)
    }

    /// Answers a stream; `block` is the head, from [`write_response`](super::write_response). At most `room` bytes of the
    /// body leave now, and the rest is kept, see [`Connection::pump`]. False if the stream is over.
    pub fn respond(
        &mut self,
        stream: u32,
        block: &[u8],
        body: &Arc<[u8]>,
        room: usize,
        out: &mut Vec<u8>,
    ) -> bool {
        self.state.respond(stream, (block, body), room, out)
    }

    /// Sends what windows or `room` have stopped: at most `room` bytes. Returns whether `room` has stopped it again.
    pub fn pump(&mut self, room: usize, out: &mut Vec<u8>) -> bool {
        self.state.pump(room, out)
    }

    /// Whether a part of a body waits for a window, or for room.
    #[must_use]
    pub fn has_unsent(&self) -> bool {
        self.state.has_unsent()
    }

    /// Gives up a stream.
    pub fn reset(&mut self, stream: u32, code: ErrorCode, out: &mut Vec<u8>) {
        self.state.reset(stream, code, out);
    }

    /// Asks the peer for a sign of life: it answers at once, which is no event.
    pub fn ping(&mut self, out: &mut Vec<u8>) {
        frame::write_ping([0; 8], out);
    }

    /// Announces that no more streams are accepted.
    pub fn go_away(&mut self, code: ErrorCode, out: &mut Vec<u8>) {
        self.state.go_away(code, out);
    }

    /// Streams that the peer allows at a time; 0 until its settings have arrived.
    #[must_use]
    pub fn streams_max(&self) -> u32 {
        self.state.peer_streams_max()
    }

    /// Whether the peer keeps the headers of a [`repeated_request`](super::repeated_request).
    #[must_use]
    pub fn peer_keeps_table(&self) -> bool {
        self.state.peer_keeps_table()
    }

    /// Whether a client may open a stream, now or when another is over.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.state.is_open()
    }

    /// Whether the next call of [`Connection::receive`] returns an event, even if `data` is empty.
    #[must_use]
    pub fn has_event(&self) -> bool {
        self.state.has_done()
    }

    /// Whether the bytes received so far end between two frames.
    #[must_use]
    pub fn is_between(&self) -> bool {
        self.reader.is_between()
    }
}

//! A WebSocket connection after its opening handshake: one state machine for both sides (RFC 6455,
//! sections 5.5 and 7).
//!
//! The caller passes received bytes in an [`Input`] and receives events. The frames that RFC 6455 demands in
//! return are appended to an [`Output`]: a pong for each ping, a close for a close. A connection owns no buffer
//! for output and copies no message.

use crate::close::CloseCode;
use crate::frame::{self, OpCode, ProtocolError, Role};
use crate::message::{Event, Input, MessageReader};

/// One side of a connection.
///
/// An event borrows from the reader. A caller that sends or closes while it handles an event uses the two
/// fields separately: [`Control::receive`] with the reader, and the control for output.
#[derive(Debug)]
pub struct Connection {
    /// Finds the frames in the received bytes, and joins fragments.
    pub reader: MessageReader,
    /// Answers control frames, and keeps the state of the closing handshake.
    pub control: Control,
}

impl Connection {
    /// An open connection on the side `role`. It rejects messages larger than `message_bytes_max` bytes.
    #[must_use]
    pub fn new(role: Role, message_bytes_max: usize) -> Self {
        Self {
            reader: MessageReader::new(role, message_bytes_max),
            control: Control::default(),
        }
    }

    /// Accepts messages compressed by permessage-deflate; see [`MessageReader::with_compression`].
    #[must_use]
    pub fn with_compression(mut self) -> Self {
        self.reader = self.reader.with_compression();
        self
    }

    /// As [`Control::receive`].
    ///
    /// # Errors
    /// As [`Control::receive`].
    #[inline(always)]
    pub fn receive<'s>(
        &'s mut self,
        input: &'s mut Input<'_>,
        output: &mut impl Output,
    ) -> Result<Option<Event<'s>>, ProtocolError> {
        self.control.receive(&mut self.reader, input, output)
    }
}

/// The state of the closing handshake (RFC 6455, section 7.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ConnectionState {
    /// Both sides may send messages.
    #[default]
    Open,
    /// This side has sent its close frame, after which it sends no message. It still receives until the
    /// peer's close frame arrives.
    Closing,
    /// The connection reads and writes nothing more: both close frames were exchanged, or it failed.
    Closed,
}

/// The output of a connection: a buffer for control frames, and a source of masks.
pub trait Output {
    /// The buffer to which a frame with this opcode is appended; `None` drops the frame, as when the socket
    /// is gone.
    fn buffer(&mut self, opcode: OpCode) -> Option<&mut Vec<u8>>;

    /// The mask of the next frame: four fresh random bytes for a client, `None` for a server.
    fn mask(&mut self) -> Option<[u8; 4]>;

    /// The code with which the peer's close frame is answered. Default: the same code, or none if it had
    /// none.
    fn close_code(&self, received: Option<CloseCode>) -> Option<CloseCode> {
        received
    }
}

/// A server's output: frames without a mask.
impl Output for Vec<u8> {
    fn buffer(&mut self, _opcode: OpCode) -> Option<&mut Vec<u8>> {
        Some(self)
    }

    fn mask(&mut self) -> Option<[u8; 4]> {
        None
    }
}

/// A client's output: a buffer, and a source of masks.
#[derive(Debug)]
pub struct Masked<'a, M> {
    /// The buffer to which frames are appended.
    pub buffer: &'a mut Vec<u8>,
    /// Draws four random bytes for each frame (RFC 6455, section 5.3).
    pub mask: M,
}

impl<M: FnMut() -> [u8; 4]> Output for Masked<'_, M> {
    fn buffer(&mut self, _opcode: OpCode) -> Option<&mut Vec<u8>> {
        Some(self.buffer)
    }

    fn mask(&mut self) -> Option<[u8; 4]> {
        Some((self.mask)())
    }
}

/// The state of a connection: answers control frames and carries out the closing handshake.
#[derive(Debug, Default)]
pub struct Control {
    state: ConnectionState,
}

impl Control {
    /// The state of the closing handshake.
    #[inline]
    #[must_use]
    pub fn state(&self) -> ConnectionState {
        self.state
    }

    /// Whether messages may be sent.
    #[inline]
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.state == ConnectionState::Open
    }

    /// Reads the next event with `reader` and answers it as RFC 6455 demands: a ping by a pong, a close by a
    /// close. `None` when the input holds no further whole event, and once the connection is closed.
    ///
    /// # Errors
    /// The rule that the peer broke. The caller ends the connection with [`fail`](Self::fail).
    #[inline(always)]
    pub fn receive<'s>(
        &mut self,
        reader: &'s mut MessageReader,
        input: &'s mut Input<'_>,
        output: &mut impl Output,
    ) -> Result<Option<Event<'s>>, ProtocolError> {
        if self.state == ConnectionState::Closed {
            return Ok(None);
        }
        let event = reader.read(input)?;
        match &event {
            Some(Event::Ping(payload)) => answer_ping(payload, output),
            Some(Event::Close(code, _)) => self.answer_close(*code, output),
            _ => {}
        }
        Ok(event)
    }

    /// Answers an event of a [`MessageReader`], as [`receive`](Self::receive) does; for callers that use the reader
    /// separately.
    #[cold]
    pub fn answer(&mut self, event: &Event<'_>, output: &mut impl Output) {
        match event {
            Event::Ping(payload) => append(OpCode::Pong, payload, output),
            Event::Close(code, _) => self.answer_close(*code, output),
            Event::Text(_) | Event::Binary(_) | Event::Compressed(_) | Event::Pong(_) => {}
        }
    }

    /// Appends a message as one frame. Returns false, and appends nothing, if this side has sent its close
    /// frame, after which no message may follow (RFC 6455, section 5.5.1).
    pub fn send(&self, opcode: OpCode, payload: &[u8], output: &mut impl Output) -> bool {
        if self.is_open() {
            append(opcode, payload, output);
        }
        self.is_open()
    }

    /// Starts the closing handshake: appends a close frame. Returns false, and appends nothing, if the
    /// connection is not open. A reason past 123 bytes is cut at a character boundary; without a code it is
    /// left out.
    pub fn close(
        &mut self,
        code: Option<CloseCode>,
        reason: &str,
        output: &mut impl Output,
    ) -> bool {
        let starts = self.is_open();
        if starts {
            append_close(code, reason, output);
            self.state = ConnectionState::Closing;
        }
        starts
    }

    /// Ends the connection at once: appends a close frame unless one was sent before, and waits for no answer
    /// (RFC 6455, section 7.1.7).
    pub fn fail(&mut self, code: CloseCode, reason: &str, output: &mut impl Output) {
        self.close(Some(code), reason, output);
        self.state = ConnectionState::Closed;
    }

    #[cold]
    fn answer_close(&mut self, code: Option<CloseCode>, output: &mut impl Output) {
        if self.is_open() {
            append_close(output.close_code(code), "", output);
        }
        self.state = ConnectionState::Closed;
    }
}

#[cold]
fn answer_ping(payload: &[u8], output: &mut impl Output) {
    append(OpCode::Pong, payload, output);
}

fn append(opcode: OpCode, payload: &[u8], output: &mut impl Output) {
    let mask = output.mask();
    if let Some(buffer) = output.buffer(opcode) {
        frame::write_frame(buffer, opcode, payload, mask);
    }
}

fn append_close(code: Option<CloseCode>, reason: &str, output: &mut impl Output) {
    let mask = output.mask();
    if let Some(buffer) = output.buffer(OpCode::Close) {
        frame::write_close(buffer, code, reason, mask);
    }
}

//! The end of a session: control frames, the closing handshake and violations of RFC 6455.

use crate::model::CloseReason;
use crate::session::Session;
use crate::state::connection::Phase;
use tidewire_net::{ConnectionId, Io};
use tidewire_wire::close::CloseCode;
use tidewire_wire::connection::{Control, Output};
use tidewire_wire::envelope::Priority;
use tidewire_wire::frame::{OpCode, ProtocolError};
use tidewire_wire::message::Event;

/// Where the control frames of a connection go.
struct ControlFrames<'a> {
    io: &'a mut Io,
    id: ConnectionId,
    /// Pings behind our own close frame are not answered: nothing may overtake it.
    answers_pings: bool,
}

impl Output for ControlFrames<'_> {
    fn buffer(&mut self, opcode: OpCode) -> Option<&mut Vec<u8>> {
        match opcode {
            // Behind everything that waits, whatever its priority: nothing may follow a close.
            OpCode::Close => self.io.buffer_in(self.id, Priority::Background),
            OpCode::Pong if !self.answers_pings => None,
            _ => self.io.buffer(self.id),
        }
    }

    fn mask(&mut self) -> Option<[u8; 4]> {
        None
    }
}

impl Session<'_> {
    /// The connection's control, and where its frames go. An opening handshake that fails has no control yet.
    fn control(&mut self) -> (&mut Control, ControlFrames<'_>) {
        let answers_pings = self.state.is_open();
        let frames = ControlFrames {
            io: self.io,
            id: self.state.key.id,
            answers_pings,
        };
        (self.state.control.get_or_insert_default(), frames)
    }

    /// Answers a ping and a close frame, and counts what needs no answer.
    pub(crate) fn receive_control(&mut self, event: &Event<'_>) {
        let phase = self.state.phase();
        let (control, mut frames) = self.control();
        control.answer(event, &mut frames);
        match (event, phase) {
            (Event::Ping(_), _) => self.core.counters.pings_received.add(1),
            (Event::Pong(_), _) => self.core.counters.pongs_received.add(1),
            (Event::Close(..), Phase::Closing(ours)) => self.finish(CloseReason::ByUs(ours)),
            (Event::Close(code, _), _) => self.finish(CloseReason::ByPeer(*code)),
            (Event::Text(_) | Event::Binary(_) | Event::Compressed(_), _) => {}
        }
    }

    /// Sends a close frame and waits for the answer; messages are still received until it arrives.
    pub(crate) fn start_close(&mut self, code: CloseCode, reason: &str) {
        if !self.state.is_open() {
            return;
        }
        let (control, mut frames) = self.control();
        control.close(Some(code), reason, &mut frames);
        self.state.ending.close_code = Some(code);
        self.leave_topics();
        let id = self.state.key.id;
        // The answer must get through to end the session in time.
        self.io.resume_reading(id);
        self.await_close(id);
    }

    /// Starts the close that the application or a step has asked for, if any.
    #[inline]
    pub(crate) fn close_if_asked(&mut self) {
        if let Some(close) = self.state.ending.close.take() {
            let (code, reason) = *close;
            self.start_close(code, reason);
        }
    }

    /// Gives the peer time to answer a close.
    pub(crate) fn await_close(&mut self, id: ConnectionId) {
        let timeout_ms = self.core.setup.config.limits.close_timeout_ms;
        self.io
            .set_timer(id, self.now().monotonic_ms.saturating_add(timeout_ms));
    }

    /// Sends a close frame and receives nothing more.
    pub(crate) fn end(&mut self, code: CloseCode, reason: &str) {
        let (control, mut frames) = self.control();
        control.fail(code, reason, &mut frames);
        self.finish(CloseReason::ByUs(code));
    }

    /// Ends a connection whose peer violated RFC 6455. `counts` is true if the message was admitted.
    #[cold]
    pub(crate) fn end_for(&mut self, error: ProtocolError, counts: bool) {
        if error != ProtocolError::MessageTooLarge {
            self.core.counters.protocol_errors.add(1);
        } else if counts {
            self.core.counters.messages_refused_size.add(1);
        }
        self.end(error.close_code(), &error.to_string());
    }

    fn finish(&mut self, reason: CloseReason) {
        self.state.ending.ended = Some(reason);
        self.leave_topics();
        self.io.close(self.state.key.id);
    }
}

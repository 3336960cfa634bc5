//! The end of a session: control frames, the closing handshake and violations of RFC 6455.

use crate::model::CloseReason;
use crate::session::Session;
use crate::state::connection::Phase;
use tidewire_net::ConnectionId;
use tidewire_wire::close::CloseCode;
use tidewire_wire::envelope::Priority;
use tidewire_wire::frame::{self, OpCode, ProtocolError};
use tidewire_wire::message::Event;

impl Session<'_> {
    /// Answers a ping and a close frame, and counts what needs no answer.
    pub(crate) fn receive_control(&mut self, event: &Event<'_>) {
        let id = self.state.key.id;
        match event {
            Event::Ping(payload) => {
                self.core.counters.pings_received.add(1);
                if self.state.phase == Phase::Open
                    && let Some(buffer) = self.io.buffer(id)
                {
                    frame::write_frame(buffer, OpCode::Pong, payload, None);
                }
            }
            Event::Pong(_) => self.core.counters.pongs_received.add(1),
            Event::Close(code, _) => {
                let reason = match self.state.phase {
                    Phase::Closing(ours) => CloseReason::ByUs(ours),
                    _ => {
                        if let Some(buffer) = self.io.buffer_in(id, Priority::Background) {
                            frame::write_close(buffer, *code, "", None);
                        }
                        CloseReason::ByPeer(*code)
                    }
                };
                self.finish(reason);
            }
            Event::Text(_) | Event::Binary(_) | Event::Compressed(_) => {}
        }
    }

    /// Sends a close frame and waits for the answer; messages are still received until it comes.
    pub(crate) fn start_close(&mut self, code: CloseCode, reason: &str) {
        if self.state.phase != Phase::Open {
            return;
        }
        self.state.phase = Phase::Closing(code);
        self.leave_topics();
        let id = self.state.key.id;
        // Behind everything that waits, whatever its priority: nothing may follow a close.
        if let Some(buffer) = self.io.buffer_in(id, Priority::Background) {
            frame::write_close(buffer, Some(code), reason, None);
        }
        // The answer must get through to end the session in time.
        self.io.resume_reading(id);
        self.await_close(id);
    }

    /// Starts the close that the application or a step has asked for, if any.
    #[inline]
    pub(crate) fn close_if_asked(&mut self) {
        if let Some((code, reason)) = self.state.close.take() {
            self.start_close(code, reason);
        }
    }

    /// Gives the peer time to answer a close.
    pub(crate) fn await_close(&mut self, id: ConnectionId) {
        let timeout_ms = self.core.shared.config.limits.close_timeout_ms;
        self.io
            .set_timer(id, self.now().monotonic_ms.saturating_add(timeout_ms));
    }

    /// Sends a close frame and receives nothing more.
    pub(crate) fn end(&mut self, code: CloseCode, reason: &str) {
        if !matches!(self.state.phase, Phase::Closing(_))
            && let Some(buffer) = self.io.buffer_in(self.state.key.id, Priority::Background)
        {
            frame::write_close(buffer, Some(code), reason, None);
        }
        self.finish(CloseReason::ByUs(code));
    }

    /// Ends a connection whose peer violated RFC 6455. `counts` tells whether the message was admitted.
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
        self.state.phase = Phase::Over;
        self.state.ended = Some(reason);
        self.leave_topics();
        self.io.close(self.state.key.id);
    }
}

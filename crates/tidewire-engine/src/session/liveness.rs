//! The timer of a connection: timeouts of handshakes and closes, pings, and the end of silent
//! sessions.

use crate::config::Protocol;
use crate::model::CloseReason;
use crate::session::Session;
use crate::session::encryption::NEEDS_KEY;
use crate::state::connection::{Phase, Unannounced};
use tidewire_wire::close::CloseCode;
use tidewire_wire::frame::{self, OpCode};
use tidewire_wire::handshake::server::write_rejection;
use tidewire_wire::session::{Reply, TimeoutAction};

impl Session<'_> {
    /// Handles the deadline of the connection, whichever it was.
    pub(crate) fn handle_timer(&mut self) {
        let id = self.state.key.id;
        match self.state.phase() {
            Phase::Opening => {
                self.core.counters.handshake_timeouts.add(1);
                // Without TLS the rejection cannot reach a peer that expects TLS.
                if self.io.is_tls_held(id) {
                    return self.io.abort(id);
                }
                if let Some(buffer) = self.io.buffer(id) {
                    write_rejection(408, &[], "the request took too long\n", buffer);
                }
                self.io.close(id);
            }
            // Not the peer's silence: its answer may wait behind messages that are not being read.
            Phase::Closing(_) if self.state.limits.pauses.application => self.await_close(id),
            Phase::Closing(code) => {
                self.state.ending.ended = Some(CloseReason::ByUs(code));
                self.io.abort(id);
            }
            Phase::Open => {
                let now_ms = self.now().monotonic_ms;
                let waits_in_vain = |session: &Unannounced| now_ms >= session.until_ms;
                if self.state.unannounced.as_deref().is_some_and(waits_in_vain) {
                    return self.require_encryption(NEEDS_KEY, None);
                }
                if self.check_expiry() {
                    return;
                }
                self.end_token_topics();
                self.tell_refusals();
                self.check_idle();
            }
            Phase::Over => {}
        }
    }

    /// Sets the timer of an open session to its next deadline.
    pub(crate) fn set_timer(&mut self) {
        let due_ms = self.state.due_ms(&self.core.setup.profile);
        self.io.set_timer(self.state.key.id, due_ms);
    }

    /// Pings a silent peer, and ends its session if it stays silent.
    fn check_idle(&mut self) {
        let outbox_bytes = self.io.queued_bytes(self.state.key.id);
        let takes_some = outbox_bytes < self.state.limits.pauses.outbox_bytes_seen;
        self.state.limits.pauses.outbox_bytes_seen = outbox_bytes;
        if self.state.limits.pauses.application || takes_some || !self.state.work.jobs.is_empty() {
            // The peer is not silent: it is not being read, or has not reached our ping yet.
            self.state.session.handle_heard(self.now().monotonic_ms);
        }
        let profile = &self.core.setup.profile;
        match self.state.session.handle_timeout(profile, self.now()) {
            TimeoutAction::CloseIdle => {
                self.core.counters.idle_timeouts.add(1);
                self.end(CloseCode::IDLE_TIMEOUT, "nothing was heard for too long");
                return;
            }
            TimeoutAction::SendPing => {
                if self.core.setup.config.protocol == Protocol::V1 {
                    self.reply(&Reply::Ping);
                }
                // Every WebSocket library answers this one, with or without code for our messages.
                if let Some(buffer) = self.io.buffer(self.state.key.id) {
                    frame::write_frame(buffer, OpCode::Ping, b"", None);
                }
            }
            TimeoutAction::None => {}
        }
        self.set_timer();
    }
}

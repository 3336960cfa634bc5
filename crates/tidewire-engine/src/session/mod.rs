//! What happens to one connection: its messages, its control frames, its clock and its end.

pub(crate) mod access;
pub(crate) mod acknowledge;
pub(crate) mod application;
pub(crate) mod calls;
pub(crate) mod catch_up;
pub(crate) mod context;
pub(crate) mod deliver;
pub(crate) mod encryption;
pub(crate) mod expiry;
pub(crate) mod groups;
pub(crate) mod history;
pub(crate) mod jobs;
pub(crate) mod leave;
pub(crate) mod limits;
pub(crate) mod membership;
pub(crate) mod presence;
pub(crate) mod publish;
pub(crate) mod receive;
pub(crate) mod send;
pub(crate) mod server_requests;
pub(crate) mod signing;
pub(crate) mod snapshots;
pub(crate) mod subscribe;

use crate::config::{Encryption, Protocol};
use crate::counters::Counters;
use crate::model::{CloseReason, Encoding, Message, Peer};
use crate::session::application::{Application, Marked};
use crate::session::context::Context;
use crate::state::connection::{ConnectionState, Phase, Unannounced};
use crate::state::core::{Core, emptied};
use tidewire_net::{ConnectionId, Io};
use tidewire_wire::close::CloseCode;
use tidewire_wire::envelope::Priority;
use tidewire_wire::frame::{self, OpCode, ProtocolError};
use tidewire_wire::handshake::server::write_rejection;
use tidewire_wire::message::{Compressed, Event};
use tidewire_wire::session::{Now, Reply, TimeoutAction};

/// One call for one connection, with all that it needs at hand.
pub(crate) struct Turn<'a, A: Application> {
    pub(crate) io: &'a mut Io,
    pub(crate) app: &'a mut Marked<A>,
    pub(crate) core: &'a mut Core,
    pub(crate) now: Now,
    pub(crate) tally: Tally,
}

/// Counts of one call, added to the shard's counters at its end.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) received: u64,
    pub(crate) received_bytes: u64,
    pub(crate) delivered: u64,
}

impl Tally {
    /// Adds what has not been added yet.
    pub(crate) fn count(&mut self, counters: &Counters) {
        let counts = std::mem::take(self);
        counters.messages_received.add(counts.received);
        counters.bytes_received.add(counts.received_bytes);
        counters.messages_delivered.add(counts.delivered);
    }
}

/// What was received counts also if the application panicked after it.
impl<A: Application> Drop for Turn<'_, A> {
    fn drop(&mut self) {
        if self.tally.received | self.tally.delivered > 0 {
            self.tally.count(&self.core.counters);
        }
    }
}

impl<A: Application> Turn<'_, A> {
    #[inline]
    pub(crate) fn handle_event(&mut self, state: &mut ConnectionState, event: Event<'_>) {
        let (encoding, bytes) = match event {
            Event::Text(text) => (Encoding::Text, text.as_bytes()),
            Event::Binary(bytes) => (Encoding::Binary, bytes),
            Event::Compressed(message) => return self.handle_compressed(state, message),
            control => return self.handle_control(state, &control),
        };
        self.tally.received += 1;
        self.tally.received_bytes += bytes.len() as u64;
        if self.admit(state) {
            self.handle_message(state, encoding, bytes);
        } else if state.layers.is_some() {
            self.pass_over(state, encoding, bytes);
        }
    }

    /// [`Self::handle_message`] for messages that were inflated, so that the fast path keeps its own copy.
    #[inline(never)]
    fn handle_inflated(&mut self, state: &mut ConnectionState, encoding: Encoding, bytes: &[u8]) {
        self.handle_message(state, encoding, bytes);
    }

    #[inline(always)]
    fn handle_message(&mut self, state: &mut ConnectionState, encoding: Encoding, bytes: &[u8]) {
        match self.core.shared.config.protocol {
            Protocol::Raw => self.deliver(state, Message { encoding, bytes }),
            Protocol::V1 => self.handle_v1(state, encoding, bytes),
        }
    }

    /// A message of permessage-deflate.
    #[inline(never)]
    fn handle_compressed(&mut self, state: &mut ConnectionState, message: Compressed<'_>) {
        self.tally.received += 1;
        self.tally.received_bytes += message.bytes.len() as u64;
        let is_admitted = self.admit(state);
        let counts_messages = state.encryption().is_some();
        let layers = state.layers.as_deref_mut();
        let Some(deflate) = layers.and_then(|layers| layers.deflate.as_mut()) else {
            return;
        };
        let is_of_use = is_admitted || deflate.remembers_received() || counts_messages;
        if state.phase == Phase::Over || !is_of_use {
            return;
        }
        let limit = self.core.shared.config.limits.message_bytes_max;
        let mut inflated = std::mem::take(&mut self.core.inflated);
        let result = deflate
            .decompress(&mut self.core.deflate, message.bytes, &mut inflated, limit)
            .and_then(|()| message.event(&inflated));
        match result {
            Ok(event) => {
                self.core.counters.messages_inflated.add(1);
                self.charge_inflated(state, inflated.len());
                let encoding = match event {
                    Event::Text(_) => Encoding::Text,
                    _ => Encoding::Binary,
                };
                if is_admitted {
                    self.handle_inflated(state, encoding, &inflated);
                } else {
                    self.pass_over(state, encoding, &inflated);
                }
            }
            Err(error) => {
                self.charge_inflated(state, limit);
                // What breaks a rule is no message; what was refused has been counted.
                self.tally.received -=
                    u64::from(is_admitted && error != ProtocolError::MessageTooLarge);
                self.end_for(state, error, is_admitted);
            }
        }
        self.core.inflated = emptied(inflated);
    }

    /// Ends a connection whose peer broke RFC 6455; `counts` if the message was not refused before.
    #[cold]
    pub(crate) fn end_for(
        &mut self,
        state: &mut ConnectionState,
        error: ProtocolError,
        counts: bool,
    ) {
        if error != ProtocolError::MessageTooLarge {
            self.core.counters.protocol_errors.add(1);
        } else if counts {
            self.core.counters.messages_refused_size.add(1);
        }
        self.end(state, error.close_code(), &error.to_string());
    }

    fn handle_control(&mut self, state: &mut ConnectionState, event: &Event<'_>) {
        let id = state.key.id;
        match event {
            Event::Ping(payload) => {
                self.core.counters.pings_received.add(1);
                if state.phase == Phase::Open
                    && let Some(buffer) = self.io.buffer(id)
                {
                    frame::write_frame(buffer, OpCode::Pong, payload, None);
                }
            }
            Event::Pong(_) => self.core.counters.pongs_received.add(1),
            Event::Close(code, _) => {
                let reason = match state.phase {
                    Phase::Closing(ours) => CloseReason::ByUs(ours),
                    _ => {
                        if let Some(buffer) = self.io.buffer_in(id, Priority::Background) {
                            frame::write_close(buffer, *code, "", None);
                        }
                        CloseReason::ByPeer(*code)
                    }
                };
                self.finish(state, reason);
            }
            Event::Text(_) | Event::Binary(_) | Event::Compressed(_) => {}
        }
    }

    /// Tells the application of a new session or, if it has to be encrypted, waits for that.
    pub(crate) fn announce_when_encrypted(&mut self, state: &mut ConnectionState, peer: Peer) {
        let config = &self.core.shared.config;
        if config.encryption != Encryption::Required {
            return self.announce(state, &peer);
        }
        let timeout_ms = config.limits.handshake_timeout_ms;
        let until_ms = self.now.monotonic_ms.saturating_add(timeout_ms);
        state.unannounced = Some(Box::new(Unannounced { peer, until_ms }));
        self.set_timer(state);
    }

    /// Has the timer of an open session run when there is something to do.
    pub(crate) fn set_timer(&mut self, state: &ConnectionState) {
        let due_ms = state.due_ms(&self.core.shared.profile);
        self.io.set_timer(state.key.id, due_ms);
    }

    /// Tells the application of a session.
    pub(crate) fn announce(&mut self, state: &mut ConnectionState, peer: &Peer) {
        let mut context = Context {
            io: self.io,
            core: self.core,
            state,
        };
        tracing::debug!(
            connection = %peer.connection,
            user = peer.user.as_deref(),
            address = peer.address.map(tracing::field::display),
            "a session starts",
        );
        self.app.on_connect(&mut context, peer);
        if let Some((code, reason)) = state.close.take() {
            self.start_close(state, code, reason);
        }
    }

    /// Hands a message to the application.
    #[inline]
    pub(crate) fn deliver(&mut self, state: &mut ConnectionState, message: Message<'_>) {
        self.tally.delivered += 1;
        let mut context = Context {
            io: self.io,
            core: self.core,
            state,
        };
        self.app.on_message(&mut context, message);
    }

    /// Sends a close and waits for the answer; messages are still taken until it comes.
    pub(crate) fn start_close(
        &mut self,
        state: &mut ConnectionState,
        code: CloseCode,
        reason: &str,
    ) {
        if state.phase != Phase::Open {
            return;
        }
        state.phase = Phase::Closing(code);
        self.core.leave_topics(self.io, state);
        let id = state.key.id;
        // Behind everything that waits, whatever its priority: nothing may follow a close.
        if let Some(buffer) = self.io.buffer_in(id, Priority::Background) {
            frame::write_close(buffer, Some(code), reason, None);
        }
        // The answer must get through to end the session in time.
        self.io.resume_reading(id);
        self.await_close(id);
    }

    /// Gives the peer time to answer a close.
    fn await_close(&mut self, id: ConnectionId) {
        let timeout_ms = self.core.shared.config.limits.close_timeout_ms;
        self.io
            .set_timer(id, self.now.monotonic_ms.saturating_add(timeout_ms));
    }

    /// Sends a close after which nothing that comes can matter.
    pub(crate) fn end(&mut self, state: &mut ConnectionState, code: CloseCode, reason: &str) {
        if !matches!(state.phase, Phase::Closing(_))
            && let Some(buffer) = self.io.buffer_in(state.key.id, Priority::Background)
        {
            frame::write_close(buffer, Some(code), reason, None);
        }
        self.finish(state, CloseReason::ByUs(code));
    }

    fn finish(&mut self, state: &mut ConnectionState, reason: CloseReason) {
        state.phase = Phase::Over;
        state.ended = Some(reason);
        self.core.leave_topics(self.io, state);
        self.io.close(state.key.id);
    }

    pub(crate) fn handle_timer(&mut self, state: &mut ConnectionState) {
        let id = state.key.id;
        match state.phase {
            Phase::Opening => {
                self.core.counters.handshake_timeouts.add(1);
                // Without TLS there is no way to say it to a peer that expects TLS.
                if self.io.is_tls_held(id) {
                    return self.io.abort(id);
                }
                if let Some(buffer) = self.io.buffer(id) {
                    write_rejection(408, &[], "the request took too long\n", buffer);
                }
                self.io.close(id);
            }
            // Not the peer's silence: its answer may wait behind messages that are not being read.
            Phase::Closing(_) if state.pauses.application => self.await_close(id),
            Phase::Closing(code) => {
                state.ended = Some(CloseReason::ByUs(code));
                self.io.abort(id);
            }
            Phase::Open => {
                let now_ms = self.now.monotonic_ms;
                let waits_in_vain = |session: &Unannounced| now_ms >= session.until_ms;
                if state.unannounced.as_deref().is_some_and(waits_in_vain) {
                    return self.require_encryption(state);
                }
                if self.check_expiry(state) {
                    return;
                }
                self.tell_refusals(state);
                self.check_idle(state);
            }
            Phase::Over => {}
        }
    }

    /// Pings a silent peer, and ends its session if it stays silent.
    fn check_idle(&mut self, state: &mut ConnectionState) {
        let outbox_bytes = self.io.queued_bytes(state.key.id);
        let takes_some = outbox_bytes < state.pauses.outbox_bytes_seen;
        state.pauses.outbox_bytes_seen = outbox_bytes;
        if state.pauses.application || takes_some || !state.jobs.is_empty() {
            // Not the peer's silence: it is not being read, or has yet to come to our ping.
            state.session.handle_heard(self.now.monotonic_ms);
        }
        let profile = &self.core.shared.profile;
        match state.session.handle_timeout(profile, self.now) {
            TimeoutAction::CloseIdle => {
                self.core.counters.idle_timeouts.add(1);
                self.end(
                    state,
                    CloseCode::IDLE_TIMEOUT,
                    "nothing was heard for too long",
                );
                return;
            }
            TimeoutAction::SendPing => {
                if self.core.shared.config.protocol == Protocol::V1 {
                    self.reply(state, &Reply::Ping);
                }
                // Every WebSocket library answers this one, with or without code for our messages.
                if let Some(buffer) = self.io.buffer(state.key.id) {
                    frame::write_frame(buffer, OpCode::Ping, b"", None);
                }
            }
            TimeoutAction::None => {}
        }
        self.set_timer(state);
    }
}

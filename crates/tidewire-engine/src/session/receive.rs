//! Protocol version 1 in the server: its own messages are answered, the others go to the application.

use crate::clock::wire_now;
use crate::limits::errors::ErrorVerdict;
use crate::model::{Encoding, Message};
use crate::session::Turn;
use crate::session::application::Application;
use crate::state::connection::{ConnectionState, Phase};
use crate::state::core::{Core, emptied};
use crate::state::jobs::{BatchJob, Job, Refresh};
use crate::topics::publication::Payload;
use tidewire_net::Io;
use tidewire_wire::close::CloseCode;
use tidewire_wire::codes::ErrorCode;
use tidewire_wire::envelope::{Kind, Priority, SystemType, classify_json, classify_msgpack};
use tidewire_wire::format::{Format, FormatError, Framing, MESSAGEPACK_PREFIX, identify};
use tidewire_wire::frame::write_frame_with;
use tidewire_wire::session::{
    Now, Reply, Request, RequestKind, ServerProfile, ServerSession, SystemEvent,
};
use tidewire_wire::uuid::Uuid;

impl<A: Application> Turn<'_, A> {
    #[inline]
    pub(crate) fn handle_v1(
        &mut self,
        state: &mut ConnectionState,
        encoding: Encoding,
        bytes: &[u8],
    ) {
        if !self.may_be_plain(state, encoding, bytes) {
            return;
        }
        if encoding == Encoding::Text {
            self.handle_json(state, bytes);
        } else {
            self.handle_binary(state, bytes);
        }
    }

    #[inline]
    fn handle_json(&mut self, state: &mut ConnectionState, text: &[u8]) {
        match classify_json(text) {
            Ok(Kind::Application) => {
                self.handle_application(state, Format::Json, Encoding::Text, text);
            }
            Ok(Kind::System(system)) => self.handle_system(state, system, Format::Json, text),
            Err(error) => self.refuse(state, &error.to_string()),
        }
    }

    fn handle_message_pack(&mut self, state: &mut ConnectionState, bytes: &[u8]) {
        match classify_msgpack(bytes) {
            Ok(Kind::Application) => {
                self.handle_application(state, Format::MessagePack, Encoding::MessagePack, bytes);
            }
            Ok(Kind::System(system)) => {
                self.handle_system(state, system, Format::MessagePack, bytes);
            }
            Err(error) => self.refuse(state, &error.to_string()),
        }
    }

    #[inline]
    fn handle_application(
        &mut self,
        state: &mut ConnectionState,
        format: Format,
        encoding: Encoding,
        bytes: &[u8],
    ) {
        if self.may_be_unsigned(state, format, bytes, None) {
            let message = Message { encoding, bytes };
            if state.intake.is_some() {
                self.take_in(state, format, message);
            } else {
                self.deliver(state, message);
            }
        }
    }

    fn handle_binary(&mut self, state: &mut ConnectionState, bytes: &[u8]) {
        match identify(bytes) {
            Framing::Encrypted => self.handle_encrypted(state, bytes),
            framing => self.handle_form(state, framing, bytes),
        }
    }

    /// Any form but `E:`.
    pub(crate) fn handle_form(
        &mut self,
        state: &mut ConnectionState,
        framing: Framing,
        bytes: &[u8],
    ) {
        match framing {
            Framing::Zlib { prefix_bytes } => self.handle_zlib(state, &bytes[prefix_bytes..]),
            framing => self.handle_plain(state, framing, bytes),
        }
    }

    fn handle_plain(&mut self, state: &mut ConnectionState, framing: Framing, bytes: &[u8]) {
        match framing {
            Framing::Json => match std::str::from_utf8(bytes) {
                Ok(text) => self.handle_json(state, text.as_bytes()),
                Err(_) => self.refuse(state, "a binary JSON message is not UTF-8"),
            },
            Framing::MessagePack => {
                self.handle_message_pack(state, &bytes[MESSAGEPACK_PREFIX.len()..]);
            }
            Framing::Encrypted => self.refuse(state, "a compressed message holds an encrypted one"),
            Framing::Zlib { .. } => {
                self.refuse(state, "a compressed message holds a compressed one");
            }
        }
    }

    fn handle_zlib(&mut self, state: &mut ConnectionState, compressed: &[u8]) {
        let limit = self.core.shared.config.limits.message_bytes_max;
        let mut inflated = std::mem::take(&mut self.core.inflated);
        match self.core.inflater.inflate(compressed, &mut inflated, limit) {
            Ok(()) => {
                self.core.counters.messages_inflated.add(1);
                self.charge_inflated(state, inflated.len());
                self.handle_plain(state, identify(&inflated), &inflated);
            }
            Err(error @ FormatError::TooLarge { .. }) => {
                self.charge_inflated(state, limit);
                self.core.counters.messages_refused_size.add(1);
                self.reply(
                    state,
                    &Reply::error(ErrorCode::MessageTooLarge, error.to_string()),
                );
            }
            Err(error) => self.refuse(state, &error.to_string()),
        }
        self.core.inflated = emptied(inflated);
    }

    /// A message that is not one of version 1: counted, answered, and nothing else.
    #[cold]
    pub(crate) fn refuse(&mut self, state: &mut ConnectionState, why: &str) {
        self.core.counters.messages_refused_invalid.add(1);
        self.reply(
            state,
            &Reply::error(ErrorCode::InvalidMessage, why.to_owned()),
        );
    }

    fn handle_system(
        &mut self,
        state: &mut ConnectionState,
        system: SystemType,
        format: Format,
        bytes: &[u8],
    ) {
        if !self.may_be_unsigned(state, format, bytes, Some(system)) {
            return;
        }
        self.core.counters.system_messages_received.add(1);
        let profile = &self.core.shared.profile;
        match state.session.handle_system(profile, system, format, bytes) {
            SystemEvent::Hello {
                correlation_id,
                producer,
            } => self.reply_hello(state, correlation_id, producer),
            SystemEvent::Reply(reply) => {
                self.reply(state, &reply);
                if matches!(reply, Reply::Error { code, .. } if !code.recoverable()) {
                    self.start_close(
                        state,
                        CloseCode::POLICY_VIOLATION,
                        "the session cannot go on",
                    );
                }
            }
            SystemEvent::KeyExchange {
                offer,
                correlation_id,
                producer,
            } => self.exchange_keys(state, &offer, correlation_id, producer),
            SystemEvent::KeyUpdate { request } => self.update_keys(state, request),
            SystemEvent::Publish if state.intake.is_some() => {
                self.take_publication(state, format, bytes);
            }
            SystemEvent::Publish => {
                self.handle_publish(state, format, bytes);
            }
            SystemEvent::Ignore => {}
            SystemEvent::Request(request) => self.answer(state, request),
            SystemEvent::Batch(messages) => {
                state.jobs.push(Job::Batch(BatchJob::new(messages, format)));
            }
        }
    }

    /// One message of a batch. The batch was admitted as one message; each further one counts too.
    pub(crate) fn handle_inner(
        &mut self,
        state: &mut ConnectionState,
        format: Format,
        message: &[u8],
        is_first: bool,
    ) {
        self.tally.received += 1;
        if is_first || self.admit(state) {
            match format {
                Format::Json => self.handle_json(state, message),
                Format::MessagePack => self.handle_message_pack(state, message),
            }
        }
    }

    fn answer(&mut self, state: &mut ConnectionState, request: Request) {
        let Request {
            kind,
            correlation_id,
        } = request;
        match kind {
            RequestKind::Subscription(subscription) => {
                self.handle_subscription(state, subscription, correlation_id);
            }
            RequestKind::Call(call) => {
                self.handle_call(state, &call, correlation_id.unwrap_or_default());
            }
            RequestKind::CallResponse(result) => {
                self.handle_call_response(state, result, &correlation_id.unwrap_or_default());
            }
            RequestKind::Sync(request) => self.handle_sync(state, request, correlation_id),
            RequestKind::Acknowledge(deliveries) => self.core.acknowledge(state, &deliveries),
            RequestKind::AuthRefresh(token) => {
                let refresh = Refresh::new(token, correlation_id);
                state.jobs.push(Job::Refresh(Box::new(refresh)));
            }
            RequestKind::History(query) => {
                self.handle_history_request(state, query, correlation_id);
            }
            RequestKind::Presence(request) => {
                self.handle_presence_request(state, request, correlation_id);
            }
            kind => {
                let reply = crate::session::server_requests::answer(
                    &self.core.shared,
                    kind,
                    correlation_id,
                );
                self.reply(state, &reply);
            }
        }
    }

    /// Says one of the protocol's own messages, unless this side has said its last already.
    pub(crate) fn reply(&mut self, state: &mut ConnectionState, reply: &Reply) {
        self.core.reply(self.io, state, reply);
    }
}

impl Core {
    /// Says one of the protocol's own messages, unless this side has said its last already.
    pub(crate) fn reply(&mut self, io: &mut Io, state: &mut ConnectionState, reply: &Reply) {
        if state.phase != Phase::Open {
            return;
        }
        if let Reply::Error { code, .. } = reply {
            match self.count_error(io, state, *code) {
                ErrorVerdict::Tell => {}
                ErrorVerdict::Silence => return,
                ErrorVerdict::Open => {
                    self.say(io, state, reply);
                    return self.open_breaker(io, state);
                }
            }
        }
        self.say(io, state, reply);
    }

    /// [`Self::reply`] in a session that is open.
    pub(crate) fn say(&mut self, io: &mut Io, state: &mut ConnectionState, reply: &Reply) {
        let now = wire_now(io);
        let id = self.new_id(now.unix_ms);
        if state.layers.is_some() {
            let mut message = Vec::new();
            let profile = &self.shared.profile;
            let opcode = state.session.encode(profile, reply, id, now, &mut message);
            return self.send(io, state, Payload::new(opcode, &message));
        }
        let mut priority = Priority::Normal;
        if matches!(reply, Reply::SubscriptionUpdate { .. }) {
            // Publications of any priority stay on their side of it.
            io.fence(state.key.id);
            priority = Priority::Critical;
        }
        let Some(buffer) = io.buffer_in(state.key.id, priority) else {
            return;
        };
        let profile = &self.shared.profile;
        let payload_bytes = write_message(buffer, &mut state.session, profile, reply, id, now);
        self.count_sent(payload_bytes);
    }
}

/// Appends a frame with one of the protocol's own messages; how many bytes its payload has.
pub(crate) fn write_message(
    buffer: &mut Vec<u8>,
    session: &mut ServerSession,
    profile: &ServerProfile,
    reply: &Reply,
    id: Uuid,
    now: Now,
) -> usize {
    let mut payload_bytes = 0;
    write_frame_with(buffer, None, |out| {
        let before = out.len();
        let opcode = session.encode(profile, reply, id, now, out);
        payload_bytes = out.len() - before;
        opcode
    });
    payload_bytes
}

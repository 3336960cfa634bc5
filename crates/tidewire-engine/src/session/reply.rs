//! Replies of the protocol: what the server itself sends to a client.

use crate::limits::errors::ErrorVerdict;
use crate::limits::work::{LONG_MESSAGE_BYTES, cost};
use crate::session::Session;
use crate::topics::publication::Payload;
use std::borrow::Cow;
use tidewire_wire::codes::ErrorCode;
use tidewire_wire::envelope::{Priority, readable_correlation_id};
use tidewire_wire::format::Format;
use tidewire_wire::frame::write_frame_with;
use tidewire_wire::session::{Now, Reply, ServerProfile, ServerSession};
use tidewire_wire::uuid::Uuid;

impl Session<'_> {
    /// Refuses a message of which nothing can be read: it is counted and answered with an error.
    #[cold]
    pub(crate) fn refuse_unread(&mut self, why: &str) {
        self.core.counters.messages_refused_invalid.add(1);
        self.reply(&Reply::error(ErrorCode::InvalidMessage, why.to_owned()));
    }

    /// Refuses a message that does not follow version 1. The error has its `cid`, wherever that stands.
    #[cold]
    pub(crate) fn refuse(&mut self, format: Format, bytes: &[u8], why: &str) {
        self.core.counters.messages_refused_invalid.add(1);
        if bytes.len() >= LONG_MESSAGE_BYTES {
            // It was read up to its error, and then for its `cid`.
            self.core
                .turn
                .meter
                .spend(cost::read(format, bytes.len(), false));
        }
        self.reply_error(
            ErrorCode::InvalidMessage,
            why.to_owned(),
            readable_correlation_id(format, bytes),
        );
    }

    /// Sends an error about the message that has this `cid`.
    pub(crate) fn reply_error(
        &mut self,
        code: ErrorCode,
        message: impl Into<Cow<'static, str>>,
        correlation_id: Option<String>,
    ) {
        self.reply(&Reply::Error {
            code,
            message: message.into(),
            retry_after_s: None,
            refused: None,
            correlation_id,
        });
    }

    /// Sends one of the protocol's own messages, unless this side has sent a close. An error counts
    /// against the error budget of the connection.
    pub(crate) fn reply(&mut self, reply: &Reply) {
        if !self.state.is_open() {
            return;
        }
        if let Reply::Error { code, .. } = reply {
            match self.count_error(*code) {
                ErrorVerdict::Report => {}
                ErrorVerdict::Silence => return,
                ErrorVerdict::Exhausted => {
                    self.say(reply);
                    return self.exhaust_error_budget();
                }
            }
        }
        self.say(reply);
    }

    /// [`Self::reply`] in a session that is open.
    pub(crate) fn say(&mut self, reply: &Reply) {
        let now = self.now();
        let id = self.core.new_id(now.unix_ms);
        if self.state.layers.is_some() {
            let mut message = Vec::new();
            let profile = &self.core.setup.profile;
            let opcode = self
                .state
                .session
                .encode(profile, reply, id, now, &mut message);
            return self.send(Payload::new(opcode, &message));
        }
        let mut priority = Priority::Normal;
        if matches!(reply, Reply::SubscriptionUpdate { .. }) {
            // Publications of any priority stay on their side of it.
            self.io.fence(self.state.key.id);
            priority = Priority::Critical;
        }
        let Some(buffer) = self.io.buffer_in(self.state.key.id, priority) else {
            return;
        };
        let profile = &self.core.setup.profile;
        let payload_bytes = write_message(buffer, &mut self.state.session, profile, reply, id, now);
        self.core.count_sent(payload_bytes);
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

//! Requests of a client.

use super::super::call::{self, Call, CallResult};
use super::super::{
    Action, HistoryQuery, Now, Object, Overload, PublishRequest, RecoveryPosition, Token, op_code,
    write_message,
};
use super::ClientSession;
use crate::envelope::SystemType;
use crate::format::{Format, FormatError, Place, pack};
use crate::frame::OpCode;
use crate::json::text::write_string;
use crate::uuid::Uuid;
use serde_json::Value;

/// Topics to have or to have no longer, as a client asks for them.
#[derive(Clone, Copy, Debug)]
pub struct SubscriptionRequest<'a> {
    /// Which of the two.
    pub action: Action,
    /// The topics and patterns: 1 to [`TOPICS_PER_REQUEST_MAX`](super::super::TOPICS_PER_REQUEST_MAX).
    pub topics: &'a [&'a str],
    /// The data that other subscribers receive about this one: an object.
    pub presence: Option<&'a Value>,
    /// Whether missed messages are wanted.
    pub recover: bool,
    /// From where on.
    pub recovery: &'a [RecoveryPosition],
    /// How many of the newest publications of each topic's history are wanted; 0 for none.
    pub replay: u64,
    /// The group of which each message goes to one member only.
    pub queue_group: Option<&'a str>,
    /// Which publications are wanted: a filter document, an object.
    pub filter: Option<&'a Value>,
    /// The overload policy: the treatment of publications that are not read in time.
    pub overload: Option<Overload>,
    /// Whether deliveries to this member of a queue group will be acknowledged.
    pub acknowledge: bool,
    /// Deliveries that may be unacknowledged at once.
    pub window: Option<u64>,
    /// Tokens that allow topics, by topic: at most
    /// [`TOKENS_PER_REQUEST_MAX`](super::super::TOKENS_PER_REQUEST_MAX).
    pub tokens: &'a [(String, Token)],
    /// Whether these are subscriptions that the server made. Then nothing but the topics and the recovery counts.
    pub renew: bool,
}

impl<'a> SubscriptionRequest<'a> {
    /// A request for `topics` with nothing special.
    #[must_use]
    pub fn new(action: Action, topics: &'a [&'a str]) -> Self {
        Self {
            action,
            topics,
            presence: None,
            recover: false,
            recovery: &[],
            replay: 0,
            queue_group: None,
            filter: None,
            overload: None,
            acknowledge: false,
            window: None,
            tokens: &[],
            renew: false,
        }
    }

    fn write_payload(&self, out: &mut Vec<u8>) {
        let mut object = Object::open(out);
        object.text("action", self.action.as_str());
        object.texts("topics", self.topics);
        if let Some(presence) = self.presence {
            object.with("presence", |out| write_value(presence, out));
        }
        if self.recover {
            object.boolean("recover", true);
        }
        if !self.recovery.is_empty() {
            object.with("recovery", |out| write_positions(self.recovery, out));
        }
        if self.replay > 0 {
            object.number("replay", self.replay);
        }
        if let Some(queue_group) = self.queue_group {
            object.text("queue_group", queue_group);
        }
        if let Some(filter) = self.filter {
            object.with("filter", |out| write_value(filter, out));
        }
        if let Some(overload) = self.overload {
            object.text("overload", overload.as_str());
        }
        if self.acknowledge {
            object.boolean("acknowledge", true);
        }
        if let Some(window) = self.window {
            object.number("window", window);
        }
        if !self.tokens.is_empty() {
            object.with("tokens", |out| write_tokens(self.tokens, out));
        }
        if self.renew {
            object.boolean("renew", true);
        }
        object.close();
    }
}

impl ClientSession {
    /// Appends `subscription_update` and returns the kind of its frame.
    pub fn write_subscription(
        &mut self,
        request: &SubscriptionRequest<'_>,
        correlation_id: Option<&str>,
        id: Uuid,
        now: Now,
        out: &mut Vec<u8>,
    ) -> OpCode {
        let header = self.header(SystemType::SubscriptionUpdate, correlation_id, id, now);
        write_message(&header, self.format(), out, |out| {
            request.write_payload(out);
        })
    }

    /// Appends `publish_request` and returns the kind of its frame. The server answers it only if it has a
    /// `correlation_id`; `number` is a producer's. The payload is not checked.
    ///
    /// # Errors
    /// Only in MessagePack: a payload that is not JSON or, with the two levels around it, is nested
    /// too deep; `out` is as it was before.
    pub fn write_publish(
        &mut self,
        request: &PublishRequest<'_>,
        correlation_id: Option<&str>,
        number: Option<u64>,
        id: Uuid,
        now: Now,
        out: &mut Vec<u8>,
    ) -> Result<OpCode, FormatError> {
        let mut header = self.header(SystemType::PublishRequest, correlation_id, id, now);
        header.number = number;
        match self.format() {
            Format::Json => header.write_json_with(out, |out| request.write_payload(out)),
            Format::MessagePack => {
                let mut text = Vec::new();
                request.write_payload(&mut text);
                let mut payload = Vec::with_capacity(text.len());
                pack(Place::Carried, &text, &mut payload)?;
                header.write_msgpack(&payload, out);
            }
        }
        Ok(op_code(self.format()))
    }

    /// Appends `history_request` and returns the kind of its frame.
    pub fn write_history_request(
        &mut self,
        query: &HistoryQuery,
        correlation_id: Option<&str>,
        id: Uuid,
        now: Now,
        out: &mut Vec<u8>,
    ) -> OpCode {
        let header = self.header(SystemType::HistoryRequest, correlation_id, id, now);
        write_message(&header, self.format(), out, |out| query.write_payload(out))
    }

    /// Appends `publication_ack` for 1 to [`DELIVERIES_PER_ACK_MAX`](super::super::DELIVERIES_PER_ACK_MAX)
    /// deliveries and returns the kind of its frame.
    pub fn write_publication_ack(
        &mut self,
        deliveries: &[u64],
        id: Uuid,
        now: Now,
        out: &mut Vec<u8>,
    ) -> OpCode {
        self.write(SystemType::PublicationAck, id, now, out, |out| {
            let mut object = Object::open(out);
            object.numbers("deliveries", deliveries);
            object.close();
        })
    }

    /// Appends `presence_request` for 1 to
    /// [`TOPICS_PER_PRESENCE_REQUEST_MAX`](super::super::TOPICS_PER_PRESENCE_REQUEST_MAX) topics and returns
    /// the kind of its frame. `limit` is the maximum number of members of each topic in the answer.
    #[expect(clippy::too_many_arguments, reason = "the fields of the message")]
    pub fn write_presence_request(
        &mut self,
        topics: &[&str],
        counts_only: bool,
        limit: Option<u64>,
        correlation_id: Option<&str>,
        id: Uuid,
        now: Now,
        out: &mut Vec<u8>,
    ) -> OpCode {
        let header = self.header(SystemType::PresenceRequest, correlation_id, id, now);
        write_message(&header, self.format(), out, |out| {
            let mut object = Object::open(out);
            object.texts("topics", topics);
            if counts_only {
                object.boolean("counts_only", true);
            }
            if let Some(limit) = limit {
                object.number("limit", limit);
            }
            object.close();
        })
    }

    /// Appends `auth_refresh` with a token of 1 to [`TOKEN_BYTES_MAX`](super::super::TOKEN_BYTES_MAX) bytes and
    /// returns the kind of its frame.
    pub fn write_auth_refresh(
        &mut self,
        token: &str,
        correlation_id: Option<&str>,
        id: Uuid,
        now: Now,
        out: &mut Vec<u8>,
    ) -> OpCode {
        let header = self.header(SystemType::AuthRefresh, correlation_id, id, now);
        write_message(&header, self.format(), out, |out| {
            let mut object = Object::open(out);
            object.text("token", token);
            object.close();
        })
    }

    /// Appends `call_request` and returns the kind of its frame. The payload is one JSON value and is not checked.
    pub fn write_call_request(
        &mut self,
        call: &Call,
        correlation_id: &str,
        id: Uuid,
        now: Now,
        out: &mut Vec<u8>,
    ) -> OpCode {
        let header = self.header(SystemType::CallRequest, Some(correlation_id), id, now);
        write_message(&header, self.format(), out, |out| {
            call.write_payload(out);
        })
    }

    /// Appends `call_response` and returns the kind of its frame. A payload is one JSON value and is not checked.
    pub fn write_call_response(
        &mut self,
        result: &CallResult,
        correlation_id: &str,
        id: Uuid,
        now: Now,
        out: &mut Vec<u8>,
    ) -> OpCode {
        let header = self.header(SystemType::CallResponse, Some(correlation_id), id, now);
        write_message(&header, self.format(), out, |out| {
            call::write_result(result, out);
        })
    }
}

fn write_tokens(tokens: &[(String, Token)], out: &mut Vec<u8>) {
    let mut object = Object::open(out);
    for (topic, token) in tokens {
        object.with_any_name(topic, |out| write_string(&token.0, out));
    }
    object.close();
}

fn write_positions(positions: &[RecoveryPosition], out: &mut Vec<u8>) {
    let mut object = Object::open(out);
    for position in positions {
        object.with_any_name(&position.topic, |out| {
            let mut fields = Object::open(out);
            fields.text("epoch", &position.epoch);
            fields.number("offset", position.offset);
            fields.close();
        });
    }
    object.close();
}

fn write_value(value: &Value, out: &mut Vec<u8>) {
    out.extend_from_slice(value.to_string().as_bytes());
}

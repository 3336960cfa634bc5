//! What a server says of its own accord or in answer to a system message.

use super::call::{self, Call, CallResult};
use super::payload::{
    Context, write_error, write_expiry, write_gap, write_hello, write_key_update, write_numbers,
    write_pong, write_presence, write_publish_response, write_ready, write_reconnect,
    write_subscription,
};
use super::{Action, HelloEncryption, HistoryPage, history};
use crate::codes::ErrorCode;
use crate::envelope::SystemType;
use crate::uuid::Uuid;
use serde_json::Value;
use std::borrow::Cow;

/// A message of the server's own. `correlation_id` is that of the request it answers, if any.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// `server_ready`, the first message. The session remembers `connection_id`.
    Ready {
        /// The connection's id.
        connection_id: Uuid,
        /// The user that the token named.
        user_id: Option<String>,
    },
    /// `server_hello`, from what the session has negotiated.
    Hello {
        /// `cid`.
        correlation_id: Option<String>,
        /// The answer to a [`SystemEvent::KeyExchange`](super::SystemEvent::KeyExchange).
        encryption: Option<Box<HelloEncryption>>,
        /// Where the producer stands that the client said it is, if the server keeps it.
        producer: Option<ProducerState>,
    },
    /// `key_update`: what this side sends after it is encrypted with the next key.
    KeyUpdate {
        /// Whether the client shall change its key too.
        request: bool,
    },
    /// `PONG`.
    Pong {
        /// The timestamp of the ping, milliseconds since 1970; `None` if it had none.
        client_timestamp_ms: Option<u64>,
    },
    /// `ping`, with the time of encoding.
    Ping,
    /// `error`.
    Error {
        /// What went wrong.
        code: ErrorCode,
        /// The same in words.
        message: Cow<'static, str>,
        /// Seconds after which another try makes sense.
        retry_after_s: Option<u64>,
        /// How many messages it answers, if not one: those refused since the last error of this kind.
        refused: Option<u64>,
        /// `cid`.
        correlation_id: Option<String>,
    },
    /// `subscription_update`.
    SubscriptionUpdate {
        /// What was asked for.
        action: Action,
        /// Topics for which it was done.
        success_topics: Vec<String>,
        /// Topics for which it was not.
        failed_topics: Vec<String>,
        /// Why, for each of `failed_topics`; empty to tell no reasons.
        failures: Vec<TopicFailure>,
        /// Where each topic of the answer that has history stands, recovery asked for or not.
        recovery: Vec<TopicRecovery>,
        /// `cid`.
        correlation_id: Option<String>,
    },
    /// `config_response`.
    ConfigResponse {
        /// The payload.
        payload: Value,
        /// `cid`.
        correlation_id: Option<String>,
    },
    /// `health_check_response`.
    HealthCheckResponse {
        /// The payload.
        payload: Value,
        /// `cid`.
        correlation_id: Option<String>,
    },
    /// `metrics_response`.
    MetricsResponse {
        /// The payload.
        payload: Value,
        /// `cid`.
        correlation_id: Option<String>,
    },
    /// `rate_limit_warning`.
    RateLimitWarning {
        /// Messages of the limit that are used up.
        current_rate: u64,
        /// Messages that may come at once.
        limit: u64,
        /// Messages left of them.
        remaining: u64,
        /// Seconds until there are more.
        retry_after_s: u64,
    },
    /// `publish_response`.
    PublishResponse {
        /// The topic.
        topic: String,
        /// Whether a publication with the same idempotency key had been taken before, so that this one
        /// was not.
        duplicate: bool,
        /// The epoch and the offset; only with history.
        position: Option<(u32, u64)>,
        /// `cid`.
        correlation_id: Option<String>,
    },
    /// `presence_response`.
    PresenceResponse {
        /// The topics of which the client may know.
        topics: Vec<TopicPresence>,
        /// The others.
        failed_topics: Vec<String>,
        /// `cid`.
        correlation_id: Option<String>,
    },
    /// `history_response`.
    HistoryResponse {
        /// What is kept.
        page: Box<HistoryPage>,
        /// `cid`.
        correlation_id: Option<String>,
    },
    /// `publication_gap`.
    PublicationGap(PublicationGap),
    /// `message_ack`.
    MessageAck {
        /// The last number taken; all before it have been too.
        last: u64,
    },
    /// `call_request`, to be answered by the client's application.
    CallRequest {
        /// What is asked; its payload is one JSON value and is not checked.
        call: Call,
        /// `cid`.
        correlation_id: String,
    },
    /// `call_response`.
    CallResponse {
        /// What is answered; a payload is one JSON value and is not checked.
        result: CallResult,
        /// `cid`.
        correlation_id: String,
    },
    /// `reconnect`, before a close.
    Reconnect {
        /// How long the client waits before it opens a new connection, in milliseconds.
        after_ms: u64,
        /// Why, in words.
        reason: Cow<'static, str>,
    },
    /// `auth_expiry_warning`: the session ends soon unless the client gives it another token.
    AuthExpiryWarning {
        /// Milliseconds until the token expires; 0 if it has.
        expires_in_ms: u64,
        /// Milliseconds until the session ends.
        ends_in_ms: u64,
    },
    /// `auth_refresh_response`: the session has another token.
    AuthRefreshResponse {
        /// Milliseconds until it expires; 0 if it has, but is still accepted.
        expires_in_ms: u64,
        /// Milliseconds until the session ends; `None` if it does not end with its token.
        ends_in_ms: Option<u64>,
        /// `cid`.
        correlation_id: Option<String>,
    },
}

/// A producer and how far its messages have been taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProducerState {
    /// The id that the client gave itself.
    pub id: String,
    /// Drawn when the server first heard of the producer: another one than last time means that the
    /// producer was forgotten, and its numbers begin with 1 again.
    pub epoch: u32,
    /// The last number taken; 0 for none.
    pub last: u64,
}

/// Who is on a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicPresence {
    /// The topic.
    pub topic: String,
    /// How many users.
    pub users: u64,
    /// On how many connections.
    pub connections: u64,
    /// Whether there are more members than are named.
    pub truncated: bool,
    /// The members; `None` if only the counts were asked for.
    pub members: Option<Vec<PresenceMember>>,
}

/// A user on a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PresenceMember {
    /// Who.
    pub user: String,
    /// On how many connections.
    pub connections: u64,
    /// The subscriber's `presence`, as JSON that is not checked.
    pub data: Option<String>,
}

/// Publications of a topic that a subscriber does not get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicationGap {
    /// The topic.
    pub topic: String,
    /// Why.
    pub reason: GapReason,
    /// How many.
    pub count: u64,
    /// Which; only with history.
    pub range: Option<GapRange>,
}

/// Why publications are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GapReason {
    /// `dropped`: the subscriber did not read them in time.
    Dropped,
    /// `conflated`: a newer one of the same key took their place.
    Conflated,
    /// `expired`: their time to live ended before they could be sent.
    Expired,
    /// `broker`: the broker behind several servers lost its connection or its data. A count of 0
    /// means that nobody knows how many are missing.
    Broker,
}

/// The publications of a gap: all of them lie between two offsets of one epoch, though not all
/// between them need be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GapRange {
    /// The epoch of the topic's history.
    pub epoch: u32,
    /// The offset of the first one.
    pub from: u64,
    /// The offset of the last one.
    pub to: u64,
}

impl GapReason {
    /// The spelling on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Dropped => "dropped",
            Self::Conflated => "conflated",
            Self::Expired => "expired",
            Self::Broker => "broker",
        }
    }

    /// The reason with this spelling.
    pub fn parse(spelling: &str) -> Option<Self> {
        [Self::Dropped, Self::Conflated, Self::Expired, Self::Broker]
            .into_iter()
            .find(|reason| reason.as_str() == spelling)
    }
}

/// Why a topic could not be subscribed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicFailure {
    /// The topic or pattern, as the request has it.
    pub topic: String,
    /// One of the protocol's error codes, such as `TOPIC_FORBIDDEN`.
    pub code: String,
    /// The same in words.
    pub message: String,
}

/// Where a subscription stands after recovery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicRecovery {
    /// The topic.
    pub topic: String,
    /// The epoch of its history.
    pub epoch: String,
    /// The offset of its newest message.
    pub offset: u64,
    /// Whether nothing was missed.
    pub recovered: bool,
    /// Messages sent again.
    pub count: u64,
}

impl Reply {
    /// An error without a time to retry, answering no request in particular.
    pub fn error(code: ErrorCode, message: impl Into<Cow<'static, str>>) -> Self {
        let message = message.into();
        Self::Error {
            code,
            message,
            retry_after_s: None,
            refused: None,
            correlation_id: None,
        }
    }

    pub(super) fn system_type(&self) -> SystemType {
        match self {
            Self::Ready { .. } => SystemType::ServerReady,
            Self::Hello { .. } => SystemType::ServerHello,
            Self::KeyUpdate { .. } => SystemType::KeyUpdate,
            Self::Pong { .. } => SystemType::Pong,
            Self::Ping => SystemType::Ping,
            Self::Error { .. } => SystemType::Error,
            Self::SubscriptionUpdate { .. } => SystemType::SubscriptionUpdate,
            Self::ConfigResponse { .. } => SystemType::ConfigResponse,
            Self::HealthCheckResponse { .. } => SystemType::HealthCheckResponse,
            Self::MetricsResponse { .. } => SystemType::MetricsResponse,
            Self::RateLimitWarning { .. } => SystemType::RateLimitWarning,
            Self::PublishResponse { .. } => SystemType::PublishResponse,
            Self::PresenceResponse { .. } => SystemType::PresenceResponse,
            Self::HistoryResponse { .. } => SystemType::HistoryResponse,
            Self::PublicationGap(_) => SystemType::PublicationGap,
            Self::MessageAck { .. } => SystemType::MessageAck,
            Self::CallRequest { .. } => SystemType::CallRequest,
            Self::CallResponse { .. } => SystemType::CallResponse,
            Self::Reconnect { .. } => SystemType::Reconnect,
            Self::AuthExpiryWarning { .. } => SystemType::AuthExpiryWarning,
            Self::AuthRefreshResponse { .. } => SystemType::AuthRefreshResponse,
        }
    }

    pub(super) fn correlation_id(&self) -> Option<&str> {
        match self {
            Self::Ready { .. }
            | Self::KeyUpdate { .. }
            | Self::Pong { .. }
            | Self::Ping
            | Self::RateLimitWarning { .. }
            | Self::PublicationGap(_)
            | Self::MessageAck { .. }
            | Self::Reconnect { .. }
            | Self::AuthExpiryWarning { .. } => None,
            Self::Hello { correlation_id, .. }
            | Self::Error { correlation_id, .. }
            | Self::SubscriptionUpdate { correlation_id, .. }
            | Self::ConfigResponse { correlation_id, .. }
            | Self::HealthCheckResponse { correlation_id, .. }
            | Self::MetricsResponse { correlation_id, .. }
            | Self::PublishResponse { correlation_id, .. }
            | Self::PresenceResponse { correlation_id, .. }
            | Self::HistoryResponse { correlation_id, .. }
            | Self::AuthRefreshResponse { correlation_id, .. } => correlation_id.as_deref(),
            Self::CallRequest { correlation_id, .. }
            | Self::CallResponse { correlation_id, .. } => Some(correlation_id),
        }
    }

    /// Appends the payload as JSON.
    pub(super) fn write_payload(&self, context: &Context<'_>, out: &mut Vec<u8>) {
        match self {
            Self::Ready {
                connection_id,
                user_id,
            } => {
                write_ready(context, *connection_id, user_id.as_deref(), out);
            }
            Self::Hello {
                encryption,
                producer,
                ..
            } => write_hello(context, encryption.as_deref(), producer.as_ref(), out),
            Self::KeyUpdate { request } => write_key_update(*request, out),
            Self::Pong {
                client_timestamp_ms,
            } => write_pong(*client_timestamp_ms, context.unix_ms, out),
            Self::Ping => write_numbers(&[("timestamp", context.unix_ms)], out),
            Self::Error {
                code,
                message,
                retry_after_s,
                refused,
                ..
            } => write_error(*code, message, *retry_after_s, *refused, out),
            Self::SubscriptionUpdate {
                action,
                success_topics,
                failed_topics,
                failures,
                recovery,
                ..
            } => {
                let failed = (failed_topics.as_slice(), failures.as_slice());
                write_subscription(*action, success_topics, failed, recovery, out);
            }
            Self::ConfigResponse { payload, .. }
            | Self::HealthCheckResponse { payload, .. }
            | Self::MetricsResponse { payload, .. } => {
                out.extend_from_slice(payload.to_string().as_bytes());
            }
            Self::PublishResponse {
                topic,
                duplicate,
                position,
                ..
            } => write_publish_response(topic, *duplicate, *position, out),
            Self::PresenceResponse {
                topics,
                failed_topics,
                ..
            } => write_presence(topics, failed_topics, out),
            Self::HistoryResponse { page, .. } => history::write_page(page, out),
            Self::PublicationGap(gap) => write_gap(gap, out),
            Self::MessageAck { last } => write_numbers(&[("last", *last)], out),
            Self::CallRequest { call, .. } => call.write_payload(out),
            Self::CallResponse { result, .. } => call::write_result(result, out),
            Self::Reconnect { after_ms, reason } => write_reconnect(*after_ms, reason, out),
            Self::AuthRefreshResponse {
                expires_in_ms,
                ends_in_ms,
                ..
            } => write_expiry(*expires_in_ms, *ends_in_ms, out),
            Self::RateLimitWarning { .. } | Self::AuthExpiryWarning { .. } => {
                self.write_warning(out);
            }
        }
    }

    fn write_warning(&self, out: &mut Vec<u8>) {
        match self {
            Self::RateLimitWarning {
                current_rate,
                limit,
                remaining,
                retry_after_s,
            } => {
                let numbers = [
                    ("current_rate", *current_rate),
                    ("limit", *limit),
                    ("remaining", *remaining),
                    ("retry_after", *retry_after_s),
                ];
                write_numbers(&numbers, out);
            }
            Self::AuthExpiryWarning {
                expires_in_ms,
                ends_in_ms,
            } => write_expiry(*expires_in_ms, Some(*ends_in_ms), out),
            _ => {}
        }
    }
}

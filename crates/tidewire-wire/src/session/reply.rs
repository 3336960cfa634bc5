//! Messages of a server: answers to system messages, and messages without a request.

pub(super) mod values;

use super::call::{self, Call, CallResult};
use super::payload::{
    Context, write_error, write_expiry, write_gap, write_hello, write_key_update, write_numbers,
    write_own_error, write_pong, write_presence, write_publish_response, write_ready,
    write_reconnect, write_subscription,
};
use super::{Action, HelloEncryption, HistoryPage, history};
use crate::codes::ErrorCode;
use crate::envelope::SystemType;
use crate::uuid::Uuid;
use serde_json::Value;
use std::borrow::Cow;
use values::{ProducerState, PublicationGap, Refused, TopicFailure, TopicPresence, TopicRecovery};

/// A system message of the server. `correlation_id` is that of the answered request, if any.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// `server_ready`, the first message. The session remembers `connection_id`.
    Ready {
        /// The id of the connection.
        connection_id: Uuid,
        /// The user in the token.
        user_id: Option<String>,
    },
    /// `server_hello`, with the negotiated features of the session.
    Hello {
        /// `cid`.
        correlation_id: Option<String>,
        /// The answer to a [`SystemEvent::KeyExchange`](super::SystemEvent::KeyExchange).
        encryption: Option<Box<HelloEncryption>>,
        /// The state of the producer in the `client_hello`, if the server stores it.
        producer: Option<ProducerState>,
    },
    /// `key_update`: this side encrypts later messages with its next key.
    KeyUpdate {
        /// Whether the client has to change its key, too.
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
        /// The error code.
        code: ErrorCode,
        /// The explanation in words.
        message: Cow<'static, str>,
        /// The number of seconds after which a retry may succeed.
        retry_after_s: Option<u64>,
        /// The rejected messages since the last error of this kind, if it may be more than one.
        refused: Option<Refused>,
        /// `cid`.
        correlation_id: Option<String>,
    },
    /// `error` with a code of the application. The session continues.
    ApplicationError {
        /// The code: 1 to 128 bytes, the application's words.
        code: String,
        /// The explanation in words.
        message: String,
        /// `cid`.
        correlation_id: Option<String>,
    },
    /// `subscription_update`.
    SubscriptionUpdate {
        /// The requested action.
        action: Action,
        /// The topics for which it succeeded.
        success_topics: Vec<String>,
        /// The topics for which it failed.
        failed_topics: Vec<String>,
        /// The reason for each of `failed_topics`; empty to send no reasons.
        failures: Vec<TopicFailure>,
        /// The positions of the topics with history, also without a request for recovery.
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
        /// The number of used messages of the limit.
        current_rate: u64,
        /// The number of messages that the limit allows at once.
        limit: u64,
        /// The number of messages that are left.
        remaining: u64,
        /// The number of seconds until more are allowed.
        retry_after_s: u64,
    },
    /// `publish_response`.
    PublishResponse {
        /// The topic.
        topic: String,
        /// Whether the server rejected it because it had accepted one with the same idempotency key before.
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
        /// The kept publications.
        page: Box<HistoryPage>,
        /// `cid`.
        correlation_id: Option<String>,
    },
    /// `publication_gap`.
    PublicationGap(PublicationGap),
    /// `message_ack`.
    MessageAck {
        /// The last number accepted; all before it are accepted too.
        last: u64,
    },
    /// `call_request`, to be answered by the client's application.
    CallRequest {
        /// The request; its payload is one JSON value and is not checked.
        call: Call,
        /// `cid`.
        correlation_id: String,
    },
    /// `call_response`.
    CallResponse {
        /// The answer; a payload is one JSON value and is not checked.
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
            Self::Error { .. } | Self::ApplicationError { .. } => SystemType::Error,
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
            | Self::ApplicationError { correlation_id, .. }
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
            } => write_error(*code, message, *retry_after_s, refused.as_ref(), out),
            Self::ApplicationError { code, message, .. } => write_own_error(code, message, out),
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

//! What a server says of its own accord or in answer to a system message.

use super::request::Action;
use super::{Features, HelloEncryption, MESSAGEPACK_NIL, Object, PROTOCOL_VERSION, ServerProfile};
use crate::codes::ErrorCode;
use crate::envelope::{SystemType, pack_number};
use crate::timestamp::write_rfc3339_ms;
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
        /// What became of each recovery asked for.
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
        }
    }

    pub(super) fn correlation_id(&self) -> Option<&str> {
        match self {
            Self::Ready { .. }
            | Self::KeyUpdate { .. }
            | Self::Pong { .. }
            | Self::Ping
            | Self::RateLimitWarning { .. } => None,
            Self::Hello { correlation_id, .. }
            | Self::Error { correlation_id, .. }
            | Self::SubscriptionUpdate { correlation_id, .. }
            | Self::ConfigResponse { correlation_id, .. }
            | Self::HealthCheckResponse { correlation_id, .. }
            | Self::MetricsResponse { correlation_id, .. } => correlation_id.as_deref(),
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
            Self::Hello { encryption, .. } => write_hello(context, encryption.as_deref(), out),
            Self::KeyUpdate { request } => write_key_update(*request, out),
            Self::Pong {
                client_timestamp_ms,
            } => {
                write_pong(*client_timestamp_ms, context.unix_ms, out);
            }
            Self::Ping => write_numbers(&[("timestamp", context.unix_ms)], out),
            Self::Error {
                code,
                message,
                retry_after_s,
                refused,
                ..
            } => {
                let mut object = Object::open(out);
                object.text("code", code.as_str());
                object.text("message", message);
                object.boolean("recoverable", code.recoverable());
                object.optional_number("retry_after", *retry_after_s);
                if let Some(refused) = refused {
                    object.number("refused", *refused);
                }
                object.close();
            }
            Self::SubscriptionUpdate {
                action,
                success_topics,
                failed_topics,
                recovery,
                ..
            } => {
                let mut object = Object::open(out);
                object.text("action", action.as_str());
                object.texts("success_topics", success_topics);
                object.texts("failed_topics", failed_topics);
                object.with("recovery", |out| write_recovery(recovery, out));
                object.close();
            }
            Self::ConfigResponse { payload, .. }
            | Self::HealthCheckResponse { payload, .. }
            | Self::MetricsResponse { payload, .. } => {
                out.extend_from_slice(payload.to_string().as_bytes());
            }
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
        }
    }
}

/// What payloads take from outside the reply.
pub(super) struct Context<'a> {
    pub(super) profile: &'a ServerProfile,
    pub(super) features: Features,
    pub(super) protocol_version: u8,
    pub(super) connection_id: Uuid,
    pub(super) unix_ms: u64,
}

fn write_numbers(fields: &[(&str, u64)], out: &mut Vec<u8>) {
    let mut object = Object::open(out);
    for (name, number) in fields {
        object.number(name, *number);
    }
    object.close();
}

fn write_ready(
    context: &Context<'_>,
    connection_id: Uuid,
    user_id: Option<&str>,
    out: &mut Vec<u8>,
) {
    let mut object = Object::open(out);
    object.text("message", "connected");
    object.with("details", |out| {
        let mut details = Object::open(out);
        details.text("version", &context.profile.server_version);
        details.number("protocol_version", PROTOCOL_VERSION.into());
        details.with("features", |out| context.profile.features.write(out));
        details.with("connection_id", |out| write_id(connection_id, out));
        details.with("server_time", |out| write_time(context.unix_ms, out));
        match user_id {
            Some(user_id) => details.text("user_id", user_id),
            None => details.with("user_id", |out| out.extend_from_slice(b"null")),
        }
        details.close();
    });
    object.close();
}

fn write_hello(context: &Context<'_>, encryption: Option<&HelloEncryption>, out: &mut Vec<u8>) {
    let profile = context.profile;
    let mut object = Object::open(out);
    object.text("server_version", &profile.server_version);
    object.number("protocol_version", context.protocol_version.into());
    object.with("features", |out| context.features.write(out));
    object.with("limits", |out| {
        let mut limits = Object::open(out);
        limits.number("max_message_size", profile.message_bytes_max as u64);
        limits.number("rate_limit_capacity", profile.rate_limit_capacity);
        limits.number("rate_limit_refill", profile.rate_limit_refill_per_s);
        limits.close();
    });
    object.number("ping_interval", profile.ping_interval_ms);
    object.with("connection_id", |out| write_id(context.connection_id, out));
    object.with("server_time", |out| write_time(context.unix_ms, out));
    if let Some(encryption) = encryption {
        encryption.write(&mut object);
    }
    object.close();
}

/// The payload of `key_update`, from either side.
pub(super) fn write_key_update(request: bool, out: &mut Vec<u8>) {
    let mut object = Object::open(out);
    object.boolean("request", request);
    object.close();
}

/// The payload of `PONG`, by pushes alone: pings come by the million in a ping test.
fn write_pong(client_timestamp_ms: Option<u64>, unix_ms: u64, out: &mut Vec<u8>) {
    let latency_ms = client_timestamp_ms.map_or(0, |sent_ms| unix_ms.saturating_sub(sent_ms));
    let mut object = Object::open(out);
    object.optional_number("client_timestamp", client_timestamp_ms);
    object.number("server_timestamp", unix_ms);
    object.number("latency", latency_ms);
    object.close();
}

/// [`write_pong`] in MessagePack.
pub(super) fn pack_pong(client_timestamp_ms: Option<u64>, unix_ms: u64, out: &mut Vec<u8>) {
    let latency_ms = client_timestamp_ms.map_or(0, |sent_ms| unix_ms.saturating_sub(sent_ms));
    // A map of three pairs, whose keys are strings of 16, 16 and 7 bytes.
    out.extend_from_slice(b"\x83\xb0client_timestamp");
    match client_timestamp_ms {
        Some(client_timestamp_ms) => pack_number(client_timestamp_ms, out),
        None => out.push(MESSAGEPACK_NIL),
    }
    out.extend_from_slice(b"\xb0server_timestamp");
    pack_number(unix_ms, out);
    out.extend_from_slice(b"\xa7latency");
    pack_number(latency_ms, out);
}

fn write_recovery(recovery: &[TopicRecovery], out: &mut Vec<u8>) {
    let mut object = Object::open(out);
    for topic in recovery {
        object.with_any_name(&topic.topic, |out| {
            let mut fields = Object::open(out);
            fields.text("epoch", &topic.epoch);
            fields.number("offset", topic.offset);
            fields.boolean("recovered", topic.recovered);
            fields.number("count", topic.count);
            fields.close();
        });
    }
    object.close();
}

fn write_id(id: Uuid, out: &mut Vec<u8>) {
    out.push(b'"');
    id.write(out);
    out.push(b'"');
}

fn write_time(unix_ms: u64, out: &mut Vec<u8>) {
    out.push(b'"');
    write_rfc3339_ms(unix_ms, out);
    out.push(b'"');
}

//! The payloads of a server's messages, as JSON.

use super::reply::values::{
    ProducerState, PublicationGap, Refused, TopicFailure, TopicPresence, TopicRecovery,
};
use super::{
    Action, Features, HelloEncryption, MESSAGEPACK_NIL, Object, PROTOCOL_VERSION, ServerProfile,
};
use crate::codes::ErrorCode;
use crate::envelope::{SystemType, epoch_text, pack_number, write_event};
use crate::timestamp::write_rfc3339_ms;
use crate::uuid::Uuid;

/// The inputs of payloads besides the reply.
pub(super) struct Context<'a> {
    pub(super) profile: &'a ServerProfile,
    pub(super) features: Features,
    pub(super) protocol_version: u8,
    pub(super) connection_id: Uuid,
    pub(super) unix_ms: u64,
}

pub(super) fn write_numbers(fields: &[(&str, u64)], out: &mut Vec<u8>) {
    let mut object = Object::open(out);
    for (name, number) in fields {
        object.number(name, *number);
    }
    object.close();
}

pub(super) fn write_ready(
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

/// The payload of `server_hello` (PROTOCOL.md 7.3).
pub(super) fn write_hello(
    context: &Context<'_>,
    encryption: Option<&HelloEncryption>,
    producer: Option<&ProducerState>,
    out: &mut Vec<u8>,
) {
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
    if let Some(producer) = producer {
        object.with("producer", |out| {
            let mut object = Object::open(out);
            object.text("id", &producer.id);
            object.text("epoch", &epoch_text(producer.epoch));
            object.number("last", producer.last);
            object.close();
        });
    }
    object.close();
}

/// The payload of `key_update`, from either side.
pub(super) fn write_key_update(request: bool, out: &mut Vec<u8>) {
    let mut object = Object::open(out);
    object.boolean("request", request);
    object.close();
}

/// The payload of `PONG`, by pushes alone: in a ping test millions of pings arrive.
pub(super) fn write_pong(client_timestamp_ms: Option<u64>, unix_ms: u64, out: &mut Vec<u8>) {
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

pub(super) fn write_error(
    code: ErrorCode,
    message: &str,
    retry_after_s: Option<u64>,
    refused: Option<&Refused>,
    out: &mut Vec<u8>,
) {
    let mut object = Object::open(out);
    object.text("code", code.as_str());
    object.text("message", message);
    object.boolean("recoverable", code.recoverable());
    object.optional_number("retry_after", retry_after_s);
    if let Some(refused) = refused {
        object.number("refused", refused.count);
        if !refused.correlation_ids.is_empty() {
            object.texts("cids", &refused.correlation_ids);
        }
    }
    object.close();
}

/// An error with a code of the application.
pub(super) fn write_own_error(code: &str, message: &str, out: &mut Vec<u8>) {
    let mut object = Object::open(out);
    object.text("code", code);
    object.text("message", message);
    object.boolean("recoverable", true);
    object.optional_number("retry_after", None);
    object.close();
}

pub(super) fn write_subscription(
    action: Action,
    success_topics: &[String],
    (failed_topics, failures): (&[String], &[TopicFailure]),
    recovery: &[TopicRecovery],
    out: &mut Vec<u8>,
) {
    let mut object = Object::open(out);
    object.text("action", action.as_str());
    object.texts("success_topics", success_topics);
    object.texts("failed_topics", failed_topics);
    if !failures.is_empty() {
        object.with("failures", |out| write_failures(failures, out));
    }
    object.with("recovery", |out| write_recovery(recovery, out));
    object.close();
}

fn write_failures(failures: &[TopicFailure], out: &mut Vec<u8>) {
    out.push(b'[');
    for (index, failure) in failures.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        let mut fields = Object::open(out);
        fields.text("topic", &failure.topic);
        fields.text("code", &failure.code);
        fields.text("message", &failure.message);
        fields.close();
    }
    out.push(b']');
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

pub(super) fn write_publish_response(
    topic: &str,
    duplicate: bool,
    position: Option<(u32, u64)>,
    out: &mut Vec<u8>,
) {
    let mut object = Object::open(out);
    object.text("topic", topic);
    object.boolean("duplicate", duplicate);
    if let Some((epoch, offset)) = position {
        object.text("epoch", &epoch_text(epoch));
        object.number("offset", offset);
    }
    object.close();
}

pub(super) fn write_presence(
    topics: &[TopicPresence],
    failed_topics: &[String],
    out: &mut Vec<u8>,
) {
    let mut object = Object::open(out);
    object.with("topics", |out| {
        let mut object = Object::open(out);
        for topic in topics {
            object.with_any_name(&topic.topic, |out| write_topic_presence(topic, out));
        }
        object.close();
    });
    object.texts("failed_topics", failed_topics);
    object.close();
}

fn write_topic_presence(topic: &TopicPresence, out: &mut Vec<u8>) {
    let mut object = Object::open(out);
    object.number("users", topic.users);
    object.number("connections", topic.connections);
    object.boolean("truncated", topic.truncated);
    if let Some(members) = &topic.members {
        object.with("members", |out| {
            let mut object = Object::open(out);
            for member in members {
                object.with_any_name(&member.user, |out| {
                    let mut object = Object::open(out);
                    object.number("connections", member.connections);
                    if let Some(data) = &member.data {
                        object.with("data", |out| out.extend_from_slice(data.as_bytes()));
                    }
                    object.close();
                });
            }
            object.close();
        });
    }
    object.close();
}

/// Appends `publication_gap` as a message that goes to many, as JSON; `unix_ms` is in milliseconds since 1970.
pub fn write_gap_event(gap: &PublicationGap, id: Uuid, unix_ms: u64, out: &mut Vec<u8>) {
    write_event(SystemType::PublicationGap, id, unix_ms, out, |out| {
        write_gap(gap, out);
    });
}

pub(super) fn write_gap(gap: &PublicationGap, out: &mut Vec<u8>) {
    let mut object = Object::open(out);
    object.text("topic", &gap.topic);
    object.text("reason", gap.reason.as_str());
    object.number("count", gap.count);
    if let Some(range) = gap.range {
        object.text("epoch", &epoch_text(range.epoch));
        object.number("from", range.from);
        object.number("to", range.to);
    }
    object.close();
}

pub(super) fn write_reconnect(after_ms: u64, reason: &str, out: &mut Vec<u8>) {
    let mut object = Object::open(out);
    object.number("after_ms", after_ms);
    object.text("reason", reason);
    object.close();
}

/// The payload of `auth_expiry_warning` and of `auth_refresh_response`. A time beyond [`WHOLE_MAX`] is written as that: a
/// token chooses it.
pub(super) fn write_expiry(expires_in_ms: u64, ends_in_ms: Option<u64>, out: &mut Vec<u8>) {
    let mut object = Object::open(out);
    object.number("expires_in_ms", expires_in_ms.min(WHOLE_MAX));
    if let Some(ends_in_ms) = ends_in_ms {
        object.number("ends_in_ms", ends_in_ms.min(WHOLE_MAX));
    }
    object.close();
}

/// The largest integer that every reader has exactly (PROTOCOL.md, section 5.2 (3)).
const WHOLE_MAX: u64 = (1 << 53) - 1;

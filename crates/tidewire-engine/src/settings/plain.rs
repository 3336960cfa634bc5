//! Options that are one field of the configuration.

use super::given::Settings;
use super::rules::saturated;
use crate::config::Config;

/// Sets the fields whose options were given, and lists the options.
macro_rules! plain {
    ($($name:ident: $($field:ident).+;)+) => {
        /// The options that [`set`] reads.
        #[cfg(test)]
        pub(super) const NAMES: &[&str] = &[$(stringify!($name),)+];

        pub(super) fn set(settings: &Settings, config: &mut Config) {
            $(
                if settings.is_set(stringify!($name)) {
                    config.$($field).+ = Plain::read(settings, stringify!($name));
                }
            )+
        }
    };
}

plain! {
    shards: shards;
    reuse_port: reuse_port;
    compression_level: compression.level;
    compression_threshold_bytes: compression.threshold_bytes;
    deflate_window_bits: compression.window_bits;
    auth_failure_after_upgrade: auth_failure_after_upgrade;
    deduplicate: producers.deduplicate;
    deduplicated_ids_max: producers.remembered_ids_max;
    producers_max: producers.producers_max;
    producer_ttl_ms: producers.producer_ttl_ms;
    drain_rate_per_s: drain.rate_per_s;
    reconnect_spread_ms: drain.reconnect_spread_ms;
    connections_max: limits.connections_max;
    handshakes_max: limits.handshakes_max;
    handshakes_per_address_max: limits.handshakes_per_address_max;
    handshakes_parked_max: limits.handshakes_parked_max;
    handshake_timeout_ms: limits.handshake_timeout_ms;
    request_head_bytes_max: limits.request_head_bytes_max;
    message_bytes_max: limits.message_bytes_max;
    rate_limit_capacity: limits.rate_limit_capacity;
    rate_limit_refill_per_s: limits.rate_limit_refill_per_s;
    errors_max: limits.errors_max;
    errors_window_ms: limits.errors_window_ms;
    outbox_bytes_max: limits.outbox_bytes_max;
    outboxes_bytes_max: limits.outboxes_bytes_max;
    outbox_pause_bytes: limits.outbox_pause_bytes;
    receive_buffer_bytes_max: limits.receive_buffer_bytes_max;
    receive_buffers_bytes_max: limits.receive_buffers_bytes_max;
    ping_interval_ms: limits.ping_interval_ms;
    idle_timeout_ms: limits.idle_timeout_ms;
    close_timeout_ms: limits.close_timeout_ms;
    shard_stall_ms: limits.shard_stall_ms;
    retry_after_s: limits.retry_after_s;
    call_timeout_ms: limits.call_timeout_ms;
    calls_per_connection_max: limits.calls_per_connection_max;
    subscriptions_per_connection_max: topics.limits.subscriptions_per_connection_max;
    subscribers_per_topic_max: topics.limits.subscribers_per_topic_max;
    payload_bytes_max: topics.limits.payload_bytes_max;
    backlog_bytes_max: topics.limits.backlog_bytes_max;
    history_bytes_max: topics.limits.history_bytes_max;
    history_topics_max: topics.limits.history_topics_max;
    presence_bytes_per_s: topics.limits.presence_bytes_per_s;
    presence_data_bytes_max: topics.limits.presence_data_bytes_max;
    remembered_ids_max: topics.limits.remembered_ids_max;
    lag_publications_max: topics.limits.lag_publications_max;
    lag_bytes_max: topics.limits.lag_bytes_max;
    group_waiting_max: topics.limits.group_waiting_max;
    group_waiting_bytes_max: topics.limits.group_waiting_bytes_max;
    subscription_bytes_per_connection_max: topics.limits.subscription_bytes_per_connection_max;
    subscription_bytes_per_owner_max: topics.limits.subscription_bytes_per_owner_max;
    subscription_bytes_max: topics.limits.subscription_bytes_max;
    patterns_per_connection_max: topics.limits.patterns_per_connection_max;
    groups_per_topic_max: topics.limits.groups_per_topic_max;
    owner_work_ms_per_s: limits.owner_work_ms_per_s;
    unfinished_bytes_per_owner_max: limits.unfinished_bytes_per_owner_max;
    unfinished_bytes_max: limits.unfinished_bytes_max;
}

/// The type of a plain field.
trait Plain {
    /// The value of an option that was given.
    fn read(settings: &Settings, name: &str) -> Self;
}

impl Plain for u64 {
    fn read(settings: &Settings, name: &str) -> Self {
        settings.integer(name).unwrap_or_default()
    }
}

impl Plain for usize {
    fn read(settings: &Settings, name: &str) -> Self {
        saturated(u64::read(settings, name))
    }
}

impl Plain for u32 {
    fn read(settings: &Settings, name: &str) -> Self {
        Self::try_from(u64::read(settings, name)).unwrap_or(Self::MAX)
    }
}

impl Plain for u8 {
    fn read(settings: &Settings, name: &str) -> Self {
        Self::try_from(u64::read(settings, name)).unwrap_or(Self::MAX)
    }
}

impl Plain for bool {
    fn read(settings: &Settings, name: &str) -> Self {
        settings.flag(name)
    }
}

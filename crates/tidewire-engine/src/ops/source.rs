//! The source of what the operations listener reports.

use crate::counters::{Snapshot, TimingsSnapshot};
use crate::model::ShardHealth;
use crate::topics::broker::BrokerHealth;
use crate::trace::TraceCounts;
use serde::Serialize;

/// The source of the pages. Called on the listener's thread, once for each request.
pub trait OpsSource: Send + Sync + 'static {
    /// Whether new connections are accepted; `false` while the server drains.
    fn is_ready(&self) -> bool;

    /// Whether there are keys to check tokens with, or none are needed. Default: so it is.
    fn has_keys(&self) -> bool {
        true
    }

    /// The metrics of the keys that are fetched, as text. Default: none.
    fn key_metrics(&self) -> String {
        String::new()
    }

    /// How the broker is that servers share. Default: there is none.
    fn broker(&self) -> Option<BrokerHealth> {
        None
    }

    /// The metrics of the backend that events are sent to, as text. Default: none.
    fn backend_metrics(&self) -> String {
        String::new()
    }

    /// The counts of exported and dropped spans of traces. Default: there are none.
    fn traces(&self) -> Option<TraceCounts> {
        None
    }

    /// The log lines that were left out because strangers caused too many of their kind. Default: none.
    fn log_lines_left_out(&self) -> u64 {
        0
    }

    /// The memory of messages that have begun and not ended, in bytes. Default: nothing.
    fn unfinished_message_bytes(&self) -> usize {
        0
    }

    /// How each shard is, in the order of the shards. Default: nobody looks.
    fn shard_health(&self) -> Vec<ShardHealth> {
        Vec::new()
    }

    /// The counters of each shard, in the order of the shards.
    fn shards(&self) -> Vec<Snapshot>;

    /// The histograms of each shard, in the order of the shards. Default: nothing is measured.
    fn timings(&self) -> Vec<TimingsSnapshot> {
        Vec::new()
    }

    /// How long the server has been running, in seconds.
    fn uptime_s(&self) -> f64;

    /// When it was started, in milliseconds since 1970, UTC.
    fn started_unix_ms(&self) -> u64;

    /// The memory of the topics now. Default: nothing.
    fn topics_usage(&self) -> TopicsUsage {
        TopicsUsage::default()
    }
}

/// The memory of the topics of a server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct TopicsUsage {
    /// All histories, in bytes.
    pub history_bytes: u64,
    /// Topics whose position is known.
    pub history_topics: u64,
    /// Histories dropped because all together were too large, since the start.
    pub histories_evicted: u64,
    /// Topics with somebody present.
    pub presence_topics: u64,
    /// Publications that shards have yet to deliver, in bytes.
    pub publication_backlog_bytes: u64,
    /// The memory of subscriptions, in bytes as estimated.
    pub subscription_bytes: u64,
}

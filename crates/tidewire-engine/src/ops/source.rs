//! The source of what the operations listener reports.

use crate::counters::Snapshot;
use crate::model::ShardHealth;
use crate::topics::broker::BrokerHealth;
use serde::Serialize;

/// What is told about. Asked on the listener's thread, once for each request.
pub trait OpsSource: Send + Sync + 'static {
    /// Whether newcomers are welcome; `false` while the server drains.
    fn is_ready(&self) -> bool;

    /// How the broker is that servers share. Default: there is none.
    fn broker(&self) -> Option<BrokerHealth> {
        None
    }

    /// How each shard is, in the order of the shards. Default: nobody looks.
    fn shard_health(&self) -> Vec<ShardHealth> {
        Vec::new()
    }

    /// The counters of each shard, in the order of the shards.
    fn shards(&self) -> Vec<Snapshot>;

    /// How long the server has been running, in seconds.
    fn uptime_s(&self) -> f64;

    /// When it was started, in milliseconds since 1970, UTC.
    fn started_unix_ms(&self) -> u64;

    /// What the topics take now. Default: nothing.
    fn topics_usage(&self) -> TopicsUsage {
        TopicsUsage::default()
    }
}

/// What the topics of a server take.
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
    /// What subscriptions take, in bytes as estimated.
    pub subscription_bytes: u64,
}

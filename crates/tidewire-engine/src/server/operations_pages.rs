//! Source of the pages of the operations listener.

use crate::counters::{Snapshot, TimingsSnapshot};
use crate::model::ShardHealth;
use crate::ops::{OpsSource, TopicsUsage};
use crate::state::shared::Shared;
use crate::topics::broker::BrokerHealth;
use crate::topics::outlet::Outlet;
use crate::trace::TraceCounts;

impl OpsSource for Shared {
    fn is_ready(&self) -> bool {
        self.is_ready()
    }

    fn shard_health(&self) -> Vec<ShardHealth> {
        self.shard_health()
    }

    fn broker(&self) -> Option<BrokerHealth> {
        self.hub.broker_health()
    }

    fn has_keys(&self) -> bool {
        self.has_keys()
    }

    fn key_metrics(&self) -> String {
        let set = self.key_set.as_deref();
        set.map(crate::ops::keys::metrics).unwrap_or_default()
    }

    fn backend_metrics(&self) -> String {
        let backend = self.backend.as_deref();
        backend
            .map(crate::ops::backend_metrics::metrics)
            .unwrap_or_default()
    }

    fn traces(&self) -> Option<TraceCounts> {
        self.traces.as_ref().map(|sink| sink.counts())
    }

    fn log_lines_left_out(&self) -> u64 {
        self.lines.left_out()
    }

    fn unfinished_message_bytes(&self) -> usize {
        self.charges.unfinished.bytes()
    }

    fn shards(&self) -> Vec<Snapshot> {
        self.snapshots()
    }

    fn timings(&self) -> Vec<TimingsSnapshot> {
        let shards = self.counters.iter();
        shards.map(|counters| counters.timings.snapshot()).collect()
    }

    fn uptime_s(&self) -> f64 {
        self.uptime_s()
    }

    fn started_unix_ms(&self) -> u64 {
        self.life.started_unix_ms
    }

    fn topics_usage(&self) -> TopicsUsage {
        let usage = self.hub.usage();
        let outlets = self.hub.outlets.iter();
        let backlog_bytes: usize = outlets.map(Outlet::bytes).sum();
        TopicsUsage {
            history_bytes: usage.history_bytes as u64,
            history_topics: usage.history_topics as u64,
            histories_evicted: usage.histories_evicted,
            presence_topics: usage.presence_topics as u64,
            publication_backlog_bytes: backlog_bytes as u64,
            subscription_bytes: self.charges.accounts.total() as u64,
        }
    }
}

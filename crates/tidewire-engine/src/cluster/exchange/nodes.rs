//! The servers of the cluster: reports of this server about itself, and reports of the others.

use super::Exchange;
use crate::topics::broker::ClusterNode;
use tidewire_redis::{Event, NodeId, Now};

/// The servers of the cluster.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    /// When this server was described last, and what it had received until then.
    described_ms: u64,
    received: u64,
    pub(super) list: Vec<ClusterNode>,
}

impl Exchange {
    pub(super) fn describe(&mut self, now: Now) {
        let since_ms = now.ms.saturating_sub(self.nodes.described_ms);
        if since_ms < DESCRIBE_MS || !self.link.partition().is_first() {
            return;
        }
        let Some(server) = &self.server else {
            return;
        };
        let mut own = server.0.describe();
        own.topics = self.partition.siblings.topics();
        let received = own.publications_received;
        let new = received.saturating_sub(self.nodes.received);
        own.publications_per_s = new.saturating_mul(1_000) / since_ms;
        (self.nodes.described_ms, self.nodes.received) = (now.ms, received);
        match serde_json::to_vec(&own) {
            Ok(json) => self.link.describe(&json),
            Err(error) => tracing::error!(%error, "this server cannot be described"),
        }
    }

    /// Events about presence on shared topics, the work of queue groups, and the servers.
    pub(super) fn handle_event_of_others(&mut self, event: Event, now: Now) {
        match event {
            Event::PresenceRead { topic, members } => self.take_roster(&topic, members, now),
            Event::PresenceChanged { topic, member } => self.take_member(&topic, member, now),
            Event::PresenceMatched {
                topic,
                seen,
                member,
            } => self.take_matched_member(&topic, seen, member, now),
            Event::GroupJoined {
                topic,
                group,
                can_join,
            } => self.note_group(&(topic, group), can_join, now),
            Event::Work {
                topic,
                group,
                lost,
                works,
            } => self.take_work(&(topic, group), works, lost, now),
            Event::Registering => {
                tracing::warn!("the broker had forgotten this server; it is told all again");
            }
            Event::ClockStepped(step_ms) => tracing::warn!(
                step_ms,
                "the clock of the broker was set; nothing is lost, but publications with a ttl may expire early or late",
            ),
            Event::NodeLost(node) => {
                tracing::warn!(%node, "a server of the cluster does not answer any more");
            }
            Event::Nodes(nodes) => {
                let living: Vec<NodeId> = nodes.iter().map(|(node, _)| *node).collect();
                self.end_calls_to_gone(&living, now);
                let nodes = nodes.into_iter().map(|(node, info)| listed(node, &info));
                self.nodes.list = nodes.collect();
            }
            _ => {}
        }
    }
}

/// A server of the list, also if its description cannot be read.
fn listed(node: NodeId, info: &[u8]) -> ClusterNode {
    let told: ClusterNode = serde_json::from_slice(info).unwrap_or_default();
    ClusterNode {
        node: node.to_string(),
        ..told
    }
}

/// How often this server describes itself, in milliseconds.
const DESCRIBE_MS: u64 = 1_000;

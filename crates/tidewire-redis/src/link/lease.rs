//! The lease of a node, and the ends of others.
//!
//! A node lives as long as it renews its lease, which the probe does each second. The data of a node in Redis
//! belongs to its lease: the first node that sees that a lease has ended removes this data, some at a time. A
//! node whose lease has ended although it lives, because it was paused or Redis has lost its memory,
//! registers again.

use crate::connection::{ErrorKind, ServerError};
use crate::layout::NodeId;
use crate::link::Link;
use crate::link::clock::LEASE_MS;
use crate::link::event::Event;
use crate::link::options::{Now, Slot};
use crate::link::problem::Problem;
use crate::link::state::Tag;
use crate::resp::Value;
use crate::script::{NodesCall, NodesReply, SweepCall, SweepReply};
use std::collections::BTreeMap;

/// The lease of this node, and the nodes whose data it removes.
#[derive(Debug, Default)]
pub(super) struct Lease {
    /// The data of this node that others see.
    pub(super) info: Vec<u8>,
    /// It held when Redis was asked last, on the present connection.
    pub(super) is_held: bool,
    /// It was held once.
    was_held: bool,
    /// This node must write its entries in Redis again, because Redis may have lost them.
    must_register: bool,
    /// Nodes whose data is removed, one at a time; whether Redis has been asked.
    sweeps: BTreeMap<NodeId, bool>,
    /// Leases that have ended do not count before this time. A node that could not renew its own lease was
    /// cut off, or Redis was away: then the other nodes may live as well, and need time to register again.
    sweeps_from_ms: u64,
    /// This node leaves.
    pub(super) is_leaving: bool,
    has_left: bool,
    /// When the list of nodes is read again.
    list_ms: u64,
    is_listing: bool,
}

impl Link {
    /// Redis has renewed the lease, which held before or not; the leases of others have ended.
    pub(super) fn note_lease(&mut self, held: bool, ended: Vec<NodeId>, now: Now) {
        let was_held = std::mem::replace(&mut self.lease.was_held, true);
        let must_register = std::mem::take(&mut self.lease.must_register);
        if !held {
            self.lease.sweeps_from_ms = now.ms + LEASE_MS;
        }
        if was_held && (!held || must_register) {
            self.counters.leases_lost += u64::from(!held);
            self.register_presence(now);
            self.register_groups();
            self.events.push_back(Event::Registering);
        }
        self.lease.is_held = true;
        if self.lease.sweeps_from_ms <= now.ms {
            for node in ended {
                self.lease.sweeps.entry(node).or_insert(false);
            }
        }
        self.tick_lease(now);
    }

    /// Redis may have lost what this node has there.
    pub(super) fn doubt_lease(&mut self) {
        self.lease.must_register = true;
        self.lease.is_held = false;
        self.clock.next_probe_ms = 0;
    }

    pub(super) fn tick_lease(&mut self, now: Now) {
        if !self.fencing.is_fenced {
            return;
        }
        self.sweep_next(now);
        self.list_nodes(now);
    }

    fn sweep_next(&mut self, now: Now) {
        let deadline_ms = now.ms + self.options.command_ms;
        let layout = &self.names.layout;
        if let Some(mut next) = self.lease.sweeps.first_entry()
            && !*next.get()
            && let Some(connection) = self.slots.ready(Slot::Command)
        {
            next.insert(true);
            let node = next.key();
            let call = SweepCall {
                nodes_key: &layout.nodes(),
                lease_key: &layout.lease(*node),
                own_key: &layout.node_members(*node),
                own_groups_key: &layout.node_groups(*node),
                groups_key: &layout.groups(),
                idle_groups_key: &layout.idle_groups(),
                node: *node,
                count: SWEPT_AT_A_TIME,
                prefixes: &layout.presence_prefixes(),
                ends_lease: *node == self.node,
            };
            connection.send(Tag::Sweep(*node), deadline_ms, |out| {
                call.write(&self.hashes, out);
            });
        }
    }

    fn list_nodes(&mut self, now: Now) {
        if self.lease.is_listing || self.lease.list_ms > now.ms || !self.lease.is_held {
            return;
        }
        let call = NodesCall {
            nodes_key: &self.names.layout.nodes(),
            leases: &self.names.layout.leases(),
            count: NODES_MAX,
        };
        let deadline_ms = now.ms + self.options.command_ms;
        if let Some(connection) = self.slots.ready(Slot::Read) {
            self.lease.is_listing = true;
            self.lease.list_ms = now.ms + LIST_EVERY_MS;
            connection.send(Tag::Nodes, deadline_ms, |out| call.write(&self.hashes, out));
        }
    }

    pub(super) fn lease_deadline_ms(&self) -> Option<u64> {
        let can_list = self.fencing.is_fenced && self.lease.is_held && !self.lease.is_listing;
        (can_list && self.slots.is_ready(Slot::Read)).then_some(self.lease.list_ms)
    }

    pub(super) fn handle_nodes(&mut self, result: Result<Value<'_>, ServerError>, now: Now) {
        self.lease.is_listing = false;
        match result.map(NodesReply::read) {
            Ok(Ok(NodesReply(nodes))) => {
                // Each node reads them all: the more there are, the less often.
                let every_ms = LIST_EVERY_MS.max(LIST_MS_EACH * nodes.len() as u64);
                self.lease.list_ms = self.lease.list_ms.max(now.ms + every_ms);
                self.events.push_back(Event::Nodes(nodes));
                if self.health.problems.contains_key(&Problem::SettingsDiffer)
                    || self.channels.were_shared
                {
                    self.agreement.look_again();
                }
            }
            Ok(Err(_)) => self.counters.malformed += 1,
            Err(error) => self.handle_refused_read(&error, now),
        }
    }

    /// The connection for reads is gone.
    pub(super) fn lose_nodes(&mut self) {
        self.lease.is_listing = false;
    }

    pub(super) fn handle_swept(
        &mut self,
        node: NodeId,
        result: Result<Value<'_>, ServerError>,
        now: Now,
    ) {
        match result.map(SweepReply::read) {
            Ok(Ok(SweepReply::More)) => {
                self.lease.sweeps.insert(node, false);
                return self.sweep_next(now);
            }
            Ok(Ok(reply)) => {
                if reply == SweepReply::Swept && node != self.node {
                    self.counters.nodes_lost += 1;
                    self.events.push_back(Event::NodeLost(node));
                }
            }
            Ok(Err(_)) => self.counters.malformed += 1,
            Err(error) if error.kind == ErrorKind::NoScript => {
                self.load_scripts(Slot::Command, now);
                self.lease.sweeps.insert(node, false);
                return;
            }
            Err(error) => self.health.reason = Some(error.to_string()),
        }
        // If the data was not removed, the next probe finds the node again.
        self.lease.sweeps.remove(&node);
        self.lease.has_left |= node == self.node;
        self.sweep_next(now);
    }

    /// The connection for commands is gone.
    pub(super) fn lose_lease(&mut self) {
        self.lease.is_held = false;
        self.lease.sweeps.clear();
        self.lease.has_left |= self.lease.is_leaving;
    }

    pub(super) fn begin_leaving(&mut self, now: Now) {
        self.lease.is_leaving = true;
        if self.fencing.is_fenced && self.slots.is_ready(Slot::Command) {
            self.lease.sweeps = BTreeMap::from([(self.node, false)]);
            self.sweep_next(now);
        } else {
            self.lease.has_left = true;
        }
    }

    pub(super) fn is_gone(&self) -> bool {
        self.lease.has_left
    }
}

/// Users of a node that one call removes.
const SWEPT_AT_A_TIME: u64 = 100;

/// How often the list of nodes is read.
const LIST_EVERY_MS: u64 = 2_000;

/// The least time between two lists for each node of the last one. Redis looks up 50 leases a second for each node.
const LIST_MS_EACH: u64 = 20;

/// Nodes of a list.
const NODES_MAX: u64 = 1_000;

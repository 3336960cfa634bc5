//! This server, as the other servers that share its broker need it.

use crate::cluster::{CallDone, Neighbour};
use crate::handle::Handle;
use crate::model::ConnectionKey;
use crate::model::calls::{CallFailure, NewCall};
use crate::topics::broker::{ClusterNode, Control};

/// Does what other servers want by the handle of this one.
pub(crate) struct ThisServer {
    pub(crate) handle: Handle,
    /// Where it listens.
    pub(crate) address: String,
}

impl Neighbour for ThisServer {
    fn obey(&self, control: Control, told_unix_ms: Option<u64>) -> bool {
        self.handle.obey(control, told_unix_ms)
    }

    fn call(&self, connection: ConnectionKey, call: NewCall, done: CallDone) {
        // It would go on to its server from here, maybe for ever.
        match self.handle.shared.hub.is_here(connection) {
            true => self.handle.call(connection, call, done),
            false => done(Err(CallFailure::Closed)),
        }
    }

    fn describe(&self) -> ClusterNode {
        ClusterNode {
            address: self.address.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            connections: self.handle.connections() as u64,
            publications_received: self.handle.counters().publications_received,
            ..ClusterNode::default()
        }
    }

    fn limits(&self) -> String {
        let setup = self.handle.shared.setup.get();
        let (profile, topics) = (&setup.profile, &setup.config.topics.limits);
        let limits = [
            ("message_bytes_max", profile.message_bytes_max as u64),
            ("rate_limit_capacity", profile.rate_limit_capacity),
            ("rate_limit_refill_per_s", profile.rate_limit_refill_per_s),
            ("ping_interval_ms", profile.ping_interval_ms),
            ("idle_timeout_ms", profile.idle_timeout_ms),
            ("group_waiting_max", topics.group_waiting_max as u64),
            (
                "group_waiting_bytes_max",
                topics.group_waiting_bytes_max as u64,
            ),
            ("groups_per_topic_max", topics.groups_per_topic_max as u64),
        ];
        let limits = limits.map(|(name, value)| format!("{name}={value}"));
        limits.join(" ")
    }
}

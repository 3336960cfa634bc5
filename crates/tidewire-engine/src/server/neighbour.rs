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
}

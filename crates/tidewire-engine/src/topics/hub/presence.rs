//! Presence: who is on a topic of this server.

use super::Hub;
use crate::model::ConnectionKey;
use crate::topics::broker::{Broker, PresenceView};
use crate::topics::presence::PresenceChange;
use std::sync::Arc;

impl Hub {
    pub(crate) fn join_presence(
        &self,
        topic: &Arc<str>,
        who: &Arc<str>,
        connection: ConnectionKey,
        data: Option<Arc<str>>,
    ) -> PresenceChange {
        self.local.join(topic, who, connection, data)
    }

    pub(crate) fn leave_presence(
        &self,
        topic: &Arc<str>,
        who: &Arc<str>,
        connection: ConnectionKey,
    ) -> PresenceChange {
        self.local.leave(topic, who, connection)
    }

    pub(crate) fn present(&self, topic: &str, limit: usize) -> PresenceView {
        self.local.present(topic, limit)
    }
}

//! Presence: who is on a topic, of this server or of all that share it.

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
        match self.presence_of(topic) {
            None => self.local.join(topic, who, connection, data),
            Some(cluster) => cluster.join(topic, who, connection, data),
        }
    }

    pub(crate) fn leave_presence(
        &self,
        topic: &Arc<str>,
        who: &Arc<str>,
        connection: ConnectionKey,
    ) -> PresenceChange {
        match self.presence_of(topic) {
            None => self.local.leave(topic, who, connection),
            Some(cluster) => cluster.leave(topic, who, connection),
        }
    }

    /// The users on a topic. A topic that is shared with other servers has to be
    /// [prepared](Self::prepare) first.
    pub(crate) fn present(&self, topic: &str, limit: usize) -> PresenceView {
        match self.presence_of(topic) {
            None => self.local.present(topic, limit),
            Some(cluster) => cluster.present(topic, limit),
        }
    }

    /// Whether several servers know together who is on a topic.
    pub(crate) fn shares_presence(&self, topic: &str) -> bool {
        self.rules.get().shows_presence(topic) && self.presence_of(topic).is_some()
    }

    fn presence_of(&self, topic: &str) -> Option<&Arc<dyn Broker>> {
        self.cluster_of(self.rules.get().of(topic))
    }
}

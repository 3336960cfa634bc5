//! What concerns the other servers: messages, commands and the broker between them.

use super::Hub;
use crate::topics::broker::{Answer, Audience, BrokerHealth, Control, Refusal, Sending, Tickets};
use crate::topics::outlet::Target;
use std::sync::Arc;

impl Hub {
    /// Sends to the sessions of a user, or to everybody, on the other servers.
    pub(crate) fn post_elsewhere(&self, target: &Target, sending: &Sending<'_>) {
        let Some(cluster) = &self.cluster else { return };
        match target {
            Target::User(user) => cluster.send(Audience::User(user), sending),
            Target::Everyone => cluster.send(Audience::Everyone, sending),
            Target::Topic | Target::Patterns | Target::Connection(_) | Target::Member(..) => {}
        }
    }

    /// Tells the other servers what to do.
    pub(crate) fn tell(
        &self,
        control: &Control,
        tickets: Tickets<'_>,
    ) -> Answer<Result<(), Refusal>> {
        match &self.cluster {
            Some(cluster) => cluster.tell(control, tickets),
            None => Answer::Now(Ok(())),
        }
    }

    /// A session of a user has begun.
    pub(crate) fn add_user(&self, user: &Arc<str>) {
        if let Some(cluster) = &self.cluster {
            cluster.add_user(user);
        }
    }

    /// A session of a user has ended.
    pub(crate) fn remove_user(&self, user: &Arc<str>) {
        if let Some(cluster) = &self.cluster {
            cluster.remove_user(user);
        }
    }

    /// Has the broker tell all who wait for it that it answers no more.
    pub(crate) fn stop_broker(&self) {
        if let Some(cluster) = &self.cluster {
            cluster.stop();
        }
    }

    /// Whether the broker that is shared with other servers answers; `None` without one.
    pub(crate) fn broker_health(&self) -> Option<BrokerHealth> {
        self.cluster.as_ref().map(|cluster| cluster.health())
    }
}

//! The health of the shards, and the end of a server.

use crate::handle::Handle;
use crate::model::{ServerFailure, ShardHealth};
use crate::topics::broker::BrokerHealth;
use std::sync::atomic::Ordering;

impl Handle {
    /// Why the server has ended by itself, if it has. Its shards have stopped then, or are about
    /// to, and everything that is asked of it fails.
    #[must_use]
    pub fn failure(&self) -> Option<ServerFailure> {
        self.shared.life.failure.get().cloned()
    }

    /// Whether the server has stopped, or is about to.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.shared.is_stopped()
    }

    /// How the broker is that this server shares topics over; `None` without one.
    #[must_use]
    pub fn broker_health(&self) -> Option<BrokerHealth> {
        self.shared.hub.broker_health()
    }

    /// How each shard is, in the order of the shards.
    #[must_use]
    pub fn shard_health(&self) -> Vec<ShardHealth> {
        self.shared.shard_health()
    }

    /// A shard has ended though nobody stopped it. The others cannot serve its part, so they stop
    /// as well.
    pub(crate) fn fail(&self, shard: usize, reason: String) {
        let failure = ServerFailure { shard, reason };
        tracing::error!(%failure, "the server ends");
        // The first failure is the cause of the others, if there are several.
        let _ = self.shared.life.failure.set(failure);
        self.stop_shards();
    }

    pub(crate) fn stop_shards(&self) {
        self.shared.life.stopped.store(true, Ordering::Release);
        for mailbox in self.mailboxes.iter() {
            mailbox.wake();
        }
        self.shared.hub.stop_broker();
    }
}

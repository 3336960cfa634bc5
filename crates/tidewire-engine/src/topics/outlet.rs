//! Outlets: queues of publications to be delivered by a shard.

use super::publication::Publication;
use crate::model::ShardHealth;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;
use tidewire_net::{ConnectionId, Heartbeat, Waker};

/// One publication for one shard.
#[derive(Debug)]
pub(crate) struct Delivery {
    /// Grows with every delivery of the same topic.
    pub(crate) seq: u64,
    pub(crate) target: Target,
    pub(crate) publication: Arc<Publication>,
}

/// The receivers of a publication.
#[derive(Debug, Clone)]
pub(crate) enum Target {
    /// The subscribers of its topic, and of the patterns that match it.
    Topic,
    /// Only the subscribers of the patterns that match its topic.
    Patterns,
    /// Only the subscribers of one pattern, which is its topic.
    Pattern,
    /// Every session.
    Everyone,
    /// The sessions of a user.
    User(Arc<str>),
    /// One session.
    Connection(ConnectionId),
    /// The member of a queue group, if it still is one: the tag is its session's.
    Member(ConnectionId, u32),
}

/// The deliveries that wait for their shard.
#[derive(Debug, Default)]
struct Waiting {
    deliveries: VecDeque<Delivery>,
    /// When the oldest was put in; meaningless without any.
    since: Option<Instant>,
}

/// The queue of one shard. Publishers add deliveries; the shard removes all at once. The publishers
/// bound its size: they look at [`bytes`](Self::bytes) first.
#[derive(Debug, Default)]
pub(crate) struct Outlet {
    queue: Mutex<Waiting>,
    /// Of all deliveries that the shard has not made, including those that it has removed from the queue.
    bytes: AtomicUsize,
    /// Nothing more is put in: the shard was stuck, and its sessions end when it goes on. Changed
    /// under the queue's lock.
    is_detached: AtomicBool,
    /// Set when the shard has been made.
    shard: OnceLock<(Waker, Heartbeat)>,
}

impl Outlet {
    pub(crate) fn connect(&self, waker: Waker, heartbeat: Heartbeat) {
        // An outlet has one shard.
        let _ = self.shard.set((waker, heartbeat));
    }

    /// How its shard is.
    pub(crate) fn health(&self, stall_ms: u64) -> ShardHealth {
        let shard = self.shard.get();
        shard.map_or(ShardHealth::Healthy, |(_, heartbeat)| {
            ShardHealth::of(heartbeat, stall_ms)
        })
    }

    /// True if the shard is stuck, so that nobody has to wait for it. The queue is dropped then,
    /// and so are all further deliveries until the shard goes on.
    pub(crate) fn detach_if_stuck(&self, shard: usize, stall_ms: u64) -> bool {
        if self.is_detached.load(Ordering::Acquire) {
            return true;
        }
        let ShardHealth::Stuck { turn_ms } = self.health(stall_ms) else {
            return false;
        };
        let dropped = {
            let mut queue = self.lock();
            self.is_detached.store(true, Ordering::Release);
            std::mem::take(&mut queue.deliveries)
        };
        // It may have gone on just before, and waits for something to do now.
        if let Some((waker, _)) = self.shard.get() {
            waker.wake();
        }
        let costs = dropped.iter().map(|delivery| delivery.publication.cost());
        self.settle(costs.sum());
        tracing::error!(
            shard,
            turn_ms,
            dropped = dropped.len(),
            "a shard is stuck; publishers do not wait for it, and its sessions end when it goes on",
        );
        true
    }

    /// The shard goes on. Returns whether it was detached, and so may have missed deliveries.
    pub(crate) fn reattach(&self) -> bool {
        if !self.is_detached.load(Ordering::Acquire) {
            return false;
        }
        let _queue = self.lock();
        self.is_detached.swap(false, Ordering::AcqRel)
    }

    /// Puts a delivery in, and wakes the shard unless it is the one that calls.
    pub(crate) fn push(&self, delivery: Delivery, is_own: bool) {
        let cost = delivery.publication.cost();
        let was_empty = {
            let mut queue = self.lock();
            if self.is_detached.load(Ordering::Relaxed) {
                return;
            }
            self.bytes.fetch_add(cost, Ordering::AcqRel);
            let was_empty = queue.deliveries.is_empty();
            if was_empty {
                queue.since = Some(Instant::now());
            }
            queue.deliveries.push_back(delivery);
            was_empty
        };
        if was_empty
            && !is_own
            && let Some((waker, _)) = self.shard.get()
        {
            waker.wake();
        }
    }

    /// Moves all waiting deliveries to the end of `queue`. Returns when the oldest of them was put
    /// in, if there were any.
    pub(crate) fn take(&self, queue: &mut VecDeque<Delivery>) -> Option<Instant> {
        let mut waiting = self.lock();
        if waiting.deliveries.is_empty() {
            return None;
        }
        if queue.is_empty() {
            std::mem::swap(&mut waiting.deliveries, queue);
        } else {
            queue.append(&mut waiting.deliveries);
        }
        waiting.since.take()
    }

    /// The bytes that are yet to be delivered.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Acquire)
    }

    /// A delivery that the shard has removed from the queue has been made.
    pub(crate) fn settle(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::AcqRel);
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The publisher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Another thread: refused while a shard has too much to deliver.
    Outside,
    /// This shard: what it has read is not refused; it stops reading instead.
    Shard(u32),
}

impl Origin {
    pub(crate) fn is(self, shard: usize) -> bool {
        matches!(self, Self::Shard(own) if own as usize == shard)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidewire_net::{Handler, Io, Shard, ShardConfig};

    struct Idle;

    impl Handler for Idle {
        type Mail = ();

        fn handle_data(&mut self, _: &mut Io, _: ConnectionId, data: &mut [u8]) -> usize {
            data.len()
        }

        fn handle_close(&mut self, _: &mut Io, _: ConnectionId, _: tidewire_net::Closed) {}

        fn handle_mail(&mut self, _: &mut Io, (): ()) {}
    }

    #[test]
    fn a_shard_that_was_stopped_while_it_waited_is_stuck() {
        let (shard, mailbox) = Shard::new(&ShardConfig::default(), Idle).unwrap();
        let outlet = Outlet::default();
        outlet.connect(mailbox.waker(), shard.heartbeat());
        assert_eq!(outlet.health(1), ShardHealth::Healthy);
        while outlet.health(1) == ShardHealth::Healthy {
            std::thread::yield_now();
        }
        assert!(outlet.detach_if_stuck(0, 1) && outlet.reattach());
    }
}

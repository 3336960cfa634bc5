//! Publications on their way to a shard.

use super::publication::Publication;
use crate::shard::Mail;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use tidewire_net::{ConnectionId, Mailbox};

/// One publication for one shard.
#[derive(Debug)]
pub(crate) struct Delivery {
    /// Grows with every delivery of the same topic.
    pub(crate) seq: u64,
    pub(crate) target: Target,
    pub(crate) publication: Arc<Publication>,
}

/// Who gets a publication.
#[derive(Debug, Clone)]
pub(crate) enum Target {
    /// The subscribers of its topic, and of the patterns that match it.
    Topic,
    /// Every session.
    Everyone,
    /// The sessions of a user.
    User(Arc<str>),
    /// One session.
    Connection(ConnectionId),
    /// The member of a queue group, if it still is one: the tag is its session's.
    Member(ConnectionId, u32),
}

/// The queue of one shard. Whoever publishes puts in; the shard takes all at once. It is bounded by those who put
/// in: they look at [`bytes`](Self::bytes) first.
#[derive(Debug, Default)]
pub(crate) struct Outlet {
    queue: Mutex<VecDeque<Delivery>>,
    /// Of what the shard has not delivered, also when it has taken it.
    bytes: AtomicUsize,
    /// Set when the shard has been made.
    waker: OnceLock<Mailbox<Mail>>,
}

impl Outlet {
    pub(crate) fn connect(&self, waker: Mailbox<Mail>) {
        // An outlet has one shard.
        let _ = self.waker.set(waker);
    }

    /// Puts a delivery in, and wakes the shard unless it is the one that calls.
    pub(crate) fn push(&self, delivery: Delivery, is_own: bool) {
        self.bytes
            .fetch_add(delivery.publication.cost(), Ordering::AcqRel);
        let was_empty = {
            let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
            queue.push_back(delivery);
            queue.len() == 1
        };
        if was_empty
            && !is_own
            && let Some(waker) = self.waker.get()
        {
            waker.wake();
        }
    }

    /// Moves all that is there behind what is in `queue`.
    pub(crate) fn take(&self, queue: &mut VecDeque<Delivery>) {
        let mut waiting = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if queue.is_empty() {
            std::mem::swap(&mut *waiting, queue);
        } else {
            queue.append(&mut waiting);
        }
    }

    /// What is yet to be delivered, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Acquire)
    }

    /// A delivery that was taken has been made.
    pub(crate) fn settle(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::AcqRel);
    }
}

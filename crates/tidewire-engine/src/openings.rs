//! The opening handshakes in progress, and which of them goes when newcomers wait.
//!
//! Their number is limited. A client that works sends its request at once, so when the limit is reached, one that
//! has had its fair time gives its place to a newcomer: however many sockets are held open in silence, a
//! shard still takes `limit / fair time` connections a second.

use std::collections::VecDeque;
use std::time::{Duration, Instant};
use tidewire_net::ConnectionId;

#[derive(Debug)]
pub(crate) struct Openings {
    limit: usize,
    count: usize,
    /// Oldest first. Those that are over stay in it until they come to the front.
    queue: VecDeque<(ConnectionId, Instant)>,
}

impl Openings {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit,
            count: 0,
            queue: VecDeque::new(),
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Whether there is room for one more, or somebody to make room.
    pub(crate) fn may_accept(&self, is_opening: impl Fn(ConnectionId) -> bool) -> bool {
        self.count < self.limit
            || self
                .eviction(is_opening)
                .is_none_or(|at| at <= Instant::now())
    }

    /// When the oldest will have had its time, if newcomers have to wait for that.
    pub(crate) fn next_eviction(
        &self,
        is_opening: impl Fn(ConnectionId) -> bool,
    ) -> Option<Instant> {
        // Once it has come, only a newcomer is a reason to wake up.
        self.eviction(is_opening).filter(|at| *at > Instant::now())
    }

    /// Takes note of a new one. Returns the oldest if that is one too many.
    pub(crate) fn enter(
        &mut self,
        id: ConnectionId,
        now: Instant,
        is_opening: impl Fn(ConnectionId) -> bool,
    ) -> Option<ConnectionId> {
        if self.queue.len() > 2 * self.count + QUEUE_SLACK {
            self.queue.retain(|(id, _)| is_opening(*id));
        }
        self.forget_ended(&is_opening);
        self.queue.push_back((id, now));
        self.count += 1;
        if self.count <= self.limit {
            return None;
        }
        self.queue.pop_front().map(|(oldest, _)| oldest)
    }

    /// One is over, well or not.
    pub(crate) fn leave(&mut self) {
        self.count -= 1;
    }

    /// Drops from the front what is over.
    pub(crate) fn forget_ended(&mut self, is_opening: impl Fn(ConnectionId) -> bool) {
        while self.queue.front().is_some_and(|(id, _)| !is_opening(*id)) {
            self.queue.pop_front();
        }
    }

    fn eviction(&self, is_opening: impl Fn(ConnectionId) -> bool) -> Option<Instant> {
        if self.count < self.limit {
            return None;
        }
        let oldest = self.queue.iter().find(|(id, _)| is_opening(*id));
        oldest.map(|(_, since)| *since + FAIR_TIME)
    }
}

/// How long a handshake keeps its place when others wait for it: more than a round trip around the world, so
/// that TLS and the request get through.
const FAIR_TIME: Duration = Duration::from_millis(500);

/// Entries that are over before the queue is searched for them.
const QUEUE_SLACK: usize = 1024;

//! Counts of a test server: each shard writes its own, any thread reads their sum.

use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// The counts of a test server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Of connections.
    pub connections: Connections,
    /// Of requests; those for the counts and for WebSocket are left out.
    pub requests: Requests,
    /// Responses by status. The upgrade of a WebSocket connection is here, too, as 101.
    pub statuses: BTreeMap<u16, u64>,
    /// Of everything above TLS, with all heads.
    pub bytes: Bytes,
    /// Of the WebSocket echo.
    pub websocket: Messages,
}

/// Connections of a test server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Connections {
    /// Accepted so far.
    pub accepted: u64,
    /// Of them, not ended yet.
    pub open: u64,
}

/// Requests of a test server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Requests {
    /// Received whole.
    pub received: u64,
    /// Of them, answered: with a good or a bad response.
    pub answered: u64,
    /// Of them, not answered: the connection was closed instead, as `close_percent` defines.
    pub closed: u64,
    /// Of them, not answered: the client had closed the connection before the response.
    pub abandoned: u64,
    /// Incomplete: the connection ended in the middle.
    pub cut_off: u64,
    /// Not HTTP, or beyond a limit: answered with a status of their own.
    pub malformed: u64,
}

/// Bytes of a test server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Bytes {
    /// Received.
    pub received: u64,
    /// Passed to the system to send.
    pub sent: u64,
}

/// WebSocket messages of a test server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Messages {
    /// Connections that became WebSocket connections.
    pub connections: u64,
    /// Messages received whole.
    pub received: u64,
    /// Messages sent back.
    pub sent: u64,
}

impl Counts {
    pub(super) fn of(ledgers: &[Ledger]) -> Self {
        let sum = |count: fn(&Ledger) -> &Count| ledgers.iter().map(|one| count(one).value()).sum();
        let accepted: u64 = sum(|ledger| &ledger.accepted);
        let ended: u64 = sum(|ledger| &ledger.ended);
        let statuses = (STATUS_MIN..STATUS_END)
            .zip(0..)
            .map(|(status, index): (u16, usize)| {
                let responses: u64 = ledgers.iter().map(|one| one.statuses[index].value()).sum();
                (status, responses)
            });
        Self {
            connections: Connections {
                accepted,
                open: accepted.saturating_sub(ended),
            },
            requests: Requests {
                received: sum(|ledger| &ledger.requests),
                answered: sum(|ledger| &ledger.answered),
                closed: sum(|ledger| &ledger.closed),
                abandoned: sum(|ledger| &ledger.abandoned),
                cut_off: sum(|ledger| &ledger.cut_off),
                malformed: sum(|ledger| &ledger.malformed),
            },
            statuses: statuses.filter(|(_, responses)| *responses > 0).collect(),
            bytes: Bytes {
                received: sum(|ledger| &ledger.bytes_received),
                sent: sum(|ledger| &ledger.bytes_sent),
            },
            websocket: Messages {
                connections: sum(|ledger| &ledger.websockets),
                received: sum(|ledger| &ledger.messages_received),
                sent: sum(|ledger| &ledger.messages_sent),
            },
        }
    }
}

/// The counts of one shard.
#[derive(Debug)]
pub(super) struct Ledger {
    pub(super) accepted: Count,
    pub(super) ended: Count,
    pub(super) requests: Count,
    pub(super) answered: Count,
    pub(super) closed: Count,
    pub(super) abandoned: Count,
    pub(super) cut_off: Count,
    pub(super) malformed: Count,
    pub(super) bytes_received: Count,
    pub(super) bytes_sent: Count,
    pub(super) websockets: Count,
    pub(super) messages_received: Count,
    pub(super) messages_sent: Count,
    statuses: Vec<Count>,
}

impl Default for Ledger {
    fn default() -> Self {
        Self {
            accepted: Count::default(),
            ended: Count::default(),
            requests: Count::default(),
            answered: Count::default(),
            closed: Count::default(),
            abandoned: Count::default(),
            cut_off: Count::default(),
            malformed: Count::default(),
            bytes_received: Count::default(),
            bytes_sent: Count::default(),
            websockets: Count::default(),
            messages_received: Count::default(),
            messages_sent: Count::default(),
            statuses: (STATUS_MIN..STATUS_END).map(|_| Count::default()).collect(),
        }
    }
}

impl Ledger {
    /// Counts a response.
    pub(super) fn count_status(&self, status: u16) {
        let index = usize::from(status.saturating_sub(STATUS_MIN));
        if let Some(count) = self.statuses.get(index) {
            count.add(1);
        }
    }
}

/// A count that one thread writes and any thread reads.
#[derive(Debug, Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    /// Call it only on the shard's own thread: it is cheaper than an addition that many threads may
    /// make.
    #[inline]
    pub(super) fn add(&self, more: u64) {
        let before = self.0.load(Ordering::Relaxed);
        self.0.store(before.wrapping_add(more), Ordering::Relaxed);
    }

    fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

const STATUS_MIN: u16 = 100;
const STATUS_END: u16 = 600;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_added_up() {
        let ledgers = [Ledger::default(), Ledger::default()];
        for ledger in &ledgers {
            ledger.accepted.add(3);
            ledger.count_status(200);
            ledger.count_status(599);
        }
        ledgers[1].ended.add(1);
        let counts = Counts::of(&ledgers);
        assert_eq!(counts.connections.accepted, 6);
        assert_eq!(counts.connections.open, 5);
        assert_eq!(counts.statuses, BTreeMap::from([(200, 2), (599, 2)]));
    }
}

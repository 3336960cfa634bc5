//! Delivery budget of a turn: the work and the bytes that one shard delivers before it reads its sockets again.

use crate::topics::filter::Filter;
use crate::topics::item::Item;

/// The deliveries of a turn.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    /// In units of [work](crate::limits::work).
    pub(super) spent: u64,
    /// Of publications gathered, counted for each receiver.
    pub(super) bytes: usize,
}

impl Budget {
    pub(crate) fn spend(&mut self, units: u64) {
        self.spent += units;
    }

    /// The work spent so far, in units of [work](crate::limits::work).
    pub(crate) fn spent(&self) -> u64 {
        self.spent
    }

    pub(crate) fn is_spent(&self) -> bool {
        self.spent >= DELIVERY_WORK_PER_TURN
    }

    /// Whether nothing more is gathered in this turn.
    pub(super) fn is_over(&self) -> bool {
        self.is_spent() || self.bytes >= DELIVERY_BYTES_PER_TURN
    }

    /// Whether a subscriber with this filter gets a publication. The protocol's own messages have
    /// no payload to look at.
    pub(crate) fn passes(&mut self, filter: &Filter, item: &Item) -> bool {
        let content = item.publication.content();
        if content.is_empty() {
            return true;
        }
        self.spend(filter.match_cost(content.len()));
        filter.matches(content)
    }
}

/// The bytes that one turn gathers, counted for each receiver. Less makes writes to thousands too
/// small.
pub(super) const DELIVERY_BYTES_PER_TURN: usize = 256 * 1024 * 1024;

/// The work that one turn delivers, in units of [work](crate::limits::work): some 4 ms, of which the kernel's
/// part can be as much again. The rest waits for the next turn, so that the sockets are read in between.
/// Gathered publications stay together, so that writes to thousands of subscribers have as much in them as
/// without the cut.
const DELIVERY_WORK_PER_TURN: u64 = 4_000_000;

/// The work that goes into batches before they are sent. A publication that thousands of patterns match is put into
/// thousands of batches.
pub(super) const GATHERING_WORK_PER_ROUND: u64 = DELIVERY_WORK_PER_TURN / 2;

//! The budget of one turn's deliveries.

use crate::topics::filter::Filter;
use crate::topics::local::Item;

/// What a turn has delivered.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    /// In units of [work](crate::limits::work).
    pub(crate) spent: u64,
    /// Of publications gathered, counted for each receiver.
    pub(crate) bytes: usize,
}

impl Budget {
    pub(crate) fn spend(&mut self, units: u64) {
        self.spent += units;
    }

    /// What was spent so far, in units of [work](crate::limits::work).
    pub(crate) fn spent(&self) -> u64 {
        self.spent
    }

    pub(crate) fn is_spent(&self) -> bool {
        self.spent >= DELIVERY_WORK_PER_TURN
    }

    /// Whether nothing more is gathered in this turn.
    pub(crate) fn is_over(&self) -> bool {
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

/// What one turn gathers, counted for each receiver, in bytes. Less makes writes to thousands too
/// small.
pub(crate) const DELIVERY_BYTES_PER_TURN: usize = 256 * 1024 * 1024;

/// What one turn delivers, in units of [work](crate::limits::work): some 10 ms, of which the
/// kernel's part can be as much again. The rest waits for the next turn, so that the sockets are
/// read in between. What was gathered stays together, so that writes to thousands of subscribers
/// have as much in them as without the cut.
pub(crate) const DELIVERY_WORK_PER_TURN: u64 = 10_000_000;

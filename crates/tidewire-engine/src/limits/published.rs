//! The publications of clients in one turn of a shard, counted for each of their receivers.

/// The bytes of a turn, and the budget for them.
///
/// The budget grows with the receivers, because the writes to thousands of them need much in them to be worth their system
/// calls, and to a hundred much less.
#[derive(Debug, Default)]
pub(crate) struct Published {
    bytes: usize,
    /// The most receivers that one publication had.
    receivers_max: usize,
}

impl Published {
    /// Charges a publication by its bytes and its receivers.
    pub(crate) fn charge(&mut self, bytes: usize, receivers: usize) {
        self.bytes += bytes * receivers;
        self.receivers_max = self.receivers_max.max(receivers);
    }

    /// Whether the budget is used up, so that clients that publish wait for the next turn.
    #[inline]
    pub(crate) fn is_spent(&self) -> bool {
        let budget = self.receivers_max.saturating_mul(BYTES_PER_RECEIVER);
        self.bytes > budget.clamp(BYTES_MIN, BYTES_MAX)
    }

    /// A turn begins.
    pub(crate) fn start_turn(&mut self) {
        *self = Self::default();
    }
}

/// With a quarter of it a fan-out to 1,000 subscribers was 7 % slower.
const BYTES_PER_RECEIVER: usize = 128 * 1024;

/// As much as a shard delivers in a few milliseconds.
const BYTES_MIN: usize = 4 * 1024 * 1024;

/// Some tens of milliseconds of work for the shard.
const BYTES_MAX: usize = 128 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_grows_with_the_receivers_and_ends_somewhere() {
        let bytes_until_spent = |receivers: usize| {
            let mut published = Published::default();
            while !published.is_spent() {
                published.charge(1024, receivers);
            }
            published.bytes
        };
        for (receivers, most) in [
            (1, BYTES_MIN),
            (100, 100 * BYTES_PER_RECEIVER),
            (1_000, 1_000 * BYTES_PER_RECEIVER),
            (10_000, BYTES_MAX),
        ] {
            let bytes = bytes_until_spent(receivers);
            assert!(
                (most..=most + 1024 * receivers).contains(&bytes),
                "{receivers}: {bytes}"
            );
        }
        let mut published = Published::default();
        published.charge(BYTES_MAX, 2);
        published.start_turn();
        assert!(!published.is_spent());
    }
}

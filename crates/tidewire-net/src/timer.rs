//! A timer wheel: one deadline per connection, set and moved in constant time.

/// Deadlines hashed into slots of [`TICK_MS`]. An entry whose time is more than a turn of the wheel
/// away stays in its slot and is looked at once a turn.
///
/// Moving a deadline to a later time does not touch the wheel: when the old time is reached, the entry moves
/// to its new slot. So an idle timeout that moves with every message costs nothing.
#[derive(Debug)]
pub(crate) struct TimerWheel {
    slots: Vec<Vec<Entry>>,
    /// The tick up to which, and with which, all is done.
    done_tick: u64,
    /// No entry is due before; `u64::MAX` when there is none.
    earliest_ms: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) index: u32,
    pub(crate) generation: u32,
    pub(crate) due_ms: u64,
}

impl TimerWheel {
    pub(crate) fn new(now_ms: u64) -> Self {
        Self {
            slots: vec![Vec::new(); SLOTS],
            done_tick: now_ms / TICK_MS,
            earliest_ms: u64::MAX,
        }
    }

    pub(crate) fn insert(&mut self, entry: Entry) {
        let tick = (entry.due_ms.div_ceil(TICK_MS)).max(self.done_tick + 1);
        self.slots[tick as usize % SLOTS].push(entry);
        self.earliest_ms = self.earliest_ms.min(tick.saturating_mul(TICK_MS));
    }

    /// The time of the next call of [`take_due`](Self::take_due), if one is needed.
    pub(crate) fn next_ms(&self) -> Option<u64> {
        (self.earliest_ms != u64::MAX).then_some(self.earliest_ms)
    }

    /// Moves the entries that are due to `due`.
    pub(crate) fn take_due(&mut self, now_ms: u64, due: &mut Vec<Entry>) {
        if now_ms < self.earliest_ms {
            return;
        }
        let now_tick = now_ms / TICK_MS;
        let passed = (now_tick - self.done_tick).min(SLOTS as u64);
        for tick in now_tick + 1 - passed..=now_tick {
            let slot = &mut self.slots[tick as usize % SLOTS];
            slot.retain(|entry| {
                let is_due = entry.due_ms <= now_ms;
                if is_due {
                    due.push(*entry);
                }
                !is_due
            });
            if slot.is_empty() && slot.capacity() > KEPT_CAPACITY {
                *slot = Vec::new();
            }
        }
        self.done_tick = now_tick;
        self.earliest_ms = self.scan_for_earliest();
    }

    fn scan_for_earliest(&self) -> u64 {
        (1..=SLOTS as u64)
            .map(|ahead| self.done_tick + ahead)
            .find(|tick| !self.slots[*tick as usize % SLOTS].is_empty())
            .map_or(u64::MAX, |tick| tick * TICK_MS)
    }
}

/// The maximum delay of a timer, in milliseconds.
const TICK_MS: u64 = 8;

/// One turn of the wheel is about 8 seconds.
const SLOTS: usize = 1024;

/// Entries that an empty slot keeps room for.
const KEPT_CAPACITY: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_entry_comes_once_and_on_time(
            delays in proptest::collection::vec(0u64..40_000, 1..60),
            steps in proptest::collection::vec(1u64..20_000, 1..30),
        ) {
            let start_ms = 123_456;
            let mut wheel = TimerWheel::new(start_ms);
            for (index, delay) in delays.iter().enumerate() {
                wheel.insert(Entry { index: index as u32, generation: 0, due_ms: start_ms + delay });
            }
            let mut now_ms = start_ms;
            let mut seen = vec![None; delays.len()];
            for step in steps.into_iter().chain([50_000]) {
                let before_ms = now_ms;
                now_ms += step;
                let mut due = Vec::new();
                if wheel.next_ms().is_some_and(|next_ms| next_ms <= now_ms) {
                    wheel.take_due(now_ms, &mut due);
                }
                for entry in due {
                    let old = seen[entry.index as usize].replace(now_ms);
                    prop_assert_eq!(old, None);
                    prop_assert!(entry.due_ms <= now_ms);
                    // It did not miss the call before by more than a tick.
                    prop_assert!(entry.due_ms + TICK_MS > before_ms);
                }
            }
            prop_assert!(seen.iter().all(Option::is_some));
            prop_assert_eq!(wheel.next_ms(), None);
        }
    }
}

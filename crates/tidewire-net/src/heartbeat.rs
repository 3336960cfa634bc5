//! Heartbeat of a shard: other threads see that its loop still turns.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The duration of the current turn of a shard. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Heartbeat(Arc<Beats>);

#[derive(Debug)]
struct Beats {
    started: Instant,
    /// The start of the turn, in milliseconds since `started` and 1; 0 between turns, [`ENDED`] after the last one.
    turn_since: AtomicU64,
}

/// The activity of a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pulse {
    /// It waits for something to do, or has yet to start.
    Waiting,
    /// It has been in one turn for so long.
    InTurn(Duration),
    /// Its loop has ended, well or by a panic.
    Ended,
}

impl Heartbeat {
    pub(crate) fn new(started: Instant) -> Self {
        let turn_since = AtomicU64::new(WAITING);
        Self(Arc::new(Beats {
            started,
            turn_since,
        }))
    }

    /// The current activity of the shard.
    #[must_use]
    pub fn pulse(&self) -> Pulse {
        match self.0.turn_since.load(Ordering::Relaxed) {
            WAITING => Pulse::Waiting,
            ENDED => Pulse::Ended,
            since => {
                let began = Duration::from_millis(since - 1);
                Pulse::InTurn(self.0.started.elapsed().saturating_sub(began))
            }
        }
    }

    /// A turn begins, at this time of the shard's clock.
    #[inline]
    pub(crate) fn begin_turn(&self, monotonic_ms: u64) {
        let since = monotonic_ms.saturating_add(1).min(ENDED - 1);
        self.0.turn_since.store(since, Ordering::Relaxed);
    }

    /// A turn is over.
    #[inline]
    pub(crate) fn end_turn(&self) {
        self.0.turn_since.store(WAITING, Ordering::Relaxed);
    }
}

/// Marks the end of a shard's loop, also when it unwinds.
#[derive(Debug)]
pub(crate) struct LastBeat(pub(crate) Heartbeat);

impl Drop for LastBeat {
    fn drop(&mut self) {
        let Heartbeat(beats) = &self.0;
        beats.turn_since.store(ENDED, Ordering::Relaxed);
    }
}

const WAITING: u64 = 0;
const ENDED: u64 = u64::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_and_the_end_are_seen() {
        let started = Instant::now()
            .checked_sub(Duration::from_secs(100))
            .unwrap();
        let heartbeat = Heartbeat::new(started);
        assert_eq!(heartbeat.pulse(), Pulse::Waiting);
        heartbeat.begin_turn(0);
        assert!(matches!(heartbeat.pulse(), Pulse::InTurn(long) if long.as_secs() >= 100));
        heartbeat.begin_turn(90_000);
        assert!(matches!(heartbeat.pulse(), Pulse::InTurn(long) if long.as_secs() >= 10));
        heartbeat.end_turn();
        assert_eq!(heartbeat.pulse(), Pulse::Waiting);
        drop(LastBeat(heartbeat.clone()));
        assert_eq!(heartbeat.pulse(), Pulse::Ended);
    }
}

//! Heartbeat of a shard: other threads see that its loop still turns.
//!
//! A shard that waits does nothing that others could see. Whoever looks at its pulse therefore wakes it, and the end of
//! the next turn is the answer: a thread that is stopped, or gets no processor, does not answer. This costs the loop
//! one store for each turn.

use crate::mailbox::Waker;
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
    /// When somebody looked at the pulse between turns and woke the shard, in the same unit; 0 if its loop has
    /// completed a turn since then.
    woken_since: AtomicU64,
    waker: Waker,
}

/// The activity of a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pulse {
    /// It waits for something to do, or has yet to start.
    Waiting,
    /// It waits although a look at its pulse woke it so long ago. A shard that lives answers within a moment.
    Unresponsive(Duration),
    /// It has been in one turn for so long.
    InTurn(Duration),
    /// Its loop has ended, well or by a panic.
    Ended,
}

impl Heartbeat {
    pub(crate) fn new(started: Instant, waker: Waker) -> Self {
        Self(Arc::new(Beats {
            started,
            turn_since: AtomicU64::new(WAITING),
            woken_since: AtomicU64::new(0),
            waker,
        }))
    }

    /// The current activity of the shard. Wakes one that waits, so that the next call knows whether it lives.
    #[must_use]
    pub fn pulse(&self) -> Pulse {
        let beats = &*self.0;
        let since = |stored: u64| {
            let began = Duration::from_millis(stored - 1);
            beats.started.elapsed().saturating_sub(began)
        };
        match beats.turn_since.load(Ordering::Relaxed) {
            WAITING => match beats.woken_since.load(Ordering::Relaxed) {
                0 => {
                    self.ask();
                    Pulse::Waiting
                }
                woken => Pulse::Unresponsive(since(woken)),
            },
            ENDED => Pulse::Ended,
            began => Pulse::InTurn(since(began)),
        }
    }

    /// Wakes the shard, whose answer is the end of a turn.
    ///
    /// The note is set before the wake. If the shard has been woken already, its turn has not accepted that
    /// wake yet, so the end of that turn removes the note; otherwise this wake leads to a turn.
    fn ask(&self) {
        let beats = &*self.0;
        let now = beats.started.elapsed().as_millis() as u64 + 1;
        let noted =
            beats
                .woken_since
                .compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
        if noted.is_ok() {
            beats.waker.wake();
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
        self.0.woken_since.store(0, Ordering::Relaxed);
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
    use crate::mailbox::mailbox;

    fn heartbeat(started: Instant) -> Heartbeat {
        let poll = mio::Poll::new().unwrap();
        let waker = mio::Waker::new(poll.registry(), mio::Token(0)).unwrap();
        let (mailbox, _) = mailbox::<()>(waker, 1);
        Heartbeat::new(started, mailbox.waker())
    }

    #[test]
    fn turns_and_the_end_are_seen() {
        let started = Instant::now()
            .checked_sub(Duration::from_secs(100))
            .unwrap();
        let heartbeat = heartbeat(started);
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

//! The clocks that a client needs.

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tidewire_wire::session::Now;

/// A monotonic clock that begins with the client, and the clock of the wall beside it.
#[derive(Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn moment(&self) -> Moment {
        let us = u64::try_from(self.0.elapsed().as_micros()).unwrap_or(u64::MAX);
        Moment {
            now: Now {
                monotonic_ms: us / 1_000,
                unix_ms: wall_ms(),
            },
            us,
        }
    }
}

/// A moment on the clocks that a client needs.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Moment {
    pub(crate) now: Now,
    /// The monotonic clock, in microseconds.
    pub(crate) us: u64,
}

impl Moment {
    pub(crate) fn ms(self) -> u64 {
        self.now.monotonic_ms
    }
}

/// Milliseconds since 1970 by a clock that nobody can set while the process runs: the time of the wall clock at
/// the first call, plus the time passed since then, including the machine's sleep where the system counts it.
///
/// Ages are counted by it. With the wall clock, a machine that starts in 1970 and learns the date a minute
/// later would find all its stored messages too old, and a machine whose date is set back would send messages
/// that are of no use any more.
pub(crate) fn steady_unix_ms() -> u64 {
    static START: OnceLock<(u64, Duration)> = OnceLock::new();
    let (wall_ms, start) = START.get_or_init(|| (wall_ms(), since_boot()));
    let passed = since_boot().saturating_sub(*start);
    wall_ms.saturating_add(u64::try_from(passed.as_millis()).unwrap_or(u64::MAX))
}

/// The moment after `time`, or a moment 30 years away if the clock has no such moment.
pub(crate) fn after(time: Duration) -> tokio::time::Instant {
    let now = tokio::time::Instant::now();
    now.checked_add(time).unwrap_or(now + FAR)
}

fn wall_ms() -> u64 {
    // A clock before 1970 was not set.
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// The time since some start. On Linux and Android it includes the time in which the machine slept.
fn since_boot() -> Duration {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
        let nanos = u32::try_from(time.tv_nsec).unwrap_or_default();
        Duration::new(seconds, nanos)
    }
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    {
        static START: OnceLock<Instant> = OnceLock::new();
        START.get_or_init(Instant::now).elapsed()
    }
}

/// Longer than any process runs: 30 years.
const FAR: Duration = Duration::from_secs(30 * 365 * 24 * 3_600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_steady_clock_follows_the_wall_and_never_goes_back() {
        let (first, wall) = (steady_unix_ms(), wall_ms());
        assert!(first.abs_diff(wall) < 60_000);
        assert!(steady_unix_ms() >= first);
    }

    #[test]
    fn a_time_without_end_is_a_moment() {
        assert!(after(Duration::MAX) > after(Duration::from_secs(1)));
    }
}

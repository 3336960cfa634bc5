//! The clocks of the engine: a shard has its own, other threads ask the operating system.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tidewire_net::Io;
use tidewire_wire::session::Now;

/// The time in milliseconds since 1970, for those who have no shard's clock.
pub(crate) fn unix_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |unix| unix.as_millis() as u64)
}

/// The same without the steps of the clock: of publications that expire, sessions that begin, and commands to them.
pub(crate) fn steady_unix_ms() -> u64 {
    tidewire_net::steady_unix_ms()
}

/// The moment after this time, or one in a hundred years if the clock cannot represent it.
pub(crate) fn after(time: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(time).unwrap_or(now + FAR)
}

/// A hundred years.
const FAR: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// The time in nanoseconds since 1970, which spans have.
pub(crate) fn unix_ns() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |unix| unix.as_nanos() as u64)
}

/// The shard's clocks without the steps of the clock of this machine: see [`steady_unix_ms`].
pub(crate) fn steady_now(io: &Io) -> Now {
    let now = io.now();
    Now {
        monotonic_ms: now.monotonic_ms,
        unix_ms: now.steady_unix_ms,
    }
}

/// The shard's clocks in the form that the protocol uses.
pub(crate) fn wire_now(io: &Io) -> Now {
    let now = io.now();
    Now {
        monotonic_ms: now.monotonic_ms,
        unix_ms: now.unix_ms,
    }
}

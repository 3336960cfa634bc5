//! The worker's voice, its clock, and what it says about its process.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::accounting::live::Live;
use crate::accounting::resources;
use crate::worker::contract::figures::LiveFigures;
use crate::worker::contract::words::Word;

/// Standard output, one line at a time.
#[derive(Debug, Clone, Default)]
pub(super) struct Voice(Arc<Mutex<()>>);

impl Voice {
    pub(super) fn say(&self, word: &Word) {
        let Ok(mut bytes) = serde_json::to_vec(word) else {
            return;
        };
        bytes.push(b'\n');
        let _one_at_a_time = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut out = io::stdout().lock();
        if out.write_all(&bytes).and_then(|()| out.flush()).is_err() {
            // Nobody is there to work for.
            std::process::exit(1);
        }
    }
}

/// The clock of this process, which never goes back.
pub(super) fn clock_ns() -> i64 {
    base().elapsed().as_nanos() as i64
}

pub(super) fn base() -> Instant {
    static BASE: OnceLock<Instant> = OnceLock::new();
    *BASE.get_or_init(Instant::now)
}

/// Waits until the clock shows this time.
pub(super) fn sleep_until(time_ns: i64) {
    let wait_ns = time_ns.saturating_sub(clock_ns());
    if wait_ns > 0 {
        std::thread::sleep(Duration::from_nanos(wait_ns.cast_unsigned()));
    }
}

/// The figures of this process at one moment.
pub(super) fn live(now: &Live, stopped: Duration) -> LiveFigures {
    LiveFigures {
        connected: now.connected,
        failed: now.failed,
        offered: now.offered,
        confirmed: now.confirmed,
        latency_p99_ns: (now.latency_p99_us.unwrap_or(0.0) * 1e3) as u64,
        stopped_ns: stopped.as_nanos() as u64,
        cpu_ns: resources::process_cpu().unwrap_or_default().as_nanos() as u64,
        rss_bytes: resources::own_rss_bytes().unwrap_or(0),
    }
}

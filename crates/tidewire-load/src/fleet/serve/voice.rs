//! The worker's voice and its clock.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

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

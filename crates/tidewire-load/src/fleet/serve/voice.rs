//! The lines between a worker and its controller, the worker's clock, and the figures of its process.

use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::accounting::live::Live;
use crate::accounting::resources;
use crate::worker::contract::figures::LiveFigures;
use crate::worker::contract::words::Word;

/// Standard output, one line at a time, and the time at which something went to the controller or came from it.
#[derive(Debug, Clone, Default)]
pub(super) struct Voice {
    line: Arc<Mutex<()>>,
    moved_ms: Arc<AtomicU64>,
}

impl Voice {
    pub(super) fn say(&self, word: &Word) {
        let Ok(mut bytes) = serde_json::to_vec(word) else {
            return;
        };
        bytes.push(b'\n');
        let _one_at_a_time = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        let mut out = io::stdout().lock();
        // A long line may take its time: each piece is a sign of life.
        for piece in bytes.chunks(PIECE_BYTES) {
            if out.write_all(piece).and_then(|()| out.flush()).is_err() {
                // Nobody is there to work for.
                std::process::exit(1);
            }
            if bytes.len() > PIECE_BYTES {
                self.note();
            }
        }
    }

    /// Something has come from the controller, or gone to it.
    pub(super) fn note(&self) {
        let now_ms = base().elapsed().as_millis() as u64;
        self.moved_ms.store(now_ms, Ordering::Relaxed);
    }

    /// The time since then.
    pub(super) fn silence(&self) -> Duration {
        let moved = Duration::from_millis(self.moved_ms.load(Ordering::Relaxed));
        base().elapsed().saturating_sub(moved)
    }
}

/// Standard input, of which each piece is a sign of life.
pub(super) struct Ear(pub(super) Voice);

impl Read for Ear {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = io::stdin().lock().read(buffer)?;
        self.0.note();
        Ok(read)
    }
}

const PIECE_BYTES: usize = 64 * 1024;

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

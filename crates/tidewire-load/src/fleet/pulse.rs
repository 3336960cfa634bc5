//! The pulse of the generator: a thread that wakes up regularly and so detects when its whole
//! process, or its machine, did not run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::accounting::resources::WaitClock;

/// Ends its thread when dropped.
#[derive(Debug)]
pub(crate) struct Pulse {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    is_over: AtomicBool,
    beats: AtomicU64,
    stopped_ns: AtomicU64,
}

impl Pulse {
    /// Starts the pulse. Without a thread for it nothing is detected.
    pub(crate) fn start() -> Self {
        let shared = Arc::new(Shared::default());
        let thread = std::thread::Builder::new()
            .name("load-pulse".to_owned())
            .spawn({
                let shared = Arc::clone(&shared);
                move || beat(&shared)
            });
        Self {
            shared,
            thread: thread.ok(),
        }
    }

    /// The time for which the process has not run so far, as far as a beat was late for it. It waits for the next beat,
    /// which counts a stop that has only just ended.
    pub(crate) fn stopped(&self) -> Duration {
        let beats = || self.shared.beats.load(Ordering::Acquire);
        let (before, called) = (beats(), Instant::now());
        while self.thread.is_some() && beats() == before && called.elapsed() < BEAT_WAIT_MAX {
            std::thread::sleep(BEAT / 10);
        }
        self.counted()
    }

    /// The same without a wait, so that a stop that has only just ended may be missing.
    pub(crate) fn counted(&self) -> Duration {
        Duration::from_nanos(self.shared.stopped_ns.load(Ordering::Relaxed))
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It cannot panic, and if it did, it would not end a run.
            let _ = thread.join();
        }
    }
}

fn beat(shared: &Shared) {
    let clock = WaitClock::of_this_thread();
    let (mut last, mut last_waited) = (Instant::now(), clock.waited());
    while !shared.is_over.load(Ordering::Relaxed) {
        std::thread::sleep(BEAT);
        let (now, waited) = (Instant::now(), clock.waited());
        // A thread that was ready to run and had no core is a separate case, which the workers
        // measure.
        let in_line = waited.zip(last_waited);
        let in_line = in_line.map_or(Duration::ZERO, |(now, last)| now.saturating_sub(last));
        let stopped = (now - last).saturating_sub(BEAT + in_line);
        if stopped >= STOPPED_MIN {
            let stopped_ns = stopped.as_nanos() as u64;
            shared.stopped_ns.fetch_add(stopped_ns, Ordering::Relaxed);
        }
        shared.beats.fetch_add(1, Ordering::Release);
        (last, last_waited) = (now, waited);
    }
}

const BEAT: Duration = Duration::from_millis(10);

/// A thread that has no core for so long is one of a generator without cores, which the workers measure.
const BEAT_WAIT_MAX: Duration = Duration::from_millis(200);

/// A sleep is late by less than this for many reasons.
const STOPPED_MIN: Duration = Duration::from_millis(20);

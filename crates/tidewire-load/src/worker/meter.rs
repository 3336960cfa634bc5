//! Processor time of a worker's thread, and the part of it that is work.

use std::time::Duration;

use crate::accounting::outcome::CpuTime;
use crate::accounting::resources::{WaitClock, thread_cpu, thread_waited};

/// The time from one moment of the calling thread to another.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Meter {
    cpu: Option<Duration>,
    waited: Option<Duration>,
    spun: Duration,
}

impl Meter {
    /// Starts now. `spun` is the time that the thread has spent in wait loops so far.
    pub(crate) fn start(spun: Duration) -> Self {
        Self {
            cpu: thread_cpu(),
            waited: thread_waited(),
            spun,
        }
    }

    /// The processor time since the start.
    pub(crate) fn stop(&self, spun: Duration) -> CpuTime {
        let since =
            |start: Option<Duration>, now: Option<Duration>| Some(now?.saturating_sub(start?));
        let Some(cpu) = since(self.cpu, thread_cpu()) else {
            return CpuTime::default();
        };
        let waited = since(self.waited, thread_waited());
        CpuTime::of_thread(cpu, spun.saturating_sub(self.spun), waited)
    }
}

/// The waits of the calling thread for a core, piece by piece.
#[derive(Debug, Default)]
pub(crate) struct WaitMeter {
    clock: Option<WaitClock>,
    last: Option<(u64, Duration)>,
}

impl WaitMeter {
    /// The length of the piece since the last call and the wait in it, in nanoseconds; `None` at first,
    /// and where the system does not say.
    pub(crate) fn look(&mut self, now_ns: u64) -> Option<(u64, u64)> {
        let clock = self.clock.get_or_insert_with(WaitClock::of_this_thread);
        let waited = clock.waited()?;
        let last = self.last.replace((now_ns, waited));
        let (last_ns, before) = last?;
        let waited_ns = waited.saturating_sub(before).as_nanos() as u64;
        Some((now_ns.saturating_sub(last_ns), waited_ns))
    }
}

/// The time that a worker spends polling its sockets until the next message is due. It uses the
/// processor and is not work.
#[derive(Debug, Default)]
pub(crate) struct Spin {
    since_ns: Option<u64>,
    spun_ns: u64,
}

impl Spin {
    /// There is nothing to do until the next message.
    pub(crate) fn begin(&mut self, now_ns: u64) {
        self.since_ns = Some(now_ns);
    }

    pub(crate) fn is_on(&self) -> bool {
        self.since_ns.is_some()
    }

    /// There is something to do.
    pub(crate) fn end(&mut self, now_ns: u64) {
        if let Some(since_ns) = self.since_ns.take() {
            self.spun_ns += now_ns.saturating_sub(since_ns);
        }
    }

    /// The total so far.
    pub(crate) fn spun(&self) -> Duration {
        Duration::from_nanos(self.spun_ns)
    }
}

//! What a worker's thread has of the processor, and how much of it is work.

use std::time::Duration;

use crate::accounting::outcome::CpuTime;
use crate::accounting::resources::{thread_cpu, thread_waited};

/// From one moment of the calling thread to another.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Meter {
    cpu: Option<Duration>,
    waited: Option<Duration>,
    spun: Duration,
}

impl Meter {
    /// From now on. `spun` is what the thread has spent in loops so far.
    pub(crate) fn start(spun: Duration) -> Self {
        Self {
            cpu: thread_cpu(),
            waited: thread_waited(),
            spun,
        }
    }

    /// What has been used since.
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

/// The time that a worker spends looking at its sockets again and again until the next message is due, which
/// uses the processor and is no work.
#[derive(Debug, Default)]
pub(crate) struct Spin {
    since_ns: Option<u64>,
    spun_ns: u64,
}

impl Spin {
    /// Nothing is left to do until the next message.
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

    /// All of it so far.
    pub(crate) fn spun(&self) -> Duration {
        Duration::from_nanos(self.spun_ns)
    }
}

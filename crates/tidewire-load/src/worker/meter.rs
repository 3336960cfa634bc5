//! Processor time of a worker's thread, the part of it that is work, and the waits for a core.

use std::time::Duration;

use crate::accounting::outcome::CpuTime;
use crate::accounting::resources::{WaitClock, thread_cpu, thread_waited};
use crate::accounting::waits::Waits;

/// The time from one moment of the calling thread to another.
#[derive(Debug)]
pub(crate) struct Meter {
    cpu: Option<Duration>,
    waited: Option<Duration>,
    spun: Duration,
    clock: WaitClock,
    /// The end of the last piece, and all waits until then; `None` where the system does not report waits.
    piece: Option<(u64, Duration)>,
    waits: Waits,
}

impl Meter {
    /// Starts now. `spun` is the time that the thread has spent in wait loops so far.
    pub(crate) fn start(spun: Duration, now_ns: u64) -> Self {
        let clock = WaitClock::of_this_thread();
        Self {
            cpu: thread_cpu(),
            waited: thread_waited(),
            spun,
            piece: clock.waited().map(|waited| (now_ns, waited)),
            clock,
            waits: Waits::default(),
        }
    }

    /// Ends a piece of the waits if it is long enough.
    #[inline]
    pub(crate) fn look(&mut self, now_ns: u64) {
        if let Some((last_ns, _)) = self.piece
            && now_ns.saturating_sub(last_ns) >= PIECE_NS
        {
            self.end_piece(now_ns);
        }
    }

    fn end_piece(&mut self, now_ns: u64) {
        let Some(((last_ns, before), waited)) = self.piece.zip(self.clock.waited()) else {
            return;
        };
        self.piece = Some((now_ns, waited));
        let waited_ns = waited.saturating_sub(before).as_nanos() as u64;
        self.waits.add(now_ns.saturating_sub(last_ns), waited_ns);
    }

    /// The waits since the start.
    pub(crate) fn waits(&mut self, now_ns: u64) -> Waits {
        self.end_piece(now_ns);
        std::mem::take(&mut self.waits)
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

/// The length of a piece of the waits: the time between two readings.
const PIECE_NS: u64 = 50_000_000;

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

//! Condition of the generator during a test: whether it had the processor time that it needed.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::accounting::outcome::CpuTime;
use crate::accounting::recorder::Recorder;
use crate::accounting::resources;
use crate::report::model::{GeneratorHealth, Lateness};

/// The cores that the generator may use, determined once.
#[derive(Debug, Clone, Default)]
pub(crate) struct GeneratorCores {
    pub(crate) allowed: BTreeSet<u32>,
    /// Their number, fewer if a quota limits it.
    pub(crate) count: f64,
}

/// The state of the machine at the start of a test.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    cores_busy: Option<Duration>,
    own_cpu: Option<Duration>,
    throttled: Duration,
    stopped: Duration,
}

/// The time that a server on the same machine has used of the generator's cores meanwhile.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Neighbour {
    pub(crate) cpu: Duration,
}

impl GeneratorCores {
    pub(crate) fn find() -> Self {
        let own = std::process::id();
        let allowed = resources::allowed_cores(own);
        let quota = resources::quota(own).cores.unwrap_or(f64::INFINITY);
        let count = (allowed.len() as f64).min(quota);
        Self { allowed, count }
    }

    /// Those of this process, or this number of cores of other machines.
    pub(crate) fn of(elsewhere: Option<f64>) -> Self {
        elsewhere.map_or_else(Self::find, Self::elsewhere)
    }

    /// Cores of other machines.
    pub(crate) fn elsewhere(count: f64) -> Self {
        Self {
            allowed: BTreeSet::new(),
            count,
        }
    }
}

impl Moment {
    /// The current state. `stopped` is the time for which the process has not run so far.
    pub(crate) fn now(cores: &GeneratorCores, stopped: Duration) -> Self {
        Self {
            // Nobody here knows the cores of other machines.
            cores_busy: resources::cores_busy(&cores.allowed).filter(|_| !cores.allowed.is_empty()),
            own_cpu: resources::process_cpu(),
            throttled: resources::quota(std::process::id()).throttled,
            stopped,
        }
    }

    /// The same with the processor time of workers that are processes of this machine.
    pub(crate) fn with_workers(self, cpu: Duration) -> Self {
        Self {
            own_cpu: self.own_cpu.map(|own| own + cpu),
            ..self
        }
    }

    /// The generator's condition since `before`.
    pub(crate) fn health_since(
        &self,
        before: &Self,
        cpu: CpuTime,
        server: Neighbour,
        late: &Recorder,
    ) -> GeneratorHealth {
        let others = self.others_since(before, server);
        let own = since(self.own_cpu, before.own_cpu).unwrap_or(cpu.total);
        let throttled = self.throttled.saturating_sub(before.throttled);
        GeneratorHealth {
            waited_s: cpu.waited.map(|waited| waited.as_secs_f64()),
            waited_for_others_s: cpu
                .waited
                .zip(others)
                .map(|(waited, others)| waited_for_others_s(waited, others, server, own, cpu)),
            throttled_s: cfg!(target_os = "linux").then_some(throttled.as_secs_f64()),
            stopped_s: self.stopped.saturating_sub(before.stopped).as_secs_f64(),
            error_us: None,
            late_us: lateness(late),
        }
    }

    /// The time that programs other than the generator and the server have used of the generator's
    /// cores.
    fn others_since(&self, before: &Self, server: Neighbour) -> Option<Duration> {
        let busy = since(self.cores_busy, before.cores_busy)?;
        let own = since(self.own_cpu, before.own_cpu)?;
        Some(busy.saturating_sub(own + server.cpu))
    }
}

/// A thread that waits for a core waits for the program that uses it. Other programs count as far
/// as they worked on these cores; the rest is the server or the generator's other threads, which is
/// not a disturbance.
fn waited_for_others_s(
    waited: Duration,
    others: Duration,
    server: Neighbour,
    own: Duration,
    cpu: CpuTime,
) -> f64 {
    let siblings = own.saturating_sub(cpu.busiest + cpu.spun);
    let rivals_s = (others + server.cpu + siblings).as_secs_f64();
    if rivals_s > 0.0 {
        waited.as_secs_f64() * others.as_secs_f64() / rivals_s
    } else {
        0.0
    }
}

fn lateness(late: &Recorder) -> Option<Lateness> {
    let at = |percentile| late.percentile_ns(percentile) as f64 / 1e3;
    (late.count() > 0).then(|| Lateness {
        p50: at(50.0),
        p99: at(99.0),
        p99_9: at(99.9),
        max: at(100.0),
        count: late.count(),
    })
}

fn since(now: Option<Duration>, before: Option<Duration>) -> Option<Duration> {
    Some(now?.saturating_sub(before?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn moment(busy_ms: u64, own_ms: u64) -> Moment {
        Moment {
            cores_busy: Some(ms(busy_ms)),
            own_cpu: Some(ms(own_ms)),
            throttled: Duration::ZERO,
            stopped: Duration::ZERO,
        }
    }

    fn waited_s(busy_ms: u64, own_ms: u64, busiest_ms: u64, server_ms: u64, waited_ms: u64) -> f64 {
        let cpu = CpuTime::of_thread(ms(busiest_ms), Duration::ZERO, Some(ms(waited_ms)));
        let server = Neighbour { cpu: ms(server_ms) };
        let health =
            moment(busy_ms, own_ms).health_since(&moment(0, 0), cpu, server, &Recorder::new());
        health.waited_for_others_s.unwrap()
    }

    #[test]
    fn waiting_for_other_programs_is_told_from_waiting_for_the_server() {
        // Three busy programs on its one core, and the server on another.
        assert!((waited_s(1_000, 250, 250, 0, 750) - 0.75).abs() < 1e-9);
        // The server alone on the same core.
        assert_eq!(waited_s(1_000, 500, 500, 500, 500), 0.0);
        // The server and an equal part of another program.
        assert!((waited_s(2_000, 600, 600, 700, 400) - 0.2).abs() < 1e-9);
        // Its own other threads.
        assert_eq!(waited_s(1_000, 1_000, 500, 0, 500), 0.0);
        assert_eq!(waited_s(0, 0, 0, 0, 0), 0.0);
    }

    #[test]
    fn without_messages_at_given_times_nothing_is_late() {
        assert_eq!(lateness(&Recorder::new()), None);
        let mut late = Recorder::new();
        late.record_ns(5_000);
        assert_eq!(lateness(&late).unwrap().count, 1);
        assert!((lateness(&late).unwrap().p50 - 5.0).abs() < 0.01);
    }
}

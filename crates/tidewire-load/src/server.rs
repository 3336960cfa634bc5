//! The server's processes, when they are on this machine: what they use while a test runs.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::resources;

/// The processes of a local server; none when it is elsewhere or cannot be seen.
#[derive(Debug, Clone, Default)]
pub(crate) struct ServerWatch {
    pids: Vec<u32>,
}

/// What they have used up to one moment.
#[derive(Debug, Clone)]
pub(crate) struct ServerSample {
    pub(crate) cpu: Duration,
    pub(crate) rss_bytes: u64,
    threads: BTreeMap<(u32, i32), Duration>,
}

impl ServerWatch {
    /// The processes given. This process is left out: its time is the generator's as well.
    pub(crate) fn new(pids: Vec<u32>) -> Self {
        let own = std::process::id();
        Self {
            pids: pids.into_iter().filter(|pid| *pid != own).collect(),
        }
    }

    /// Their resident memory now.
    pub(crate) fn rss_bytes(&self) -> Option<u64> {
        resources::processes_usage(&self.pids).map(|usage| usage.rss_bytes)
    }

    pub(crate) fn sample(&self) -> Option<ServerSample> {
        let usage = resources::processes_usage(&self.pids)?;
        let threads = self
            .pids
            .iter()
            .flat_map(|pid| {
                thread_times(*pid)
                    .into_iter()
                    .map(|(tid, cpu)| ((*pid, tid), cpu))
            })
            .collect();
        Some(ServerSample {
            cpu: usage.cpu,
            rss_bytes: usage.rss_bytes,
            threads,
        })
    }
}

impl ServerSample {
    /// Processor time of the thread that was busiest since `before`. It is what limits a server:
    /// others that idle do not help it.
    pub(crate) fn busiest_since(&self, before: &Self) -> Duration {
        self.threads
            .iter()
            .map(|(thread, cpu)| {
                cpu.saturating_sub(before.threads.get(thread).copied().unwrap_or_default())
            })
            .max()
            .unwrap_or_default()
    }
}

#[cfg(target_os = "linux")]
fn thread_times(pid: u32) -> Vec<(i32, Duration)> {
    use procfs::process::Process;
    let Some(tasks) = i32::try_from(pid)
        .ok()
        .and_then(|pid| Process::new(pid).ok())
        .and_then(|p| p.tasks().ok())
    else {
        return Vec::new();
    };
    tasks
        .filter_map(Result::ok)
        .filter_map(|task| {
            let stat = task.stat().ok()?;
            let ticks = (stat.utime + stat.stime) as f64;
            Some((
                task.tid,
                Duration::from_secs_f64(ticks / procfs::ticks_per_second() as f64),
            ))
        })
        .collect()
}

#[cfg(not(target_os = "linux"))]
fn thread_times(_pid: u32) -> Vec<(i32, Duration)> {
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busiest_thread_counts_from_when_it_was_first_seen() {
        let sample = |first_ms, second_ms| ServerSample {
            cpu: Duration::ZERO,
            rss_bytes: 0,
            threads: BTreeMap::from([
                ((1, 1), Duration::from_millis(first_ms)),
                ((1, 2), Duration::from_millis(second_ms)),
            ]),
        };
        let busiest = sample(150, 500).busiest_since(&sample(100, 490));
        assert_eq!(busiest, Duration::from_millis(50));
    }

    #[test]
    fn the_generators_own_process_is_no_server() {
        assert!(
            ServerWatch::new(vec![std::process::id()])
                .sample()
                .is_none()
        );
    }
}

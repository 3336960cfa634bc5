//! Scheduling of a process on Linux: its waiting time, its cores and its quota.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The waiting time of one thread for a core, read repeatedly. The system looks its file up once,
/// which costs several times as much as reading it.
#[derive(Debug)]
pub struct WaitClock(Option<fs::File>);

impl WaitClock {
    /// The clock of the calling thread.
    #[must_use]
    pub fn of_this_thread() -> Self {
        Self(fs::File::open("/proc/thread-self/schedstat").ok())
    }

    /// Time in which the thread was ready to run and had no core, since its start (the second
    /// number of `schedstat`, proc_pid_schedstat(5)).
    #[must_use]
    pub fn waited(&self) -> Option<Duration> {
        let mut buffer = [0; 96];
        let bytes = self.0.as_ref()?.read_at(&mut buffer, 0).ok()?;
        let text = std::str::from_utf8(&buffer[..bytes]).ok()?;
        let waited_ns = text.split_whitespace().nth(1)?.parse().ok()?;
        Some(Duration::from_nanos(waited_ns))
    }
}

/// [`WaitClock::waited`] of the calling thread, for a single reading.
pub fn thread_waited() -> Option<Duration> {
    WaitClock::of_this_thread().waited()
}

/// The cores on which a process may run: those of any of its threads. Empty when it cannot be read.
pub fn allowed_cores(pid: u32) -> BTreeSet<u32> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return BTreeSet::new();
    };
    let lists = tasks.filter_map(Result::ok).filter_map(|task| {
        let status = fs::read_to_string(task.path().join("status")).ok()?;
        let list = status
            .lines()
            .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
        Some(parse_cores(list))
    });
    lists.flatten().collect()
}

/// A list such as `0-3,8`.
fn parse_cores(list: &str) -> BTreeSet<u32> {
    let ranges = list.trim().split(',').filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.parse::<u32>().ok()?..=last.parse::<u32>().ok()?)
    });
    ranges.flatten().collect()
}

/// Time in which these cores have worked for any program since the start of the machine.
pub fn cores_busy(cores: &BTreeSet<u32>) -> Option<Duration> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    let mut ticks: u64 = 0;
    for line in text.lines() {
        let Some((number, times)) = line
            .strip_prefix("cpu")
            .and_then(|rest| rest.split_once(' '))
        else {
            continue;
        };
        if number.parse().is_ok_and(|core: u32| cores.contains(&core)) {
            let times: Vec<u64> = times
                .split_whitespace()
                .filter_map(|time| time.parse().ok())
                .collect();
            // User, nice, system, irq and softirq (proc_stat(5)); the others are idle, or other
            // machines.
            let busy = [0, 1, 2, 5, 6].map(|at| times.get(at).copied().unwrap_or(0));
            ticks += busy.iter().sum::<u64>();
        }
    }
    Some(Duration::from_secs_f64(
        ticks as f64 / procfs::ticks_per_second() as f64,
    ))
}

/// The limit of a processor quota for a process, and the throttled time since the creation of the
/// group.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Quota {
    /// The largest number of cores; `None` without a quota.
    pub cores: Option<f64>,
    /// The throttled time.
    pub throttled: Duration,
}

/// The tightest quota of the control groups of a process, version 1 or 2; without any, no limit.
pub fn quota(pid: u32) -> Quota {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let mut tightest = Quota::default();
    for (root, group) in cpu_groups(&groups) {
        // The groups above a group limit it too.
        for folder in Path::new(group.trim_start_matches('/')).ancestors() {
            let Some(quota) = quota_of(&root.join(folder)) else {
                continue;
            };
            tightest.throttled = tightest.throttled.max(quota.throttled);
            tightest.cores = match (tightest.cores, quota.cores) {
                (Some(one), Some(other)) => Some(one.min(other)),
                (one, other) => one.or(other),
            };
        }
    }
    tightest
}

/// The mount points of the groups of `/proc/PID/cgroup` that may have a processor quota, and their
/// paths.
fn cpu_groups(groups: &str) -> Vec<(PathBuf, &str)> {
    let parts = groups.lines().filter_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        let mounted = Path::new("/sys/fs/cgroup");
        if controllers.is_empty() {
            return Some((mounted.to_owned(), path));
        }
        let has_cpu = controllers.split(',').any(|name| name == "cpu");
        let root = [controllers, "cpu"].map(|name| mounted.join(name));
        let root = root.into_iter().find(|root| root.exists())?;
        has_cpu.then_some((root, path))
    });
    parts.collect()
}

fn quota_of(folder: &Path) -> Option<Quota> {
    let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
    let number = |text: String| text.trim().parse::<f64>().ok();
    let stat = read("cpu.stat")?;
    let counter = |name: &str| -> Option<u64> {
        let mut lines = stat.lines().filter_map(|line| line.split_once(' '));
        lines.find(|(key, _)| *key == name)?.1.trim().parse().ok()
    };
    let throttled = counter("throttled_usec")
        .map(Duration::from_micros)
        .or_else(|| counter("throttled_time").map(Duration::from_nanos))?;
    let cores = match read("cpu.max") {
        Some(text) => {
            let (quota, period) = text.trim().split_once(' ')?;
            quota.parse::<f64>().ok().zip(period.parse::<f64>().ok())
        }
        None => read("cpu.cfs_quota_us")
            .and_then(number)
            .filter(|quota| *quota > 0.0)
            .zip(read("cpu.cfs_period_us").and_then(number)),
    };
    let cores = cores.map(|(quota, period)| quota / period);
    Some(Quota { cores, throttled })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_cores_is_read() {
        let cores = |list| parse_cores(list).into_iter().collect::<Vec<_>>();
        assert_eq!(cores("\t0-2,7\n"), [0, 1, 2, 7]);
        assert_eq!(cores("3"), [3]);
        assert!(cores("").is_empty());
    }

    #[test]
    fn this_process_has_cores_that_work() {
        let own = allowed_cores(std::process::id());
        assert!(!own.is_empty());
        let all = cores_busy(&own).unwrap();
        assert!(all > Duration::ZERO);
        assert_eq!(cores_busy(&BTreeSet::new()), Some(Duration::ZERO));
        assert!(allowed_cores(u32::MAX).is_empty());
    }

    #[test]
    fn the_groups_of_both_versions_are_found() {
        let groups = cpu_groups("0::/user/a\n5:memory:/x\n");
        assert_eq!(groups, [(PathBuf::from("/sys/fs/cgroup"), "/user/a")]);
        // Without a quota there is no limit; whether this machine has one is not known here.
        let own = quota(std::process::id());
        assert!(own.cores.is_none_or(|cores| cores > 0.0));
        assert_eq!(quota(u32::MAX), Quota::default());
    }

    #[test]
    fn a_quota_is_read_in_both_forms() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        assert_eq!(quota_of(folder.path()), None);
        write("cpu.stat", "nr_periods 1\nthrottled_time 5000000\n");
        write("cpu.cfs_quota_us", "-1\n");
        write("cpu.cfs_period_us", "100000\n");
        let old = quota_of(folder.path()).unwrap();
        assert_eq!((old.cores, old.throttled), (None, Duration::from_millis(5)));
        write("cpu.cfs_quota_us", "50000\n");
        assert_eq!(quota_of(folder.path()).unwrap().cores, Some(0.5));
        write("cpu.stat", "usage_usec 9\nthrottled_usec 7000\n");
        write("cpu.max", "max 100000\n");
        let new = quota_of(folder.path()).unwrap();
        assert_eq!((new.cores, new.throttled), (None, Duration::from_millis(7)));
        write("cpu.max", "150000 100000\n");
        assert_eq!(quota_of(folder.path()).unwrap().cores, Some(1.5));
    }
}

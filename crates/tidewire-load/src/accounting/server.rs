//! The server's processes, when they are on this machine: which they are, and what they use while a test runs.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use crate::accounting::resources::{self, Outgoing};

/// The processes of a local server; none when it is elsewhere or cannot be seen.
#[derive(Debug, Clone, Default)]
pub(crate) struct ServerWatch {
    target: Option<SocketAddr>,
    /// Those that listen.
    roots: Vec<u32>,
    /// The one that the caller has named.
    named: Option<u32>,
    /// Those, all that they have started, and whom they forward connections to.
    pids: BTreeSet<u32>,
    /// What they were connected to before the first connection of the lab.
    before: Outgoing,
    /// What a reader should know of the figures.
    remarks: Vec<String>,
    /// So many connections were open when the processes were looked at.
    looked_at: u64,
}

/// Why a process that was named is not the server's.
#[derive(Debug, thiserror::Error)]
pub enum ServerPidError {
    /// It is not there.
    #[error("there is no process {pid} on this machine")]
    Missing {
        /// What was named.
        pid: u32,
    },
    /// Another one listens.
    #[error(
        "process {pid} ({name}) does not serve {target}: {listener} listens there. Name that one, or none, as the \
         lab finds the listener, what it has started, and what it forwards connections to"
    )]
    Unrelated {
        /// What was named.
        pid: u32,
        /// Its name.
        name: String,
        /// The server's address.
        target: SocketAddr,
        /// Who listens there.
        listener: String,
    },
}

/// What they have used up to one moment.
#[derive(Debug, Clone, Default)]
pub(crate) struct ServerSample {
    cpu: BTreeMap<u32, Duration>,
    pub(crate) rss_bytes: u64,
    threads: BTreeMap<(u32, i32), Duration>,
    /// Every process of the machine that was there.
    known: BTreeSet<u32>,
}

impl ServerWatch {
    /// The processes that serve an address: the one named and what listens there, with all they started.
    ///
    /// # Errors
    /// The process named has nothing to do with the server.
    pub(crate) fn find(target: SocketAddr, named: Option<u32>) -> Result<Self, ServerPidError> {
        let is_local = resources::is_local(target.ip());
        let roots = resources::listener_pids(target);
        let mut remarks = Vec::new();
        let named = named.filter(|_| cfg!(target_os = "linux"));
        if let Some(pid) = named {
            check_named(pid, target, &roots)?;
            if roots.is_empty() {
                remarks.push(format!(
                    "Who listens on {target} cannot be seen: that process {pid} is the server is taken on trust."
                ));
            }
        }
        if roots.is_empty() && named.is_none() && is_local {
            remarks.push(format!(
                "The server's process cannot be seen, so that its processor time and memory are not known: {target} \
                 is forwarded by the system, or belongs to another user or container."
            ));
        }
        let mut watch = Self {
            target: Some(target).filter(|_| is_local),
            roots,
            named,
            remarks,
            ..Self::default()
        };
        watch.pids = watch.front();
        watch.before = resources::outgoing(&watch.pids, target);
        Ok(watch)
    }

    /// The listener and all that it has started. Where that is the generator itself, only what was named.
    fn front(&self) -> BTreeSet<u32> {
        let named: Vec<u32> = self.named.into_iter().collect();
        &served_by(&self.roots) | &resources::process_tree(&named)
    }

    /// Looks who has the connections, now that so many are open: what the listener has started meanwhile,
    /// who has accepted, and whether a proxy forwards them.
    pub(crate) fn look(&mut self, connected: u64) {
        let Some(target) = self.target else { return };
        // Of many connections it takes time to look at each, and the same processes have them.
        let is_known = self.looked_at >= connected.min(LOOKED_AT_MAX);
        let mut front = self.front();
        if front.is_empty() || connected == 0 || is_known {
            self.pids.extend(front);
            return;
        }
        self.looked_at = connected;
        let acceptors: Vec<u32> = resources::acceptor_pids(target, &front)
            .into_iter()
            .collect();
        front.extend(served_by(&acceptors));
        self.pids.clone_from(&front);
        for _ in 0..PROXIES_MAX {
            let now = resources::outgoing(&front, target);
            let Some(backend) = self.forwarded_to(&now, connected) else {
                self.remark_on_local_sockets(&now, connected);
                return;
            };
            let listeners = resources::listener_pids(backend);
            let behind: BTreeSet<u32> = &served_by(&listeners) - &self.pids;
            self.remark_on_proxy(&front, backend, &behind);
            if behind.is_empty() {
                return;
            }
            self.pids.extend(behind.iter().copied());
            front = behind;
        }
    }

    /// The address to which as many connections have been made as the lab has opened, about.
    fn forwarded_to(&self, now: &Outgoing, connected: u64) -> Option<SocketAddr> {
        let grown = now.to.iter().map(|(to, count)| {
            let before = self.before.to.get(to).copied().unwrap_or(0);
            (*to, count.saturating_sub(before))
        });
        let (to, count) = grown.max_by_key(|(_, count)| *count)?;
        (connected >= FORWARDED_MIN && count * 2 >= connected).then_some(to)
    }

    fn remark_on_proxy(
        &mut self,
        front: &BTreeSet<u32>,
        backend: SocketAddr,
        behind: &BTreeSet<u32>,
    ) {
        let (front, behind) = (names(front), names(behind));
        self.remark(if behind.is_empty() {
            format!(
                "{front} forwards the connections to {backend}, whose process is not on this machine or cannot be \
                 seen: processor time and memory are those of the proxy alone."
            )
        } else {
            format!(
                "{front} forwards the connections to {behind} at {backend}: processor time and memory are those of \
                 both."
            )
        });
    }

    /// A proxy may reach its server by sockets of the system that have no address to follow.
    fn remark_on_local_sockets(&mut self, now: &Outgoing, connected: u64) {
        let grown = now.sockets.saturating_sub(self.before.sockets);
        let others = grown.saturating_sub(connected);
        if connected >= FORWARDED_MIN && others * 2 >= connected {
            let front = names(&self.pids);
            self.remark(format!(
                "{front} has opened about as many other sockets as it has connections, as a proxy does: what is \
                 behind them is not in its processor time and memory."
            ));
        }
    }

    fn remark(&mut self, text: String) {
        if !self.remarks.contains(&text) {
            self.remarks.push(text);
        }
    }

    /// What a reader should know of whose figures these are.
    pub(crate) fn remarks(&self) -> &[String] {
        &self.remarks
    }

    /// Their resident memory now.
    pub(crate) fn rss_bytes(&self) -> Option<u64> {
        let living = self
            .pids
            .iter()
            .filter_map(|pid| resources::process_usage(*pid));
        let mut sizes = living.map(|usage| usage.rss_bytes).peekable();
        sizes.peek()?;
        Some(sizes.sum())
    }

    /// The cores that they may run on, and how many of them a quota leaves.
    pub(crate) fn cores(&self) -> (BTreeSet<u32>, f64) {
        let allowed = self
            .pids
            .iter()
            .flat_map(|pid| resources::allowed_cores(*pid));
        let allowed: BTreeSet<u32> = allowed.collect();
        let quotas = self
            .pids
            .iter()
            .filter_map(|pid| resources::quota(*pid).cores);
        let count = quotas.fold(allowed.len() as f64, f64::min);
        (allowed, count)
    }

    /// Current CPU time and memory of the processes, without a look at their threads: cheap enough to call during a load.
    pub(crate) fn glance(&self) -> Option<ServerSample> {
        let mut sample = ServerSample::default();
        for &pid in &self.pids {
            if let Some(usage) = resources::process_usage(pid) {
                sample.cpu.insert(pid, usage.cpu);
                sample.rss_bytes += usage.rss_bytes;
            }
        }
        (!sample.cpu.is_empty()).then_some(sample)
    }

    pub(crate) fn sample(&self) -> Option<ServerSample> {
        let mut sample = ServerSample::default();
        for &pid in &self.pids {
            // One that has ended counts with its parent.
            let Some(usage) = resources::process_usage(pid) else {
                continue;
            };
            sample.cpu.insert(pid, usage.cpu);
            sample.rss_bytes += usage.rss_bytes;
            let threads = thread_times(pid).into_iter();
            sample
                .threads
                .extend(threads.map(|(tid, cpu)| ((pid, tid), cpu)));
        }
        sample.known = all_pids();
        (!sample.cpu.is_empty()).then_some(sample)
    }
}

impl ServerSample {
    /// Processor time of all of them since `before`. One that was there before and was not looked at does not
    /// count with all that it has done in its life.
    pub(crate) fn cpu_since(&self, before: &Self) -> Duration {
        let is_counted = |pid: &u32| before.cpu.contains_key(pid) || !before.known.contains(pid);
        let now = self.cpu.iter().filter(|(pid, _)| is_counted(pid));
        let now: Duration = now.map(|(_, cpu)| *cpu).sum();
        now.saturating_sub(before.cpu.values().sum())
    }

    /// Processor time of the thread that was busiest since `before`. It is what limits a server:
    /// others that idle do not help it.
    pub(crate) fn busiest_since(&self, before: &Self) -> Duration {
        let is_counted = |pid: &u32| before.cpu.contains_key(pid) || !before.known.contains(pid);
        self.threads
            .iter()
            .filter(|((pid, _), _)| is_counted(pid))
            .map(|(thread, cpu)| {
                cpu.saturating_sub(before.threads.get(thread).copied().unwrap_or_default())
            })
            .max()
            .unwrap_or_default()
    }
}

/// Checks that a process is the server at an address of this machine, as far as it can be seen.
///
/// # Errors
/// The process is not there, or has nothing to do with who listens.
pub fn check_server_pid(pid: u32, target: SocketAddr) -> Result<(), ServerPidError> {
    check_named(pid, target, &resources::listener_pids(target))
}

/// Whether a process that was named is the server's, as far as it can be seen.
fn check_named(pid: u32, target: SocketAddr, listeners: &[u32]) -> Result<(), ServerPidError> {
    let Some(name) = resources::process_name(pid) else {
        return Err(ServerPidError::Missing { pid });
    };
    let Some(listener) = listeners.first() else {
        return Ok(());
    };
    let started = resources::process_tree(&[pid]);
    let is_related =
        |listener: &u32| started.contains(listener) || resources::ancestors(pid).contains(listener);
    if listeners.iter().any(is_related) {
        return Ok(());
    }
    Err(ServerPidError::Unrelated {
        pid,
        name,
        target,
        listener: names(&BTreeSet::from([*listener])),
    })
}

/// The processes and all that they have started, without the generator: its time is not the server's.
fn served_by(roots: &[u32]) -> BTreeSet<u32> {
    let own = std::process::id();
    let tree = resources::process_tree(roots);
    if tree.contains(&own) {
        &tree - &resources::process_tree(&[own])
    } else {
        tree
    }
}

/// `nginx (12) and 3 more`.
fn names(pids: &BTreeSet<u32>) -> String {
    let name = |pid: &u32| {
        let name = resources::process_name(*pid).unwrap_or_else(|| "a process".to_owned());
        format!("{name} ({pid})")
    };
    match (pids.first(), pids.len()) {
        (None, _) => String::new(),
        (Some(first), 1) => name(first),
        (Some(first), count) => format!("{} and {} more", name(first), count - 1),
    }
}

#[cfg(target_os = "linux")]
fn all_pids() -> BTreeSet<u32> {
    let processes = procfs::process::all_processes()
        .into_iter()
        .flatten()
        .flatten();
    processes
        .filter_map(|process| u32::try_from(process.pid()).ok())
        .collect()
}

#[cfg(not(target_os = "linux"))]
fn all_pids() -> BTreeSet<u32> {
    BTreeSet::new()
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

/// Connections beyond which it is not looked again who has them.
const LOOKED_AT_MAX: u64 = 20_000;

/// Fewer connections make no proxy: a server may have that many for itself.
const FORWARDED_MIN: u64 = 2;

/// Proxies one behind the other that are followed.
const PROXIES_MAX: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(threads: &[((u32, i32), u64)], known: &[u32]) -> ServerSample {
        let ms = Duration::from_millis;
        let mut sample = ServerSample {
            known: known.iter().copied().collect(),
            ..ServerSample::default()
        };
        for ((pid, tid), cpu_ms) in threads {
            *sample.cpu.entry(*pid).or_default() += ms(*cpu_ms);
            sample.threads.insert((*pid, *tid), ms(*cpu_ms));
        }
        sample
    }

    #[test]
    fn the_busiest_thread_counts_from_when_it_was_first_seen() {
        let before = sample(&[((1, 1), 100), ((1, 2), 490)], &[1, 2]);
        // One that was there and not looked at, and one that was started since.
        let after = sample(
            &[((1, 1), 150), ((1, 2), 500), ((2, 2), 9_000), ((3, 3), 40)],
            &[],
        );
        assert_eq!(after.busiest_since(&before), Duration::from_millis(50));
        assert_eq!(after.cpu_since(&before), Duration::from_millis(60 + 40));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_generators_own_process_is_no_server() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let target = listener.local_addr().unwrap();
        let mut watch = ServerWatch::find(target, None).unwrap();
        assert!(watch.sample().is_none() && watch.rss_bytes().is_none());
        watch.look(10);
        assert!(watch.sample().is_none());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_process_that_is_not_the_server_is_refused() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let target = listener.local_addr().unwrap();
        let missing = ServerWatch::find(target, Some(u32::MAX)).unwrap_err();
        assert!(
            matches!(missing, ServerPidError::Missing { .. }),
            "{missing}"
        );
        let mut other = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        // It is a child of the listener here, as a worker of a server would be.
        let related = ServerWatch::find(target, Some(other.id()));
        other.kill().unwrap();
        other.wait().unwrap();
        assert_eq!(related.unwrap().pids, BTreeSet::from([other.id()]));
    }
}

//! The server's processes, when they are on this machine: their identity, and their resources
//! during a test.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use crate::accounting::resources::{self, Connections, Outgoing};

/// The processes of a local server; none when it is on another machine or not visible.
#[derive(Debug, Clone, Default)]
pub(crate) struct ServerWatch {
    target: Option<SocketAddr>,
    /// The processes that listen.
    roots: Vec<u32>,
    /// The process that the caller has named.
    named: Option<u32>,
    /// These, all that they have started, and those to which they forward connections.
    pids: BTreeSet<u32>,
    /// Their outgoing connections before the first connection of the lab.
    before: Outgoing,
    /// Further information about the figures, for readers.
    remarks: Vec<String>,
    /// The number of open connections when the processes were last examined.
    looked_at: u64,
}

/// The reason for which a named process is not the server's.
#[derive(Debug, thiserror::Error)]
pub enum ServerPidError {
    /// The process does not exist.
    #[error("there is no process {pid} on this machine")]
    Missing {
        /// The named process.
        pid: u32,
    },
    /// Another process listens.
    #[error(
        "process {pid} ({name}) does not serve {target}: {listener} listens there. Name that process, or none: the \
         lab finds the listener, the processes that it has started, and those to which it forwards connections"
    )]
    Unrelated {
        /// The named process.
        pid: u32,
        /// Its name.
        name: String,
        /// The server's address.
        target: SocketAddr,
        /// The process that listens there.
        listener: String,
    },
}

/// The used resources up to one moment.
#[derive(Debug, Clone, Default)]
pub(crate) struct ServerSample {
    cpu: BTreeMap<u32, Duration>,
    pub(crate) rss_bytes: u64,
    threads: BTreeMap<(u32, i32), Duration>,
    /// Every process of the machine at that moment.
    known: BTreeSet<u32>,
}

impl ServerWatch {
    /// The processes that serve an address: the named one and those that listen there, with all
    /// that they have started. `connections` is the number that the lab will open.
    ///
    /// # Errors
    /// The named process does not belong to the server.
    pub(crate) fn find(
        target: SocketAddr,
        named: Option<u32>,
        connections: u64,
    ) -> Result<Self, ServerPidError> {
        let is_local = resources::is_local(target.ip());
        let roots = resources::listener_pids(target);
        let mut remarks = Vec::new();
        let named = named.filter(|_| cfg!(target_os = "linux"));
        if let Some(pid) = named {
            check_named(pid, target, &roots)?;
            if roots.is_empty() {
                remarks.push(format!(
                    "The process that listens on {target} is not visible: the lab trusts that process {pid} is the server."
                ));
            }
        }
        if roots.is_empty() && named.is_none() && is_local {
            remarks.push(format!(
                "The server's process is not visible, so that its processor time and memory are not known: the system \
                 forwards {target}, or it belongs to another user or container."
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
        // Fewer connections do not indicate a proxy.
        if connections >= FORWARDED_MIN && !watch.pids.is_empty() {
            watch.before = resources::outgoing(&Connections::now(), &watch.pids, target);
        }
        Ok(watch)
    }

    /// A named process and all that it has started: the server at an address that has no port.
    ///
    /// # Errors
    /// The process does not exist.
    pub(crate) fn named(pid: u32) -> Result<Self, ServerPidError> {
        if cfg!(target_os = "linux") && resources::process_name(pid).is_none() {
            return Err(ServerPidError::Missing { pid });
        }
        let mut watch = Self {
            named: Some(pid).filter(|_| cfg!(target_os = "linux")),
            ..Self::default()
        };
        watch.pids = watch.front();
        Ok(watch)
    }

    /// The listener and all processes that it has started. If the listener is the generator itself,
    /// only the named process.
    fn front(&self) -> BTreeSet<u32> {
        let named: Vec<u32> = self.named.into_iter().collect();
        &served_by(&self.roots) | &resources::process_tree(&named)
    }

    /// Examines which processes hold the connections, now that this number is open: those that the
    /// listener has started meanwhile, those that have accepted, and those to which a proxy
    /// forwards them.
    pub(crate) fn look(&mut self, connected: u64) {
        let Some(target) = self.target else {
            self.pids.extend(self.front());
            return;
        };
        // An examination of many connections is slow, and the same processes hold them.
        let is_known = self.looked_at >= connected.min(LOOKED_AT_MAX);
        let mut front = self.front();
        if front.is_empty() || connected == 0 || is_known {
            self.pids.extend(front);
            return;
        }
        self.looked_at = connected;
        let connections = Connections::now();
        let acceptors: Vec<u32> = resources::acceptor_pids(&connections, target, &front)
            .into_iter()
            .collect();
        front.extend(served_by(&acceptors));
        self.pids.clone_from(&front);
        for _ in 0..PROXIES_MAX {
            let now = resources::outgoing(&connections, &front, target);
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

    /// The address to which about the same number of connections was opened as the lab has opened.
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
                "{front} forwards the connections to {backend}, whose process is not on this machine or not visible: \
                 processor time and memory are those of the proxy alone."
            )
        } else {
            format!(
                "{front} forwards the connections to {behind} at {backend}: processor time and memory are those of \
                 both."
            )
        });
    }

    /// A proxy may reach its server by sockets of the system without an address.
    fn remark_on_local_sockets(&mut self, now: &Outgoing, connected: u64) {
        let grown = now.sockets.saturating_sub(self.before.sockets);
        let others = grown.saturating_sub(connected);
        if connected >= FORWARDED_MIN && others * 2 >= connected {
            let front = names(&self.pids);
            self.remark(format!(
                "{front} has opened about the same number of other sockets as it has connections, as a proxy does: its \
                 processor time and memory do not include the processes behind them."
            ));
        }
    }

    fn remark(&mut self, text: String) {
        if !self.remarks.contains(&text) {
            self.remarks.push(text);
        }
    }

    /// Information for readers about the processes of these figures.
    pub(crate) fn remarks(&self) -> &[String] {
        &self.remarks
    }

    /// Their current resident memory.
    pub(crate) fn rss_bytes(&self) -> Option<u64> {
        let living = self
            .pids
            .iter()
            .filter_map(|pid| resources::process_usage(*pid));
        let mut sizes = living.map(|usage| usage.rss_bytes).peekable();
        sizes.peek()?;
        Some(sizes.sum())
    }

    /// The cores on which they may run, and the limit of a quota.
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

    /// Current CPU time and memory of the processes, without their threads: cheap enough for calls
    /// during a load.
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
            // The time of an ended process counts with its parent.
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
    /// Processor time of all of them since `before`. The earlier time of a process that existed
    /// before and was not examined does not count.
    pub(crate) fn cpu_since(&self, before: &Self) -> Duration {
        let is_counted = |pid: &u32| before.cpu.contains_key(pid) || !before.known.contains(pid);
        let now = self.cpu.iter().filter(|(pid, _)| is_counted(pid));
        let now: Duration = now.map(|(_, cpu)| *cpu).sum();
        now.saturating_sub(before.cpu.values().sum())
    }

    /// Processor time of the thread that was busiest since `before`. This thread limits a server:
    /// idle threads do not help it.
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

/// Checks that a process is the server at an address of this machine, as far as it is visible.
///
/// # Errors
/// The process does not exist, or does not belong to the listener.
pub fn check_server_pid(pid: u32, target: SocketAddr) -> Result<(), ServerPidError> {
    check_named(pid, target, &resources::listener_pids(target))
}

/// Whether a named process is the server's, as far as it is visible.
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

/// The processes and all that they have started, without the generator, whose time is not the
/// server's.
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

/// With more connections the processes are not examined again.
const LOOKED_AT_MAX: u64 = 20_000;

/// Fewer connections do not indicate a proxy: a server may have that many of its own.
const FORWARDED_MIN: u64 = 2;

/// The largest number of chained proxies that are followed.
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
        // A process that existed and was not examined, and one that was started since.
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
        let mut watch = ServerWatch::find(target, None, 10).unwrap();
        assert!(watch.sample().is_none() && watch.rss_bytes().is_none());
        watch.look(10);
        assert!(watch.sample().is_none());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_process_that_is_not_the_server_is_refused() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let target = listener.local_addr().unwrap();
        let missing = ServerWatch::find(target, Some(u32::MAX), 10).unwrap_err();
        assert!(
            matches!(missing, ServerPidError::Missing { .. }),
            "{missing}"
        );
        let mut other = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        // It is a child of the listener here, like a worker of a server.
        let related = ServerWatch::find(target, Some(other.id()), 10);
        other.kill().unwrap();
        other.wait().unwrap();
        assert_eq!(related.unwrap().pids, BTreeSet::from([other.id()]));
    }
}

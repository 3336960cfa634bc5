//! Resources of a run: processor time and memory of the generator's threads and of a local server's
//! processes, and a description of the machine.
//!
//! Linux only; on other systems every function returns `None` or nothing, and the figures are
//! absent from the report.

#[cfg(target_os = "linux")]
mod schedule;
#[cfg(target_os = "linux")]
mod tree;

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

pub use platform::{
    Connections, Outgoing, Quota, WaitClock, acceptor_pids, allowed_cores, ancestors, cores_busy,
    outgoing, process_cpu, process_name, process_tree, quota, thread_waited,
};

use crate::report::model::Machine;

/// Processor time and memory of one or several processes at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProcessUsage {
    /// User and system time since the process began, of all its threads. The kernel counts it in
    /// ticks, usually of 10 ms.
    pub cpu: Duration,
    /// Resident memory.
    pub rss_bytes: u64,
}

/// Processor time the calling thread has used, user and system together.
pub fn thread_cpu() -> Option<Duration> {
    platform::thread_cpu()
}

/// The resources that the process `pid` has used; `None` when it does not exist or may not be read.
pub fn process_usage(pid: u32) -> Option<ProcessUsage> {
    platform::process_usage(pid)
}

/// Resident memory of this process.
pub(crate) fn own_rss_bytes() -> Option<u64> {
    process_usage(std::process::id()).map(|usage| usage.rss_bytes)
}

/// The name of this machine; `None` where the system does not report it.
#[must_use]
pub fn host_name() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim().to_owned())
}

/// The resources that the processes have used together; `None` when there are none or one of them
/// cannot be read, because a partial sum would make the server look cheaper than it is.
pub fn processes_usage<'a>(pids: impl IntoIterator<Item = &'a u32>) -> Option<ProcessUsage> {
    let mut pids = pids.into_iter().peekable();
    pids.peek()?;
    pids.try_fold(ProcessUsage::default(), |sum, &pid| {
        let usage = process_usage(pid)?;
        Some(ProcessUsage {
            cpu: sum.cpu + usage.cpu,
            rss_bytes: sum.rss_bytes + usage.rss_bytes,
        })
    })
}

/// The processes on this machine that listen on `target`, ascending: several when workers share a
/// port. Empty when the target is another machine, nothing listens, or the owner is not visible.
pub fn listener_pids(target: SocketAddr) -> Vec<u32> {
    if is_local(target.ip()) {
        platform::listener_pids(target)
    } else {
        Vec::new()
    }
}

/// True when `address` belongs to this machine.
pub fn is_local(address: IpAddr) -> bool {
    // Only an address of this machine can be bound; this sends nothing.
    address.is_loopback()
        || (!address.is_multicast() && UdpSocket::bind(SocketAddr::new(address, 0)).is_ok())
}

/// Describes this machine.
pub fn machine() -> Machine {
    let described = platform::machine();
    Machine {
        cores: std::thread::available_parallelism()
            .ok()
            .and_then(|n| u32::try_from(n.get()).ok()),
        os: described
            .os
            .or_else(|| Some(std::env::consts::OS.to_owned())),
        ..described
    }
}

#[cfg(target_os = "linux")]
mod platform {
    use std::collections::HashSet;
    use std::fs;
    use std::io::{BufRead, BufReader};
    use std::net::{IpAddr, SocketAddr};
    use std::time::Duration;

    use procfs::net::{TcpNetEntries, TcpNetEntry, TcpState};
    use procfs::process::{self, FDTarget, Process};
    use procfs::{CpuInfo, Current, FromBufReadSI, Meminfo};
    use rustix::time::{ClockId, clock_gettime};

    use super::ProcessUsage;
    use crate::report::model::Machine;

    pub use super::schedule::{Quota, WaitClock, allowed_cores, cores_busy, quota, thread_waited};
    pub use super::tree::{
        Connections, Outgoing, acceptor_pids, ancestors, outgoing, process_name, process_tree,
    };

    /// Processor time that all threads of this process have used.
    pub fn process_cpu() -> Option<Duration> {
        clock(ClockId::ProcessCPUTime)
    }

    pub(super) fn thread_cpu() -> Option<Duration> {
        clock(ClockId::ThreadCPUTime)
    }

    fn clock(clock: ClockId) -> Option<Duration> {
        let time = clock_gettime(clock);
        let seconds = Duration::from_secs(u64::try_from(time.tv_sec).ok()?);
        Some(seconds + Duration::from_nanos(u64::try_from(time.tv_nsec).ok()?))
    }

    pub(super) fn process_usage(pid: u32) -> Option<ProcessUsage> {
        let stat = Process::new(i32::try_from(pid).ok()?).ok()?.stat().ok()?;
        // The time of a child that has ended and was waited for counts with its parent, which keeps
        // the sum of a tree.
        let children = u64::try_from(stat.cutime + stat.cstime).unwrap_or(0);
        let ticks = (stat.utime + stat.stime + children) as f64;
        Some(ProcessUsage {
            cpu: Duration::from_secs_f64(ticks / procfs::ticks_per_second() as f64),
            rss_bytes: stat.rss * procfs::page_size(),
        })
    }

    pub(super) fn listener_pids(target: SocketAddr) -> Vec<u32> {
        let sockets = listening_inodes(target);
        if sockets.is_empty() {
            return Vec::new();
        }
        let Ok(processes) = process::all_processes() else {
            return Vec::new();
        };
        let mut pids: Vec<u32> = processes
            .filter_map(Result::ok)
            .filter(|process| holds_any(process, &sockets))
            .filter_map(|process| u32::try_from(process.pid()).ok())
            .collect();
        pids.sort_unstable();
        pids
    }

    /// Inodes of the sockets that accept connections to `target`.
    fn listening_inodes(target: SocketAddr) -> HashSet<u64> {
        let accepts = |local: SocketAddr| {
            let ip = canonical(local.ip());
            local.port() == target.port() && (ip.is_unspecified() || ip == canonical(target.ip()))
        };
        ["/proc/net/tcp", "/proc/net/tcp6"]
            .into_iter()
            .filter_map(listeners)
            .flatten()
            .filter(|entry| entry.state == TcpState::Listen && accepts(entry.local_address))
            .map(|entry| entry.inode)
            .collect()
    }

    /// The listening sockets of a table. The kernel lists them first, so that the others need not be read.
    fn listeners(table: &str) -> Option<Vec<TcpNetEntry>> {
        let mut lines = BufReader::new(fs::File::open(table).ok()?);
        let mut text = String::new();
        let mut start = 0;
        while lines.read_line(&mut text).ok()? > 0 {
            let is_listening = text[start..].split_whitespace().nth(3) == Some(LISTENING);
            // The first line has the names of the columns.
            if start > 0 && !is_listening {
                text.truncate(start);
                break;
            }
            start = text.len();
        }
        let entries = TcpNetEntries::from_buf_read(text.as_bytes(), procfs::current_system_info());
        entries.ok().map(|entries| entries.0)
    }

    /// The state of a listening socket in the tables of the kernel (TCP_LISTEN).
    const LISTENING: &str = "0A";

    fn holds_any(process: &Process, sockets: &HashSet<u64>) -> bool {
        process.fd().is_ok_and(|mut descriptors| {
            descriptors.any(|descriptor| {
                matches!(descriptor.map(|d| d.target), Ok(FDTarget::Socket(inode))
                    if sockets.contains(&inode))
            })
        })
    }

    fn canonical(ip: IpAddr) -> IpAddr {
        ip.to_canonical()
    }

    pub(super) fn machine() -> Machine {
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").ok();
        Machine {
            cpu: cpu_model(),
            cores: None,
            memory_bytes: Meminfo::current().ok().map(|memory| memory.mem_total),
            os: fs::read_to_string("/etc/os-release")
                .ok()
                .and_then(|text| pretty_name(&text)),
            kernel: release.map(|text| text.trim().to_owned()),
        }
    }

    fn cpu_model() -> Option<String> {
        let info = CpuInfo::current().ok()?;
        // ARM kernels provide no model name but, on many boards, a `Hardware` line.
        let model = info
            .model_name(0)
            .or(info.fields.get("Hardware").map(String::as_str))?;
        Some(model.split_whitespace().collect::<Vec<_>>().join(" "))
    }

    /// The value of `PRETTY_NAME` in the text of os-release(5).
    pub(super) fn pretty_name(os_release: &str) -> Option<String> {
        let value = os_release
            .lines()
            .find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
        Some(value.trim().trim_matches(['"', '\'']).to_owned())
    }
}

#[cfg(not(target_os = "linux"))]
mod platform {
    use std::collections::{BTreeMap, BTreeSet};
    use std::net::SocketAddr;
    use std::time::Duration;

    use super::ProcessUsage;
    use crate::report::model::Machine;

    pub(super) fn thread_cpu() -> Option<Duration> {
        None
    }

    pub(super) fn process_usage(_pid: u32) -> Option<ProcessUsage> {
        None
    }

    pub(super) fn listener_pids(_target: SocketAddr) -> Vec<u32> {
        Vec::new()
    }

    pub(super) fn machine() -> Machine {
        Machine::default()
    }

    /// The limit of a processor quota for a process, and the time for which it has throttled the
    /// process.
    #[derive(Debug, Clone, Copy, Default, PartialEq)]
    pub struct Quota {
        /// The largest number of cores; `None` without a quota.
        pub cores: Option<f64>,
        /// The throttled time.
        pub throttled: Duration,
    }

    /// Not known on this system.
    #[derive(Debug, Default)]
    pub struct Connections;

    impl Connections {
        /// None.
        #[must_use]
        pub fn now() -> Self {
            Self
        }
    }

    /// Outgoing connections of processes.
    #[derive(Debug, Clone, Default)]
    pub struct Outgoing {
        /// Connections to each address.
        pub to: BTreeMap<SocketAddr, u64>,
        /// Sockets of every kind.
        pub sockets: u64,
    }

    /// Not known on this system.
    pub fn process_cpu() -> Option<Duration> {
        None
    }

    /// Does nothing on this system.
    #[derive(Debug)]
    pub struct WaitClock;

    impl WaitClock {
        /// The clock of the calling thread.
        #[must_use]
        pub fn of_this_thread() -> Self {
            Self
        }

        /// Not known on this system.
        #[must_use]
        pub fn waited(&self) -> Option<Duration> {
            None
        }
    }

    /// Not known on this system.
    pub fn thread_waited() -> Option<Duration> {
        None
    }

    /// Not known on this system.
    pub fn allowed_cores(_pid: u32) -> BTreeSet<u32> {
        BTreeSet::new()
    }

    /// Not known on this system.
    pub fn cores_busy(_cores: &BTreeSet<u32>) -> Option<Duration> {
        None
    }

    /// Not known on this system.
    pub fn quota(_pid: u32) -> Quota {
        Quota::default()
    }

    /// Not known on this system.
    pub fn process_tree(_roots: &[u32]) -> BTreeSet<u32> {
        BTreeSet::new()
    }

    /// Not known on this system.
    pub fn ancestors(_pid: u32) -> Vec<u32> {
        Vec::new()
    }

    /// Not known on this system.
    pub fn process_name(_pid: u32) -> Option<String> {
        None
    }

    /// Not known on this system.
    pub fn acceptor_pids(
        _connections: &Connections,
        _target: SocketAddr,
        _known: &BTreeSet<u32>,
    ) -> BTreeSet<u32> {
        BTreeSet::new()
    }

    /// Not known on this system.
    pub fn outgoing(
        _connections: &Connections,
        _pids: &BTreeSet<u32>,
        _target: SocketAddr,
    ) -> Outgoing {
        Outgoing::default()
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use std::hint::black_box;
    use std::net::TcpListener;

    use super::*;

    /// Works until the calling thread's clock has advanced, however slow or shared the machine is.
    fn work(until_more_than: Duration) -> Duration {
        let start = thread_cpu().unwrap();
        loop {
            black_box((0..10_000u64).map(black_box).sum::<u64>());
            let used = thread_cpu().unwrap() - start;
            if used > until_more_than {
                return used;
            }
        }
    }

    #[test]
    fn work_shows_in_this_thread_and_process_but_not_in_another_thread() {
        let before = process_usage(std::process::id()).unwrap();
        let used = work(Duration::from_millis(50));
        let idle = std::thread::spawn(|| thread_cpu().unwrap()).join().unwrap();
        assert!(idle < used, "a fresh thread used {idle:?}");
        let after = process_usage(std::process::id()).unwrap();
        assert!(
            after.cpu - before.cpu >= Duration::from_millis(20),
            "{before:?} {after:?}"
        );
    }

    #[test]
    fn resident_memory_follows_what_is_touched() {
        let before = process_usage(std::process::id()).unwrap().rss_bytes;
        let block = black_box(vec![1u8; 64 << 20]);
        let after = process_usage(std::process::id()).unwrap().rss_bytes;
        assert!(after > before + (32 << 20), "{before} then {after}");
        drop(block);
    }

    #[test]
    fn the_owner_of_a_listening_port_is_found() {
        let me = std::process::id();
        let exact = TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(listener_pids(exact.local_addr().unwrap()), [me]);

        let everywhere = TcpListener::bind("0.0.0.0:0").unwrap();
        let port = everywhere.local_addr().unwrap().port();
        assert_eq!(
            listener_pids(SocketAddr::new(IpAddr::from([127, 0, 0, 1]), port)),
            [me]
        );

        let closed = exact.local_addr().unwrap();
        drop(exact);
        assert!(!listener_pids(closed).contains(&me));
    }

    #[test]
    fn other_machines_have_no_local_owner() {
        // TEST-NET-1, RFC 5737: no machine has this address.
        let elsewhere = SocketAddr::from(([192, 0, 2, 1], 80));
        assert!(!is_local(elsewhere.ip()));
        assert!(listener_pids(elsewhere).is_empty());
        assert!(is_local(IpAddr::from([127, 0, 0, 9])));
    }

    #[test]
    fn usage_of_several_is_a_sum_and_of_a_missing_one_unknown() {
        let me = std::process::id();
        let twice = processes_usage(&[me, me]).unwrap();
        assert!(twice.rss_bytes > process_usage(me).unwrap().rss_bytes);
        assert_eq!(processes_usage(&[me, u32::MAX]), None);
        assert_eq!(processes_usage(&[]), None);
    }

    #[test]
    fn this_machine_is_described() {
        let machine = machine();
        assert!(machine.cores.unwrap() >= 1);
        assert!(machine.memory_bytes.unwrap() > 16 << 20);
        assert!(machine.kernel.is_some_and(|kernel| !kernel.contains('\n')));
    }

    #[test]
    fn the_name_of_the_system_is_unquoted() {
        let text = "ID=x\nPRETTY_NAME=\"Some Linux 12\"\n";
        assert_eq!(
            platform::pretty_name(text).as_deref(),
            Some("Some Linux 12")
        );
        assert_eq!(platform::pretty_name("ID=x"), None);
    }
}

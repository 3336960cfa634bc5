//! Preflight checks: whether this machine allows the number of connections in the plan.
//!
//! Reading the system is separate from judging the values, so that the judgements are pure
//! functions.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::RangeInclusive;

use crate::accounting::resources;
pub use crate::report::model::Finding;

/// Checks the limits for `connections` to `target`, the server's address when it is known.
///
/// Raises the soft limit of open files to the hard limit first. Settings of the accepting side are
/// checked only when the target is this machine, and a setting that cannot be read has no finding.
pub fn check(connections: u64, target: Option<IpAddr>) -> Vec<Finding> {
    let local = target.is_some_and(resources::is_local);
    let loopback = target.is_some_and(|address| address.is_loopback());
    let mut findings = Vec::new();
    findings.extend(raise_open_files().map(|limit| open_files(limit, connections)));
    findings.push(ports(&port_range(), connections, loopback));
    findings.extend(setting("net/ipv4/tcp_tw_reuse").map(|value| time_wait(value, loopback)));
    if local {
        findings.extend(setting("net/core/somaxconn").map(|value| {
            backlog(
                "net.core.somaxconn",
                value,
                connections.min(BACKLOG_WANTED_MAX),
            )
        }));
        findings.extend(setting("net/ipv4/tcp_max_syn_backlog").map(|value| {
            backlog(
                "net.ipv4.tcp_max_syn_backlog",
                value,
                connections.min(SYN_BACKLOG_WANTED_MAX),
            )
        }));
    }
    findings
}

/// The name of the finding about this process's open files.
pub const OPEN_FILES: &str = "open files";

/// The loopback source addresses that `connections` to one loopback address and port need, because
/// each address has only the ports of `port_range`: 127.0.0.1, 127.0.0.2 and so on.
///
/// At least one, at most [`SOURCE_ADDRESSES_MAX`]. Each address is used for two fifths of its ports: Linux
/// looks for a free port among the even or the odd ones first. When these are in use, each new connection
/// costs a search through all of them.
pub fn source_addresses(connections: u64, port_range: &RangeInclusive<u16>) -> Vec<Ipv4Addr> {
    let wanted = connections
        .div_ceil(quickly_found_ports(port_range))
        .clamp(1, SOURCE_ADDRESSES_MAX);
    (0..wanted as u32)
        .map(|index| {
            // 254 hosts of each 127.0.x.0/24, leaving out .0 and .255.
            let host = (index / 254) << 8 | (index % 254 + 1);
            Ipv4Addr::from_bits(Ipv4Addr::new(127, 0, 0, 0).to_bits() | host)
        })
        .collect()
}

/// The ports that the system uses for outgoing connections: `net.ipv4.ip_local_port_range`, or
/// [`PORT_RANGE_DEFAULT`] where it cannot be read.
pub fn port_range() -> RangeInclusive<u16> {
    platform::read("net/ipv4/ip_local_port_range")
        .and_then(|text| parse_port_range(&text))
        .unwrap_or(PORT_RANGE_DEFAULT)
}

/// Whether the system reuses a port on loopback one second after its connection was closed
/// (`net.ipv4.tcp_tw_reuse`).
#[must_use]
pub fn reuses_ports() -> bool {
    platform::read("net/ipv4/tcp_tw_reuse").is_some_and(|text| text.trim() != "0")
}

/// The kernel's memory for all of TCP before it limits connections, in bytes (`net.ipv4.tcp_mem`).
pub(super) fn tcp_memory_bytes() -> Option<u64> {
    let text = platform::read("net/ipv4/tcp_mem")?;
    let pages: u64 = text.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages.saturating_mul(PAGE_BYTES))
}

/// Limit of open files of this process and its children.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenFilesLimit {
    /// The current limit; `None` is no limit.
    pub soft: Option<u64>,
    /// The limit that needs no privileges; `None` is no limit.
    pub hard: Option<u64>,
}

/// Raises the soft limit of open files to the hard limit and returns the new limit; `None` on
/// systems without such a limit.
pub fn raise_open_files() -> Option<OpenFilesLimit> {
    platform::raise_open_files()
}

/// The connections that this process may open by its limit of open files, which is raised first.
pub fn connections_room() -> usize {
    connections_in(raise_open_files().and_then(|limit| limit.soft))
}

/// The reason for which this machine cannot open `connections` to `target`; `None` if it can. With
/// 0 source addresses the system chooses one; on loopback, where there are enough, as many as
/// needed are used.
///
/// [`check`] finds scarce resources; this function finds impossible plans, whatever the server
/// does.
pub fn shortage(
    connections: u64,
    target: Option<IpAddr>,
    source_addresses: u64,
) -> Option<Shortage> {
    let open_files = raise_open_files().and_then(|limit| limit.soft);
    let is_loopback = target.is_some_and(|address| address.is_loopback());
    let is_free = is_loopback && source_addresses == 0;
    let ports = (!is_free).then(|| all_ports(&port_range()) * source_addresses.max(1));
    shortage_in(connections, open_files, ports)
}

fn shortage_in(connections: u64, open_files: Option<u64>, ports: Option<u64>) -> Option<Shortage> {
    let in_files = open_files.map(|files| files.saturating_sub(OPEN_FILES_NEEDED));
    let of = |kind: ShortageKind, possible: Option<u64>| {
        let possible = possible.filter(|&possible| connections > possible)?;
        Some(Shortage {
            kind,
            connections,
            possible,
        })
    };
    let found = [
        of(ShortageKind::OpenFiles, in_files),
        of(ShortageKind::Ports, ports),
    ];
    found
        .into_iter()
        .flatten()
        .min_by_key(|shortage| shortage.possible)
}

/// More connections than this machine can open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shortage {
    /// The scarce resource.
    pub kind: ShortageKind,
    /// Requested connections.
    pub connections: u64,
    /// Possible connections.
    pub possible: u64,
}

/// The scarce resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShortageKind {
    /// Files that this process may open.
    OpenFiles,
    /// Ports of the source addresses.
    Ports,
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (connections, possible) = (self.connections, self.possible);
        match self.kind {
            ShortageKind::OpenFiles => write!(
                f,
                "{connections} connections need more files than this process may open: at most {possible} are \
                 possible. Raise the hard limit, `ulimit -Hn {}` as root or `LimitNOFILE=` of the service, or ask \
                 for fewer connections.",
                connections.saturating_add(OPEN_FILES_MARGIN)
            ),
            ShortageKind::Ports => write!(
                f,
                "{connections} connections need more source ports than there are: at most {possible} are possible. \
                 Widen net.ipv4.ip_local_port_range, give more source addresses, or ask for fewer connections."
            ),
        }
    }
}

/// The number of connections for a limit of open files; `None` is no limit. If there are few files,
/// half of them stay free.
pub fn connections_in(open_files: Option<u64>) -> usize {
    let room = |files: u64| files.saturating_sub(OPEN_FILES_MARGIN).max(files / 2);
    let room = open_files.map_or(u64::MAX, room);
    usize::try_from(room).unwrap_or(usize::MAX).max(1)
}

/// Enlarges the table of open files for `connections` now. Linux enlarges it by doubling, and in a
/// process with threads each time waits for all cores, some 20 ms, in the middle of `socket`.
pub fn make_room_for(connections: u64) {
    platform::grow_file_table(connections.saturating_add(OPEN_FILES_MARGIN));
}

fn open_files(limit: OpenFilesLimit, connections: u64) -> Finding {
    let wanted = connections.saturating_add(OPEN_FILES_MARGIN);
    let ok = limit.soft.is_none_or(|soft| soft >= wanted);
    Finding {
        name: OPEN_FILES.into(),
        value: limit
            .soft
            .map_or_else(|| "unlimited".into(), |soft| soft.to_string()),
        wanted: format!("{wanted} (connections + {OPEN_FILES_MARGIN})"),
        ok,
        hint: (!ok).then(|| {
            format!(
                "Raise the hard limit: `ulimit -Hn {wanted}` as root, `LimitNOFILE=` of the \
                 service, or `nofile` in /etc/security/limits.conf. The server needs as many."
            )
        }),
    }
}

fn ports(range: &RangeInclusive<u16>, connections: u64, loopback: bool) -> Finding {
    let usable = match loopback {
        true => quickly_found_ports(range),
        false => usable_ports(range),
    };
    let addresses = connections.div_ceil(usable).max(1);
    // Loopback has 16 million source addresses, so there the range is no limit.
    let capacity = if loopback {
        usable * SOURCE_ADDRESSES_MAX
    } else {
        usable
    };
    let ok = connections <= capacity;
    let wanted = match (loopback, addresses) {
        (true, 2..) => format!("{connections} from {addresses} loopback addresses"),
        _ => format!("{connections} from one address"),
    };
    Finding {
        name: "net.ipv4.ip_local_port_range".into(),
        value: format!(
            "{}-{} ({usable} usable per address)",
            range.start(),
            range.end()
        ),
        wanted,
        ok,
        hint: (!ok).then(|| {
            format!(
                "Widen it: `sysctl -w net.ipv4.ip_local_port_range=\"1024 65535\"`, or give the \
                 generator {addresses} source addresses, or run several generators."
            )
        }),
    }
}

fn time_wait(value: u64, loopback: bool) -> Finding {
    // 1 is everywhere; 2, the kernel's default, is on loopback only (tcp(7)).
    let ok = value == 1 || (value == 2 && loopback);
    Finding {
        name: "net.ipv4.tcp_tw_reuse".into(),
        value: value.to_string(),
        wanted: if loopback { "1 or 2" } else { "1" }.into(),
        ok,
        hint: (!ok).then(|| {
            "`sysctl -w net.ipv4.tcp_tw_reuse=1`, or wait a minute between runs: ports of closed \
             connections stay taken for 60 s."
                .into()
        }),
    }
}

fn backlog(name: &str, value: u64, wanted: u64) -> Finding {
    let ok = value >= wanted;
    Finding {
        name: name.into(),
        value: value.to_string(),
        wanted: format!("at least {wanted}"),
        ok,
        hint: (!ok).then(|| {
            format!(
                "`sysctl -w {name}={wanted}` on the server and restart it: connections opened at \
                 once beyond it wait for a second or more."
            )
        }),
    }
}

fn usable_ports(range: &RangeInclusive<u16>) -> u64 {
    (all_ports(range) * 9 / 10).max(1)
}

fn quickly_found_ports(range: &RangeInclusive<u16>) -> u64 {
    (all_ports(range) * 2 / 5).max(1)
}

fn all_ports(range: &RangeInclusive<u16>) -> u64 {
    u64::from(range.end().saturating_sub(*range.start())) + 1
}

fn parse_port_range(text: &str) -> Option<RangeInclusive<u16>> {
    let mut ports = text.split_whitespace().map(str::parse::<u16>);
    let (first, last) = (ports.next()?.ok()?, ports.next()?.ok()?);
    (first <= last).then_some(first..=last)
}

fn setting(path: &str) -> Option<u64> {
    platform::read(path)?.trim().parse().ok()
}

/// The largest number of source addresses of a run: all of 127.0.0.0/16 except .0 and .255 of each
/// /24.
pub const SOURCE_ADDRESSES_MAX: u64 = 254 * 256;
/// The default of Linux.
pub const PORT_RANGE_DEFAULT: RangeInclusive<u16> = 32768..=60999;
/// Open files besides the connections: standard streams, report, libraries, event loops, and the
/// listeners of a server, which usually has the same limit.
pub const OPEN_FILES_MARGIN: u64 = 128;
/// Open files of every run besides its connections: standard streams, event loops, and the lock of
/// the report's directory.
const OPEN_FILES_NEEDED: u64 = 12;

/// The page size of `net.ipv4.tcp_mem`; larger pages make the bound smaller than necessary.
const PAGE_BYTES: u64 = 4_096;
const BACKLOG_WANTED_MAX: u64 = 4096;
const SYN_BACKLOG_WANTED_MAX: u64 = 1024;

#[cfg(target_os = "linux")]
mod platform {
    use std::fs;

    use rustix::io::fcntl_dupfd_cloexec;
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    use super::OpenFilesLimit;

    pub(super) fn read(path: &str) -> Option<String> {
        fs::read_to_string(format!("/proc/sys/{path}")).ok()
    }

    pub(super) fn grow_file_table(files: u64) {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(files);
        let highest = files.min(limit).saturating_sub(1);
        // The table keeps its size when the file is closed again. A failure only costs time.
        if let (Ok(highest), Ok(file)) = (i32::try_from(highest), fs::File::open("/dev/null")) {
            let _ = fcntl_dupfd_cloexec(&file, highest);
        }
    }

    pub(super) fn raise_open_files() -> Option<OpenFilesLimit> {
        let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
        // After a refusal the old limit stays in force and is reported.
        let _ = setrlimit(
            Resource::Nofile,
            Rlimit {
                current: maximum,
                maximum,
            },
        );
        let limit = getrlimit(Resource::Nofile);
        Some(OpenFilesLimit {
            soft: limit.current,
            hard: limit.maximum,
        })
    }
}

#[cfg(not(target_os = "linux"))]
mod platform {
    use super::OpenFilesLimit;

    pub(super) fn read(_path: &str) -> Option<String> {
        None
    }

    pub(super) fn grow_file_table(_files: u64) {}

    pub(super) fn raise_open_files() -> Option<OpenFilesLimit> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_files_need_a_margin_above_the_connections() {
        let limit = OpenFilesLimit {
            soft: Some(1000 + OPEN_FILES_MARGIN),
            hard: None,
        };
        assert!(open_files(limit, 1000).ok);
        let finding = open_files(limit, 1001);
        assert!(!finding.ok);
        let wanted = (1001 + OPEN_FILES_MARGIN).to_string();
        assert!(finding.hint.unwrap().contains(&wanted));
        assert!(
            open_files(
                OpenFilesLimit {
                    soft: None,
                    hard: None
                },
                u64::MAX
            )
            .ok
        );
    }

    #[test]
    fn one_source_address_as_long_as_a_port_is_found_quickly() {
        let range = 32768..=60999; // 28,232 ports, 11,292 quickly found
        assert_eq!(source_addresses(0, &range), [Ipv4Addr::new(127, 0, 0, 1)]);
        assert_eq!(source_addresses(11_292, &range).len(), 1);
        assert_eq!(
            source_addresses(11_293, &range),
            [Ipv4Addr::new(127, 0, 0, 1), Ipv4Addr::new(127, 0, 0, 2)]
        );
    }

    #[test]
    fn source_addresses_are_distinct_loopback_hosts_and_bounded() {
        let addresses = source_addresses(u64::MAX, &(1..=10));
        assert_eq!(addresses.len() as u64, SOURCE_ADDRESSES_MAX);
        assert!(
            addresses
                .iter()
                .all(|a| a.is_loopback() && !matches!(a.octets()[3], 0 | 255))
        );
        let distinct: std::collections::HashSet<_> = addresses.iter().collect();
        assert_eq!(distinct.len(), addresses.len());
        assert_eq!(addresses[254], Ipv4Addr::new(127, 0, 1, 1));
    }

    #[test]
    fn ports_limit_a_remote_target_but_not_loopback() {
        let range = 32768..=60999;
        assert!(ports(&range, 20_000, false).ok);
        let remote = ports(&range, 60_000, false);
        assert!(!remote.ok && remote.hint.unwrap().contains("3 source addresses"));
        let loopback = ports(&range, 60_000, true);
        assert!(loopback.ok && loopback.wanted.contains("6 loopback addresses"));
    }

    #[test]
    fn more_connections_than_files_or_ports_are_impossible() {
        assert_eq!(shortage_in(20_000, None, None), None);
        assert_eq!(shortage_in(19_000, Some(19_012), Some(19_000)), None);
        let files = shortage_in(19_001, Some(19_012), Some(28_000)).unwrap();
        assert_eq!(
            (files.kind, files.possible),
            (ShortageKind::OpenFiles, 19_000)
        );
        assert!(files.to_string().contains("`ulimit -Hn 19129`"), "{files}");
        let ports = shortage_in(30_000, Some(29_000), Some(28_000)).unwrap();
        assert_eq!((ports.kind, ports.possible), (ShortageKind::Ports, 28_000));
        assert!(
            ports.to_string().contains("at most 28000 are possible"),
            "{ports}"
        );
    }

    #[test]
    fn time_wait_reuse_for_loopback_only_suffices_only_there() {
        assert!(time_wait(2, true).ok && !time_wait(2, false).ok);
        assert!(time_wait(1, false).ok && !time_wait(0, true).ok);
    }

    #[test]
    fn a_short_backlog_has_a_hint_with_the_command() {
        let finding = backlog("net.core.somaxconn", 128, 4096);
        assert!(!finding.ok);
        assert!(
            finding
                .hint
                .unwrap()
                .contains("sysctl -w net.core.somaxconn=4096")
        );
        assert_eq!(backlog("net.core.somaxconn", 4096, 4096).hint, None);
    }

    #[test]
    fn a_port_range_is_two_ascending_numbers() {
        assert_eq!(parse_port_range("32768\t60999\n"), Some(32768..=60999));
        assert_eq!(parse_port_range("60999 32768"), None);
        assert_eq!(parse_port_range("1"), None);
        assert_eq!(parse_port_range("1 70000"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_soft_limit_is_raised_and_local_settings_are_read() {
        let limit = raise_open_files().unwrap();
        assert_eq!(limit.soft, limit.hard);
        let names = |target| -> Vec<String> {
            check(10, target)
                .into_iter()
                .map(|finding| finding.name)
                .collect()
        };
        let local = names(Some(IpAddr::from([127, 0, 0, 1])));
        assert!(
            local.iter().any(|name| name == "net.core.somaxconn"),
            "{local:?}"
        );
        // TEST-NET-1, RFC 5737: its backlog is not visible from here.
        let remote = names(Some(IpAddr::from([192, 0, 2, 1])));
        assert!(
            !remote.iter().any(|name| name == "net.core.somaxconn"),
            "{remote:?}"
        );
        assert!(remote.iter().any(|name| name == "open files"), "{remote:?}");
    }
}

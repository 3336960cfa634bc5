//! Process trees that serve a port of this machine: the listener and all that it started, the
//! holders of the accepted connections, and the processes to which they are forwarded.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::SocketAddr;

use procfs::net::{TcpNetEntry, TcpState};
use procfs::process::{self, FDTarget, Process};

/// The processes and all that they have started, directly or not. The first process of the system
/// is left out: it listens for others, and every process is its child.
pub fn process_tree(roots: &[u32]) -> BTreeSet<u32> {
    if roots.is_empty() {
        return BTreeSet::new();
    }
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for process in process::all_processes().into_iter().flatten().flatten() {
        if let (Ok(pid), Ok(stat)) = (u32::try_from(process.pid()), process.stat())
            && let Ok(parent) = u32::try_from(stat.ppid)
        {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut tree = BTreeSet::new();
    let mut left: Vec<u32> = roots.iter().copied().filter(|pid| *pid > 1).collect();
    while let Some(pid) = left.pop() {
        if tree.insert(pid) {
            left.extend(children.get(&pid).into_iter().flatten());
        }
    }
    tree
}

/// The ancestors of a process, the nearest first, without the first process of the system.
pub fn ancestors(pid: u32) -> Vec<u32> {
    let mut found = Vec::new();
    let mut pid = pid;
    while let Some(parent) = parent_of(pid).filter(|parent| *parent > 1 && !found.contains(parent))
    {
        found.push(parent);
        pid = parent;
    }
    found
}

fn parent_of(pid: u32) -> Option<u32> {
    let stat = Process::new(i32::try_from(pid).ok()?).ok()?.stat().ok()?;
    u32::try_from(stat.ppid).ok()
}

/// The name of a process, such as `nginx`.
pub fn process_name(pid: u32) -> Option<String> {
    Some(
        Process::new(i32::try_from(pid).ok()?)
            .ok()?
            .stat()
            .ok()?
            .comm,
    )
}

/// The established connections of this machine at one moment. The kernel goes through the table of all
/// sockets for it, which takes some 10 ms with many of them.
#[derive(Debug, Default)]
pub struct Connections(Vec<TcpNetEntry>);

impl Connections {
    /// Those of now.
    #[must_use]
    pub fn now() -> Self {
        let tables = [procfs::net::tcp(), procfs::net::tcp6()];
        let entries = tables.into_iter().filter_map(Result::ok).flatten();
        let is_established = |entry: &TcpNetEntry| entry.state == TcpState::Established;
        Self(entries.filter(is_established).collect())
    }
}

/// The processes that hold the accepted side of connections to `target`, searched among `known`
/// first. Several may hold the same connection, such as a parent and its workers.
pub fn acceptor_pids(
    connections: &Connections,
    target: SocketAddr,
    known: &BTreeSet<u32>,
) -> BTreeSet<u32> {
    let entries = connections.0.iter();
    let accepted: HashSet<u64> = entries
        .filter(|entry| is_same(entry.local_address, target))
        .map(|entry| entry.inode)
        .collect();
    if accepted.is_empty() {
        return BTreeSet::new();
    }
    let holders = |pids: &mut dyn Iterator<Item = u32>| -> BTreeSet<u32> {
        pids.filter(|pid| !accepted.is_disjoint(&sockets_of(*pid)))
            .collect()
    };
    let found = holders(&mut known.iter().copied());
    if !found.is_empty() {
        return found;
    }
    let processes = process::all_processes().into_iter().flatten().flatten();
    holders(&mut processes.filter_map(|process| u32::try_from(process.pid()).ok()))
}

/// Outgoing connections of processes, by their other end, and all of their sockets.
#[derive(Debug, Clone, Default)]
pub struct Outgoing {
    /// Connections to each address.
    pub to: BTreeMap<SocketAddr, u64>,
    /// Sockets of every kind.
    pub sockets: u64,
}

/// The outgoing connections of these processes, without the accepted connections of `target`.
pub fn outgoing(connections: &Connections, pids: &BTreeSet<u32>, target: SocketAddr) -> Outgoing {
    let held: HashSet<u64> = pids.iter().flat_map(|pid| sockets_of(*pid)).collect();
    let mut outgoing = Outgoing {
        sockets: held.len() as u64,
        ..Outgoing::default()
    };
    for entry in &connections.0 {
        if held.contains(&entry.inode) && !is_same(entry.local_address, target) {
            *outgoing.to.entry(entry.remote_address).or_default() += 1;
        }
    }
    outgoing
}

fn is_same(one: SocketAddr, other: SocketAddr) -> bool {
    one.port() == other.port() && one.ip().to_canonical() == other.ip().to_canonical()
}

/// The sockets that a process holds, by their inodes.
pub(super) fn sockets_of(pid: u32) -> HashSet<u64> {
    let process = i32::try_from(pid)
        .ok()
        .and_then(|pid| Process::new(pid).ok());
    let descriptors = process.and_then(|process| process.fd().ok());
    let targets = descriptors.into_iter().flatten().filter_map(Result::ok);
    targets
        .filter_map(|descriptor| match descriptor.target {
            FDTarget::Socket(inode) => Some(inode),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_child_is_in_the_tree_of_its_parent() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let tree = process_tree(&[std::process::id()]);
        let name = process_name(child.id());
        let line = ancestors(child.id());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(tree.contains(&child.id()) && tree.contains(&std::process::id()));
        assert_eq!(name.as_deref(), Some("sleep"));
        assert_eq!(line.first(), Some(&std::process::id()));
        assert!(!process_tree(&[1]).contains(&1));
        assert_eq!(process_name(u32::MAX), None);
    }

    #[test]
    fn who_has_accepted_a_connection_is_found_and_whom_it_is_connected_to() {
        let own = BTreeSet::from([std::process::id()]);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = listener.local_addr().unwrap();
        let empty = Connections::now();
        assert!(acceptor_pids(&empty, target, &own).is_empty());
        let before = outgoing(&empty, &own, target);
        let client = TcpStream::connect(target).unwrap();
        let accepted = listener.accept().unwrap();
        let now = Connections::now();
        assert_eq!(acceptor_pids(&now, target, &own), own);
        // Also without any known process at the start.
        let found = acceptor_pids(&now, target, &BTreeSet::new());
        assert!(found.contains(&std::process::id()));
        let after = outgoing(&now, &own, target);
        assert_eq!(after.to.get(&target), Some(&1));
        assert_eq!(before.to.get(&target), None);
        drop((client, accepted));
    }
}

//! Proof that the data of a slot of a Redis Cluster is complete after it moved to another master.
//!
//! The tools of Redis move a slot key by key, and a key stays where it was until the other side has it. So a move loses
//! nothing unless a process ends, or takes its data from elsewhere, before all keys have arrived. Therefore the masters are
//! noted while nothing moves. When the slot is at another one of them, all must still be the same processes with
//! the same replication history: a master that was a replica in between has another one.

use super::blocking::{Blocking, Commands, Named, Reply};
use super::search::Search;
use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};
use tidewire_redis::Handover;

/// What is known of the masters of a cluster.
#[derive(Debug, Default)]
pub(super) struct Handovers {
    /// As they were when the slot did not move.
    before: Option<Masters>,
    /// From where the slot came to the node that had it when the masters were asked last, as far as all moves were complete.
    last: Option<Handover>,
}

/// The masters of a cluster at one moment.
#[derive(Debug)]
struct Masters {
    at: Instant,
    /// The node that has the slot.
    owner: String,
    /// All of them, by the ids of the nodes.
    processes: BTreeMap<String, Process>,
    /// The run ids of the processes that had all data of the slot, up to the one that has it.
    history: Vec<String>,
}

/// Changes when the data may be other data.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Process {
    run_id: String,
    replication_id: String,
}

/// What the node that has the slot says of the cluster.
#[derive(Debug, PartialEq, Eq)]
struct Nodes {
    owner: String,
    /// By their ids.
    masters: BTreeMap<String, Named>,
    is_moving: bool,
}

impl Handovers {
    /// From where the slot came to its node, as far as all moves were complete.
    pub(super) fn last(&self) -> Option<&Handover> {
        self.last.as_ref()
    }

    /// Notes the masters, or judges a move. Blocks for at most a few seconds.
    ///
    /// # Errors
    /// A master does not answer, or the node at `place` does not have the slot: what was noted stays.
    pub(super) fn look(&mut self, search: &Search, slot: u16, place: &Named) -> io::Result<()> {
        let deadline = search.deadline();
        let mut owner = search.connect(place, deadline)?;
        let mut nodes = Nodes::ask(&mut owner, slot, &place.0)?;
        loop {
            if self.before.as_ref().is_some_and(|it| it.are_good(&nodes)) {
                return Ok(());
            }
            let mut processes = BTreeMap::new();
            for (id, place) in &nodes.masters {
                let process = Process::ask(&mut search.connect(place, deadline)?)?;
                processes.insert(id.clone(), process);
            }
            // Nothing moved before the processes were asked, if it does not move after that.
            let again = Nodes::ask(&mut owner, slot, &place.0)?;
            if again == nodes {
                self.note(nodes, processes);
                return Ok(());
            }
            nodes = again;
        }
    }

    fn note(&mut self, nodes: Nodes, processes: BTreeMap<String, Process>) {
        let Some(owner) = processes.get(&nodes.owner) else {
            return;
        };
        let to = owner.run_id.clone();
        let mut history = match &self.before {
            Some(before) if before.history.last() == Some(&to) || before.processes == processes => {
                before.history.clone()
            }
            _ => Vec::new(),
        };
        history.retain(|run_id| *run_id != to);
        history.drain(..history.len().saturating_sub(HISTORY_MAX));
        self.last = Some(Handover {
            from: history.clone(),
            to: to.clone(),
        });
        history.push(to);
        if !nodes.is_moving {
            self.before = Some(Masters {
                at: Instant::now(),
                owner: nodes.owner,
                processes,
                history,
            });
        }
    }
}

impl Masters {
    /// Whether they need not be asked again: a master that has restarted since then would not be believed.
    fn are_good(&self, nodes: &Nodes) -> bool {
        self.owner == nodes.owner
            && self.processes.keys().eq(nodes.masters.keys())
            && self.at.elapsed() < RENEWAL
    }
}

impl Process {
    fn ask(connection: &mut Blocking) -> io::Result<Self> {
        let text = ask(connection, &[b"INFO", b"server", b"replication"])?;
        let field = |name: &str| {
            let value = |line: &str| Some(line.strip_prefix(name)?.strip_prefix(':')?.to_owned());
            let none = || io::Error::new(io::ErrorKind::NotFound, format!("it hides its {name}"));
            text.lines().find_map(value).ok_or_else(none)
        };
        Ok(Self {
            run_id: field("run_id")?,
            replication_id: field("master_replid")?,
        })
    }
}

impl Nodes {
    fn ask(connection: &mut Blocking, slot: u16, host: &str) -> io::Result<Self> {
        let text = ask(connection, &[b"CLUSTER", b"NODES"])?;
        let words = || format!("it does not have slot {slot}");
        Self::read(&text, slot, host)
            .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, words()))
    }

    /// Reads lines of `id host:port@bus,name flags master ping pong epoch link slots...`. A node that does not know its own
    /// host stands at `host`. `None` if the slot is not at the node that was asked.
    fn read(text: &str, slot: u16, host: &str) -> Option<Self> {
        let mut nodes = Self {
            owner: String::new(),
            masters: BTreeMap::new(),
            is_moving: false,
        };
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let [id, place, flags, _, _, _, _, _, slots @ ..] = &words[..] else {
                continue;
            };
            let mut flags = flags.split(',');
            let is_up = |flag: &str| !["fail", "handshake", "noaddr"].contains(&flag);
            if !flags.clone().any(|flag| flag == "master") || !flags.clone().all(is_up) {
                continue;
            }
            nodes
                .masters
                .insert((*id).to_owned(), place_of(place, host)?);
            if flags.any(|flag| flag == "myself") && slots.iter().any(|range| has_slot(range, slot))
            {
                nodes.owner = (*id).to_owned();
                // A slot that it gives away is `[1->-node]`, one that it gets `[1-<-node]`.
                let mark = format!("[{slot}->-");
                nodes.is_moving = slots.iter().any(|slots| slots.starts_with(&mark));
            }
        }
        (!nodes.owner.is_empty()).then_some(nodes)
    }
}

/// Reads `host:port@bus`, behind which other words may stand after commas, first a name of the host.
fn place_of(text: &str, host: &str) -> Option<Named> {
    let mut parts = text.split(',');
    let (address, _bus) = parts.next()?.split_once('@')?;
    let (ip, port) = address.rsplit_once(':')?;
    let name = parts
        .next()
        .filter(|name| !name.is_empty() && !name.contains('='));
    let host = name
        .or_else(|| (!ip.is_empty()).then_some(ip))
        .unwrap_or(host);
    Some((host.to_owned(), port.parse().ok()?))
}

/// Reads `first-last`, or one slot.
fn has_slot(range: &str, slot: u16) -> bool {
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    let within = |first: u16, last: u16| (first..=last).contains(&slot);
    first
        .parse()
        .is_ok_and(|first| last.parse().is_ok_and(|last| within(first, last)))
}

fn ask(connection: &mut Blocking, words: &[&[u8]]) -> io::Result<String> {
    let mut commands = Commands::default();
    commands.push(words);
    let replies = connection.ask_all(commands)?;
    let text = replies.first().and_then(Reply::text).unwrap_or_default();
    Ok(String::from_utf8_lossy(text).into_owned())
}

/// How many processes are remembered.
const HISTORY_MAX: usize = 8;

/// How long what was noted is good while the masters stay.
const RENEWAL: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    const NODES: &str = "\
a 127.0.0.1:7001@17001,redis-1 myself,master - 0 0 1 connected 0-5460 9000 [5000->-b] [7000-<-c]
b 127.0.0.1:7002@17002 master - 0 0 2 connected 5461-8999
c ::1:7003@17003,,shard-id=9 master,fail? - 0 0 3 connected 9001-16383
d 127.0.0.1:7004@17004 slave a 0 0 1 connected
e 127.0.0.1:7005@17005 master,fail - 0 0 5 disconnected
f :7006@17006,shard-id=9 master - 0 0 6 connected
";

    #[test]
    fn masters_and_the_place_of_a_slot_are_read() {
        let nodes = Nodes::read(NODES, 5_000, "asked").expect("its slot");
        assert_eq!((nodes.owner.as_str(), nodes.is_moving), ("a", true));
        let masters = nodes.masters.iter();
        let masters: Vec<_> = masters
            .map(|(id, (host, port))| format!("{id} {host} {port}"))
            .collect();
        let expected = [
            "a redis-1 7001",
            "b 127.0.0.1 7002",
            "c ::1 7003",
            "f asked 7006",
        ];
        assert_eq!(masters, expected);
        for (slot, has_it) in [
            (0, true),
            (5_460, true),
            (9_000, true),
            (5_461, false),
            (7_000, false),
        ] {
            let nodes = Nodes::read(NODES, slot, "asked");
            assert_eq!(
                nodes.is_some_and(|nodes| !nodes.is_moving),
                has_it,
                "{slot}"
            );
        }
    }
}

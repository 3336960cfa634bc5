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

/// The record of a cluster's masters, and of the way of one slot between them.
#[derive(Debug, Default)]
pub(super) struct Handovers {
    /// As they were when the slot did not move.
    before: Option<Masters>,
    /// The way of the slot to its present node, as far as each move is proved to be complete.
    last: Option<Handover>,
    /// The time of the last answer of the node that has the slot.
    seen: Option<Instant>,
    /// The slot is at another node than in `before`.
    is_elsewhere: bool,
    /// The end of the pause after masters did not answer.
    pause_until: Option<Instant>,
}

/// The masters of a cluster at one moment.
#[derive(Debug)]
struct Masters {
    at: Instant,
    owner: Owner,
    /// All of them, by the ids of the nodes.
    processes: BTreeMap<String, Process>,
    /// The run ids of the processes that had all data of the slot, up to the one that has it.
    history: Vec<String>,
}

/// The node that has the slot. A slot that was elsewhere meanwhile has another configuration epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Owner {
    id: String,
    configuration: u64,
}

/// The identity of a master's data: if both ids are the same as before, so is the data.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Process {
    run_id: String,
    replication_id: String,
}

/// The cluster as described by the node that has the slot.
#[derive(Debug, PartialEq, Eq)]
struct Nodes {
    owner: Owner,
    /// The others, by their ids.
    others: BTreeMap<String, Named>,
    is_moving: bool,
}

impl Handovers {
    /// The way of the slot to its present node, as far as each move is proved to be complete.
    pub(super) fn last(&self) -> Option<&Handover> {
        self.last.as_ref()
    }

    /// Notes the masters, or judges a move. Blocks for at most a few seconds. If a master does not answer, or the node at `place`
    /// does not have the slot, what was noted stays for a minute.
    pub(super) fn look(&mut self, search: &Search, slot: u16, place: &Named) {
        let deadline = search.deadline();
        loop {
            let found = self.try_to_look(search, slot, place, deadline);
            // A move is judged only once, so a failed look is repeated.
            if found.is_ok() || !self.is_elsewhere || Instant::now() >= deadline {
                return;
            }
            std::thread::sleep(AGAIN);
        }
    }

    fn try_to_look(
        &mut self,
        search: &Search,
        slot: u16,
        place: &Named,
        deadline: Instant,
    ) -> io::Result<()> {
        if self.seen.is_none_or(|seen| seen.elapsed() > FORGOTTEN) {
            // A master may have come and gone meanwhile.
            self.before = None;
        }
        let mut owner = search.connect(place, deadline)?;
        let mut nodes = Nodes::ask(&mut owner, slot, place)?;
        loop {
            self.seen = Some(Instant::now());
            if let Some(before) = self.before.as_ref().filter(|it| it.are_good(&nodes)) {
                self.last = Some(before.handover());
                return Ok(());
            }
            self.last = None;
            self.before.take_if(|it| it.lack_one(&nodes));
            let is_elsewhere = |before: &Masters| before.owner.id != nodes.owner.id;
            self.is_elsewhere = self.before.as_ref().is_some_and(is_elsewhere);
            let is_paused = self.pause_until.is_some_and(|until| Instant::now() < until);
            if self.before.is_none() && (is_paused || nodes.is_moving) {
                return Ok(());
            }
            let asked = ask_masters(search, &mut owner, &nodes, slot, deadline);
            if asked.is_err() {
                self.pause_until = Some(Instant::now() + PAUSE);
            }
            let processes = asked?;
            // Nothing moved before the processes were asked, if it does not move after that.
            let again = Nodes::ask(&mut owner, slot, place)?;
            if again == nodes {
                self.note(nodes, processes);
                return Ok(());
            }
            nodes = again;
        }
    }

    fn note(&mut self, nodes: Nodes, processes: Processes) {
        let Processes {
            each,
            are_others_empty,
        } = processes;
        let Some(owner) = each.get(&nodes.owner.id) else {
            return;
        };
        let to = owner.run_id.clone();
        let mut history = match &self.before {
            // Keys that the old master still has were not moved.
            Some(before) if before.processes == each && are_others_empty => before.history.clone(),
            Some(before) if before.owner == nodes.owner && before.has(owner) => {
                before.history.clone()
            }
            _ => Vec::new(),
        };
        history.retain(|run_id| *run_id != to);
        history.drain(..history.len().saturating_sub(HISTORY_MAX));
        history.push(to);
        let masters = Masters {
            at: Instant::now(),
            owner: nodes.owner,
            processes: each,
            history,
        };
        self.last = Some(masters.handover());
        self.is_elsewhere = false;
        if nodes.is_moving {
            return;
        }
        // Old keys of the slot at another master would later look like keys that moved there.
        self.before = are_others_empty.then_some(masters);
        if !are_others_empty {
            self.pause_until = Some(Instant::now() + PAUSE);
        }
    }
}

impl Masters {
    /// Whether the record is still good. If a master has restarted since then, the record proves nothing, but does no harm.
    fn are_good(&self, nodes: &Nodes) -> bool {
        self.owner == nodes.owner
            && self.processes.len() == nodes.others.len() + 1
            && !self.lack_one(nodes)
            && self.at.elapsed() < RENEWAL
    }

    /// Whether the cluster has a master that is not in the record.
    fn lack_one(&self, nodes: &Nodes) -> bool {
        let mut ids = nodes.others.keys().chain([&nodes.owner.id]);
        ids.any(|id| !self.processes.contains_key(id))
    }

    /// Whether the node with the slot was this process.
    fn has(&self, owner: &Process) -> bool {
        self.processes.get(&self.owner.id) == Some(owner)
    }

    fn handover(&self) -> Handover {
        let (to, from) = self.history.split_last().unzip();
        Handover {
            from: from.map(<[_]>::to_vec).unwrap_or_default(),
            to: to.cloned().unwrap_or_default(),
        }
    }
}

/// The processes of all masters, by the ids of the nodes.
struct Processes {
    each: BTreeMap<String, Process>,
    /// Whether all masters but the one with the slot have no key of it.
    are_others_empty: bool,
}

fn ask_masters(
    search: &Search,
    owner: &mut Blocking,
    nodes: &Nodes,
    slot: u16,
    deadline: Instant,
) -> io::Result<Processes> {
    let mut each = BTreeMap::from([(nodes.owner.id.clone(), Process::ask(owner)?)]);
    let mut are_others_empty = true;
    for (id, place) in &nodes.others {
        let mut connection = search.connect(place, deadline)?;
        each.insert(id.clone(), Process::ask(&mut connection)?);
        let slot = slot.to_string();
        let keys = ask(
            &mut connection,
            &[b"CLUSTER", b"COUNTKEYSINSLOT", slot.as_bytes()],
        )?;
        are_others_empty &= keys.number() == Some(0);
    }
    Ok(Processes {
        each,
        are_others_empty,
    })
}

impl Process {
    fn ask(connection: &mut Blocking) -> io::Result<Self> {
        let text = text_of(&ask(connection, &[b"INFO", b"server", b"replication"])?);
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
    /// Asks the node at `place`.
    fn ask(connection: &mut Blocking, slot: u16, place: &Named) -> io::Result<Self> {
        let text = text_of(&ask(connection, &[b"CLUSTER", b"NODES"])?);
        let words = || format!("it does not have slot {slot}");
        Self::read(&text, slot, place)
            .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, words()))
    }

    /// Reads lines of `id host:port@bus,name flags master ping pong epoch link slots...`. `None` if the slot is not at the node that
    /// was asked.
    fn read(text: &str, slot: u16, place: &Named) -> Option<Self> {
        let lines = text.lines().filter_map(Line::read);
        let lines: Vec<Line<'_>> = lines.filter(Line::is_master).collect();
        let own = lines.iter().find(|line| line.has_flag("myself"))?;
        if !own.slots.iter().any(|range| has_slot(range, slot)) {
            return None;
        }
        // Names are used where the cluster gives them to its clients.
        let are_names = own.name.is_some_and(|name| name == place.0);
        let others = lines.iter().filter(|line| line.id != own.id);
        let others = others.map(|line| {
            let host = line.name.filter(|_| are_names).unwrap_or(line.ip);
            Some((line.id.to_owned(), (host.to_owned(), line.port)))
        });
        // A slot that it gives away is `[1->-node]`, one that it gets `[1-<-node]`.
        let mark = format!("[{slot}->-");
        Some(Self {
            owner: Owner {
                id: own.id.to_owned(),
                configuration: own.configuration,
            },
            others: others.collect::<Option<_>>()?,
            is_moving: own.slots.iter().any(|slots| slots.starts_with(&mark)),
        })
    }
}

/// A line of `CLUSTER NODES`.
struct Line<'a> {
    id: &'a str,
    ip: &'a str,
    port: u16,
    name: Option<&'a str>,
    flags: &'a str,
    configuration: u64,
    slots: Vec<&'a str>,
}

impl<'a> Line<'a> {
    fn read(text: &'a str) -> Option<Self> {
        let words: Vec<&str> = text.split(' ').collect();
        let [id, place, flags, _, _, _, configuration, _, slots @ ..] = &words[..] else {
            return None;
        };
        let mut parts = place.split(',');
        let (address, _bus) = parts.next()?.split_once('@')?;
        let (ip, port) = address.rsplit_once(':')?;
        Some(Self {
            id,
            ip,
            port: port.parse().ok()?,
            name: parts
                .next()
                .filter(|name| !name.is_empty() && !name.contains('=')),
            flags,
            configuration: configuration.parse().ok()?,
            slots: slots.to_vec(),
        })
    }

    fn has_flag(&self, wanted: &str) -> bool {
        self.flags.split(',').any(|flag| flag == wanted)
    }

    /// Whether the node is a master that works.
    fn is_master(&self) -> bool {
        let is_away = ["fail", "handshake", "noaddr"].map(|flag| self.has_flag(flag));
        self.has_flag("master") && !is_away.contains(&true)
    }
}

/// Reads `first-last`, or one slot.
fn has_slot(range: &str, slot: u16) -> bool {
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    let bounds = first.parse::<u16>().ok().zip(last.parse::<u16>().ok());
    bounds.is_some_and(|(first, last)| (first..=last).contains(&slot))
}

fn ask(connection: &mut Blocking, words: &[&[u8]]) -> io::Result<Reply> {
    let mut commands = Commands::default();
    commands.push(words);
    let mut replies = connection.ask_all(commands)?;
    Ok(replies.pop().unwrap_or(Reply::Nothing))
}

fn text_of(reply: &Reply) -> String {
    String::from_utf8_lossy(reply.text().unwrap_or_default()).into_owned()
}

/// How many processes are remembered.
const HISTORY_MAX: usize = 8;

/// How long what was noted is good while the masters stay.
const RENEWAL: Duration = Duration::from_secs(30);

/// How long a look that failed changes nothing.
const FORGOTTEN: Duration = Duration::from_secs(60);

/// The pause after masters have not answered.
const PAUSE: Duration = Duration::from_secs(30);

/// The pause before a move is judged again.
const AGAIN: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    const NODES: &str = "\
a 127.0.0.1:7001@17001,redis-1 myself,master - 0 0 1 connected 0-5460 9000 [5000->-b] [7000-<-c]
b 127.0.0.1:7002@17002 master - 0 0 2 connected 5461-8999
c ::1:7003@17003,three,shard-id=9 master,fail? - 0 0 3 connected 9001-16383
d 127.0.0.1:7004@17004 slave a 0 0 1 connected
e 127.0.0.1:7005@17005 master,fail - 0 0 5 disconnected
f :0@0,,shard-id=9 master,noaddr - 0 0 6 disconnected
";

    #[test]
    fn masters_and_the_place_of_a_slot_are_read() {
        let asked = ("redis-1".to_owned(), 7001);
        let nodes = Nodes::read(NODES, 5_000, &asked).expect("its slot");
        let owner = Owner {
            id: "a".to_owned(),
            configuration: 1,
        };
        assert_eq!((&nodes.owner, nodes.is_moving), (&owner, true));
        let masters = nodes.others.iter();
        let masters: Vec<_> = masters
            .map(|(id, (host, port))| format!("{id} {host} {port}"))
            .collect();
        // Names are used if the cluster gave one to its client.
        assert_eq!(masters, ["b 127.0.0.1 7002", "c three 7003"]);
        let by_address = Nodes::read(NODES, 5_000, &("127.0.0.1".to_owned(), 7001));
        let by_address = by_address.expect("its slot").others;
        assert_eq!(by_address.get("c"), Some(&("::1".to_owned(), 7003)));
        let slots = [
            (0, true),
            (5_460, true),
            (9_000, true),
            (5_461, false),
            (7_000, false),
        ];
        for (slot, has_it) in slots {
            let nodes = Nodes::read(NODES, slot, &asked);
            assert_eq!(
                nodes.is_some_and(|nodes| !nodes.is_moving),
                has_it,
                "{slot}"
            );
        }
    }
}

//! Links, their sockets and a model of Redis in one thread, on virtual time, from a seed.

use crate::log::Log;
use crate::presence::PresenceLog;
use std::collections::VecDeque;
use std::sync::Arc;
use tidewire_redis::{
    Action, Category, Draft, Handover, History, Keep, Lineage, Link, LinkOptions, NodeId, Now,
    Priority, Slot,
};
use tidewire_testkit::redis_model::{ClientId, Redis, Snapshot};

pub(crate) struct World {
    pub(crate) random: Random,
    pub(crate) ms: u64,
    pub(crate) redis: Redis,
    pub(crate) nodes: Vec<Node>,
    /// Connections that their clients gave up, with bytes that still reach the server.
    orphans: Vec<Wire>,
    pub(crate) log: Log,
    pub(crate) presence: PresenceLog,
    pub(crate) faults: Faults,
    snapshot: Option<Snapshot>,
    /// The processes that have handed the data over.
    givers: Vec<String>,
    /// Redis is away until then.
    away_until_ms: u64,
    refuses_until_ms: u64,
}

/// The faults of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Faults {
    /// Connections break.
    Resets,
    /// Also the process ends, with all its data.
    Restarts,
    /// Also the process hands all its data over to another one, as in a cluster whose slots move.
    Moves,
    /// Also with less data, with other data or with none.
    Losses,
}

pub(crate) struct Node {
    pub(crate) link: Link,
    wires: [Option<Wire>; 3],
    wanted: Vec<bool>,
    paused_until_ms: u64,
}

/// A connection: bytes on their way, each with the time of their arrival.
struct Wire {
    client: ClientId,
    up: VecDeque<(u64, Vec<u8>)>,
    down: VecDeque<(u64, Vec<u8>)>,
}

pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % limit
    }

    pub(crate) fn one_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }
}

/// The last one has no history.
pub(crate) const TOPICS: [&str; 4] = ["a", "b", "short", "plain"];

pub(crate) fn history(topic: usize) -> History {
    match topic {
        2 => Some(Keep {
            publications_max: 5,
            idle_ms: 0,
        }),
        3 => None,
        _ => Some(Keep {
            publications_max: 100_000,
            idle_ms: 3_600_000,
        }),
    }
}

fn draft(payload: &str) -> Draft<'_> {
    Draft {
        category: Category::Update,
        priority: Priority::Normal,
        ttl_ms: None,
        excluded: None,
        also_excluded: &[],
        volatile: false,
        binary: false,
        t: "t",
        id: None,
        key: None,
        payload: payload.as_bytes(),
    }
}

const START_MS: u64 = 1_700_000_000_000;

impl World {
    pub(crate) fn new(seed: u64, nodes: usize, faults: Faults) -> Self {
        let mut redis = Redis::new(seed, START_MS);
        redis.set_durable(faults != Faults::Moves);
        redis.set_cluster(seed % 4 >= 2);
        let mut random = Random(seed);
        let options = LinkOptions {
            database: (seed % 3 * 5) as u32,
            lineage: Lineage::Single,
            ahead_bytes_max: 3_000,
            linger_ms: 2_000,
            ..LinkOptions::default()
        };
        let nodes = (0..nodes).map(|_| Node {
            link: Link::new(
                options.clone(),
                NodeId(random.below(u64::MAX)),
                random.below(u64::MAX),
            ),
            wires: [None, None, None],
            wanted: vec![false; TOPICS.len()],
            paused_until_ms: 0,
        });
        let mut nodes = nodes.collect::<Vec<_>>();
        for node in &mut nodes {
            node.link.describe(b"a node");
        }
        Self {
            log: Log::new(nodes.len()),
            presence: PresenceLog::default(),
            random,
            ms: 1,
            redis,
            nodes,
            orphans: Vec::new(),
            faults,
            snapshot: None,
            givers: Vec::new(),
            away_until_ms: 0,
            refuses_until_ms: 0,
        }
    }

    pub(crate) fn now(&self) -> Now {
        Now {
            ms: self.ms,
            unix_ms: START_MS + self.ms,
        }
    }

    pub(crate) fn publish(&mut self, node: usize, topic: usize) {
        let number = self.log.offer(node, topic);
        let payload = number.to_string();
        let draft = draft(&payload);
        let now = self.now();
        self.nodes[node].link.publish(
            number,
            &Arc::from(TOPICS[topic]),
            history(topic),
            &draft,
            now,
        );
    }

    /// Publishes on a topic without history beside [`TOPICS`].
    pub(crate) fn publish_on(&mut self, node: usize, topic: &Arc<str>) {
        let number = self.log.offer(node, TOPICS.len() - 1);
        let payload = number.to_string();
        let draft = draft(&payload);
        let now = self.now();
        let link = &mut self.nodes[node].link;
        link.publish(number, topic, None, &draft, now);
    }

    /// A node ends without a word: its connections are cut, and it does nothing any more.
    pub(crate) fn kill(&mut self, node: usize) {
        for slot in Slot::ALL {
            self.reset(node, slot);
        }
        self.nodes[node].paused_until_ms = u64::MAX;
    }

    pub(crate) fn set_interest(&mut self, node: usize, topic: usize, is_wanted: bool) {
        let now = self.now();
        let node = &mut self.nodes[node];
        if std::mem::replace(&mut node.wanted[topic], is_wanted) == is_wanted {
            return;
        }
        if is_wanted {
            node.link
                .want(&Arc::from(TOPICS[topic]), history(topic), now);
        } else {
            node.link.unwant(TOPICS[topic], now);
        }
    }

    /// A fault, of those that the run may have.
    pub(crate) fn break_something(&mut self) {
        let kinds = match self.faults {
            Faults::Resets => 4,
            Faults::Restarts | Faults::Moves => 5,
            Faults::Losses => 10,
        };
        match self.random.below(kinds) {
            0 | 1 => {
                let node = self.random.below(self.nodes.len() as u64) as usize;
                let slot = Slot::ALL[self.random.below(3) as usize];
                self.reset(node, slot);
            }
            2 => self.redis.flush_scripts(),
            3 => {
                let node = self.random.below(self.nodes.len() as u64) as usize;
                self.nodes[node].paused_until_ms = self.ms + self.random.below(3_000);
            }
            4 if self.faults == Faults::Moves => self.move_data(1),
            9 => self.move_data(2),
            4 => {
                let data = Some(self.redis.snapshot());
                self.restart(data);
            }
            5 => self.restart(None),
            6 => self.snapshot = Some(self.redis.snapshot()),
            7 => {
                if let Some(data) = self.snapshot.clone() {
                    // Such a process is not durable, and does not say so.
                    self.redis.set_durable(false);
                    self.restart(Some(data));
                }
            }
            _ => {
                if self.random.one_in(2) {
                    self.log.lineage_ends();
                    self.redis.flush_all();
                } else {
                    self.redis.refuse(Some("OOM command not allowed"));
                    self.refuses_until_ms = self.ms + self.random.below(7_000);
                }
            }
        }
    }

    /// Another process replaces this one with all its data, which one in `many` nodes knows.
    fn move_data(&mut self, many: u64) {
        let mut givers = std::mem::take(&mut self.givers);
        givers.push(self.redis.run_id());
        let data = self.redis.snapshot();
        self.restart(Some(data));
        self.givers = givers;
        let to = self.redis.run_id();
        for node in &mut self.nodes {
            let handover = self.random.one_in(many).then(|| Handover {
                from: self.givers.clone(),
                to: to.clone(),
            });
            node.link.set_handover(handover);
        }
    }

    fn restart(&mut self, data: Option<Snapshot>) {
        self.givers.clear();
        if self.faults == Faults::Losses {
            self.log.lineage_ends();
            // With replicas or without `appendfsync always` nobody may trust the data.
            self.redis.set_durable(false);
        }
        self.redis.restart(data);
        self.orphans.clear();
        let away_ms = if self.random.one_in(5) { 9_000 } else { 500 };
        self.away_until_ms = self.ms + self.random.below(away_ms);
        for node in 0..self.nodes.len() {
            for slot in Slot::ALL {
                self.reset(node, slot);
            }
        }
    }

    /// Ends a connection; what was on its way to the server may still arrive there.
    fn reset(&mut self, node: usize, slot: Slot) {
        let now = self.now();
        let Some(mut wire) = self.nodes[node].wires[slot.index()].take() else {
            return;
        };
        self.nodes[node].link.closed(slot, "reset", now);
        let arrives = self.random.below(3);
        if arrives == 0 || !self.redis.is_open(wire.client) {
            self.redis.close(wire.client);
            return;
        }
        if arrives == 1 {
            // Very late: long after the next connection.
            let late_ms = self.ms + self.random.below(2_000);
            for (at, _) in &mut wire.up {
                *at = (*at).max(late_ms);
            }
        }
        self.orphans.push(wire);
    }

    /// A millisecond, or more if nothing happens.
    pub(crate) fn step(&mut self) {
        self.ms += 1;
        self.redis.set_time(START_MS + self.ms);
        if self.refuses_until_ms <= self.ms {
            self.redis.refuse(None);
        }
        let ms = self.ms;
        for wire in &mut self.orphans {
            wire.deliver_up(&mut self.redis, ms);
        }
        let redis = &mut self.redis;
        self.orphans.retain(|wire| {
            if wire.up.is_empty() {
                redis.close(wire.client);
            }
            !wire.up.is_empty()
        });
        for node in 0..self.nodes.len() {
            self.step_node(node);
        }
        // What the last nodes published for the first ones.
        for wire in self
            .nodes
            .iter_mut()
            .flat_map(|node| node.wires.iter_mut().flatten())
        {
            wire.collect(&mut self.redis, ms, &mut self.random);
        }
    }

    fn step_node(&mut self, index: usize) {
        let now = self.now();
        let ms = self.ms;
        let is_paused = self.nodes[index].paused_until_ms > ms;
        let node = &mut self.nodes[index];
        for slot in Slot::ALL {
            let Some(wire) = &mut node.wires[slot.index()] else {
                continue;
            };
            wire.deliver_up(&mut self.redis, ms);
            wire.collect(&mut self.redis, ms, &mut self.random);
            if is_paused {
                continue;
            }
            for bytes in wire.arrived(ms, &mut self.random) {
                node.link.received(slot, &bytes, now);
            }
        }
        if is_paused {
            return;
        }
        node.link.tick(now);
        while let Some(action) = node.link.poll_action() {
            match action {
                Action::Close(slot) => {
                    if let Some(wire) = node.wires[slot.index()].take() {
                        self.orphans.push(wire);
                    }
                }
                Action::Open(slot) if self.away_until_ms > ms => {
                    node.link.closed(slot, "refused", now);
                }
                Action::Open(slot) => {
                    let client = self.redis.open();
                    node.wires[slot.index()] = Some(Wire {
                        client,
                        up: VecDeque::new(),
                        down: VecDeque::new(),
                    });
                    node.link.connected(slot, now);
                }
            }
        }
        for slot in Slot::ALL {
            let bytes = std::mem::take(node.link.output(slot));
            if let Some(wire) = &mut node.wires[slot.index()] {
                push(&mut wire.up, bytes, ms, &mut self.random);
            }
        }
        while let Some(event) = node.link.poll_event() {
            self.presence.event(index, &event);
            self.log.event(index, event);
        }
    }

    /// No faults from now on: everything that can be done is done in a minute.
    pub(crate) fn rest(&mut self) {
        self.redis.refuse(None);
        self.refuses_until_ms = 0;
        self.away_until_ms = 0;
        let end = self.ms + 75_000;
        while self.ms < end {
            // Nothing happens in between, if the links tell the right deadlines.
            let next_ms = self.next_ms().clamp(self.ms + 1, end);
            self.ms = next_ms - 1;
            self.step();
        }
    }

    fn next_ms(&self) -> u64 {
        let wires = self
            .nodes
            .iter()
            .flat_map(|node| node.wires.iter().flatten());
        let bytes = wires
            .chain(&self.orphans)
            .flat_map(|wire| [wire.up.front(), wire.down.front()]);
        let bytes = bytes.flatten().map(|(at, _)| *at);
        let deadlines = self.nodes.iter().filter_map(|node| {
            let deadline_ms = node.link.deadline_ms()?;
            Some(deadline_ms.max(node.paused_until_ms)).filter(|at| *at != u64::MAX)
        });
        bytes.chain(deadlines).min().unwrap_or(u64::MAX)
    }
}

/// Puts bytes on their way, behind those before them.
fn push(queue: &mut VecDeque<(u64, Vec<u8>)>, bytes: Vec<u8>, ms: u64, random: &mut Random) {
    if !bytes.is_empty() {
        let least = queue.back().map_or(0, |(at, _)| *at);
        queue.push_back(((ms + random.below(4)).max(least), bytes));
    }
}

impl Wire {
    fn deliver_up(&mut self, redis: &mut Redis, ms: u64) {
        while let Some((_, bytes)) = self.up.pop_front_if_due(ms) {
            redis.receive(self.client, &bytes);
        }
    }

    fn collect(&mut self, redis: &mut Redis, ms: u64, random: &mut Random) {
        push(&mut self.down, redis.take_output(self.client), ms, random);
    }

    /// The bytes that have arrived at the client, in pieces.
    fn arrived(&mut self, ms: u64, random: &mut Random) -> Vec<Vec<u8>> {
        let mut pieces = Vec::new();
        while let Some((_, mut bytes)) = self.down.pop_front_if_due(ms) {
            let cut = random.below(bytes.len() as u64 + 1) as usize;
            let rest = bytes.split_off(cut);
            pieces.extend([bytes, rest]);
        }
        pieces
    }
}

trait Due {
    fn pop_front_if_due(&mut self, ms: u64) -> Option<(u64, Vec<u8>)>;
}

impl Due for VecDeque<(u64, Vec<u8>)> {
    fn pop_front_if_due(&mut self, ms: u64) -> Option<(u64, Vec<u8>)> {
        if self.front()?.0 <= ms {
            self.pop_front()
        } else {
            None
        }
    }
}

//! Log of the events of all links, and the check of the guarantees.

use crate::world::{TOPICS, history};
use std::collections::{BTreeMap, BTreeSet};
use tidewire_redis::{Event, Layout, Mark, Placed, Position, Record, Refusal};
use tidewire_testkit::redis_model::Redis;

pub(crate) struct Log {
    /// By number: node, topic, and in which lineage it was offered.
    offered: Vec<(usize, usize)>,
    /// By number: the outcome, and in which lineage it was told.
    outcomes: BTreeMap<u64, (Result<Placed, Refusal>, u64)>,
    /// The content of each position, as anybody has seen it at any time.
    contents: BTreeMap<(usize, Position), u64>,
    /// The epochs in which each publication was seen.
    places: BTreeMap<u64, BTreeSet<Position>>,
    /// By node and topic.
    heads: Vec<Vec<Option<Position>>>,
    /// The last number by node, topic, publisher and epoch.
    orders: BTreeMap<(usize, usize, usize, u32), u64>,
    /// How often a number was delivered on the topic without history, by node.
    plain: BTreeMap<(usize, u64), u64>,
    marks: BTreeMap<(usize, u32, Mark), Position>,
    /// How often a node saw a publication, on its topic or by a pattern.
    pub(crate) seen: BTreeMap<(usize, u64), u64>,
    pub(crate) gaps: u64,
    pub(crate) pattern_gaps: u64,
    lineage: u64,
}

impl Log {
    pub(crate) fn new(nodes: usize) -> Self {
        Self {
            offered: Vec::new(),
            outcomes: BTreeMap::new(),
            contents: BTreeMap::new(),
            places: BTreeMap::new(),
            heads: vec![vec![None; TOPICS.len()]; nodes],
            orders: BTreeMap::new(),
            plain: BTreeMap::new(),
            marks: BTreeMap::new(),
            seen: BTreeMap::new(),
            gaps: 0,
            pattern_gaps: 0,
            lineage: 0,
        }
    }

    pub(crate) fn lineage_ends(&mut self) {
        self.lineage += 1;
    }

    /// The number of a new publication.
    pub(crate) fn offer(&mut self, node: usize, topic: usize) -> u64 {
        self.offered.push((node, topic));
        self.offered.len() as u64 - 1
    }

    pub(crate) fn event(&mut self, node: usize, event: Event) {
        let index = |topic: &str| {
            TOPICS
                .iter()
                .position(|name| *name == topic)
                .expect("a topic")
        };
        match event {
            Event::Published { number, outcome } => {
                let lineage = self.lineage;
                let before = self.outcomes.insert(number, (outcome, lineage));
                assert_eq!(before, None, "{number} was told twice");
                if let Ok(Placed {
                    position: Some(position),
                    ..
                }) = outcome
                {
                    let (_, topic) = self.offered[number as usize];
                    self.see(topic, position, number);
                }
            }
            Event::Live { topic, head } => {
                let topic = index(&topic);
                self.heads[node][topic] = head;
                assert_eq!(head.is_some(), history(topic).is_some());
            }
            Event::Gap { topic, head } => {
                let topic = index(&topic);
                self.gaps += 1;
                let before = self.heads[node][topic];
                assert!(
                    head >= before,
                    "a gap goes back from {before:?} to {head:?}"
                );
                self.heads[node][topic] = head;
            }
            Event::Delivered {
                topic,
                position,
                record,
            } => {
                self.delivered(node, index(&topic), position, &record);
            }
            Event::PatternGap { .. } => self.pattern_gaps += 1,
            Event::Matched { record, .. } => {
                let record = Record::decode(&record).expect("a record");
                let number = String::from_utf8_lossy(record.payload)
                    .parse()
                    .expect("a number");
                *self.seen.entry((node, number)).or_default() += 1;
            }
            _ => {}
        }
    }

    /// How many publications were offered.
    pub(crate) fn offers(&self) -> u64 {
        self.offered.len() as u64
    }

    fn delivered(&mut self, node: usize, topic: usize, position: Option<Position>, record: &[u8]) {
        let record = Record::decode(record).expect("a record");
        let number: u64 = String::from_utf8_lossy(record.payload)
            .parse()
            .expect("a number");
        *self.seen.entry((node, number)).or_default() += 1;
        let (publisher, own) = self.offered[number as usize];
        assert_eq!(own, topic);
        let Some(position) = position else {
            *self.plain.entry((node, number)).or_default() += 1;
            return;
        };
        let head = self.heads[node][topic].expect("a delivery after Live or Gap");
        let next = Position {
            offset: head.offset + 1,
            ..head
        };
        assert_eq!(position, next, "I2: node {node} topic {topic} has a hole");
        self.heads[node][topic] = Some(position);
        self.see(topic, position, number);
        let order = (node, topic, publisher, position.epoch);
        let before = self.orders.insert(order, number);
        assert!(before < Some(number), "I6: {number} after {before:?}");
        let before = self
            .marks
            .insert((topic, position.epoch, record.mark), position);
        assert!(
            before.is_none_or(|before| before == position),
            "I4: a mark twice"
        );
    }

    fn see(&mut self, topic: usize, position: Position, number: u64) {
        let before = self.contents.insert((topic, position), number);
        assert!(
            before.is_none_or(|before| before == number),
            "I1: {position} holds {before:?} and {number}"
        );
        self.places.entry(number).or_default().insert(position);
    }

    /// After a rest.
    pub(crate) fn check_end(&mut self, redis: &Redis, wants: impl Fn(usize, usize) -> bool) {
        for (topic, name) in TOPICS.iter().enumerate() {
            let entries = redis.stream(&Layout::new("tw").stream(name));
            for (position, record) in &entries {
                let record = Record::decode(record).expect("a record");
                let number = String::from_utf8_lossy(record.payload)
                    .parse()
                    .expect("a number");
                self.see(topic, *position, number);
            }
            self.check_acknowledged(topic, entries.last().map(|(last, _)| *last), &entries);
            if let (Some((last, _)), true) = (entries.last(), history(topic).is_some()) {
                for (node, heads) in self.heads.iter().enumerate() {
                    if wants(node, topic) {
                        assert_eq!(
                            heads[topic],
                            Some(*last),
                            "I2: node {node} is not at the end"
                        );
                    }
                }
            }
        }
        assert_eq!(
            self.outcomes.len(),
            self.offered.len(),
            "every publication has an outcome"
        );
        for (number, (outcome, _)) in &self.outcomes {
            let places = self.places.get(number).map_or(0, BTreeSet::len);
            let most = if self.lineage == 0 {
                1
            } else {
                self.lineage as usize + 1
            };
            assert!(
                places <= most,
                "I4: {number} is at {:?}",
                self.places.get(number)
            );
            if let Err(Refusal::Busy | Refusal::Unavailable) = outcome {
                assert_eq!(places, 0, "I4: {number} was refused and is there");
                let delivered = self.plain.keys().any(|(_, other)| other == number);
                assert!(!delivered, "I4: {number} was refused and delivered");
            }
        }
        if self.lineage == 0 {
            assert!(
                self.plain.values().all(|times| *times == 1),
                "delivered twice"
            );
        }
    }

    /// I3: what was acknowledged is there, or its epoch has ended.
    fn check_acknowledged(
        &self,
        topic: usize,
        last: Option<Position>,
        entries: &[(Position, Vec<u8>)],
    ) {
        let kept: BTreeSet<Position> = entries.iter().map(|(position, _)| *position).collect();
        let first = entries.first().map(|(first, _)| *first);
        for (number, (outcome, lineage)) in &self.outcomes {
            let Ok(Placed {
                position: Some(position),
                ..
            }) = outcome
            else {
                continue;
            };
            if self.offered[*number as usize].1 != topic {
                continue;
            }
            if *lineage == self.lineage {
                assert!(
                    Some(*position) <= last,
                    "I3: {number} at {position} is lost"
                );
            }
            let is_present = last.is_some_and(|last| last.epoch == position.epoch);
            if is_present && Some(*position) >= first {
                assert!(
                    kept.contains(position),
                    "I3: {number} at {position} is not kept"
                );
            }
        }
    }
}

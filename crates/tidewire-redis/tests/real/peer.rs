//! A link on real sockets: what the engine's thread will be, for one link.

use crate::server::wait_for;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use tidewire_redis::{
    Action, Category, Draft, Event, History, Keep, Link, LinkOptions, NodeId, Now, PageQuery,
    Placed, Position, Priority, Record, Refusal, Slot,
};

/// A link, its sockets, and everything that it said.
pub(crate) struct Peer {
    pub(crate) link: Link,
    path: PathBuf,
    sockets: [Option<UnixStream>; 3],
    start: Instant,
    next: u64,
    pub(crate) published: BTreeMap<u64, Result<Placed, Refusal>>,
    pub(crate) events: Vec<Event>,
    /// No bytes are read from the subscription.
    pub(crate) is_deaf: bool,
}

impl Peer {
    pub(crate) fn new(path: &Path, options: LinkOptions) -> Self {
        let node = NodeId(RandomState::new().build_hasher().finish());
        Self {
            link: Link::new(options, node, node.0),
            path: path.to_owned(),
            sockets: [None, None, None],
            start: Instant::now(),
            next: 0,
            published: BTreeMap::new(),
            events: Vec::new(),
            is_deaf: false,
        }
    }

    /// Connected.
    pub(crate) fn connect(path: &Path, options: LinkOptions) -> Self {
        let mut peer = Self::new(path, options);
        peer.until("connected", |peer| peer.link.health().is_connected);
        peer
    }

    pub(crate) fn now(&self) -> Now {
        let unix = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .expect("a time after 1970");
        Now {
            ms: self.start.elapsed().as_millis() as u64 + 1,
            unix_ms: unix.as_millis() as u64,
        }
    }

    /// One turn of the loop.
    pub(crate) fn turn(&mut self) {
        for slot in Slot::ALL {
            self.receive(slot);
        }
        let now = self.now();
        self.link.tick(now);
        while let Some(action) = self.link.poll_action() {
            match action {
                Action::Close(slot) => self.sockets[slot.index()] = None,
                Action::Open(slot) => match UnixStream::connect(&self.path) {
                    Ok(socket) => {
                        socket
                            .set_nonblocking(true)
                            .expect("a socket that does not block");
                        self.sockets[slot.index()] = Some(socket);
                        self.link.connected(slot, now);
                    }
                    Err(error) => self.link.closed(slot, &error.to_string(), now),
                },
            }
        }
        for slot in Slot::ALL {
            self.send(slot);
        }
        while let Some(event) = self.link.poll_event() {
            match event {
                Event::Published { number, outcome } => {
                    assert_eq!(self.published.insert(number, outcome), None, "told twice");
                }
                event => self.events.push(event),
            }
        }
    }

    fn receive(&mut self, slot: Slot) {
        if slot == Slot::Subscribe && self.is_deaf {
            return;
        }
        let mut bytes = [0; 65_536];
        while let Some(socket) = &mut self.sockets[slot.index()] {
            let reason = match socket.read(&mut bytes) {
                Ok(0) => "ended by Redis".to_owned(),
                Ok(length) => {
                    let now = self.now();
                    self.link.received(slot, &bytes[..length], now);
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => error.to_string(),
            };
            self.sockets[slot.index()] = None;
            let now = self.now();
            self.link.closed(slot, &reason, now);
        }
    }

    fn send(&mut self, slot: Slot) {
        let output = self.link.output(slot);
        let Some(socket) = &mut self.sockets[slot.index()] else {
            return;
        };
        // Errors come again when it is read.
        if let Ok(length) = socket.write(output) {
            output.drain(..length);
        }
    }

    pub(crate) fn until(&mut self, what: &str, mut is_true: impl FnMut(&mut Self) -> bool) {
        wait_for(what, || {
            self.turn();
            is_true(self)
        });
    }

    pub(crate) fn publish(&mut self, topic: &str, history: History, payload: &str) -> u64 {
        self.publish_with(topic, history, payload, None)
    }

    pub(crate) fn publish_with(
        &mut self,
        topic: &str,
        history: History,
        payload: &str,
        id: Option<&str>,
    ) -> u64 {
        self.next += 1;
        let draft = Draft {
            category: Category::Update,
            priority: Priority::Normal,
            ttl_ms: None,
            excluded: None,
            also_excluded: &[],
            volatile: false,
            binary: false,
            t: "trade",
            id,
            key: None,
            payload: payload.as_bytes(),
        };
        let now = self.now();
        self.link
            .publish(self.next, &Arc::from(topic), history, &draft, now);
        self.next
    }

    /// Publishes and waits for the outcome.
    pub(crate) fn place(&mut self, topic: &str, history: History, payload: &str) -> Placed {
        let number = self.publish(topic, history, payload);
        self.outcome(number).expect("a place")
    }

    pub(crate) fn outcome(&mut self, number: u64) -> Result<Placed, Refusal> {
        self.until("published", |peer| peer.published.contains_key(&number));
        self.published[&number]
    }

    pub(crate) fn want(&mut self, topic: &str, history: History) -> Option<Position> {
        let now = self.now();
        let lives = self.lives(topic);
        self.link.want(&Arc::from(topic), history, now);
        self.until("live", |peer| peer.lives(topic) > lives);
        let heads = self.events.iter().rev().find_map(|event| match event {
            Event::Live { topic: name, head } if **name == *topic => Some(*head),
            _ => None,
        });
        heads.flatten()
    }

    fn lives(&self, topic: &str) -> usize {
        let is_it =
            |event: &&Event| matches!(event, Event::Live { topic: name, .. } if **name == *topic);
        self.events.iter().filter(is_it).count()
    }

    pub(crate) fn read(&mut self, topic: &str, query: PageQuery) -> Event {
        self.next += 1;
        let (number, now) = (self.next, self.now());
        self.link.read(number, &Arc::from(topic), query, now);
        let is_it =
            |event: &Event| matches!(event, Event::Read { number: other, .. } if *other == number);
        self.until("read", |peer| peer.events.iter().any(is_it));
        self.events
            .iter()
            .find(|event| is_it(event))
            .expect("found above")
            .clone()
    }

    /// Positions and payloads of a topic in the order of their delivery, `None` for a gap.
    pub(crate) fn delivered(&self, topic: &str) -> Vec<Option<(Option<Position>, String)>> {
        let mut all = Vec::new();
        for event in &self.events {
            match event {
                Event::Delivered {
                    topic: name,
                    position,
                    record,
                } if **name == *topic => {
                    let record = Record::decode(record).expect("a record");
                    let payload = String::from_utf8(record.payload.to_vec()).expect("text");
                    all.push(Some((*position, payload)));
                }
                Event::Gap { topic: name, .. } if **name == *topic => all.push(None),
                _ => {}
            }
        }
        all
    }

    pub(crate) fn payloads(&self, topic: &str) -> Vec<String> {
        self.delivered(topic)
            .into_iter()
            .flatten()
            .map(|(_, payload)| payload)
            .collect()
    }

    pub(crate) fn gaps(&self, topic: &str) -> usize {
        self.delivered(topic)
            .iter()
            .filter(|delivered| delivered.is_none())
            .count()
    }
}

pub(crate) const KEPT: History = Some(Keep {
    publications_max: 1_000,
    idle_ms: 3_600_000,
});

//! Three servers with their links, and the model of Redis.

use crate::common::simulated::SimulatedClient;
use crate::common::topics::open_topics;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::VecDeque;
use tidewire_engine::apps::Sink;
use tidewire_engine::simulation::{SimulatedLink, shards_with_link};
use tidewire_engine::{BrokerAddress, BrokerConfig, Config, HistoryLimits, TopicRule};
use tidewire_net::Handler;
use tidewire_redis::{Action, Now, Slot};
use tidewire_testkit::redis_model::{ClientId, Redis, Snapshot};
use tidewire_testkit::seeds;
use tidewire_testkit::simulation::{Driver, Faults};

const START_UNIX_MS: u64 = 1_767_225_600_000;

/// The faults of Redis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Nothing at all.
    Nothing,
    /// Connections break.
    Resets,
    /// Also it ends, and comes back with all that it had.
    Restarts,
    /// Also it comes back with nothing, or without the last of it.
    Losses,
}

fn config(is_durable: bool) -> Config {
    let mut config = open_topics();
    config.limits.rate_limit_capacity = 0;
    config.limits.ping_interval_ms = 600_000;
    config.limits.idle_timeout_ms = 1_200_000;
    let mut broker = BrokerConfig::new(BrokerAddress::parse("redis://model").expect("a URL"));
    broker.is_durable = is_durable;
    config.broker = Some(broker);
    config.topics.rules = vec![TopicRule {
        history: Some(HistoryLimits::of(100_000)),
        presence: true,
        ..TopicRule::new("h.>")
    }];
    config
}

/// Runs a test with each seed; the fates take turns.
pub(crate) fn each_seed(fates: &[Fate], run: fn(u64, Fate)) {
    seeds::each_seed(8, |seed| run(seed, fates[seed as usize % fates.len()]));
}

/// A connection of a link to the model: bytes on their way.
pub(crate) struct Wire {
    client: ClientId,
    up: VecDeque<Vec<u8>>,
    down: VecDeque<Vec<u8>>,
}

pub(crate) struct Node<H: Handler> {
    driver: Driver<H>,
    link: SimulatedLink,
    wires: [Option<Wire>; 3],
}

pub(crate) struct World<H: Handler> {
    pub(crate) random: StdRng,
    pub(crate) redis: Redis,
    nodes: Vec<Node<H>>,
    ms: u64,
    away_until_ms: u64,
    /// A copy of the data from before.
    before: Option<Snapshot>,
    /// A server that has ended without a word.
    pub(crate) dead: Option<usize>,
}

/// Three servers that have just begun.
pub(crate) fn world(seed: u64, fate: Fate) -> World<impl Handler> {
    let mut redis = Redis::new(seed, START_UNIX_MS);
    redis.set_durable(true);
    redis.set_cluster(seed / 12 % 2 == 1);
    let nodes = (0..3).map(|node| {
        let (shards, _, link) =
            shards_with_link(config(fate != Fate::Losses), |_| Sink, seed * 3 + node)
                .expect("a server");
        let mut driver = Driver::new(Faults {
            delay_ms: 0..=0,
            ..Faults::default()
        });
        for shard in shards {
            driver.add(shard);
        }
        Node {
            driver,
            link,
            wires: [None, None, None],
        }
    });
    World {
        random: StdRng::seed_from_u64(seed),
        redis,
        nodes: nodes.collect(),
        ms: 0,
        away_until_ms: 0,
        before: None,
        dead: None,
    }
}

impl<H: Handler> World<H> {
    pub(crate) fn now(&self) -> Now {
        Now {
            ms: self.ms,
            unix_ms: START_UNIX_MS + self.ms,
        }
    }

    pub(crate) fn connect(&mut self, node: usize) -> SimulatedClient {
        let end = self.nodes[node].driver.network().connect(0);
        SimulatedClient::open(end, &[])
    }

    /// The clock of a server's machine jumps.
    pub(crate) fn step_clock(&mut self, node: usize, ms: i64) {
        self.nodes[node].driver.step_clock(ms);
    }

    /// Some virtual time for all.
    pub(crate) fn run(&mut self, ms: u64) {
        let end = self.ms + ms;
        while self.ms < end {
            self.ms += 2;
            self.redis.set_time(START_UNIX_MS + self.ms);
            let dead = self.dead;
            for node in (0..self.nodes.len()).filter(|node| dead != Some(*node)) {
                self.nodes[node].driver.run_until(self.ms);
                self.carry(node);
                let now = self.now();
                self.nodes[node].link.turn(now);
                self.act(node);
            }
        }
    }

    /// Opens and closes what the link says, and takes what it sends.
    fn act(&mut self, node: usize) {
        let now = self.now();
        let is_away = self.ms < self.away_until_ms;
        let own = &mut self.nodes[node];
        while let Some(action) = own.link.link().poll_action() {
            match action {
                Action::Open(slot) if is_away => {
                    own.link.link().closed(slot, "nobody is there", now);
                }
                Action::Open(slot) => {
                    own.wires[slot.index()] = Some(Wire {
                        client: self.redis.open(),
                        up: VecDeque::new(),
                        down: VecDeque::new(),
                    });
                    own.link.link().connected(slot, now);
                }
                Action::Close(slot) => {
                    if let Some(wire) = own.wires[slot.index()].take() {
                        self.redis.close(wire.client);
                    }
                }
            }
        }
        for slot in Slot::ALL {
            let output = std::mem::take(own.link.link().output(slot));
            if let (false, Some(wire)) = (output.is_empty(), &mut own.wires[slot.index()]) {
                wire.up.push_back(output);
            }
        }
    }

    /// Carries bytes both ways; now and then none, so that they are late.
    fn carry(&mut self, node: usize) {
        let now = self.now();
        for slot in Slot::ALL {
            let own = &mut self.nodes[node];
            let Some(wire) = &mut own.wires[slot.index()] else {
                continue;
            };
            if self.random.random_range(0..4) > 0
                && let Some(bytes) = wire.up.pop_front()
            {
                self.redis.receive(wire.client, &bytes);
            }
            let sent = self.redis.take_output(wire.client);
            if !sent.is_empty() {
                wire.down.push_back(sent);
            }
            if !self.redis.is_open(wire.client) {
                own.wires[slot.index()] = None;
                own.link.link().closed(slot, "it ended the connection", now);
            } else if self.random.random_range(0..4) > 0
                && let Some(bytes) = wire.down.pop_front()
            {
                own.link.link().received(slot, &bytes, now);
            }
        }
    }

    /// A connection breaks, with what is on its way.
    pub(crate) fn cut(&mut self) {
        let node = self.random.random_range(0..self.nodes.len());
        let slot = Slot::ALL[self.random.random_range(0..3)];
        if let Some(mut wire) = self.nodes[node].wires[slot.index()].take() {
            // What was sent may have arrived still.
            if self.random.random()
                && let Some(bytes) = wire.up.pop_front()
            {
                self.redis.receive(wire.client, &bytes);
            }
            self.redis.close(wire.client);
            let now = self.now();
            self.nodes[node].link.link().closed(slot, "a reset", now);
        }
    }

    /// A server ends without a word.
    pub(crate) fn kill(&mut self, node: usize) {
        self.dead = Some(node);
        for wire in self.nodes[node].wires.iter_mut().filter_map(Option::take) {
            self.redis.close(wire.client);
        }
    }

    /// Redis ends, and all connections with it. With [`Fate::Losses`] it comes back with all its data, with the last copy
    /// (as after a failover to a replica that lags), or with nothing.
    pub(crate) fn restart(&mut self, fate: Fate) {
        let before = self.before.take();
        let kept = match fate {
            Fate::Losses => self.random.random_range(0..3),
            _ => 0,
        };
        let data = match kept {
            0 => Some(self.redis.snapshot()),
            1 => before,
            _ => None,
        };
        self.redis.restart(data);
        self.away_until_ms = self.ms + self.random.random_range(0..3_000);
    }

    /// Copies the data, for a later [`restart`](Self::restart).
    pub(crate) fn remember(&mut self) {
        self.before = Some(self.redis.snapshot());
    }
}

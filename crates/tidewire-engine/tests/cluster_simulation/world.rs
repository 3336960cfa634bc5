//! Three servers with their links, and the model of Redis: one or two of them, with one partition or three.

use crate::common::simulated::SimulatedClient;
use crate::common::topics::open_topics;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::VecDeque;
use tidewire_engine::apps::Sink;
use tidewire_engine::simulation::{SimulatedLink, shards_with_link};
use tidewire_engine::{BrokerAddress, BrokerConfig, Config, HistoryLimits, TopicRule};
use tidewire_net::Handler;
use tidewire_redis::{Action, Layout, Now, Partition, Position, Slot};
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

/// What the servers share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Setup {
    /// One Redis, one partition.
    Whole,
    /// Three partitions on two independent Redis.
    Servers,
    /// Three partitions in a Redis Cluster.
    Cluster,
}

impl Setup {
    fn of(seed: u64) -> Self {
        [Self::Whole, Self::Servers, Self::Cluster][(seed / 3 % 3) as usize]
    }

    fn partitions(self) -> u16 {
        if self == Self::Whole { 1 } else { 3 }
    }

    fn servers(self) -> u64 {
        if self == Self::Servers { 2 } else { 1 }
    }
}

fn config(setup: Setup, is_durable: bool) -> Config {
    let mut config = open_topics();
    config.limits.rate_limit_capacity = 0;
    config.limits.ping_interval_ms = 600_000;
    config.limits.idle_timeout_ms = 1_200_000;
    let models = ["redis://model", "redis://model,redis://other"][setup.servers() as usize - 1];
    let addresses = BrokerAddress::parse_list(models).expect("URLs");
    let mut broker = BrokerConfig::new(addresses[0].clone());
    (broker.addresses, broker.partitions) = (addresses, setup.partitions());
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
    /// Of each partition.
    links: Vec<NodeLink>,
}

struct NodeLink {
    link: SimulatedLink,
    wires: [Option<Wire>; 3],
}

/// A model, and what the test does with it.
struct Model {
    redis: Redis,
    away_until_ms: u64,
    /// A copy of the data from before.
    before: Option<Snapshot>,
}

pub(crate) struct World<H: Handler> {
    pub(crate) random: StdRng,
    setup: Setup,
    models: Vec<Model>,
    nodes: Vec<Node<H>>,
    ms: u64,
    /// A server that has ended without a word.
    pub(crate) dead: Option<usize>,
}

/// Three servers that have just begun.
pub(crate) fn world(seed: u64, fate: Fate) -> World<impl Handler> {
    let setup = Setup::of(seed);
    let models = (0..setup.servers()).map(|number| {
        let mut redis = Redis::new(seed + (number << 32), START_UNIX_MS);
        redis.set_durable(true);
        redis.set_cluster(setup == Setup::Cluster);
        Model {
            redis,
            away_until_ms: 0,
            before: None,
        }
    });
    let nodes = (0..3).map(|node| {
        let config = config(setup, fate != Fate::Losses);
        let (shards, _, links) =
            shards_with_link(config, |_| Sink, seed * 3 + node).expect("a server");
        let links = links.into_iter().map(|link| NodeLink {
            link,
            wires: [None, None, None],
        });
        let mut driver = Driver::new(Faults {
            delay_ms: 0..=0,
            ..Faults::default()
        });
        for shard in shards {
            driver.add(shard);
        }
        Node {
            driver,
            links: links.collect(),
        }
    });
    World {
        random: StdRng::seed_from_u64(seed),
        setup,
        models: models.collect(),
        nodes: nodes.collect(),
        ms: 0,
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
            for model in &mut self.models {
                model.redis.set_time(START_UNIX_MS + self.ms);
            }
            let dead = self.dead;
            for node in (0..self.nodes.len()).filter(|node| dead != Some(*node)) {
                self.nodes[node].driver.run_until(self.ms);
                for partition in 0..self.nodes[node].links.len() {
                    self.carry(node, partition);
                    let now = self.now();
                    self.nodes[node].links[partition].link.turn(now);
                    self.act(node, partition);
                }
            }
        }
    }

    /// Opens and closes what the link says, and takes what it sends.
    fn act(&mut self, node: usize, partition: usize) {
        let now = self.now();
        let server = partition % self.models.len();
        let model = &mut self.models[server];
        let is_away = self.ms < model.away_until_ms;
        let own = &mut self.nodes[node].links[partition];
        while let Some(action) = own.link.link().poll_action() {
            match action {
                Action::Open(slot) if is_away => {
                    own.link.link().closed(slot, "nobody is there", now);
                }
                Action::Open(slot) => {
                    own.wires[slot.index()] = Some(Wire {
                        client: model.redis.open(),
                        up: VecDeque::new(),
                        down: VecDeque::new(),
                    });
                    own.link.link().connected(slot, now);
                }
                Action::Close(slot) => {
                    if let Some(wire) = own.wires[slot.index()].take() {
                        model.redis.close(wire.client);
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
    fn carry(&mut self, node: usize, partition: usize) {
        let now = self.now();
        let server = partition % self.models.len();
        let redis = &mut self.models[server].redis;
        for slot in Slot::ALL {
            let own = &mut self.nodes[node].links[partition];
            let Some(wire) = &mut own.wires[slot.index()] else {
                continue;
            };
            if self.random.random_range(0..4) > 0
                && let Some(bytes) = wire.up.pop_front()
            {
                redis.receive(wire.client, &bytes);
            }
            let sent = redis.take_output(wire.client);
            if !sent.is_empty() {
                wire.down.push_back(sent);
            }
            if !redis.is_open(wire.client) {
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
        let partition = self.random.random_range(0..self.nodes[node].links.len());
        let server = partition % self.models.len();
        let redis = &mut self.models[server].redis;
        let slot = Slot::ALL[self.random.random_range(0..3)];
        let now = Now {
            ms: self.ms,
            unix_ms: START_UNIX_MS + self.ms,
        };
        let own = &mut self.nodes[node].links[partition];
        if let Some(mut wire) = own.wires[slot.index()].take() {
            // What was sent may have arrived still.
            if self.random.random()
                && let Some(bytes) = wire.up.pop_front()
            {
                redis.receive(wire.client, &bytes);
            }
            redis.close(wire.client);
            own.link.link().closed(slot, "a reset", now);
        }
    }

    /// A server ends without a word.
    pub(crate) fn kill(&mut self, node: usize) {
        self.dead = Some(node);
        for (partition, own) in self.nodes[node].links.iter_mut().enumerate() {
            let server = partition % self.models.len();
            for wire in own.wires.iter_mut().filter_map(Option::take) {
                self.models[server].redis.close(wire.client);
            }
        }
    }

    /// What Redis keeps of a topic.
    pub(crate) fn stream(&self, topic: &str) -> Vec<(Position, Vec<u8>)> {
        let partitions = self.setup.partitions();
        let index = Partition::index_of(topic, partitions);
        let mut all = Partition::all(partitions);
        let partition = all.nth(index.into()).expect("a partition");
        let key = Layout::of("tw", 0, partition).stream(topic);
        let server = usize::from(index) % self.models.len();
        self.models[server].redis.stream(&key)
    }

    /// Redis ends, one of them, and all connections with it. With [`Fate::Losses`] it comes back with all its data, with the last copy
    /// (as after a failover to a replica that lags), or with nothing.
    pub(crate) fn restart(&mut self, fate: Fate) {
        let server = self.random.random_range(0..self.models.len());
        let model = &mut self.models[server];
        let before = model.before.take();
        let kept = match fate {
            Fate::Losses => self.random.random_range(0..3),
            _ => 0,
        };
        let data = match kept {
            0 => Some(model.redis.snapshot()),
            1 => before,
            _ => None,
        };
        model.redis.restart(data);
        model.away_until_ms = self.ms + self.random.random_range(0..3_000);
    }

    /// Copies the data, for a later [`restart`](Self::restart).
    pub(crate) fn remember(&mut self) {
        for model in &mut self.models {
            model.before = Some(model.redis.snapshot());
        }
    }
}

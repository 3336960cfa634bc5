//! Three servers, their links and a model of Redis in one thread, on virtual time, from a seed:
//! connections break, Redis ends and comes back with its data or without, clients move from server
//! to server. What every client has seen is checked at the end.
//!
//! `TIDEWIRE_SEEDS` is the number of seeds; 120 without it.

mod common;

use common::simulated::SimulatedClient;
use common::topics::open_topics;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use tidewire_engine::apps::Sink;
use tidewire_engine::simulation::{SimulatedLink, shards_with_link};
use tidewire_engine::{BrokerAddress, BrokerConfig, Config, HistoryLimits, TopicRule};
use tidewire_net::Handler;
use tidewire_redis::model::{ClientId, Redis};
use tidewire_redis::{Action, Now, Slot};
use tidewire_testkit::simulation::{Driver, Faults};

const TOPIC: &str = "h.a";
const START_UNIX_MS: u64 = 1_767_225_600_000;

/// What may happen to Redis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// Connections break.
    Resets,
    /// Also it ends, and comes back with all that it had.
    Restarts,
    /// Also it comes back with nothing.
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

/// A connection of a link to the model: bytes on their way.
struct Wire {
    client: ClientId,
    up: VecDeque<Vec<u8>>,
    down: VecDeque<Vec<u8>>,
}

struct Node<H: Handler> {
    driver: Driver<H>,
    link: SimulatedLink,
    wires: [Option<Wire>; 3],
}

struct World<H: Handler> {
    random: StdRng,
    redis: Redis,
    nodes: Vec<Node<H>>,
    ms: u64,
    away_until_ms: u64,
    /// A server that has ended without a word.
    dead: Option<usize>,
}

fn world(seed: u64, fate: Fate) -> World<impl Handler> {
    let mut redis = Redis::new(seed, START_UNIX_MS);
    redis.set_durable(true);
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
        dead: None,
    }
}

impl<H: Handler> World<H> {
    fn now(&self) -> Now {
        Now {
            ms: self.ms,
            unix_ms: START_UNIX_MS + self.ms,
        }
    }

    fn connect(&mut self, node: usize) -> SimulatedClient {
        let end = self.nodes[node].driver.network().connect(0);
        SimulatedClient::open(end, &[])
    }

    /// Some virtual time for all.
    fn run(&mut self, ms: u64) {
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
    fn cut(&mut self) {
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
    fn kill(&mut self, node: usize) {
        self.dead = Some(node);
        for wire in self.nodes[node].wires.iter_mut().filter_map(Option::take) {
            self.redis.close(wire.client);
        }
    }

    /// Redis ends; all connections do.
    fn restart(&mut self, keeps_data: bool) {
        let data = keeps_data.then(|| self.redis.snapshot());
        self.redis.restart(data);
        self.away_until_ms = self.ms + self.random.random_range(0..3_000);
    }
}

/// What one client has seen of the topic.
struct Follower {
    client: SimulatedClient,
    node: usize,
    is_in: bool,
    position: Option<(Value, u64)>,
    /// A gap was told, or the recovery was incomplete: what comes next need not join.
    may_miss: bool,
    /// Whether the last event of each user was that it joined.
    present: HashMap<String, bool>,
}

/// What all clients have seen and what publishers were told.
#[derive(Default)]
struct Log {
    contents: HashMap<(String, u64), u64>,
    acknowledged: HashMap<u64, (String, u64)>,
    refused: HashSet<u64>,
}

impl Log {
    fn note(&mut self, place: (String, u64), number: u64) {
        let known = self.contents.insert(place.clone(), number);
        assert!(
            known.is_none_or(|known| known == number),
            "two contents at {place:?}"
        );
    }
}

impl Follower {
    fn subscribe(&mut self) {
        let mut payload = json!({"action": "subscribe", "topics": [TOPIC]});
        if let Some((epoch, offset)) = &self.position {
            payload["recover"] = true.into();
            payload["recovery"] = json!({TOPIC: {"epoch": epoch, "offset": offset}});
        }
        self.client
            .send(&json!({"t": "subscription_update", "p": payload}));
    }

    fn read(&mut self, log: &mut Log) {
        for message in self.client.receive_json() {
            match message["t"].as_str() {
                Some("x") => self.take(&message, log),
                Some("publication_gap") => {
                    assert_eq!(message["p"]["reason"], "broker", "{message}");
                    self.may_miss = true;
                }
                Some(kind @ ("presence_join" | "presence_leave")) => {
                    let user = message["p"]["user_id"].as_str().expect("a user").to_owned();
                    let is_join = kind == "presence_join";
                    let before = self.present.insert(user, is_join);
                    assert_ne!(before, Some(is_join), "twice: {message}");
                }
                Some("subscription_update") => {
                    let was_in = self.is_in;
                    self.is_in |= message["p"]["success_topics"] == json!([TOPIC]);
                    let recovery = &message["p"]["recovery"][TOPIC];
                    if was_in || !self.is_in || recovery.is_null() {
                        continue;
                    }
                    if recovery["recovered"] != true {
                        let offset = recovery["offset"].as_u64().expect("an offset");
                        self.position = Some((recovery["epoch"].clone(), offset));
                        self.may_miss = false;
                    }
                }
                _ => {}
            }
        }
    }

    fn take(&mut self, message: &Value, log: &mut Log) {
        let offset = message["o"].as_u64().expect("an offset");
        let epoch = message["e"].as_str().expect("an epoch").to_owned();
        let number = message["p"]["n"].as_u64().expect("a number");
        log.note((epoch.clone(), offset), number);
        if let Some((known, last)) = &self.position
            && !std::mem::take(&mut self.may_miss)
        {
            assert_eq!((known, last + 1), (&json!(epoch), offset), "{message}");
        }
        self.position = Some((json!(epoch), offset));
    }
}

#[test]
fn clients_of_three_servers_see_one_log_whatever_happens_to_redis() {
    let seeds = std::env::var("TIDEWIRE_SEEDS");
    let seeds = seeds.map_or(120, |seeds| seeds.parse().expect("a number of seeds"));
    for seed in 0..seeds {
        let fate = [Fate::Resets, Fate::Restarts, Fate::Losses][seed as usize % 3];
        let result = std::panic::catch_unwind(|| run(seed, fate));
        if let Err(panic) = result {
            eprintln!("seed {seed}, {fate:?}");
            std::panic::resume_unwind(panic);
        }
    }
}

fn run(seed: u64, fate: Fate) {
    let mut world = world(seed, fate);
    let mut log = Log::default();
    let mut publishers: Vec<SimulatedClient> = (0..3).map(|node| world.connect(node)).collect();
    let mut followers: Vec<Follower> = (0..4)
        .map(|number| Follower {
            client: world.connect(number % 3),
            node: number % 3,
            is_in: false,
            position: None,
            may_miss: false,
            present: HashMap::new(),
        })
        .collect();
    world.run(500);
    followers.iter_mut().for_each(Follower::subscribe);
    let mut published = 0;
    for _ in 0..120 {
        match world.random.random_range(0..20) {
            0..11 => {
                let node = world.random.random_range(0..3);
                for _ in 0..world.random.random_range(1..5) {
                    publish(&publishers[node], published);
                    published += 1;
                }
            }
            11..13 => world.cut(),
            13 if fate != Fate::Resets => {
                let keeps_data = fate == Fate::Restarts || world.random.random();
                world.restart(keeps_data);
            }
            14 | 15 => {
                let number = world.random.random_range(0..followers.len());
                let node = world.random.random_range(0..3);
                let client = world.connect(node);
                let follower = &mut followers[number];
                follower.read(&mut log);
                follower.client.end.reset();
                (follower.client, follower.node, follower.is_in) = (client, node, false);
                follower.present.clear();
                follower.subscribe();
            }
            _ => {}
        }
        let ms = world.random.random_range(1..60);
        world.run(ms);
        followers
            .iter_mut()
            .for_each(|follower| follower.read(&mut log));
    }
    // Everything is there again.
    for _ in 0..6 {
        world.run(3_000);
        for follower in &mut followers {
            follower.read(&mut log);
            if !follower.is_in {
                follower.subscribe();
            }
        }
    }
    // One more, so that all can see whether they have the end.
    publish(&publishers[0], published);
    world.run(2_000);
    followers
        .iter_mut()
        .for_each(|follower| follower.read(&mut log));
    publishers
        .iter_mut()
        .for_each(|client| hear(client, &mut log));
    check(&world.redis, &followers, &log, (fate, published));
    check_presence(&mut world, &mut publishers, &mut followers, &mut log);
}

/// Every server knows the same users: those of all followers, but for a server that has ended.
fn check_presence<H: Handler>(
    world: &mut World<H>,
    publishers: &mut [SimulatedClient],
    followers: &mut [Follower],
    log: &mut Log,
) {
    let everybody = who_is_there(world, publishers);
    assert_eq!(everybody.len(), followers.len(), "{everybody:?}");
    let dead = world.random.random_range(0..3);
    world.kill(dead);
    // Its lease, and the next probe of another.
    world.run(15_000);
    let left = who_is_there(world, publishers);
    let living = followers.iter_mut().filter(|it| it.node != dead);
    let living: Vec<_> = living.collect();
    assert_eq!(left.len(), living.len(), "{left:?}");
    for follower in living {
        follower.read(log);
        for (user, is_there) in &follower.present {
            assert_eq!(*is_there, left.contains(user), "{user}");
        }
        let mut gone = everybody.difference(&left);
        assert!(gone.all(|user| follower.present.get(user) == Some(&false)));
    }
}

/// The users on the topic, of which all living servers must know the same.
fn who_is_there<H: Handler>(
    world: &mut World<H>,
    clients: &mut [SimulatedClient],
) -> BTreeSet<String> {
    let dead = world.dead;
    let asked: Vec<usize> = (0..clients.len())
        .filter(|node| dead != Some(*node))
        .collect();
    for node in &asked {
        let request = json!({"t": "presence_request", "p": {"topics": [TOPIC]}});
        clients[*node].receive_json();
        clients[*node].send(&request);
    }
    world.run(2_000);
    let known = asked.iter().map(|node| {
        let answers = clients[*node].receive_json();
        let answer = answers.iter().find(|it| it["t"] == "presence_response");
        let topic = &answer.expect("an answer")["p"]["topics"][TOPIC];
        let members = topic["members"].as_object().expect("members");
        assert_eq!(topic["connections"], members.len(), "{topic}");
        members.keys().cloned().collect::<BTreeSet<String>>()
    });
    let known: Vec<_> = known.collect();
    assert!(known.iter().all(|users| *users == known[0]), "{known:?}");
    known[0].clone()
}

fn publish(client: &SimulatedClient, number: u64) {
    let payload = json!({"topic": TOPIC, "type": "x", "payload": {"n": number}});
    client.send(&json!({"t": "publish_request", "cid": number.to_string(), "p": payload}));
}

/// What a publisher was told.
fn hear(client: &mut SimulatedClient, log: &mut Log) {
    for message in client.receive_json() {
        let number = message["cid"].as_str().and_then(|cid| cid.parse().ok());
        let Some(number) = number else { continue };
        match message["t"].as_str() {
            Some("publish_response") => {
                let epoch = message["p"]["epoch"].as_str().expect("an epoch").to_owned();
                let offset = message["p"]["offset"].as_u64().expect("an offset");
                log.note((epoch.clone(), offset), number);
                let again = log.acknowledged.insert(number, (epoch, offset));
                assert!(again.is_none(), "{message}");
            }
            Some("error") if message["p"]["code"] == "BROKER_UNAVAILABLE" => {
                log.refused.insert(number);
            }
            Some("error") => {
                assert_eq!(message["p"]["code"], "PUBLISH_UNKNOWN", "{message}");
            }
            _ => {}
        }
    }
}

fn check(redis: &Redis, followers: &[Follower], log: &Log, (fate, published): (Fate, u64)) {
    let stream = redis.stream(format!("tw:{{0}}:t:{TOPIC}").as_bytes());
    let (head, _) = stream.last().expect("a publication");
    let end = (json!(format!("{:08x}", head.epoch)), head.offset);
    for follower in followers {
        assert!(follower.is_in, "a follower of server {}", follower.node);
        assert_eq!(follower.position.as_ref(), Some(&end));
    }
    let mut places: HashMap<u64, Vec<(&String, u64)>> = HashMap::new();
    for ((epoch, offset), number) in &log.contents {
        places.entry(*number).or_default().push((epoch, *offset));
    }
    for number in &log.refused {
        assert!(
            !places.contains_key(number),
            "{number} was refused and is somewhere"
        );
    }
    if fate != Fate::Losses {
        let epochs: HashSet<_> = log.contents.keys().map(|(epoch, _)| epoch).collect();
        assert!(epochs.len() <= 1, "{epochs:?}");
        let twice = places.iter().find(|(_, places)| places.len() > 1);
        assert_eq!(twice, None);
        let kept: HashSet<u64> = stream.iter().map(|(position, _)| position.offset).collect();
        for (number, (_, offset)) in &log.acknowledged {
            assert!(
                kept.contains(offset),
                "{number} was acknowledged and is lost"
            );
        }
    }
    assert!(
        log.acknowledged.contains_key(&published),
        "the last one is there"
    );
}

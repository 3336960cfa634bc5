//! A server, its clients, and what may be expected of them.

use super::client::Connection;
use super::intruder::Intruder;
use super::outcome::Outcome;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use tidewire_engine::apps::Sink;
use tidewire_engine::{
    AccessRules, Config, Handle, HistoryLimits, Limits, TopicLimits, TopicRule, Topics, simulation,
};
use tidewire_net::Handler;
use tidewire_testkit::simulation::{Driver, Faults};
use tidewire_testkit::topics::{Log, Place, Reading, TopicAnswer};

/// Topics that keep all of what a run publishes, a little of it, and nothing.
const TOPICS: [&str; 5] = ["long.a", "long.b", "short.a", "plain.a", "room.a"];
const JOBS: &str = "plain.jobs";
const CLIENTS: usize = 8;
/// Somebody who only works, from the beginning to the end.
const STEWARD: usize = CLIENTS;
const STEPS: usize = 120;
/// More connections than anybody makes.
const LIVES_MAX: usize = 1_000;

/// Somebody who wants topics and remembers what it saw, over several connections.
struct Person {
    connection: Option<Connection>,
    name: usize,
    /// The connection's id, by which presence knows it.
    id: Option<String>,
    /// Topics subscribed to on this connection, and their answers still to come.
    asked: BTreeMap<String, Option<Place>>,
    readings: BTreeMap<String, Reading>,
    /// Where it was, for the next connection.
    memory: BTreeMap<String, Place>,
    /// The newest number of each connection of a publisher on topics without history.
    newest: BTreeMap<(String, u64), u64>,
    subscribed: BTreeSet<String>,
    /// Topics that were left on this connection.
    left: BTreeSet<String>,
    works: bool,
    published: u64,
    /// Its connections so far. What it said on two of them has no order: the server may still read the first.
    lives: usize,
    answers: u64,
    presence: Option<Value>,
}

struct World<H: Handler> {
    driver: Driver<H>,
    shards: usize,
    handle: Handle,
    rng: StdRng,
    log: Log,
    people: Vec<Person>,
    outcome: Outcome,
    hasher: DefaultHasher,
    /// Jobs that the server has taken, and those that somebody has done.
    jobs: BTreeSet<u64>,
    done: BTreeSet<u64>,
    next_job: u64,
    has_jobs: bool,
    /// Somebody who sends the worst that is allowed, if it is that kind of run.
    intruder: Option<Intruder>,
}

/// Runs one seed; panics if a rule is broken.
pub(crate) fn run(seed: u64) -> Outcome {
    let mut rng = StdRng::seed_from_u64(seed);
    let config = config(&mut rng);
    let shard_count = config.shards;
    let (shards, handle) = simulation::shards(config, |_| Sink, seed).expect("a server");
    // Without resets the steward is always there, so that no work is brought to an empty group.
    let has_jobs = rng.random_bool(0.5);
    let faults = Faults {
        seed,
        delay_ms: 0..=rng.random_range(1..40),
        piece_bytes: 1..=rng.random_range(10..4_000),
        partial_write_chance: rng.random_range(0.0..0.5),
        reset_chance: if has_jobs { 0.0 } else { 0.002 },
        pipe_bytes: rng.random_range(1_000..20_000),
    };
    let mut driver = Driver::new(faults);
    for shard in shards {
        driver.add(shard);
    }
    let people = (0..=STEWARD).map(Person::new).collect();
    let mut world = World {
        driver,
        shards: shard_count,
        handle,
        rng,
        log: Log::default(),
        people,
        outcome: Outcome::default(),
        hasher: DefaultHasher::new(),
        jobs: BTreeSet::new(),
        done: BTreeSet::new(),
        next_job: 0,
        has_jobs,
        intruder: None,
    };
    world.intruder = world.rng.random_bool(0.25).then(Intruder::default);
    world.begin();
    for _ in 0..STEPS {
        world.act();
        world.intrude();
        let pause_ms = world.rng.random_range(0..30);
        world.pass(pause_ms);
    }
    world.settle();
    world.check_end();
    world.outcome.trace = world.hasher.finish();
    world.outcome
}

fn config(rng: &mut StdRng) -> Config {
    let history = |pattern: &str, publications_max| TopicRule {
        history: Some(HistoryLimits {
            publications_max,
            bytes_max: 1 << 20,
            age_max_ms: 0,
        }),
        ..TopicRule::new(pattern)
    };
    Config {
        shards: rng.random_range(1..4),
        topics: Topics {
            access: AccessRules::open(),
            rules: vec![
                history("long.*", 10_000),
                history("short.*", 5),
                TopicRule {
                    presence: true,
                    ..TopicRule::new("room.*")
                },
            ],
            limits: TopicLimits {
                lag_publications_max: 8,
                ..TopicLimits::default()
            },
            ..Topics::default()
        },
        limits: Limits {
            outbox_bytes_max: 64 * 1024,
            idle_timeout_ms: 3_600_000,
            ping_interval_ms: 3_600_000,
            ..Limits::default()
        },
        ..Config::default()
    }
}

impl Person {
    fn new(name: usize) -> Self {
        Self {
            connection: None,
            name,
            id: None,
            asked: BTreeMap::new(),
            readings: BTreeMap::new(),
            memory: BTreeMap::new(),
            newest: BTreeMap::new(),
            subscribed: BTreeSet::new(),
            left: BTreeSet::new(),
            works: false,
            published: 0,
            lives: 0,
            answers: 0,
            presence: None,
        }
    }

    /// The connection is over; what it saw stays in mind.
    fn forget_connection(&mut self) {
        self.connection = None;
        self.id = None;
        self.asked.clear();
        for (topic, reading) in std::mem::take(&mut self.readings) {
            self.memory.insert(topic, reading.at().clone());
        }
        self.subscribed.clear();
        self.left.clear();
        self.newest.clear();
        self.works = false;
    }

    fn say(&self, message: &Value) {
        if let Some(connection) = &self.connection {
            connection.send(message);
        }
    }

    fn subscribe(&mut self, topic: &str, overload: &str) {
        if !self.subscribed.insert(topic.to_owned()) {
            return;
        }
        let since = self.memory.get(topic).cloned();
        let mut payload = json!({"action": "subscribe", "topics": [topic], "overload": overload});
        if self.replay() > 0 {
            payload["replay"] = json!(self.replay());
        }
        if let Some(since) = &since {
            payload["recover"] = json!(true);
            payload["recovery"] = json!({ topic: {"epoch": since.epoch, "offset": since.offset} });
        }
        self.asked.insert(topic.to_owned(), since);
        self.say(&json!({"t": "subscription_update", "p": payload}));
    }

    /// How much of the past it wants where it has seen nothing yet.
    fn replay(&self) -> u64 {
        [0, 1, 4, 1_000][self.name % 4]
    }

    fn join_workers(&mut self) {
        self.works = true;
        let payload = json!({
            "action": "subscribe", "topics": [JOBS], "queue_group": "workers",
            "acknowledge": true, "window": 3,
        });
        self.say(&json!({"t": "subscription_update", "cid": "works", "p": payload}));
    }

    fn unsubscribe(&mut self, topic: &str) {
        if self.subscribed.remove(topic) {
            self.left.insert(topic.to_owned());
            let payload = json!({"action": "unsubscribe", "topics": [topic]});
            self.say(&json!({"t": "subscription_update", "cid": "out", "p": payload}));
        }
    }
}

impl<H: Handler> World<H> {
    fn begin(&mut self) {
        self.connect(STEWARD);
        self.people[STEWARD].join_workers();
        self.pass(10_000);
    }

    /// Somebody does something.
    fn act(&mut self) {
        let index = self.rng.random_range(0..CLIENTS);
        if self.people[index].connection.is_none() {
            return self.connect(index);
        }
        let topic = *TOPICS.choose(&mut self.rng).expect("topics");
        let overload = *["disconnect", "drop_oldest", "conflate"]
            .choose(&mut self.rng)
            .expect("policies");
        let person = &mut self.people[index];
        match self.rng.random_range(0..100) {
            0..25 => person.subscribe(topic, overload),
            25..30 if person.asked.is_empty() => person.unsubscribe(topic),
            30..75 => {
                let burst = self.rng.random_range(1..30);
                (0..burst).for_each(|_| self.publish(index, topic));
            }
            75..83 if self.has_jobs => self.work(index),
            83..90 => self.with_end(index, |end| end.stall(true)),
            90..95 => self.with_end(index, |end| end.stall(false)),
            95..98 => self.with_end(index, |end| end.close()),
            _ => {
                self.outcome.resets += 1;
                self.with_end(index, |end| end.reset());
                self.people[index].forget_connection();
            }
        }
    }

    fn intrude(&mut self) {
        if let Some(intruder) = &mut self.intruder {
            let shard = self.rng.random_range(0..self.shards);
            intruder.act(&mut self.rng, || self.driver.network().connect(shard));
        }
    }

    fn with_end(&self, index: usize, act: impl FnOnce(&tidewire_testkit::simulation::ClientEnd)) {
        if let Some(connection) = &self.people[index].connection {
            act(connection.end());
        }
    }

    fn connect(&mut self, index: usize) {
        let shard = self.rng.random_range(0..self.shards);
        let end = self.driver.network().connect(shard);
        self.people[index].connection = Some(Connection::open(end));
        self.people[index].lives += 1;
        self.outcome.connections += 1;
    }

    fn publish(&mut self, index: usize, topic: &str) {
        let filling = "x".repeat(self.rng.random_range(0..400));
        let person = &mut self.people[index];
        person.published += 1;
        let payload = json!({
            "topic": topic,
            "type": "said",
            "key": (person.published % 3).to_string(),
            "payload": {"by": person.name * LIVES_MAX + person.lives, "n": person.published, "x": filling},
        });
        person.say(&json!({"t": "publish_request", "p": payload}));
    }

    /// Takes part in the work, or brings some.
    fn work(&mut self, index: usize) {
        let person = &mut self.people[index];
        if person.works || self.rng.random_bool(0.5) {
            self.next_job += 1;
            let payload = json!({"topic": JOBS, "type": "job", "payload": {"job": self.next_job}});
            let cid = format!("job {}", self.next_job);
            return person.say(&json!({"t": "publish_request", "cid": cid, "p": payload}));
        }
        person.join_workers();
    }

    /// Advances the time, and lets every client receive.
    fn pass(&mut self, time_ms: u64) {
        let until_ms = self.driver.now_ms() + time_ms;
        self.driver.run_until(until_ms);
        for index in 0..self.people.len() {
            self.receive(index);
        }
    }

    fn receive(&mut self, index: usize) {
        let person = &mut self.people[index];
        let Some(connection) = &mut person.connection else {
            return;
        };
        let messages = connection.receive();
        let is_over = connection.is_over;
        connection.bytes_received().hash(&mut self.hasher);
        self.driver.now_ms().hash(&mut self.hasher);
        for message in messages {
            message.to_string().hash(&mut self.hasher);
            self.take(index, &message);
        }
        if is_over {
            self.people[index].forget_connection();
        }
    }

    fn take(&mut self, index: usize, message: &Value) {
        let payload = &message["p"];
        match message["t"].as_str().expect("a type") {
            "server_ready" => {
                let id = payload["details"]["connection_id"].as_str();
                self.people[index].id = id.map(str::to_owned);
            }
            "subscription_update" if message["cid"].is_null() => self.take_answer(index, payload),
            "subscription_update" if message["cid"] == "out" => {
                let topic = payload["success_topics"][0].as_str().expect("a topic");
                let person = &mut self.people[index];
                person.answers += 1;
                // A later subscription may have been answered; the requests were not made before.
                if let Some(reading) = person.readings.remove(topic) {
                    person.memory.insert(topic.to_owned(), reading.at().clone());
                }
            }
            "said" => self.take_publication(index, message),
            "publication_gap" => self.take_gap(index, payload),
            "job" => {
                let person = &self.people[index];
                let job = payload["job"].as_u64().expect("a number");
                // Some work is not done before the connection is lost.
                if index == STEWARD || self.rng.random_bool(0.8) {
                    self.done.insert(job);
                    self.outcome.jobs_done += 1;
                    let done = json!({ "deliveries": [message["d"]] });
                    person.say(&json!({"t": "publication_ack", "p": done}));
                } else {
                    person
                        .connection
                        .as_ref()
                        .expect("a connection")
                        .end()
                        .close();
                }
            }
            "publish_response" => {
                let cid = message["cid"].as_str().unwrap_or_default();
                if let Some(job) = cid.strip_prefix("job ") {
                    self.jobs.insert(job.parse().expect("a number"));
                }
            }
            "presence_response" => self.people[index].presence = Some(payload.clone()),
            "presence_join" | "presence_leave" | "subscription" => {}
            "subscription_update" => {}
            other => panic!("{other}: {message}"),
        }
    }

    fn take_answer(&mut self, index: usize, payload: &Value) {
        let topic = payload["success_topics"][0].as_str().expect("a topic");
        let person = &mut self.people[index];
        let since = person.asked.remove(topic).expect("it was asked");
        let told = &payload["recovery"][topic];
        let Some(epoch) = told["epoch"].as_str() else {
            assert!(since.is_none(), "a topic with history lost it");
            return;
        };
        let answer = TopicAnswer {
            at: Place {
                epoch: epoch.to_owned(),
                offset: told["offset"].as_u64().expect("an offset"),
            },
            recovered: told["recovered"].as_bool().expect("true or false"),
            count: told["count"].as_u64().expect("a number"),
        };
        if since.is_some() {
            self.outcome.recoveries += 1;
            self.outcome.incomplete_recoveries += u64::from(!answer.recovered);
        }
        if topic.starts_with("long") && since.is_some() {
            assert!(answer.recovered, "all of {topic} is kept");
        }
        if !answer.recovered {
            self.outcome.replayed += answer.count;
            if topic.starts_with("long") {
                assert_eq!(answer.count, person.replay().min(answer.at.offset));
            }
        }
        let reading = Reading::start(topic, since.as_ref(), person.replay(), &answer);
        let reading = reading.unwrap_or_else(|violation| panic!("{violation}"));
        person.readings.insert(topic.to_owned(), reading);
    }

    fn take_publication(&mut self, index: usize, message: &Value) {
        self.outcome.publications_received += 1;
        let topic = message["tp"].as_str().expect("a topic");
        let (by, number) = (message["p"]["by"].as_u64(), message["p"]["n"].as_u64());
        let (by, number) = (by.expect("a publisher"), number.expect("a number"));
        let person = &mut self.people[index];
        let Some(offset) = message["o"].as_u64() else {
            let newest = person.newest.insert((topic.to_owned(), by), number);
            assert!(
                newest.is_none_or(|newest| newest < number),
                "{topic}: {message}"
            );
            return;
        };
        let place = Place {
            epoch: message["e"].as_str().expect("an epoch").to_owned(),
            offset,
        };
        let Some(reading) = person.readings.get_mut(topic) else {
            // On its way when an earlier subscription ended.
            assert!(person.left.contains(topic), "before its answer: {message}");
            return;
        };
        let content = format!("{by}:{number}");
        if let Err(violation) = reading.receive(&mut self.log, &place, &content) {
            panic!("{}: {violation}", person.name);
        }
    }

    fn take_gap(&mut self, index: usize, payload: &Value) {
        self.outcome.gaps += 1;
        let topic = payload["topic"].as_str().expect("a topic");
        let person = &mut self.people[index];
        let Some(reading) = person.readings.get_mut(topic) else {
            return;
        };
        let (from, to) = (payload["from"].as_u64(), payload["to"].as_u64());
        let epoch = payload["epoch"].as_str().expect("an epoch");
        let (from, to) = (from.expect("an offset"), to.expect("an offset"));
        if payload["reason"] == "conflated" {
            // Of what is between only the newest of each key comes: it is not one range any more.
            let at = person.readings.remove(topic).expect("it is there");
            person.memory.insert(topic.to_owned(), at.at().clone());
            person.subscribed.remove(topic);
            person.left.insert(topic.to_owned());
            let leave = json!({"action": "unsubscribe", "topics": [topic]});
            person.say(&json!({"t": "subscription_update", "cid": "quiet", "p": leave}));
            return;
        }
        if let Err(violation) = reading.skip(epoch, from, to) {
            panic!("{}: {violation}", person.name);
        }
    }

    /// The network calms down, everybody reads, and who is away comes back.
    fn settle(&mut self) {
        let calm = Faults {
            partial_write_chance: 0.0,
            reset_chance: 0.0,
            piece_bytes: 1..=100_000,
            pipe_bytes: 1 << 20,
            ..self.driver.network().faults().clone()
        };
        self.driver.network().set_faults(calm);
        for index in 0..self.people.len() {
            self.with_end(index, |end| end.stall(false));
        }
        // Whoever lagged too far when the calm came may be cut off still.
        for _ in 0..20 {
            self.pass(20_000);
            self.come_back();
            self.pass(20_000);
            if self.people.iter().all(|person| person.connection.is_some()) {
                return;
            }
        }
        panic!("connections end though nothing happens");
    }

    /// Everybody has a connection and the topics that the end is checked by.
    fn come_back(&mut self) {
        for index in 0..self.people.len() {
            if self.people[index].connection.is_none() {
                self.connect(index);
            }
            if index != STEWARD {
                self.people[index].subscribe("room.a", "disconnect");
                self.people[index].subscribe("long.a", "disconnect");
            }
        }
    }

    fn check_end(&mut self) {
        let newest = self.people.iter().filter_map(|person| {
            let reading = person.readings.get("long.a")?;
            assert!(reading.has_caught_up(), "{}: {reading:?}", person.name);
            Some(reading.at().clone())
        });
        let newest: BTreeSet<_> = newest.map(|place| (place.epoch, place.offset)).collect();
        assert!(
            newest.len() <= 1,
            "all have come to the same place: {newest:?}"
        );
        self.check_presence();
        self.check_jobs();
        for index in 0..self.people.len() {
            self.with_end(index, |end| end.close());
            self.people[index].forget_connection();
        }
        if let Some(intruder) = &mut self.intruder {
            intruder.leave();
        }
        self.pass(60_000);
        let counters = self.handle.counters();
        assert_eq!(counters.connections_open, 0);
        assert_eq!((counters.topics, counters.subscriptions), (0, 0));
        assert_eq!(
            self.handle.presence("room.a", 10).expect("no broker").users,
            0
        );
    }

    /// Everybody who is on the topic is named, and nobody else.
    fn check_presence(&mut self) {
        let ask = json!({"t": "presence_request", "p": {"topics": ["room.a"]}});
        let Some(asker) = self.people.iter().position(|person| person.id.is_some()) else {
            return;
        };
        self.people[asker].say(&ask);
        self.pass(5_000);
        let Some(answer) = self.people[asker].presence.take() else {
            panic!("no answer to a presence_request");
        };
        let members = answer["topics"]["room.a"]["members"].as_object();
        let told: BTreeSet<String> = members.expect("members").keys().cloned().collect();
        let there = self
            .people
            .iter()
            .filter(|person| person.connection.is_some() && person.subscribed.contains("room.a"));
        let there: BTreeSet<String> = there.filter_map(|person| person.id.clone()).collect();
        assert_eq!(told, there);
        self.outcome.presence_checks += 1;
    }

    /// Work that the server has taken is done by somebody.
    fn check_jobs(&mut self) {
        for _ in 0..200 {
            if self.jobs.is_subset(&self.done) {
                return;
            }
            self.pass(200);
        }
        let left: Vec<_> = self.jobs.difference(&self.done).collect();
        panic!("jobs that nobody got: {left:?}");
    }
}

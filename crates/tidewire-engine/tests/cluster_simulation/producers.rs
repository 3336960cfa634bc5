//! A producer that moves between three servers: its messages are accepted once and in turn, and no server forgets what
//! another one has acknowledged.

use super::world::{Fate, World, each_seed, world};
use crate::common::simulated::SimulatedClient;
use rand::Rng;
use serde_json::{Value, json};
use tidewire_net::Handler;
use tidewire_testkit::websocket::Said;

/// The client's side of a producer.
struct Producer {
    client: SimulatedClient,
    /// The epoch that the first hello named.
    epoch: Option<Value>,
    /// The server has said where the producer stands.
    is_open: bool,
    /// The connection is of no more use.
    is_over: bool,
    /// All up to here are acknowledged.
    acknowledged: u64,
    /// How many messages there are.
    made: u64,
    /// Its connections so far.
    attempts: u64,
}

impl Producer {
    fn new(client: SimulatedClient) -> Self {
        let mut producer = Self {
            client,
            epoch: None,
            is_open: false,
            is_over: false,
            acknowledged: 0,
            made: 0,
            attempts: 0,
        };
        producer.greet();
        producer
    }

    fn greet(&mut self) {
        self.attempts += 1;
        let producer = json!({"id": "p", "instance": "00c0ffee00c0ffee", "attempt": self.attempts});
        let hello = json!({"t": "client_hello", "p": {"producer": producer}});
        self.client.send(&hello);
    }

    /// Goes on with another connection.
    fn move_to(&mut self, client: SimulatedClient) {
        self.client.end.reset();
        self.client = client;
        (self.is_open, self.is_over) = (false, false);
        self.greet();
    }

    /// Makes another message, and sends it if the server has said where it goes on.
    fn make(&mut self) {
        self.made += 1;
        if self.is_open {
            self.send(self.made);
        }
    }

    /// Every third is for the application, the others are publications to two topics, which may be in two partitions.
    fn send(&self, number: u64) {
        let topic = TOPICS[(number % 2) as usize];
        let publication = json!({"topic": topic, "type": "x", "payload": {"n": number}});
        let message = match is_publication(number) {
            true => json!({"t": "publish_request", "n": number, "p": publication}),
            false => json!({"t": "note", "n": number, "p": {}}),
        };
        self.client.send(&message);
    }

    fn read(&mut self) {
        for said in self.client.receive() {
            let Said::Text(text) = said else {
                self.is_over = true;
                continue;
            };
            let message: Value = serde_json::from_str(&text).expect("JSON");
            match message["t"].as_str() {
                Some("server_hello") => self.open(&message["p"]["producer"]),
                Some("message_ack") => {
                    let last = message["p"]["last"].as_u64().expect("a number");
                    assert!((self.acknowledged..=self.made).contains(&last), "{message}");
                    self.acknowledged = last;
                }
                Some("error") => {
                    let code = message["p"]["code"].as_str().expect("a code");
                    let expected = ["BROKER_UNAVAILABLE", "PUBLISH_UNKNOWN"];
                    assert!(expected.contains(&code) || self.is_over, "{message}");
                    // What follows on this connection has a gap.
                    self.is_over = true;
                }
                _ => {}
            }
        }
        self.is_over |= self.client.end.ended().is_some();
    }

    fn open(&mut self, place: &Value) {
        let epoch = self.epoch.get_or_insert_with(|| place["epoch"].clone());
        assert_eq!(*epoch, place["epoch"], "the producer was forgotten");
        let last = place["last"].as_u64().expect("a number");
        let possible = self.acknowledged..=self.made;
        assert!(possible.contains(&last), "{possible:?} and not {last}");
        self.acknowledged = last;
        self.is_open = true;
        for number in last + 1..=self.made {
            self.send(number);
        }
    }
}

fn is_publication(number: u64) -> bool {
    !number.is_multiple_of(3)
}

const TOPICS: [&str; 2] = ["h.a", "h.b"];

/// Who sees what is published, on the server that never dies.
struct Follower {
    client: SimulatedClient,
    /// Of each topic.
    numbers: [Vec<u64>; 2],
}

impl Follower {
    fn read(&mut self) {
        for message in self.client.receive_json() {
            match message["t"].as_str() {
                Some("x") => {
                    let topic = TOPICS.iter().position(|topic| message["tp"] == *topic);
                    self.numbers[topic.expect("a topic")].extend(message["p"]["n"].as_u64());
                }
                Some("publication_gap") => panic!("{message}"),
                _ => {}
            }
        }
    }
}

#[test]
fn a_producer_of_three_servers_loses_and_repeats_nothing() {
    let fates = [Fate::Nothing, Fate::Resets, Fate::Restarts];
    each_seed(&fates, run);
}

fn run(seed: u64, fate: Fate) {
    let mut world = world(seed, fate);
    let mut follower = Follower {
        client: world.connect(0),
        numbers: Default::default(),
    };
    world.run(500);
    let payload = json!({"action": "subscribe", "topics": TOPICS});
    let subscribe = json!({"t": "subscription_update", "p": payload});
    follower.client.send(&subscribe);
    world.run(1_000);
    let mut producer = Producer::new(world.connect(1));
    for step in 0..100 {
        match world.random.random_range(0..20) {
            0..11 => {
                for _ in 0..world.random.random_range(1..8) {
                    producer.make();
                }
            }
            11..14 => move_somewhere(&mut world, &mut producer),
            14 if step > 50 && world.dead.is_none() && seed.is_multiple_of(4) => {
                let dead = world.random.random_range(1..3);
                world.kill(dead);
                move_somewhere(&mut world, &mut producer);
            }
            15 | 16 if fate != Fate::Nothing => world.cut(),
            17 if fate == Fate::Restarts => world.restart(fate),
            _ => {}
        }
        let ms = world.random.random_range(1..60);
        world.run(ms);
        follower.read();
        producer.read();
        if producer.is_over {
            move_somewhere(&mut world, &mut producer);
        }
    }
    // Everything is there again.
    for _ in 0..10 {
        world.run(3_000);
        producer.read();
        if producer.is_over {
            move_somewhere(&mut world, &mut producer);
        }
    }
    follower.read();
    assert_eq!(producer.acknowledged, producer.made);
    for (topic, numbers) in (0..).zip(&follower.numbers) {
        let expected = (1..=producer.made)
            .filter(|number| is_publication(*number) && number % 2 == topic)
            .collect::<Vec<_>>();
        assert_eq!(*numbers, expected);
    }
}

/// Goes on at a server that lives. The hello of the connection before may still be on its way.
fn move_somewhere<H: Handler>(world: &mut World<H>, producer: &mut Producer) {
    let dead = world.dead;
    let living: Vec<usize> = (0..3).filter(|node| dead != Some(*node)).collect();
    let node = living[world.random.random_range(0..living.len())];
    let client = world.connect(node);
    producer.move_to(client);
}

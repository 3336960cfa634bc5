//! A server in virtual time with much for hostile messages to ask for, and the network around it.

use super::hostile::{update, worst_filter};
use super::simulated::{SimulatedClient, serve};
use super::topics::open_topics;
use super::{SECRET, token};
use memchr::memmem;
use serde_json::{Value, json};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use tidewire_engine::apps::Sink;
use tidewire_engine::auth::{AuthConfig, KeyMaterial};
use tidewire_engine::{Config, Handle, HistoryLimits, NewPublication, TopicRule};
use tidewire_net::Handler;
use tidewire_testkit::simulation::Driver;
use tidewire_wire::frame::OpCode;

pub const TOPICS_MAX: usize = 1_000;

pub fn config() -> Config {
    let mut config = Config {
        shards: 1,
        auth: Some(AuthConfig::new(KeyMaterial::Hs256(SECRET.to_vec()))),
        ..open_topics()
    };
    config.topics.access_claim = Some("access".to_owned());
    let history = HistoryLimits {
        publications_max: 1_000,
        bytes_max: 16 << 20,
        age_max_ms: 0,
    };
    config.topics.rules = vec![
        TopicRule {
            history: Some(history),
            last_value: true,
            presence: true,
            ..TopicRule::new("kept.>")
        },
        TopicRule {
            presence: true,
            ..TopicRule::new("present.>")
        },
    ];
    config
}

/// A server with a long history, many present users, and subscribers with costly filters, and the network around it.
pub struct World<H: Handler> {
    pub driver: Driver<H>,
    pub handle: Handle,
    pub others: Vec<SimulatedClient>,
    /// Bytes that they have received.
    pub others_bytes: u64,
    pub now_ms: u64,
}

pub fn empty_world(config: Config) -> World<impl Handler> {
    let (driver, handle) = serve(config, |_| Sink);
    World {
        driver,
        handle,
        others: Vec::new(),
        others_bytes: 0,
        now_ms: 0,
    }
}

pub fn world() -> World<impl Handler> {
    let mut world = empty_world(config());
    let text = "a".repeat(4_000);
    for number in 0..1_000 {
        world.keep("kept.long", &json!({"text": text, "n": number}));
    }
    for topic in 0..TOPICS_MAX {
        world.keep(&format!("kept.{topic}"), &json!({"n": 0}));
    }
    for number in 0..20 {
        let client = world.open();
        let topics: Vec<String> = (0..10).map(|topic| format!("present.{topic}")).collect();
        let data = json!({"says": "x".repeat(4_000)});
        client.send(&update(json!({"topics": topics, "presence": data})));
        let mut filter = worst_filter();
        filter["n"] = json!({"$ne": number});
        client.send(&update(json!({"topics": ["public"], "filter": filter})));
        world.others.push(client);
    }
    while world.handle.counters().subscriptions < 20 * 11 {
        world.go_on(|| ());
    }
    world.go_on(|| ());
    world
}

/// A short history, and subscribers who have to carry what others publish and read who is present.
pub fn small_world() -> World<impl Handler> {
    let mut world = empty_world(config());
    let text = "a".repeat(1_000);
    for number in 0..50 {
        world.keep("kept.long", &json!({"text": text, "n": number}));
    }
    for number in 0..3 {
        let client = world.open_as(&format!("other-{number}"));
        let topics = ["present.0", "present.1", "lobby", "orders.eu", ">"];
        client.send(&update(
            json!({"topics": topics, "presence": {"n": number}}),
        ));
        world.others.push(client);
    }
    for _ in 0..10 {
        world.go_on(|| ());
    }
    // What is made once is not the cost of the first message.
    drop(world.play(&json!({"t": "ping"})));
    world
}

impl<H: Handler> World<H> {
    pub fn keep(&self, topic: &str, payload: &Value) {
        let publication = NewPublication::new("entry", payload.to_string());
        self.handle.publish(topic, &publication).expect("room");
    }

    /// A connection of the one user.
    pub fn open(&mut self) -> SimulatedClient {
        self.open_as("user-1")
    }

    pub fn open_as(&mut self, user: &str) -> SimulatedClient {
        let number = self.others.len() as u8 + 1;
        let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, number)), 40_000);
        let bearer = format!("Bearer {}", token(json!({"sub": user})));
        let end = self.driver.network().connect_from(0, address);
        SimulatedClient::open(end, &[("Authorization", &bearer)])
    }

    /// A millisecond goes by, in which everyone reads what has come, turn by turn.
    pub fn go_on(&mut self, mut read: impl FnMut()) {
        self.now_ms += 1;
        assert!(self.now_ms < 600_000, "in vain");
        let now_ms = self.now_ms;
        while self
            .driver
            .next_due_ms()
            .is_some_and(|due_ms| due_ms <= now_ms)
        {
            self.driver.step();
            for other in &self.others {
                self.others_bytes += other.end.receive().len() as u64;
            }
            read();
        }
        self.driver.run_until(self.now_ms);
    }

    /// Sends a message on a connection of its own and reads what comes, until the server has done all of it: it answers
    /// the question behind it, or has closed the connection.
    pub fn play(&mut self, message: &Value) -> SimulatedClient {
        self.play_frame(OpCode::Text, message.to_string().as_bytes())
    }

    /// [`Self::play`] for a message in any form.
    pub fn play_frame(&mut self, opcode: OpCode, message: &[u8]) -> SimulatedClient {
        let mut client = self.open();
        self.go_on(|| ());
        drop(client.receive());
        client.send_frame(opcode, message);
        client.send(&json!({"t": "presence_request", "cid": "end", "p": {"topics": ["x"]}}));
        let (mut is_done, mut received) = (false, Vec::new());
        while !is_done {
            self.go_on(|| {
                received.extend(client.end.receive());
                is_done |= memmem::find(&received, END).is_some() || client.end.ended().is_some();
                received.drain(..received.len().saturating_sub(END.len()));
            });
        }
        client
    }
}

/// In the error before the close of a connection with too many errors.
pub const DISCONNECTED: &[u8] = b"CIRCUIT_BREAKER_OPEN";

/// In the answer to the question at the end.
pub const END: &[u8] = br#""cid":"end""#;

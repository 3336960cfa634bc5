//! A server in virtual time with much for hostile messages to ask for, and the network around it.

use super::hostile::{update, worst_filter};
use super::simulated::{SimulatedClient, serve, serve_late};
use super::topics::open_topics;
use super::{SECRET, token};
use memchr::memmem;
use serde_json::{Value, json};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use tidewire_engine::apps::Sink;
use tidewire_engine::auth::{AuthConfig, KeyMaterial};
use tidewire_engine::simulation::LateAnswers;
use tidewire_engine::{
    Application, Config, Encryption, Handle, HistoryLimits, NewPublication, TopicRule,
};
use tidewire_net::Handler;
use tidewire_testkit::search::Candidate;
use tidewire_testkit::simulation::Driver;
use tidewire_testkit::websocket::Said;
use tidewire_wire::format::Format;
use tidewire_wire::frame::OpCode;
use tidewire_wire::secure::{ExchangeKeyPair, SessionCipher};
use tidewire_wire::session::{
    ClientEvent, ClientHello, ClientSession, EncryptionVersion, Features, Now,
};
use tidewire_wire::uuid::Uuid;

pub const TOPICS_MAX: usize = 1_000;

pub fn config() -> Config {
    let mut config = Config {
        shards: 1,
        auth: Some(AuthConfig::new(KeyMaterial::Hs256(SECRET.to_vec()))),
        encryption: Encryption::Optional,
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
    /// The broker behind the topics, if there is one.
    pub broker: Option<LateAnswers>,
    pub now_ms: u64,
    /// When the last message began to be played.
    pub began_ms: u64,
}

pub fn empty_world(config: Config) -> World<impl Handler> {
    world_of(config, Sink)
}

/// A server with this application.
pub fn world_of(config: Config, application: impl Application + Clone) -> World<impl Handler> {
    let (driver, handle) = serve(config, move |_| application.clone());
    World {
        driver,
        handle,
        others: Vec::new(),
        others_bytes: 0,
        broker: None,
        now_ms: 0,
        began_ms: 0,
    }
}

/// A server with a broker that answers at once, whose questions are counted.
pub fn broker_world() -> World<impl Handler> {
    let (driver, handle, broker) = serve_late(config(), |_| Sink, 1);
    World {
        driver,
        handle,
        others: Vec::new(),
        others_bytes: 0,
        broker: Some(broker),
        now_ms: 0,
        began_ms: 0,
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
        assert!(self.now_ms - self.began_ms < 600_000, "in vain");
        let now_ms = self.now_ms;
        while self
            .driver
            .next_due_ms()
            .is_some_and(|due_ms| due_ms <= now_ms)
        {
            self.driver.step();
            if let Some(broker) = &mut self.broker {
                broker.settle();
            }
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

    /// [`Self::play_form`] of what was searched, of about this many bytes.
    pub fn play_candidate(&mut self, candidate: &Candidate, bytes_max: usize) -> SimulatedClient {
        let (opcode, message) = candidate.encode(bytes_max);
        self.play_form(candidate.is_encrypted, opcode, &message)
    }

    /// [`Self::play_frame`] for a message that may be encrypted.
    pub fn play_form(
        &mut self,
        is_encrypted: bool,
        opcode: OpCode,
        message: &[u8],
    ) -> SimulatedClient {
        self.began_ms = self.now_ms;
        match is_encrypted {
            true => self.play_encrypted(message),
            false => self.play_frame(opcode, message),
        }
    }

    fn play_encrypted(&mut self, message: &[u8]) -> SimulatedClient {
        let mut encrypted = self.open_encrypted();
        let is_zlib = message.starts_with(b"C:");
        encrypted.may_change_key = is_zlib || memmem::find(message, b"key_update").is_some();
        encrypted.send(message);
        encrypted.send(END_QUESTION);
        let mut is_done = false;
        while !is_done {
            self.go_on(|| is_done |= encrypted.has_end() || encrypted.client.end.ended().is_some());
        }
        encrypted.client
    }

    fn open_encrypted(&mut self) -> Encrypted {
        let mut client = self.open();
        let mut session = ClientSession::new(Format::Json, Now::default());
        let pair = ExchangeKeyPair::from_seed(&[7; 32]).expect("a seed");
        let hello = ClientHello {
            client_version: "test",
            features: Features::default(),
            encryption: Some(pair.offer(EncryptionVersion::Two)),
            producer: None,
        };
        let mut text = Vec::new();
        session.write_hello(&hello, Uuid::default(), Now::default(), &mut text);
        client.send_frame(OpCode::Text, &text);
        loop {
            self.go_on(|| ());
            for said in client.receive_json() {
                let said = said.to_string();
                let event = session.handle_message(Format::Json, said.as_bytes(), Now::default());
                if let Ok(ClientEvent::Established {
                    encryption: Some(encryption),
                    connection_id,
                    ..
                }) = event
                {
                    let version = EncryptionVersion::Two;
                    let cipher = pair.finish(version, &encryption, &connection_id, None, [0; 4]);
                    let cipher = cipher.expect("a key");
                    return Encrypted {
                        client,
                        cipher,
                        may_change_key: false,
                    };
                }
            }
        }
    }

    /// [`Self::play`] for a message in any form.
    pub fn play_frame(&mut self, opcode: OpCode, message: &[u8]) -> SimulatedClient {
        let mut client = self.open();
        self.go_on(|| ());
        drop(client.receive());
        client.send_frame(opcode, message);
        client.send_frame(OpCode::Text, END_QUESTION);
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

/// A client that has agreed on a key.
struct Encrypted {
    client: SimulatedClient,
    cipher: SessionCipher,
    /// It may ask for another key, with which it cannot read the rest.
    may_change_key: bool,
}

impl Encrypted {
    fn send(&mut self, plain: &[u8]) {
        let mut sealed = Vec::new();
        self.cipher.seal(plain, &mut sealed).expect("a key");
        self.client.send_frame(OpCode::Binary, &sealed);
    }

    /// Whether the answer to the question at the end has come.
    fn has_end(&mut self) -> bool {
        let mut is_end = false;
        for said in self.client.receive() {
            let Said::Binary(sealed) = said else { continue };
            let mut plain = Vec::new();
            let opened = self.cipher.open(&sealed, &mut plain);
            assert!(opened.is_ok() || self.may_change_key, "{opened:?}");
            is_end |= opened.is_err() || memmem::find(&plain, END).is_some();
        }
        is_end
    }
}

/// In the error before the close of a connection with too many errors.
pub const DISCONNECTED: &[u8] = b"CIRCUIT_BREAKER_OPEN";

/// The question at the end.
const END_QUESTION: &[u8] = br#"{"t":"presence_request","cid":"end","p":{"topics":["x"]}}"#;

/// In the answer to it.
pub const END: &[u8] = br#""cid":"end""#;

//! A server with an application that remembers what it got, and a client's events as they are waited for.

use std::ops::Deref;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tidewire_client::{Client, Config, Event, Events};
use tidewire_engine::{
    AccessRules, Application, Call, CallError, Config as ServerConfig, ConnectionKey, Content,
    Context, HistoryLimits, Message, NewPublication, Peer, Responder, Server, TopicRule, Topics,
};

/// Past it a test has failed; nothing waits that long when it works.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// The events of the application, in order.
#[derive(Clone, Default)]
pub(crate) struct Recorder {
    pub(crate) messages: Arc<Mutex<Vec<String>>>,
    pub(crate) peers: Arc<Mutex<Vec<ConnectionKey>>>,
}

impl Application for Recorder {
    fn on_connect(&mut self, _: &mut Context<'_>, peer: &Peer) {
        self.peers
            .lock()
            .expect("no test panicked with it")
            .push(peer.connection);
    }

    fn on_message(&mut self, context: &mut Context<'_>, message: Message<'_>) {
        let text = match message.encoding {
            tidewire_engine::Encoding::MessagePack => {
                let mut text = Vec::new();
                tidewire_wire::format::msgpack_to_json(message.bytes, &mut text)
                    .expect("the engine passes on what it has checked");
                text
            }
            _ => message.bytes.to_vec(),
        };
        let text = String::from_utf8(text).expect("JSON is UTF-8");
        if text.contains("\"echo\"") {
            context.send(message);
        }
        self.messages
            .lock()
            .expect("no test panicked with it")
            .push(text);
    }

    fn on_call(&mut self, context: &mut Context<'_>, call: Call<'_>, responder: Responder) {
        match call.t {
            "double" => {
                let number: u64 = call.payload.parse().unwrap_or_default();
                context.respond(&responder, Ok((2 * number).to_string()));
            }
            "mirror" => {
                let answer = match call.bytes() {
                    Some(bytes) => Content::binary(bytes),
                    None => Content::from(call.payload),
                };
                context.respond_with(&responder, Ok(answer));
            }
            "silence" => std::mem::forget(responder),
            other => {
                let error = CallError {
                    code: "NO_CLUE".into(),
                    message: other.into(),
                };
                context.respond(&responder, Err(error));
            }
        }
    }
}

impl Recorder {
    pub(crate) fn texts(&self) -> Vec<String> {
        self.messages
            .lock()
            .expect("no test panicked with it")
            .clone()
    }

    /// The numbers in the payloads of the messages, in their order.
    pub(crate) fn numbers(&self) -> Vec<u64> {
        let number = |text: &String| {
            let value: serde_json::Value =
                serde_json::from_str(text).expect("the client sends JSON");
            value["p"].as_u64()
        };
        self.texts().iter().filter_map(number).collect()
    }
}

/// Everyone may everything, topics called `kept.*` have history, those called `seen.*` presence.
pub(crate) fn server_config() -> ServerConfig {
    let mut kept = TopicRule::new("kept.*");
    kept.history = Some(HistoryLimits {
        publications_max: 1_000,
        bytes_max: 1 << 20,
        age_max_ms: 0,
    });
    let mut seen = TopicRule::new("seen.*");
    seen.presence = true;
    ServerConfig {
        listen: tidewire_testkit::ports::free_address(),
        shards: 1,
        topics: Topics {
            access: AccessRules::open(),
            rules: vec![kept, seen],
            ..Topics::default()
        },
        ..ServerConfig::default()
    }
}

/// A server that stops on another thread, because the clients of a test have to answer meanwhile: without their
/// answers the end of a connection takes seconds.
pub(crate) struct TestServer(Option<Server>);

impl TestServer {
    pub(crate) fn start<A: Application>(
        config: ServerConfig,
        mut application: impl FnMut() -> A,
    ) -> Self {
        let server = Server::start(config, |_| application());
        Self(Some(server.expect("a free port")))
    }

    /// The server itself, for a test that ends it in another way.
    pub(crate) fn into_inner(mut self) -> Server {
        self.0.take().expect("it is there until it stops")
    }

    /// Returns when the server has stopped.
    pub(crate) async fn stop(mut self) {
        let server = self.0.take();
        let stopping = tokio::task::spawn_blocking(move || drop(server));
        stopping.await.expect("a server that stops");
    }
}

impl Deref for TestServer {
    type Target = Server;

    fn deref(&self) -> &Server {
        self.0.as_ref().expect("it is there until it stops")
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        if let Some(server) = self.0.take() {
            std::thread::spawn(move || drop(server));
        }
    }
}

pub(crate) fn start(config: ServerConfig) -> (TestServer, Recorder) {
    let recorder = Recorder::default();
    let application = recorder.clone();
    let server = TestServer::start(config, || application.clone());
    (server, recorder)
}

pub(crate) fn url(server: &Server) -> String {
    format!("ws://{}/ws", server.address())
}

/// Comes back fast.
pub(crate) fn config(url: String) -> Config {
    let mut config = Config::new(url);
    if let Some(reconnect) = &mut config.reconnect {
        reconnect.base = Duration::from_millis(20);
        reconnect.max = Duration::from_millis(100);
    }
    config.breaker.failures_max = 0;
    config
}

pub(crate) async fn connect(server: &Server) -> (Client, Events) {
    connect_with(config(url(server))).await
}

pub(crate) async fn connect_with(config: Config) -> (Client, Events) {
    let client = Client::connect(config).await.expect("the server is there");
    let mut events = client.events();
    let first = next(&mut events).await;
    assert!(matches!(first, Event::Connected(_)), "{first:?}");
    (client, events)
}

pub(crate) async fn next(events: &mut Events) -> Event {
    let next = tokio::time::timeout(DEADLINE, events.next()).await;
    next.expect("an event in time").expect("the client is open")
}

/// The first event that `wanted` makes something of; others are passed over.
pub(crate) async fn find<T>(events: &mut Events, mut wanted: impl FnMut(Event) -> Option<T>) -> T {
    loop {
        if let Some(found) = wanted(next(events).await) {
            return found;
        }
    }
}

/// The payload of the next message.
pub(crate) async fn payload(events: &mut Events) -> String {
    let wanted = |event| match event {
        Event::Message(message) => Some(
            String::from_utf8(message.payload().expect("a payload").into_owned())
                .expect("JSON is UTF-8"),
        ),
        _ => None,
    };
    find(events, wanted).await
}

/// The payloads of the next messages, which are numbers.
pub(crate) async fn payloads(events: &mut Events, count: usize) -> Vec<u64> {
    let mut numbers = Vec::new();
    for _ in 0..count {
        numbers.push(payload(events).await.parse().expect("a number"));
    }
    numbers
}

pub(crate) fn publish(server: &Server, topic: &str, number: u64) {
    let payload = number.to_string();
    let publication = NewPublication::new("count", &payload);
    server
        .handle()
        .publish(topic, &publication)
        .expect("there is room");
}

/// Waits until `condition` holds.
pub(crate) async fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + DEADLINE;
    while !condition() {
        assert!(tokio::time::Instant::now() < deadline, "in vain: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

//! A session without a socket, on clocks of the test's own.

use super::Session;
use crate::clock::Moment;
use crate::command::Command;
use crate::config::{Config, Queue};
use crate::error::Error;
use crate::event::{BatchBuilder, Event};
use crate::outbox::{Burst, Outbox};
use crate::payload::Payload;
use crate::priority_queue::Priority;
use crate::request::{Publication, SubscribeOptions, Subscribed, TopicTokens};
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tidewire_wire::frame::{OpCode, Role, write_frame};
use tidewire_wire::message::{Event as WireEvent, Input, MessageReader};
use tidewire_wire::session::Now;
use tokio::sync::oneshot;

mod granted;

/// A session and its surroundings.
struct Bench {
    session: Session,
    outbox: Arc<Outbox>,
    burst: Burst,
    moment: Moment,
    events: Vec<Event>,
}

impl Bench {
    fn new(config: Config) -> Self {
        let outbox = Arc::new(Outbox::new(1 << 20));
        let random = StdRng::seed_from_u64(1);
        let mut bench = Self {
            session: Session::new(Arc::new(config), outbox.clone(), random),
            outbox,
            burst: Burst::default(),
            moment: Moment::default(),
            events: Vec::new(),
        };
        bench.pass(1_000);
        bench
    }

    /// Up to an established session.
    fn established(config: Config, limits: Value) -> Self {
        let mut bench = Self::new(config);
        bench.connect(limits);
        bench
    }

    fn connect(&mut self, limits: Value) {
        self.session
            .handle_connected("ws://a".to_owned(), None, self.moment)
            .unwrap();
        let hello = self.receive(json!({"t": "server_ready", "p": {"details": {"user_id": "u"}}}));
        assert_eq!(hello[0]["t"], "client_hello");
        self.receive(json!({"t": "server_hello", "p": {"connection_id": "c", "limits": limits}}));
        assert!(self.session.is_established());
    }

    /// Time passes, on both clocks.
    fn pass(&mut self, ms: u64) {
        let Now {
            monotonic_ms,
            unix_ms,
        } = self.moment.now;
        let now = Now {
            monotonic_ms: monotonic_ms + ms,
            unix_ms: unix_ms + ms,
        };
        self.moment = Moment {
            now,
            us: self.moment.us + ms * 1_000,
        };
    }

    /// The server sends a message; the client's answers to it.
    fn receive(&mut self, message: Value) -> Vec<Value> {
        let mut frame = Vec::new();
        write_frame(
            &mut frame,
            OpCode::Text,
            message.to_string().as_bytes(),
            None,
        );
        let mut reader = MessageReader::new(Role::Client, 1 << 20);
        let mut input = Input::new(&mut frame);
        let event = reader.read(&mut input).unwrap().unwrap();
        let (mut out, mut batch) = (Vec::new(), BatchBuilder::new(self.session.serial()));
        self.session.handle_heard(self.moment);
        self.session
            .handle_event(event, self.moment, &mut out, &mut batch)
            .unwrap();
        self.events.extend(batch.finish());
        said(&mut out)
    }

    /// The client's report of the messages that wait in the outbox.
    fn flush(&mut self) -> Vec<Value> {
        if self.burst.is_empty() {
            self.outbox.take(&mut self.burst);
        }
        let (mut out, mut batch) = (Vec::new(), BatchBuilder::new(1));
        let burst = &mut self.burst;
        self.session
            .handle_burst(burst, 1 << 20, self.moment, &mut out, &mut batch)
            .unwrap();
        self.events.extend(batch.finish());
        said(&mut out)
    }

    fn timeout(&mut self) -> Result<Vec<Value>, String> {
        let (mut out, mut batch) = (Vec::new(), BatchBuilder::new(1));
        let done = self
            .session
            .handle_timeout(self.moment, &mut out, &mut batch);
        self.events.extend(batch.finish());
        done.map(|()| said(&mut out))
            .map_err(|ending| ending.reason)
    }

    fn subscribe(&mut self, topic: &str) -> oneshot::Receiver<Result<Subscribed, Error>> {
        let (reply, answer) = oneshot::channel();
        let topics = vec![topic.to_owned()];
        let options = Arc::new(SubscribeOptions::default());
        let command = Command::Subscribe {
            topics,
            options,
            reply,
        };
        self.outbox.try_command(Box::new(command)).unwrap();
        let asked = self.flush();
        self.answer(&asked[0], json!({"a": {"epoch": "00000007", "offset": 0}}));
        answer
    }

    /// The server grants a request of the client's.
    fn answer(&mut self, request: &Value, recovery: Value) -> Vec<Value> {
        let payload = json!({
            "action": request["p"]["action"],
            "success_topics": request["p"]["topics"],
            "failed_topics": [],
            "recovery": recovery,
        });
        self.receive(json!({"t": "subscription_update", "cid": request["cid"], "p": payload}))
    }

    fn publication(&mut self, offset: u64) -> Vec<Value> {
        self.receive(json!({"t": "n", "tp": "a", "e": "00000007", "o": offset, "p": offset}))
    }

    /// The payloads of the messages so far.
    fn payloads(&mut self) -> Vec<u64> {
        let payload = |event: &Event| match event {
            Event::Message(message) => serde_json::from_slice(&message.payload().unwrap()).ok(),
            _ => None,
        };
        self.events.iter().filter_map(payload).collect()
    }
}

/// The messages in the frames of a client.
fn said(out: &mut [u8]) -> Vec<Value> {
    let mut reader = MessageReader::new(Role::Server, 1 << 20);
    let mut input = Input::new(out);
    let mut messages = Vec::new();
    while let Some(event) = reader.read(&mut input).unwrap() {
        if let WireEvent::Text(text) = event {
            messages.push(serde_json::from_slice(text.as_bytes()).unwrap());
        }
    }
    messages
}

fn plain() -> Config {
    Config::new("ws://a")
}

#[test]
fn nothing_is_sent_before_the_session_is_established() {
    let mut bench = Bench::new(plain());
    bench
        .session
        .handle_connected("ws://a".to_owned(), None, bench.moment)
        .unwrap();
    assert!(!bench.session.is_established());
    assert!(!bench.session.is_accepted());
    for _ in 0..2 {
        bench.receive(json!({"t": "server_ready", "p": {}}));
        assert!(bench.session.is_accepted() && !bench.session.is_established());
        assert!(matches!(bench.events[..], [Event::Connected(_)]));
    }
    bench.receive(json!({"t": "server_hello", "p": {}}));
    assert!(bench.session.is_established());
    // A second hello changes nothing.
    bench.receive(json!({"t": "server_hello", "p": {}}));
    assert_eq!((bench.events.len(), bench.session.serial()), (1, 1));
}

#[test]
fn a_gap_is_asked_for_once_and_closed() {
    let mut bench = Bench::established(plain(), json!({}));
    let answer = bench.subscribe("a");
    assert_eq!(answer.blocking_recv().unwrap().unwrap().topics, ["a"]);
    assert!(bench.publication(1).is_empty());
    let asked = bench.publication(4);
    let actions: Vec<_> = asked
        .iter()
        .map(|request| &request["p"]["action"])
        .collect();
    assert_eq!(actions, ["unsubscribe", "subscribe"]);
    assert_eq!(
        asked[1]["p"]["recovery"]["a"],
        json!({"epoch": "00000007", "offset": 1})
    );
    assert!(bench.publication(6).is_empty(), "it has been asked for");
    bench.answer(&asked[0], json!({}));
    let standing = json!({"epoch": "00000007", "offset": 6, "recovered": true, "count": 5});
    bench.answer(&asked[1], json!({"a": standing}));
    for offset in 2..=6 {
        bench.publication(offset);
    }
    assert_eq!(bench.payloads(), [1, 2, 3, 4, 5, 6]);
    assert!(
        !bench
            .events
            .iter()
            .any(|event| matches!(event, Event::Gap(_)))
    );
}

#[test]
fn a_gap_that_cannot_be_closed_is_told() {
    let mut bench = Bench::established(plain(), json!({}));
    drop(bench.subscribe("a"));
    bench.publication(1);
    let asked = bench.publication(4);
    bench.answer(&asked[0], json!({}));
    let standing = json!({"epoch": "00000007", "offset": 4, "recovered": false, "count": 0});
    bench.answer(&asked[1], json!({"a": standing}));
    bench.publication(5);
    assert_eq!(bench.payloads(), [1, 4, 5]);
    let told: Vec<_> = bench
        .events
        .iter()
        .filter_map(|event| match event {
            Event::Gap(gap) => gap.range,
            _ => None,
        })
        .collect();
    assert_eq!(told, [(7, 2, 3)]);
    assert!(
        bench
            .events
            .iter()
            .any(|event| matches!(event, Event::Unrecovered(_)))
    );
}

#[test]
fn what_the_server_dropped_is_not_waited_for() {
    let mut bench = Bench::established(plain(), json!({}));
    drop(bench.subscribe("a"));
    bench.publication(1);
    let gap = json!({"topic": "a", "reason": "dropped", "count": 2, "epoch": "00000007", "from": 2, "to": 3});
    bench.receive(json!({"t": "publication_gap", "p": gap}));
    assert!(bench.publication(4).is_empty());
    assert_eq!(bench.payloads(), [1, 4]);
}

#[test]
fn silence_counts_by_the_steady_clock_whatever_the_other_does() {
    let mut bench = Bench::established(plain(), json!({}));
    // The time of day jumps a day ahead, and then back to 1970.
    for unix_ms in [86_400_000, 0] {
        bench.moment.now.unix_ms = unix_ms;
        assert_eq!(bench.timeout(), Ok(Vec::new()));
    }
    bench.pass(25_000);
    let pings = bench.timeout().unwrap();
    assert_eq!(pings[0]["t"], "ping");
    bench.moment.now.unix_ms = 99_999_999;
    bench.pass(40);
    bench.receive(json!({"t": "PONG", "p": {"client_timestamp": 25_000, "server_timestamp": 1}}));
    let quality = bench.session.quality(bench.moment);
    assert_eq!((quality.answered, quality.latency_ms), (1, 40.0));
    bench.pass(59_999);
    assert!(bench.timeout().is_ok());
    bench.pass(1);
    assert!(bench.timeout().unwrap_err().contains("silent"));
}

#[test]
fn the_servers_limit_is_kept_and_its_words_are_heeded() {
    let limits = json!({"rate_limit_capacity": 20, "rate_limit_refill": 10});
    let mut bench = Bench::established(plain(), limits);
    for _ in 0..40 {
        bench
            .outbox
            .try_send("n", &"1".into(), Priority::Normal)
            .unwrap();
    }
    assert_eq!(bench.flush().len(), 18, "a tenth is left for pings");
    assert!(bench.flush().is_empty());
    bench.pass(1_000);
    assert_eq!(bench.flush().len(), 9);
    let refused = json!({"code": "RATE_LIMITED", "message": "", "retry_after": 3});
    bench.receive(json!({"t": "error", "p": refused}));
    bench.pass(2_999);
    assert!(bench.flush().is_empty());
    assert_eq!(
        bench.session.next_send_ms(bench.moment),
        bench.moment.ms() + 1
    );
    bench.pass(1_000);
    assert!(!bench.flush().is_empty());
}

#[test]
fn a_server_without_binary_payloads_gets_none() {
    let mut bench = Bench::established(plain(), json!({}));
    assert!(!bench.session.takes_binary());
    let bytes = Payload::binary([0, 1, 255]);
    bench
        .outbox
        .try_send("n", &bytes, Priority::Normal)
        .unwrap();
    let (reply, mut published) = oneshot::channel();
    let publish = Command::Publish {
        publication: Publication::new("a", "n", bytes),
        reply: Some(reply),
    };
    bench.outbox.try_command(Box::new(publish)).unwrap();
    assert_eq!(bench.flush(), [] as [Value; 0]);
    let unsupported = Error::Unsupported("binary payloads");
    assert_eq!(published.try_recv(), Ok(Err(unsupported.clone())));
    let reported = bench
        .events
        .iter()
        .any(|event| matches!(event, Event::Error(error) if error.code == unsupported.code()));
    assert!(reported, "{:?}", bench.events);
    let features = json!({"features": {"binary": true}});
    bench.session.handle_disconnected();
    bench
        .session
        .handle_connected("ws://a".to_owned(), None, bench.moment)
        .unwrap();
    bench.receive(json!({"t": "server_ready", "p": {"details": features}}));
    assert!(bench.session.takes_binary());
}

#[test]
fn requests_are_made_again_and_calls_are_not() {
    let mut bench = Bench::established(plain(), json!({}));
    let (reply, mut published) = oneshot::channel();
    let mut publication = Publication::new("a", "n", "1");
    publication.id = Some("once".to_owned());
    let publish = Command::Publish {
        publication,
        reply: Some(reply),
    };
    let (reply, mut called) = oneshot::channel();
    let call = tidewire_wire::session::Call {
        t: "x".into(),
        payload: b"1".to_vec(),
        binary: false,
        timeout_ms: None,
    };
    bench.outbox.try_command(Box::new(publish)).unwrap();
    bench
        .outbox
        .try_command(Box::new(Command::Call { call, reply }))
        .unwrap();
    let first = bench.flush();
    assert_eq!(first.len(), 2);
    bench.session.handle_disconnected();
    assert_eq!(called.try_recv(), Ok(Err(Error::ConnectionLost)));
    bench
        .session
        .handle_connected("ws://a".to_owned(), None, bench.moment)
        .unwrap();
    bench.receive(json!({"t": "server_ready", "p": {}}));
    let again = bench.receive(json!({"t": "server_hello", "p": {}}));
    assert_eq!(again.len(), 1);
    assert_eq!(
        (&again[0]["p"], &again[0]["cid"]),
        (&first[0]["p"], &first[0]["cid"])
    );
    bench.receive(json!({"t": "publish_response", "cid": again[0]["cid"], "p": {"topic": "a"}}));
    assert!(!published.try_recv().unwrap().unwrap().is_duplicate);
}

#[test]
fn a_message_that_the_server_would_not_take_is_told_and_not_sent() {
    let mut bench = Bench::established(plain(), json!({"max_message_size": 100}));
    let large = format!("\"{}\"", "x".repeat(200));
    bench
        .outbox
        .try_send("n", &large.as_str().into(), Priority::Normal)
        .unwrap();
    bench
        .outbox
        .try_send("n", &"1".into(), Priority::Normal)
        .unwrap();
    assert_eq!(bench.flush().len(), 1);
    let told =
        |event: &Event| matches!(event, Event::Error(error) if error.code == "MESSAGE_TOO_LARGE");
    assert!(bench.events.iter().any(told));
}

#[test]
fn the_producer_is_named_only_with_a_queue() {
    let mut bench = Bench::new(plain());
    bench
        .session
        .handle_connected("ws://a".to_owned(), None, bench.moment)
        .unwrap();
    let hello = bench.receive(json!({"t": "server_ready", "p": {}}));
    assert!(hello[0]["p"].get("producer").is_none());
    let config = Config {
        queue: Some(Queue::default()),
        ping_interval: Some(Duration::from_secs(1)),
        ..plain()
    };
    let mut bench = Bench::new(config.clone());
    let (events, _received) = tokio::sync::mpsc::unbounded_channel();
    let queue = config.queue.unwrap_or_default();
    let store = crate::queue::handle::StoreHandle::start(&queue, "me", events).unwrap();
    bench.session.set_store(Arc::new(store));
    bench
        .session
        .handle_connected("ws://a".to_owned(), None, bench.moment)
        .unwrap();
    let hello = bench.receive(json!({"t": "server_ready", "p": {}}));
    let producer = hello[0]["p"]["producer"].clone();
    assert_eq!(
        (&producer["id"], &producer["attempt"]),
        (&json!("me"), &json!(1))
    );
    // The application learns that a server keeps no producers, and nothing is lost: it stays in the queue.
    bench.receive(json!({"t": "server_hello", "p": {}}));
    assert!(
        bench
            .events
            .iter()
            .any(|event| matches!(event, Event::QueueFailed(_)))
    );
}

#[test]
fn a_topic_whose_token_has_expired_is_subscribed_with_another() {
    let mut bench = Bench::established(plain(), json!({}));
    let number = AtomicU32::new(0);
    let tokens = TopicTokens::new(move |topic| {
        let number = number.fetch_add(1, Ordering::Relaxed);
        (number < 2).then(|| format!("{topic}-{number}"))
    });
    let (reply, _answer) = oneshot::channel();
    let options = SubscribeOptions {
        tokens: Some(tokens),
        ..SubscribeOptions::default()
    };
    let command = Command::Subscribe {
        topics: vec!["a".to_owned()],
        options: Arc::new(options),
        reply,
    };
    bench.outbox.try_command(Box::new(command)).unwrap();
    let asked = bench.flush();
    assert_eq!(asked[0]["p"]["tokens"], json!({"a": "a-0"}));
    bench.answer(&asked[0], json!({"a": {"epoch": "00000007", "offset": 3}}));
    let ended = |code: &str| {
        let failures = json!([{"topic": "a", "code": code, "message": "x"}]);
        let payload =
            json!({"action": "unsubscribe", "success_topics": ["a"], "failures": failures});
        json!({"t": "subscription_update", "p": payload})
    };
    let asked = bench.receive(ended("TOKEN_EXPIRED"));
    assert_eq!(asked[0]["p"]["tokens"], json!({"a": "a-1"}));
    let position = json!({"epoch": "00000007", "offset": 3});
    assert_eq!(
        asked[0]["p"]["recovery"]["a"], position,
        "nothing is missed"
    );
    bench.answer(&asked[0], json!({"a": position}));
    let is_lost = |event: &Event| matches!(event, Event::SubscriptionLost(_));
    assert!(!bench.events.iter().any(is_lost));
    // Another reason is none to try again.
    assert!(bench.receive(ended("TOPIC_FORBIDDEN")).is_empty());
    assert!(bench.events.iter().any(is_lost));
}

#[test]
fn topics_that_the_server_takes_away_are_told() {
    let mut bench = Bench::established(plain(), json!({}));
    let mut answer = bench.subscribe("a");
    assert!(answer.try_recv().unwrap().is_ok());
    let topics = json!(["a", "never"]);
    let payload = json!({"action": "unsubscribe", "success_topics": topics, "failed_topics": []});
    bench.receive(json!({"t": "subscription_update", "p": payload}));
    let lost = bench.events.iter().find_map(|event| match event {
        Event::SubscriptionLost(topics) => Some(topics.clone()),
        _ => None,
    });
    assert_eq!(lost.as_deref(), Some(&["a".to_owned()][..]));
    // It is not asked for on the next connection.
    assert!(bench.session.subscriptions.is_empty());
}

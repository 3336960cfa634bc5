//! Fairness: a hostile client gets at most its share of a turn, and one that keeps erring is closed.
//!
//! The shard is held between two turns while a well-behaved client asks for something. It must be served in the
//! next turn or the one after, whatever waits of the hostile one; and what the hostile one gets done in any
//! one turn stays within the engine's limits. Both are counted, so that it does not matter how fast the
//! machine is.

use crate::common;

use common::topics::{open_topics, publish, subscribe};
use common::{
    Client, Said, assert_settled, config, connect_v1, frame, start, text_frame, wait_until,
};
use serde_json::json;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::time::Duration;
use tidewire_engine::counters::Snapshot;
use tidewire_engine::{
    Application, Config, Context, Handle, Message, NewPublication, PublishError, Server,
};
use tidewire_net::ShardConfig;
use tidewire_wire::close::CloseCode;
use tidewire_wire::format::{ZLIB_PREFIX, deflate};
use tidewire_wire::frame::OpCode;

/// Answers the well-behaved client, counts turns, and can be held between two of them.
#[derive(Clone)]
struct Watched(Arc<Watch>);

#[derive(Default)]
struct Watch {
    turns: Mutex<Turns>,
    changed: Condvar,
    handle: OnceLock<Handle>,
}

#[derive(Default)]
struct Turns {
    number: u64,
    is_to_wait: bool,
    waits: bool,
    /// The turn before the one in which a message was answered last.
    answered_after: u64,
    before: Snapshot,
    /// The most of each in one turn.
    most: Most,
}

#[derive(Debug, Default, Clone, Copy)]
struct Most {
    pings: u64,
    publications: u64,
    deliveries: u64,
    inflated: u64,
}

impl Most {
    fn see(&mut self, before: &Snapshot, now: &Snapshot) {
        let most = |most: &mut u64, before: u64, now: u64| *most = (*most).max(now - before);
        most(&mut self.pings, before.pings_received, now.pings_received);
        let publications = (before.publications_received, now.publications_received);
        most(&mut self.publications, publications.0, publications.1);
        most(&mut self.deliveries, before.deliveries, now.deliveries);
        most(
            &mut self.inflated,
            before.messages_inflated,
            now.messages_inflated,
        );
    }
}

impl Application for Watched {
    fn on_message(&mut self, context: &mut Context<'_>, message: Message<'_>) {
        if message.bytes.starts_with(ECHO) {
            let mut turns = self.0.turns.lock().expect("no panic");
            turns.answered_after = turns.number;
            context.send(message);
        }
    }

    fn on_turn(&mut self) {
        let mut turns = self.0.turns.lock().expect("no panic");
        turns.number += 1;
        if let Some(handle) = self.0.handle.get() {
            let now = handle.counters();
            let before = std::mem::replace(&mut turns.before, now);
            turns.most.see(&before, &now);
        }
        turns.waits = turns.is_to_wait;
        self.0.changed.notify_all();
        let mut turns = self
            .0
            .changed
            .wait_while(turns, |turns| turns.is_to_wait)
            .expect("no panic");
        turns.waits = false;
    }
}

impl Watch {
    fn start(config: Config) -> (Arc<Self>, Server) {
        let watch = Arc::new(Self::default());
        let server = start(config, Watched(Arc::clone(&watch)));
        assert!(watch.handle.set(server.handle()).is_ok());
        (watch, server)
    }

    /// Holds the shard at the end of a turn, and gives its number.
    fn hold(&self) -> u64 {
        self.turns.lock().expect("no panic").is_to_wait = true;
        // A shard with nothing to do has no turns.
        let wake = NewPublication::new("wake", "{}");
        let handle = self.handle.get().expect("a started server");
        while handle.publish_to_user("nobody", &wake) == Err(PublishError::Busy) {
            std::thread::yield_now();
        }
        let turns = self.turns.lock().expect("no panic");
        self.changed
            .wait_while(turns, |turns| !turns.waits)
            .expect("no panic")
            .number
    }

    fn release(&self) {
        self.turns.lock().expect("no panic").is_to_wait = false;
        self.changed.notify_all();
    }

    /// Asks something again and again; `progress` counts what the hostile client gets done, which must go on.
    fn assert_served(&self, client: &mut Client, progress: impl Fn(&Snapshot) -> u64) -> Most {
        let handle = self.handle.get().expect("a started server");
        let done = || progress(&handle.counters());
        for round in 0..ROUNDS {
            let before = done();
            wait_until("the hostile client is at work", || done() > before);
            let held = self.hold();
            let question = format!("{}{round}}}}}", std::str::from_utf8(ECHO).expect("ASCII"));
            client.send_text(&question);
            self.release();
            assert_eq!(client.next(), Said::Text(question));
            let turns = self.turns.lock().expect("no panic").answered_after - held;
            assert!(turns <= 1, "answered {turns} turns later in round {round}");
        }
        self.turns.lock().expect("no panic").most
    }
}

/// Writes the same bytes until the server ends.
fn flood(client: &Client, bytes: Vec<u8>) -> std::thread::JoinHandle<()> {
    let mut stream = client.stream.tcp().try_clone().expect("a descriptor");
    std::thread::spawn(move || {
        let mut rest = &bytes[..];
        loop {
            match stream.write(rest) {
                Ok(0) => return,
                Ok(written) if written == rest.len() => rest = &bytes,
                Ok(written) => rest = &rest[written..],
                // The stream is made so that its client reads the answers.
                Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::yield_now(),
                Err(_) => return,
            }
        }
    })
}

/// Reads all these streams, and discards the bytes, until told to end.
fn discard(streams: Vec<TcpStream>) -> (Arc<AtomicBool>, std::thread::JoinHandle<()>) {
    let ends = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&ends);
    let thread = std::thread::spawn(move || {
        let mut part = vec![0; 256 * 1024];
        for stream in &streams {
            stream.set_nonblocking(true).expect("a socket");
        }
        while !told.load(Ordering::Acquire) {
            for mut stream in &streams {
                let would_block = |error: std::io::Error| error.kind() == ErrorKind::WouldBlock;
                while stream
                    .read(&mut part)
                    .map_or_else(|error| !would_block(error), |n| n > 0)
                {
                    if told.load(Ordering::Acquire) {
                        break;
                    }
                }
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    (ends, thread)
}

/// Without a rate limit, so that only the limits of a turn hold the hostile one back.
fn without_rate_limit(mut config: Config) -> Config {
    config.limits.rate_limit_capacity = 0;
    config
}

#[test]
fn a_flood_of_pings_leaves_room_for_others() {
    let (watch, server) = Watch::start(without_rate_limit(config()));
    let (mut client, hostile) = (connect_v1(&server), connect_v1(&server));
    let ping = frame(OpCode::Ping, b"");
    // The pongs are read: otherwise reading would pause, and the flood would end.
    let (ends, reader) = discard(vec![
        hostile.stream.tcp().try_clone().expect("a descriptor"),
    ]);
    let flooding = flood(&hostile, ping.repeat(10_000));
    let most = watch.assert_served(&mut client, |now| now.pings_received);
    assert!(
        most.pings <= (READS_PER_TURN * read_bytes() / ping.len()) as u64,
        "{most:?}"
    );
    server.stop();
    ends.store(true, Ordering::Release);
    reader.join().unwrap();
    flooding.join().unwrap();
}

#[test]
fn a_flood_of_publications_to_a_thousand_leaves_room_for_others() {
    let (watch, server) = Watch::start(without_rate_limit(open_topics()));
    let mut subscribers: Vec<_> = (0..SUBSCRIBERS).map(|_| connect_v1(&server)).collect();
    for subscriber in &mut subscribers {
        subscribe(subscriber, json!(["busy"]));
    }
    let (mut client, mut hostile) = (connect_v1(&server), connect_v1(&server));
    publish(&mut hostile, "busy", 0);
    let Said::Text(first) = subscribers[0].next() else {
        panic!("no publication");
    };
    let streams = subscribers
        .iter()
        .map(|client| client.stream.tcp().try_clone().expect("a descriptor"));
    let (ends, reader) = discard(streams.collect());
    let payload = "x".repeat(PAYLOAD_BYTES - 8);
    let request = json!({"topic": "busy", "type": "count", "payload": {"x": payload}});
    let request = text_frame(&json!({"t": "publish_request", "p": request}).to_string());
    let flooding = flood(&hostile, request.repeat(100));
    let most = watch.assert_served(&mut client, |now| now.publications_received);
    // The client's share of a turn, and what may be over it: one publication for each read.
    let fanout = PAYLOAD_BYTES * SUBSCRIBERS;
    let publications_max = PUBLISHED_BYTES_PER_TURN / fanout + 1 + READS_PER_TURN;
    assert!(most.publications <= publications_max as u64, "{most:?}");
    let deliveries_max = DELIVERED_BYTES_PER_TURN / (first.len()) + SUBSCRIBERS;
    assert!(most.deliveries <= deliveries_max as u64, "{most:?}");
    server.stop();
    ends.store(true, Ordering::Release);
    reader.join().unwrap();
    flooding.join().unwrap();
}

#[test]
fn compressed_bombs_leave_room_for_others() {
    let (watch, server) = Watch::start(without_rate_limit(config()));
    let (mut client, hostile) = (connect_v1(&server), connect_v1(&server));
    let limit = Config::default().limits.message_bytes_max;
    let bomb = format!(r#"{{"t":"bomb","p":{}1}}"#, " ".repeat(limit - 20));
    let mut message = ZLIB_PREFIX.to_vec();
    deflate(bomb.as_bytes(), 9, &mut message);
    let flooding = flood(&hostile, frame(OpCode::Binary, &message).repeat(50));
    let most = watch.assert_served(&mut client, |now| now.messages_inflated);
    assert!(
        most.inflated <= (INFLATED_BYTES_PER_TURN / bomb.len() + 1) as u64,
        "{most:?}"
    );
    server.stop();
    flooding.join().unwrap();
}

#[test]
fn subscribers_that_never_read_leave_room_for_others() {
    let mut config = without_rate_limit(open_topics());
    config.limits.outbox_bytes_max = 1024 * 1024;
    let (watch, server) = Watch::start(config);
    let mut client = connect_v1(&server);
    let mut hostile: Vec<_> = (0..20).map(|_| connect_v1(&server)).collect();
    for subscriber in &mut hostile {
        subscribe(subscriber, json!(["busy"]));
    }
    let handle = server.handle();
    let publishing = std::thread::spawn({
        let handle = handle.clone();
        move || {
            let news = NewPublication::new("news", format!(r#"{{"x":"{}"}}"#, "x".repeat(5_000)));
            while handle.publish("busy", &news) != Err(PublishError::Stopped) {
                // Time for the sockets to fill and for the shard to serve, so that each of the rounds sees some.
                std::thread::sleep(Duration::from_micros(200));
            }
        }
    });
    let waiting = || handle.counters().outbox_overflows < 20;
    while waiting() {
        let held = watch.hold();
        let question = format!("{}0}}}}", std::str::from_utf8(ECHO).expect("ASCII"));
        client.send_text(&question);
        watch.release();
        assert_eq!(client.next(), Said::Text(question));
        assert!(watch.turns.lock().expect("no panic").answered_after - held <= 1);
    }
    assert_eq!(handle.connections(), 1);
    assert_eq!(client.ask(&json!({"t": "ping"}))["t"], "PONG");
    drop(client);
    assert_eq!(assert_settled(&handle).outbox_overflows, 20);
    server.stop();
    publishing.join().unwrap();
}

fn limited(errors_max: u64) -> Config {
    let mut config = open_topics();
    config.limits.errors_max = errors_max;
    // None is forgotten while the test runs.
    config.limits.errors_window_ms = 3_600_000;
    config
}

#[test]
fn a_connection_that_keeps_erring_is_closed() {
    let server = start(limited(5), tidewire_engine::apps::Echo);
    let mut other = connect_v1(&server);
    let mut client = connect_v1(&server);
    let errors = [
        (json!({"t": 5}), "INVALID_MESSAGE"),
        (json!({"p": {}}), "INVALID_MESSAGE"),
        (
            json!({"t": "publish_request", "p": {"topic": "a.*", "type": "x"}}),
            "INVALID_MESSAGE",
        ),
        (
            json!({"t": "subscription_update", "p": {"action": "jump"}}),
            "INVALID_ACTION",
        ),
        (
            json!({"t": "subscription_update", "p": {"action": "subscribe"}}),
            "INVALID_SUBSCRIPTION",
        ),
    ];
    for (message, code) in &errors {
        let answer = client.ask(message);
        assert_eq!(answer["p"]["code"], *code, "{message}");
    }
    // What is right costs nothing.
    assert_eq!(client.ask(&json!({"t": "echo"}))["t"], "echo");
    assert_eq!(client.ask(&errors[0].0)["p"]["code"], "INVALID_MESSAGE");
    let last = client.next_json();
    assert_eq!(last["p"]["code"], "CIRCUIT_BREAKER_OPEN", "{last}");
    assert_eq!(last["p"]["retry_after"], 3_600);
    client.assert_closed(CloseCode::TOO_MANY_ERRORS);
    assert_eq!(
        other.ask(&json!({"t": "echo"}))["t"],
        "echo",
        "the others are not concerned"
    );
    drop(other);
    assert_eq!(assert_settled(&server.handle()).error_budgets_exhausted, 1);
}

#[test]
fn after_the_error_budget_is_exhausted_nothing_more_is_sent() {
    let server = start(limited(2), tidewire_engine::apps::Sink);
    let mut client = connect_v1(&server);
    let bad = json!({"t": "publish_request", "p": {"topic": "a.*", "type": "x"}});
    let messages = vec![bad; 99];
    client.send_text(&json!({"t": "batch", "p": {"messages": messages}}).to_string());
    for _ in 0..3 {
        let told = client.next_json();
        assert_eq!(told["p"]["code"], "INVALID_MESSAGE", "{told}");
    }
    assert_eq!(client.next_json()["p"]["code"], "CIRCUIT_BREAKER_OPEN");
    client.assert_closed(CloseCode::TOO_MANY_ERRORS);
    let counters = assert_settled(&server.handle());
    // Nothing more is done of the batch either.
    assert_eq!(
        (
            counters.publications_refused,
            counters.error_budgets_exhausted
        ),
        (3, 1)
    );
}

#[test]
fn without_a_limit_any_number_of_errors_is_answered() {
    let server = start(limited(0), tidewire_engine::apps::Sink);
    let mut client = connect_v1(&server);
    for _ in 0..200 {
        assert_eq!(client.ask(&json!({"t": 5}))["p"]["code"], "INVALID_MESSAGE");
    }
    assert_eq!(client.ask(&json!({"t": "ping"}))["t"], "PONG");
}

#[test]
fn what_the_rate_limit_refuses_does_not_count_against_the_error_budget() {
    let mut config = limited(3);
    config.limits.rate_limit_capacity = 10;
    config.limits.rate_limit_refill_per_s = 1;
    let server = start(config, tidewire_engine::apps::Sink);
    let mut client = connect_v1(&server);
    client.send_bytes(&text_frame(r#"{"t":"much"}"#).repeat(500));
    let refused = || server.handle().counters().messages_refused_rate;
    wait_until("most are refused", || refused() >= 480);
    client.send_close(CloseCode::NORMAL);
    assert_eq!(client.close_after_all().0, Some(CloseCode::NORMAL.value()));
    assert_eq!(assert_settled(&server.handle()).error_budgets_exhausted, 0);
}

fn read_bytes() -> usize {
    ShardConfig::default().read_buffer_bytes
}

const ECHO: &[u8] = br#"{"t":"echo","p":{"round":"#;

const ROUNDS: usize = 20;

const SUBSCRIBERS: usize = 1_000;

/// Of the flood of publications.
const PAYLOAD_BYTES: usize = 1_000;

/// A socket that has more than one read takes is read again when the kernel reports it.
const READS_PER_TURN: usize = 2;

/// The engine's own limits of a turn.
const INFLATED_BYTES_PER_TURN: usize = 2 * 1024 * 1024;
const PUBLISHED_BYTES_PER_TURN: usize = 128 * 1024 * 1024;
const DELIVERED_BYTES_PER_TURN: usize = 256 * 1024 * 1024;

//! A shard that does not get on with its deliveries holds back those who publish, on whatever shard.

mod common;

use common::topics::{open_topics, subscribe};
use common::{Client, connect_v1, wait_until};
use serde_json::json;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use tidewire_engine::{Application, Context, Message, NewPublication, Peer, PublishError, Server};

const BACKLOG_BYTES: usize = 64 * 1024;
const PAYLOAD_BYTES: usize = 10_000;

/// Knows which shard its sessions are on, and holds it when one of them says so.
struct Held {
    shard: u64,
    newest: Arc<AtomicU64>,
    gate: Arc<Gate>,
}

#[derive(Default)]
struct Gate {
    is_shut: Mutex<bool>,
    changed: Condvar,
}

impl Application for Held {
    fn on_connect(&mut self, _: &mut Context<'_>, _: &Peer) {
        self.newest.store(self.shard, Ordering::Release);
    }

    fn on_message(&mut self, _: &mut Context<'_>, _: Message<'_>) {
        let mut is_shut = self.gate.is_shut.lock().expect("no panic");
        *is_shut = true;
        self.gate.changed.notify_all();
        let opened = self.gate.changed.wait_while(is_shut, |is_shut| *is_shut);
        drop(opened.expect("no panic"));
    }
}

impl Gate {
    fn wait_until_shut(&self) {
        let is_shut = self.is_shut.lock().expect("no panic");
        let shut = self.changed.wait_while(is_shut, |is_shut| !*is_shut);
        drop(shut.expect("no panic"));
    }

    fn open(&self) {
        *self.is_shut.lock().expect("no panic") = false;
        self.changed.notify_all();
    }
}

/// A client on this shard, wherever the operating system puts the others that are tried.
fn connect_to(server: &Server, shard: u64, newest: &AtomicU64) -> Client {
    loop {
        newest.store(u64::MAX, Ordering::Release);
        let client = connect_v1(server);
        wait_until("it is announced", || {
            newest.load(Ordering::Acquire) != u64::MAX
        });
        if newest.load(Ordering::Acquire) == shard {
            return client;
        }
    }
}

#[test]
fn publishers_wait_for_a_shard_that_is_behind_and_nothing_is_lost() {
    let mut config = open_topics();
    config.shards = 2;
    config.topics.limits.backlog_bytes_max = BACKLOG_BYTES;
    let (newest, gate) = (Arc::new(AtomicU64::new(0)), Arc::new(Gate::default()));
    let server = Server::start(config, |shard| Held {
        shard: shard as u64,
        newest: Arc::clone(&newest),
        gate: Arc::clone(&gate),
    })
    .expect("a server");
    let mut subscriber = connect_to(&server, 1, &newest);
    subscribe(&mut subscriber, json!(["a"]));
    let mut publisher = connect_to(&server, 0, &newest);
    subscriber.send_text(r#"{"t":"hold"}"#);
    gate.wait_until_shut();

    // More than the backlog and the sockets hold, so that it ends only when the publisher is read again.
    let count = (common::PAST_SOCKETS_BYTES / PAYLOAD_BYTES) as u64;
    let filling = "x".repeat(PAYLOAD_BYTES);
    let publishing = std::thread::spawn(move || {
        for number in 1..=count {
            let payload = json!({"n": number, "x": filling});
            let payload = json!({"topic": "a", "type": "count", "payload": payload});
            let request = json!({"t": "publish_request", "p": payload});
            publisher.send_text(&request.to_string());
        }
        publisher
    });
    let handle = server.handle();
    wait_until("the publisher is held", || {
        handle.counters().backlog_pauses > 0
    });
    let elsewhere = NewPublication::new("count", "{}");
    assert_eq!(handle.publish("a", &elsewhere), Err(PublishError::Busy));
    let taken = handle.counters().publications_received;
    assert!(taken < count, "{taken} of {count}");

    gate.open();
    for number in 1..=count {
        assert_eq!(subscriber.next_json()["p"]["n"], number);
    }
    publishing.join().expect("everything was taken");
}

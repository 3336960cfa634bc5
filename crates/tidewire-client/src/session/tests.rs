//! Tests of a session without a network.

use super::Session;
use super::pending::Waiting;
use crate::clock::Moment;
use crate::config::{Config, Queue};
use crate::event::BatchBuilder;
use crate::outbox::Outbox;
use crate::priority_queue::Priority;
use crate::queue::handle::StoreHandle;
use crate::queue::job::StoreEvent;
use crate::queue::{Durable, Numbered};
use crate::request::SubscribeOptions;
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use std::sync::Arc;
use tidewire_wire::message::Event;
use tokio::sync::mpsc::unbounded_channel;
use tokio::sync::oneshot;

fn session() -> Session {
    let mut session = Session::new(
        Arc::new(Config::new("ws://a")),
        Arc::new(Outbox::new(1_000)),
        StdRng::seed_from_u64(1),
    );
    connect(&mut session);
    session
}

fn connect(session: &mut Session) {
    session
        .handle_connected("ws://a".to_owned(), None, Moment::default())
        .expect("nothing is to be signed");
}

/// Handles a message of the server's; returns the size of the event for the application.
fn receive(session: &mut Session, text: &str) -> usize {
    let (mut out, mut batch) = (Vec::new(), BatchBuilder::default());
    session
        .handle_event(
            Event::Binary(text.as_bytes()),
            Moment::default(),
            &mut out,
            &mut batch,
        )
        .expect("the session goes on");
    batch.bytes()
}

#[test]
fn offsets_and_limits_at_the_end_of_the_numbers() {
    let mut session = session();
    receive(&mut session, r#"{"t":"server_ready","p":{}}"#);
    let limits =
        r#"{"rate_limit_capacity":1e300,"rate_limit_refill":1e300,"max_message_size":1e300}"#;
    receive(
        &mut session,
        &format!(r#"{{"t":"server_hello","p":{{"limits":{limits}}}}}"#),
    );
    let options = Arc::new(SubscribeOptions::default());
    session.subscriptions.insert("a", &options);
    let last = format!(
        r#"{{"t":"x","tp":"a","e":"00000001","o":{},"p":1}}"#,
        u64::MAX
    );
    assert!(receive(&mut session, &last) > 0);
    assert_eq!(receive(&mut session, &last), 0, "it has come before");
}

#[test]
fn a_rate_of_one_is_a_limit() {
    let mut session = session();
    receive(&mut session, r#"{"t":"server_ready","p":{}}"#);
    let hello =
        r#"{"t":"server_hello","p":{"limits":{"rate_limit_capacity":1,"rate_limit_refill":1}}}"#;
    receive(&mut session, hello);
    assert_eq!(session.rate.take(10, 0), 1);
}

#[test]
fn requests_that_the_rate_limit_refused_are_made_again() {
    let mut session = session();
    let options = Arc::new(SubscribeOptions::default());
    session.subscriptions.insert("a", &options);
    receive(&mut session, r#"{"t":"server_ready","p":{}}"#);
    receive(&mut session, r#"{"t":"server_hello","p":{}}"#);
    let refusal = r#"{"t":"error","p":{"code":"RATE_LIMITED","retry_after":1,"refused":1}}"#;
    receive(&mut session, refusal);
    let mut later = |monotonic_ms| {
        let mut moment = Moment::default();
        moment.now.monotonic_ms = monotonic_ms;
        let (mut out, mut batch) = (Vec::new(), BatchBuilder::default());
        session
            .handle_timeout(moment, &mut out, &mut batch)
            .expect("the session goes on");
        out.len()
    };
    assert_eq!(later(500), 0);
    assert!(later(2_000) > 0, "the topic would never come again");
    assert_eq!(later(3_000), 0, "once is enough");
}

#[test]
fn what_the_application_is_told_counts_for_its_size() {
    let mut session = session();
    receive(&mut session, r#"{"t":"server_ready","p":{}}"#);
    receive(&mut session, r#"{"t":"server_hello","p":{}}"#);
    let long = "x".repeat(10_000);
    for text in [
        format!(r#"{{"t":"call_request","cid":"1","p":{{"type":"a","payload":"{long}"}}}}"#),
        format!(r#"{{"t":"error","p":{{"code":"INTERNAL_ERROR","message":"{long}"}}}}"#),
        format!(
            r#"{{"t":"presence_join","p":{{"topic":"a","user_id":"b","data":{{"a":"{long}"}}}}}}"#
        ),
    ] {
        let bytes = receive(&mut session, &text);
        assert!(bytes >= long.len(), "{bytes}: {}", &text[..60]);
    }
}

#[test]
fn what_waits_for_its_turn_has_no_more_bytes_than_the_inbox() {
    let mut session = session();
    receive(&mut session, r#"{"t":"server_ready","p":{}}"#);
    receive(&mut session, r#"{"t":"server_hello","p":{}}"#);
    let options = Arc::new(SubscribeOptions::default());
    session.subscriptions.insert("a", &options);
    let long = "x".repeat(1024 * 1024);
    let mut told_bytes = 0;
    let count = 10;
    // Every other one is missing.
    for offset in (0..count).map(|index| 2 * index + 1) {
        let text = format!(r#"{{"t":"x","tp":"a","e":"00000001","o":{offset},"p":"{long}"}}"#);
        told_bytes += receive(&mut session, &text);
    }
    let kept_bytes = (count * long.len()).saturating_sub(told_bytes);
    assert!(kept_bytes <= session.config.inbox_bytes_max, "{kept_bytes}");
}

#[test]
fn a_topic_that_is_being_unsubscribed_is_not_recovered() {
    let mut session = session();
    receive(&mut session, r#"{"t":"server_ready","p":{}}"#);
    receive(&mut session, r#"{"t":"server_hello","p":{}}"#);
    let options = Arc::new(SubscribeOptions::default());
    session.subscriptions.insert("a", &options);
    let (reply, _answer) = oneshot::channel();
    let topics = vec!["a".to_owned()];
    let unsubscribe = Waiting::Unsubscribe {
        topics,
        reply: Some(reply),
    };
    session.pending.insert(unsubscribe);
    for offset in [1, 5] {
        let text = format!(r#"{{"t":"x","tp":"a","e":"00000001","o":{offset},"p":1}}"#);
        receive(&mut session, &text);
    }
    assert_eq!(session.pending.len(), 1, "it would be subscribed again");
}

#[test]
fn numbered_messages_wait_for_the_hello_of_their_own_connection() {
    let (events, _told) = unbounded_channel();
    let store = StoreHandle::start(&Queue::default(), "p", events).unwrap();
    let mut session = session();
    session.set_store(Arc::new(store));
    // The connection was lost while the store worked, and the next one has not received anything yet.
    session.handle_disconnected();
    connect(&mut session);
    let message = Durable {
        topic: None,
        t: "order".to_owned(),
        payload: b"1".to_vec(),
        is_binary: false,
        priority: Priority::Normal,
        key: None,
        expires_unix_ms: None,
    };
    let taken = vec![Numbered {
        row: 1,
        number: 1,
        message,
    }];
    let (mut out, mut batch) = (Vec::new(), BatchBuilder::default());
    for event in [StoreEvent::Resumed, StoreEvent::Taken(taken)] {
        session
            .handle_store(event, Moment::default(), &mut out, &mut batch)
            .unwrap();
    }
    assert!(out.is_empty(), "it would count twice");
}

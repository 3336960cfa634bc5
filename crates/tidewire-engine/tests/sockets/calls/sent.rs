//! Calls of the server.

use super::common::{Said, assert_settled, config, connect_v1, wait_until};
use super::{
    answer, ask, assert_refused, callee, clerk, next_call, outcome, refusal, respond, send,
    start_call,
};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::sync::mpsc::channel;
use std::time::Duration;
use tidewire_engine::{CallFailure, NewCall};

#[test]
fn the_server_asks_and_the_client_answers() {
    let (server, clerk) = clerk(config());
    let mut client = callee(&server);
    let connection = clerk.connection();
    let calls: Vec<_> = (0..3)
        .map(|n| start_call(&server, connection, NewCall::new("sum", format!("[{n},1]"))))
        .collect();
    let mut asked: Vec<_> = (0..3).map(|_| next_call(&mut client)).collect();
    for (n, (_, call)) in asked.iter().enumerate() {
        let expected = json!({"type": "sum", "timeout_ms": 10_000, "payload": [n, 1]});
        assert_eq!(*call, expected);
    }
    let different: HashSet<_> = asked.iter().map(|(cid, _)| cid.clone()).collect();
    assert_eq!(different.len(), 3);
    // In another order, and one of them twice.
    asked.reverse();
    for (cid, call) in &asked {
        respond(
            &mut client,
            cid,
            &json!({"payload": {"of": call["payload"]}}),
        );
    }
    respond(&mut client, &asked[0].0, &json!({"payload": "again"}));
    for (n, outcomes) in calls.into_iter().enumerate() {
        assert_eq!(outcome(outcomes), Ok(format!(r#"{{"of":[{n},1]}}"#).into()));
    }
    let refused = start_call(&server, connection, NewCall::new("sum", "null"));
    let (cid, _) = next_call(&mut client);
    respond(
        &mut client,
        &cid,
        &json!({"error": {"code": "BUSY", "message": "not now"}}),
    );
    let refusal = refusal("BUSY", "not now");
    assert_eq!(outcome(refused), Err(CallFailure::Refused(refusal)));
    drop(client);
    let counters = assert_settled(&server.handle());
    assert_eq!((counters.calls_sent, counters.calls_sent_answered), (4, 4));
    assert_eq!(
        (counters.call_responses_unexpected, counters.calls_open),
        (1, 0)
    );
}

#[test]
fn a_client_that_is_silent_times_out() {
    let (server, clerk) = clerk(config());
    let mut client = callee(&server);
    let call = NewCall::new("t", "1").with_timeout(Duration::from_millis(20));
    let waited = server.handle().call_wait(clerk.connection(), call);
    assert_eq!(waited, Err(CallFailure::TimedOut));
    let (cid, call) = next_call(&mut client);
    assert_eq!(call["timeout_ms"], 20);
    respond(&mut client, &cid, &json!({"payload": 1}));
    assert_eq!(ask(&mut client, "echo", &json!(2)), json!({"payload": 2}));
    let counters = server.handle().counters();
    assert_eq!(
        (
            counters.calls_sent_timed_out,
            counters.call_responses_unexpected
        ),
        (1, 1)
    );
}

#[test]
fn another_thread_waits_for_the_answer() {
    let (server, clerk) = clerk(config());
    let mut client = callee(&server);
    let connection = clerk.connection();
    let handle = server.handle();
    let asking = std::thread::spawn(move || handle.call_wait(connection, NewCall::new("t", "1")));
    let (cid, _) = next_call(&mut client);
    respond(&mut client, &cid, &json!({"payload": [true]}));
    assert_eq!(asking.join().unwrap(), Ok("[true]".into()));
}

#[test]
fn a_call_of_the_server_that_cannot_be_made_fails_at_once() {
    let mut config = config();
    config.limits.calls_per_connection_max = 1;
    let (server, clerk) = clerk(config);
    let mut silent = connect_v1(&server);
    let call = || NewCall::new("t", "1");
    let outcomes = start_call(&server, clerk.connection(), call());
    assert_eq!(outcome(outcomes), Err(CallFailure::Unsupported), "no hello");
    silent.ask(&json!({"t": "client_hello", "p": {}}));
    let outcomes = start_call(&server, clerk.connection(), call());
    assert_eq!(
        outcome(outcomes),
        Err(CallFailure::Unsupported),
        "not asked for"
    );
    let gone = clerk.connection();
    drop(silent);
    let handle = server.handle();
    wait_until("it is gone", || handle.connections() == 0);
    assert_eq!(
        outcome(start_call(&server, gone, call())),
        Err(CallFailure::Closed)
    );

    let mut client = callee(&server);
    let connection = clerk.connection();
    let long = "x".repeat(129);
    for (t, payload) in [
        ("", "1"),
        (&*long, "1"),
        ("t", ""),
        ("t", "{"),
        ("t", "1 2"),
    ] {
        let outcomes = start_call(&server, connection, NewCall::new(t, payload));
        let failure = outcome(outcomes).unwrap_err();
        assert!(matches!(failure, CallFailure::Invalid(_)), "{failure}");
    }
    let first = start_call(&server, connection, call());
    assert_eq!(
        outcome(start_call(&server, connection, call())),
        Err(CallFailure::Busy)
    );
    let (cid, _) = next_call(&mut client);
    respond(&mut client, &cid, &json!({"payload": 1}));
    assert_eq!(outcome(first), Ok("1".into()));
}

#[test]
fn a_panic_about_an_answer_of_a_client_ends_no_connection() {
    let (server, clerk) = clerk(config());
    let mut client = callee(&server);
    let call = NewCall::new("t", "1");
    server.handle().call(clerk.connection(), call, |answer| {
        panic!("it cannot bear {answer:?}");
    });
    let (cid, _) = next_call(&mut client);
    respond(&mut client, &cid, &json!({"payload": "nonsense"}));
    assert_eq!(ask(&mut client, "echo", &json!(1))["payload"], 1);
    assert_eq!(server.handle().failure(), None);
}

#[test]
fn a_server_that_stops_ends_all_calls() {
    let (server, clerk) = clerk(config());
    let mut client = callee(&server);
    let connection = clerk.connection();
    let handle = server.handle();
    let open = start_call(&server, connection, NewCall::new("t", "1"));
    next_call(&mut client);
    send(&mut client, "keep", "k", &Value::Null);
    let kept = clerk.kept(1);
    // Many that may still be on their way to the shard.
    let (told, outcomes) = channel();
    for _ in 0..500 {
        let told = told.clone();
        handle.call(connection, NewCall::new("t", "1"), move |outcome| {
            told.send(outcome).expect("the test listens");
        });
    }
    drop(told);
    let stopping = std::thread::spawn(move || server.stop());
    while !matches!(client.next(), Said::End | Said::Reset) {}
    drop(client);
    stopping.join().unwrap();
    assert_eq!(outcome(open), Err(CallFailure::Stopped));
    let outcomes: Vec<_> = outcomes.iter().collect();
    assert_eq!(outcomes.len(), 500);
    let expected = [CallFailure::Stopped, CallFailure::Busy];
    for outcome in outcomes {
        assert!(expected.contains(&outcome.unwrap_err()));
    }
    let after = handle.call_wait(connection, NewCall::new("t", "1"));
    assert_eq!(after, Err(CallFailure::Stopped));
    kept[0].respond(Ok("1".into()));
}

#[test]
fn an_application_asks_back_before_it_answers() {
    let (server, _) = clerk(config());
    let mut client = callee(&server);
    send(&mut client, "ask back", "mine", &json!({"n": 1}));
    let (cid, call) = next_call(&mut client);
    assert_eq!(
        (&call["type"], &call["payload"]),
        (&json!("back"), &json!({"n": 1}))
    );
    respond(&mut client, &cid, &json!({"payload": "yes"}));
    assert_eq!(answer(&mut client, "mine"), json!({"payload": "yes"}));
    let mut old = connect_v1(&server);
    assert_refused(&ask(&mut old, "ask back", &Value::Null), "BACK");
}

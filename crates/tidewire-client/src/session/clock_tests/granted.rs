//! Subscriptions of the server, on clocks of the test's own.

use super::{Bench, plain};
use crate::command::Command;
use crate::error::Error;
use crate::event::Event;
use serde_json::{Value, json};
use tokio::sync::oneshot;

/// The server's message about a subscription that it makes itself.
fn granted(offset: u64) -> Value {
    let recovery = json!({"a": {"epoch": "00000007", "offset": offset}});
    let payload = json!({"action": "subscribe", "success_topics": ["a"], "failed_topics": [], "recovery": recovery});
    json!({"t": "subscription_update", "p": payload})
}

/// A connection to a server with these features; what the client asks for at once.
fn connect_again(bench: &mut Bench, features: Value) -> Vec<Value> {
    bench.session.handle_disconnected();
    bench
        .session
        .handle_connected("ws://a".to_owned(), None, bench.moment)
        .unwrap();
    bench.receive(json!({"t": "server_ready", "p": {}}));
    bench.receive(json!({"t": "server_hello", "p": {"features": features}}))
}

fn refuse(bench: &mut Bench, request: &Value, code: &str) -> Vec<Value> {
    let failures = json!([{"topic": "a", "code": code, "message": "x"}]);
    let payload = json!({"action": "subscribe", "success_topics": [], "failed_topics": ["a"], "failures": failures});
    bench.receive(json!({"t": "subscription_update", "cid": request["cid"], "p": payload}))
}

fn lost(bench: &Bench) -> usize {
    let is_lost =
        |event: &&Event| matches!(event, Event::SubscriptionLost(topics) if *topics == ["a"]);
    bench.events.iter().filter(is_lost).count()
}

#[test]
fn a_subscription_of_the_server_is_renewed_or_lost() {
    let renewing = json!({"server_subscriptions": true});
    let mut bench = Bench::established(plain(), json!({}));
    assert!(bench.receive(granted(3)).is_empty());
    bench.publication(4);
    assert_eq!(bench.payloads(), [4]);
    // The server has made it again already, from a later position. The client's own counts.
    let asked = connect_again(&mut bench, renewing.clone());
    assert!(bench.receive(granted(6)).is_empty(), "it has asked");
    assert_eq!(asked.len(), 1, "{asked:?}");
    let request = &asked[0]["p"];
    assert_eq!(
        (
            &request["renew"],
            &request["recover"],
            &request["recovery"]["a"]["offset"]
        ),
        (&json!(true), &json!(true), &json!(4))
    );
    let position = json!({"epoch": "00000007", "offset": 6, "recovered": true, "count": 2});
    bench.answer(&asked[0], json!({"a": position}));
    bench.publication(5);
    bench.publication(6);
    assert_eq!(bench.payloads(), [4, 5, 6]);
    // A gap is closed by another renewal, since the server would not give the topic again.
    let asked = bench.publication(8);
    assert_eq!((asked.len(), &asked[0]["p"]["renew"]), (1, &json!(true)));
    bench.answer(&asked[0], json!({"a": position}));
    bench.publication(7);
    assert_eq!(bench.payloads(), [4, 5, 6, 7, 8]);
    // Refused first, and made by the server later: the missed publications are requested.
    let asked = connect_again(&mut bench, renewing.clone());
    assert!(refuse(&mut bench, &asked[0], "TOPIC_FORBIDDEN").is_empty());
    bench.pass(4_999);
    bench.timeout().unwrap();
    assert_eq!(lost(&bench), 0);
    let asked = bench.receive(granted(9));
    assert_eq!(asked[0]["p"]["recovery"]["a"]["offset"], 8);
    bench.answer(&asked[0], json!({"a": position}));
    // Refused, and made before the answer has arrived.
    let asked = connect_again(&mut bench, renewing.clone());
    bench.receive(granted(9));
    let again = refuse(&mut bench, &asked[0], "TOPIC_FORBIDDEN");
    assert_eq!(again[0]["p"]["renew"], true, "{again:?}");
    // Refused for good.
    refuse(&mut bench, &again[0], "TOPIC_FORBIDDEN");
    assert_eq!(
        bench.session.poll_deadline_ms(bench.moment),
        bench.moment.ms() + 5_000
    );
    bench.pass(5_000);
    bench.timeout().unwrap();
    assert_eq!(lost(&bench), 1);
    assert!(connect_again(&mut bench, renewing).is_empty());
}

#[test]
fn a_subscription_of_the_server_ends_at_once_for_other_reasons() {
    let renewing = json!({"server_subscriptions": true});
    let mut bench = Bench::established(plain(), json!({}));
    bench.receive(granted(0));
    let asked = connect_again(&mut bench, renewing.clone());
    refuse(&mut bench, &asked[0], "LIMIT_EXCEEDED");
    assert_eq!(lost(&bench), 1);
    // The server ends it.
    bench.receive(granted(0));
    let payload = json!({"action": "unsubscribe", "success_topics": ["a"], "failed_topics": []});
    bench.receive(json!({"t": "subscription_update", "p": payload}));
    assert_eq!(lost(&bench), 2);
    // A server of before.
    bench.receive(granted(0));
    assert!(connect_again(&mut bench, json!({})).is_empty());
    bench.pass(5_000);
    bench.timeout().unwrap();
    assert_eq!(lost(&bench), 3);
    // The application's own is its own.
    bench.receive(granted(0));
    let mut answer = bench.subscribe("a");
    assert!(answer.try_recv().unwrap().is_ok());
    let asked = connect_again(&mut bench, renewing);
    assert_eq!(
        (asked.len(), &asked[0]["p"]["renew"]),
        (1, &Value::Null),
        "{asked:?}"
    );
}

#[test]
fn a_call_that_the_rate_limit_has_refused_fails_at_once() {
    let mut bench = Bench::established(plain(), json!({}));
    let (reply, mut answer) = oneshot::channel();
    let call = tidewire_wire::session::Call {
        binary: false,
        t: "x".into(),
        payload: b"{}".to_vec(),
        timeout_ms: None,
    };
    let command = Command::Call { call, reply };
    bench.outbox.try_command(Box::new(command)).unwrap();
    let asked = bench.flush();
    let refusal =
        json!({"code": "RATE_LIMITED", "retry_after": 1, "refused": 2, "cids": [asked[0]["cid"]]});
    bench.receive(json!({"t": "error", "p": refusal}));
    let answered = answer.try_recv().unwrap();
    assert!(matches!(answered, Err(Error::Refused { code, .. }) if code == "RATE_LIMITED"));
}

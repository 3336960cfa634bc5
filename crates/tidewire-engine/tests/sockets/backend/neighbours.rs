//! Users whose events fail, or keep the backend busy, beside others who use the same backend.

use super::common::topics::subscribe;
use super::common::{Client, Opening, start, wait_until};
use super::server::{Behaviour, Gate, TestBackend};
use super::trouble::{metrics, patient};
use super::{answer, ask, publication, with};
use serde_json::{Value, json};
use std::net::Ipv4Addr;
use tidewire_engine::apps::Sink;
use tidewire_engine::{BackendConfig, BackendEvent, Server};

const EVENTS: [BackendEvent; 5] = [
    BackendEvent::Connect,
    BackendEvent::Subscribe,
    BackendEvent::Publish,
    BackendEvent::Request,
    BackendEvent::Message,
];

fn with_metrics(config: BackendConfig) -> Server {
    let mut config = with(config);
    config.ops_listen = Some((Ipv4Addr::LOCALHOST, 0).into());
    start(config, Sink)
}

/// A backend whose users are the queries of their connections; it does what `decide` says with the payloads of requests
/// and messages.
fn backend(decide: impl Fn(&str) -> Behaviour + Send + Sync + 'static) -> TestBackend {
    TestBackend::start(move |body, _| match body["event"].as_str() {
        Some("connect") => answer(json!({ "user": body["query"] })),
        Some("request") => decide(body["payload"].as_str().unwrap_or_default()),
        None => {
            let payloads = body.as_array().expect("events").iter();
            let payloads = payloads.map(|event| event["message"]["p"].as_str());
            let payloads: Vec<&str> = payloads.map(Option::unwrap_or_default).collect();
            decide(payloads.iter().find(|word| **word == "bad").unwrap_or(&""))
        }
        _ => answer(json!({})),
    })
}

fn good_or_bad(word: &str) -> Behaviour {
    match word {
        "bad" => Behaviour::Answer(500, String::new()),
        _ => answer(json!({ "payload": 1 })),
    }
}

fn connect_as(server: &Server, user: &str) -> Client {
    let target = format!("/ws?{user}");
    let mut client = Opening::new(server.address()).target(&target).open();
    let ready = client.next_json();
    assert_eq!(ready["p"]["details"]["user_id"], user, "{ready}");
    client
}

fn error_of(client: &mut Client, payload: &str) -> Value {
    ask(client, &json!(payload))["error"]["code"].clone()
}

#[track_caller]
fn assert_served(client: &mut Client) {
    assert_eq!(ask(client, &json!("good")), json!({ "payload": 1 }));
}

#[test]
fn a_request_that_fails_is_the_failure_of_its_user() {
    let backend = backend(good_or_bad);
    let server = with_metrics(patient(&backend, &EVENTS));
    let mut ann = connect_as(&server, "ann");
    assert_served(&mut ann);
    let mut eve = connect_as(&server, "eve");
    for _ in 0..20 {
        assert_eq!(error_of(&mut eve, "bad"), "HANDLER_ERROR");
    }
    assert_served(&mut ann);
    assert_served(&mut eve);
    for user in ["bob", "cid", "dan"] {
        assert_served(&mut connect_as(&server, user));
    }
    let metrics = metrics(&server);
    for event in ["connect", "request"] {
        let closed = format!("tidewire_backend_breaker_openings_total{{event=\"{event}\"}} 0");
        assert!(metrics.contains(&closed), "{metrics}");
    }
}

#[test]
fn the_only_user_is_left_alone_and_the_next_one_is_not() {
    let backend = backend(good_or_bad);
    let server = with_metrics(patient(&backend, &EVENTS));
    let mut eve = connect_as(&server, "eve");
    wait_until("her requests are not sent any more", || {
        error_of(&mut eve, "bad") == "BACKEND_UNAVAILABLE"
    });
    let mut ann = connect_as(&server, "ann");
    assert_served(&mut ann);
    subscribe(&mut ann, json!(["news"]));
}

#[test]
fn failures_of_three_users_close_requests_and_nothing_else() {
    let backend = backend(good_or_bad);
    let server = with_metrics(patient(&backend, &EVENTS));
    let mut users = ["ann", "bob", "eve"].map(|user| connect_as(&server, user));
    let mut dan = connect_as(&server, "dan");
    assert_served(&mut dan);
    wait_until("requests are not sent any more", || {
        users
            .iter_mut()
            .any(|user| error_of(user, "bad") == "BACKEND_UNAVAILABLE")
    });
    let mut new = connect_as(&server, "new");
    subscribe(&mut new, json!(["news"]));
    assert_eq!(
        publication(&mut new, "news", &Value::Null)["t"],
        "publish_response"
    );
    let text = metrics(&server);
    assert!(
        text.contains("tidewire_backend_breaker_open{event=\"connect\"} 0"),
        "{text}"
    );
    assert!(
        text.contains("tidewire_backend_breaker_openings_total{event=\"request\"}")
            && !text.contains("tidewire_backend_breaker_openings_total{event=\"request\"} 0"),
        "{text}"
    );
    // Who fails cannot use up the probes.
    wait_until("requests are sent again", || {
        error_of(&mut users[0], "bad");
        ask(&mut dan, &json!("good")) == json!({ "payload": 1 })
    });
    assert_served(&mut dan);
}

#[test]
fn slow_requests_of_one_user_leave_connections_to_others() {
    let gate = Gate::default();
    let passing = gate.clone();
    let backend = backend(move |word| {
        if word == "slow" {
            passing.pass();
        }
        answer(json!({ "payload": 1 }))
    });
    let server = with_metrics(patient(&backend, &EVENTS));
    let mut slow = connect_as(&server, "slow");
    for number in 0..40 {
        let call = json!({"t": "call_request", "cid": number.to_string(),
            "p": {"type": "a", "payload": "slow"}});
        slow.send_text(&call.to_string());
    }
    wait_until("all of them are on their way", || {
        metrics(&server).contains("tidewire_backend_in_flight 40")
    });
    for user in ["ann", "bob", "cid", "dan"] {
        let mut client = connect_as(&server, user);
        assert_served(&mut client);
        subscribe(&mut client, json!(["news"]));
        let published = publication(&mut client, user, &Value::Null);
        assert_eq!(published["t"], "publish_response");
        client.send_text(&json!({"t": "note", "p": user}).to_string());
        wait_until("the message is accepted", || {
            let messages = backend.events("message");
            messages.iter().any(|event| event["user"] == user)
        });
    }
    gate.open();
    for _ in 0..40 {
        assert_eq!(slow.next_json()["p"], json!({ "payload": 1 }));
    }
}

#[test]
fn a_message_that_fails_takes_no_other_with_it() {
    let backend = backend(good_or_bad);
    let server = with_metrics(patient(&backend, &EVENTS));
    let mut clients = ["ann", "eve", "bob"].map(|user| connect_as(&server, user));
    for number in 0..30 {
        for (client, word) in clients.iter_mut().zip(["good", "bad", "good"]) {
            client.send_text(&json!({"t": "note", "p": word, "n": number}).to_string());
        }
    }
    wait_until("every good message is accepted", || {
        let metrics = metrics(&server);
        let accepted = r#"tidewire_backend_events_total{event="message"} "#;
        let line = metrics.lines().find_map(|line| line.strip_prefix(accepted));
        line.expect("a count").parse::<u64>().expect("a number") >= 60
    });
}

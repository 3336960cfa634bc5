//! A backend that is slow, silent or elsewhere, clients that ask too much or leave too early, and the end of the server.

use super::common::http::Http;
use super::common::topics::subscribe;
use super::common::{Opening, certified, connect_v1, start, wait_until};
use super::server::{Behaviour, Gate, TestBackend};
use super::{answer, ask, assert_fails, backend_at, publication, server_for, with};
use serde_json::{Value, json};
use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;
use tidewire_engine::apps::{Echo, Sink};
use tidewire_engine::{BackendConfig, BackendEvent, BackendUrl, Server};
use tidewire_net::tls;

pub(super) fn patient(backend: &TestBackend, events: &[BackendEvent]) -> BackendConfig {
    let mut config = backend_at(backend.address, events);
    config.timeout_ms = 60_000;
    config
}

pub(super) fn metrics(server: &Server) -> String {
    let address = server.ops_address().expect("an operations listener");
    Http::connect(address).ask("GET", "/metrics", "", "").body
}

#[test]
fn nobody_waits_for_an_answer_to_another_client() {
    let gate = Gate::default();
    let passing = gate.clone();
    let backend = TestBackend::start(move |body, _| {
        let slow = [&body["query"], &body["topic"], &body["payload"]];
        if slow.contains(&&json!("slow")) {
            passing.pass();
        }
        answer(json!({}))
    });
    let events = [
        BackendEvent::Connect,
        BackendEvent::Publish,
        BackendEvent::Request,
    ];
    let server = start(with(patient(&backend, &events)), Sink);
    let mut slow = connect_v1(&server);
    for message in [
        json!({"t": "call_request", "cid": "c", "p": {"type": "a", "payload": "slow"}}),
        json!({"t": "publish_request", "cid": "p", "p": {"topic": "slow", "type": "a", "payload": 1}}),
    ] {
        slow.send_text(&message.to_string());
    }
    let address = server.address();
    let opening = std::thread::spawn(move || {
        let mut client = Opening::new(address).target("/ws?slow").open();
        client.next_json()
    });
    wait_until("the backend has three slow requests", || {
        backend.received().len() == 4
    });
    for _ in 0..3 {
        let mut other = connect_v1(&server);
        let published = publication(&mut other, "fast", &json!(1));
        assert_eq!(published["t"], "publish_response", "{published}");
        assert_eq!(ask(&mut other, &json!(1)), json!({"payload": {}}));
    }
    gate.open();
    let first = opening.join().expect("a session");
    assert_eq!(first["t"], "server_ready");
    let mut answers = [slow.next_json(), slow.next_json()].map(|answer| answer["t"].clone());
    answers.sort_by_key(Value::to_string);
    assert_eq!(answers, ["call_response", "publish_response"]);
}

#[test]
fn answers_to_clients_that_have_left_are_dropped() {
    let gate = Gate::default();
    let passing = gate.clone();
    let backend = TestBackend::start(move |body, _| {
        if body["query"] != "new" {
            passing.pass();
        }
        answer(json!({ "user": "ada" }))
    });
    let mut config = with(patient(&backend, &[BackendEvent::Connect]));
    config.limits.handshake_timeout_ms = 100;
    let server = start(config, Sink);
    for _ in 0..3 {
        let address = server.address();
        std::thread::spawn(move || Opening::new(address).refused());
    }
    wait_until("three clients are given up", || {
        backend.received().len() == 3 && server.handle().counters().handshakes_failed == 3
    });
    gate.open();
    // Their answers come to nobody, whoever has their places now.
    for _ in 0..3 {
        let mut client = Opening::new(server.address()).target("/ws?new").open();
        assert_eq!(client.next_json()["t"], "server_ready");
    }
    assert_eq!(server.handle().counters().handshakes_completed, 3);
}

#[test]
fn questions_of_one_connection_are_decided_in_order() {
    let backend = TestBackend::start(|body, _| match body["event"].as_str() {
        Some("subscribe") => {
            std::thread::sleep(Duration::from_millis(50));
            answer(json!({}))
        }
        _ => answer(json!({})),
    });
    let events = [BackendEvent::Subscribe, BackendEvent::Publish];
    let server = server_for(&backend, &events);
    let mut client = connect_v1(&server);
    for number in 0..3 {
        let topic = format!("t{number}");
        let subscription =
            json!({"t": "subscription_update", "p": {"action": "subscribe", "topics": [topic]}});
        let publication =
            json!({"t": "publish_request", "p": {"topic": topic, "type": "a", "payload": number}});
        client.send_text(&subscription.to_string());
        client.send_text(&publication.to_string());
    }
    let order = backend_order(&backend, 6);
    assert_eq!(
        order,
        [
            "subscribe",
            "publish",
            "subscribe",
            "publish",
            "subscribe",
            "publish"
        ]
    );
}

fn backend_order(backend: &TestBackend, count: usize) -> Vec<String> {
    wait_until("the backend has all", || backend.received().len() == count);
    let received = backend.received().into_iter();
    let names = received.map(|one| one.json()["event"].as_str().expect("a name").to_owned());
    names.collect()
}

#[test]
fn one_client_does_not_take_the_room_of_others() {
    let backend = TestBackend::start(|body, _| match body["event"].as_str() {
        Some("connect") => answer(json!({ "user": body["query"] })),
        _ => Behaviour::Silence,
    });
    let events = [BackendEvent::Connect, BackendEvent::Message];
    let mut config = patient(&backend, &events);
    config.in_flight_max = 8;
    let mut config = with(config);
    config.ops_listen = Some((Ipv4Addr::LOCALHOST, 0).into());
    let server = start(config, Sink);
    let flood = |user: &str, messages: usize| {
        let target = format!("/ws?{user}");
        let mut client = Opening::new(server.address()).target(&target).open();
        client.next_json();
        for number in 0..messages {
            client.send_text(&json!({"t": "note", "p": number}).to_string());
        }
        for _ in 2..messages {
            assert_eq!(client.next_json()["p"]["code"], "QUEUE_FULL");
        }
        client
    };
    let _ann = flood("ann", 40);
    let _bob = flood("bob", 3);
    let metrics = metrics(&server);
    let full = r#"tidewire_backend_failures_total{event="message",kind="full"} 39"#;
    assert!(metrics.contains(full), "{metrics}");
    assert!(metrics.contains("tidewire_backend_waiting 4"), "{metrics}");
}

#[test]
fn metrics_count_answers_and_nonsense() {
    let backend = TestBackend::start(|body, _| match body["payload"].as_bool() {
        Some(true) => Behaviour::Answer(200, "<html>".to_owned()),
        _ => answer(json!({})),
    });
    let mut config = with(backend_at(backend.address, &[BackendEvent::Request]));
    config.ops_listen = Some((Ipv4Addr::LOCALHOST, 0).into());
    let server = start(config, Sink);
    let mut client = connect_v1(&server);
    ask(&mut client, &json!(false));
    for _ in 0..2 {
        let failed = ask(&mut client, &json!(true));
        assert_eq!(failed["error"]["code"], "HANDLER_ERROR");
    }
    let lines = [
        r#"tidewire_backend_events_total{event="request"} 1"#,
        r#"tidewire_backend_failures_total{event="request",kind="invalid"} 2"#,
        r#"tidewire_backend_failures_total{event="connect",kind="invalid"} 0"#,
        r#"tidewire_backend_breaker_open{event="request"} 0"#,
        r#"tidewire_backend_requests{event="request"} 0"#,
        "tidewire_backend_connections 1",
        "tidewire_backend_in_flight 0",
    ];
    // A client can have its answer before the link has counted it.
    wait_until("everything is counted", || {
        let metrics = metrics(&server);
        lines.iter().all(|line| metrics.contains(line))
    });
}

#[test]
fn a_slow_backend_shows_in_the_histogram_of_its_requests() {
    let backend = TestBackend::start(|body, _| match body["payload"].as_str() {
        Some("slow") => {
            std::thread::sleep(Duration::from_millis(1_200));
            answer(json!({}))
        }
        Some("wrong") => Behaviour::Answer(500, String::new()),
        Some("cut") => Behaviour::Raw(Vec::new()),
        Some("silent") => Behaviour::Silence,
        _ => answer(json!({})),
    });
    let events = [
        BackendEvent::Connect,
        BackendEvent::Request,
        BackendEvent::Message,
    ];
    let mut config = backend_at(backend.address, &events);
    config.timeout_ms = 2_000;
    let mut config = with(config);
    config.ops_listen = Some((Ipv4Addr::LOCALHOST, 0).into());
    let server = start(config, Sink);
    let mut client = connect_v1(&server);
    for payload in ["fast", "fast", "wrong", "slow", "silent", "cut"] {
        ask(&mut client, &json!(payload));
    }
    client.send_text(r#"{"t":"note","p":"fast"}"#);
    let value = |metrics: &str, series: &str| -> f64 {
        let name = format!("tidewire_backend_request_duration_seconds_{series} ");
        let line = metrics.lines().find_map(|line| line.strip_prefix(&name));
        let line = line.unwrap_or_else(|| panic!("no {name} in {metrics}"));
        line.parse().expect("a number")
    };
    wait_until("the message is counted", || {
        value(&metrics(&server), r#"count{event="batch"}"#) == 1.0
    });
    let metrics = metrics(&server);
    let value = |series: &str| value(&metrics, series);
    // The request that is cut has no answer, and so no duration.
    assert_eq!(value(r#"bucket{event="request",le="1"}"#), 3.0);
    assert!(value(r#"bucket{event="request",le="5"}"#) >= 4.0);
    assert_eq!(value(r#"bucket{event="request",le="+Inf"}"#), 5.0);
    assert_eq!(value(r#"count{event="request"}"#), 5.0);
    // The timeout is kept to the millisecond, so that 2 s may be 0.1 % less.
    assert!(value(r#"sum{event="request"}"#) >= 3.198, "{metrics}");
    assert_eq!(value(r#"count{event="connect"}"#), 1.0);
    assert_eq!(value(r#"count{event="publish"}"#), 0.0);
}

#[test]
fn a_backend_with_a_name_is_found_and_one_that_does_not_exist_is_not() {
    let backend = TestBackend::start(|_, _| answer(json!({ "payload": 1 })));
    let at = |host: &str| {
        let mut config = backend_at(backend.address, &[BackendEvent::Request]);
        let url = format!("http://{host}:{}/tidewire?a=b", backend.address.port());
        config.url = BackendUrl::parse(&url).expect("a URL");
        start(with(config), Sink)
    };
    let server = at("localhost");
    assert_eq!(
        ask(&mut connect_v1(&server), &Value::Null),
        json!({"payload": 1})
    );
    let server = at("backend.invalid");
    assert_fails(&mut connect_v1(&server), "BACKEND_UNAVAILABLE");
}

#[test]
fn a_backend_with_tls_needs_a_certificate_that_is_trusted() {
    let (files, _, _folder) = certified();
    let tls = tls::server_config(&files.certificate, &files.key).expect("a certificate");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let backend =
        TestBackend::serve_with(listener, Some(tls), |_, _| answer(json!({ "payload": 1 })));
    let mut config = backend_at(backend.address, &[BackendEvent::Request]);
    let url = format!("https://localhost:{}/tidewire?a=b", backend.address.port());
    config.url = BackendUrl::parse(&url).expect("a URL");
    let stranger = start(with(config.clone()), Sink);
    assert_fails(&mut connect_v1(&stranger), "BACKEND_UNAVAILABLE");
    assert!(
        backend.received().is_empty(),
        "nothing is sent to a stranger"
    );
    config.authorities = Some(files.certificate.clone());
    let server = start(with(config), Sink);
    for _ in 0..2 {
        assert_eq!(
            ask(&mut connect_v1(&server), &Value::Null),
            json!({"payload": 1})
        );
    }
}

#[test]
fn a_server_that_stops_reports_its_last_sessions() {
    let backend = TestBackend::start(|_, _| answer(json!({})));
    let server = server_for(&backend, &[BackendEvent::Disconnect]);
    let _clients: Vec<_> = (0..3).map(|_| connect_v1(&server)).collect();
    server.stop();
    assert_eq!(backend.events("disconnect").len(), 3);
}

#[test]
fn without_events_for_it_the_application_handles_a_message() {
    let backend = TestBackend::start(|_, _| answer(json!({})));
    let config = with(backend_at(backend.address, &[BackendEvent::Subscribe]));
    let server = start(config, Echo);
    let mut client = connect_v1(&server);
    subscribe(&mut client, json!(["a"]));
    client.send_text(&json!({"t": "note", "p": 1}).to_string());
    assert_eq!(client.next_json()["p"], 1);
    assert_eq!(backend.received().len(), 1);
}

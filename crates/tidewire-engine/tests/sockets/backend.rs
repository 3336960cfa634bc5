//! Events to a backend over real sockets: what it decides, and what happens when it fails.

use crate::common;
mod answers;
mod costs;
mod description;
mod neighbours;
mod server;
mod trouble;

use common::topics::{subscribe, update};
use common::{Client, Opening, config, connect_v1, start, wait_until};
use serde_json::{Value, json};
use server::{Behaviour, TestBackend};
use std::collections::HashSet;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tidewire_engine::apps::Sink;
use tidewire_engine::{
    AccessRules, Application, BackendAway, BackendConfig, BackendEvent, BackendSecret, BackendUrl,
    CallError, Config, ConnectDecision, ConnectRequest, Context, DecidedTopics, Message,
    PublicationRequest, Responder, Server,
};
use tidewire_wire::format::binary_text;
use tidewire_wire::secure::hmac_sha256;

const SECRET: &[u8] = b"a secret of a backend";

fn backend_at(address: SocketAddr, events: &[BackendEvent]) -> BackendConfig {
    let url = BackendUrl::parse(&format!("http://{address}/tidewire?a=b")).expect("a URL");
    let mut backend = BackendConfig::new(url);
    backend.events = events.iter().copied().collect();
    backend.secret = Some(BackendSecret(SECRET.to_vec()));
    backend
}

fn with(backend: BackendConfig) -> Config {
    let mut config = config();
    config.backend = Some(backend);
    config.topics.access = AccessRules::open();
    config
}

/// A server whose backend at this address gets these events.
fn server_for(backend: &TestBackend, events: &[BackendEvent]) -> Server {
    start(with(backend_at(backend.address, events)), Sink)
}

fn answer(body: Value) -> Behaviour {
    Behaviour::Answer(200, body.to_string())
}

fn ask(client: &mut Client, payload: &Value) -> Value {
    let call = json!({ "t": "call_request", "cid": "c", "p": {"type": "sum", "payload": payload} });
    let answer = client.ask(&call);
    assert_eq!(answer["t"], "call_response", "{answer}");
    answer["p"].clone()
}

#[track_caller]
fn assert_fails(client: &mut Client, code: &str) {
    let answer = ask(client, &Value::Null);
    assert_eq!(answer["error"]["code"], code, "{answer}");
}

fn publication(client: &mut Client, topic: &str, payload: &Value) -> Value {
    let body = json!({"topic": topic, "type": "chat", "payload": payload});
    client.ask(&json!({"t": "publish_request", "cid": "p", "p": body}))
}

#[test]
fn bytes_go_to_the_backend_and_come_back() {
    let backend = TestBackend::start(|body, _| {
        let length = body["payload"].as_str().map_or(0, str::len);
        match body["event"].as_str() {
            Some("request") if length == 0 => answer(json!({"payload": "AAH", "binary": true})),
            Some("request") => {
                answer(json!({"payload": body["payload"], "binary": body["binary"]}))
            }
            _ if body["binary"] != true => answer(json!({})),
            _ if length > 8 => answer(json!({})),
            // Other bytes in their place.
            _ => answer(json!({"payload": "/w==", "binary": true})),
        }
    });
    let server = server_for(&backend, &[BackendEvent::Request, BackendEvent::Publish]);
    let mut client = connect_v1(&server);
    subscribe(&mut client, json!(["a"]));
    let ask = |client: &mut Client, payload: &str| {
        let body = json!({"type": "mirror", "payload": payload, "binary": true});
        let answer = client.ask(&json!({"t": "call_request", "cid": "c", "p": body}));
        answer["p"].clone()
    };
    let long = binary_text(&vec![7; 65_535]);
    for text in ["AA==", long.trim_matches('"')] {
        let answered = ask(&mut client, text);
        assert!(
            answered == json!({"payload": text, "binary": true}),
            "{answered}"
        );
    }
    // The answer of the backend is marked and is not base64.
    assert_eq!(ask(&mut client, "")["error"]["code"], "HANDLER_ERROR");
    for (payload, binary, arrives) in [
        ("AAH/AAH/AAH/", true, "AAH/AAH/AAH/"),
        ("AAH/", true, "/w=="),
        ("AAH/", false, "AAH/"),
    ] {
        let mut body = json!({"topic": "a", "type": "chat", "payload": payload});
        if binary {
            body["binary"] = true.into();
        }
        client.send_text(&json!({"t": "publish_request", "p": body}).to_string());
        let message = client.next_json();
        let expected = if binary { json!(true) } else { Value::Null };
        assert_eq!((&message["b"], &message["p"]), (&expected, &json!(arrives)));
    }
}

#[test]
fn a_request_is_answered_by_the_backend() {
    let backend = TestBackend::start(|body, _| match &body["payload"] {
        Value::Array(numbers) => {
            let sum: i64 = numbers.iter().filter_map(Value::as_i64).sum();
            answer(json!({ "payload": {"sum": sum} }))
        }
        Value::String(_) => answer(json!({ "error": {"code": "NO_SUM", "message": "a text"} })),
        Value::Bool(_) => Behaviour::Chunks(r#"{"payload":[1,2]}"#.to_owned()),
        Value::Number(_) => Behaviour::UntilClose(r#"{"payload":3}"#.to_owned()),
        _ => Behaviour::Last("{}".to_owned()),
    });
    let server = server_for(&backend, &[BackendEvent::Request]);
    let mut client = connect_v1(&server);
    for _ in 0..3 {
        assert_eq!(
            ask(&mut client, &json!([1, 2, 3])),
            json!({"payload": {"sum": 6}})
        );
    }
    let refused = json!({"error": {"code": "NO_SUM", "message": "a text"}});
    assert_eq!(ask(&mut client, &json!("a")), refused);
    assert_eq!(ask(&mut client, &json!(true)), json!({"payload": [1, 2]}));
    assert_eq!(ask(&mut client, &Value::Null), json!({"payload": {}}));
    assert_eq!(ask(&mut client, &json!(1)), json!({"payload": 3}));
    assert_eq!(
        ask(&mut client, &json!([4])),
        json!({"payload": {"sum": 4}})
    );
    let received = backend.received();
    let connections: Vec<usize> = received.iter().map(|one| one.connection).collect();
    assert_eq!(connections, [0, 0, 0, 0, 0, 0, 1, 2], "kept until they end");
    let first = received[0].json();
    assert_eq!(
        (&first["event"], &first["type"], &first["user"]),
        (&json!("request"), &json!("sum"), &Value::Null)
    );
    let ids: HashSet<String> = received
        .iter()
        .map(|one| one.json()["id"].to_string())
        .collect();
    assert_eq!(ids.len(), received.len());
}

#[test]
fn requests_are_signed() {
    let backend = TestBackend::start(|_, _| answer(json!({})));
    let server = server_for(&backend, &[BackendEvent::Request]);
    ask(&mut connect_v1(&server), &json!([1]));
    let received = backend.received();
    let signature = received[0].signature.as_deref().expect("a signature");
    let (time, mac) = signature.split_once(",v1=").expect("two parts");
    let time: u64 = time
        .strip_prefix("t=")
        .expect("a time")
        .parse()
        .expect("a number");
    assert!(common::unix_s().abs_diff(time) < 60);
    let signed = format!("{time}.{}", received[0].body);
    let expected = hmac_sha256(SECRET, signed.as_bytes());
    let hex: String = expected.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(mac, hex);
}

#[test]
fn failures_of_a_request_have_codes() {
    let backend = TestBackend::start(|body, _| match body["payload"].as_str() {
        Some("500") => Behaviour::Answer(500, "oops".to_owned()),
        Some("404") => Behaviour::Answer(404, String::new()),
        Some("html") => Behaviour::Answer(200, "<html>".to_owned()),
        Some("shape") => answer(json!({ "payloads": 1 })),
        Some("garbage") => Behaviour::Raw(b"\x00\x01nothing like HTTP\r\n\r\n".to_vec()),
        Some("cut") => Behaviour::Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab".to_vec()),
        Some("closed") => Behaviour::Raw(Vec::new()),
        Some("huge") => answer(json!({ "payload": "x".repeat(20_000) })),
        Some("silence") => Behaviour::Silence,
        _ => answer(json!({ "payload": "good" })),
    });
    let mut config = backend_at(backend.address, &[BackendEvent::Request]);
    config.timeout_ms = 300;
    config.answer_bytes_max = 10_000;
    let server = start(with(config), Sink);
    let mut client = connect_v1(&server);
    for (payload, code) in [
        ("500", "HANDLER_ERROR"),
        ("404", "HANDLER_ERROR"),
        ("html", "HANDLER_ERROR"),
        ("shape", "HANDLER_ERROR"),
        ("garbage", "HANDLER_ERROR"),
        ("cut", "HANDLER_ERROR"),
        ("closed", "HANDLER_ERROR"),
        ("huge", "HANDLER_ERROR"),
        ("silence", "TIMEOUT"),
    ] {
        let failed = ask(&mut client, &json!(payload));
        assert_eq!(failed["error"]["code"], code, "{payload}: {failed}");
        // A success in between keeps the circuit breaker closed.
        assert_eq!(
            ask(&mut client, &json!("")),
            json!({"payload": "good"}),
            "{payload}"
        );
    }
    let closed = backend.events("request");
    let closed = closed.iter().filter(|event| event["payload"] == "closed");
    assert_eq!(closed.count(), 1, "a request is never sent twice");
}

#[test]
fn a_dead_backend_is_left_alone_until_it_answers_again() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    drop(listener);
    let server = start(with(backend_at(address, &[BackendEvent::Request])), Sink);
    let mut client = connect_v1(&server);
    assert_fails(&mut client, "BACKEND_UNAVAILABLE");
    assert_fails(&mut client, "BACKEND_UNAVAILABLE");
    let listener = TcpListener::bind(address).expect("the port is free still");
    let _backend = TestBackend::serve(listener, |_, _| answer(json!({ "payload": 1 })));
    wait_until("the backend is asked again", || {
        ask(&mut client, &Value::Null) == json!({"payload": 1})
    });
}

#[test]
fn too_many_events_are_refused() {
    let backend = TestBackend::start(|_, _| Behaviour::Silence);
    let mut config = backend_at(backend.address, &[BackendEvent::Request]);
    // One address has a quarter of them.
    config.in_flight_max = 8;
    let server = start(with(config), Sink);
    let mut client = connect_v1(&server);
    for cid in ["1", "2", "3"] {
        let call = json!({"t": "call_request", "cid": cid, "p": {"type": "sum"}});
        client.send_text(&call.to_string());
    }
    let refused = client.next_json();
    assert_eq!(
        (&refused["cid"], &refused["p"]["error"]["code"]),
        (&json!("3"), &json!("BACKEND_UNAVAILABLE"))
    );
}

#[test]
fn the_backend_admits_connections() {
    let backend = TestBackend::start(|body, _| match body["query"].as_str() {
        Some("token=ada") => answer(json!({
            "user": "ada",
            "access": {"subscribe": {"allow": ["news", "users.{sub}"]}},
            "subscriptions": ["news"],
        })),
        Some("token=eve") => answer(json!({ "refused": {"reason": "not today"} })),
        _ => answer(json!({})),
    });
    let server = server_for(&backend, &[BackendEvent::Connect]);
    let opening = |query: &str| {
        let target = format!("/ws?{query}");
        Opening::new(server.address())
            .target(&target)
            .header("Cookie", "a=b")
    };
    let mut ada = opening("token=ada").open();
    let ready = ada.next_json();
    assert_eq!(ready["p"]["details"]["user_id"], "ada", "{ready}");
    let told = ada.next_json();
    assert_eq!(told["p"]["success_topics"], json!(["news"]), "{told}");
    let answer = update(&mut ada, "subscribe", json!(["users.ada", "other"]));
    assert_eq!(answer["success_topics"], json!(["users.ada"]));
    let (status, body) = opening("token=eve").refused();
    assert_eq!(status, 403);
    assert!(body.contains("not today"), "{body}");
    let mut other = opening("token=x").open();
    assert_eq!(other.next_json()["t"], "server_ready");
    let events = backend.events("connect");
    assert_eq!(
        (&events[0]["path"], &events[0]["address"]),
        (&json!("/ws"), &json!("127.0.0.1"))
    );
    assert_eq!(events[0]["headers"]["cookie"], "a=b");
    assert_eq!(server.handle().connections(), 2);
}

#[test]
fn without_an_answer_connections_are_refused_or_allowed() {
    for (away, expected) in [(BackendAway::Refuse, 503), (BackendAway::Allow, 101)] {
        for behaviour in [500, 200] {
            let backend = TestBackend::start(move |_, _| match behaviour {
                500 => Behaviour::Answer(500, String::new()),
                _ => Behaviour::Answer(200, r#"{"refuse": true}"#.to_owned()),
            });
            let mut config = backend_at(backend.address, &[BackendEvent::Connect]);
            config.away = away;
            let server = start(with(config), Sink);
            let opening = Opening::new(server.address());
            if expected == 101 {
                assert_eq!(opening.open().next_json()["t"], "server_ready");
            } else {
                assert_eq!(opening.refused().0, expected);
            }
        }
    }
}

#[test]
fn a_question_is_asked_again_if_the_connection_ends_before_the_answer() {
    let backend = TestBackend::start(|_, before| match before {
        0 => Behaviour::Raw(Vec::new()),
        _ => answer(json!({ "user": "ada" })),
    });
    let server = server_for(&backend, &[BackendEvent::Connect]);
    let mut client = Opening::new(server.address()).open();
    assert_eq!(client.next_json()["p"]["details"]["user_id"], "ada");
    let events = backend.events("connect");
    assert_eq!(events.len(), 2);
    assert_eq!(events[0], events[1], "with the same id");
}

#[test]
fn the_backend_decides_about_subscriptions() {
    let backend = TestBackend::start(|body, before| match before {
        0 => answer(json!({ "refused_topics": {"b": {"code": "PAY", "reason": "pay first"}} })),
        1 => answer(json!({ "refused": {} })),
        2 => Behaviour::Answer(503, String::new()),
        _ => answer(json!({ "refused_topics": {}, "refused": body.get("nothing") })),
    });
    let server = server_for(&backend, &[BackendEvent::Subscribe]);
    let mut client = connect_v1(&server);
    let told = update(&mut client, "subscribe", json!(["a", "b", "c"]));
    assert_eq!(told["success_topics"], json!(["a", "c"]), "{told}");
    assert_eq!(told["failures"][0]["code"], "PAY");
    assert_eq!(told["failures"][0]["message"], "pay first");
    assert_eq!(client.next_json()["t"], "error");
    for (topic, code) in [("d", "TOPIC_FORBIDDEN"), ("e", "BACKEND_UNAVAILABLE")] {
        let told = update(&mut client, "subscribe", json!([topic]));
        assert_eq!(told["failures"][0]["code"], code, "{told}");
        assert_eq!(client.next_json()["p"]["code"], code);
    }
    subscribe(&mut client, json!(["f"]));
    assert_eq!(
        backend.events("subscribe")[0]["topics"],
        json!(["a", "b", "c"])
    );
}

#[test]
fn the_backend_decides_about_publications_and_their_order_stays() {
    let backend = TestBackend::start(|body, _| match body["payload"].as_str() {
        Some("bad") => answer(json!({ "refused": {"reason": "rude"} })),
        Some("fail") => Behaviour::Answer(500, String::new()),
        Some("change") => answer(json!({ "payload": {"changed": true} })),
        _ => Behaviour::Answer(204, String::new()),
    });
    let server = server_for(&backend, &[BackendEvent::Publish]);
    let mut reader = connect_v1(&server);
    subscribe(&mut reader, json!(["chat"]));
    let mut writer = connect_v1(&server);
    let refused = publication(&mut writer, "chat", &json!("bad"));
    assert_eq!(refused["p"]["code"], "TOPIC_FORBIDDEN", "{refused}");
    assert_eq!(refused["p"]["message"], "rude");
    let failed = publication(&mut writer, "chat", &json!("fail"));
    assert_eq!(failed["p"]["code"], "BACKEND_UNAVAILABLE", "{failed}");
    let published = publication(&mut writer, "chat", &json!("change"));
    assert_eq!(published["t"], "publish_response", "{published}");
    assert_eq!(reader.next_json()["p"], json!({"changed": true}));
    for number in 0..50 {
        let body = json!({"topic": "chat", "type": "chat", "payload": number});
        let message = json!({"t": "publish_request", "p": body});
        writer.send_text(&message.to_string());
    }
    for number in 0..50 {
        assert_eq!(reader.next_json()["p"], number);
    }
}

/// Refuses what is "app", and doubles what is a number.
#[derive(Clone)]
struct Doubler(Arc<DecidedTopics>);

impl Application for Doubler {
    fn on_message(&mut self, _: &mut Context<'_>, _: Message<'_>) {}

    fn decided_topics(&self) -> Option<&DecidedTopics> {
        Some(&self.0)
    }

    fn on_publication(
        &mut self,
        _: &mut Context<'_>,
        publication: PublicationRequest<'_>,
        responder: Responder,
    ) {
        let number = publication.payload.parse::<u64>();
        responder.respond(number.map(|n| (2 * n).to_string()).map_err(|_| CallError {
            code: "NO_NUMBER".into(),
            message: publication.payload.into(),
        }));
    }
}

#[test]
fn the_backend_decides_before_the_application() {
    let backend = TestBackend::start(|body, _| match body["payload"].as_str() {
        Some("bad") => answer(json!({ "refused": {"code": "RUDE", "reason": "rude"} })),
        Some("wait") => answer(json!({ "refused": {"code": "RATE_LIMITED"} })),
        Some("change") => answer(json!({ "payload": 4 })),
        _ => Behaviour::Answer(204, String::new()),
    });
    let topics = DecidedTopics::default();
    topics.set(vec!["chat".into()]).unwrap();
    let config = with(backend_at(backend.address, &[BackendEvent::Publish]));
    let server = start(config, Doubler(Arc::new(topics)));
    let mut reader = connect_v1(&server);
    subscribe(&mut reader, json!(["chat", "other"]));
    let mut writer = connect_v1(&server);
    for (payload, code, words) in [
        (json!("bad"), "RUDE", "rude"),
        (
            json!("wait"),
            "HANDLER_ERROR",
            "the backend refuses this publication",
        ),
        (json!("app"), "NO_NUMBER", r#""app""#),
    ] {
        let refused = publication(&mut writer, "chat", &payload);
        assert_eq!(refused["p"]["code"], code, "{refused}");
        assert_eq!(refused["p"]["message"], words, "{refused}");
    }
    for (topic, payload, expected) in [
        ("chat", json!("change"), json!(8)),
        ("chat", json!(3), json!(6)),
        ("other", json!("change"), json!(4)),
        ("other", json!("app"), json!("app")),
    ] {
        let published = publication(&mut writer, topic, &payload);
        assert_eq!(published["t"], "publish_response", "{published}");
        assert_eq!(reader.next_json()["p"], expected);
    }
}

#[test]
fn messages_and_ends_come_in_batches_and_in_order() {
    let backend = TestBackend::start(|_, before| match before {
        // The first batch is sent again.
        0 => Behaviour::Answer(500, String::new()),
        _ => Behaviour::Answer(204, String::new()),
    });
    let events = [BackendEvent::Message, BackendEvent::Disconnect];
    let server = server_for(&backend, &events);
    let mut client = connect_v1(&server);
    for number in 0..100 {
        client.send_text(&json!({"t": "note", "p": {"n": number}}).to_string());
    }
    drop(client);
    wait_until("the end is reported", || {
        !backend.events("disconnect").is_empty()
    });
    let mut seen = HashSet::new();
    let mut messages = backend.events("message");
    messages.retain(|event| seen.insert(event["id"].to_string()));
    let numbers: Vec<u64> = messages
        .iter()
        .filter_map(|event| event["message"]["p"]["n"].as_u64())
        .collect();
    assert_eq!(numbers, (0..100).collect::<Vec<_>>());
    assert_eq!(backend.events("disconnect")[0]["by"], "lost");
    assert!(backend.received().len() < 50, "several in one request");
}

#[test]
fn a_stopped_server_waits_for_no_backend() {
    let backend = TestBackend::start(|_, _| Behaviour::Silence);
    let server = server_for(&backend, &[BackendEvent::Request]);
    let mut client = connect_v1(&server);
    let call = json!({"t": "call_request", "cid": "c", "p": {"type": "sum"}});
    client.send_text(&call.to_string());
    wait_until("the backend has the request", || {
        backend.received().len() == 1
    });
    server.stop();
}

/// Decides about clients whose request has a query.
#[derive(Clone)]
struct QueryGate(Arc<AtomicUsize>);

impl Application for QueryGate {
    fn on_message(&mut self, _: &mut Context<'_>, _: Message<'_>) {}

    fn decides_connections(&self) -> bool {
        true
    }

    fn on_connect_request(&mut self, request: ConnectRequest) {
        self.0.fetch_add(1, Ordering::Relaxed);
        let decision = ConnectDecision::from_json(br#"{"user": "by the application"}"#);
        let is_decided = request.target.contains('?');
        let decision = is_decided.then(|| decision.expect("a decision"));
        request.responder.decide(decision, None);
    }
}

#[test]
fn the_backend_is_asked_about_clients_about_whom_the_application_does_not_decide() {
    let backend = TestBackend::start(|_, _| answer(json!({ "user": "by the backend" })));
    let mut config = with(backend_at(backend.address, &[BackendEvent::Connect]));
    // Two questions about one client take one place.
    config.limits.handshakes_per_address_max = 1;
    let asked = Arc::new(AtomicUsize::new(0));
    let server = start(config, QueryGate(Arc::clone(&asked)));
    let user = |target: &str| {
        let mut client = Opening::new(server.address()).target(target).open();
        client.next_json()["p"]["details"]["user_id"].clone()
    };
    assert_eq!(user("/ws"), "by the backend");
    assert_eq!(user("/ws?x"), "by the application");
    // Though each request is read again after an answer.
    assert_eq!(asked.load(Ordering::Relaxed), 2);
    assert_eq!(backend.events("connect").len(), 1);
}

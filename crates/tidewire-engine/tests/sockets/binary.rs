//! Binary payloads through every way of the server, in both formats: the same bytes arrive, and nothing that looks like
//! them is taken for them.

use crate::common;

use common::api::{config_with_api, with_key};
use common::{CheckedEcho, Client, Opening, Said, start, token, unix_s, wait_until};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use tidewire_engine::apps::Sink;
use tidewire_engine::{
    Application, Call, Config, ConnectionKey, Content, Context, Filter, Message, NewCall,
    NewPublication, Peer, Responder, Server,
};
use tidewire_wire::envelope::{Envelope, parse_json, parse_msgpack};
use tidewire_wire::format::{
    Framing, binary_bytes, binary_text, envelope_to_msgpack, identify, inflate,
};

const MIB: usize = 1024 * 1024;

/// The sizes at which something changes: nothing, padding, the heads of MessagePack, and the largest.
const SIZES: [usize; 6] = [0, 1, 255, 65_535, 65_536, MIB];

/// The clients: their queries, in both formats, with and without compression.
const QUERIES: [&str; 4] = [
    "/ws",
    "/ws?format=msgpack",
    "/ws?compression=true",
    "/ws?format=msgpack&compression=true",
];

fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 31 % 251) as u8).collect()
}

/// The base64 of bytes, without quotes.
fn base64(bytes: &[u8]) -> String {
    binary_text(bytes).trim_matches('"').to_owned()
}

fn large() -> Config {
    let mut config = config_with_api();
    config.auth = None;
    config.limits.message_bytes_max = 4 * MIB;
    config.topics.limits.payload_bytes_max = 2 * MIB;
    config
}

fn open(server: &Server, query: &str) -> Client {
    let mut client = Opening::new(server.address()).target(query).open();
    let ready = receive(&mut client);
    assert_eq!(ready.payload["details"]["features"]["binary"], true);
    send(
        &mut client,
        query,
        &json!({"t": "client_hello", "p": {"features": {"calls": true, "binary": true}}}),
    );
    let hello = receive(&mut client);
    assert_eq!(hello.payload["features"]["binary"], true);
    client
}

/// Sends a message in the format that the client asked for, with the type first.
fn send(client: &mut Client, query: &str, message: &Value) {
    let (t, text) = (&message["t"], message.to_string());
    let text = format!("{{\"t\":{t},{}", &text[1..]);
    let text = text.replacen(&format!(",\"t\":{t}}}"), "}", 1);
    if query.contains("msgpack") {
        let mut packed = b"M:".to_vec();
        envelope_to_msgpack(text.as_bytes(), &mut packed).expect("JSON");
        client.send_binary(&packed);
    } else {
        client.send_text(&text);
    }
}

/// The next message, in whatever form it comes.
#[track_caller]
fn receive(client: &mut Client) -> Envelope {
    match client.next() {
        Said::Text(text) => parse_json(text.as_bytes()).expect("a message"),
        Said::Binary(bytes) => {
            let mut inflated = Vec::new();
            let framing = identify(&bytes);
            let content = if let Framing::Zlib { prefix_bytes } = framing {
                inflate(&bytes[prefix_bytes..], &mut inflated, 8 * MIB).expect("a stream");
                &inflated[..]
            } else {
                &bytes[..]
            };
            match content.strip_prefix(b"M:") {
                Some(packed) => parse_msgpack(packed).expect("a message"),
                None => parse_json(content).expect("a message"),
            }
        }
        other => panic!("{other:?}"),
    }
}

/// The bytes of a message's payload, which is binary.
#[track_caller]
fn content(envelope: &Envelope) -> Vec<u8> {
    assert!(envelope.binary, "{}", envelope.t);
    binary_bytes(envelope.payload.to_string().as_bytes()).expect("base64")
}

fn publish_request(topic: &str, binary: bool, payload: &Value) -> Value {
    let mut body = json!({"topic": topic, "type": "data"});
    if binary {
        // Before the payload, so that it is written as bytes.
        body["binary"] = true.into();
    }
    let (head, tail) = (body.to_string(), payload.to_string());
    let text = format!("{},\"payload\":{tail}}}", &head[..head.len() - 1]);
    json!({"t": "publish_request", "cid": "p", "p": serde_json::from_str::<Value>(&text).expect("JSON")})
}

fn subscribe(client: &mut Client, query: &str, payload: &Value) -> Envelope {
    send(
        client,
        query,
        &json!({"t": "subscription_update", "p": payload}),
    );
    let answer = receive(client);
    assert_eq!(
        answer.payload["failed_topics"],
        json!([]),
        "{:?}",
        answer.payload
    );
    answer
}

#[test]
fn publications_of_clients_and_of_the_server_arrive_as_they_were_sent() {
    let server = start(large(), Sink);
    let mut subscribers = QUERIES.map(|query| open(&server, query));
    for (client, query) in subscribers.iter_mut().zip(QUERIES) {
        let all = json!({"action": "subscribe", "topics": ["kept.a"]});
        subscribe(client, query, &all);
    }
    for query in ["/ws", "/ws?format=msgpack"] {
        let mut publisher = open(&server, query);
        for length in SIZES {
            let sent = bytes(length);
            let request = publish_request("kept.a", true, &json!(base64(&sent)));
            send(&mut publisher, query, &request);
            let answer = receive(&mut publisher);
            assert_eq!(answer.t, "publish_response", "{:?}", answer.payload);
            for client in &mut subscribers {
                let arrived = receive(client);
                assert_eq!(arrived.t, "data");
                assert!(content(&arrived) == sent, "{query}, {length}");
            }
        }
    }
    for length in SIZES {
        let sent = bytes(length);
        let publication = NewPublication::new("own", Content::binary(&sent));
        server
            .handle()
            .publish("kept.a", &publication)
            .expect("room");
        server
            .handle()
            .publish_to_everyone(&publication)
            .expect("room");
        for client in &mut subscribers {
            for _ in 0..2 {
                assert!(content(&receive(client)) == sent, "{length}");
            }
        }
    }
}

#[test]
fn history_recovery_and_snapshots_have_the_bytes() {
    let mut config = large();
    config.topics.rules[0].last_value = true;
    let server = start(config, Sink);
    let handle = server.handle();
    for length in SIZES {
        let publication = NewPublication::new("data", Content::binary(bytes(length)));
        handle.publish("kept.a", &publication).expect("room");
    }
    let text = NewPublication::new("data", json!(base64(&bytes(3))).to_string());
    handle.publish("kept.a", &text).expect("room");
    for query in QUERIES {
        let mut client = open(&server, query);
        let sync = json!({"topics": ["kept.a"], "include_snapshots": true});
        send(&mut client, query, &json!({"t": "sync_request", "p": sync}));
        let snapshot = receive(&mut client);
        assert!(!snapshot.binary && snapshot.payload == base64(&bytes(3)));
        let request = json!({"topic": "kept.a", "limit": 3});
        send(
            &mut client,
            query,
            &json!({"t": "history_request", "cid": "h", "p": request}),
        );
        let page = receive(&mut client);
        let publications = page.payload["publications"].as_array().expect("a page");
        for (publication, length) in publications.iter().zip(SIZES) {
            assert_eq!(publication["b"], true);
            assert!(publication["p"] == base64(&bytes(length)), "{length}");
        }
        let replay = json!({"action": "subscribe", "topics": ["kept.a"], "replay": 100});
        subscribe(&mut client, query, &replay);
        for length in SIZES {
            let arrived = receive(&mut client);
            assert!(content(&arrived) == bytes(length), "{query}, {length}");
        }
        let last = receive(&mut client);
        assert!(!last.binary, "a text that is base64 stays a text");
        assert_eq!(last.payload, base64(&bytes(3)));
    }
}

/// Answers a call with its payload, and sends messages back.
#[derive(Clone, Default)]
struct Mirror {
    connections: Arc<Mutex<Vec<ConnectionKey>>>,
}

impl Application for Mirror {
    fn on_connect(&mut self, _: &mut Context<'_>, peer: &Peer) {
        self.connections
            .lock()
            .expect("no test failed")
            .push(peer.connection);
    }

    fn on_message(&mut self, context: &mut Context<'_>, message: Message<'_>) {
        if !message.bytes.windows(5).any(|part| part == b"burst") {
            return context.send(message);
        }
        for length in 0..20 {
            let publication = NewPublication::new("data", Content::binary(bytes(length)));
            context.publish("kept.b", &publication).expect("room");
        }
    }

    fn on_call(&mut self, context: &mut Context<'_>, call: Call<'_>, responder: Responder) {
        let answer = match call.bytes() {
            Some(bytes) => Content::binary(bytes),
            None => Content::from(call.payload),
        };
        if call.t == "later" {
            std::thread::spawn(move || responder.respond_with(Ok(answer)));
        } else {
            context.respond_with(&responder, Ok(answer));
        }
    }
}

#[test]
fn calls_have_bytes_both_ways() {
    let mirror = Mirror::default();
    let server = start(large(), mirror.clone());
    for query in QUERIES {
        let mut client = open(&server, query);
        for length in SIZES {
            let sent = base64(&bytes(length));
            for (t, binary) in [("now", true), ("later", true), ("now", false)] {
                let request =
                    json!({"t": "call_request", "cid": "1", "p": marked(t, binary, &sent)});
                send(&mut client, query, &request);
                let answer = receive(&mut client);
                assert_eq!(answer.t, "call_response");
                assert_eq!(
                    answer.payload["binary"] == true,
                    binary,
                    "{query}, {length}"
                );
                assert!(answer.payload["payload"] == sent, "{query}, {length}");
            }
            let key = *mirror.connections.lock().expect("no").last().expect("one");
            for content in [
                Content::binary(bytes(length)),
                Content::json(json!(sent).to_string()),
            ] {
                let (told, outcomes) = std::sync::mpsc::channel();
                let call = NewCall::new("confirm", content.clone());
                server.handle().call(key, call, move |outcome| {
                    told.send(outcome).expect("the test listens");
                });
                let request = receive(&mut client);
                assert_eq!(request.t, "call_request");
                assert_eq!(request.payload["binary"] == true, content.is_binary());
                let response = json!({
                    "t": "call_response", "cid": request.correlation_id,
                    "p": marked("unused", content.is_binary(), &sent),
                });
                send(&mut client, query, &response);
                let answer = outcomes.recv().expect("an outcome").expect("an answer");
                assert!(answer == content, "{query}, {length}");
            }
        }
    }
}

/// The payload of a call or an answer, with the mark before the payload.
fn marked(t: &str, binary: bool, text: &str) -> Value {
    if binary {
        json!({"type": t, "binary": true, "payload": text})
    } else {
        json!({"type": t, "payload": text})
    }
}

#[test]
fn what_looks_like_bytes_stays_what_it_is() {
    let server = start(large(), Sink);
    let mut subscribers = QUERIES.map(|query| open(&server, query));
    for (client, query) in subscribers.iter_mut().zip(QUERIES) {
        let all = json!({"action": "subscribe", "topics": ["kept.a"]});
        subscribe(client, query, &all);
    }
    for query in ["/ws", "/ws?format=msgpack"] {
        let mut publisher = open(&server, query);
        for payload in [
            json!("AAH/"),
            json!(""),
            json!({"b": true, "p": "AAH/"}),
            json!({"binary": true, "payload": "AAH/"}),
            json!([{"b": true, "p": "AAH/", "binary": true, "payload": "AAH/"}]),
        ] {
            let request = publish_request("kept.a", false, &payload);
            send(&mut publisher, query, &request);
            assert_eq!(receive(&mut publisher).t, "publish_response");
            for client in &mut subscribers {
                let arrived = receive(client);
                assert!(!arrived.binary, "{payload}");
                assert_eq!(arrived.payload, payload);
            }
        }
    }
}

#[test]
fn what_is_marked_and_is_not_base64_is_refused_by_name() {
    let server = start(large(), CheckedEcho);
    let mut client = open(&server, "/ws");
    for wrong in ["\"AAH\"", "\"A A=\"", "null", "{}", "7"] {
        for message in [
            format!(r#"{{"t":"a","cid":"c","b":true,"p":{wrong}}}"#),
            format!(r#"{{"t":"a","p":{wrong},"cid":"c","\u0062" : true}}"#),
            format!(
                r#"{{"t":"publish_request","cid":"c","p":{{"topic":"a","type":"a","binary":true,"payload":{wrong}}}}}"#
            ),
            format!(
                r#"{{"t":"call_request","cid":"c","p":{{"type":"a","binary":true,"payload":{wrong}}}}}"#
            ),
        ] {
            client.send_text(&message);
            let error = receive(&mut client);
            assert_eq!(error.t, "error", "{message}");
            assert_eq!(error.payload["code"], "INVALID_MESSAGE", "{message}");
            assert_eq!(error.correlation_id.as_deref(), Some("c"), "{message}");
        }
    }
    let packed = b"M:\x84\xa1t\xa1a\xa3cid\xa1c\xa1b\xc3\xa1p\xa3AAH";
    client.send_binary(packed);
    assert_eq!(receive(&mut client).correlation_id.as_deref(), Some("c"));
    for right in [
        r#"{"t":"a","b":true,"p":"AAH\/"}"#,
        r#"{"t":"a","b":true,"p":""}"#,
        r#"{"t":"a","b":1,"p":"AAH"}"#,
        r#"{"t":"a","p":{"b":true,"p":"AAH"}}"#,
    ] {
        client.send_text(right);
        assert_eq!(client.next_text(), right, "the echo");
    }
    client.send_binary(b"M:\x82\xa1t\xa1a\xa1p\xc4\x01\xff");
    let Said::Binary(echo) = client.next() else {
        panic!("not binary")
    };
    assert_eq!(echo, b"M:\x82\xa1t\xa1a\xa1p\xc4\x01\xff");
}

#[test]
fn a_filter_finds_nothing_in_bytes() {
    let server = start(large(), Sink);
    let mut client = open(&server, "/ws");
    let filtered = json!({"action": "subscribe", "topics": ["kept.a"], "filter": {"x": 1}});
    subscribe(&mut client, "/ws", &filtered);
    let handle = server.handle();
    let publish = |content: Content| {
        let publication = NewPublication::new("data", content);
        handle.publish("kept.a", &publication).expect("room");
    };
    publish(Content::binary(br#"{"x":1}"#));
    publish(Content::from(r#"{"x":1}"#));
    assert_eq!(receive(&mut client).payload, json!({"x": 1}));
    let document = json!({"x": {"$exists": false}});
    let filter = Filter::compile(&document).expect("a filter");
    assert!(filter.matches(binary_text(b"abc").as_bytes()));
}

#[test]
fn a_batch_for_a_client_has_the_bytes() {
    let server = start(large(), Mirror::default());
    for query in ["/ws", "/ws?format=msgpack"] {
        let mut client = Opening::new(server.address()).target(query).open();
        assert_eq!(receive(&mut client).t, "server_ready");
        let features = json!({"features": {"batching": true}});
        send(
            &mut client,
            query,
            &json!({"t": "client_hello", "p": features}),
        );
        assert_eq!(receive(&mut client).t, "server_hello");
        let payload = json!({"action": "subscribe", "topics": ["kept.b"]});
        subscribe(&mut client, query, &payload);
        send(&mut client, query, &json!({"t": "burst"}));
        let mut arrived = Vec::new();
        let mut batches = 0;
        while arrived.len() < 20 {
            let message = receive(&mut client);
            if message.t == "batch" {
                batches += 1;
                let messages = message.payload["messages"].as_array().expect("messages");
                for message in messages {
                    assert_eq!(message["b"], true);
                    arrived.push(message["p"].as_str().expect("base64").to_owned());
                }
            } else {
                arrived.push(base64(&content(&message)));
            }
        }
        assert!(batches > 0, "{query}");
        let sent: Vec<String> = (0..20).map(|length| base64(&bytes(length))).collect();
        assert_eq!(arrived, sent, "{query}");
    }
}

#[test]
fn the_http_api_takes_and_gives_bytes() {
    let server = start(large_with_tokens(), Sink);
    let claims = json!({"sub": "ada", "exp": unix_s() + 60});
    let mut client = Opening::new(server.address())
        .header("Authorization", format!("Bearer {}", token(claims)))
        .open();
    assert_eq!(receive(&mut client).t, "server_ready");
    let hello = json!({"t": "client_hello", "p": {"features": {"calls": true, "binary": true}}});
    send(&mut client, "/ws", &hello);
    assert_eq!(receive(&mut client).t, "server_hello");
    let all = json!({"action": "subscribe", "topics": ["kept.a"]});
    subscribe(&mut client, "/ws", &all);
    for length in SIZES {
        let sent = base64(&bytes(length));
        let body = json!({"topic": "kept.a", "type": "data", "payload": sent, "binary": true});
        let answer = with_key(&server, "POST", "/api/v1/publish", &body.to_string());
        assert_eq!(answer.status, 200, "{answer:?}");
        assert!(content(&receive(&mut client)) == bytes(length), "{length}");
        let body = json!({"user": "ada", "type": "ask", "payload": sent, "binary": true});
        let answer = std::thread::scope(|scope| {
            let body = body.to_string();
            let server = &server;
            let asking = scope.spawn(move || with_key(server, "POST", "/api/v1/request", &body));
            let request = receive(&mut client);
            assert_eq!(request.payload["binary"], true);
            let response = json!({
                "t": "call_response", "cid": request.correlation_id,
                "p": {"binary": true, "payload": request.payload["payload"]},
            });
            send(&mut client, "/ws", &response);
            asking.join().expect("an answer")
        });
        let answer = answer.json();
        assert_eq!(answer["binary"], true);
        assert!(answer["payload"] == sent, "{length}");
    }
    let history = with_key(&server, "GET", "/api/v1/topics/kept.a/history", "");
    assert_eq!(history.json()["publications"][1]["b"], true);
    for path in ["/api/v1/publish", "/api/v1/request"] {
        let to = if path.ends_with("request") {
            "user"
        } else {
            "topic"
        };
        let body = json!({to: "ada", "type": "a", "payload": "AAH", "binary": true});
        let answer = with_key(&server, "POST", path, &body.to_string());
        assert_eq!(
            (answer.status, answer.code()),
            (400, "invalid_payload".to_owned())
        );
    }
    wait_until("nothing is open", || {
        server.handle().counters().calls_open == 0
    });
}

fn large_with_tokens() -> Config {
    Config {
        auth: config_with_api().auth,
        ..large()
    }
}

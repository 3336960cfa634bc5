//! Publications of clients about which the application decides.

#![allow(clippy::unwrap_used, reason = "a test may end in a panic")]

use crate::common;

use common::topics::{open_topics, subscribe, update};
use common::{Client, DEADLINE, connect_v1, start, wait_until};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use tidewire_engine::queue::{Event, queue};
use tidewire_engine::{
    AccessRules, Application, CallError, Config, Content, Context, DecidedTopics, Message,
    PublicationRequest, Responder, Rules, Server, Topics,
};
use tidewire_wire::format::{MESSAGEPACK_PREFIX, json_to_msgpack};

/// Decides about the topics `rooms.*` by the type of the publication.
#[derive(Clone)]
struct Doorkeeper {
    topics: Arc<DecidedTopics>,
    asked: Arc<Mutex<Vec<Value>>>,
    kept: Arc<Mutex<Vec<Responder>>>,
}

impl Doorkeeper {
    fn new() -> Self {
        let topics = DecidedTopics::default();
        topics.set(vec!["rooms.*".into()]).unwrap();
        Self {
            topics: Arc::new(topics),
            asked: Arc::default(),
            kept: Arc::default(),
        }
    }

    fn asked(&self) -> Vec<Value> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }

    fn kept(&self) -> Responder {
        wait_until("it is asked", || !self.kept.lock().unwrap().is_empty());
        self.kept.lock().unwrap().remove(0)
    }
}

impl Application for Doorkeeper {
    fn on_message(&mut self, context: &mut Context<'_>, message: Message<'_>) {
        context.send(message);
    }

    fn decided_topics(&self) -> Option<&DecidedTopics> {
        Some(&self.topics)
    }

    fn on_publication(
        &mut self,
        context: &mut Context<'_>,
        publication: PublicationRequest<'_>,
        responder: Responder,
    ) {
        let PublicationRequest { topic, t, .. } = publication;
        let payload: Value = match publication.bytes() {
            Some(bytes) => json!({ "bytes": bytes }),
            None => serde_json::from_str(publication.payload).unwrap(),
        };
        self.asked.lock().unwrap().push(json!([topic, t, payload]));
        assert_eq!(responder.connection(), context.connection());
        match t {
            "keep" => self.kept.lock().unwrap().push(responder),
            "change" => assert!(responder.respond(Ok(r#"{"changed":true}"#.into()))),
            "binary" => assert!(context.respond_with(&responder, Ok(Content::binary([1, 2, 255])))),
            "thread" => {
                std::thread::spawn(move || responder.accept());
            }
            "refuse" => assert!(context.respond(&responder, Err(error("RUDE", "be kind")))),
            "known" => assert!(responder.respond(Err(error("LIMIT_EXCEEDED", "not so many")))),
            "fatal" => assert!(responder.respond(Err(error("AUTH_FAILED", "who are you?")))),
            "slow" => assert!(responder.respond(Err(error("RATE_LIMITED", "slow down")))),
            "full" => assert!(responder.respond(Err(error("QUEUE_FULL", "later")))),
            "no code" => assert!(responder.respond(Err(error("", "?")))),
            "no json" => assert!(responder.respond(Ok("{".into()))),
            "drop" => {}
            "twice" => {
                assert!(responder.accept());
                assert!(!responder.respond(Ok("2".into())));
                assert!(!responder.accept());
            }
            _ => assert!(responder.accept()),
        }
    }
}

fn error(code: &str, message: &str) -> CallError {
    CallError {
        code: code.into(),
        message: message.into(),
    }
}

fn request(topic: &str, t: &str, payload: &Value) -> Value {
    let body = json!({"topic": topic, "type": t, "payload": payload});
    json!({"t": "publish_request", "cid": "c", "p": body})
}

#[track_caller]
fn publish(client: &mut Client, topic: &str, t: &str) {
    let answer = client.ask(&request(topic, t, &json!(1)));
    assert_eq!(answer["t"], "publish_response", "{answer}");
    assert_eq!(
        (&answer["cid"], &answer["p"]["topic"]),
        (&json!("c"), &json!(topic))
    );
}

/// A server of rooms, a reader of `rooms.tea`, and a writer.
fn rooms(config: Config) -> (Server, Doorkeeper, Client, Client) {
    let doorkeeper = Doorkeeper::new();
    let server = start(config, doorkeeper.clone());
    let mut reader = connect_v1(&server);
    subscribe(&mut reader, json!(["rooms.tea", "halls.tea"]));
    let writer = connect_v1(&server);
    (server, doorkeeper, reader, writer)
}

#[test]
fn a_publication_goes_on_as_it_is_or_with_another_payload() {
    let (server, doorkeeper, mut reader, mut writer) = rooms(open_topics());
    for t in ["say", "thread", "twice"] {
        publish(&mut writer, "rooms.tea", t);
        let got = reader.next_json();
        assert_eq!((&got["t"], &got["p"]), (&json!(t), &json!(1)), "{got}");
        assert_eq!(doorkeeper.asked(), [json!(["rooms.tea", t, 1])]);
    }
    publish(&mut writer, "rooms.tea", "change");
    assert_eq!(reader.next_json()["p"], json!({"changed": true}));
    publish(&mut writer, "rooms.tea", "binary");
    let got = reader.next_json();
    assert_eq!(got["p"], "AQL/", "{got}");
    // Nobody is asked about other topics.
    doorkeeper.asked();
    publish(&mut writer, "halls.tea", "refuse");
    assert_eq!(reader.next_json()["t"], "refuse");
    assert!(doorkeeper.asked().is_empty());
    let counters = server.handle().counters();
    assert_eq!(counters.publications_received, 6);
    assert_eq!(counters.publications_refused, 0);
}

#[test]
fn a_refusal_has_the_codes_of_the_application_and_does_not_end_the_session() {
    let (server, _, mut reader, mut writer) = rooms(open_topics());
    for (t, code, message) in [
        ("refuse", "RUDE", "be kind"),
        ("known", "LIMIT_EXCEEDED", "not so many"),
        // By these the client would do more than tell of it.
        ("fatal", "HANDLER_ERROR", "who are you?"),
        ("slow", "HANDLER_ERROR", "slow down"),
        ("full", "HANDLER_ERROR", "later"),
        ("drop", "HANDLER_ERROR", "the application did not answer"),
        (
            "no code",
            "HANDLER_ERROR",
            "the application's error has no code",
        ),
        (
            "no json",
            "HANDLER_ERROR",
            "the application's answer is not JSON that a client can read",
        ),
    ] {
        let answer = writer.ask(&request("rooms.tea", t, &json!(1)));
        assert_eq!(answer["t"], "error", "{answer}");
        let told = &answer["p"];
        assert_eq!(answer["cid"], "c", "{answer}");
        assert_eq!(
            (&told["code"], &told["message"]),
            (&json!(code), &json!(message)),
            "{t}"
        );
        assert_eq!(told["recoverable"], true, "{answer}");
    }
    publish(&mut writer, "rooms.tea", "say");
    assert_eq!(reader.next_json()["t"], "say", "nobody got the others");
    assert_eq!(server.handle().counters().publications_refused, 8);
}

#[test]
fn what_comes_after_a_publication_waits_for_its_decision() {
    let (_server, doorkeeper, mut reader, mut writer) = rooms(open_topics());
    writer.send_text(&request("rooms.tea", "keep", &json!(1)).to_string());
    writer.send_text(&request("halls.tea", "later", &json!(2)).to_string());
    writer.send_text(r#"{"t":"echo"}"#);
    let responder = doorkeeper.kept();
    // Others do not wait for it.
    let mut other = connect_v1(&_server);
    publish(&mut other, "halls.tea", "other");
    assert_eq!(reader.next_json()["t"], "other");
    assert!(responder.respond(Ok("3".into())));
    let answers = [(); 3].map(|()| writer.next_json()["t"].clone());
    assert_eq!(answers, ["publish_response", "publish_response", "echo"]);
    assert_eq!(
        (
            reader.next_json()["p"].clone(),
            reader.next_json()["p"].clone()
        ),
        (json!(3), json!(2))
    );
}

#[test]
fn a_decision_that_takes_too_long_refuses() {
    let mut config = open_topics();
    config.limits.call_timeout_ms = 50;
    let (server, doorkeeper, mut reader, mut writer) = rooms(config);
    let answer = writer.ask(&request("rooms.tea", "keep", &json!(1)));
    assert_eq!(answer["p"]["code"], "TIMEOUT", "{answer}");
    let late = doorkeeper.kept();
    assert!(late.accept());
    let counters = || server.handle().counters();
    wait_until("it is late", || counters().call_answers_late == 1);
    publish(&mut writer, "rooms.tea", "say");
    assert_eq!(
        reader.next_json()["t"],
        "say",
        "the late decision has no effect"
    );
    // One that is gone before the decision leaves nothing behind.
    writer.send_text(&request("rooms.tea", "keep", &json!(1)).to_string());
    let responder = doorkeeper.kept();
    drop(writer);
    wait_until("the writer is gone", || server.handle().connections() == 1);
    assert!(responder.accept());
    wait_until("it is late", || counters().call_answers_late == 2);
    let mut other = connect_v1(&server);
    publish(&mut other, "rooms.tea", "say");
    assert_eq!(reader.next_json()["t"], "say");
}

#[test]
fn nobody_is_asked_about_what_is_not_allowed_or_was_decided_before() {
    let access = AccessRules {
        publish: Rules {
            allow: vec!["rooms.tea".to_owned()],
            ..Rules::default()
        },
        ..AccessRules::closed()
    };
    let mut topics = Topics {
        access,
        ..Topics::default()
    };
    topics.limits.payload_bytes_max = 64;
    let doorkeeper = Doorkeeper::new();
    let config = Config {
        topics,
        ..common::config()
    };
    let server = start(config, doorkeeper.clone());
    let mut client = connect_v1(&server);
    let answer = client.ask(&request("rooms.cake", "say", &json!(1)));
    assert_eq!(answer["p"]["code"], "TOPIC_FORBIDDEN", "{answer}");
    let answer =
        client.ask(&json!({"t": "publish_request", "cid": "c", "p": {"topic": "rooms.tea"}}));
    assert_eq!(answer["p"]["code"], "INVALID_MESSAGE", "{answer}");
    let long = json!("x".repeat(100));
    let answer = client.ask(&request("rooms.tea", "say", &long));
    assert_eq!(answer["p"]["code"], "MESSAGE_TOO_LARGE", "{answer}");
    let answer = client.ask(&request("rooms.tea", "ping", &json!(1)));
    assert_eq!(answer["p"]["code"], "INVALID_MESSAGE", "{answer}");
    assert!(doorkeeper.asked().is_empty());

    // A numbered one is decided once, though it is sent again.
    client.ask(&json!({"t": "client_hello", "p": {"producer": {"id": "p"}}}));
    for (duplicate, asked) in [(false, 1), (true, 0)] {
        let mut message = request("rooms.tea", "say", &json!(1));
        message["n"] = json!(1);
        let answer = client.ask(&message);
        assert_eq!(answer["p"]["duplicate"], duplicate, "{answer}");
        assert_eq!(client.next_json()["p"]["last"], 1);
        assert_eq!(doorkeeper.asked().len(), asked);
    }
    // A refusal is for good: those after it are not held up.
    for (number, t) in [(2, "refuse"), (3, "say")] {
        let mut message = request("rooms.tea", t, &json!(1));
        message["n"] = json!(number);
        client.send_text(&message.to_string());
    }
    assert_eq!(client.next_json()["p"]["code"], "RUDE");
    let told: Vec<Value> = (0..2).map(|_| client.next_json()).collect();
    assert!(
        told.iter()
            .any(|told| told["p"]["last"] == 3 || told["t"] == "publish_response"),
        "{told:?}"
    );
}

#[test]
fn publications_of_a_batch_are_decided_one_after_another() {
    let (_server, doorkeeper, mut reader, mut writer) = rooms(open_topics());
    let messages: Vec<Value> = (0..20)
        .map(|number| {
            let (topic, t) = match number % 4 {
                0 => ("halls.tea", "say"),
                1 => ("rooms.tea", "refuse"),
                2 => ("rooms.tea", "thread"),
                _ => ("rooms.tea", "say"),
            };
            request(topic, t, &json!(number))
        })
        .collect();
    writer.send_text(&json!({"t": "batch", "p": {"messages": messages}}).to_string());
    let answers: Vec<Value> = (0..20).map(|_| writer.next_json()["t"].clone()).collect();
    for (number, answer) in answers.iter().enumerate() {
        let expected = match number % 4 {
            1 => "error",
            _ => "publish_response",
        };
        assert_eq!(answer, expected, "{number}");
    }
    for number in (0..20).filter(|number| number % 4 != 1) {
        assert_eq!(reader.next_json()["p"], number);
    }
    assert_eq!(doorkeeper.asked().len(), 15);
}

#[test]
fn binary_payloads_and_messagepack_are_decided_as_well() {
    let (_server, doorkeeper, mut reader, mut writer) = rooms(open_topics());
    let mut body =
        json!({"topic": "rooms.tea", "type": "image", "payload": "AQL/", "binary": true});
    let answer = writer.ask(&json!({"t": "publish_request", "cid": "c", "p": body}));
    assert_eq!(answer["t"], "publish_response", "{answer}");
    assert_eq!(reader.next_json()["p"], "AQL/");
    body["type"] = json!("packed");
    let message = json!({"t": "publish_request", "p": body}).to_string();
    let mut packed = MESSAGEPACK_PREFIX.to_vec();
    json_to_msgpack(message.as_bytes(), &mut packed).unwrap();
    writer.send_binary(&packed);
    let got = reader.next_json();
    assert_eq!((&got["t"], &got["p"]), (&json!("packed"), &json!("AQL/")));
    let bytes = json!({"bytes": [1, 2, 255]});
    let expected = [
        json!(["rooms.tea", "image", bytes]),
        json!(["rooms.tea", "packed", bytes]),
    ];
    assert_eq!(doorkeeper.asked(), expected);
}

#[test]
fn a_queue_decides_about_topics_that_are_named_while_the_server_runs() {
    let topics: Arc<DecidedTopics> = Arc::default();
    let (sender, receiver) = queue(1 << 20);
    let sender = sender.with_decided(Arc::clone(&topics));
    let server = Server::start(open_topics(), move |_| sender.application()).unwrap();
    let mut client = connect_v1(&server);
    publish(&mut client, "rooms.tea", "say");
    topics
        .set(vec!["halls.>".into(), "rooms.*".into()])
        .unwrap();
    client.send_text(&request("rooms.tea", "say", &json!([1])).to_string());
    let mut kept = None;
    while kept.is_none() {
        let batch = receiver.receive(DEADLINE).unwrap().expect("a batch");
        for event in batch.events() {
            if let Event::Publication(peer, publication, responder) = event {
                assert_eq!(peer.connection, responder.connection());
                assert_eq!((publication.topic, publication.place), ("rooms.tea", 1));
                assert_eq!((publication.t, publication.payload), ("say", "[1]"));
                assert_eq!(publication.timeout_ms, 10_000);
                kept = Some(responder.clone());
            }
        }
    }
    // The batch is gone; the clone still decides.
    assert!(kept.unwrap().respond(Err(error("NO", "no"))));
    assert_eq!(client.next_json()["p"]["code"], "NO");
    // Without a reader the publication is refused, and the session goes on.
    drop(receiver);
    let answer = client.ask(&request("rooms.tea", "say", &json!(1)));
    assert_eq!(answer["p"]["code"], "HANDLER_ERROR", "{answer}");
    topics.set(Vec::new()).unwrap();
    publish(&mut client, "rooms.tea", "say");
    update(&mut client, "subscribe", json!(["rooms.tea"]));
}

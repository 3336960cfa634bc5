//! The cost of the most expensive messages for a backend: docs/limits.md says one question for each publication, topic of a
//! subscription and call, and one for a message of the application.

use super::common::connect_v1;
use super::server::TestBackend;
use super::{answer, server_for};
use serde_json::{Value, json};
use tidewire_engine::BackendEvent;
use tidewire_testkit::search::Candidate;
use tidewire_testkit::websocket::Said;
use tidewire_wire::envelope::SystemType;
use tidewire_wire::frame::OpCode;

const EVENTS: [BackendEvent; 4] = [
    BackendEvent::Subscribe,
    BackendEvent::Publish,
    BackendEvent::Request,
    BackendEvent::Message,
];

const FOUND: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../protocol/worst.json");

/// How many events a message may cause, in words of its type.
fn events_max(candidate: &Candidate) -> usize {
    let of_each = match SystemType::parse(&candidate.t) {
        Some(SystemType::PublishRequest | SystemType::CallRequest) | None => 1,
        Some(SystemType::SubscriptionUpdate | SystemType::Batch) => 1_000,
        Some(_) => 0,
    };
    of_each * candidate.batch.max(1)
}

/// The events that a message causes. A call behind it has been answered, if the message has not ended the connection.
fn events_of(candidate: &Candidate) -> Vec<Value> {
    let backend = TestBackend::start(|body, _| match body["event"].as_str() {
        Some("request") => answer(json!({"payload": "answered"})),
        _ => answer(json!({})),
    });
    let server = server_for(&backend, &EVENTS);
    let mut client = connect_v1(&server);
    match candidate.encode(64 * 1024) {
        (OpCode::Text, bytes) => client.send_text(&String::from_utf8(bytes).expect("JSON")),
        (_, bytes) => client.send_binary(&bytes),
    }
    let last = json!({"t": "call_request", "cid": "last", "p": {"type": "the last", "payload": 1}});
    client.send_text(&last.to_string());
    loop {
        let bytes = match client.next() {
            Said::Text(text) => text.into_bytes(),
            Said::Binary(bytes) => bytes,
            Said::Ping(_) | Said::Pong(_) => continue,
            Said::Close(..) | Said::End | Said::Reset => break,
        };
        if bytes.windows(8).any(|part| part == b"answered") {
            break;
        }
    }
    let bodies = backend
        .received()
        .into_iter()
        .map(|received| received.json());
    let events = bodies.flat_map(|body| match body {
        Value::Array(events) => events,
        one => vec![one],
    });
    events.filter(|event| event["type"] != "the last").collect()
}

#[test]
fn no_message_asks_the_backend_for_more_than_it_says() {
    let found = std::fs::read_to_string(FOUND).expect("what was found");
    let found: Vec<Candidate> = serde_json::from_str(&found).expect("candidates");
    let bare = SystemType::ALL.map(|system| Candidate::bare(system.as_str()));
    let mut all = 0;
    // Encryption changes nothing of what a message says.
    for candidate in bare
        .iter()
        .chain(found.iter().filter(|found| !found.is_encrypted))
    {
        let events = events_of(candidate);
        let shown = serde_json::to_string(candidate).expect("JSON");
        let most = events_max(candidate);
        assert!(
            events.len() <= most,
            "{} events, not {most}: {shown}",
            events.len()
        );
        all += events.len();
    }
    assert!(all > 0, "nothing was counted");
}

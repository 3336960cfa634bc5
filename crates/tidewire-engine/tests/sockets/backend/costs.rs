//! The cost of the most expensive messages for a backend: docs/message-costs.md says one question for each publication, topic of a
//! subscription and call, and one for a message of the application.

use super::common::connect_v1;
use super::server::TestBackend;
use super::{answer, server_for};
use serde_json::{Value, json};
use tidewire_engine::BackendEvent;
use tidewire_testkit::search::{Candidate, Grammar, climb};
use tidewire_testkit::seeds::number_of_seeds;
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

/// Returns the number of events that a message causes, and the bytes of the message; more events than docs/message-costs.md allows
/// fail the test. A call after the message shows that the server has read it, unless the message has ended the connection.
#[track_caller]
fn costs(candidate: &Candidate) -> (usize, usize) {
    let backend = TestBackend::start(|body, _| match body["event"].as_str() {
        Some("request") => answer(json!({"payload": "answered"})),
        _ => answer(json!({})),
    });
    let server = server_for(&backend, &EVENTS);
    let mut client = connect_v1(&server);
    let (opcode, message) = candidate.encode(64 * 1024);
    let length = message.len();
    match opcode {
        OpCode::Text => client.send_text(&String::from_utf8(message).expect("JSON")),
        _ => client.send_binary(&message),
    }
    let last = json!({"type": "the last", "payload": 1});
    client.send_text(&json!({"t": "call_request", "cid": "last", "p": last}).to_string());
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
    let received = backend.received();
    let bodies = received.iter().map(|received| received.json());
    let events = bodies.flat_map(|body| match body {
        Value::Array(events) => events,
        one => vec![one],
    });
    let events = events.filter(|event| event["type"] != "the last").count();
    let shown = serde_json::to_string(candidate).expect("JSON");
    let most = events_max(candidate);
    assert!(events <= most, "{events} events, not {most}: {shown}");
    (events, length)
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
        all += costs(candidate).0;
    }
    assert!(all > 0, "nothing was counted");
}

/// The same search as for the other costs: for the message of each type that asks a backend most often for each of its
/// bytes. Every message that it tries is checked.
#[test]
fn no_message_that_is_found_asks_the_backend_for_more_than_it_says() {
    let grammar = Grammar::load();
    let mut all = 0.0;
    for system in SystemType::ALL {
        for seed in 0..number_of_seeds(1) {
            let (candidate, events_per_byte) = climb(&grammar, system, seed, STEPS, |candidate| {
                let (events, bytes) = costs(&Candidate {
                    is_encrypted: false,
                    ..candidate.clone()
                });
                events as f64 / bytes as f64
            });
            all += events_per_byte;
            if events_per_byte > 0.0 {
                let shown = serde_json::to_string(&candidate).expect("JSON");
                println!("{:.1} events per KiB: {shown}", events_per_byte * 1024.0);
            }
        }
    }
    assert!(all > 0.0, "nothing was counted");
}

/// Tries of each search.
const STEPS: usize = 12;

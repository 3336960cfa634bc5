//! Every answer of a backend: statuses, bodies and ends of connections, for each event that has an answer. An answer that
//! is none lets nobody pass.

use super::common::topics::update;
use super::common::{Client, Opening, connect_v1, start};
use super::server::{Behaviour, TestBackend, lock};
use super::{answer, ask, backend_at, publication, with};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use tidewire_engine::apps::Sink;
use tidewire_engine::{BackendAway, BackendEvent, Server};

/// The end of an answer, and of its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// Whole: with a length, in chunks, with a length and then closed, or closed in order at its end.
    Length,
    Chunks,
    LengthAndClose,
    Close,
    /// Cut: shorter than its length, without its last chunk, or reset.
    Short,
    ShortChunks,
    ShortReset,
    Reset,
}

const ENDS: [End; 8] = [
    End::Length,
    End::Chunks,
    End::LengthAndClose,
    End::Close,
    End::Short,
    End::ShortChunks,
    End::ShortReset,
    End::Reset,
];

const STATUSES: [u16; 19] = [
    200, 201, 202, 203, 204, 205, 206, 226, 299, 300, 302, 304, 400, 401, 403, 404, 500, 502, 503,
];

const REFUSAL: &str = r#"{"refused":{"reason":"no"}}"#;

const BODIES: [&str; 14] = [
    "",
    " \r\n\t",
    "{}",
    " {} \n",
    "{",
    "[]",
    "null",
    "true",
    "\"{}\"",
    "<html>",
    "{}{}",
    r#"{"nothing":1}"#,
    r#"{"refused":true}"#,
    REFUSAL,
];

/// What an event comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effect {
    Pass,
    Refused,
    Away,
}

#[derive(Debug, Clone, Copy)]
struct Case {
    status: u16,
    body: &'static str,
    end: End,
}

impl Case {
    fn all() -> impl Iterator<Item = Self> {
        let cases = STATUSES.iter().flat_map(|status| {
            BODIES.iter().flat_map(|body| {
                ENDS.iter().map(|end| Self {
                    status: *status,
                    body,
                    end: *end,
                })
            })
        });
        cases.filter(|case| case.is_certain())
    }

    /// A reset may overtake an answer that is whole before.
    fn is_certain(self) -> bool {
        self.status != 204 || !matches!(self.end, End::ShortReset | End::Reset)
    }

    fn behaviour(self) -> Behaviour {
        let Self { status, body, end } = self;
        let length = match end {
            End::Short | End::ShortReset => body.len() + 1,
            _ => body.len(),
        };
        let chunk = match body {
            "" => String::new(),
            body => format!("{:x}\r\n{body}\r\n", body.len()),
        };
        let rest = match end {
            End::Chunks => format!("Transfer-Encoding: chunked\r\n\r\n{chunk}0\r\n\r\n"),
            End::ShortChunks => format!("Transfer-Encoding: chunked\r\n\r\n{chunk}"),
            End::Close | End::Reset => format!("\r\n{body}"),
            _ => format!("Content-Length: {length}\r\n\r\n{body}"),
        };
        // So that the next request takes another connection.
        let close = match end {
            End::Length | End::Chunks => "",
            _ => "Connection: close\r\n",
        };
        let bytes = format!("HTTP/1.1 {status} X\r\n{close}{rest}").into_bytes();
        match end {
            End::Length | End::Chunks => Behaviour::Keep(bytes),
            End::LengthAndClose | End::Close | End::Short | End::ShortChunks => {
                Behaviour::Raw(bytes)
            }
            End::ShortReset | End::Reset => Behaviour::Reset(bytes),
        }
    }

    /// Written down apart from the engine: 204, or 200 and one whole object with fields of this event.
    fn expected(self, event: BackendEvent) -> Effect {
        let is_whole = matches!(
            self.end,
            End::Length | End::Chunks | End::LengthAndClose | End::Close
        );
        match (self.status, self.body) {
            (204, _) => Effect::Pass,
            (200, "{}" | " {} \n") if is_whole => Effect::Pass,
            (200, REFUSAL) if is_whole && event != BackendEvent::Request => Effect::Refused,
            _ => Effect::Away,
        }
    }
}

/// A server whose backend gives the answer of the case to what says `case`, and a good one to the rest.
struct World {
    server: Server,
    case: Arc<Mutex<Option<Case>>>,
    client: Client,
    _backend: TestBackend,
    asked: usize,
}

impl World {
    fn new(event: BackendEvent, away: BackendAway) -> Self {
        let case = Arc::new(Mutex::new(None::<Case>));
        let current = Arc::clone(&case);
        let backend = TestBackend::start(move |body, _| {
            let facts = [
                &body["query"],
                &body["topic"],
                &body["payload"],
                &body["topics"][0],
            ];
            let is_case =
                |fact: &&Value| fact.as_str().is_some_and(|fact| fact.starts_with("case"));
            match facts.iter().any(is_case) {
                true => lock(&current).expect("a case").behaviour(),
                false => answer(json!({})),
            }
        });
        let mut config = backend_at(backend.address, &[event]);
        config.away = away;
        let mut config = with(config);
        // One client asks thousands of times, most of them in vain.
        config.limits.ping_interval_ms = 1 << 40;
        config.limits.errors_max = 0;
        let server = start(config, Sink);
        Self {
            client: connect_v1(&server),
            server,
            case,
            _backend: backend,
            asked: 0,
        }
    }

    fn try_case(&mut self, event: BackendEvent, case: Case) -> Effect {
        *lock(&self.case) = Some(case);
        self.asked += 1;
        let word = format!("case.{}", self.asked);
        self.ask(event, &word)
    }

    fn ask(&mut self, event: BackendEvent, word: &str) -> Effect {
        match event {
            BackendEvent::Connect => self.connect(word),
            BackendEvent::Subscribe => self.subscribe(word),
            BackendEvent::Publish => self.publish(word),
            _ => match ask(&mut self.client, &json!(word)) {
                answer if answer == json!({ "payload": {} }) => Effect::Pass,
                answer if answer["error"]["code"] == "HANDLER_ERROR" => Effect::Away,
                answer => panic!("{word}: {answer}"),
            },
        }
    }

    fn connect(&mut self, word: &str) -> Effect {
        let target = format!("/ws?{word}");
        match status_of(&Opening::new(self.server.address()).target(&target)) {
            101 => Effect::Pass,
            403 => Effect::Refused,
            503 => Effect::Away,
            status => panic!("{word}: {status}"),
        }
    }

    fn subscribe(&mut self, word: &str) -> Effect {
        let told = update(&mut self.client, "subscribe", json!([word]));
        if told["success_topics"] == json!([word]) {
            return Effect::Pass;
        }
        assert_eq!(self.client.next_json()["t"], "error");
        effect_of(&told["failures"][0]["code"])
    }

    fn publish(&mut self, word: &str) -> Effect {
        effect_of_publication(&publication(&mut self.client, word, &Value::Null))
    }
}

fn effect_of_publication(answer: &Value) -> Effect {
    match answer["t"].as_str() {
        Some("publish_response") => Effect::Pass,
        _ => effect_of(&answer["p"]["code"]),
    }
}

/// The status of the answer to an upgrade; the connection ends then.
fn status_of(opening: &Opening) -> u16 {
    let mut stream = TcpStream::connect(opening.address).expect("the server listens");
    stream.write_all(&opening.request()).expect("it reads");
    let mut line = String::new();
    let mut reader = BufReader::new(stream);
    reader.read_line(&mut line).expect("it answers");
    let status = line.split(' ').nth(1).expect(&line);
    status.parse().expect("a number")
}

fn effect_of(code: &Value) -> Effect {
    match code.as_str() {
        Some("TOPIC_FORBIDDEN") => Effect::Refused,
        Some("BACKEND_UNAVAILABLE") => Effect::Away,
        _ => panic!("{code}"),
    }
}

fn check_all(event: BackendEvent, away: BackendAway) {
    let mut world = World::new(event, away);
    let mut wrong = Vec::new();
    for case in Case::all() {
        let expected = match case.expected(event) {
            Effect::Away if away == BackendAway::Allow => Effect::Pass,
            expected => expected,
        };
        let effect = world.try_case(event, case);
        if effect != expected {
            wrong.push(format!("{case:?}: {effect:?} instead of {expected:?}"));
        }
        // A success keeps the circuit breaker closed, so that the next case is tried.
        assert_eq!(world.ask(event, "good"), Effect::Pass, "after {case:?}");
    }
    assert!(
        wrong.is_empty(),
        "{} cases: {:#?}",
        wrong.len(),
        &wrong[..wrong.len().min(10)]
    );
}

#[test]
fn every_answer_to_connect() {
    check_all(BackendEvent::Connect, BackendAway::Refuse);
}

#[test]
fn every_answer_to_subscribe() {
    check_all(BackendEvent::Subscribe, BackendAway::Refuse);
}

#[test]
fn every_answer_to_publish() {
    check_all(BackendEvent::Publish, BackendAway::Refuse);
}

#[test]
fn every_answer_to_publish_where_an_absent_backend_allows() {
    check_all(BackendEvent::Publish, BackendAway::Allow);
}

#[test]
fn every_answer_to_request() {
    check_all(BackendEvent::Request, BackendAway::Refuse);
}

#[test]
fn heads_that_are_no_answer_let_nothing_pass() {
    const HEADS: [(&str, Effect); 7] = [
        ("", Effect::Away),
        ("{}", Effect::Away),
        ("HTTP/1.1 204 No Content\r\nServer: a", Effect::Away),
        ("HTTP/1.1 100 Continue\r\n\r\n", Effect::Away),
        (
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: a\r\nConnection: upgrade\r\n\r\n{}",
            Effect::Away,
        ),
        (
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 202 Accepted\r\nContent-Length: 2\r\n\r\n{}",
            Effect::Away,
        ),
        (
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
            Effect::Pass,
        ),
    ];
    let backend = TestBackend::start(|body, _| {
        let place = body["topic"]
            .as_str()
            .and_then(|topic| topic.strip_prefix("case."));
        match place.and_then(|place| place.parse::<usize>().ok()) {
            Some(place) => Behaviour::Raw(HEADS[place].0.as_bytes().to_vec()),
            None => answer(json!({})),
        }
    });
    let server = start(
        with(backend_at(backend.address, &[BackendEvent::Publish])),
        Sink,
    );
    let mut client = connect_v1(&server);
    for (place, (head, expected)) in HEADS.iter().enumerate() {
        let published = publication(&mut client, &format!("case.{place}"), &Value::Null);
        assert_eq!(effect_of_publication(&published), *expected, "{head:?}");
        let published = publication(&mut client, "good", &Value::Null);
        assert_eq!(
            effect_of_publication(&published),
            Effect::Pass,
            "after {head:?}"
        );
    }
}

//! Request and reply in both directions, over real sockets.

use crate::common;
mod forms;
mod sent;

use common::{Client, assert_settled, config, connect_v1, start, text_frame, wait_until};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tidewire_engine::apps::Sink;
use tidewire_engine::queue::{Event, queue};
use tidewire_engine::{
    Application, Call, CallError, CallFailure, Config, ConnectionKey, Content, Context, Message,
    NewCall, Peer, Responder, Server,
};

/// Answers by the type of the call; keeps those that are to be answered by the test.
#[derive(Clone, Default)]
struct Clerk {
    kept: Arc<Mutex<Vec<Responder>>>,
    connections: Arc<Mutex<Vec<ConnectionKey>>>,
}

impl Application for Clerk {
    fn on_connect(&mut self, _: &mut Context<'_>, peer: &Peer) {
        lock(&self.connections).push(peer.connection);
    }

    fn on_message(&mut self, _: &mut Context<'_>, _: Message<'_>) {}

    fn on_call(&mut self, context: &mut Context<'_>, call: Call<'_>, responder: Responder) {
        let payload = call.payload.to_owned();
        match call.t {
            "echo" => assert!(context.respond(&responder, Ok(payload))),
            "time" => {
                context.respond(&responder, Ok(call.timeout_ms.to_string()));
            }
            "thread" => {
                std::thread::spawn(move || responder.respond(Ok(payload)));
            }
            "twice" => {
                assert!(responder.respond(Ok("1".into())));
                assert!(!responder.clone().respond(Ok("2".into())));
                assert!(!context.respond(&responder, Ok("3".into())));
            }
            "fail" => {
                context.respond(&responder, Err(refusal("NO_STOCK", "sold out")));
            }
            "no code" => {
                context.respond(&responder, Err(refusal("", "")));
            }
            "no json" => {
                context.respond(&responder, Ok("{".into()));
            }
            "too deep" => {
                responder.respond(Ok("[".repeat(62) + &"]".repeat(62)));
            }
            "keep" => lock(&self.kept).push(responder),
            "ask back" => {
                let call = NewCall::new("back", payload);
                context.call(call, move |answer| {
                    let answer = answer.map_err(|failure| refusal("BACK", &failure.to_string()));
                    responder.respond_with(answer);
                });
            }
            "drop" => {}
            other => panic!("{other}"),
        }
    }
}

impl Clerk {
    fn connection(&self) -> ConnectionKey {
        *lock(&self.connections).last().expect("a session")
    }

    fn kept(&self, count: usize) -> Vec<Responder> {
        wait_until("the calls arrive", || lock(&self.kept).len() == count);
        std::mem::take(&mut *lock(&self.kept))
    }
}

fn lock<T>(kept: &Mutex<T>) -> MutexGuard<'_, T> {
    kept.lock().expect("no test has failed with it")
}

fn refusal(code: &str, message: &str) -> CallError {
    CallError {
        code: code.into(),
        message: message.into(),
    }
}

fn clerk(config: Config) -> (Server, Clerk) {
    let clerk = Clerk::default();
    (start(config, clerk.clone()), clerk)
}

fn impatient(call_timeout_ms: u64) -> Config {
    let mut config = config();
    config.limits.call_timeout_ms = call_timeout_ms;
    config
}

fn request(t: &str, cid: &str, payload: &Value) -> Value {
    json!({"c": "WSE", "t": "call_request", "cid": cid, "p": {"type": t, "payload": payload}})
}

fn send(client: &mut Client, t: &str, cid: &str, payload: &Value) {
    client.send_text(&request(t, cid, payload).to_string());
}

/// The answer to the call `cid`, which comes next.
#[track_caller]
fn answer(client: &mut Client, cid: &str) -> Value {
    let message = client.next_json();
    assert_eq!(
        (&message["c"], &message["t"]),
        (&json!("WSE"), &json!("call_response")),
        "{message}"
    );
    assert_eq!(message["cid"], cid, "{message}");
    message["p"].clone()
}

#[track_caller]
fn ask(client: &mut Client, t: &str, payload: &Value) -> Value {
    send(client, t, "c-1", payload);
    answer(client, "c-1")
}

#[track_caller]
fn assert_refused(answer: &Value, code: &str) {
    assert_eq!(answer["error"]["code"], code, "{answer}");
    assert!(answer["error"]["message"].is_string(), "{answer}");
}

/// A client whose hello says that it takes calls.
fn callee(server: &Server) -> Client {
    let mut client = connect_v1(server);
    let hello = json!({"t": "client_hello", "p": {"features": {"calls": true}}});
    let answer = client.ask(&hello);
    assert_eq!(answer["p"]["features"]["calls"], true, "{answer}");
    client
}

/// Starts a call of the server and gives where its outcomes come.
fn start_call(
    server: &Server,
    connection: ConnectionKey,
    call: NewCall,
) -> Receiver<Result<Content, CallFailure>> {
    let (told, outcomes) = channel();
    let done = move |outcome| told.send(outcome).expect("the test listens");
    server.handle().call(connection, call, done);
    outcomes
}

/// The only outcome of a call.
#[track_caller]
fn outcome(outcomes: Receiver<Result<Content, CallFailure>>) -> Result<Content, CallFailure> {
    let outcome = outcomes.recv_timeout(common::DEADLINE).expect("an outcome");
    // The sender is gone with the only closure that could have sent another.
    assert!(outcomes.recv().is_err());
    outcome
}

#[track_caller]
fn next_call(client: &mut Client) -> (String, Value) {
    let message = client.next_json();
    assert_eq!(message["t"], "call_request", "{message}");
    let cid = message["cid"].as_str().expect("a cid").to_owned();
    (cid, message["p"].clone())
}

fn respond(client: &mut Client, cid: &str, payload: &Value) {
    let response = json!({"c": "WSE", "t": "call_response", "cid": cid, "p": payload});
    client.send_text(&response.to_string());
}

#[test]
fn a_client_asks_and_the_application_answers() {
    let (server, _) = clerk(config());
    let mut client = connect_v1(&server);
    let payload = json!({"n": [1, "two", null], "deep": {"er": 1.5}});
    assert_eq!(
        ask(&mut client, "echo", &payload),
        json!({"payload": payload})
    );
    assert_eq!(
        ask(&mut client, "thread", &payload),
        json!({"payload": payload})
    );
    assert_eq!(
        ask(&mut client, "twice", &Value::Null),
        json!({"payload": 1})
    );
    let answer = ask(&mut client, "fail", &Value::Null);
    assert_eq!(
        answer,
        json!({"error": {"code": "NO_STOCK", "message": "sold out"}})
    );
    // Without a payload it is an empty object; the time is the server's.
    let bare = json!({"t": "call_request", "cid": "c", "p": {"type": "echo"}});
    assert_eq!(client.ask(&bare)["p"], json!({"payload": {}}));
    assert_eq!(
        ask(&mut client, "time", &Value::Null),
        json!({"payload": 10_000})
    );
    drop(client);
    let counters = assert_settled(&server.handle());
    assert_eq!((counters.calls_received, counters.calls_answered), (6, 6));
    assert_eq!((counters.calls_open, counters.call_answers_late), (0, 0));
}

#[test]
fn an_application_that_answers_nothing_says_so() {
    let server = start(config(), Sink);
    let mut client = connect_v1(&server);
    assert_refused(&ask(&mut client, "weather", &Value::Null), "NOT_FOUND");
}

#[test]
fn a_call_that_the_application_lets_go_of_or_answers_badly_is_a_handler_error() {
    let (server, clerk) = clerk(config());
    let mut client = connect_v1(&server);
    for t in ["drop", "no code", "no json", "too deep"] {
        assert_refused(&ask(&mut client, t, &Value::Null), "HANDLER_ERROR");
    }
    send(&mut client, "keep", "k", &Value::Null);
    let kept = clerk.kept(1);
    let clone = kept.clone();
    drop(kept);
    assert_eq!(
        ask(&mut client, "echo", &json!(1))["payload"],
        1,
        "a clone is left"
    );
    std::thread::spawn(move || drop(clone)).join().unwrap();
    assert_refused(&answer(&mut client, "k"), "HANDLER_ERROR");
}

#[test]
fn a_call_without_an_answer_ends_in_time_and_a_late_answer_is_dropped() {
    let (server, clerk) = clerk(impatient(30));
    let mut client = connect_v1(&server);
    assert_refused(&ask(&mut client, "keep", &Value::Null), "TIMEOUT");
    let late = clerk.kept(1).remove(0);
    // The same cid again: the late answer is not to this call.
    send(&mut client, "keep", "c-1", &Value::Null);
    let next = clerk.kept(1).remove(0);
    assert!(late.respond(Ok("1".into())));
    assert_refused(&answer(&mut client, "c-1"), "TIMEOUT");
    drop(next);
    drop(client);
    let counters = assert_settled(&server.handle());
    assert_eq!((counters.calls_received, counters.calls_timed_out), (2, 2));
    assert_eq!(
        (counters.call_answers_late, counters.calls_answered),
        (1, 0)
    );
}

#[test]
fn a_client_may_ask_for_less_time_but_not_for_more() {
    let (server, _) = clerk(impatient(60_000));
    let mut client = connect_v1(&server);
    let with_timeout = |t: &str, timeout_ms: u64| {
        let payload = json!({"type": t, "timeout_ms": timeout_ms});
        json!({"t": "call_request", "cid": "c", "p": payload})
    };
    for timeout_ms in [60_001, 1 << 40, u64::MAX] {
        let answer = client.ask(&with_timeout("time", timeout_ms));
        assert_eq!(answer["p"], json!({"payload": 60_000}));
    }
    assert_eq!(
        client.ask(&with_timeout("time", 7))["p"],
        json!({"payload": 7})
    );
    for timeout_ms in [0, 1, 20] {
        let answer = client.ask(&with_timeout("keep", timeout_ms));
        assert_refused(&answer["p"], "TIMEOUT");
    }
}

#[test]
fn the_longest_time_is_a_day_whatever_is_configured() {
    let (server, clerk) = clerk(impatient(u64::MAX));
    let mut client = callee(&server);
    assert_eq!(
        ask(&mut client, "time", &Value::Null),
        json!({"payload": 86_400_000})
    );
    let call = NewCall::new("t", "1").with_timeout(Duration::MAX);
    let outcomes = start_call(&server, clerk.connection(), call);
    let (cid, call) = next_call(&mut client);
    assert_eq!(call["timeout_ms"], 86_400_000);
    respond(&mut client, &cid, &json!({"payload": 1}));
    assert_eq!(outcome(outcomes), Ok("1".into()));
}

#[test]
fn a_connection_that_ends_takes_its_calls_along() {
    let (server, clerk) = clerk(config());
    let mut client = callee(&server);
    for cid in ["a", "b", "c"] {
        send(&mut client, "keep", cid, &Value::Null);
    }
    let kept = clerk.kept(3);
    let outcomes = start_call(&server, clerk.connection(), NewCall::new("t", "{}"));
    next_call(&mut client);
    drop(client);
    assert_eq!(outcome(outcomes), Err(CallFailure::Closed));
    for responder in kept {
        responder.respond(Ok("1".into()));
    }
    let handle = server.handle();
    wait_until("the answers are dropped", || {
        handle.counters().call_answers_late == 3
    });
    let counters = assert_settled(&handle);
    assert_eq!(
        (counters.calls_abandoned, counters.calls_sent_abandoned),
        (3, 1)
    );
    assert_eq!(counters.calls_open, 0);
}

#[test]
fn open_calls_are_limited_and_have_different_ids() {
    let mut config = config();
    config.limits.calls_per_connection_max = 2;
    let (server, clerk) = clerk(config);
    let mut client = connect_v1(&server);
    send(&mut client, "keep", "a", &Value::Null);
    let again = client.ask(&request("keep", "a", &Value::Null));
    assert_eq!((&again["t"], &again["cid"]), (&json!("error"), &json!("a")));
    assert_eq!(again["p"]["code"], "INVALID_MESSAGE");
    send(&mut client, "keep", "b", &Value::Null);
    assert_refused(&ask(&mut client, "echo", &Value::Null), "LIMIT_EXCEEDED");
    let kept = clerk.kept(2);
    kept[0].respond(Ok("\"first\"".into()));
    assert_eq!(answer(&mut client, "a"), json!({"payload": "first"}));
    assert_eq!(ask(&mut client, "echo", &json!(1)), json!({"payload": 1}));
    kept[1].respond(Ok("\"second\"".into()));
    assert_eq!(answer(&mut client, "b"), json!({"payload": "second"}));
    assert_eq!(server.handle().counters().calls_refused, 2);
}

#[test]
fn hostile_calls_are_refused_and_harm_nothing() {
    let (server, _) = clerk(config());
    let mut client = callee(&server);
    let good = json!({"type": "echo", "payload": 1});
    let long = "x".repeat(129);
    let cases = [
        json!({"t": "call_request", "p": good}),
        json!({"t": "call_request", "cid": "", "p": good}),
        json!({"t": "call_request", "cid": long, "p": good}),
        json!({"t": "call_request", "cid": 5, "p": good}),
        json!({"t": "call_request", "cid": "c"}),
        json!({"t": "call_request", "cid": "c", "p": []}),
        json!({"t": "call_request", "cid": "c", "p": {"type": long}}),
        json!({"t": "call_request", "cid": "c", "p": {"type": 5}}),
        json!({"t": "call_request", "cid": "c", "p": {"type": "echo", "timeout_ms": -1}}),
        json!({"t": "call_request", "cid": "c", "p": {"type": "echo", "timeout_ms": 1.5}}),
        json!({"t": "call_request", "cid": "c", "p": {"type": "echo", "timeout_ms": "1"}}),
        json!({"t": "call_response", "p": {"payload": 1}}),
        json!({"t": "call_response", "cid": "1", "p": {"error": 5}}),
        json!({"t": "call_response", "cid": "1", "p": {"error": {"message": "x"}}}),
    ];
    for case in cases {
        let answer = client.ask(&case);
        assert_eq!(answer["t"], "error", "{case} {answer}");
        assert_eq!(answer["p"]["code"], "INVALID_MESSAGE", "{case}");
    }
    for cid in ["1", "0", "-1", "x", "18446744073709551616", "\u{1F40B}"] {
        respond(&mut client, cid, &json!({"payload": 1}));
    }
    assert_eq!(ask(&mut client, "echo", &json!(2)), json!({"payload": 2}));
    let counters = server.handle().counters();
    assert_eq!(counters.call_responses_unexpected, 6);
    assert_eq!((counters.calls_received, counters.calls_open), (1, 0));
}

#[test]
fn however_many_end_at_once_each_does() {
    let mut config = impatient(3_600_000);
    config.limits.calls_per_connection_max = 5_000;
    let (server, clerk) = clerk(config);
    let mut client = connect_v1(&server);
    let send_all = |client: &mut Client, timeout_ms: Option<u64>| {
        let requests = (0..5_000).map(|n| {
            let payload = json!({"type": "keep", "timeout_ms": timeout_ms});
            json!({"t": "call_request", "cid": n.to_string(), "p": payload})
        });
        let frames = requests.flat_map(|request| text_frame(&request.to_string()));
        client.send_bytes(&frames.collect::<Vec<u8>>());
        clerk.kept(5_000)
    };
    let assert_all_refused = |client: &mut Client, code: &str| {
        let mut open: HashSet<_> = (0..5_000).map(|n| n.to_string()).collect();
        while !open.is_empty() {
            let answer = client.next_json();
            assert_refused(&answer["p"], code);
            assert!(
                open.remove(answer["cid"].as_str().expect("a cid")),
                "{answer}"
            );
        }
    };
    drop(send_all(&mut client, None));
    assert_all_refused(&mut client, "HANDLER_ERROR");
    let kept = send_all(&mut client, Some(500));
    assert_all_refused(&mut client, "TIMEOUT");
    drop(kept);
    assert_eq!(server.handle().counters().calls_open, 0);
}

#[test]
fn many_threads_answer_each_call_once() {
    let (server, clerk) = clerk(config());
    let mut client = connect_v1(&server);
    for round in 0..20 {
        for n in 0..100 {
            send(&mut client, "keep", &format!("{round}.{n}"), &Value::Null);
        }
        let kept = Arc::new(clerk.kept(100));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let kept = Arc::clone(&kept);
                std::thread::spawn(move || {
                    let answered = kept.iter().filter(|call| call.respond(Ok("1".into())));
                    answered.count()
                })
            })
            .collect();
        let answered: usize = threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum();
        assert_eq!(answered, 100);
        let cids: HashSet<_> = (0..100)
            .map(|_| {
                client.next_json()["cid"]
                    .as_str()
                    .expect("a cid")
                    .to_owned()
            })
            .collect();
        assert_eq!(cids.len(), 100);
    }
    drop(client);
    let counters = assert_settled(&server.handle());
    assert_eq!(
        (counters.calls_answered, counters.call_answers_late),
        (2000, 0)
    );
}

#[test]
fn an_application_on_another_thread_answers_from_the_queue() {
    let (sender, receiver) = queue(1 << 20);
    let server = Server::start(config(), move |_| sender.application()).unwrap();
    let mut client = connect_v1(&server);
    client.send_text(r#"{"t":"before"}"#);
    send(&mut client, "double", "q", &json!("ab"));
    client.send_text(r#"{"t":"after"}"#);
    let mut seen = Vec::new();
    let mut kept = None;
    while seen.len() < 4 {
        let batch = receiver
            .receive(common::DEADLINE)
            .unwrap()
            .expect("a batch");
        for event in batch.events() {
            match event {
                Event::Connect(_) => seen.push("connect".to_owned()),
                Event::Message(_, message) => {
                    seen.push(String::from_utf8(message.bytes.to_vec()).unwrap());
                }
                Event::Call(peer, call, responder) => {
                    assert_eq!(
                        (peer.connection, call.timeout_ms),
                        (responder.connection(), 10_000)
                    );
                    seen.push(format!("{} {}", call.t, call.payload));
                    kept = Some(responder.clone());
                }
                other => panic!("{other:?}"),
            }
        }
    }
    let expected = [
        "connect",
        r#"{"t":"before"}"#,
        r#"double "ab""#,
        r#"{"t":"after"}"#,
    ];
    assert_eq!(seen, expected);
    // The batch is gone; the clone still answers.
    kept.unwrap().respond(Ok(r#""abab""#.into()));
    assert_eq!(answer(&mut client, "q"), json!({"payload": "abab"}));
    // Passed over, and then without a reader.
    send(&mut client, "double", "p", &Value::Null);
    while receiver.receive(common::DEADLINE).unwrap().is_none() {}
    assert_refused(&answer(&mut client, "p"), "HANDLER_ERROR");
    drop(receiver);
    assert_refused(&ask(&mut client, "double", &Value::Null), "HANDLER_ERROR");
}

#[test]
fn calls_hold_a_full_queue_back_like_messages() {
    let (sender, receiver) = queue(64 * 1024);
    let server = Server::start(config(), move |_| sender.application()).unwrap();
    let mut client = connect_v1(&server);
    let payload = json!("x".repeat(100_000));
    send(&mut client, "t", "first", &payload);
    send(&mut client, "t", "second", &payload);
    let handle = server.handle();
    wait_until("reading pauses", || handle.counters().queue_full_pauses > 0);
    let mut calls = 0;
    while calls < 2 {
        let batch = receiver
            .receive(common::DEADLINE)
            .unwrap()
            .expect("a batch");
        for event in batch.events() {
            if let Event::Call(_, _, responder) = event {
                calls += 1;
                responder.respond(Ok("1".into()));
            }
        }
    }
    assert_eq!(answer(&mut client, "first"), json!({"payload": 1}));
    assert_eq!(answer(&mut client, "second"), json!({"payload": 1}));
}

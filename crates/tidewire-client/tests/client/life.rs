//! Closing from another task in every state, a thousand times each: every call ends, and the client with it.

use crate::common::{DEADLINE, wait_until};
use crate::scenarios::{Seen, start_server};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tidewire_client::{Client, ClientState, Config, Error};
use tokio::task::JoinSet;
use tokio::time::timeout;

const ROUNDS: usize = 1_000;

/// A state of a client: what the server does, and when the client is in it.
struct Case {
    name: &'static str,
    /// `None` for no server at all.
    server: Option<Value>,
    is_there: fn(&Client) -> bool,
    /// Clients at once. Those that wait for a hello take a second each, for a server that has stalled five.
    at_once: usize,
}

fn is_connected(client: &Client) -> bool {
    client.state() == ClientState::Connected
}

fn cases() -> Vec<Case> {
    let fast = |name, server, is_there| Case {
        name,
        server,
        is_there,
        at_once: 16,
    };
    let anything = |_: &Client| true;
    let is_waiting = |client: &Client| client.state() == ClientState::Waiting;
    let flood = json!({"text": {"t": "flood", "p": "x".repeat(2_000)}});
    vec![
        fast("no server", None, anything),
        fast("waiting for the next attempt", None, is_waiting),
        fast("not answered", Some(json!(["freeze"])), anything),
        fast("not let in", Some(json!(["accept"])), anything),
        Case {
            name: "before the hello",
            server: Some(json!(["let_in"])),
            is_there: is_connected,
            at_once: 500,
        },
        // It answers nothing, so that a close waits for a second.
        Case {
            name: "connected",
            server: Some(json!(["welcome"])),
            is_there: is_connected,
            at_once: 500,
        },
        fast(
            "being closed by the server",
            Some(json!(["welcome", {"close": [1012, "away"]}])),
            anything,
        ),
        fast("being cut", Some(json!(["welcome", "cut"])), anything),
        fast(
            "with more than the application takes",
            Some(json!(["welcome", {"repeat": [20, [flood]]}])),
            is_connected,
        ),
        Case {
            name: "with a server that has stalled",
            server: Some(json!(["let_in", {"read": "client_hello"}, "hello", "freeze"])),
            is_there: is_connected,
            at_once: 500,
        },
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closing_from_another_task_in_every_state() {
    let mut running: JoinSet<()> = cases().into_iter().map(close_in).collect();
    while let Some(ended) = running.join_next().await {
        ended.unwrap();
    }
}

/// Closes clients in one state.
async fn close_in(case: Case) {
    let mut tasks = JoinSet::new();
    let url = match &case.server {
        None => "ws://127.0.0.1:9/ws".to_owned(),
        Some(script) => {
            let scripts = vec![script.clone()];
            let address = start_server(scripts, Seen::default(), &mut tasks).await;
            format!("ws://{address}/ws")
        }
    };
    let closed = Arc::new(AtomicUsize::new(0));
    let mut running = JoinSet::new();
    for round in 0..ROUNDS {
        let (url, closed) = (url.clone(), closed.clone());
        let (name, is_there) = (case.name, case.is_there);
        running.spawn(async move {
            one_life(name, url, is_there, round).await;
            closed.fetch_add(1, Ordering::Relaxed);
        });
        if running.len() >= case.at_once {
            let ended = running.join_next().await;
            ended.expect("one runs").expect("a close does not panic");
        }
    }
    while let Some(ended) = running.join_next().await {
        ended.expect("a close does not panic");
    }
    assert_eq!(closed.load(Ordering::Relaxed), ROUNDS, "{}", case.name);
}

async fn one_life(name: &str, url: String, is_there: fn(&Client) -> bool, round: usize) {
    let mut config = Config::new(url);
    config.inbox_bytes_max = 4_096;
    if let Some(reconnect) = &mut config.reconnect {
        reconnect.base = Duration::from_millis(50);
        reconnect.max = Duration::from_millis(50);
    }
    let client = Client::start(config).expect("a good configuration");
    let mut calls = waiting_calls(&client);
    // Some are closed while all of them begin.
    if !round.is_multiple_of(4) {
        wait_until(name, || is_there(&client)).await;
    }
    if !round.is_multiple_of(2) {
        tokio::task::yield_now().await;
    }
    let closing = tokio::spawn({
        let client = client.clone();
        async move { client.close().await }
    });
    let ended = timeout(DEADLINE, closing).await;
    ended
        .unwrap_or_else(|_| panic!("{name}: the close hangs"))
        .expect("a close does not panic");
    assert!(matches!(client.state(), ClientState::Closed(_)));
    while !calls.is_empty() {
        let call = timeout(DEADLINE, calls.join_next()).await;
        let call = call.unwrap_or_else(|_| panic!("{name}: a call outlives its client"));
        // What it gives depends on how far it was; that it ends does not.
        let _ = call.expect("there are calls").expect("none panics");
    }
    assert!(client.send("late", "1").await.is_err());
}

/// One of each kind of call that waits.
fn waiting_calls(client: &Client) -> JoinSet<Result<(), Error>> {
    let mut calls = JoinSet::new();
    let each = || client.clone();
    let of = each();
    calls.spawn(async move { of.connected().await });
    let of = each();
    calls.spawn(async move { of.request("sum", "1", None).await.map(drop) });
    let of = each();
    calls.spawn(async move { of.subscribe(["a"]).await.map(drop) });
    let of = each();
    calls.spawn(async move { of.ping().await.map(drop) });
    let of = each();
    calls.spawn(async move {
        of.closed().await;
        Ok(())
    });
    calls
}

#[tokio::test]
async fn a_forgotten_client_ends_and_its_calls_with_it() {
    let mut tasks = JoinSet::new();
    let seen = Seen::default();
    let address = start_server(vec![json!(["welcome"])], seen.clone(), &mut tasks).await;
    let client = Client::connect(Config::new(format!("ws://{address}/ws")))
        .await
        .unwrap();
    drop(client);
    wait_until("a close", || seen.has_read("close")).await;
}

#[test]
fn a_runtime_that_ends_hangs_nobody() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let client =
        runtime.block_on(async { Client::start(Config::new("ws://127.0.0.1:9/ws")).unwrap() });
    runtime.shutdown_background();
    let another = tokio::runtime::Runtime::new().unwrap();
    another.block_on(async {
        let closed = timeout(DEADLINE, client.close()).await;
        closed.expect("it is over");
        let asked = timeout(DEADLINE, client.request("sum", "1", None)).await;
        assert!(matches!(asked.expect("it is over"), Err(Error::Closed(_))));
    });
}

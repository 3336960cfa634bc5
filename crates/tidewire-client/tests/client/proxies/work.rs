//! Work of a client behind a proxy, and the checks of its results.

use super::proxy::Proxy;
use crate::common::{publish, wait_until};
use serde_json::Value;
use std::sync::{Arc, Mutex, MutexGuard};
use tidewire_client::{Client, ClientState, Config, Event, Publication};
use tidewire_engine::{Application, Call, Context, Message, Responder, Server};
use tokio::task::JoinHandle;

/// The events of a server's application, in order.
#[derive(Clone, Default)]
pub(super) struct Ledger(Arc<Mutex<Entries>>);

#[derive(Default)]
struct Entries {
    /// By `send`.
    sent: Vec<u64>,
    /// By `send_acknowledged`.
    acknowledged: Vec<u64>,
    requested: Vec<u64>,
}

impl Ledger {
    fn lock(&self) -> MutexGuard<'_, Entries> {
        lock(&self.0)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("nobody panicked with it")
}

impl Application for Ledger {
    fn on_message(&mut self, _: &mut Context<'_>, message: Message<'_>) {
        // What was corrupted on its way need not be JSON.
        let value: Value = serde_json::from_slice(message.bytes).unwrap_or_default();
        let mut entries = self.lock();
        match (value["t"].as_str(), value["p"].as_u64()) {
            (Some("sent"), Some(number)) => entries.sent.push(number),
            (Some("acknowledged"), Some(number)) => entries.acknowledged.push(number),
            _ => {}
        }
    }

    fn on_call(&mut self, context: &mut Context<'_>, call: Call<'_>, responder: Responder) {
        let number: u64 = call.payload.parse().unwrap_or_default();
        self.lock().requested.push(number);
        context.respond(&responder, Ok((2 * u128::from(number)).to_string()));
    }
}

/// The events of the client.
#[derive(Default)]
struct Received {
    /// The publications of the server.
    from_server: Vec<u64>,
    /// The publications of the client itself.
    own: Vec<u64>,
    /// The violations.
    wrong: Vec<String>,
}

/// Works until the proxy has carried out its plans, or a while, then closes the client. `keeps_promises` is for proxies that change
/// no byte without its being noticed.
pub(super) async fn work(
    config: Config,
    server: &Server,
    ledger: &Ledger,
    proxy: &Proxy,
    keeps_promises: bool,
) {
    let client = Client::start(config).expect("a good configuration");
    let received = Arc::new(Mutex::new(Received::default()));
    let receiving = receive(client.clone(), received.clone());
    let mut done = Done::default();
    let mut is_subscribed = false;
    // The rounds that were made: those before the client is subscribed do nothing.
    let mut number = 0;
    for attempt in 0.. {
        let is_over = match keeps_promises {
            true => proxy.is_calm() && number >= ROUNDS_MIN,
            // A byte that nobody misses ends no connection.
            false => proxy.is_calm() || attempt == ROUNDS || is_closed(&client),
        };
        if is_over && attempt >= ROUNDS_MIN {
            break;
        }
        if !is_subscribed {
            is_subscribed = client.subscribe(["kept.server", "kept.own"]).await.is_ok();
            if !is_subscribed {
                continue;
            }
        }
        done.round(&client, server, number).await;
        number += 1;
    }
    if keeps_promises {
        done.check(&client, ledger, &received).await;
    }
    client.close().await;
    assert!(is_closed(&client));
    receiving.await.expect("no event makes it panic");
    if keeps_promises {
        let wrong = &lock(&received).wrong;
        assert!(wrong.is_empty(), "{wrong:?}");
    }
}

fn is_closed(client: &Client) -> bool {
    matches!(client.state(), ClientState::Closed(_))
}

/// The requests to the client, and their results.
#[derive(Default)]
struct Done {
    /// Published by the server.
    from_server: u64,
    /// Numbers that are in the queue, and who waits for them.
    acknowledged: Vec<JoinHandle<bool>>,
    /// Requests that were answered.
    answered: Vec<u64>,
    /// Publications that have their place.
    published: Vec<u64>,
}

impl Done {
    async fn round(&mut self, client: &Client, server: &Server, number: u64) {
        let text = number.to_string();
        publish(server, "kept.server", number);
        self.from_server += 1;
        let _ = client.send("sent", &text).await;
        let stored = client.send_acknowledged("acknowledged", &text, Default::default());
        if let Ok(receipt) = stored.await {
            let acknowledged = async move { receipt.wait().await.is_ok() };
            self.acknowledged.push(tokio::spawn(acknowledged));
        }
        match client.request("double", &text, None).await {
            Ok(answer) => {
                assert!(!answer.as_json().is_empty());
                self.answered.push(number);
            }
            // It ends by itself; that it was carried out is not known.
            Err(error) => assert!(!error.to_string().is_empty()),
        }
        if number.is_multiple_of(4) {
            let publication = Publication::new("kept.own", "count", text);
            if client.publish(publication).await.is_ok() {
                self.published.push(number);
            }
        }
    }

    /// Every promise of `docs/client.md` about messages.
    async fn check(self, client: &Client, ledger: &Ledger, received: &Mutex<Received>) {
        let count = self.acknowledged.len() as u64;
        for acknowledged in self.acknowledged {
            assert!(
                acknowledged.await.expect("it does not panic"),
                "it was acknowledged"
            );
        }
        wait_until("every publication", || {
            let received = lock(received);
            received.from_server.len() as u64 >= self.from_server
                && received.own.len() >= self.published.len()
        })
        .await;
        // What is behind them shows that nothing comes twice.
        while client.ping().await.is_err() {
            assert!(!is_closed(client));
        }
        let entries = ledger.lock();
        assert_eq!(entries.acknowledged, (0..count).collect::<Vec<_>>());
        assert!(
            entries.sent.is_sorted_by(|a, b| a < b),
            "{:?}",
            entries.sent
        );
        let requested = &entries.requested;
        assert!(requested.is_sorted_by(|a, b| a < b), "{requested:?}");
        let is_carried_out = |number: &u64| requested.contains(number);
        assert!(self.answered.iter().all(is_carried_out));
        let received = lock(received);
        let all: Vec<u64> = (0..self.from_server).collect();
        assert_eq!(received.from_server, all);
        assert!(
            received.own.is_sorted_by(|a, b| a < b),
            "{:?}",
            received.own
        );
        let has_come = |number: &u64| received.own.contains(number);
        assert!(self.published.iter().all(has_come));
    }
}

/// Takes every event until the client is closed.
fn receive(client: Client, received: Arc<Mutex<Received>>) -> JoinHandle<()> {
    tokio::spawn(async move {
        while let Some(batch) = client.next_batch().await {
            let mut received = lock(&received);
            for event in batch {
                received.add(&event);
            }
        }
    })
}

impl Received {
    fn add(&mut self, event: &Event) {
        match event {
            Event::Message(message) => {
                let outline = message.outline().ok();
                let topic = outline
                    .as_ref()
                    .and_then(|outline| outline.topic.as_deref());
                let payload = message.payload().unwrap_or_default();
                let number = String::from_utf8_lossy(&payload).parse();
                match (topic, number) {
                    (Some("kept.server"), Ok(number)) => self.from_server.push(number),
                    (Some("kept.own"), Ok(number)) => self.own.push(number),
                    _ => self.wrong.push(format!("{event:?}")),
                }
            }
            Event::Connected(_) | Event::Disconnected(_) | Event::RateLimitWarning(_) => {}
            other => self.wrong.push(format!("{other:?}")),
        }
    }
}

/// Rounds behind a proxy that may change nothing that anybody notices.
const ROUNDS: u64 = 100;

/// Rounds however soon the proxy is calm.
const ROUNDS_MIN: u64 = 20;

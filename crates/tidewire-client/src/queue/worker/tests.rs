//! A worker whose store does not work when it should.

use crate::config::{Queue, Uncertain};
use crate::error::Error;
use crate::event;
use crate::priority_queue::Priority;
use crate::queue::handle::StoreHandle;
use crate::queue::job::StoreEvent;
use crate::queue::memory::MemoryStore;
use crate::queue::receipts::WhenReceived;
use crate::queue::{Durable, MessageLimits, QueueDepth, Resumed, Store, StoreError, Taken};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::timeout;

/// Fails at each write while it is set to.
#[derive(Debug)]
struct Flaky {
    store: MemoryStore,
    fails: Arc<AtomicBool>,
    failures: Arc<AtomicUsize>,
    /// Held by a test that wants the worker to wait.
    gate: Arc<Mutex<()>>,
}

impl Flaky {
    fn write<T>(
        &mut self,
        work: impl FnOnce(&mut MemoryStore) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        drop(self.gate.lock().unwrap());
        if self.fails.load(Ordering::SeqCst) {
            self.failures.fetch_add(1, Ordering::SeqCst);
            return Err(StoreError::Failed("the disk is full".to_owned()));
        }
        work(&mut self.store)
    }
}

impl Store for Flaky {
    fn producer(&self) -> &str {
        self.store.producer()
    }

    fn push(&mut self, messages: &[Durable], now_unix_ms: u64) -> Result<Vec<u64>, StoreError> {
        self.write(|store| store.push(messages, now_unix_ms))
    }

    fn resume(&mut self, epoch: u32, last: u64, policy: Uncertain) -> Result<Resumed, StoreError> {
        self.write(|store| store.resume(epoch, last, policy))
    }

    fn take(&mut self, count: usize, bytes: usize, now_ms: u64) -> Result<Taken, StoreError> {
        self.write(|store| store.take(count, bytes, now_ms))
    }

    fn acknowledge(&mut self, last: u64) -> Result<Vec<u64>, StoreError> {
        self.write(|store| store.acknowledge(last))
    }

    fn rewind(&mut self, last: u64) {
        self.store.rewind(last);
    }

    fn uncertain(&mut self, bytes_max: usize) -> Result<Vec<(u64, Durable)>, StoreError> {
        self.store.uncertain(bytes_max)
    }

    fn forget(&mut self, rows: &[u64]) -> Result<(), StoreError> {
        self.write(|store| store.forget(rows))
    }

    fn limit_messages(&mut self, limits: MessageLimits) {
        self.store.limit_messages(limits);
    }

    fn depth(&self) -> QueueDepth {
        self.store.depth()
    }
}

struct Bench {
    handle: StoreHandle,
    events: UnboundedReceiver<StoreEvent>,
    fails: Arc<AtomicBool>,
    failures: Arc<AtomicUsize>,
    gate: Arc<Mutex<()>>,
}

impl Bench {
    fn new(policy: Uncertain) -> Self {
        let config = Queue {
            uncertain: policy,
            ..Queue::default()
        };
        let (sender, events) = unbounded_channel();
        let (fails, failures, gate) = (Arc::default(), Arc::default(), Arc::default());
        let flaky = Flaky {
            store: MemoryStore::new(&config, "me"),
            fails: Arc::clone(&fails),
            failures: Arc::clone(&failures),
            gate: Arc::clone(&gate),
        };
        let handle = StoreHandle::start_with(Box::new(flaky), &config, sender).unwrap();
        Self {
            handle,
            events,
            fails,
            failures,
            gate,
        }
    }

    /// Stores a message; who waits for its acknowledgement.
    async fn push(&self, text: &str) -> WhenReceived {
        let (stored, received) = self.handle.push(message(text)).unwrap();
        stored.await.unwrap().unwrap();
        received
    }

    async fn event(&mut self) -> StoreEvent {
        let event = timeout(Duration::from_secs(30), self.events.recv()).await;
        event.expect("an event in time").expect("it works")
    }

    /// The first event other than "there is something to send".
    async fn news(&mut self) -> StoreEvent {
        loop {
            match self.event().await {
                StoreEvent::Stored => {}
                event => return event,
            }
        }
    }

    async fn uncertain(&mut self) -> Box<event::Uncertain> {
        match self.news().await {
            StoreEvent::Uncertain(uncertain) => uncertain,
            other => panic!("not uncertain: {other:?}"),
        }
    }

    async fn failures(&self, count: usize) {
        while self.failures.load(Ordering::SeqCst) < count {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    async fn is_empty(&self) {
        while self.handle.depth().messages > 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

fn message(text: &str) -> Durable {
    Durable {
        topic: None,
        t: "order".to_owned(),
        payload: text.as_bytes().to_vec(),
        is_binary: false,
        priority: Priority::Normal,
        key: None,
        expires_unix_ms: None,
    }
}

fn texts(told: &event::Uncertain) -> Vec<&str> {
    let text = |message: &event::QueuedMessage| message.payload.clone();
    told.messages
        .iter()
        .map(text)
        .map(|text| &*text.leak())
        .collect()
}

#[tokio::test]
async fn an_acknowledgement_that_cannot_be_stored_is_told_and_stored_later() {
    let mut bench = Bench::new(Uncertain::Drop);
    let received = bench.push("1").await;
    bench.handle.resume(1, 0, MessageLimits::default());
    assert!(matches!(bench.news().await, StoreEvent::Resumed));
    bench.handle.take(10, 1_000);
    assert!(matches!(bench.news().await, StoreEvent::Taken(_)));
    bench.fails.store(true, Ordering::SeqCst);
    bench.handle.acknowledge(1);
    // The server has it, which is what the application waits for.
    assert_eq!(received.await.unwrap(), Ok(()));
    assert!(matches!(bench.news().await, StoreEvent::Failed(words) if words.contains("full")));
    bench.failures(2).await;
    assert_eq!(bench.handle.depth().messages, 1);
    bench.fails.store(false, Ordering::SeqCst);
    bench.is_empty().await;
}

#[tokio::test]
async fn a_resumption_that_cannot_be_stored_is_tried_again() {
    let mut bench = Bench::new(Uncertain::Drop);
    bench.push("1").await;
    bench.fails.store(true, Ordering::SeqCst);
    bench.handle.resume(1, 0, MessageLimits::default());
    assert!(matches!(bench.news().await, StoreEvent::Failed(_)));
    bench.fails.store(false, Ordering::SeqCst);
    assert!(matches!(bench.news().await, StoreEvent::Resumed));
}

#[tokio::test]
async fn the_next_connection_takes_the_place_of_a_resumption_that_is_owed() {
    let mut bench = Bench::new(Uncertain::Drop);
    bench.fails.store(true, Ordering::SeqCst);
    bench.handle.resume(1, 0, MessageLimits::default());
    assert!(matches!(bench.news().await, StoreEvent::Failed(_)));
    bench.handle.acknowledge(7);
    bench.handle.rewind(0);
    bench.handle.resume(2, 0, MessageLimits::default());
    for _ in 0..2 {
        assert!(matches!(bench.news().await, StoreEvent::NotResumed));
    }
    bench.fails.store(false, Ordering::SeqCst);
    assert!(matches!(bench.news().await, StoreEvent::Resumed));
}

#[tokio::test]
async fn what_could_not_be_given_out_may_be_asked_for_again() {
    let mut bench = Bench::new(Uncertain::Drop);
    bench.push("1").await;
    bench.handle.resume(1, 0, MessageLimits::default());
    assert!(matches!(bench.news().await, StoreEvent::Resumed));
    bench.fails.store(true, Ordering::SeqCst);
    bench.handle.take(1, 1_000);
    assert!(matches!(bench.news().await, StoreEvent::Failed(_)));
    assert!(matches!(bench.news().await, StoreEvent::NotTaken));
    // A known failure is reported once.
    bench.handle.take(1, 1_000);
    assert!(matches!(bench.news().await, StoreEvent::NotTaken));
    bench.fails.store(false, Ordering::SeqCst);
    bench.handle.take(1, 1_000);
    assert!(matches!(bench.news().await, StoreEvent::Taken(taken) if taken.len() == 1));
}

#[tokio::test]
async fn what_was_not_stored_is_told_and_what_nobody_waits_for_is_not_stored() {
    let bench = Bench::new(Uncertain::Drop);
    bench.fails.store(true, Ordering::SeqCst);
    let (stored, _) = bench.handle.push(message("1")).unwrap();
    assert!(matches!(stored.await.unwrap(), Err(Error::Queue(_))));
    bench.fails.store(false, Ordering::SeqCst);
    let gate = bench.gate.lock().unwrap();
    let (second, _) = bench.handle.push(message("2")).unwrap();
    let (given_up, _) = bench.handle.push(message("3")).unwrap();
    drop(given_up);
    drop(gate);
    second.await.unwrap().unwrap();
    bench.push("4").await;
    assert_eq!(bench.handle.depth().messages, 2);
}

#[tokio::test]
async fn uncertain_messages_stay_until_the_application_has_taken_the_event() {
    let mut bench = Bench::new(Uncertain::Drop);
    let large = "x".repeat(700_000);
    let first = bench.push("1").await;
    bench.push(&large).await;
    bench.push(&large).await;
    bench.handle.resume(1, 0, MessageLimits::default());
    assert!(matches!(bench.news().await, StoreEvent::Resumed));
    bench.handle.take(10, 10_000_000);
    assert!(matches!(bench.news().await, StoreEvent::Taken(_)));
    bench.handle.resume(2, 0, MessageLimits::default());
    let told = bench.uncertain().await;
    assert_eq!(texts(&told), ["1", &large]);
    assert!(!told.is_resent);
    assert_eq!(first.await.unwrap(), Err(Error::ConnectionLost));
    assert!(matches!(bench.news().await, StoreEvent::Resumed));
    assert_eq!(bench.handle.depth().messages, 3);
    // The disk fails in the moment in which the event is received.
    bench.fails.store(true, Ordering::SeqCst);
    told.set_taken(true);
    drop(told);
    assert!(matches!(bench.news().await, StoreEvent::Failed(_)));
    assert_eq!(bench.handle.depth().messages, 3);
    bench.fails.store(false, Ordering::SeqCst);
    let rest = bench.uncertain().await;
    assert_eq!(texts(&rest), [&large]);
    // One that nobody has looked at is kept.
    drop(rest);
    bench.push("4").await;
    assert_eq!(bench.handle.depth().messages, 2);
}

#[tokio::test]
async fn what_is_sent_again_is_told_and_nothing_is_kept_for_it() {
    let mut bench = Bench::new(Uncertain::Resend);
    bench.push("1").await;
    bench.handle.resume(1, 0, MessageLimits::default());
    assert!(matches!(bench.news().await, StoreEvent::Resumed));
    bench.handle.take(10, 1_000);
    assert!(matches!(bench.news().await, StoreEvent::Taken(_)));
    bench.handle.resume(2, 0, MessageLimits::default());
    let told = bench.uncertain().await;
    assert!(told.is_resent);
    assert_eq!(texts(&told), ["1"]);
    assert!(matches!(bench.news().await, StoreEvent::Resumed));
    bench.handle.take(10, 1_000);
    assert!(matches!(bench.news().await, StoreEvent::Taken(again) if again.len() == 1));
}

//! Tests of the exchange in simulated time: no sockets, and a clock that the test moves.

use super::*;
use crate::config::backend::{BackendConfig, BackendEvent, BackendEvents, BackendUrl};
use crate::limits::owner::OwnerId;
use std::cell::Cell;
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

mod neighbours;

struct World {
    exchange: Exchange,
    backend: Arc<Backend>,
    now: Now,
    /// Each event is of another owner.
    submitted: Cell<u64>,
}

type Outcomes = Receiver<Result<Vec<u8>, Failure>>;

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";

impl World {
    fn new(change: impl FnOnce(&mut BackendConfig)) -> Self {
        let url = BackendUrl::parse("http://a.example/").expect("a URL");
        let mut config = BackendConfig::new(url);
        config.events = BackendEvent::ALL.into_iter().collect::<BackendEvents>();
        change(&mut config);
        let backend = Arc::new(Backend::new(config));
        Self {
            exchange: Exchange::new(Arc::clone(&backend)),
            backend,
            now: Now {
                ms: 1_000,
                unix_ms: 1_700_000_000_000,
                precise: Instant::now(),
            },
            submitted: Cell::new(1),
        }
    }

    fn submit(&self, event: BackendEvent) -> Outcomes {
        let owner = OwnerId(self.submitted.get());
        self.submitted.set(owner.0 + 1);
        self.submit_of(owner, event)
    }

    fn submit_of(&self, owner: OwnerId, event: BackendEvent) -> Outcomes {
        let (sender, outcomes) = channel();
        let done = event.is_answered().then(|| {
            let done = move |outcome| {
                drop(sender.send(outcome));
                None
            };
            Box::new(done) as _
        });
        let submitted = self
            .backend
            .submit(event, owner, b"{}".to_vec(), done, None);
        submitted.expect("there is room");
        outcomes
    }

    /// The next turn, `ms` later; what it does.
    fn turn(&mut self, ms: u64) -> Vec<Action> {
        self.now.ms += ms;
        self.exchange.turn(self.now);
        std::iter::from_fn(|| self.exchange.poll_action()).collect()
    }

    fn open(&mut self, slot: usize) -> Vec<Action> {
        self.exchange.connected(slot, self.now);
        self.turn(0)
    }

    fn refuse(&mut self, slot: usize) -> Vec<Action> {
        self.exchange.closed(slot, "refused", false, self.now);
        self.turn(0)
    }
}

/// The bodies that are sent.
fn sent(actions: &[Action]) -> Vec<(usize, String)> {
    let actions = actions.iter().filter_map(|action| match action {
        Action::Send(slot, bytes) => {
            let text = String::from_utf8(bytes.clone()).expect("UTF-8");
            let (_, body) = text.split_once("\r\n\r\n").expect("a head");
            Some((*slot, body.to_owned()))
        }
        _ => None,
    });
    actions.collect()
}

fn is_sent(actions: &[Action], slot: usize) -> bool {
    matches!(actions, [Action::Send(sent, _)] if *sent == slot)
}

#[test]
fn connections_are_kept_and_closed_when_idle() {
    let mut world = World::new(|_| {});
    let first = world.submit(BackendEvent::Request);
    assert_eq!(world.turn(0), [Action::Open(0)]);
    assert!(is_sent(&world.open(0), 0));
    // In pieces.
    let (head, rest) = OK.split_at(10);
    assert_eq!(world.exchange.received(0, head, world.now), 0);
    assert_eq!(world.exchange.received(0, OK, world.now), OK.len());
    assert!(rest.len() < OK.len());
    assert_eq!(first.try_recv(), Ok(Ok(b"{}".to_vec())));
    let _second = world.submit(BackendEvent::Request);
    assert!(is_sent(&world.turn(3_999), 0));
    world.exchange.received(0, OK, world.now);
    assert_eq!(world.exchange.deadline_ms(), Some(world.now.ms + 4_000));
    assert_eq!(world.turn(4_000), [Action::Close(0)]);
    assert_eq!(world.exchange.deadline_ms(), None);
}

#[test]
fn the_pool_has_a_limit_and_the_rest_waits() {
    let mut world = World::new(|config| config.connections_max = 2);
    let outcomes: Vec<_> = (0..3)
        .map(|_| world.submit(BackendEvent::Request))
        .collect();
    assert_eq!(world.turn(0), [Action::Open(0), Action::Open(1)]);
    assert!(is_sent(&world.open(0), 0));
    assert!(is_sent(&world.open(1), 1));
    world.exchange.received(1, OK, world.now);
    assert!(
        is_sent(&world.turn(0), 1),
        "the third on the connection that is free"
    );
    assert!(outcomes[1].try_recv().is_ok());
    assert!(outcomes[0].try_recv().is_err());
}

#[test]
fn a_slow_answer_ends_the_request_and_its_connection() {
    let mut world = World::new(|_| {});
    let outcome = world.submit(BackendEvent::Connect);
    world.turn(0);
    world.open(0);
    assert_eq!(world.exchange.deadline_ms(), Some(6_000));
    assert_eq!(world.turn(4_999), []);
    assert_eq!(world.turn(1), [Action::Close(0)]);
    assert_eq!(outcome.try_recv(), Ok(Err(Failure::TimedOut)));
}

#[test]
fn a_connection_that_does_not_open_in_time_is_given_up() {
    let mut world = World::new(|_| {});
    let outcome = world.submit(BackendEvent::Connect);
    assert_eq!(world.turn(0), [Action::Open(0)]);
    assert_eq!(world.turn(1_000), [Action::Close(0), Action::Open(0)]);
    // The circuit breaker opens with the fifth.
    for _ in 0..3 {
        assert_eq!(world.turn(1_000).len(), 2);
    }
    assert_eq!(world.turn(1_000), [Action::Close(0)]);
    let failed = outcome.try_recv().expect("an outcome");
    assert!(matches!(failed, Err(Failure::Open(_))), "{failed:?}");
}

#[test]
fn after_failures_one_probe_is_sent_and_the_others_fail_at_once() {
    let mut world = World::new(|config| config.connections_max = 1);
    let waiting = world.submit(BackendEvent::Connect);
    world.turn(0);
    for _ in 0..4 {
        assert_eq!(world.refuse(0), [Action::Open(0)]);
    }
    assert_eq!(world.refuse(0), []);
    assert!(matches!(waiting.try_recv(), Ok(Err(Failure::Open(_)))));
    let early = world.submit(BackendEvent::Connect);
    assert_eq!(world.turn(499), []);
    assert!(matches!(early.try_recv(), Ok(Err(Failure::Open(_)))));
    let (probe, other) = (
        world.submit(BackendEvent::Connect),
        world.submit(BackendEvent::Connect),
    );
    assert_eq!(world.turn(1), [Action::Open(0)]);
    assert!(matches!(other.try_recv(), Ok(Err(Failure::Open(_)))));
    assert!(is_sent(&world.open(0), 0));
    world.exchange.received(0, OK, world.now);
    assert!(matches!(probe.try_recv(), Ok(Ok(_))));
    let after = world.submit(BackendEvent::Connect);
    assert!(is_sent(&world.turn(0), 0));
    assert!(after.try_recv().is_err());
}

#[test]
fn events_without_an_answer_wait_while_the_backend_is_away() {
    let mut world = World::new(|config| config.connections_max = 1);
    let _no_outcome = world.submit(BackendEvent::Message);
    assert_eq!(world.turn(0), [Action::Open(0)]);
    for _ in 0..4 {
        assert_eq!(world.refuse(0), [Action::Open(0)]);
    }
    assert_eq!(world.refuse(0), []);
    let _no_outcome = world.submit(BackendEvent::Disconnect);
    assert_eq!(world.exchange.deadline_ms(), Some(world.now.ms + 500));
    assert_eq!(world.turn(500), [Action::Open(0)]);
    let sent = world.open(0);
    let [Action::Send(0, bytes)] = &sent[..] else {
        panic!("{sent:?}");
    };
    assert!(bytes.ends_with(b"\r\n\r\n[{}]"), "the first alone");
    world.exchange.received(0, OK, world.now);
    assert!(is_sent(&world.turn(0), 0), "then the second");
    assert_eq!(world.backend.counts.answered(BackendEvent::Message), 1);
}

#[test]
fn a_batch_that_the_backend_cannot_handle_is_dropped_after_three_times() {
    let mut world = World::new(|_| {});
    let _no_outcome = world.submit(BackendEvent::Message);
    world.turn(0);
    let failure = b"HTTP/1.1 500 X\r\nContent-Length: 0\r\n\r\n";
    assert!(is_sent(&world.open(0), 0));
    world.exchange.received(0, failure, world.now);
    assert_eq!(world.turn(99), []);
    assert!(is_sent(&world.turn(1), 0));
    world.exchange.received(0, failure, world.now);
    assert!(is_sent(&world.turn(200), 0));
    world.exchange.received(0, failure, world.now);
    assert_eq!(world.turn(1_000), []);
    let failed: u64 = world
        .backend
        .counts
        .failed(BackendEvent::Message)
        .iter()
        .sum();
    assert_eq!((failed, world.backend.in_flight()), (1, [0, 0]));
}

#[test]
fn bytes_that_nobody_asked_for_end_the_connection() {
    let mut world = World::new(|_| {});
    let _outcome = world.submit(BackendEvent::Request);
    world.turn(0);
    world.open(0);
    world.exchange.received(0, OK, world.now);
    world.exchange.received(0, b"\r\n", world.now);
    assert_eq!(world.turn(0), []);
    world.exchange.received(0, OK, world.now);
    assert_eq!(world.turn(0), [Action::Close(0)]);
}

#[test]
fn a_stop_ends_every_event() {
    let mut world = World::new(|config| config.connections_max = 1);
    let outcomes: Vec<_> = (0..2)
        .map(|_| world.submit(BackendEvent::Request))
        .collect();
    world.turn(0);
    world.open(0);
    let late = world.submit(BackendEvent::Request);
    assert!(
        world.exchange.wind_up(world.now),
        "nothing else is to be sent"
    );
    world.exchange.closed(0, "after the stop", false, world.now);
    for outcome in outcomes.iter().chain([&late]) {
        assert_eq!(outcome.try_recv(), Ok(Err(Failure::Stopped)));
    }
    assert_eq!(world.backend.in_flight(), [0, 0]);
}

#[test]
fn a_stop_sends_what_needs_no_answer_if_the_backend_accepts_it_soon() {
    let mut world = World::new(|_| {});
    let asked = world.submit(BackendEvent::Request);
    world.turn(0);
    world.open(0);
    for _ in 0..2 {
        let _no_outcome = world.submit(BackendEvent::Disconnect);
    }
    assert!(!world.exchange.wind_up(world.now));
    assert_eq!(asked.try_recv(), Ok(Err(Failure::Stopped)));
    assert_eq!(world.turn(0), [Action::Close(0), Action::Open(0)]);
    assert!(is_sent(&world.open(0), 0));
    assert!(!world.exchange.wind_up(world.now), "not accepted yet");
    world.exchange.received(0, OK, world.now);
    assert!(world.exchange.wind_up(world.now));
    assert_eq!(world.backend.counts.answered(BackendEvent::Disconnect), 2);
    assert_eq!(world.backend.in_flight(), [0, 0]);
}

#[test]
fn a_stop_waits_for_no_silent_backend() {
    let mut world = World::new(|_| {});
    let _no_outcome = world.submit(BackendEvent::Disconnect);
    assert!(!world.exchange.wind_up(world.now));
    world.turn(0);
    world.open(0);
    assert_eq!(
        world.exchange.deadline_ms(),
        Some(world.now.ms + STOP_MS),
        "before the time of the batch"
    );
    world.now.ms += STOP_MS;
    assert!(world.exchange.wind_up(world.now));
    let failed = world.backend.counts.failed(BackendEvent::Disconnect);
    assert_eq!(failed[Failure::Stopped.index()], 1);
}

#[test]
fn a_dripping_answer_has_the_time_of_any_other() {
    let mut world = World::new(|config| config.timeout_ms = 1_000);
    for answer in [OK, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"] {
        let outcome = world.submit(BackendEvent::Connect);
        world.turn(0);
        world.open(0);
        let mut unread = Vec::new();
        for byte in &answer[..answer.len() - 1] {
            unread.push(*byte);
            let used = world.exchange.received(0, &unread, world.now);
            unread.drain(..used);
            assert_eq!(world.turn(20), []);
        }
        assert!(outcome.try_recv().is_err());
        assert_eq!(world.turn(1_000), [Action::Close(0)]);
        assert_eq!(outcome.try_recv(), Ok(Err(Failure::TimedOut)));
    }
}

#[test]
fn chunks_without_an_end_are_cut_off() {
    let mut world = World::new(|config| config.answer_bytes_max = 1_000);
    let outcome = world.submit(BackendEvent::Request);
    world.turn(0);
    world.open(0);
    let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(world.exchange.received(0, head, world.now), head.len());
    for _ in 0..1_001 {
        world.exchange.received(0, b"1\r\nx\r\n", world.now);
    }
    assert_eq!(world.turn(0), [Action::Close(0)]);
    assert_eq!(outcome.try_recv(), Ok(Err(Failure::TooLarge)));
}

#[test]
fn one_owner_has_a_share_of_the_room() {
    let world = World::new(|config| {
        config.in_flight_max = 8;
        config.in_flight_bytes_max = 80_000;
    });
    let submit = |owner, bytes| {
        let body = vec![b' '; bytes];
        let event = BackendEvent::Message;
        world
            .backend
            .submit(event, OwnerId(owner), body, None, None)
    };
    assert_eq!(submit(1, 10), Ok(()));
    assert_eq!(submit(1, 10), Ok(()));
    assert_eq!(submit(1, 10), Err(Failure::Full), "a quarter of the events");
    assert_eq!(submit(2, 15_000), Ok(()));
    assert_eq!(
        submit(2, 15_000),
        Err(Failure::Full),
        "a quarter of the bytes"
    );
    let owner = OwnerId(1);
    let event = BackendEvent::Disconnect;
    let end = world.backend.submit(event, owner, Vec::new(), None, None);
    assert_eq!(end, Ok(()), "messages take no room from ends");
    drop(world.backend.inbox.take(usize::MAX));
    assert_eq!(world.backend.in_flight(), [0, 0]);
    assert_eq!(submit(1, 10), Ok(()));
    assert_eq!(world.backend.loads[1].locked().owners.len(), 1);
}

#[test]
fn an_answer_that_cannot_be_used_counts_as_a_failure() {
    let mut world = World::new(|_| {});
    let done = Box::new(|_| Some(Failure::Invalid("a list".to_owned())));
    let event = BackendEvent::Connect;
    let submitted = world
        .backend
        .submit(event, OwnerId(1), b"{}".to_vec(), Some(done), None);
    submitted.expect("there is room");
    world.turn(0);
    world.open(0);
    world.exchange.received(0, OK, world.now);
    let counts = &world.backend.counts;
    let invalid = Failure::Invalid(String::new()).index();
    assert_eq!(
        (counts.answered(event), counts.failed(event)[invalid]),
        (0, 1)
    );
}

#[test]
fn the_longest_times_are_possible() {
    let mut world = World::new(|config| {
        config.timeout_ms = u64::MAX;
        config.connect_timeout_ms = u64::MAX;
        config.idle_timeout_ms = u64::MAX;
    });
    let outcome = world.submit(BackendEvent::Request);
    world.turn(0);
    world.open(0);
    world.exchange.received(0, OK, world.now);
    assert_eq!(world.turn(1_000_000), []);
    assert!(matches!(outcome.try_recv(), Ok(Ok(_))));
}

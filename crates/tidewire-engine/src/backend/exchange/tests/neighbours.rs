//! Events of several owners: what fails or waits for one of them does not concern the others.

use super::*;

const FAILED: &[u8] = b"HTTP/1.1 500 X\r\nContent-Length: 0\r\n\r\n";

const ANN: OwnerId = OwnerId(1);
const BOB: OwnerId = OwnerId(2);
const EVE: OwnerId = OwnerId(3);

#[test]
fn one_owner_does_not_use_up_the_connections() {
    let mut world = World::new(|config| config.in_flight_max = 1_000);
    // Somebody else has been here.
    let _other = world.submit_of(BOB, BackendEvent::Connect);
    let _slow: Vec<_> = (0..100)
        .map(|_| world.submit_of(EVE, BackendEvent::Request))
        .collect();
    let slots = world.turn(0).len();
    for slot in 0..slots {
        world.open(slot);
    }
    let under_way = |world: &World, kind: RequestKind| {
        let counts = &world.backend.counts;
        counts.under_way[kind as usize].load(Ordering::Relaxed)
    };
    // Seven seats are not reserved, and Bob has one of them. Eve has three and leaves three free. She also has the two that
    // are reserved for requests, because nobody else has a request.
    assert_eq!(under_way(&world, RequestKind::Request), 3 + 2);
    for event in [
        BackendEvent::Connect,
        BackendEvent::Subscribe,
        BackendEvent::Publish,
        BackendEvent::Request,
    ] {
        let outcome = world.submit_of(ANN, event);
        let mut actions = world.turn(0);
        if let [Action::Open(slot)] = actions[..] {
            actions = world.open(slot);
        }
        let [Action::Send(slot, _)] = actions[..] else {
            panic!("{event:?}: {actions:?}");
        };
        world.exchange.received(slot, OK, world.now);
        assert!(matches!(outcome.try_recv(), Ok(Ok(_))), "{event:?}");
    }
}

#[test]
fn owners_take_turns() {
    let mut world = World::new(|config| config.connections_max = 1);
    let first: Vec<_> = (0..3)
        .map(|_| world.submit_of(EVE, BackendEvent::Request))
        .collect();
    let ann = world.submit_of(ANN, BackendEvent::Request);
    let connect = world.submit_of(BOB, BackendEvent::Connect);
    world.turn(0);
    world.open(0);
    let answered = |outcomes: &Outcomes| outcomes.try_recv().is_ok();
    world.exchange.received(0, OK, world.now);
    world.turn(0);
    world.exchange.received(0, OK, world.now);
    world.turn(0);
    world.exchange.received(0, OK, world.now);
    world.turn(0);
    let eve = first.iter().filter(|outcomes| answered(outcomes)).count();
    assert_eq!((eve, answered(&ann), answered(&connect)), (1, true, true));
}

#[test]
fn a_backend_that_refuses_one_more_connection_is_not_away() {
    let mut world = World::new(|_| {});
    let first = world.submit_of(ANN, BackendEvent::Request);
    world.turn(0);
    world.open(0);
    let second = world.submit_of(BOB, BackendEvent::Request);
    assert_eq!(world.turn(0), [Action::Open(1)]);
    for _ in 0..10 {
        assert_eq!(world.refuse(1), []);
        assert_eq!(world.exchange.deadline_ms(), Some(world.now.ms + 250));
        assert_eq!(world.turn(250), [Action::Open(1)]);
    }
    world.exchange.received(0, OK, world.now);
    assert!(is_sent(&world.turn(0), 0), "over the one that is there");
    assert!(matches!(first.try_recv(), Ok(Ok(_))));
    assert!(second.try_recv().is_err());
    let counts = &world.backend.counts;
    assert_eq!(counts.breaker_openings[0].load(Ordering::Relaxed), 0);
}

#[test]
fn an_array_that_fails_is_divided_by_owners() {
    let mut world = World::new(|_| {});
    for owner in [ANN, EVE, BOB, ANN] {
        let _no_outcome = world.submit_of(owner, BackendEvent::Message);
    }
    world.turn(0);
    assert_eq!(sent(&world.open(0)), [(0, "[{},{},{},{}]".to_owned())]);
    world.exchange.received(0, FAILED, world.now);
    let _later = world.submit_of(ANN, BackendEvent::Message);
    assert_eq!(sent(&world.turn(99)), []);
    assert_eq!(sent(&world.turn(1)), [(0, "[{},{}]".to_owned())], "of Ann");
    world.exchange.received(0, OK, world.now);
    assert_eq!(sent(&world.turn(0)), [(0, "[{}]".to_owned())], "of Eve");
    world.exchange.received(0, FAILED, world.now);
    assert_eq!(sent(&world.turn(0)), [(0, "[{}]".to_owned())], "of Bob");
    world.exchange.received(0, OK, world.now);
    assert_eq!(sent(&world.turn(199)), []);
    assert_eq!(
        sent(&world.turn(1)),
        [(0, "[{}]".to_owned())],
        "of Eve again"
    );
    world.exchange.received(0, FAILED, world.now);
    assert_eq!(
        sent(&world.turn(0)),
        [(0, "[{}]".to_owned())],
        "the next array"
    );
    world.exchange.received(0, OK, world.now);
    world.turn(0);
    let counts = &world.backend.counts;
    let failed: u64 = counts.failed(BackendEvent::Message).iter().sum();
    assert_eq!((counts.answered(BackendEvent::Message), failed), (4, 1));
    assert_eq!(world.backend.in_flight(), [0, 0]);
}

#[test]
fn an_array_without_an_answer_is_sent_again_over_another_connection() {
    let mut world = World::new(|config| config.timeout_ms = 1_000);
    let _no_outcome = world.submit_of(ANN, BackendEvent::Message);
    world.turn(0);
    assert!(is_sent(&world.open(0), 0));
    assert_eq!(world.turn(1_000), [Action::Close(0)]);
    assert_eq!(world.turn(100), [Action::Open(0)]);
    assert_eq!(world.turn(500), [], "it waits for the connection");
    assert!(is_sent(&world.open(0), 0));
    world.exchange.received(0, OK, world.now);
    world.turn(0);
    assert_eq!(world.backend.counts.answered(BackendEvent::Message), 1);
}

#[test]
fn an_array_without_a_connection_of_its_own_waits_for_one() {
    let mut world = World::new(|config| config.connections_max = 1);
    let _outcome = world.submit_of(ANN, BackendEvent::Request);
    world.turn(0);
    world.open(0);
    let _no_outcome = world.submit_of(ANN, BackendEvent::Message);
    assert_eq!(world.turn(0), []);
    let due_ms = world.exchange.deadline_ms().expect("the end of its time");
    assert!(due_ms > world.now.ms, "nothing is due before");
    world.exchange.received(0, OK, world.now);
    assert!(is_sent(&world.turn(0), 0));
}

#[test]
fn arrays_that_nobody_accepts_are_not_sent_for_each_owner() {
    let mut world = World::new(|_| {});
    for owner in 1..=100 {
        let _no_outcome = world.submit_of(OwnerId(owner), BackendEvent::Message);
    }
    world.turn(0);
    let mut count = sent(&world.open(0)).len();
    let rejected = b"HTTP/1.1 401 X\r\nContent-Length: 0\r\n\r\n";
    while world.backend.in_flight() != [0, 0] {
        world.exchange.received(0, rejected, world.now);
        count += sent(&world.turn(100)).len();
    }
    assert_eq!(count, 4, "the whole, and three parts");
}

#[test]
fn arrays_wait_while_the_backend_fails_for_all() {
    let mut world = World::new(|config| config.idle_timeout_ms = 60_000);
    for owner in 1..=100 {
        let _no_outcome = world.submit_of(OwnerId(owner), BackendEvent::Message);
    }
    world.turn(0);
    let mut sending = sent(&world.open(0));
    let mut count = 0;
    for _ in 0..1_000 {
        if !sending.is_empty() {
            count += 1;
            world.exchange.received(0, FAILED, world.now);
        }
        sending = sent(&world.turn(10));
    }
    assert!(count < 40, "{count} requests in ten seconds");
    let waiting = world.backend.in_flight()[1];
    assert!(waiting > 80, "{waiting} wait still");
    while world.backend.in_flight() != [0, 0] {
        if !sending.is_empty() {
            world.exchange.received(0, OK, world.now);
        }
        sending = sent(&world.turn(100));
    }
}

#[test]
fn a_status_of_success_without_an_answer_is_a_failure_of_an_event_and_not_of_an_array() {
    for status in [201, 202, 203, 205, 206, 299] {
        let answer = format!("HTTP/1.1 {status} X\r\nContent-Length: 2\r\n\r\n{{}}");
        let mut world = World::new(|_| {});
        let outcome = world.submit(BackendEvent::Connect);
        world.turn(0);
        world.open(0);
        world.exchange.received(0, answer.as_bytes(), world.now);
        assert_eq!(outcome.try_recv(), Ok(Err(Failure::Status(status))));
        let _no_outcome = world.submit(BackendEvent::Message);
        world.turn(0);
        world.exchange.received(0, answer.as_bytes(), world.now);
        assert_eq!(world.backend.counts.answered(BackendEvent::Message), 1);
    }
}

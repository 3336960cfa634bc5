//! Requests without an answer: every one that was due is in the percentiles, at its age so far, and no tolerance hides
//! it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::time::Duration;

use std::sync::atomic::AtomicBool;

use tidewire_load::options::load::LoadOptions;
use tidewire_load::plan::bench::TestKind;
use tidewire_load::plan::run::{BenchOptions, run};
use tidewire_load::report::{TestResult, Verdict};
use tidewire_load::worker::order::Timeouts;
use tidewire_load::worker::target::Target;
use tidewire_load::worker::websocket::profile::Profile;

use crate::account::{Account, AccountServer, Conduct, Fault, Protocol};
use crate::loading::report_of;

const MS: Duration = Duration::from_millis(1);

fn options(server: &AccountServer) -> LoadOptions {
    let mut options = LoadOptions {
        connections: 1,
        threads: 1,
        duration: Some(1_500 * MS),
        expectations: ["p99<150ms", "succeeded.p50<10s", "errors<0.5%"]
            .map(|text| text.parse().unwrap())
            .to_vec(),
        ..LoadOptions::new(&server.url())
    };
    options.timeouts.drain_ms = 200;
    options
}

/// The server hangs from this moment on, and answers nothing any more.
fn hanging(protocol: Protocol, from: Duration) -> AccountServer {
    AccountServer::start(Conduct::between(
        protocol,
        Fault::Swallows,
        from,
        Duration::MAX,
    ))
}

fn outcome(options: &LoadOptions, server: &AccountServer) -> (TestResult, Account) {
    let mut report = report_of(options);
    assert_eq!(report.exit_code(), 1);
    (report.results.remove(0), server.account())
}

fn kept(result: &TestResult) -> Vec<bool> {
    let expectations = result.load.expectations.iter();
    expectations.map(|one| one.kept).collect()
}

#[test]
fn a_server_that_hangs_at_the_end_of_an_open_loop_is_in_its_percentiles() {
    for protocol in [Protocol::Http, Protocol::WebSocket] {
        let server = hanging(protocol, 1_200 * MS);
        let mut options = options(&server);
        options.rate_per_s = Some(100.0);
        options.messages.matching = matching_of(protocol);
        let (result, account) = outcome(&options, &server);
        let requests = result.load.requests.unwrap();
        // Of the last 0.3 s one is on its way, and the others are due and not sent.
        assert_eq!(requests.due(), 150);
        assert_eq!((requests.sent, requests.unfinished), (account.received, 1));
        assert_eq!(requests.succeeded, account.answered);
        assert!(requests.unsent > 10, "{requests:?}");
        let latency = result.latency_us.as_ref().unwrap();
        assert_eq!(latency.count, 150);
        // The oldest was due 0.3 s before the end, and was waited for during 0.2 s more.
        assert!(latency.p99 > 400_000.0, "{}", latency.p99);
        let succeeded = result.load.succeeded_latency_us.as_ref().unwrap();
        assert_eq!(succeeded.count, account.answered);
        assert!(succeeded.p50 <= latency.p50);
        assert_eq!(kept(&result), [false, true, false]);
        assert_eq!(result.verdict, Verdict::Failed);
        assert!(result.doubts.contains(&"requests_unanswered".to_owned()));
        let in_histogram: u64 = result.load.histogram.iter().map(|bucket| bucket.1).sum();
        assert_eq!(in_histogram, 150);
    }
}

#[test]
fn a_closed_loop_without_answers_at_the_end_is_no_success() {
    for protocol in [Protocol::Http, Protocol::WebSocket] {
        let server = hanging(protocol, 1_000 * MS);
        let mut options = options(&server);
        options.connections = 10;
        options.expectations.clear();
        options.messages.matching = matching_of(protocol);
        let (result, account) = outcome(&options, &server);
        let requests = result.load.requests.unwrap();
        assert_eq!((requests.unfinished, requests.unsent), (10, 0));
        assert_eq!(requests.sent, account.received);
        assert_eq!(requests.succeeded, account.answered);
        let latency = result.latency_us.as_ref().unwrap();
        assert_eq!(latency.count, requests.due());
        assert!(latency.max > 400_000.0, "{}", latency.max);
        assert_eq!(result.verdict, Verdict::Failed);
    }
}

#[test]
fn a_stall_that_ends_is_in_the_latencies_of_an_open_loop_alone() {
    let server = AccountServer::start(Conduct::between(
        Protocol::Http,
        Fault::Hangs,
        400 * MS,
        800 * MS,
    ));
    let mut options = options(&server);
    options.rate_per_s = Some(100.0);
    let mut report = report_of(&options);
    let result = report.results.remove(0);
    let requests = result.load.requests.unwrap();
    assert_eq!((requests.due(), requests.unsuccessful()), (150, 0));
    // 40 of 150 were due in the stall, the first of them 0.4 s before its end.
    assert!(result.latency_us.as_ref().unwrap().p99 > 350_000.0);
    assert_eq!(result.load.succeeded_latency_us, None);
    assert_eq!(kept(&result), [false, true, true]);
}

#[test]
fn each_connection_with_times_of_its_own_counts_what_it_could_not_send() {
    let server = hanging(Protocol::WebSocket, 1_000 * MS);
    let mut options = options(&server);
    options.connections = 4;
    options.each_per_s = Some(20.0);
    options.messages.matching = matching_of(Protocol::WebSocket);
    let (result, account) = outcome(&options, &server);
    let requests = result.load.requests.unwrap();
    assert_eq!(requests.sent, account.received);
    assert_eq!(requests.unfinished, 4);
    assert_eq!(requests.due(), 4 * 30);
    assert_eq!(result.latency_us.unwrap().count, 4 * 30);
}

#[test]
fn the_cause_of_what_was_not_sent_is_the_one_that_happened() {
    let always = |fault| Conduct::always(Protocol::WebSocket, fault);
    let late = |fault| Conduct::between(Protocol::WebSocket, fault, 300 * MS, Duration::MAX);
    let cases = [
        (
            always(Fault::Slow(50 * MS)),
            false,
            "every connection waited for a response",
        ),
        (
            always(Fault::Slow(50 * MS)),
            true,
            "the connections waited for responses",
        ),
        (
            late(Fault::Refuses(4_000)),
            false,
            "connections had ended or could not be opened",
        ),
        (
            late(Fault::Resets),
            false,
            "connections had ended or could not be opened",
        ),
    ];
    for (conduct, has_own_times, words) in cases {
        let server = AccountServer::start(conduct);
        let mut options = options(&server);
        options.connections = 2;
        options.expectations.clear();
        options.messages.matching = matching_of(Protocol::WebSocket);
        match has_own_times {
            true => options.each_per_s = Some(200.0),
            false => options.rate_per_s = Some(200.0),
        }
        let result = report_of(&options).results.remove(0);
        let notes = result.notes.join("\n");
        assert!(notes.contains(words), "{words}: {notes}");
        assert!(!notes.contains("its sockets accepted no more"), "{notes}");
    }
}

fn matching_of(protocol: Protocol) -> tidewire_load::worker::messages::Matching {
    match protocol {
        Protocol::Http => tidewire_load::worker::messages::Matching::None,
        Protocol::WebSocket => tidewire_load::worker::messages::Matching::Order,
    }
}

/// A test of `bench` against a server that hangs from this moment on.
fn bench(test: TestKind, from: Duration, rate_per_s: Option<f64>) -> (TestResult, Account) {
    let server = hanging(Protocol::WebSocket, from);
    bench_against(&server, test, (1, 1), rate_per_s)
}

fn bench_against(
    server: &AccountServer,
    test: TestKind,
    (connections, threads): (usize, usize),
    rate_per_s: Option<f64>,
) -> (TestResult, Account) {
    let mut options = BenchOptions::new(Target::parse(&server.url()).unwrap());
    options.profile = Profile::Raw;
    options.tests = vec![test];
    options.tiers = vec![connections];
    options.threads = threads;
    (options.rate_per_s, options.in_flight) = (rate_per_s, 1);
    (options.duration, options.hold) = (1_500 * MS, 1_500 * MS);
    options.hold_ping_every_ms = 50;
    options.timeouts = Timeouts {
        connect_ms: 2_000,
        pong_ms: 500,
        barrier_ms: 500,
        close_ms: 200,
    };
    let mut report = run(&options, &mut (), &AtomicBool::new(false)).unwrap();
    (report.results.remove(0), server.account())
}

#[test]
fn echoes_without_an_answer_are_in_the_latencies_of_a_bench() {
    for rate_per_s in [None, Some(100.0)] {
        let (result, account) = bench(TestKind::Echo, 1_200 * MS, rate_per_s);
        assert_eq!(result.verdict, Verdict::Failed, "{result:#?}");
        let latency = result.latency_us.as_ref().unwrap();
        // In a closed loop one message waits; at a rate those that are due after it are sent, too.
        let open = latency.count - account.answered;
        assert_eq!(open, result.messages.unwrap().lost, "{latency:?}");
        assert!(
            if rate_per_s.is_some() {
                open > 10
            } else {
                open == 1
            },
            "{open}"
        );
        assert!(latency.max > 400_000.0, "{}", latency.max);
    }
}

#[test]
fn what_is_due_on_a_connection_that_ended_is_in_the_latencies_of_a_bench() {
    // A message each 10 ms, so that one or two of the four connections end.
    let server = AccountServer::start(Conduct::between(
        Protocol::WebSocket,
        Fault::Resets,
        500 * MS,
        515 * MS,
    ));
    let (result, account) = bench_against(&server, TestKind::Echo, (4, 1), Some(100.0));
    assert_eq!(result.verdict, Verdict::Failed, "{result:#?}");
    let latency = result.latency_us.as_ref().unwrap();
    assert_eq!(latency.count, 150, "{account:?}: {result:#?}");
    assert!(account.answered < 140, "{account:?}");
    // The first message that was due on an ended connection is 1 s old when the sending ends.
    assert!(latency.max > 900_000.0, "{}", latency.max);
}

#[test]
fn a_worker_of_a_bench_without_a_connection_has_nothing_due() {
    // The one connection of two threads.
    let server = hanging(Protocol::WebSocket, 1_000 * MS);
    let (result, account) = bench_against(&server, TestKind::Echo, (1, 2), Some(100.0));
    let latency = result.latency_us.as_ref().unwrap();
    assert_eq!(latency.count, 150, "{account:?}: {result:#?}");
    let server = AccountServer::start(Conduct::between(
        Protocol::WebSocket,
        Fault::Resets,
        1_000 * MS,
        Duration::MAX,
    ));
    let (result, account) = bench_against(&server, TestKind::Echo, (1, 2), Some(100.0));
    let latency = result.latency_us.as_ref().unwrap();
    assert_eq!(latency.count, 150, "{account:?}: {result:#?}");
}

#[test]
fn a_ping_without_a_pong_is_in_the_latencies_of_a_bench() {
    let (result, _) = bench(TestKind::SustainedHold, 700 * MS, None);
    assert_eq!(result.verdict, Verdict::Failed, "{result:#?}");
    let (latency, pings) = (result.latency_us.as_ref().unwrap(), result.pings.unwrap());
    assert_eq!((latency.count, pings.lost), (pings.sent, 1), "{result:#?}");
    // It is given up after this time.
    assert!(latency.max > 490_000.0, "{}", latency.max);
}

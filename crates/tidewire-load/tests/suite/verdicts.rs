//! The report says what a server is worth: honest ones are valid, liars are found out.

#![allow(clippy::unwrap_used)]

use crate::common;
use crate::schema;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::{Conduct, LIMIT, Server, StatsServer, options};
#[cfg(target_os = "linux")]
use tidewire_load::accounting::resources;
use tidewire_load::accounting::stats::StatsSource;
use tidewire_load::plan::bench::TestKind;
use tidewire_load::plan::run::{BenchOptions, run};
use tidewire_load::report::{LatencyOrigin, LimitPhase, StoppedBy, TestResult, Verdict};
use tidewire_load::worker::order::Timeouts;
use tidewire_load::worker::target::TokenSource;
use tidewire_load::worker::websocket::profile::Profile;
use tidewire_load::{Progress, Report};

fn report(options: &BenchOptions) -> Report {
    run(options, &mut (), &AtomicBool::new(false)).unwrap()
}

fn bench(conduct: Conduct, test: TestKind, profile: Profile) -> TestResult {
    let server = Server::start(
        conduct,
        profile == Profile::V1,
        "127.0.0.1:0".parse().unwrap(),
    );
    let mut report = report(&options(&server, test, profile));
    assert_eq!(report.results.len(), 1);
    report.results.remove(0)
}

#[track_caller]
fn assert_failed(result: &TestResult, note: &str) {
    assert_eq!(result.verdict, Verdict::Failed, "{result:#?}");
    assert!(
        result.notes.iter().any(|line| line.contains(note)),
        "{:#?}",
        result.notes
    );
}

/// Neither side is pinned to a core, and the machine does other work: the generator may be the limit, or noisy. Nothing may
/// be lost.
#[track_caller]
fn assert_honest(result: &TestResult) {
    assert!(result.verdict < Verdict::Failed, "{result:#?}");
    assert_eq!((result.connected, result.failed), (Some(20), Some(0)));
}

#[test]
fn an_honest_sink_confirms_every_message() {
    for profile in [Profile::Raw, Profile::V1] {
        let server = Server::start(
            Conduct::Sink,
            profile == Profile::V1,
            "127.0.0.1:0".parse().unwrap(),
        );
        let report = report(&options(&server, TestKind::Throughput, profile));
        let result = &report.results[0];
        assert_honest(result);
        let messages = result.messages.unwrap();
        assert!(messages.offered > 1_000, "{messages:?}");
        assert_eq!((messages.confirmed, messages.lost), (messages.offered, 0));
        // The server's own count is what the lab may not exceed and may not miss.
        assert_eq!(server.received.load(Ordering::Relaxed), messages.offered);
        assert_eq!(report.target.server.as_deref(), Some("test/1"));
        assert!(result.rate_per_s.unwrap() > 0.0);
        assert!(!report.partial && report.started_at.is_some());
    }
}

#[test]
fn an_honest_echo_answers_the_window_and_has_latencies() {
    for profile in [Profile::Raw, Profile::V1] {
        let result = bench(Conduct::Echo, TestKind::Echo, profile);
        assert_honest(&result);
        let messages = result.messages.unwrap();
        assert_eq!((messages.confirmed, messages.lost), (messages.offered, 0));
        let latency = result.latency_us.unwrap();
        assert_eq!(
            (latency.count, latency.origin),
            (messages.offered, LatencyOrigin::Sent)
        );
    }
}

#[test]
fn tls_loses_nothing_either() {
    for (conduct, test, profile) in [
        (Conduct::Sink, TestKind::Throughput, Profile::Raw),
        (Conduct::Echo, TestKind::Echo, Profile::V1),
        (Conduct::Sink, TestKind::PingLatency, Profile::V1),
    ] {
        let server = Server::secure(conduct, profile == Profile::V1);
        let mut options = options(&server, test, profile);
        options.timeouts = Timeouts::default();
        let result = &report(&options).results[0];
        assert_honest(result);
        if let Some(messages) = result.messages {
            assert_eq!((messages.confirmed, messages.lost), (messages.offered, 0));
            assert_eq!(server.received.load(Ordering::Relaxed), messages.offered);
        }
    }
}

#[test]
fn every_default_test_is_valid_on_an_honest_server() {
    let server = Server::v1(Conduct::Sink);
    let mut options = options(&server, TestKind::Throughput, Profile::V1);
    options.tests = TestKind::DEFAULT.to_vec();
    options.pings_per_connection = 5;
    options.sizes = vec![64, 65_536];
    options.connections_max = 50;
    let report = report(&options);
    let written = serde_json::to_value(&report).unwrap();
    assert_eq!(schema::violations(&written), Vec::<String>::new());
    let names: Vec<&str> = report
        .results
        .iter()
        .map(|result| result.test.as_str())
        .collect();
    let expected = [
        "connection-storm",
        "ping-latency",
        "throughput",
        "size-matrix",
        "size-matrix",
        "format-comparison",
        "format-comparison",
        "format-comparison",
        "sustained-hold",
        "connection-limit",
    ];
    assert_eq!(names, expected);
    for result in &report.results {
        assert!(result.verdict <= Verdict::GeneratorBound, "{result:#?}");
    }
    let [storm, ping, .., msgpack, zlib, hold, limit] = report.results.as_slice() else {
        panic!("ten results");
    };
    assert_eq!(storm.latency_us.as_ref().unwrap().count, 20);
    assert_eq!(ping.latency_us.as_ref().unwrap().count, 100);
    // Each format is worth its name: a message is smaller than its JSON of 1 KiB.
    assert!(msgpack.wire_bytes.unwrap() < 1_000.0, "{msgpack:#?}");
    assert!(zlib.wire_bytes.unwrap() < 600.0, "{zlib:#?}");
    assert_eq!(zlib.format.as_deref(), Some("zlib"));
    assert!(zlib.ratio_to_json.unwrap() > 0.0);
    assert_eq!(hold.survival.unwrap().survived, 20);
    assert!(hold.rate_per_s.unwrap() > 0.0);
    assert!(hold.latency_us.as_ref().unwrap().count >= 60);
    let found = limit.limit.as_ref().unwrap();
    assert_eq!(
        (found.largest_stable, found.stopped_by),
        (50, StoppedBy::Plan)
    );
}

#[test]
fn a_server_that_never_answers_the_barrier_has_confirmed_nothing() {
    let result = bench(Conduct::SinkWithoutPong, TestKind::Throughput, Profile::Raw);
    assert_failed(&result, "never confirmed");
    let messages = result.messages.unwrap();
    assert_eq!((messages.confirmed, messages.lost), (0, messages.offered));
    assert_eq!(result.rate_per_s, None);
    assert!(
        result
            .notes
            .iter()
            .any(|note| note.contains("20 timed out")),
        "{:?}",
        result.notes
    );
}

#[test]
fn an_echo_that_drops_messages_is_short_of_them() {
    let result = bench(Conduct::EchoDropping(1_000), TestKind::Echo, Profile::Raw);
    assert_failed(&result, "never confirmed");
    assert!(result.messages.unwrap().lost > 0);
}

#[test]
fn an_echo_that_cuts_messages_does_not_echo() {
    let result = bench(Conduct::EchoCutting, TestKind::Echo, Profile::Raw);
    assert_failed(&result, "does not echo");
}

#[test]
fn an_echo_that_answers_twice_confirms_too_much() {
    let result = bench(Conduct::EchoTwice, TestKind::Echo, Profile::Raw);
    assert_failed(&result, "had been answered before");
}

#[test]
fn a_pong_that_never_comes_is_a_failure() {
    let result = bench(
        Conduct::SinkWithoutPong,
        TestKind::PingLatency,
        Profile::Raw,
    );
    assert_failed(&result, "20 of 20 pings were never answered");
}

/// The hold is over before most connections' first ping is due.
#[test]
fn a_held_connection_survives_only_if_it_answers_in_the_end() {
    for (conduct, survived) in [(Conduct::Sink, 20), (Conduct::SinkWithoutPong, 0)] {
        let server = Server::raw(conduct);
        let mut options = options(&server, TestKind::SustainedHold, Profile::Raw);
        options.hold_ping_every_ms = 60_000;
        let result = &report(&options).results[0];
        assert_eq!(result.survival.unwrap().survived, survived, "{result:#?}");
        assert_eq!(result.verdict == Verdict::Failed, survived == 0);
    }
}

#[test]
fn refused_messages_are_not_confirmed_though_they_are_told_late() {
    for test in [TestKind::Throughput, TestKind::Echo] {
        let result = bench(Conduct::Limiting, test, Profile::V1);
        assert_honest(&result);
        let messages = result.messages.unwrap();
        assert_eq!(messages.confirmed, 20 * LIMIT, "{result:#?}");
        let refused = messages.refused.unwrap();
        assert_eq!(
            (refused + messages.confirmed, messages.lost),
            (messages.offered, 0)
        );
        assert!(refused > 0 && messages.delivered.is_none());
        // A refusal is no answer whose latency counts.
        let latencies = result.latency_us.map(|latency| latency.count);
        assert!(latencies.is_none_or(|count| count == 20 * LIMIT));
    }
}

#[test]
fn refusals_that_the_server_keeps_to_itself_are_in_doubt() {
    let result = bench(
        Conduct::LimitingInSilence,
        TestKind::Throughput,
        Profile::V1,
    );
    assert_failed(&result, "--stats-url");
}

#[test]
fn other_errors_fail_a_sending_test_and_are_named() {
    let result = bench(Conduct::Erring(100), TestKind::Throughput, Profile::V1);
    assert_failed(&result, "with INVALID_MESSAGE");
    let messages = result.messages.unwrap();
    assert!(
        messages.confirmed < messages.offered && messages.lost == 0,
        "{messages:?}"
    );
}

#[test]
fn a_measurement_without_connections_has_failed() {
    let server = Server::raw(Conduct::ClosingAfter(50));
    let mut options = options(&server, TestKind::SizeMatrix, Profile::Raw);
    options.sizes = vec![64, 256];
    let results = report(&options).results;
    assert_failed(&results[1], "Nothing was sent");
    assert_eq!(
        (results[1].connected, results[1].failed),
        (Some(0), Some(20))
    );
}

#[test]
fn a_rate_that_comes_and_goes_is_noisy() {
    let server = Server::raw(Conduct::EchoStalling(500, 700));
    let mut options = options(&server, TestKind::Echo, Profile::Raw);
    options.duration = Duration::from_millis(1_600);
    options.timeouts = Timeouts::default();
    let result = &report(&options).results[0];
    // On a busy machine the generator itself is in doubt, too, and that comes first.
    let verdicts = [Verdict::Noisy, Verdict::GeneratorBound];
    assert!(verdicts.contains(&result.verdict), "{result:#?}");
    assert!(result.doubts.contains(&"noisy".to_owned()), "{result:#?}");
    assert_eq!(result.rate_series.len(), 1);
}

#[test]
fn frames_larger_than_what_may_be_unconfirmed_go_one_by_one() {
    let server = Server::raw(Conduct::Sink);
    let mut options = options(&server, TestKind::SizeMatrix, Profile::Raw);
    // More than the share of one connection.
    options.sizes = vec![900_000];
    options.tiers = vec![200];
    // Long enough for the first 180 MB on a busy machine.
    options.duration = Duration::from_secs(2);
    options.timeouts = Timeouts::default();
    let result = &report(&options).results[0];
    let messages = result.messages.unwrap();
    assert_eq!((messages.confirmed, messages.lost), (messages.offered, 0));
    // Without a confirmation for each, there would be one frame of each connection and no more.
    assert!(messages.offered > 200, "{messages:?}");
}

#[test]
fn a_server_that_closes_connections_loses_messages() {
    let result = bench(Conduct::ClosingAfter(50), TestKind::Throughput, Profile::V1);
    assert_failed(&result, "broke during the test");
    assert_eq!(result.failed, Some(20));
    assert!(result.messages.unwrap().lost > 0);
}

#[test]
fn a_server_that_refuses_is_told_with_its_status() {
    let result = bench(Conduct::Refusing, TestKind::ConnectionStorm, Profile::V1);
    assert_failed(&result, "20 answered with HTTP 503");
    assert_eq!((result.connected, result.failed), (Some(0), Some(20)));
}

#[test]
fn a_server_that_is_not_there_is_told_as_refused() {
    let server = Server::raw(Conduct::Sink);
    let options = options(&server, TestKind::ConnectionStorm, Profile::Raw);
    drop(server);
    assert_failed(&report(&options).results[0], "20 refused");
}

#[test]
fn a_server_that_never_answers_the_upgrade_times_out() {
    let result = bench(Conduct::Mute, TestKind::ConnectionStorm, Profile::Raw);
    assert_failed(&result, "20 timed out");
}

#[test]
fn the_connection_limit_is_found_and_its_cause_named() {
    let server = Server::raw(Conduct::Limited(45));
    let mut options = options(&server, TestKind::ConnectionLimit, Profile::Raw);
    options.tiers = vec![10];
    options.connections_max = 1_000;
    let result = &report(&options).results[0];
    let limit = result.limit.as_ref().unwrap();
    assert_eq!(
        (limit.largest_stable, limit.stopped_by),
        (45, StoppedBy::Server),
        "{result:#?}"
    );
    let tried: Vec<_> = limit
        .probes
        .iter()
        .map(|probe| (probe.phase, probe.connections, probe.stable))
        .collect();
    use LimitPhase::{Doubling, Narrowing};
    assert_eq!(
        tried,
        [
            (Doubling, 10, true),
            (Doubling, 20, true),
            (Doubling, 40, true),
            (Doubling, 80, false),
            (Narrowing, 60, false),
            (Narrowing, 50, false),
            (Narrowing, 45, true),
            (Narrowing, 47, false),
            (Narrowing, 46, false),
        ]
    );
    let beyond = &limit.probes[3];
    assert_eq!((beyond.connected, beyond.source_addresses), (45, 1));
    assert_eq!(beyond.errors["unexpected-status-503"], 35, "{beyond:?}");
    assert!(beyond.rate_per_s.unwrap() > 0.0 && limit.probes[0].errors.is_empty());
    assert!(
        result.notes.iter().any(|note| note.contains("HTTP 503")),
        "{:?}",
        result.notes
    );
}

/// A silence is seen by one message of a closed loop, but by all that should have been sent
/// meanwhile when the latency counts from the intended time.
#[test]
fn a_late_answer_shows_in_the_latency_from_the_intended_time() {
    let server = Server::raw(Conduct::EchoStalling(500, 100));
    let mut options = options(&server, TestKind::Echo, Profile::Raw);
    options.rate_per_s = Some(5_000.0);
    options.duration = Duration::from_millis(500);
    let result = &report(&options).results[0];
    assert_honest(result);
    let latency = result.latency_us.as_ref().unwrap();
    assert_eq!(latency.origin, LatencyOrigin::Intended);
    assert!(latency.count >= 2_400, "{}", latency.count);
    // The stall is a fifth of the time, so a tenth of the messages waited for more than its half.
    assert!(latency.p90 > 40_000.0, "{latency:?}");
    let other = result.latency_other_us.as_ref().unwrap();
    assert_eq!(
        (other.count, other.origin),
        (latency.count, LatencyOrigin::Sent)
    );
    assert!(other.max <= latency.max, "sent before it was meant to be");
}

#[test]
fn the_servers_counters_are_compared() {
    let counted = |claim: fn(u64) -> (u64, u64)| {
        let server = Server::raw(Conduct::Sink);
        let stats = StatsServer::start(Arc::clone(&server.received), claim);
        let mut options = options(&server, TestKind::Throughput, Profile::Raw);
        options.stats = Some(StatsSource::at(stats.address));
        report(&options).results.remove(0)
    };
    let honest = counted(|received| (received, 0));
    assert_honest(&honest);
    assert_eq!(
        honest.messages.unwrap().delivered,
        Some(honest.messages.unwrap().offered)
    );

    let refusing = counted(|received| (received - received / 3, received / 3));
    assert_honest(&refusing);
    let messages = refusing.messages.unwrap();
    assert_eq!(
        messages.delivered.unwrap() + messages.refused.unwrap(),
        messages.offered
    );
    assert!(
        refusing
            .notes
            .iter()
            .any(|note| note.contains("were refused"))
    );

    assert_failed(
        &counted(|received| (received - received / 100, 0)),
        "counters account for",
    );
    assert_failed(&counted(|received| (received * 2, 0)), "counters claim");
}

#[test]
fn counters_that_cannot_be_read_fail_the_test() {
    let server = Server::raw(Conduct::Sink);
    let mut options = options(&server, TestKind::Throughput, Profile::Raw);
    // The WebSocket port serves no statistics.
    options.stats = Some(StatsSource::at("127.0.0.1:1".parse().unwrap()));
    assert_failed(&report(&options).results[0], "could not be compared");
}

/// Interrupts a run as soon as something takes its time.
struct Impatient(Arc<AtomicBool>, Vec<String>);

impl Progress for Impatient {
    fn phase_started(&mut self, name: &str, _expected: Option<Duration>) {
        let test = name.split(',').next().unwrap_or(name);
        self.1.push(test.to_owned());
    }
    fn tick(&mut self, _live: &tidewire_load::RunLive) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn an_interrupted_search_claims_no_limit() {
    let server = Server::raw(Conduct::Mute);
    let mut options = options(&server, TestKind::ConnectionLimit, Profile::Raw);
    options.timeouts.connect_ms = 500;
    let stop = Arc::new(AtomicBool::new(false));
    let mut impatient = Impatient(Arc::clone(&stop), Vec::new());
    let report = run(&options, &mut impatient, &stop).unwrap();
    assert!(report.partial);
    assert_eq!(report.results[0].limit, None);
    assert_failed(&report.results[0], "interrupted before the limit was found");
}

#[test]
fn an_interrupted_run_is_partial_and_says_so() {
    let server = Server::raw(Conduct::Sink);
    let mut options = options(&server, TestKind::Throughput, Profile::Raw);
    options.duration = Duration::from_secs(600);
    options.tests.push(TestKind::PingLatency);
    let stop = Arc::new(AtomicBool::new(false));
    let mut impatient = Impatient(Arc::clone(&stop), Vec::new());
    let report = run(&options, &mut impatient, &stop).unwrap();
    assert!(report.partial && report.partial_reason.is_some());
    assert_eq!(impatient.1, ["throughput"]);
    let messages = report.results[0].messages.unwrap();
    assert_eq!(messages.confirmed, messages.offered);
    assert!(
        report.results[0]
            .notes
            .iter()
            .any(|note| note.contains("interrupted"))
    );
}

#[test]
fn each_connection_has_its_token() {
    let server = Server::raw(Conduct::Sink);
    let mut options = options(&server, TestKind::ConnectionStorm, Profile::Raw);
    options.target.token =
        TokenSource::PerConnection(Arc::new(|number| Some(format!("token-{number:02}"))));
    assert_honest(&report(&options).results[0]);
    let mut tokens = server.tokens.lock().unwrap().clone();
    tokens.sort_unstable();
    let expected: Vec<String> = (0..20).map(|number| format!("token-{number:02}")).collect();
    assert_eq!(tokens, expected);
}

/// The memory is that of another process, which stands for the server's.
#[cfg(target_os = "linux")]
#[test]
fn memory_is_per_connection_only_while_nothing_else_has_grown_the_server() {
    let server = Server::v1(Conduct::Sink);
    let mut other = std::process::Command::new("sh")
        .args(["-c", GROWING])
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut options = options(&server, TestKind::ConnectionStorm, Profile::V1);
    options.server_pid = Some(other.id());
    options.tests.push(TestKind::SustainedHold);
    options.tests.push(TestKind::Throughput);
    options.tests.push(TestKind::SustainedHold);
    // It grows after the run has looked at it, and before the first connection.
    let mut growth = Growth {
        input: other.stdin.take(),
        kept: None,
        process_id: other.id(),
    };
    let results = run(&options, &mut growth, &AtomicBool::new(false));
    other.kill().unwrap();
    other.wait().unwrap();
    let results = results.unwrap().results;
    let memory: Vec<_> = results
        .iter()
        .map(|result| result.memory.unwrap())
        .collect();
    assert!(memory.iter().all(|memory| memory.server_rss_bytes > 0));
    let is_known = |index: usize| memory[index].per_connection_bytes.is_some();
    assert_eq!([0, 1, 2, 3].map(is_known), [true, true, false, false]);
    assert!(memory[1].drift_bytes.is_some());
}

/// A process that grows by 8 MB when it is told to.
#[cfg(target_os = "linux")]
const GROWING: &str =
    r#"read line; text=$(head -c 8000000 /dev/zero | tr "\0" a); read line; echo "$text""#;

/// Makes the process grow when the first test begins.
#[cfg(target_os = "linux")]
struct Growth {
    input: Option<std::process::ChildStdin>,
    /// Its end would end the process.
    kept: Option<std::process::ChildStdin>,
    process_id: u32,
}

#[cfg(target_os = "linux")]
impl Progress for Growth {
    fn phase_started(&mut self, _what: &str, _expected: Option<Duration>) {
        use std::io::Write;
        let Some(mut input) = self.input.take() else {
            return;
        };
        let process_id = self.process_id;
        let rss_bytes = || resources::process_usage(process_id).unwrap().rss_bytes;
        let before = rss_bytes();
        input.write_all(b"grow\n").unwrap();
        while rss_bytes() < before + (4 << 20) {
            std::thread::sleep(Duration::from_millis(5));
        }
        self.kept = Some(input);
    }
}

//! Servers that lie about messages, pings and connections, and plans that are not kept: none of it reads `valid`.

#![allow(clippy::unwrap_used)]

use crate::common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::layer::{Answer, Skill};
use common::{Conduct, Server, StatsServer, options};
use serde_json::Value;
use tidewire_load::accounting::stats::StatsSource;
use tidewire_load::fleet::preflight;
use tidewire_load::plan::bench::TestKind;
use tidewire_load::plan::run::{BenchOptions, RunError, run};
use tidewire_load::report::{StoppedBy, TestResult, Verdict};
use tidewire_load::worker::order::Timeouts;
use tidewire_load::worker::websocket::layer::Layer;
use tidewire_load::worker::websocket::profile::Profile;

fn results(options: &BenchOptions) -> Vec<TestResult> {
    run(options, &mut (), &AtomicBool::new(false))
        .unwrap()
        .results
}

fn result(options: &BenchOptions) -> TestResult {
    results(options).remove(0)
}

fn server(conduct: Conduct, profile: Profile) -> Server {
    let address = "127.0.0.1:0".parse().unwrap();
    Server::start(conduct, profile == Profile::V1, address)
}

fn bench(conduct: Conduct, test: TestKind, profile: Profile) -> TestResult {
    let server = server(conduct, profile);
    result(&options(&server, test, profile))
}

/// The result as it is written.
fn written(result: &TestResult) -> Value {
    serde_json::to_value(result).unwrap()
}

/// Asserts that the result has failed for this reason among others.
#[track_caller]
fn assert_failed(result: &TestResult, doubt: &str) {
    assert_eq!(result.verdict, Verdict::Failed, "{result:#?}");
    let doubts = &written(result)["doubts"];
    let named = doubts
        .as_array()
        .is_some_and(|all| all.contains(&doubt.into()));
    assert!(named, "{doubt} is not in {doubts}: {:#?}", result.notes);
}

/// Other work on the machine may leave the generator too little of it; nothing may be lost.
#[track_caller]
fn assert_honest(result: &TestResult) {
    assert!(result.verdict < Verdict::Failed, "{result:#?}");
}

const BOTH: [Profile; 2] = [Profile::Raw, Profile::V1];

#[test]
fn every_reply_is_compared_with_what_was_sent() {
    for profile in BOTH {
        for (conduct, doubt) in [
            (Conduct::EchoGarbage, "replies_wrong"),
            (Conduct::EchoFlipping, "replies_wrong"),
            (Conduct::EchoDroppingAndDoubling, "replies_missing"),
            (Conduct::EchoDroppingAndDoubling, "replies_doubled"),
            (Conduct::EchoSwapping, "replies_reordered"),
            (Conduct::EchoRepeating, "replies_doubled"),
            (Conduct::EchoDropping(50), "replies_missing"),
        ] {
            assert_failed(&bench(conduct, TestKind::Echo, profile), doubt);
        }
    }
}

#[test]
fn replies_at_a_given_rate_are_compared_too() {
    for profile in BOTH {
        for (conduct, doubt) in [
            (Conduct::EchoGarbage, "replies_wrong"),
            (Conduct::EchoDroppingAndDoubling, "replies_doubled"),
            (Conduct::EchoSwapping, "replies_reordered"),
        ] {
            let server = server(conduct, profile);
            let mut options = options(&server, TestKind::Echo, profile);
            options.rate_per_s = Some(2_000.0);
            assert_failed(&result(&options), doubt);
        }
    }
}

#[test]
fn replies_are_compared_whatever_lies_around_them() {
    for (profile, layer) in [
        (Profile::Raw, Layer::Deflate),
        (Profile::V1, Layer::Deflate),
        (Profile::V1, Layer::Encryption),
    ] {
        for (conduct, doubt) in [
            (Conduct::EchoFlipping, "replies_wrong"),
            (Conduct::EchoDroppingAndDoubling, "replies_doubled"),
            (Conduct::EchoSwapping, "replies_reordered"),
        ] {
            let answer = Answer::Honest;
            let server = Server::skilled(conduct, profile == Profile::V1, Skill { layer, answer });
            let mut options = options(&server, TestKind::Echo, profile);
            options.layer = layer;
            assert_failed(&result(&options), doubt);
        }
    }
}

/// Large messages repeat soon, so a whole lap of them could be left out and sent again later.
#[test]
fn large_replies_are_compared() {
    for (conduct, doubt) in [
        (Conduct::EchoDroppingAndDoubling, "replies_doubled"),
        (Conduct::EchoSwapping, "replies_reordered"),
        (Conduct::EchoFlipping, "replies_wrong"),
    ] {
        let server = server(conduct, Profile::Raw);
        let mut options = options(&server, TestKind::Echo, Profile::Raw);
        options.echo_sizes = vec![65_536];
        options.in_flight = 8;
        options.tiers = vec![2];
        options.duration = Duration::from_millis(500);
        assert_failed(&result(&options), doubt);
    }
}

#[test]
fn a_connection_that_breaks_right_after_it_became_ready_has_failed() {
    for profile in BOTH {
        for (code, after_ms) in [(1013, 0), (1013, 60), (4401, 20)] {
            let result = bench(
                Conduct::ClosingReady(code, after_ms),
                TestKind::ConnectionStorm,
                profile,
            );
            assert_failed(&result, "connections_failed");
            assert_eq!((result.connected, result.failed), (Some(0), Some(20)));
            assert_eq!(result.rate_per_s, None, "{result:#?}");
            assert!(
                result
                    .notes
                    .iter()
                    .any(|note| note.contains(&code.to_string())),
                "{:?}",
                result.notes
            );
        }
    }
}

#[test]
fn a_search_for_the_limit_counts_only_connections_that_live() {
    for profile in BOTH {
        let server = server(Conduct::ClosingAbove(30), profile);
        let mut options = options(&server, TestKind::ConnectionLimit, profile);
        options.tiers = vec![10];
        options.connections_max = 100;
        let result = result(&options);
        let limit = result.limit.as_ref().unwrap();
        assert_eq!(
            (limit.largest_stable, limit.stopped_by),
            (30, StoppedBy::Server),
            "{result:#?}"
        );
        assert_honest(&result);
    }
}

#[test]
fn pongs_that_answer_no_ping_are_strange() {
    for profile in BOTH {
        for test in [TestKind::PingLatency, TestKind::SustainedHold] {
            for conduct in [Conduct::PongsGuessed, Conduct::PongsTwice] {
                assert_failed(&bench(conduct, test, profile), "pongs_strange");
            }
        }
    }
}

/// Heartbeats that RFC 6455 allows (section 5.5.3) carry nothing that could be mistaken for an answer.
#[test]
fn an_empty_pong_is_a_heartbeat() {
    let result = bench(
        Conduct::PongsAsHeartbeat,
        TestKind::PingLatency,
        Profile::Raw,
    );
    assert_honest(&result);
    assert_eq!(result.latency_us.unwrap().count, 20 * 50);
}

#[test]
fn pongs_of_barriers_are_counted_once_as_well() {
    for conduct in [Conduct::PongsGuessed, Conduct::PongsTwice] {
        for profile in BOTH {
            assert_failed(
                &bench(conduct, TestKind::Throughput, profile),
                "pongs_strange",
            );
        }
    }
}

/// A sink can be asked for no more than its word. The row says whose word it is.
#[test]
fn the_row_says_what_its_confirmation_rests_on() {
    let server = server(Conduct::SinkDroppingThird, Profile::Raw);
    let mut options = options(&server, TestKind::Throughput, Profile::Raw);
    let one_sided = result(&options);
    assert_honest(&one_sided);
    assert_eq!(
        written(&one_sided)["confirmed_by"],
        serde_json::json!(["pong"])
    );

    let stats = StatsServer::start(Arc::clone(&server.received), |received| (received, 0));
    options.stats = Some(StatsSource::at(stats.address));
    let two_sided = result(&options);
    assert_failed(&two_sided, "counters_short");
    assert_eq!(
        written(&two_sided)["confirmed_by"],
        serde_json::json!(["pong", "counters"])
    );
    let echo = bench(Conduct::Echo, TestKind::Echo, Profile::V1);
    assert_eq!(written(&echo)["confirmed_by"], serde_json::json!(["reply"]));
}

#[test]
fn refusals_for_other_reasons_than_the_rate_limit_fail_and_are_named() {
    for (name, is_limit) in [("rate", true), ("invalid", false), ("size", false)] {
        for part in [1, 2] {
            let server = server(Conduct::Sink, Profile::Raw);
            let stats = StatsServer::saying(Arc::clone(&server.received), move |received| {
                let refused = received / part;
                let delivered = received - refused;
                format!(
                    r#"{{"messages_delivered":{delivered},"messages_refused_{name}":{refused}}}"#
                )
            });
            let mut options = options(&server, TestKind::Throughput, Profile::Raw);
            options.stats = Some(StatsSource::at(stats.address));
            let result = result(&options);
            if !is_limit {
                assert_failed(&result, "messages_refused");
                assert!(
                    result.notes.iter().any(|note| note.contains(name)),
                    "{:?}",
                    result.notes
                );
                assert!(!result.notes.iter().any(|note| note.contains("rate limit")));
            } else if part == 1 {
                assert_failed(&result, "nothing_confirmed");
            } else {
                assert_honest(&result);
            }
            let refused_by = &written(&result)["refused_by"];
            assert!(refused_by[name].as_u64().unwrap() > 0, "{refused_by}");
        }
    }
}

#[test]
fn a_test_that_was_interrupted_has_failed_with_its_real_numbers() {
    struct Impatient(Arc<AtomicBool>);
    impl tidewire_load::Progress for Impatient {
        fn tick(&mut self, live: &tidewire_load::RunLive) {
            if live.service.connected > 0 {
                self.0.store(true, Ordering::Relaxed);
            }
        }
    }
    for test in [
        TestKind::Throughput,
        TestKind::Echo,
        TestKind::SustainedHold,
    ] {
        let conduct = if test == TestKind::Echo {
            Conduct::Echo
        } else {
            Conduct::Sink
        };
        let server = server(conduct, Profile::Raw);
        let mut options = options(&server, test, Profile::Raw);
        options.duration = Duration::from_secs(600);
        options.hold = Duration::from_secs(600);
        let stop = Arc::new(AtomicBool::new(false));
        let report = run(&options, &mut Impatient(Arc::clone(&stop)), &stop).unwrap();
        assert!(report.partial);
        assert_failed(&report.results[0], "interrupted");
    }
}

/// As many connections as this machine has, to a server that makes none of them ready.
#[test]
fn connections_that_were_never_tried_are_not_counted_as_open() {
    struct AtOnce(Arc<AtomicBool>);
    impl tidewire_load::Progress for AtOnce {
        fn tick(&mut self, _live: &tidewire_load::RunLive) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let server = server(Conduct::Mute, Profile::Raw);
    let mut options = options(&server, TestKind::ConnectionStorm, Profile::Raw);
    let most = preflight::connections_room().min(1_000_000);
    options.tiers = vec![most];
    let stop = Arc::new(AtomicBool::new(false));
    let report = run(&options, &mut AtOnce(Arc::clone(&stop)), &stop).unwrap();
    let result = &report.results[0];
    assert_eq!(result.connections, most as u64);
    assert_eq!(result.connected, Some(0), "{result:#?}");
    assert_failed(result, "interrupted");
}

#[test]
fn more_connections_than_any_machine_has_are_refused_before_the_run() {
    // Without a limit of open files nothing is impossible.
    if preflight::raise_open_files().is_none_or(|limit| limit.soft.is_none()) {
        return;
    }
    let server = server(Conduct::Sink, Profile::Raw);
    for test in [TestKind::ConnectionStorm, TestKind::FanOut] {
        let mut options = options(&server, test, Profile::Raw);
        options.tiers = vec![usize::MAX];
        let refused = run(&options, &mut (), &AtomicBool::new(false));
        assert!(
            matches!(refused, Err(RunError::Impossible(_))),
            "{refused:?}"
        );
    }
}

/// Servers that never answer, with waits that no test would outlive.
#[test]
fn an_interruption_waits_for_nobody() {
    struct AtOnce(Arc<AtomicBool>);
    impl tidewire_load::Progress for AtOnce {
        fn tick(&mut self, _live: &tidewire_load::RunLive) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    for (conduct, test) in [
        (Conduct::Mute, TestKind::ConnectionStorm),
        (Conduct::Mute, TestKind::ConnectionLimit),
        (Conduct::SinkWithoutPong, TestKind::Throughput),
        (Conduct::SinkWithoutPong, TestKind::PingLatency),
        (Conduct::SinkWithoutPong, TestKind::SustainedHold),
        (Conduct::Sink, TestKind::Echo),
    ] {
        for profile in BOTH {
            let server = server(conduct, profile);
            let mut options = options(&server, test, profile);
            const HOUR_MS: u64 = 3_600_000;
            options.timeouts = Timeouts {
                connect_ms: HOUR_MS,
                pong_ms: HOUR_MS,
                barrier_ms: HOUR_MS,
                close_ms: HOUR_MS,
            };
            options.duration = Duration::from_secs(3_600);
            options.hold = Duration::from_secs(3_600);
            let stop = Arc::new(AtomicBool::new(false));
            let report = run(&options, &mut AtOnce(Arc::clone(&stop)), &stop).unwrap();
            assert!(report.partial);
            assert_failed(&report.results[0], "interrupted");
        }
    }
}

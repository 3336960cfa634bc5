//! A given rate is the rate that is offered, and the rate that is shown is that of the plan or says why not.

#![allow(clippy::unwrap_used)]

use crate::broadcast;
use crate::common;

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use common::{Conduct, Server};
use serde_json::Value;
use tidewire_load::plan::bench::TestKind;
use tidewire_load::plan::run::{BenchOptions, RunError, run};
use tidewire_load::report::{TestResult, Verdict};
use tidewire_load::worker::target::Target;
use tidewire_load::worker::websocket::profile::Profile;

fn options(server: &Server, test: TestKind, rate_per_s: f64) -> BenchOptions {
    let mut options = BenchOptions::new(Target::parse(&server.url()).unwrap());
    options.profile = Profile::Raw;
    options.tests = vec![test];
    options.tiers = vec![3];
    options.duration = Duration::from_millis(500);
    options.threads = 2;
    options.rate_per_s = Some(rate_per_s);
    options
}

fn result(options: &BenchOptions) -> TestResult {
    run(options, &mut (), &AtomicBool::new(false))
        .unwrap()
        .results
        .remove(0)
}

fn written(result: &TestResult) -> Value {
    serde_json::to_value(result).unwrap()
}

/// Each connection and each thread has its part of the rate, and together they have all of it.
#[test]
fn every_number_of_threads_offers_the_same_messages() {
    for (test, conduct) in [
        (TestKind::Echo, Conduct::Echo),
        (TestKind::Throughput, Conduct::Sink),
    ] {
        let server = Server::raw(conduct);
        for poisson in [false, true] {
            let mut offered = Vec::new();
            for threads in 1..=4 {
                for connections in [1, 2, 3, 5, 8] {
                    let mut options = options(&server, test, 300.0);
                    options.duration = Duration::from_millis(120);
                    options.poisson = poisson;
                    options.threads = threads;
                    options.tiers = vec![connections];
                    let result = result(&options);
                    assert!(result.verdict <= Verdict::GeneratorBound, "{result:#?}");
                    offered.push(result.messages.unwrap().offered);
                }
            }
            // 300 a second for 0.12 s, the first at once.
            let expected = if poisson { offered[0] } else { 36 };
            assert!(
                offered.iter().all(|&count| count == expected),
                "{poisson}: {offered:?}"
            );
            assert!(expected > 10);
        }
    }
}

/// The rate is never shown higher than it was, however few messages there were.
#[test]
fn few_messages_make_no_high_rate() {
    for (test, conduct) in [
        (TestKind::Echo, Conduct::Echo),
        (TestKind::Throughput, Conduct::Sink),
    ] {
        let server = Server::raw(conduct);
        for (rate, seconds, count) in [
            (0.1, 0.3, 1),
            (0.5, 0.3, 1),
            (1.0, 0.3, 1),
            (4.0, 0.5, 2),
            (10.0, 0.3, 3),
            (1_000.0, 0.3, 300),
        ] {
            let mut options = options(&server, test, rate);
            options.duration = Duration::from_secs_f64(seconds);
            let result = result(&options);
            assert!(result.verdict <= Verdict::GeneratorBound, "{result:#?}");
            assert_eq!(result.messages.unwrap().offered, count);
            let shown = result.rate_per_s.unwrap();
            assert!(
                shown <= rate * 1.000_001,
                "{test:?}: {rate} is shown as {shown}"
            );
            assert!(result.duration_s.unwrap() >= seconds, "{result:#?}");
            let pace = &written(&result)["pace"];
            assert_eq!(pace["planned_per_s"], rate, "{pace}");
            assert!(
                pace["offered_per_s"].as_f64().unwrap() <= rate * 1.000_001,
                "{pace}"
            );
        }
    }
}

#[test]
fn a_slow_fan_out_shows_its_rate() {
    let server = broadcast::Broadcaster::start(broadcast::Manner::Honest, false);
    let mut options = BenchOptions::new(Target::parse(&server.url()).unwrap());
    options.profile = Profile::Raw;
    options.tests = vec![TestKind::FanOut];
    options.tiers = vec![5];
    options.duration = Duration::from_millis(500);
    options.rate_per_s = Some(2.0);
    let result = result(&options);
    assert!(result.verdict <= Verdict::GeneratorBound, "{result:#?}");
    let shown = result.rate_per_s.unwrap();
    assert!(shown <= 10.000_01, "2/s to 5 are shown as {shown}");
}

/// More than one thread can write in the time.
#[test]
fn a_rate_that_the_generator_cannot_keep_is_not_valid() {
    let server = Server::raw(Conduct::Sink);
    let mut options = options(&server, TestKind::Throughput, 200_000_000.0);
    options.duration = Duration::from_millis(200);
    options.threads = 1;
    let result = result(&options);
    let pace = &written(&result)["pace"];
    assert!(
        pace["offered_per_s"].as_f64().unwrap() < 100_000_000.0,
        "{pace}"
    );
    assert_eq!(pace["planned_per_s"], 200_000_000.0);
    assert_eq!(result.verdict, Verdict::GeneratorBound, "{result:#?}");
    let doubts = &written(&result)["doubts"];
    assert!(
        doubts.as_array().unwrap().contains(&"pace_missed".into()),
        "{doubts}"
    );
    assert!(
        result.notes.iter().any(|note| note.contains("200,000,000")),
        "{:?}",
        result.notes
    );
}

/// 65 MB in half a second to a server that reads some hundred kilobytes and sleeps.
#[test]
fn a_rate_that_the_server_does_not_take_has_failed() {
    let server = Server::raw(Conduct::EchoSlow(50));
    let mut options = options(&server, TestKind::Echo, 2_000.0);
    options.echo_sizes = vec![65_536];
    options.tiers = vec![1];
    options.timeouts.barrier_ms = 500;
    let result = result(&options);
    assert_eq!(result.verdict, Verdict::Failed, "{result:#?}");
    let doubts = &written(&result)["doubts"];
    assert!(
        doubts
            .as_array()
            .unwrap()
            .contains(&"pace_not_taken".into()),
        "{doubts}"
    );
}

#[test]
fn rates_and_times_that_no_clock_can_keep_are_refused() {
    let server = Server::raw(Conduct::Sink);
    for rate in [1e-300, 0.0, -1.0, 1e300, f64::NAN, f64::INFINITY] {
        let options = options(&server, TestKind::Throughput, rate);
        let error = run(&options, &mut (), &AtomicBool::new(false)).unwrap_err();
        assert!(matches!(error, RunError::OutOfBounds { .. }), "{error}");
    }
    let mut long = options(&server, TestKind::Throughput, 1.0);
    long.duration = Duration::MAX;
    let error = run(&long, &mut (), &AtomicBool::new(false)).unwrap_err();
    assert!(matches!(error, RunError::OutOfBounds { .. }), "{error}");
}

#[test]
fn a_rate_that_no_test_heeds_is_refused_and_noted_where_some_do() {
    let server = Server::raw(Conduct::Sink);
    let pings = options(&server, TestKind::PingLatency, 100.0);
    let error = run(&pings, &mut (), &AtomicBool::new(false)).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("no effect on ping-latency"), "{text}");

    let mut both = options(&server, TestKind::PingLatency, 100.0);
    both.tests.push(TestKind::Throughput);
    both.pings_per_connection = 1;
    let report = run(&both, &mut (), &AtomicBool::new(false)).unwrap();
    let notes = |at: usize| report.results[at].notes.join(" ");
    assert!(
        notes(0).contains("has no effect on this test"),
        "{}",
        notes(0)
    );
    assert!(!notes(1).contains("has no effect"), "{}", notes(1));
}

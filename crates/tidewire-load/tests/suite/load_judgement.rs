//! The judgement of a load: expectations without a connection, the pace of each connection, memory, and the word.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tidewire_load::Load;
use tidewire_load::options::load::LoadOptions;
use tidewire_load::plan::load::{self, FindLimit};
use tidewire_load::report::{TestResult, Verdict};
use tidewire_load::test_server::{Conduct, Delay, TestServer};
use tidewire_load::worker::pace::{Pace, Share};

use crate::http_conduct::unused_address;
use crate::loading::run;

fn test_server(delay_ms: f64) -> TestServer {
    TestServer::start(&Conduct {
        address: "127.0.0.1:0".parse().unwrap(),
        delay: Delay::Fixed(delay_ms),
        ..Conduct::default()
    })
    .unwrap()
}

#[test]
fn nothing_is_as_expected_if_nobody_was_connected() {
    let texts = [
        "p99<1s",
        "errors<1%",
        "rate>1",
        "connected>=100%",
        "failed<1",
    ];
    for scheme in ["http", "ws"] {
        let load = Load::new(LoadOptions {
            connections: 2,
            requests: Some(5),
            expectations: texts.map(|text| text.parse().unwrap()).into(),
            ..LoadOptions::new(&format!("{scheme}://{}/", unused_address()))
        });
        let outcome = load.run().unwrap();
        assert!(!outcome.is_as_expected());
        assert_eq!(outcome.exit_code(), 1);
        let expectations = &outcome.result().load.expectations;
        let seen: Vec<(&str, Option<&str>, bool)> = expectations
            .iter()
            .map(|one| (one.text.as_str(), one.seen.as_deref(), one.kept))
            .collect();
        let expected = [
            ("p99<1s", None, false),
            ("errors<1%", None, false),
            ("rate>1", None, false),
            ("connected>=100%", Some("0 %"), false),
            ("failed<1", Some("2"), false),
        ];
        assert_eq!(seen, expected);
    }
}

#[test]
fn the_time_to_connect_is_known_although_it_was_before_the_clock() {
    let server = test_server(0.0);
    for keep_alive in [true, false] {
        let result = run(&LoadOptions {
            connections: 4,
            threads: 2,
            requests: Some(40),
            keep_alive,
            expectations: vec![
                "connect.p50<100s".parse().unwrap(),
                "connect.min>0ns".parse().unwrap(),
            ],
            ..LoadOptions::new(&server.url())
        });
        let expectations = &result.load.expectations;
        assert!(expectations.iter().all(|one| one.kept), "{expectations:?}");
    }
}

fn each(server: &TestServer, connections: usize, per_s: f64) -> LoadOptions {
    LoadOptions {
        connections,
        threads: 2,
        duration: Some(Duration::from_millis(500)),
        each_per_s: Some(per_s),
        ..LoadOptions::new(&server.url())
    }
}

fn has_doubt(result: &TestResult, name: &str) -> bool {
    result.doubts.iter().any(|doubt| doubt == name)
}

#[test]
fn a_rate_of_each_connection_that_responses_hold_up_is_told() {
    let server = test_server(100.0);
    let result = run(&each(&server, 2, 100.0));
    let pace = result.pace.unwrap();
    assert_eq!(pace.planned_per_s, Some(200.0));
    assert!(pace.offered_per_s.unwrap() < 100.0, "{pace:?}");
    assert!(has_doubt(&result, "pace_not_taken"), "{:?}", result.doubts);
    assert_eq!(result.verdict, Verdict::Failed);
    let is_told = |note: &String| note.contains("requests were due while their connection waited");
    assert!(result.notes.iter().any(is_told), "{:?}", result.notes);
}

/// No program sends a request in each nanosecond.
#[test]
fn a_rate_of_each_connection_that_nobody_can_keep_is_told() {
    let server = test_server(0.0);
    let result = run(&LoadOptions {
        in_flight: 10_000,
        ..each(&server, 1, 1e9)
    });
    let pace = result.pace.unwrap();
    assert!(pace.offered_per_s.unwrap() < 100e6, "{pace:?}");
    let is_missed = has_doubt(&result, "pace_missed") || has_doubt(&result, "pace_not_taken");
    assert!(is_missed, "{:?}", result.doubts);
    let is_told = |note: &String| note.contains("requests were due");
    assert!(result.notes.iter().any(is_told), "{:?}", result.notes);
}

#[test]
fn what_is_due_grows_with_the_connections() {
    let server = test_server(0.0);
    let result = run(&LoadOptions {
        ramp_per_s: Some(20.0),
        ..each(&server, 10, 20.0)
    });
    // All ten would have sent 100 requests; on average half of them were open.
    let pace = result.pace.unwrap();
    assert_eq!(pace.planned_per_s, Some(200.0));
    let offered = pace.offered_per_s.unwrap();
    assert!(offered > 0.0 && offered < 180.0, "{pace:?}");
    assert!(!has_doubt(&result, "pace_not_taken"), "{:?}", result.notes);
    // Connections that only listen have no pace.
    let listening = run(&each(&server, 2, 0.0));
    let pace = listening.pace.unwrap();
    assert_eq!((pace.planned_per_s, pace.offered_per_s), (Some(0.0), None));
}

#[test]
fn random_times_are_those_of_the_process() {
    let (per_s, duration) = (400.0, Duration::from_millis(500));
    let due = |seed| {
        let share = Share::whole(Pace::poisson(per_s, seed), per_s);
        share.due_in(duration.as_nanos() as u64)
    };
    // A seed with which clearly more requests are due than at even times.
    let seed = (1..200).find(|seed| due(*seed) >= 225).unwrap();
    let server = test_server(0.0);
    let result = run(&LoadOptions {
        connections: 10,
        threads: 1,
        duration: Some(duration),
        rate_per_s: Some(per_s),
        poisson: true,
        seed,
        ..LoadOptions::new(&server.url())
    });
    assert!(result.pace.unwrap().poisson);
    let sent = result.load.requests.unwrap().sent;
    assert!(sent > 200 && sent <= due(seed), "{sent} of {}", due(seed));
}

#[test]
fn every_load_with_an_outcome_is_assessed() {
    let server = test_server(0.0);
    let closed = run(&LoadOptions {
        connections: 2,
        threads: 1,
        requests: Some(200),
        ..LoadOptions::new(&server.url())
    });
    let assessment = closed.load.assessment.unwrap();
    assert_eq!(assessment.capacity, None, "a closed loop has no plan");
    let figures: Vec<&str> = assessment
        .thresholds
        .iter()
        .map(|one| one.figure.as_str())
        .collect();
    let expected = [
        "failed requests",
        "failed connections",
        "p99",
        "connect p99",
    ];
    assert_eq!(figures, expected);
    let search = run(&LoadOptions {
        connections: 2,
        threads: 1,
        find_limit: Some(FindLimit {
            from_per_s: 50.0,
            to_per_s: 50.0,
            step: Duration::from_millis(200),
            ..FindLimit::default()
        }),
        ..LoadOptions::new(&server.url())
    });
    assert!(search.load.assessment.is_some());
}

#[cfg(target_os = "linux")]
mod unix {
    use super::*;
    use crate::loading::serve_at;
    use tidewire_load::plan::load::LoadError;

    #[test]
    fn a_named_process_behind_a_unix_socket_is_measured() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        serve_at(&path);
        let options = LoadOptions {
            connections: 2,
            threads: 1,
            unix_socket: Some(path),
            memory: true,
            server_pid: Some(std::process::id()),
            ..LoadOptions::new("http://service.example/")
        };
        let counted = run(&LoadOptions {
            requests: Some(20),
            ..options.clone()
        });
        let searched = run(&LoadOptions {
            find_limit: Some(FindLimit {
                from_per_s: 50.0,
                to_per_s: 50.0,
                step: Duration::from_millis(200),
                ..FindLimit::default()
            }),
            ..options.clone()
        });
        for result in [counted, searched] {
            let memory = result.memory.unwrap();
            assert!(memory.server_rss_bytes > 0);
            let least = memory.client_rss_min_bytes.unwrap();
            assert!(least <= memory.client_rss_peak_bytes.unwrap(), "{memory:?}");
            assert!(memory.client_rss_closed_bytes.unwrap() > 0, "{memory:?}");
            assert!(result.cpu.unwrap().server_s.is_some());
        }
        let nobody = LoadOptions {
            server_pid: Some(u32::MAX),
            ..options
        };
        let plan = nobody.plan().unwrap();
        let error = load::run(&plan, &mut (), &AtomicBool::new(false)).unwrap_err();
        assert!(matches!(error, LoadError::ServerPid(_)), "{error}");
    }
}

//! Expectations of a load: of single requests of a scenario, of statuses, and of each part of connecting.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::PathBuf;

use tidewire_load::options::load::LoadOptions;
use tidewire_load::plan::load::FindLimit;
use tidewire_load::report::{Connecting, ExpectationResult, TestResult, Verdict};
use tidewire_load::test_server::{Conduct, TestServer};

use crate::http_service::Service;
use crate::loading::run;
use crate::secure::secure_server;

/// Three requests of equal weight, of which two have one name.
const SCENARIO: &str = r#"
order = "weighted"
[[request]]
path = "/items"
[[request]]
name = "log in: now"
path = "/login"
expect_status = "any"
[[request]]
name = "log in: now"
path = "/other"
"#;

fn scenario(text: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("scenario.toml");
    std::fs::write(&path, text).unwrap();
    (folder, path)
}

/// `/login` is answered with 503, everything else with 200.
fn service() -> Service {
    Service::start(|request| match request.target() {
        "/login" => ("503 Service Unavailable", Vec::new(), String::new()),
        _ => ("200 OK", Vec::new(), "ok".to_owned()),
    })
}

fn load(url: &str, path: PathBuf, texts: &[&str]) -> TestResult {
    run(&LoadOptions {
        connections: 4,
        threads: 2,
        requests: Some(600),
        scenario: Some(path),
        expectations: texts.iter().map(|text| text.parse().unwrap()).collect(),
        ..LoadOptions::new(url)
    })
}

fn outcome<'r>(result: &'r TestResult, text: &str) -> &'r ExpectationResult {
    let mut all = result.load.expectations.iter();
    all.find(|one| one.text == text)
        .unwrap_or_else(|| panic!("{text}"))
}

#[test]
fn each_request_of_a_scenario_has_expectations_of_its_own() {
    let service = service();
    let (_folder, path) = scenario(SCENARIO);
    let result = load(
        &service.url("/"),
        path,
        &[
            "GET /items: errors==0",
            "GET /items: status 503==0",
            "GET /items: p50<60s",
            "GET /items: max<1ns",
            "log in: now: status:503>=20%",
            "log in: now: status:503<1%",
            "log in: now: rate>0.1",
            "log in: now: errors==0",
            "status:503<0.1%",
        ],
    );
    let kept: Vec<bool> = result
        .load
        .expectations
        .iter()
        .map(|one| one.kept)
        .collect();
    let expected = [true, true, true, false, true, false, true, true, false];
    assert_eq!(kept, expected, "{:#?}", result.load.expectations);

    // The server's own account says what has to be seen.
    let requests = service.requests();
    let arrived = |path: &str| requests.iter().filter(|one| one.target() == path).count() as f64;
    let (login, other) = (arrived("/login"), arrived("/other"));
    let share = login / (login + other) * 100.0;
    let seen = outcome(&result, "log in: now: status:503>=20%")
        .seen
        .clone()
        .unwrap();
    let seen: f64 = seen.trim_end_matches(" %").parse().unwrap();
    assert!((seen - share).abs() < 0.1, "{seen} of {share}");
    let of_all = outcome(&result, "status:503<0.1%").seen.clone().unwrap();
    let of_all: f64 = of_all.trim_end_matches(" %").parse().unwrap();
    assert!((of_all - login / 6.0).abs() < 0.1, "{of_all} of {login}");
}

#[test]
fn errors_that_the_expectation_of_their_request_allows_do_not_fail_the_load() {
    let service = service();
    let text = SCENARIO.replace("expect_status = \"any\"\n", "");
    for (texts, is_allowed) in [
        (&["log in: now: errors<90%"][..], true),
        (&["log in: now: errors<1%"], false),
        // The other request failed nowhere, which allows nothing.
        (&["GET /items: errors<90%"], false),
    ] {
        let (_folder, path) = scenario(&text);
        let result = load(&service.url("/"), path, texts);
        let has_failed = result.verdict == Verdict::Failed;
        assert_eq!(!has_failed, is_allowed, "{texts:?}: {:?}", result.doubts);
    }
}

#[test]
fn a_search_judges_the_request_that_the_expectation_names() {
    let service = service();
    let text = SCENARIO.replace("expect_status = \"any\"\n", "");
    let (_folder, path) = scenario(&text);
    let result = run(&LoadOptions {
        connections: 4,
        threads: 2,
        scenario: Some(path),
        find_limit: Some(FindLimit {
            from_per_s: 2_000.0,
            to_per_s: 2_000.0,
            step: std::time::Duration::from_millis(500),
            ..FindLimit::default()
        }),
        expectations: vec!["log in: now: errors<1%".parse().unwrap()],
        ..LoadOptions::new(&service.url("/"))
    });
    let found = result.load.found_rate.clone().unwrap();
    assert_eq!(found.held_per_s, None, "{found:?}");
    let broken = outcome(&result, "log in: now: errors<1%");
    assert!(!broken.kept && broken.seen.is_some(), "{broken:?}");
    // Half of the requests fail: no disturbance of the generator is the reason of that.
    let reason = found.reason.unwrap();
    let name = "`log in: now: errors<1%` was ";
    assert!(reason.starts_with(name), "{reason}");
}

fn parts(connecting: &Connecting) -> Vec<(&'static str, u64)> {
    connecting
        .parts()
        .map(|(name, latency)| (name, latency.count))
        .collect()
}

#[test]
fn tcp_tls_and_the_upgrade_have_times_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let (secure, ca) = secure_server(folder.path(), &["localhost"], 4_000);
    let plain = TestServer::start(&Conduct {
        address: "127.0.0.1:0".parse().unwrap(),
        ..Conduct::default()
    })
    .unwrap();
    let port = secure.address().port();
    for (url, is_secure, is_websocket) in [
        (plain.url(), false, false),
        (plain.url().replace("http", "ws") + "ws", false, true),
        (format!("https://localhost:{port}/"), true, false),
        (format!("wss://localhost:{port}/ws"), true, true),
    ] {
        let mut options = LoadOptions {
            connections: 5,
            threads: 1,
            requests: Some(20),
            ..LoadOptions::new(&url)
        };
        let mut wanted = vec![("TCP", 5)];
        let mut texts = vec!["tcp.max<60s", "tcp.p50>0ns"];
        if is_secure {
            options.tls.ca = Some(ca.clone());
            wanted.push(("TLS", 5));
            texts.extend(["tls.p50>0ns", "dns<60s", "dns>0ns"]);
        }
        if is_websocket {
            wanted.push(("upgrade", 5));
            texts.push("upgrade.max<60s");
        }
        options.expectations = texts.iter().map(|text| text.parse().unwrap()).collect();
        let result = run(&options);
        let connecting = result.load.connecting.clone().unwrap();
        assert_eq!(parts(&connecting), wanted, "{url}");
        assert_eq!(connecting.dns_us.is_some(), is_secure, "{url}");
        assert!(
            result.load.expectations.iter().all(|one| one.kept),
            "{url}: {:?}",
            result.load.expectations
        );
        // The parts follow one another, so that together they take as long as the whole.
        let sum: f64 = connecting.parts().map(|(_, latency)| latency.mean).sum();
        let whole = connecting.latency_us.unwrap().mean;
        assert!((sum / whole - 1.0).abs() < 0.01, "{url}: {sum} of {whole}");
    }
}

#[test]
fn the_expectation_of_one_request_ends_a_load_early() {
    let service = service();
    let scenario_of_three = SCENARIO.replace("expect_status = \"any\"\n", "");
    let alone = "[[request]]\npath = \"/login\"\n";
    for (text, kept, broken) in [
        // Half of its requests fail, and a third of all.
        (
            scenario_of_three.as_str(),
            "GET /items: errors<1%",
            "log in: now: errors<40%",
        ),
        (alone, "GET /login: rate>=0", "GET /login: errors<1%"),
    ] {
        let (_folder, path) = scenario(text);
        let result = run(&LoadOptions {
            connections: 2,
            duration: Some(std::time::Duration::from_secs(60)),
            scenario: Some(path),
            expectations: [kept, broken].map(|text| text.parse().unwrap()).to_vec(),
            abort_after: Some(std::time::Duration::from_secs(1)),
            ..LoadOptions::new(&service.url("/"))
        });
        let notes = result.notes.join("\n");
        assert!(
            notes.contains("Ended early") && notes.contains(broken),
            "{notes}"
        );
        assert!(outcome(&result, kept).kept && !outcome(&result, broken).kept);
        assert!(result.duration_s.unwrap() < 30.0, "{result:?}");
    }
}

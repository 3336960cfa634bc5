//! Loads of services over real sockets: what is sent, what is counted, and what is said of it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use crate::http_service;
use crate::loading::{run, serve_at};

use http_service::{Request, Service};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tidewire_load::Load;
use tidewire_load::options::body::BodyOptions;
use tidewire_load::options::load::LoadOptions;
use tidewire_load::options::matching::matching;
use tidewire_load::options::request::RequestOptions;
use tidewire_load::plan::load::{self, FindLimit, LoadError};
use tidewire_load::report::{TestResult, Verdict};
use tidewire_load::test_server::{Conduct, Delay, Stalls, TestServer};

fn options(url: &str, requests: u64) -> LoadOptions {
    LoadOptions {
        connections: 4,
        threads: 2,
        requests: Some(requests),
        ..LoadOptions::new(url)
    }
}

fn ok(_: &Request) -> http_service::Answer {
    ("200 OK", Vec::new(), "ok".to_owned())
}

fn test_server(conduct: Conduct) -> TestServer {
    TestServer::start(&Conduct {
        address: "127.0.0.1:0".parse().unwrap(),
        ..conduct
    })
    .unwrap()
}

fn succeeded(result: &TestResult) -> u64 {
    let load = &result.load;
    let requests = load.requests.unwrap();
    assert_eq!(requests.failed, 0, "{:?}", load.errors);
    assert_eq!(requests.unfinished, 0);
    assert_eq!(requests.sent, requests.succeeded);
    requests.succeeded
}

/// The number in a body such as `{"n":1}`.
fn number(body: &str) -> u64 {
    let digits = body
        .strip_prefix(r#"{"n":"#)
        .and_then(|rest| rest.strip_suffix('}'));
    digits.unwrap().parse().unwrap()
}

#[test]
fn both_sides_count_the_same_requests() {
    let service = Service::start(ok);
    let result = run(&LoadOptions {
        request: RequestOptions {
            headers: vec![("X-Mine".into(), "yes".into())],
            cookies: vec![("a".into(), "b".into())],
            body: Some(BodyOptions::Json(r#"{"n":{{seq}}}"#.into())),
            ..RequestOptions::default()
        },
        ..options(&service.url("/path?q=1"), 100)
    });
    assert_eq!(succeeded(&result), 100);
    let requests = service.requests();
    assert_eq!(requests.len(), 100);
    let numbers: BTreeSet<u64> = requests.iter().map(|r| number(&r.body)).collect();
    assert_eq!(numbers.len(), 100, "each number is sent once");
    // Each of the two threads takes every second number without a gap; how many it sends depends on the machine.
    for first in [1, 2] {
        let own: Vec<u64> = numbers
            .iter()
            .copied()
            .filter(|n| n % 2 == first % 2)
            .collect();
        let expected = (first..).step_by(2).take(own.len());
        assert!(own.iter().copied().eq(expected), "{own:?}");
    }
    for request in &requests {
        assert_eq!(request.line, "POST /path?q=1 HTTP/1.1");
        assert_eq!(request.header("x-mine"), Some("yes"));
        assert_eq!(request.header("cookie"), Some("a=b"));
        assert_eq!(request.header("content-type"), Some("application/json"));
    }
    let connecting = result.load.connecting.unwrap();
    assert_eq!((connecting.opened, connecting.failed), (4, 0));
}

#[test]
fn connections_are_kept_or_not_as_asked() {
    let server = test_server(Conduct::default());
    let url = format!("http://{}/", server.address());
    let opened = |options: &LoadOptions| {
        let result = run(options);
        assert_eq!(succeeded(&result), 60);
        result.load.connecting.unwrap().opened
    };
    assert_eq!(opened(&options(&url, 60)), 4);
    let closing = LoadOptions {
        keep_alive: false,
        ..options(&url, 60)
    };
    assert_eq!(opened(&closing), 60);
    let renewed = LoadOptions {
        requests_per_connection: Some(10),
        connections: 1,
        threads: 1,
        ..options(&url, 60)
    };
    // The first was open before, and the last has nothing to do.
    let count = opened(&renewed);
    assert!((6..=7).contains(&count), "{count}");
    let pipelined = LoadOptions {
        in_flight: 16,
        ..options(&url, 60)
    };
    assert_eq!(opened(&pipelined), 4);
}

#[test]
fn a_journey_captures_values_and_goes_step_by_step() {
    let service = Service::start(|request| match request.target() {
        "/login" => {
            let body = format!(r#"{{"auth":{{"token":"t-{}"}}}}"#, request.body.len());
            ("201 Created", vec!["X-Session: s1".into()], body)
        }
        _ => ("200 OK", Vec::new(), "{}".into()),
    });
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journey.toml");
    let text = r#"
        data = { people = "people.csv" }
        [[request]]
        name = "log in"
        path = "/login"
        body = "{{name}}"
        expect_status = 201
        capture = { token = "json:/auth/token", session = "header:X-Session" }
        [[request]]
        path = "/me?s={{session}}"
        headers = { Authorization = "Bearer {{token}}" }
        think = "1ms"
    "#;
    std::fs::write(&path, text).unwrap();
    std::fs::write(folder.path().join("people.csv"), "name\nAda\nGrace\n").unwrap();
    let result = run(&LoadOptions {
        scenario: Some(path),
        connections: 1,
        threads: 1,
        ..options(&service.url("/"), 6)
    });
    assert_eq!(succeeded(&result), 6);
    let lines: Vec<String> = service.requests().iter().map(|r| r.line.clone()).collect();
    let pair = ["POST /login HTTP/1.1", "GET /me?s=s1 HTTP/1.1"];
    assert_eq!(lines, [pair, pair, pair].concat());
    let names: BTreeSet<String> = service.requests().iter().map(|r| r.body.clone()).collect();
    assert!(
        names.contains("Ada") && names.contains("Grace"),
        "{names:?}"
    );
    assert_eq!(
        service.requests()[1].header("authorization"),
        Some("Bearer t-5")
    );
    let targets = &result.load.targets;
    assert_eq!(targets.len(), 2);
    assert_eq!(
        (targets[0].name.as_str(), targets[0].requests.succeeded),
        ("log in", 3)
    );
    assert_eq!(targets[0].statuses.get(&201), Some(&3));
}

#[test]
fn a_step_that_fails_ends_the_journey_and_not_the_load() {
    let service = Service::start(ok);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journey.toml");
    let text = "[[request]]\npath=\"/a\"\ncapture={t=\"json:/t\"}\n[[request]]\npath=\"/{{t}}\"\n";
    std::fs::write(&path, text).unwrap();
    let result = run(&LoadOptions {
        scenario: Some(path),
        ..options(&service.url("/"), 10)
    });
    assert_eq!(result.load.errors.get("capture-missing"), Some(&10));
    assert!(
        service
            .requests()
            .iter()
            .all(|request| request.target() == "/a")
    );
}

#[test]
fn checks_decide_what_is_a_success() {
    let service = Service::start(|request| match request.target() {
        "/missing" => ("404 Not Found", Vec::new(), "no".into()),
        _ => ok(request),
    });
    let errors = |path: &str, request: RequestOptions| {
        let result = run(&LoadOptions {
            request,
            ..options(&service.url(path), 10)
        });
        let requests = result.load.requests.unwrap();
        assert_eq!(requests.succeeded + requests.failed, 10);
        result.load.errors.into_keys().collect::<Vec<_>>()
    };
    let usual = RequestOptions::default();
    assert_eq!(errors("/missing", usual.clone()), ["unexpected-status"]);
    let any = RequestOptions {
        statuses: Some(vec![404..=404]),
        ..usual.clone()
    };
    assert!(errors("/missing", any.clone()).is_empty());
    assert_eq!(errors("/", any), ["unexpected-status"]);
    let body = |text: &str| RequestOptions {
        body_contains: Some(text.into()),
        ..RequestOptions::default()
    };
    assert!(errors("/", body("ok")).is_empty());
    assert_eq!(errors("/", body("fine")), ["unexpected-body"]);
    let length = RequestOptions {
        body_bytes: Some(3),
        ..usual
    };
    assert_eq!(errors("/", length), ["unexpected-length"]);
}

#[test]
fn a_stall_of_the_server_is_in_the_latency_from_the_intended_time() {
    let server = test_server(Conduct {
        stalls: Some(Stalls {
            every_ms: 500,
            stall_ms: 100,
        }),
        shards: 1,
        ..Conduct::default()
    });
    let result = run(&LoadOptions {
        connections: 10,
        threads: 1,
        requests: None,
        duration: Some(Duration::from_millis(1_500)),
        rate_per_s: Some(2_000.0),
        ..LoadOptions::new(&format!("http://{}/", server.address()))
    });
    let requests = result.load.requests.unwrap();
    let (intended, service) = (result.latency_us.unwrap(), result.latency_other_us.unwrap());
    // A fifth of the time is stalled; of ten connections only ten requests are on their way in each stall.
    assert!(intended.p90 >= 20_000.0, "{}", intended.p90);
    assert!(
        service.mean < intended.mean,
        "{} {}",
        service.mean,
        intended.mean
    );
    assert_eq!(service.count, requests.succeeded);
    assert_eq!(intended.count, requests.due());
}

#[test]
fn a_load_ends_when_a_figure_is_known_well_enough() {
    // A delay that is long beside what a busy machine adds.
    let server = test_server(Conduct {
        delay: Delay::Fixed(200.0),
        ..Conduct::default()
    });
    let longest = Duration::from_secs(300);
    let result = run(&LoadOptions {
        connections: 100,
        threads: 1,
        duration: Some(longest),
        precision: Some("p50:5%".parse().unwrap()),
        ..LoadOptions::new(&server.url())
    });
    let said = |note: &&String| note.starts_with("Ended when `p50:5%` was reached: ");
    assert!(
        result.notes.iter().any(|note| said(&note)),
        "{:?}",
        result.notes
    );
    let windows = result.load.latency_over_time.unwrap().windows.len();
    assert!((10..300).contains(&windows), "{windows}");
    assert!(result.load.errors.is_empty(), "{:?}", result.load.errors);
}

#[test]
fn the_search_never_holds_more_than_the_service_can_do() {
    // Ten connections that take 10 ms each carry at most 1,000 a second.
    let server = test_server(Conduct {
        delay: Delay::Fixed(10.0),
        ..Conduct::default()
    });
    let result = run(&LoadOptions {
        connections: 10,
        threads: 1,
        find_limit: Some(FindLimit {
            from_per_s: 100.0,
            to_per_s: 5_000.0,
            step: Duration::from_millis(300),
            resolution: 0.5,
            is_poisson: false,
        }),
        ..LoadOptions::new(&format!("http://{}/", server.address()))
    });
    let steps = &result.load.latency_by_rate;
    assert!(steps.len() >= 2, "{steps:?}");
    assert!(
        steps.iter().any(|step| step.held == Some(false)),
        "{steps:?}"
    );
    for step in steps.iter().filter(|step| step.held == Some(true)) {
        assert!(step.offered_per_s < 1_100.0, "{step:?}");
    }
    // The service could do more.
    let is_named = |note: &String| note.starts_with("The connections were the limit");
    assert!(result.notes.iter().any(is_named), "{:?}", result.notes);
}

#[test]
fn messages_are_confirmed_by_pongs_by_order_or_by_a_field() {
    let server = test_server(Conduct::default());
    let url = format!("ws://{}/ws", server.address());
    for (how, unsolicited) in [("pong", 50), ("order", 0), ("field:seq", 0)] {
        let mut options = options(&url, 50);
        options.messages.matching = matching(how).unwrap();
        let result = run(&options);
        assert_eq!(succeeded(&result), 50, "{how}");
        let received = result.load.received.unwrap();
        // The echo of a message that its pong has confirmed may be on its way at the end.
        assert!(received.unsolicited <= unsolicited, "{how}: {received:?}");
    }
    let mut options = options(&url, 20);
    options.messages.matching = matching("order").unwrap();
    options.messages.subscribe = vec![r#"{"join":{{user}}}"#.into()];
    options.messages.stamp = Some(tidewire_load::worker::messages::Pointer::new("at"));
    let result = run(&options);
    let requests = result.load.requests.unwrap();
    assert_eq!((requests.succeeded, requests.failed), (20, 0));
}

#[test]
fn a_chat_load_ramps_up_and_is_assessed() {
    let server = test_server(Conduct::default());
    let result = run(&LoadOptions {
        connections: 20,
        threads: 2,
        ramp_per_s: Some(100.0),
        each_per_s: Some(20.0),
        duration: Some(Duration::from_millis(600)),
        memory: true,
        ..LoadOptions::new(&format!("ws://{}/ws", server.address()))
    });
    assert!(succeeded(&result) >= 20);
    assert_eq!(result.connected, Some(20));
    let assessment = result.load.assessment.unwrap();
    assert!(assessment.thresholds.len() >= 4);
    let words = assessment.thresholds.iter().map(|one| one.word);
    assert_eq!(words.max(), Some(assessment.word), "the worst decides");
    // The server is in the process of the generator, whose memory would be both.
    assert!(result.memory.is_none());
    assert!(
        result
            .notes
            .iter()
            .any(|note| note.contains("memory is not known"))
    );
}

#[test]
fn the_number_of_connections_follows_its_stages() {
    let server = test_server(Conduct::default());
    let result = run(&LoadOptions {
        connection_stages: Some(vec![
            (Duration::from_millis(300), 12.0),
            (Duration::from_millis(300), 0.0),
        ]),
        threads: 2,
        ..LoadOptions::new(&format!("http://{}/", server.address()))
    });
    assert!(succeeded(&result) > 0);
    let connecting = result.load.connecting.unwrap();
    assert!(connecting.peak <= 12, "{connecting:?}");
    assert!(connecting.opened >= 1, "{connecting:?}");
}

/// The rate is that of the planned time, and not of the time until the last request of it.
#[test]
fn a_planned_rate_is_divided_by_the_planned_time() {
    let server = test_server(Conduct::default());
    let url = format!("http://{}/", server.address());
    let ms = Duration::from_millis;
    // 20 requests on the way up and 40 on the way down.
    let stages = LoadOptions {
        connections: 4,
        threads: 1,
        stages: Some(vec![(ms(400), 100.0), (ms(800), 0.0)]),
        ..LoadOptions::new(&url)
    };
    let counted = LoadOptions {
        rate_per_s: Some(50.0),
        ..options(&url, 20)
    };
    for (options, requests, planned_s) in [(stages, 60, 1.2), (counted, 20, 0.4)] {
        let result = run(&options);
        assert_eq!(succeeded(&result), requests);
        let rate = result.rate_per_s.unwrap();
        // On a busy machine the last answer may arrive after the planned time.
        let time_s = result.duration_s.unwrap().max(planned_s);
        let expected = requests as f64 / time_s;
        assert!((rate - expected).abs() < 0.01, "{rate}, not {expected}");
    }
}

/// A connection that begins later has not waited since the start of the load.
#[test]
fn each_connection_is_timed_from_its_own_start() {
    let server = test_server(Conduct::default());
    let result = run(&LoadOptions {
        connections: 40,
        threads: 1,
        ramp_per_s: Some(50.0),
        duration: Some(Duration::from_secs(1)),
        ..LoadOptions::new(&format!("http://{}/", server.address()))
    });
    let connecting = result.load.connecting.unwrap();
    assert_eq!(connecting.opened, 40);
    // The last of them began 0.8 s after the first.
    let connect = connecting.latency_us.unwrap();
    assert_eq!(connect.count, 40);
    assert!(connect.p50 < 300_000.0, "{}", connect.p50);
}

#[test]
fn expectations_are_kept_or_broken_and_end_a_load_early() {
    let server = test_server(Conduct {
        error_percent: 100.0,
        ..Conduct::default()
    });
    let url = format!("http://{}/", server.address());
    let options = LoadOptions {
        requests: Some(50),
        connections: 2,
        expectations: vec!["errors<1%".parse().unwrap()],
        ..LoadOptions::new(&url)
    };
    let outcome = Load::new(options).run().unwrap();
    assert!(!outcome.is_as_expected());
    assert_eq!(outcome.failed(), 50);
    assert_eq!(
        outcome.exit_code(),
        1,
        "a load without a success has failed"
    );
    let result = run(&LoadOptions {
        expectations: vec!["errors<1%".parse().unwrap()],
        abort_after: Some(Duration::from_secs(1)),
        duration: Some(Duration::from_secs(60)),
        connections: 2,
        ..LoadOptions::new(&url)
    });
    assert!(
        result.notes.iter().any(|note| note.contains("Ended early")),
        "{:?}",
        result.notes
    );
}

#[test]
fn an_interrupted_load_has_a_partial_report() {
    let server = test_server(Conduct::default());
    let load = Load::new(LoadOptions {
        duration: Some(Duration::from_secs(60)),
        ..LoadOptions::new(&format!("http://{}/", server.address()))
    });
    let stop = load.stop_flag();
    let outcome = load
        .on_progress(move |live| {
            if live.service.requests.succeeded > 0 {
                stop.store(true, Ordering::Relaxed);
            }
        })
        .run()
        .unwrap();
    assert!(outcome.is_interrupted() && outcome.report().partial);
    assert_eq!(outcome.exit_code(), 130);
    assert!(outcome.rate_per_s() > 0.0);
    assert_eq!(outcome.result().verdict, Verdict::Failed);
}

#[test]
fn connecting_can_be_interrupted() {
    // It takes connections and says nothing, so that TLS waits for its handshake.
    let mute = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut options = options(&format!("https://{}/", mute.local_addr().unwrap()), 10);
    options.tls.insecure = true;
    options.timeouts.connect_ms = 600_000;
    let load = Load::new(options);
    let stop = load.stop_flag();
    let outcome = load
        .on_progress(move |_| stop.store(true, Ordering::Relaxed))
        .run()
        .unwrap();
    assert!(outcome.is_interrupted() && outcome.report().partial);
    assert_eq!(outcome.exit_code(), 130);
}

#[test]
fn what_cannot_be_is_said_before_the_start() {
    let plan = LoadOptions {
        connections: 100_000_000,
        ..LoadOptions::new("http://127.0.0.1:9/")
    };
    let error = load::run(&plan.plan().unwrap(), &mut (), &AtomicBool::new(false)).unwrap_err();
    assert!(matches!(error, LoadError::Impossible(_)), "{error}");
    let error = |change: fn(&mut LoadOptions)| {
        let mut options = LoadOptions::new("http://127.0.0.1:9/");
        change(&mut options);
        options.plan().unwrap_err().to_string()
    };
    let both = |options: &mut LoadOptions| {
        options.rate_per_s = Some(1.0);
        options.each_per_s = Some(1.0);
    };
    assert!(error(both).contains("exclude each other"));
    assert!(error(|options| options.rate_per_s = Some(0.0)).contains("out of bounds"));
    assert!(error(|options| options.connections = 0).contains("nothing to do"));
    assert!(error(|options| options.url = "gopher://x".into()).contains("http://"));
    assert!(error(|options| options.resolve = vec!["x".into()]).contains("host:port:address"));
}

#[cfg(unix)]
#[test]
fn a_unix_socket_and_a_proxy_are_ways_to_a_service() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    serve_at(&path);
    let result = run(&LoadOptions {
        unix_socket: Some(path),
        ..options("http://service.example/", 20)
    });
    assert_eq!(succeeded(&result), 20);

    let proxy = Service::start(ok);
    let result = run(&LoadOptions {
        proxy: Some(proxy.url("/")),
        ..options("http://service.example:81/x", 20)
    });
    assert_eq!(succeeded(&result), 20);
    let first = &proxy.requests()[0];
    assert_eq!(first.line, "GET http://service.example:81/x HTTP/1.1");
    assert_eq!(first.header("host"), Some("service.example:81"));
}

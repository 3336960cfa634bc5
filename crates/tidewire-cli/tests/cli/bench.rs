//! `tidewire bench`, end to end against the engine.

use crate::program::{Running, SECRET, Said, assert_refused, run, signal, start_until, tidewire};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, Read};
use std::net::TcpListener;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

#[test]
fn a_quick_run_writes_three_files_and_says_where() {
    let folder = tempfile::tempdir().unwrap();
    let said = bench(folder.path(), &["--quick"]);
    let report = report(folder.path());
    assert_nothing_lost(&said, &report);
    let last = said.stdout.lines().last().unwrap();
    assert!(
        last.starts_with("report: ") && last.contains("report.html"),
        "{last}"
    );
    let names = ["report.html", "report.json", "report.md"];
    assert!(names.iter().all(|name| folder.path().join(name).is_file()));

    assert_eq!(report["target"]["embedded"], true);
    let mut tests: Vec<_> = results(&report)
        .iter()
        .map(|result| text(&result["test"]))
        .collect();
    tests.dedup();
    let all = [
        "connection-storm",
        "ping-latency",
        "throughput",
        "size-matrix",
        "format-comparison",
        "sustained-hold",
        "connection-limit",
        "fan-out",
    ];
    assert_eq!(tests, all);
    for messages in results(&report)
        .iter()
        .filter_map(|result| result.get("messages"))
    {
        assert_eq!(messages["delivered"], messages["offered"], "{report:#}");
    }
    for test in all {
        assert!(
            said.stderr.lines().any(|line| line.starts_with(test)),
            "{test} in {}",
            said.stderr
        );
    }
}

#[test]
fn repeats_show_the_median_run_and_the_spread() {
    let folder = tempfile::tempdir().unwrap();
    let flags = ["--quick", "--test", "ping-latency", "--connections", "3"];
    let said = bench(folder.path(), &[&flags[..], &["--repeats", "3"]].concat());
    let report = report(folder.path());
    assert_nothing_lost(&said, &report);
    let [result] = results(&report) else {
        panic!("{report:#}");
    };
    assert_eq!(report["plan"]["repeats"], 3);
    assert_eq!(result["repeats"]["count"], 3);
    let range = &result["repeats"]["rate_per_s"];
    let (least, most) = (
        range["min"].as_f64().unwrap(),
        range["max"].as_f64().unwrap(),
    );
    let rate = result["rate_per_s"].as_f64().unwrap();
    assert!(0.0 < least && least <= rate && rate <= most, "{report:#}");
    assert!(said.stdout.contains("p99, min–max"), "{}", said.stdout);
    assert!(said.stderr.contains("run 3 of 3"), "{}", said.stderr);
    for wrong in ["0", "101", "x"] {
        let refused = run(&["bench", "--repeats", wrong]);
        assert_refused(&refused, &["--repeats", "from 1 to 100"]);
    }
}

#[test]
fn the_report_can_be_printed_as_json() {
    let folder = tempfile::tempdir().unwrap();
    let said = bench(
        folder.path(),
        &["--quick", "--test", "echo", "--in-flight", "1", "--json"],
    );
    let printed: Value = serde_json::from_str(&said.stdout).unwrap();
    assert_nothing_lost(&said, &printed);
    assert_eq!(printed, report(folder.path()));
    assert_eq!(results(&printed).len(), 1);
}

#[test]
fn a_run_is_compared_with_an_earlier_one() {
    let folder = tempfile::tempdir().unwrap();
    let (before, after) = (folder.path().join("before"), folder.path().join("after"));
    let test = ["--quick", "--test", "throughput"];
    bench(&before, &test);
    let file = before.join("report.json");
    let file = file.to_str().unwrap();
    let said = bench(&after, &[&test[..], &["--baseline", file]].concat());
    let report = report(&after);
    assert_eq!(report["baseline"]["file"], file);
    assert!(report["baseline"].get("unmatched").is_none(), "{report:#}");
    let rate = &results(&report)[0]["baseline"][0];
    assert_eq!(rate["figure"], "rate");
    assert_eq!(rate["after"], results(&report)[0]["rate_per_s"]);
    assert!(said.stdout.contains(file), "{}", said.stdout);

    let missing = folder.path().join("none.json");
    let missing = missing.to_str().unwrap();
    let refused = run(&["bench", "--quick", "--baseline", missing]);
    assert_refused(&refused, &[missing]);
    let alone = run(&["bench", "--quick", "--fail-if-slower"]);
    assert_refused(&alone, &["--baseline"]);
}

#[test]
fn expectations_of_tests_are_shown_as_kept_or_broken() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = [
        "--quick",
        "--test",
        "ping-latency,throughput",
        "--expect",
        "p50<1h",
        "--expect",
        "throughput: rate > 900M",
        "--expect",
        "errors<=0",
    ];
    let wrong = run(&[&["bench"][..], &arguments].concat());
    assert_refused(&wrong, &["p50<1h"]);

    let arguments = arguments.map(|word| if word == "p50<1h" { "p50<60s" } else { word });
    let said = bench(folder.path(), &arguments);
    // A generator that was the limit counts before a broken expectation.
    assert!([5, 3].contains(&said.code), "{said:?}");
    let report = report(folder.path());
    let outcome = |result: &Value| -> Vec<(String, bool)> {
        let all = result["expectations"].as_array().unwrap().iter();
        all.map(|one| (text(&one["text"]).to_owned(), one["kept"] == true))
            .collect()
    };
    let [pings, throughput] = results(&report) else {
        panic!("{report:#}");
    };
    let no_errors = ("errors<=0".to_owned(), true);
    assert_eq!(
        outcome(pings),
        [("p50<60s".to_owned(), true), no_errors.clone()]
    );
    let broken = ("rate > 900M".to_owned(), false);
    assert_eq!(outcome(throughput), [broken, no_errors]);
    for words in ["Expected", "kept", "broken", "throughput: rate > 900M"] {
        assert!(said.stdout.contains(words), "{words} in {}", said.stdout);
    }
    assert!(said.stderr.contains("`rate > 900M` is broken"), "{said:?}");
}

#[test]
fn a_run_ends_when_an_expectation_has_been_broken_for_long_enough() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = [
        "--quick",
        "--test",
        "throughput,ping-latency",
        "--duration-s",
        "60",
        "--expect",
        "throughput: rate>900M",
        "--abort-after-s",
        "1",
    ];
    let began = Instant::now();
    let said = bench(folder.path(), &arguments);
    assert!(began.elapsed() < Duration::from_secs(50), "{said:?}");
    // A generator that was the limit counts before a broken expectation.
    assert!([5, 3].contains(&said.code), "{said:?}");
    let report = report(folder.path());
    let [throughput] = results(&report) else {
        panic!("{report:#}");
    };
    let notes = throughput["notes"].as_array().unwrap();
    let is_told = |note: &Value| text(note).starts_with("Ended early: `rate>900M`");
    assert!(notes.iter().any(is_told), "{notes:?}");
    assert_eq!(throughput["expectations"][0]["kept"], false);

    let alone = run(&["bench", "--quick", "--abort-after-s", "1"]);
    assert_refused(&alone, &["--expect"]);
}

#[test]
fn an_expectation_that_no_test_can_keep_is_a_mistake() {
    let quick = ["bench", "--quick", "--test", "throughput", "--expect"];
    for (expectation, words) in [
        ("status:503<1", "throughput has connect.p99, rate"),
        ("p99<1s", "no test of this run has this figure"),
        ("late<1ms", "no test of this run has this figure"),
        ("echo: p99<1s", "no test of this run has this figure"),
        ("thruput: rate>1", "`thruput` is not a test"),
        ("rate", "a comparison is missing"),
    ] {
        assert_refused(&run(&[&quick[..], &[expectation]].concat()), &[words]);
    }
}

#[test]
fn memory_of_both_sides_is_measured_if_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = [
        "--quick",
        "--test",
        "connection-storm,throughput",
        "--connections",
        "100",
        "--duration-s",
        "2.5",
        "--memory",
        "--quiet",
    ];
    let said = bench(folder.path(), &arguments);
    let report = report(folder.path());
    assert_nothing_lost(&said, &report);
    assert_eq!(said.stderr, "", "{said:?}");
    let names = [
        "server_rss_bytes",
        "server_rss_closed_bytes",
        "per_connection_bytes",
        "client_rss_bytes",
        "client_per_connection_bytes",
    ];
    for result in results(&report) {
        for name in names {
            assert!(result["memory"][name].as_f64().unwrap() > 0.0, "{result:#}");
        }
    }
    let samples = results(&report)[1]["resources_over_time"].as_array();
    let samples = samples.unwrap();
    assert!(!samples.is_empty());
    assert!(samples[0]["client_rss_bytes"].as_u64().unwrap() > 0);
}

#[test]
fn a_server_with_a_url_is_loaded_with_tokens_and_its_counters_compared() {
    let mut server = Running::serve(&[
        "--jwt-secret",
        SECRET,
        "--ops-listen",
        "127.0.0.1:0",
        "--app",
        "sink",
    ]);
    let stats = server.line();
    let stats = stats.strip_prefix("operations on ").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let arguments = [
        &server.url,
        "--quick",
        "--test",
        "throughput",
        "--jwt-secret",
        SECRET,
        "--stats-url",
        stats,
    ];
    let said = bench(folder.path(), &arguments);
    let report = report(folder.path());
    assert_eq!(report["target"]["embedded"], false);
    let messages = &results(&report)[0]["messages"];
    let count = |name: &str| messages[name].as_u64().unwrap();
    assert_eq!(
        count("delivered") + count("refused"),
        count("offered"),
        "{said:?}"
    );
    let command = text(&report["plan"]["command"]);
    assert!(
        command.contains("--jwt-secret …") && !command.contains(SECRET),
        "{command}"
    );
}

#[test]
fn a_plain_websocket_server_is_loaded_without_a_token() {
    let server = Running::serve(&[
        "--protocol",
        "raw",
        "--app",
        "echo",
        "--rate-limit-capacity",
        "0",
    ]);
    let folder = tempfile::tempdir().unwrap();
    let said = bench(
        folder.path(),
        &[&server.url, "--quick", "--test", "echo,connection-storm"],
    );
    let report = report(folder.path());
    assert_nothing_lost(&said, &report);
    assert_eq!(report["plan"]["profile"], "raw");
}

#[test]
fn compressed_and_encrypted_messages_are_exchanged() {
    for flag in ["--deflate", "--encrypt"] {
        let folder = tempfile::tempdir().unwrap();
        let said = bench(
            folder.path(),
            &["--quick", "--test", "echo", "--payload-bytes", "1024", flag],
        );
        let report = report(folder.path());
        assert_nothing_lost(&said, &report);
        let result = &results(&report)[0];
        let wire_bytes = result["wire_bytes"].as_f64().unwrap();
        if flag == "--deflate" {
            assert_eq!(result["extensions"][0], "permessage-deflate", "{result:#}");
            assert!(wire_bytes < 600.0, "{result:#}");
        } else {
            assert_eq!(result["encryption_version"], 1, "{result:#}");
            assert!((wire_bytes - 1_054.0).abs() < 0.1, "{result:#}");
        }
    }
}

#[test]
fn publications_reach_every_subscriber_in_every_form() {
    let plans: [&[&str]; 5] = [
        &[
            "--connections",
            "30",
            "--threads",
            "2",
            "--server-shards",
            "2",
        ],
        &["--connections", "30", "--rate-per-s", "50"],
        &["--payload-bytes", "80,3000", "--in-flight", "3"],
        &["--deflate"],
        &["--encrypt"],
    ];
    for plan in plans {
        let folder = tempfile::tempdir().unwrap();
        let said = bench(
            folder.path(),
            &[&["--quick", "--test", "fan-out"], plan].concat(),
        );
        let report = report(folder.path());
        assert_nothing_lost(&said, &report);
        for result in results(&report) {
            let (messages, fan_out) = (&result["messages"], &result["fan_out"]);
            assert_eq!(messages["delivered"], messages["offered"], "{result:#}");
            let publications = fan_out["publications"].as_u64().unwrap();
            let subscribers = result["connections"].as_u64().unwrap();
            assert!(publications > 0);
            assert_eq!(messages["offered"], publications * subscribers);
            assert!(result["memory"]["server_rss_peak_bytes"].as_u64().unwrap() > 0);
        }
    }
}

#[test]
fn a_server_with_closed_topics_fails_a_fan_out_and_history_does_not() {
    let closed = Running::serve(&["--no-auth"]);
    let folder = tempfile::tempdir().unwrap();
    let fan_out = ["--quick", "--test", "fan-out", "--profile", "v1"];
    let said = bench(folder.path(), &[&fan_out[..], &[&closed.url]].concat());
    assert_eq!(said.code, 1, "{said:?}");
    let notes = report(folder.path())["results"][0]["notes"].to_string();
    assert!(notes.contains("refuses the subscription"), "{notes}");

    let kept = ["--no-auth", "--topics-open", "--history", "fan-out=100"];
    let kept = Running::serve(&[&kept[..], &["--rate-limit-capacity", "0"]].concat());
    let said = bench(folder.path(), &[&fan_out[..], &[&kept.url]].concat());
    assert_nothing_lost(&said, &report(folder.path()));
}

#[test]
fn a_rate_is_kept_and_not_exceeded() {
    let folder = tempfile::tempdir().unwrap();
    let rate = ["--rate-per-s", "1000", "--poisson", "--duration-s", "0.5"];
    let said = bench(
        folder.path(),
        &[&["--quick", "--test", "echo"], &rate[..]].concat(),
    );
    let report = report(folder.path());
    assert_nothing_lost(&said, &report);
    assert_eq!(report["plan"]["pace"], "1000/s, Poisson");
    let result = &results(&report)[0];
    // About 500 are due in this time; as many as possible would be tens of thousands.
    let offered = result["messages"]["offered"].as_u64().unwrap();
    assert!((1..5_000).contains(&offered), "{result:#}");
    assert_eq!(result["latency_us"]["origin"], "intended", "{result:#}");
}

#[test]
fn a_typed_token_counts_before_an_exported_secret() {
    let server = Running::serve(&["--jwt-secret", SECRET]);
    let token = run(&["token", "--jwt-secret", SECRET, "--subject", "a"]);
    let folder = tempfile::tempdir().unwrap();
    let storm = ["--quick", "--test", "connection-storm", &server.url];
    let mut command = tidewire(&["bench", "--token", token.stdout.trim_end(), "--out"]);
    command.arg(folder.path()).args(storm);
    command.env(
        "TIDEWIRE_JWT_SECRET",
        "another secret that the server does not know",
    );
    let said = command.output().unwrap().into();
    assert_nothing_lost(&said, &report(folder.path()));
}

#[test]
fn a_server_that_refuses_makes_the_run_fail() {
    let server = Running::serve(&["--jwt-secret", SECRET]);
    let folder = tempfile::tempdir().unwrap();
    let arguments = [
        &server.url,
        "--quick",
        "--test",
        "connection-storm",
        "--token",
        "no-token",
    ];
    let said = bench(folder.path(), &arguments);
    assert_eq!(said.code, 1, "{said:?}");
    assert_eq!(results(&report(folder.path()))[0]["verdict"], "failed");
}

#[test]
fn mistakes_are_told_before_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let free = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let url = format!("ws://{free}/");
    let cases: [(&[&str], &[&str]); 12] = [
        (&[&url], &["cannot connect", &url, "nothing listens there"]),
        (&["http://127.0.0.1/"], &["ws:// or wss://"]),
        (&["wss://127.0.0.1:1/"], &["--ca", "--insecure"]),
        (&["--test", "thruput"], &["thruput", "throughput"]),
        (&["--connections", "0"], &["--connections"]),
        (&["--duration-s", "-1"], &["-1"]),
        (
            &["--rate-per-s", "0"],
            &["--rate-per-s", "messages per second"],
        ),
        (&["--poisson"], &["--rate-per-s"]),
        (
            &["--token", "a", "--jwt-secret", SECRET, "ws://127.0.0.1:1/"],
            &["--token and --jwt-secret"],
        ),
        (&["--test", "echo,throughput"], &["--test echo"]),
        (
            &["--test", "fan-out", "--profile", "raw"],
            &["fan-out", "--profile raw"],
        ),
        (&["--stats-url", "http://127.0.0.1:1"], &["URL"]),
    ];
    for (arguments, words) in cases {
        assert_refused(&bench(folder.path(), arguments), words);
    }
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    assert_refused(
        &run(&["bench", "--quick", "--out", file.to_str().unwrap()]),
        &["file"],
    );
}

#[test]
fn more_connections_than_open_files_are_no_row_of_a_load() {
    const TOO_MANY: &str = "100000000";
    let folder = tempfile::tempdir().unwrap();
    let storm = ["--quick", "--test", "connection-storm", "--connections"];
    let alone = bench(folder.path(), &[&storm[..], &[TOO_MANY]].concat());
    assert_refused(&alone, &["100000000 connections", "open", "ulimit"]);
    assert!(!folder.path().join("report.json").exists());

    let both = format!("5,{TOO_MANY}");
    let said = bench(folder.path(), &[&storm[..], &[&both]].concat());
    assert_eq!(said.code, 2, "{said:?}");
    let report = report(folder.path());
    let [ran, refused] = results(&report) else {
        panic!("{report:#}");
    };
    assert_eq!(ran["connected"], 5);
    assert_eq!(text(&refused["verdict"]), "failed");
    assert_eq!(text(&refused["doubts"][0]), "connections_impossible");
    assert!(
        text(&refused["notes"][0]).contains("was not run"),
        "{refused:#}"
    );
    assert!(refused.get("connected").is_none() && refused.get("rate_per_s").is_none());
}

#[test]
fn an_interrupted_run_leaves_a_partial_report_and_no_process() {
    let folder = tempfile::tempdir().unwrap();
    let (mut child, mut lines) = start_endless(folder.path(), &[]);
    #[cfg(target_os = "linux")]
    let servers = crate::program::children(child.id());
    signal(child.id(), "INT");
    let mut rest = String::new();
    lines.read_to_string(&mut rest).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{rest}");
    #[cfg(target_os = "linux")]
    {
        assert_eq!(servers.len(), 1, "the server that was started for the run");
        let process = format!("/proc/{}", servers[0]);
        assert!(!Path::new(&process).exists(), "{process}");
    }
    let report = report(folder.path());
    assert_eq!(report["partial"], true);
    assert_eq!(text(&results(&report)[0]["test"]), "connection-storm");
}

#[cfg(target_os = "linux")]
#[test]
fn the_death_of_the_server_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let (mut child, mut lines) = start_endless(folder.path(), &[]);
    let servers = crate::program::children(child.id());
    assert_eq!(servers.len(), 1);
    signal(servers[0], "KILL");
    let mut rest = String::new();
    lines.read_to_string(&mut rest).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1), "{rest}");
    let last = rest.lines().last().unwrap();
    assert!(
        last.starts_with("tidewire: the server ended during the run"),
        "{rest}"
    );
    let report = report(folder.path());
    assert!(
        text(&report["partial_reason"]).contains("server ended"),
        "{report:#}"
    );
}

/// A run whose first test is done and whose second would take an hour, and what it says from then on.
pub(crate) fn start_endless(out: &Path, flags: &[&str]) -> (Child, impl BufRead + use<>) {
    let tests = "connection-storm,sustained-hold";
    let words = [
        "bench", "--quick", "--hold-s", "3600", "--test", tests, "--out",
    ];
    start_until(tidewire(&words).arg(out).args(flags), "sustained-hold")
}

fn bench(out: &Path, arguments: &[&str]) -> Said {
    let mut command = tidewire(&["bench", "--out"]);
    command.arg(out).args(arguments).output().unwrap().into()
}

/// Asserts that everything is confirmed, and that the exit code is that of the worst verdict. Other work
/// on the machine may make a short measurement `generator_bound` or `noisy`.
#[track_caller]
fn assert_nothing_lost(said: &Said, report: &Value) {
    let code = |result: &Value| match text(&result["verdict"]) {
        "valid" => 0,
        "generator_bound" => 3,
        "noisy" => 4,
        other => panic!("{other}: {result:#}"),
    };
    for result in results(report) {
        if let Some(messages) = result.get("messages") {
            assert_eq!(messages["confirmed"], messages["offered"], "{result:#}");
            assert_eq!(messages["lost"], 0, "{result:#}");
        }
    }
    // A generator that was the limit counts before noise.
    let codes: Vec<i32> = results(report).iter().map(code).collect();
    let worst = [3, 4].into_iter().find(|code| codes.contains(code));
    assert_eq!(said.code, worst.unwrap_or(0), "{said:?}");
}

fn report(folder: &Path) -> Value {
    serde_json::from_slice(&fs::read(folder.join("report.json")).unwrap()).unwrap()
}

fn results(report: &Value) -> &[Value] {
    report["results"].as_array().unwrap()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

//! `tidewire load`: mistakes, interruptions and reports, as a user sees them.

use std::fs;
use std::io::{BufRead, Read};
use std::net::TcpListener;
use std::process::Child;

use serde_json::Value;

use crate::program::{Running, assert_refused, run, signal, start_until, tidewire};

#[test]
fn mistakes_are_one_line_and_name_the_value() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = folder.path().join("journey.toml");
    let wrong_scenario = scenario.to_str().unwrap();
    fs::write(&scenario, "[[request]]\npaht = \"/\"\n").unwrap();
    const URL: &str = "http://127.0.0.1:9/";
    let cases: [(&[&str], &[&str]); 20] = [
        (&["127.0.0.1:9"], &["http://", "ws://"]),
        (&["ftp://127.0.0.1/"], &["ftp://127.0.0.1/", "http://"]),
        (&["http://no-such-host.invalid/"], &["no-such-host.invalid"]),
        (&["http://127.0.0.1:99999/"], &["99999"]),
        (
            &[URL, "--conections", "5"],
            &["--conections", "--connections"],
        ),
        (&[URL, "-c", "many"], &["many", "--connections"]),
        (&[URL, "-d", "-1"], &["-1"]),
        (&[URL, "--stages", "10s"], &["10s", "--stages"]),
        (&[URL, "--header", "no colon"], &["no colon", "--header"]),
        (&[URL, "--expect", "p99<20"], &["p99<20", "ms"]),
        (&[URL, "--expect", "p999<20ms"], &["p999"]),
        (&[URL, "--expect", "speed>1"], &["speed"]),
        (
            &[URL, "--scenario", "/nonexistent.toml"],
            &["/nonexistent.toml"],
        ),
        (
            &[URL, "--scenario", wrong_scenario],
            &["journey.toml", "paht"],
        ),
        (&[URL, "--encrypt"], &["--encrypt", "ws://"]),
        (&[URL, "--message", "a"], &["--message", "ws://"]),
        (
            &["ws://127.0.0.1:9/", "--expect-status", "200"],
            &["--expect-status", "http://", "--reply"],
        ),
        (
            &[URL, "--find-limit", "-d", "5"],
            &["--duration-s", "--find-limit", "--step-s"],
        ),
        (
            &[
                URL,
                "--find-limit",
                "--from-per-s",
                "9k",
                "--to-per-s",
                "10",
            ],
            &["--from-per-s", "9000", "--to-per-s"],
        ),
        (
            &["https://127.0.0.1:9/", "--ca", "/nonexistent.pem"],
            &["/nonexistent.pem"],
        ),
    ];
    for (arguments, words) in cases {
        assert_refused(&run(&[&["load"], arguments].concat()), words);
    }
}

#[test]
fn more_connections_than_open_files_are_told_before_the_start() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    listener.set_nonblocking(true).unwrap();
    let said = run(&["load", &url, "-c", "100000000"]);
    assert_refused(&said, &["100000000 connections", "open", "ulimit"]);
    assert!(listener.accept().is_err(), "nothing was connected");
}

/// A load that would take an hour, which has sent something, and what it still says.
fn start_endless(url: &str, flags: &[&str]) -> (Child, impl BufRead + use<>) {
    let mut command = tidewire(&["load", url, "-d", "3600", "-t", "1"]);
    // A line with figures, after `sending for 3600 s …`.
    start_until(command.args(flags), "  ")
}

#[test]
fn an_interrupted_load_leaves_a_partial_report_and_no_process() {
    let server = Running::start(tidewire(&["test-server", "--port", "0"]));
    for scheme in ["http", "ws"] {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("{scheme}://{}/ws", server.address());
        let out = folder.path().to_str().unwrap();
        let statuses = ["--out", out, "--expect-status", "any"];
        // Messages have no status.
        let flags = &statuses[..if scheme == "ws" { 2 } else { 4 }];
        let (mut child, mut lines) = start_endless(&url, flags);
        signal(child.id(), "INT");
        let mut rest = String::new();
        lines.read_to_string(&mut rest).unwrap();
        // It was the only process: without it nobody holds its pipes or its connections.
        assert_eq!(child.wait().unwrap().code(), Some(130), "{rest}");
        let mut shown = String::new();
        let mut stdout = child.stdout.take().unwrap();
        stdout.read_to_string(&mut shown).unwrap();
        assert!(shown.contains("interrupted"), "{shown}");
        let written = fs::read(folder.path().join("report.json")).unwrap();
        let report: Value = serde_json::from_slice(&written).unwrap();
        assert_eq!(report["partial"], true);
        let result = &report["results"][0];
        assert!(
            result["requests"]["succeeded"].as_u64().unwrap() > 0,
            "{result:#}"
        );
        assert!(result["rate_per_s"].as_f64().unwrap() > 0.0, "{result:#}");
        for name in ["report.html", "report.md"] {
            assert!(folder.path().join(name).is_file(), "{name}");
        }
    }
}

#[test]
fn a_second_interruption_ends_a_load_at_once() {
    // It accepts connections and never answers; the report of the load would wait for requests in flight.
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", mute.local_addr().unwrap());
    let (mut child, _lines) = start_endless(&url, &["--drain-ms", "600000", "-c", "2"]);
    signal(child.id(), "INT");
    signal(child.id(), "INT");
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

#[test]
fn encrypted_messages_are_exchanged_with_a_tidewire_server() {
    let mut server = Running::serve(&[
        "--no-auth",
        "--app",
        "echo",
        "--encryption",
        "required",
        "--rate-limit-capacity",
        "0",
        "--ops-listen",
        "127.0.0.1:0",
    ]);
    let operations = server.line();
    let operations = operations.strip_prefix("operations on ").unwrap();
    let message = r#"{"t":"order","p":{"n":{{seq}}},"id":"{{uuid}}"}"#;
    for reply in ["field:id", "pong"] {
        let arguments = [
            "load",
            &server.url,
            "--encrypt",
            "-n",
            "500",
            "-c",
            "5",
            "-q",
            "--json",
            "--reply",
            reply,
            "--message",
            message,
        ];
        let result = result_of(&arguments);
        assert_eq!(result["requests"]["succeeded"], 500, "{result:#}");
        assert_eq!(result["encryption_version"], 1, "{result:#}");
    }
    // The application has received each of them, decrypted.
    let (_, metrics) = crate::program::get(operations, "/metrics");
    let shards = metrics.lines().filter_map(|line| {
        let value = line.strip_prefix("tidewire_messages_delivered_total{")?;
        value.rsplit(' ').next()?.parse::<u64>().ok()
    });
    assert_eq!(shards.sum::<u64>(), 1_000);
    // Without encryption this server refuses the messages.
    let plain = [
        "load",
        &server.url,
        "--profile",
        "v1",
        "-n",
        "5",
        "-c",
        "1",
        "-q",
    ];
    assert_eq!(run(&plain).code, 1);
}

/// The server answers a `publish_request` of version 1 with a `publish_response` that has its `cid`.
#[test]
fn an_answer_of_version_1_is_found_by_its_correlation_id() {
    let server = Running::serve(&["--no-auth", "--topics-open", "--rate-limit-capacity", "0"]);
    let message = r#"{"t":"publish_request","cid":"{{seq}}","p":{"topic":"orders","type":"order","payload":{{seq}}}}"#;
    let arguments = [
        "load",
        &server.url,
        "--profile",
        "v1",
        "-n",
        "200",
        "-c",
        "4",
        "-q",
        "--json",
        "--reply",
        "field:cid",
        "--message",
        message,
    ];
    let result = result_of(&arguments);
    assert_eq!(result["requests"]["succeeded"], 200, "{result:#}");
    assert_eq!(
        result["confirmed_by"],
        serde_json::json!(["reply"]),
        "{result:#}"
    );
}

/// The only result of a load that ends well, or with the generator as the limit.
#[track_caller]
fn result_of(arguments: &[&str]) -> Value {
    let said = run(arguments);
    assert!(matches!(said.code, 0 | 3 | 4), "{said:?}");
    let mut report: Value = serde_json::from_str(&said.stdout).unwrap();
    report["results"][0].take()
}

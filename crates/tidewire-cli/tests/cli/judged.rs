//! `tidewire load` and what is expected of its figures.

use crate::program::{Running, Said, assert_refused, run, tidewire};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

#[test]
fn expectations_are_shown_as_kept_or_broken() {
    let url = service();
    let said = load(
        &url,
        &[
            "-n",
            "200",
            "--expect",
            "rate>1",
            "--expect",
            "p50 < 1ns",
            "--json",
        ],
    );
    // A generator that was the limit counts before a broken expectation.
    assert!([5, 3].contains(&said.code), "{said:?}");
    let report: Value = serde_json::from_str(&said.stdout).unwrap();
    let expectations = &report["results"][0]["expectations"];
    assert_eq!(expectations[0]["kept"], true, "{expectations:#}");
    assert!(expectations[0]["seen"].as_str().unwrap().ends_with("/s"));
    assert_eq!(expectations[1]["kept"], false, "{expectations:#}");
    assert_eq!(expectations[1]["text"], "p50 < 1ns");

    let said = load(&url, &["-n", "50", "--expect", "p99.99<1s"]);
    for words in [
        "p99.99<1s",
        "broken",
        "not known: it needs at least 10,000 values",
    ] {
        assert!(said.stdout.contains(words), "{words} in {}", said.stdout);
    }
}

#[test]
fn a_load_is_given_up_when_an_expectation_is_broken_for_too_long() {
    let said = load(
        &service(),
        &[
            "-c",
            "1",
            "-d",
            "600",
            "--expect",
            "rate>1M",
            "--abort-after-s",
            "1",
            "--json",
        ],
    );
    assert!([5, 3].contains(&said.code), "{said:?}");
    let report: Value = serde_json::from_str(&said.stdout).unwrap();
    let notes = report["results"][0]["notes"].to_string();
    assert!(notes.contains("Ended early: `rate>1M`"), "{notes}");
    assert_eq!(report["partial"], false);
}

#[test]
fn a_load_is_compared_with_an_earlier_one() {
    let url = service();
    let folder = tempfile::tempdir().unwrap();
    let before = folder.path().join("before");
    load(&url, &["-n", "300", "--out", before.to_str().unwrap()]);
    let file = before.join("report.json");
    let file = file.to_str().unwrap();
    let said = load(
        &url,
        &[
            "-n",
            "300",
            "--baseline",
            file,
            "--fail-if-slower",
            "--json",
        ],
    );
    assert!(
        [0, 3, 4].contains(&said.code),
        "what cannot be told is not slower: {said:?}"
    );
    let report: Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!(report["baseline"]["file"], file);
    let rate = &report["results"][0]["baseline"][0];
    assert_eq!(rate["figure"], "rate");
    assert_eq!(rate["finding"], "cannot_tell");
    // Too few windows, or on a busy machine a generator that was the limit.
    let reason = rate["reason"].as_str().unwrap();
    assert!(!reason.is_empty(), "{rate:#}");

    let other = load(&url, &["-c", "3", "-n", "30", "--baseline", file]);
    assert!(
        other.stdout.contains("3 connections, 1 in flight: not in"),
        "{}",
        other.stdout
    );
}

#[test]
fn the_age_of_messages_is_in_every_report() {
    let server = Running::start(tidewire(&["test-server", "--port", "0"]));
    let url = format!("ws://{}/ws", server.address());
    let folder = tempfile::tempdir().unwrap();
    let start = Instant::now();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    // The test server sends each message back, so that the age is known without a measurement.
    let message = format!(r#"{{"at":{}}}"#, now.as_millis() - 30_000);
    let flags = [
        "-c",
        "2",
        "-n",
        "20",
        "--reply",
        "order",
        "--message",
        &message,
    ];
    let reported = |field: &str| {
        let out = [
            "--timestamp-field",
            field,
            "--out",
            folder.path().to_str().unwrap(),
        ];
        load(&url, &[&flags[..], &out].concat())
    };
    let file = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    let result =
        || serde_json::from_str::<Value>(&file("report.json")).unwrap()["results"][0].take();

    let said = reported("at");
    let age = &result()["message_age_us"];
    assert_eq!(age["count"], 20, "{age:#}");
    assert_eq!(age["origin"], "sent");
    let oldest_us = (start.elapsed() + Duration::from_secs(31)).as_micros() as f64;
    let [min, max] = ["min", "max"].map(|figure| age[figure].as_f64().unwrap());
    assert!(min >= 30e6 * 0.99 && max <= oldest_us * 1.01, "{age:#}");
    for text in [said.stdout, file("report.md"), file("report.html")] {
        assert!(text.contains("message age"), "{text}");
    }

    let said = reported("created");
    assert_eq!(result().get("message_age_us"), None);
    let note = "No message of the server had a time in the field `/created`";
    assert!(said.stdout.contains(note), "{}", said.stdout);
}

#[test]
fn what_is_asked_of_a_load_is_a_test_case_each_and_its_figures_are_a_line_of_csv() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (junit, csv, out) = (file("tests.xml"), file("rows.csv"), file("out"));
    let said = load(
        &service(),
        &[
            "-n",
            "50",
            "--expect",
            "GET /: p50<1ns",
            "--expect",
            "rate>0",
            "--junit",
            &junit,
            "--csv",
            &csv,
            "--out",
            &out,
        ],
    );
    assert!([5, 3].contains(&said.code), "{said:?}");
    let xml = std::fs::read_to_string(&junit).unwrap();
    for part in [
        "classname=\"http, 50 connections, 1 in flight\" name=\"GET /: p50&lt;1ns\"",
        "<failure type=\"expectation\" message=\"`GET /: p50&lt;1ns` was ",
        "name=\"rate&gt;0\" time=\"0.000\"/>",
        "name=\"service\"",
    ] {
        assert!(xml.contains(part), "{part} in {xml}");
    }
    let rows = std::fs::read_to_string(&csv).unwrap();
    let lines: Vec<&str> = rows.lines().collect();
    assert_eq!(lines.len(), 2, "{rows}");
    assert!(
        lines[0].starts_with("row,test,connections,") && lines[1].starts_with("result,http,50,"),
        "{rows}"
    );

    // The same of a finished report.
    let report = format!("{out}/report.json");
    let again = file("again.xml");
    let said = run(&[
        "report",
        &report,
        "--junit",
        &again,
        "--csv",
        &file("again.csv"),
    ]);
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(std::fs::read_to_string(&again).unwrap(), xml);
    assert_eq!(std::fs::read_to_string(file("again.csv")).unwrap(), rows);
    assert_refused(
        &run(&["report", &report, &report, "--junit", &again]),
        &["--junit", "one report"],
    );
    let missing = file("none/tests.xml");
    assert_refused(
        &load("http://127.0.0.1:9/", &["--junit", &missing]),
        &[&missing, "cannot write"],
    );
    assert_refused(
        &load("http://127.0.0.1:9/", &["--csv", &out]),
        &[&out, "cannot write"],
    );
}

#[test]
fn the_flags_of_other_tools_are_understood_and_their_lines_printed() {
    let url = service();
    let cases: [(&[&str], &[&str]); 3] = [
        (
            &["ab", "-q", "-k", "-n100", "-c", "2"],
            &[
                "Complete requests:      100\n",
                "Failed requests:        0\n",
                "  50% ",
            ],
        ),
        (
            &["wrk", "-t1", "-c2", "-d1s", "--latency"],
            &["  1 threads and 2 connections\n", "Requests/sec:"],
        ),
        (
            &["loadtest", "--quiet", "-n", "50", "-c", "2"],
            &["Completed requests:  50\n", "Total errors:        0\n"],
        ),
    ];
    for (flags, lines) in cases {
        let said = run(&[&["load", "--as"], flags, &[&url]].concat());
        assert!([0, 3, 4].contains(&said.code), "{said:?}");
        for line in lines {
            assert!(
                said.stdout.contains(line),
                "no {line:?} in\n{}",
                said.stdout
            );
        }
    }
    assert_refused(
        &run(&["load", &url, "--as", "ab"]),
        &["--as", "directly after"],
    );
    assert_refused(
        &run(&["load", "--as", "ab", "-g", "f", &url]),
        &["--as ab", "-g"],
    );
}

/// wrk counts a connection that ends before its response as a read error, and ab as a failed request.
#[test]
fn what_a_server_leaves_unanswered_is_counted_as_the_other_tools_count_it() {
    let (url, closed) = service_that_closes();
    let said = run(&["load", "--as", "wrk", "-t1", "-c4", "-d1s", &url]);
    let errors = number_after(&said.stdout, ", read ");
    let of_server = closed.swap(0, Ordering::Relaxed);
    assert!(of_server > 10, "{said:?}");
    // A connection may be closed at the moment at which the load ends.
    assert!(
        (of_server - 4..=of_server).contains(&errors),
        "{of_server}: {said:?}"
    );
    let said = run(&["load", "--as", "ab", "-k", "-n1000", "-c4", &url]);
    let failed = number_after(&said.stdout, "Failed requests:");
    assert_eq!(failed, closed.load(Ordering::Relaxed), "{said:?}");
    assert_eq!(failed, 10, "{said:?}");
}

/// The number behind these words.
#[track_caller]
fn number_after(text: &str, words: &str) -> u64 {
    let (_, rest) = text
        .split_once(words)
        .unwrap_or_else(|| panic!("{words}: {text}"));
    let digits = rest
        .trim_start()
        .split(|c: char| !c.is_ascii_digit())
        .next();
    digits
        .and_then(|digits| digits.parse().ok())
        .expect("a number")
}

#[test]
fn what_is_wrong_is_told_before_the_load() {
    let url = service();
    let missing = "/nonexistent/report.json";
    let cases: [(&[&str], &[&str]); 11] = [
        (
            &["--expect", "GET /nowhere: p99<1s"],
            &["there is no request `GET /nowhere`: the load has `GET /`"],
        ),
        (
            &["--expect", "GET /: tcp.p99<1s"],
            &["a request has p99", "without `GET /:`"],
        ),
        (&["--expect", "tls.p99<1s"], &["needs https:// or wss://"]),
        (
            &["-c", "100000000"],
            &["100000000 connections", "open", "ulimit"],
        ),
        (&["--expect", "p99<20"], &["--expect", "write p99<20ms"]),
        (
            &["--expect", "latency<1s"],
            &["there is no figure `latency`"],
        ),
        (
            &["--confidence", "p99:1%"],
            &["--confidence", "2 % at best"],
        ),
        (
            &["--confidence", "p99:5%", "--find-limit"],
            &["--find-limit"],
        ),
        (&["--abort-after-s", "5"], &["--expect"]),
        (&["--fail-if-slower"], &["--baseline"]),
        (&["--baseline", missing], &[missing]),
    ];
    for (flags, words) in cases {
        assert_refused(&load(&url, flags), words);
    }
}

fn load(url: &str, flags: &[&str]) -> Said {
    run(&[&["load", url, "--quiet", "-t", "1"], flags].concat())
}

/// The URL of a service that answers every request with `OK`, until the end of the tests.
fn service() -> String {
    serve(|| true)
}

/// A service that ends a connection instead of answering each hundredth request, and how many it has ended.
fn service_that_closes() -> (String, Arc<AtomicU64>) {
    let (requests, closed) = (AtomicU64::new(0), Arc::new(AtomicU64::new(0)));
    let ended = Arc::clone(&closed);
    let url = serve(move || {
        let is_answered = (requests.fetch_add(1, Ordering::Relaxed) + 1) % 100 != 0;
        ended.fetch_add(u64::from(!is_answered), Ordering::Relaxed);
        is_answered
    });
    (url, closed)
}

/// A service that asks for each request whether it answers it or ends the connection.
fn serve(is_answered: impl Fn() -> bool + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let is_answered = Arc::new(is_answered);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let is_answered = Arc::clone(&is_answered);
            thread::spawn(move || answer(stream, &*is_answered));
        }
    });
    url
}

/// Answers requests, which have no body, until one is not to be answered.
fn answer(mut stream: TcpStream, is_answered: &dyn Fn() -> bool) {
    let (mut buffer, mut end) = ([0; 4096], 0u8);
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        let mut answers = Vec::new();
        for byte in &buffer[..count] {
            // The empty line, in whatever pieces it comes.
            end = match (byte, end) {
                (b'\r', 0 | 2) | (b'\n', 1 | 3) => end + 1,
                _ => 0,
            };
            if end == 4 {
                if !is_answered() {
                    return;
                }
                answers.extend_from_slice(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nOK");
                end = 0;
            }
        }
        if stream.write_all(&answers).is_err() {
            return;
        }
    }
}

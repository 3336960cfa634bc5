//! The program with the feature `otlp`: options and variables lead to a receiver.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "cli/program.rs"]
#[expect(dead_code, reason = "it is shared with the other tests of the program")]
mod program;

use program::{Running, assert_refused, run, tidewire};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// The base URL of a receiver, and the head and body of each request.
fn receiver() -> (String, Receiver<(String, Vec<u8>)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (sender, requests) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut reader = BufReader::new(stream);
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                if reader.read_line(&mut head).unwrap_or_default() == 0 {
                    break;
                }
            }
            let lower = head.to_ascii_lowercase();
            let Some((_, length)) = lower.split_once("content-length:") else {
                continue;
            };
            let length = length.lines().next().unwrap().trim().parse().unwrap();
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            let answer = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
            reader.get_mut().write_all(answer).unwrap();
            if sender.send((head, body)).is_err() {
                return;
            }
        }
    });
    (url, requests)
}

fn has(body: &[u8], text: &str) -> bool {
    body.windows(text.len()).any(|part| part == text.as_bytes())
}

const DEADLINE: Duration = Duration::from_secs(60);

#[test]
fn spans_reach_the_receiver_also_at_the_end() {
    let (url, requests) = receiver();
    let mut command = tidewire(&["serve", "--listen", "127.0.0.1:0", "--no-auth"]);
    command.args(["--otlp-endpoint", &url, "--drain-timeout-ms", "100"]);
    command.env("OTEL_SERVICE_NAME", "live-prices");
    let mut server = Running::start(command);
    server.opening().open().next_text();
    let (head, body) = requests.recv_timeout(DEADLINE).unwrap();
    assert!(head.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{head}");
    assert!(has(&body, "handshake") && has(&body, "live-prices"));
    // The queue is emptied four times a second: this one most likely waits at the end.
    server.opening().open().next_text();
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
    assert!(has(
        &requests.recv_timeout(DEADLINE).unwrap().1,
        "handshake"
    ));
}

#[test]
fn the_variables_of_opentelemetry_are_enough_and_the_ratio_holds() {
    let (url, requests) = receiver();
    let mut command = tidewire(&["serve", "--listen", "127.0.0.1:0", "--no-auth"]);
    command.args(["--otlp-sampling", "0"]);
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", &url);
    let server = Running::start(command);
    server.opening().open().next_text();
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let opening = server.opening().header("traceparent", parent);
    opening.open().next_text();
    let (_, body) = requests.recv_timeout(DEADLINE).unwrap();
    let spans = body.windows(9).filter(|part| part == b"handshake");
    assert_eq!(spans.count(), 1, "the one of the sampled trace");
}

#[test]
fn wrong_values_are_named() {
    let serve = ["serve", "--listen", "127.0.0.1:0", "--no-auth"];
    for (flag, value, words) in [
        ("--otlp-endpoint", "127.0.0.1:4318", "http://"),
        ("--otlp-sampling", "2", "from 0 to 1"),
    ] {
        let said = run(&[&serve[..], &[flag, value]].concat());
        assert_refused(&said, &[flag, words]);
    }
    let mut command = tidewire(&serve);
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4317");
    let said = command.output().unwrap().into();
    assert_refused(&said, &["OTEL_EXPORTER_OTLP_ENDPOINT", "http://"]);
}

//! `tidewire test-server`.

use crate::program::{Running, assert_refused, run, tidewire};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Stdio;

fn start(arguments: &[&str]) -> Running {
    let mut command = tidewire(&["test-server", "--port", "0"]);
    command.args(arguments);
    Running::start(command)
}

/// Sends one request and reads until the server closes.
fn get(address: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn what_was_served_is_printed_at_the_end() {
    let mut server = start(&[
        "--body-bytes",
        "4",
        "--delay-ms",
        "0..2",
        "--error-status",
        "418",
    ]);
    let echo = server.line();
    assert!(
        echo.starts_with("WebSocket echo at ws://127.0.0.1:"),
        "{echo}"
    );
    assert!(get(server.address()).starts_with("HTTP/1.1 418 "));
    server.signal("TERM");
    let served = server.line();
    assert!(
        served.starts_with("served 1 requests on 1 connections, "),
        "{served}"
    );
    assert_eq!(server.line(), "  status 418: 1");
    assert_eq!(server.wait(), Some(0));
}

#[test]
fn counts_are_one_line_of_json() {
    let mut command = tidewire(&["test-server", "--port", "0", "--json"]);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stderr.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let url = line.strip_prefix("listening on http://").unwrap();
    assert!(get(url.trim_end_matches(['/', '\n'])).ends_with("OK"));
    crate::program::signal(child.id(), "INT");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    let counts: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(counts["requests"]["answered"], 1);
    assert_eq!(counts["statuses"]["200"], 1);
}

#[test]
fn mistakes_are_told_in_one_line() {
    for (arguments, words) in [
        (vec!["--delay-ms", "soon"], "5..20"),
        (vec!["--error-status", "99"], "200 to 599"),
        (vec!["--error-percent", "120"], "0 to 100"),
        (vec!["--host", "no such host"], "--host"),
        (vec!["--stall-ms", "5"], "--stall-every-ms"),
        (vec!["--tls-cert", "/none.pem"], "--tls-key"),
        (
            vec!["--tls-cert", "/none.pem", "--tls-key", "/none.pem"],
            "--tls-certificate",
        ),
    ] {
        let mut all = vec!["test-server", "--port", "0"];
        all.extend(arguments);
        assert_refused(&run(&all), &[words]);
    }
    let server = start(&[]);
    let (_, port) = server.address().rsplit_once(':').unwrap();
    assert_refused(&run(&["test-server", "--port", port]), &["--port"]);
}

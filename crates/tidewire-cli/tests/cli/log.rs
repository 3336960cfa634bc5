//! The log of `tidewire serve` on a standard error that is read, that is read late, and that nobody reads.

use crate::program::{Running, SECRET, get};
use std::io::Read as _;
use std::process::Stdio;
use tidewire_testkit::websocket::Client;

/// Far more log lines than a pipe has room for.
const SESSIONS: usize = 1_500;

fn greeted(server: &Running) -> Client {
    let mut client = server.opening().open();
    assert!(client.next_text().contains("server_ready"));
    client
}

#[test]
fn a_pipe_that_nobody_reads_stops_neither_sessions_nor_the_end() {
    let mut server = Running::serve(&["--no-auth", "--log-level", "debug"]);
    let mut waiting = greeted(&server);
    for _ in 0..SESSIONS {
        drop(greeted(&server));
    }
    waiting.send_text(r#"{"t":"hello","p":{}}"#);
    assert!(waiting.next_text().contains("hello"));
    drop(waiting);
    server.signal("TERM");
    assert!(server.line().starts_with("draining, "));
    assert_eq!(server.line(), "stopped, sessions left: 0");
    assert_eq!(server.wait(), Some(0));
}

#[test]
fn refused_handshakes_of_an_outsider_do_not_fill_the_log() {
    let mut server = Running::serve(&["--jwt-secret", SECRET, "--ops-listen", "127.0.0.1:0"]);
    let line = server.line();
    let operations = line.strip_prefix("operations on ").unwrap();
    for _ in 0..500 {
        assert_eq!(server.opening().refused().0, 401);
    }
    let (_, metrics) = get(operations, "/metrics");
    assert!(
        metrics.contains("\ntidewire_log_lines_left_out_total 495\n"),
        "{metrics}"
    );
    server.signal("TERM");
    assert!(server.line().starts_with("draining, "));
    assert!(server.line().starts_with("stopped, "));
    assert_eq!(server.wait(), Some(0));
    let log = server.end();
    assert_eq!(
        log.matches("a token is not accepted").count(),
        5 + 1,
        "{log}"
    );
    let summary = log.lines().find(|line| line.contains("left out")).unwrap();
    for words in [
        "kind=\"a token is not accepted\"",
        "lines=495",
        "of_address=495",
    ] {
        assert!(summary.contains(words), "{summary}");
    }
}

#[test]
fn dropped_lines_are_counted_and_reported_when_somebody_reads_again() {
    let mut command = crate::program::tidewire(&["serve", "--no-auth", "--shards", "1"]);
    command.args(["--listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0"]);
    command.args([
        "--log-level",
        "debug",
        "--errors-max",
        "0",
        "--rate-limit-capacity",
        "0",
    ]);
    command.stderr(Stdio::piped());
    let mut server = Running::start(command);
    let line = server.line();
    let operations = line.strip_prefix("operations on ").unwrap().to_owned();
    let mut client = greeted(&server);
    let dropped = || {
        let (_, metrics) = get(&operations, "/metrics");
        let name = "\ntidewire_log_lines_dropped_total ";
        let (_, rest) = metrics.split_once(name).expect("the metric");
        rest.lines().next().unwrap().parse::<u64>().unwrap()
    };
    // Each has a line at this level.
    while dropped() == 0 {
        for _ in 0..1_000 {
            client.send_text(r#"{"t":"publish_request","p":{"topic":"a.*","type":"x"}}"#);
            assert!(client.next_text().contains("INVALID_MESSAGE"));
        }
    }
    let mut stderr = server.child.stderr.take().unwrap();
    let reading = std::thread::spawn(move || {
        let mut log = String::new();
        stderr.read_to_string(&mut log).map(|_| log)
    });
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
    let log = reading.join().unwrap().unwrap();
    let dropped = dropped_of(&log);
    assert!(dropped > 0, "{log}");
    // Everything else is there, to the last line.
    assert!(
        log.trim_end()
            .lines()
            .any(|line| line.contains("the drain is over")),
        "{log}"
    );
}

fn dropped_of(log: &str) -> u64 {
    let line = log
        .lines()
        .find(|line| line.contains("log lines were dropped"));
    let (_, rest) = line.expect("a report").split_once("dropped=").unwrap();
    rest.trim().parse().unwrap()
}

//! A load over HTTP/2 of servers that behave badly: every fault has its name, is counted once, and is never a success.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidewire_http::http2::{ErrorCode, Limits};
use tidewire_load::options::load::{LoadOptions, Retry};
use tidewire_load::report::TestResult;

use crate::http_service::Peer;
use crate::loading::run;

const REQUESTS: u64 = 6;

/// What a server does with each request.
#[derive(Clone, Copy, Debug)]
enum Conduct {
    /// Resets its stream.
    Resets(ErrorCode),
    /// Sends these bytes, in which the stream's number stands at the end of each frame's head.
    Sends(&'static [u8]),
    /// Announces with this code that it accepts no more, without having looked at it, and ends the connection.
    GoesAway(ErrorCode),
    /// The same for the first of all connections; later ones are served.
    GoesAwayOnce,
    /// Answers the first of each connection, and ends the connection at the second.
    ServesOnce,
    /// Announces that it accepts no more as soon as a connection begins.
    Drains,
    /// Answers no request, but pings.
    Waits,
    /// Does nothing more at all.
    Freezes,
}

/// A server on a thread for each connection, until the test ends. Gives its address and the number of whole requests.
fn server(conduct: Conduct, limits: Limits) -> (SocketAddr, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let requests = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&requests);
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().map_while(Result::ok).enumerate() {
            let counted = Arc::clone(&counted);
            std::thread::spawn(move || serve(stream, number, conduct, limits, &counted));
        }
    });
    (address, requests)
}

fn serve(stream: TcpStream, number: usize, conduct: Conduct, limits: Limits, counted: &AtomicU64) {
    let mut peer = Peer::new(stream, &limits);
    if let Conduct::Drains = conduct {
        // In one piece: a client that gets the settings first may already send.
        let mut out = std::mem::take(&mut peer.out);
        out.extend(go_away_frame(ErrorCode::NO_ERROR));
        return end_with(&mut peer.stream, &out);
    }
    let mut served = 0;
    while let Some(requests) = peer.read() {
        for (stream, _) in requests {
            counted.fetch_add(1, Ordering::Relaxed);
            served += 1;
            match conduct {
                Conduct::Resets(code) => peer.connection.reset(stream, code, &mut peer.out),
                Conduct::Sends(bytes) => peer.out.extend(numbered(bytes, stream)),
                Conduct::GoesAway(code) => return go_away(&mut peer.stream, code),
                Conduct::GoesAwayOnce if number == 0 => {
                    return go_away(&mut peer.stream, ErrorCode::NO_ERROR);
                }
                Conduct::ServesOnce if served == 2 => return,
                Conduct::GoesAwayOnce | Conduct::ServesOnce => peer.respond(stream, 200, &[], "ok"),
                Conduct::Waits | Conduct::Drains => {}
                Conduct::Freezes => std::thread::sleep(Duration::from_secs(3_600)),
            }
        }
    }
}

/// GOAWAY with no stream processed, and the end.
fn go_away(stream: &mut TcpStream, code: ErrorCode) {
    end_with(stream, &go_away_frame(code));
}

fn go_away_frame(code: ErrorCode) -> Vec<u8> {
    let mut frame = vec![0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    frame.extend(code.0.to_be_bytes());
    frame
}

/// The last bytes of a connection, and its end when the client has ended it, too.
fn end_with(stream: &mut TcpStream, bytes: &[u8]) {
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
}

/// Frames whose stream is this one, unless their own is 0xffff_ffff, which stands for the connection.
fn numbered(frames: &[u8], stream: u32) -> Vec<u8> {
    let mut out = frames.to_vec();
    let mut at = 0;
    while at < out.len() {
        let length = usize::from(out[at + 1]) << 8 | usize::from(out[at + 2]);
        let number = if out[at + 5..at + 9] == [0xff; 4] {
            0
        } else {
            stream
        };
        out[at + 5..at + 9].copy_from_slice(&number.to_be_bytes());
        at += 9 + length;
    }
    out
}

fn options(address: SocketAddr) -> LoadOptions {
    LoadOptions {
        http2: true,
        connections: 2,
        threads: 1,
        requests: Some(REQUESTS),
        duration: Some(Duration::from_secs(120)),
        ..LoadOptions::new(&format!("http://{address}/"))
    }
}

#[track_caller]
fn assert_all_failed(result: &TestResult, name: &str) {
    let requests = result.load.requests.unwrap();
    assert_eq!(
        (requests.sent, requests.succeeded, requests.unfinished),
        (REQUESTS, 0, 0),
        "{name}"
    );
    let errors = BTreeMap::from([(name.to_owned(), REQUESTS)]);
    assert_eq!(result.load.errors, errors);
}

#[test]
fn each_fault_has_its_name() {
    const HEAD: u8 = 0x88;
    for (conduct, name) in [
        (
            Conduct::Resets(ErrorCode::REFUSED_STREAM),
            "reset-refused-stream",
        ),
        (
            Conduct::Resets(ErrorCode::ENHANCE_YOUR_CALM),
            "reset-enhance-your-calm",
        ),
        (Conduct::Resets(ErrorCode(99)), "reset-unknown-error"),
        (Conduct::GoesAway(ErrorCode::NO_ERROR), "goaway-no-error"),
        (
            Conduct::GoesAway(ErrorCode::INTERNAL_ERROR),
            "goaway-internal-error",
        ),
        // A body before its head; a head that is not one; a bad block; a push.
        (
            Conduct::Sends(&[0, 0, 1, 0, 0, 0, 0, 0, 0, b'a']),
            "bad-header",
        ),
        (
            Conduct::Sends(&[0, 0, 1, 1, 5, 0, 0, 0, 0, 0x82]),
            "bad-header",
        ),
        (
            Conduct::Sends(&[0, 0, 1, 1, 5, 0, 0, 0, 0, 0x80]),
            "bad-header-block",
        ),
        (
            Conduct::Sends(&[0, 0, 5, 5, 4, 0, 0, 0, 0, 0, 0, 0, 2, HEAD]),
            "unexpected-frame",
        ),
    ] {
        let (address, _) = server(conduct, Limits::default());
        assert_all_failed(&run(&options(address)), name);
    }
}

#[test]
fn what_the_server_has_not_looked_at_is_sent_again() {
    let (address, requests) = server(Conduct::GoesAwayOnce, Limits::default());
    let result = run(&LoadOptions {
        connections: 1,
        streams: Some(4),
        ..options(address)
    });
    let counts = result.load.requests.unwrap();
    assert_eq!(
        (counts.succeeded, counts.failed),
        (REQUESTS, 0),
        "{:?}",
        result.load.errors
    );
    assert_eq!(counts.retried, 4);
    // The first one was read by the server of the test before it decided to go away.
    assert_eq!(requests.load(Ordering::Relaxed), REQUESTS + 1);
    assert_eq!(result.load.connecting.unwrap().opened, 2);
}

#[test]
fn a_request_whose_connection_ends_is_sent_again_only_if_that_is_wanted() {
    for (retry, failed) in [(Retry::Never, true), (Retry::IdleClose, false)] {
        let (address, _) = server(Conduct::ServesOnce, Limits::default());
        let result = run(&LoadOptions {
            connections: 1,
            retry,
            ..options(address)
        });
        let counts = result.load.requests.unwrap();
        assert_eq!(
            counts.failed > 0,
            failed,
            "{retry:?} {:?}",
            result.load.errors
        );
        assert_eq!(counts.retried > 0, !failed);
        assert_eq!(counts.succeeded + counts.failed, REQUESTS);
    }
}

#[test]
fn a_load_keeps_to_what_the_server_allows() {
    let limits = Limits {
        streams_max: 2,
        ..Limits::default()
    };
    let (address, requests) = server(Conduct::Waits, limits);
    let mut options = LoadOptions {
        connections: 1,
        streams: Some(50),
        requests: None,
        duration: Some(Duration::from_millis(200)),
        ..options(address)
    };
    options.timeouts.drain_ms = 100;
    let result = run(&options);
    assert_eq!(requests.load(Ordering::Relaxed), 2);
    assert_eq!(result.load.requests.unwrap().unfinished, 2);
    assert_eq!(result.load.errors, BTreeMap::new());
}

#[test]
fn a_server_that_drains_is_not_flooded_with_connections() {
    let (address, _) = server(Conduct::Drains, Limits::default());
    let result = run(&LoadOptions {
        connections: 1,
        requests: None,
        duration: Some(Duration::from_secs(1)),
        ..options(address)
    });
    let opened = result.load.connecting.unwrap().opened;
    assert!((1..=30).contains(&opened), "{opened}");
    assert!(
        result.load.errors.contains_key("goaway-no-error"),
        "{:?}",
        result.load.errors
    );
}

#[test]
fn a_server_that_allows_no_stream_is_not_ready() {
    let limits = Limits {
        streams_max: 0,
        ..Limits::default()
    };
    let (address, _) = server(Conduct::Waits, limits);
    let mut options = LoadOptions {
        requests: None,
        duration: Some(Duration::from_millis(100)),
        ..options(address)
    };
    options.timeouts.connect_ms = 100;
    let result = run(&options);
    assert!(
        result.load.errors.contains_key("connect-timeout"),
        "{:?}",
        result.load.errors
    );
}

#[test]
fn a_dead_connection_is_replaced_after_a_timeout() {
    for (conduct, lives) in [(Conduct::Waits, true), (Conduct::Freezes, false)] {
        let (address, _) = server(conduct, Limits::default());
        let mut options = options(address);
        options.timeouts.request_ms = 50;
        let result = run(&options);
        assert_all_failed(&result, "timeout");
        assert_eq!(
            result.load.connecting.unwrap().opened == 2,
            lives,
            "{conduct:?}"
        );
    }
}

#[test]
fn a_server_of_another_protocol_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n");
        }
    });
    let result = run(&LoadOptions {
        requests: Some(2),
        ..options(address)
    });
    assert!(
        result.load.errors.contains_key("not-http2"),
        "{:?}",
        result.load.errors
    );
}

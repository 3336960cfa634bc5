//! A load of WebSocket servers that behave badly: every fault has its name, and is never a success.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tidewire_load::options::load::LoadOptions;
use tidewire_load::options::matching::matching;
use tidewire_load::report::TestResult;
use tidewire_load::worker::websocket::profile::Profile;
use tidewire_wire::handshake::server::{Limits, parse_request, write_accept};

use crate::common::{self, Server};
use crate::http_conduct::{Conduct, HostileServer, unused_address};
use crate::loading::run;
use crate::secure::secure_server;

const MESSAGES: u64 = 6;

fn options(url: &str) -> LoadOptions {
    LoadOptions {
        // Every message of the plan is sent, however many connections end.
        reconnect: true,
        connections: 2,
        threads: 1,
        requests: Some(MESSAGES),
        duration: Some(Duration::from_secs(120)),
        ..LoadOptions::new(url)
    }
}

/// A server of HTTP or of bytes, as a WebSocket server.
fn websocket(address: SocketAddr) -> LoadOptions {
    let mut options = options(&format!("ws://{address}/"));
    options.timeouts.connect_ms = 500;
    options
}

/// Nobody was connected, for this reason.
#[track_caller]
fn assert_not_connected(result: &TestResult, name: &str) {
    let errors = &result.load.errors;
    let errors: Vec<_> = errors.iter().map(|(name, n)| (name.as_str(), *n)).collect();
    assert_eq!(errors, [(name, 2)]);
    assert_eq!((result.connected, result.failed), (Some(0), Some(2)));
    assert_eq!(result.doubts, ["not_connected"]);
}

/// Every message has failed once, with this error and no other.
#[track_caller]
fn assert_all_failed(result: &TestResult, name: &str) {
    let requests = result.load.requests.unwrap();
    let errors = &result.load.errors;
    assert_eq!(requests.succeeded, 0, "{name}: {errors:?}");
    assert_eq!(requests.sent, MESSAGES, "{name}: {errors:?}");
    assert_eq!(requests.failed, MESSAGES, "{name}: {errors:?}");
    assert_eq!(errors.get(name), Some(&MESSAGES), "{errors:?}");
    assert_eq!(errors.len(), 1, "{errors:?}");
}

#[test]
fn upgrades_that_are_refused() {
    let head = |status: &'static str| -> &'static str {
        format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").leak()
    };
    for (text, name) in [
        (head("200 OK"), "upgrade-refused"),
        (head("401 Unauthorized"), "upgrade-unauthorized"),
        (head("403 Forbidden"), "upgrade-forbidden"),
        (head("404 Not Found"), "upgrade-not-found"),
        (head("429 Too Many Requests"), "upgrade-too-many-requests"),
        (head("503 Service Unavailable"), "upgrade-server-error"),
        ("SSH-2.0-garbage\r\n\r\n", "bad-upgrade"),
        (
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Accept: of another key\r\n\r\n",
            "bad-upgrade",
        ),
    ] {
        let server = HostileServer::start(Conduct::Sends(text));
        assert_not_connected(&run(&websocket(server.address)), name);
    }
    let server = HostileServer::start(Conduct::SendsWithoutEnd("HTTP/1.1 101 S\r\n", "A: b\r\n"));
    assert_not_connected(&run(&websocket(server.address)), "bad-upgrade");
}

#[test]
fn upgrades_that_never_come() {
    for (conduct, name) in [
        (Conduct::Sends(""), "connect-timeout"),
        (
            Conduct::SendsAndCloses("HTTP/1.1 101"),
            "closed-while-connecting",
        ),
        (Conduct::SendsAndResets(""), "reset-while-connecting"),
        (Conduct::ClosesAtOnce, "closed-while-connecting"),
    ] {
        let server = HostileServer::start(conduct);
        assert_not_connected(&run(&websocket(server.address)), name);
    }
    assert_not_connected(&run(&websocket(unused_address())), "refused");
}

#[test]
fn certificates_that_are_not_good_enough() {
    for (names, year_of_end, name) in [
        (["127.0.0.1"], 2002, "tls-certificate-expired"),
        (["other.example"], 4000, "tls-wrong-name"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let (server, chain) = secure_server(folder.path(), &names, year_of_end);
        let mut options = options(&format!("wss://{}/ws", server.address()));
        options.tls.ca = Some(chain);
        assert_not_connected(&run(&options), name);
    }
}

#[test]
fn bytes_that_are_no_frame() {
    for bytes in [
        // An unknown opcode, a masked frame, a control frame without end, reserved bits.
        &[0x83, 0x00][..],
        &[0x81, 0x80, 1, 2, 3, 4],
        &[0x09, 0x00],
        &[0xF1, 0x00],
        // A text that is not UTF-8, and a length beyond any memory.
        &[0x81, 0x01, 0xFF],
        &[0x82, 0x7F, 0x7F, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF],
    ] {
        let server = FrameServer::start(FrameConduct::Answers(bytes));
        let result = run(&websocket(server.address));
        assert_all_failed(&result, "bad-frame");
    }
}

#[test]
fn connections_that_end() {
    for (conduct, name) in [
        (FrameConduct::Ends, "closed-without-close-frame"),
        // A close frame with 1000, and one without a code.
        (
            FrameConduct::Answers(&[0x88, 0x02, 0x03, 0xE8]),
            "closed-by-server",
        ),
        (FrameConduct::Answers(&[0x88, 0x00]), "closed-by-server"),
        (FrameConduct::Resets, "reset"),
    ] {
        let server = FrameServer::start(conduct);
        assert_all_failed(&run(&websocket(server.address)), name);
    }
}

/// A version 1 server that accepts the upgrade and then refuses the session.
#[test]
fn sessions_that_are_closed_before_they_are_ready() {
    let server = FrameServer::start(FrameConduct::Greets(&[0x88, 0x02, 0x11, 0x31]));
    let mut options = websocket(server.address);
    options.messages.profile = Some(Profile::V1);
    assert_not_connected(&run(&options), "closed-by-server");
    // With something that is no frame, and with nothing.
    let server = FrameServer::start(FrameConduct::Greets(&[0x83, 0x00]));
    options.url = format!("ws://{}/", server.address);
    assert_not_connected(&run(&options), "bad-frame");
    let server = FrameServer::start(FrameConduct::Greets(&[]));
    options.url = format!("ws://{}/", server.address);
    assert_not_connected(&run(&options), "connect-timeout");
}

#[test]
fn messages_that_are_never_confirmed() {
    for how in ["pong", "order", "field:id"] {
        let server = FrameServer::start(FrameConduct::Answers(&[]));
        let mut options = websocket(server.address);
        options.timeouts.request_ms = 100;
        options.messages.message = Some(r#"{"id":{{seq}}}"#.to_owned());
        options.messages.matching = matching(how).unwrap();
        let result = run(&options);
        assert_all_failed(&result, "timeout");
        assert_eq!(result.load.requests.unwrap().timeouts, MESSAGES);
    }
}

#[test]
fn answers_that_were_not_asked_for_confirm_nothing() {
    // A text, and a pong without a ping before it.
    let bytes = &[0x81, 0x02, b'h', b'i', 0x8A, 0x01, b'x'];
    let server = FrameServer::start(FrameConduct::Answers(bytes));
    let mut options = websocket(server.address);
    options.timeouts.request_ms = 100;
    let result = run(&options);
    assert_all_failed(&result, "timeout");
    assert_eq!(result.confirmed_by, []);
    assert!(result.load.received.unwrap().messages > 0);

    // With the same answer to each message, only as many messages are confirmed as there are answers.
    let server = Server::raw(common::Conduct::EchoTwice);
    let mut options = self::options(&server.url());
    options.messages.matching = matching("field:seq").unwrap();
    let result = run(&options);
    let requests = result.load.requests.unwrap();
    assert_eq!((requests.succeeded, requests.failed), (MESSAGES, 0));
    // The second answer to the last message may be on its way at the end.
    let unsolicited = result.load.received.unwrap().unsolicited;
    assert!(
        unsolicited <= MESSAGES && unsolicited + 2 >= MESSAGES,
        "{unsolicited}"
    );
}

/// The behaviour after an honest upgrade, when the first bytes have arrived.
#[derive(Debug, Clone, Copy)]
enum FrameConduct {
    /// Sends these bytes for each read, and goes on.
    Answers(&'static [u8]),
    /// Sends these bytes after the upgrade, and nothing more.
    Greets(&'static [u8]),
    /// Ends its side without a close frame.
    Ends,
    /// Resets the connection.
    Resets,
}

/// A server that accepts upgrades and then sends frames of its own; ends when dropped.
struct FrameServer {
    address: SocketAddr,
    is_stopping: Arc<AtomicBool>,
}

impl FrameServer {
    fn start(conduct: FrameConduct) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let is_stopping = Arc::new(AtomicBool::new(false));
        let stopping = Arc::clone(&is_stopping);
        std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                if stopping.load(Ordering::Acquire) {
                    return;
                }
                std::thread::spawn(move || serve(stream, conduct));
            }
        });
        Self {
            address,
            is_stopping,
        }
    }
}

impl Drop for FrameServer {
    fn drop(&mut self) {
        self.is_stopping.store(true, Ordering::Release);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
    }
}

/// A client that is gone is no failure of the server.
fn serve(mut stream: TcpStream, conduct: FrameConduct) {
    let mut head = Vec::new();
    let mut buffer = [0; 4096];
    let head_bytes = loop {
        match stream.read(&mut buffer) {
            Ok(bytes @ 1..) => head.extend_from_slice(&buffer[..bytes]),
            _ => return,
        }
        let Ok(Some(request)) = parse_request(&head, &Limits::default()) else {
            continue;
        };
        let mut accept = Vec::new();
        write_accept(request.key(), None, &[], &mut accept);
        if let FrameConduct::Greets(bytes) = conduct {
            accept.extend_from_slice(bytes);
        }
        if stream.write_all(&accept).is_err() {
            return;
        }
        break request.head_bytes();
    };
    let mut has_data = head.len() > head_bytes;
    loop {
        if !std::mem::take(&mut has_data) && !matches!(stream.read(&mut buffer), Ok(1..)) {
            return;
        }
        match conduct {
            FrameConduct::Greets(_) => {}
            FrameConduct::Answers(bytes) => {
                if stream.write_all(bytes).is_err() {
                    return;
                }
            }
            FrameConduct::Ends => {
                let _ = stream.shutdown(Shutdown::Write);
            }
            FrameConduct::Resets => {
                // Without lingering, the end of the socket is a reset.
                let _ = socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO));
                return;
            }
        }
    }
}

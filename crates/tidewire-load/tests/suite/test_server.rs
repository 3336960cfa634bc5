//! The test server over real sockets.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};
use tidewire_http::response::{Event, Expected, Response, ResponseHeads, ResponseReader};
use tidewire_load::test_server::{Conduct, Counts, Delay, Stalls, TestServer};
use tidewire_testkit::websocket::{Opening, Said, close_frame, frame, text_frame};
use tidewire_wire::close::CloseCode;
use tidewire_wire::frame::OpCode;

fn start(conduct: &Conduct) -> TestServer {
    let conduct = Conduct {
        address: "127.0.0.1:0".parse().unwrap(),
        ..conduct.clone()
    };
    TestServer::start(&conduct).unwrap()
}

/// A client of the test server, which reads by the codec.
struct Client {
    stream: TcpStream,
    heads: ResponseHeads,
    reader: ResponseReader,
    unread: Vec<u8>,
}

impl Client {
    fn connect(server: &TestServer) -> Self {
        let stream = TcpStream::connect(server.address()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self {
            stream,
            heads: ResponseHeads::default(),
            reader: ResponseReader::new(),
            unread: Vec::new(),
        }
    }

    fn send(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).unwrap();
    }

    fn get(&mut self, path: &str) -> (Response, String) {
        self.send(&format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        self.response(Expected::Ordinary)
    }

    /// The next response and its body.
    fn response(&mut self, expected: Expected) -> (Response, String) {
        let mut body = Vec::new();
        loop {
            let step = self
                .reader
                .read(&mut self.heads, &self.unread, expected)
                .unwrap();
            match step.event {
                Event::Body(bytes) => body.extend_from_slice(bytes),
                Event::Done(response) => {
                    self.unread.drain(..step.consumed);
                    return (response, String::from_utf8(body).unwrap());
                }
                Event::More => {
                    self.unread.drain(..step.consumed);
                    let mut buffer = [0; 65536];
                    let bytes = self.stream.read(&mut buffer).unwrap();
                    assert!(bytes > 0, "the server has closed");
                    self.unread.extend_from_slice(&buffer[..bytes]);
                    continue;
                }
                Event::Head(_) | Event::Interim { .. } => {}
            }
            self.unread.drain(..step.consumed);
        }
    }

    /// Everything until the server closes.
    fn rest(&mut self) -> String {
        let mut rest = std::mem::take(&mut self.unread);
        self.stream.read_to_end(&mut rest).unwrap();
        String::from_utf8(rest).unwrap()
    }
}

/// Waits until the counts are as they should be.
#[track_caller]
fn wait_for(server: &TestServer, holds: impl Fn(&Counts) -> bool) -> Counts {
    let start = Instant::now();
    loop {
        let counts = server.counts();
        if holds(&counts) {
            return counts;
        }
        assert!(start.elapsed() < PATIENCE, "{counts:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn requests_are_answered_and_counted() {
    let server = start(&Conduct::default());
    let mut client = Client::connect(&server);
    for path in ["/", "/any/path?with=query", "/wsx"] {
        let (response, body) = client.get(path);
        assert_eq!(response.status, 200);
        assert_eq!(body, "OK");
        assert!(response.keeps_alive);
    }
    client.send("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.response(Expected::Head).0.body_bytes, 0);
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhel");
    client.send("lo");
    assert_eq!(client.response(Expected::Ordinary).1, "OK");
    client
        .send("PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n");
    assert_eq!(client.response(Expected::Ordinary).1, "OK");
    client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    let (last, _) = client.response(Expected::Ordinary);
    assert!(!last.keeps_alive);
    assert_eq!(client.rest(), "");
    let counts = wait_for(&server, |counts| counts.connections.open == 0);
    assert_eq!(counts.requests.received, 7);
    assert_eq!(counts.requests.answered, 7);
    assert_eq!(counts.statuses.into_iter().collect::<Vec<_>>(), [(200, 7)]);
    assert_eq!(counts.connections.accepted, 1);
    assert_eq!(counts.requests.cut_off, 0);
}

#[test]
fn http_1_0_is_kept_alive_if_it_asks() {
    let server = start(&Conduct {
        chunked: true,
        ..Conduct::default()
    });
    let mut client = Client::connect(&server);
    client.send("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n");
    let (response, body) = client.response(Expected::Ordinary);
    assert_eq!((body.as_str(), response.keeps_alive), ("OK", true));
    client.send("GET / HTTP/1.0\r\n\r\n");
    let rest = client.rest();
    assert!(rest.ends_with("Content-Length: 2\r\n\r\nOK"), "{rest}");
}

#[test]
fn a_client_that_asks_may_send_its_body() {
    let server = start(&Conduct::default());
    let mut client = Client::connect(&server);
    client.send("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
    let mut interim = [0; 25];
    client.stream.read_exact(&mut interim).unwrap();
    assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
    client.send("ab");
    assert_eq!(client.response(Expected::Ordinary).0.status, 200);
}

#[test]
fn pipelined_requests_are_answered_in_order_whatever_their_delays() {
    for delay in ["0", "1..30"] {
        let server = start(&Conduct {
            delay: delay.parse().unwrap(),
            ..Conduct::default()
        });
        let mut client = Client::connect(&server);
        let (get, head) = (
            "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
            "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n",
        );
        client.send(&format!("{get}{head}").repeat(20));
        for _ in 0..20 {
            assert_eq!(client.response(Expected::Ordinary).1, "OK");
            // A response with a body in its place would be read as the next one.
            assert_eq!(client.response(Expected::Head).0.status, 200);
        }
        assert_eq!(server.counts().requests.received, 40);
    }
}

#[test]
fn bodies_in_chunks_and_pieces_are_whole() {
    let server = start(&Conduct {
        body_bytes: 40_000,
        chunked: true,
        slow_write_bytes_per_s: Some(2_000_000),
        delay: Delay::Exponential(1.0),
        ..Conduct::default()
    });
    let mut client = Client::connect(&server);
    for _ in 0..3 {
        let (response, body) = client.get("/");
        assert_eq!(body.len(), 40_000);
        assert!(body.starts_with("OK.."));
        assert!(response.wire_bytes > response.head_bytes + response.body_bytes);
    }
    client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert_eq!(client.response(Expected::Ordinary).1.len(), 40_000);
    assert_eq!(client.rest(), "");
}

#[test]
fn a_client_that_does_not_read_is_waited_for() {
    let server = start(&Conduct {
        body_bytes: 16_384,
        ..Conduct::default()
    });
    let mut client = Client::connect(&server);
    let mut writer = client.stream.try_clone().unwrap();
    let requests = "GET / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(4000);
    let writing = std::thread::spawn(move || writer.write_all(requests.as_bytes()).unwrap());
    // 65 MB of responses fit nowhere: the server has to stop reading.
    for _ in 0..4000 {
        assert_eq!(client.response(Expected::Ordinary).1.len(), 16_384);
    }
    writing.join().unwrap();
}

#[test]
fn errors_have_the_share_that_is_asked_for() {
    let server = start(&Conduct {
        error_status: 503,
        error_percent: 50.0,
        ..Conduct::default()
    });
    let mut client = Client::connect(&server);
    client.send(&"GET / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(400));
    let mut errors = 0;
    for _ in 0..400 {
        let (response, body) = client.response(Expected::Ordinary);
        match response.status {
            200 => assert_eq!(body, "OK"),
            503 => {
                assert_eq!(body, "ERROR");
                errors += 1;
            }
            other => panic!("{other}"),
        }
    }
    // The deviation is 10: this fails once in more runs than there will be.
    assert!((100..300).contains(&errors), "{errors}");
    let counts = server.counts();
    assert_eq!(counts.statuses.get(&503), Some(&errors));
    assert_eq!(counts.requests.answered, 400);
}

#[test]
fn a_connection_is_closed_instead_of_a_response() {
    for delay in [Delay::None, Delay::Fixed(2.0)] {
        let server = start(&Conduct {
            close_percent: 100.0,
            delay,
            ..Conduct::default()
        });
        let mut client = Client::connect(&server);
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.rest(), "");
        let counts = wait_for(&server, |counts| counts.connections.open == 0);
        assert_eq!(counts.requests.received, 1);
        assert_eq!(counts.requests.closed, 1);
        assert_eq!(counts.requests.answered, 0);
    }
}

#[test]
fn what_is_no_request_is_refused_and_counted() {
    let server = start(&Conduct::default());
    for (bytes, status) in [
        ("hello\r\n\r\n", 400),
        ("GET / HTTP/2.0\r\n\r\n", 505),
        ("GET / HTTP/1.1\r\nHost: a\r\n\r\nGET /\r\n\r\n", 400),
    ] {
        let mut client = Client::connect(&server);
        client.send(bytes);
        let rest = client.rest();
        let refusal = format!("HTTP/1.1 {status} ");
        assert!(rest.contains(&refusal), "{rest}");
        assert!(rest.contains("Connection: close\r\n"), "{rest}");
    }
    let counts = server.counts();
    assert_eq!(counts.requests.malformed, 3);
    assert_eq!(counts.requests.answered, 1);
    assert_eq!(counts.statuses.get(&400), Some(&2));
}

#[test]
fn requests_without_an_end_and_responses_without_a_reader_are_counted() {
    let server = start(&Conduct {
        delay: Delay::Fixed(3_600_000.0),
        ..Conduct::default()
    });
    let mut client = Client::connect(&server);
    client.send("GET / HTTP/1.1\r\nHost");
    client.stream.shutdown(Shutdown::Write).unwrap();
    wait_for(&server, |counts| counts.requests.cut_off == 1);
    let mut client = Client::connect(&server);
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_for(&server, |counts| counts.requests.received == 1);
    drop(client);
    let counts = wait_for(&server, |counts| counts.requests.abandoned == 1);
    assert_eq!(counts.requests.cut_off, 1);
    assert_eq!(counts.requests.answered, 0);
}

#[test]
fn the_counts_are_served() {
    let server = start(&Conduct {
        error_percent: 100.0,
        delay: Delay::Fixed(1.0),
        ..Conduct::default()
    });
    let mut client = Client::connect(&server);
    assert_eq!(client.get("/").0.status, 500);
    let (response, body) = client.get("/.tidewire/counts");
    assert_eq!(response.status, 200);
    let counts: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!(counts["requests"]["received"], 1);
    assert_eq!(counts["requests"]["answered"], 1);
    assert_eq!(counts["statuses"]["500"], 1);
    assert_eq!(counts["connections"]["open"], 1);
    let expected = serde_json::to_value(server.counts()).unwrap();
    assert_eq!(counts["requests"], expected["requests"]);
}

#[test]
fn a_server_that_stalls_goes_on() {
    let server = start(&Conduct {
        stalls: Some(Stalls {
            every_ms: 20,
            stall_ms: 10,
        }),
        shards: 2,
        ..Conduct::default()
    });
    let mut client = Client::connect(&server);
    for _ in 0..500 {
        assert_eq!(client.get("/").1, "OK");
    }
    assert_eq!(server.stop().requests.answered, 500);
}

#[test]
fn websocket_messages_come_back() {
    let server = start(&Conduct::default());
    let mut client = Opening::new(server.address()).open();
    let large = vec![7; 300_000];
    let frames = [
        text_frame("hé"),
        frame(OpCode::Ping, b"p"),
        frame(OpCode::Binary, &large),
        close_frame(None),
    ];
    client.send_bytes(&frames.concat());
    assert_eq!(client.next(), Said::Text("hé".to_owned()));
    assert_eq!(client.next(), Said::Pong(b"p".to_vec()));
    assert_eq!(client.next(), Said::Binary(large));
    assert_eq!(client.next(), Said::Close(None, String::new()));
    assert_eq!(client.next(), Said::End);
    let counts = wait_for(&server, |counts| counts.connections.open == 0);
    assert_eq!(counts.websocket.connections, 1);
    assert_eq!(counts.websocket.received, 2);
    assert_eq!(counts.websocket.sent, 2);
    assert_eq!(counts.requests.received, 0);
}

#[test]
fn what_is_no_websocket_is_refused() {
    let server = start(&Conduct::default());
    let mut client = Client::connect(&server);
    client.send("GET /ws HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(client.rest().starts_with("HTTP/1.1 426 "));
    let mut client = Opening::new(server.address()).open();
    // A frame without a mask.
    client.send_bytes(&[0x81, 0x01, b'x']);
    let protocol_error = CloseCode::PROTOCOL_ERROR.value();
    assert_eq!(
        client.next(),
        Said::Close(Some(protocol_error), String::new())
    );
}

#[test]
fn values_that_cannot_be_are_refused() {
    let wrong = |conduct: Conduct| TestServer::start(&conduct).unwrap_err().to_string();
    let plain = Conduct::default;
    let stalls = Some(Stalls {
        every_ms: 10,
        stall_ms: 10,
    });
    for error in [
        wrong(Conduct {
            shards: 0,
            ..plain()
        }),
        wrong(Conduct {
            body_bytes: usize::MAX,
            ..plain()
        }),
        wrong(Conduct {
            error_status: 99,
            ..plain()
        }),
        wrong(Conduct {
            error_percent: 101.0,
            ..plain()
        }),
        wrong(Conduct {
            close_percent: f64::NAN,
            ..plain()
        }),
        wrong(Conduct {
            close_percent: 60.0,
            error_percent: 60.0,
            ..plain()
        }),
        wrong(Conduct {
            slow_write_bytes_per_s: Some(0),
            ..plain()
        }),
        wrong(Conduct { stalls, ..plain() }),
        wrong(Conduct {
            tls: Some(("/none".into(), "/none".into())),
            ..plain()
        }),
    ] {
        assert!(error.len() > 10, "{error}");
    }
}

/// How long a test waits for what must happen.
const PATIENCE: Duration = Duration::from_secs(60);

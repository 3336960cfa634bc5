//! Loads through HTTP proxies: tunnels by CONNECT, and every way in which a proxy can fail.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use crate::loading::run;
use crate::secure;

use secure::secure_server;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tidewire_load::options::load::LoadOptions;
use tidewire_load::options::matching::matching;
use tidewire_load::report::TestResult;
use tidewire_load::test_server::{Conduct, TestServer};

/// The reaction of a proxy to the request for a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    /// Connects to the server and relays, with this as its response, sent in pieces of N bytes.
    Relays(&'static str, usize),
    /// Sends this, and waits for the answer.
    Sends(&'static str),
    /// Sends this and ends its side.
    SendsAndCloses(&'static str),
    /// Resets the connection.
    Resets,
}

struct Proxy {
    address: SocketAddr,
    /// The heads of the requests for tunnels.
    asked: Arc<Mutex<Vec<String>>>,
}

impl Proxy {
    /// Serves until the test ends.
    fn start(manner: Manner) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let seen = Arc::clone(&asked);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let seen = Arc::clone(&seen);
                // It ends with the connection, which ends with the load.
                std::thread::spawn(move || serve(stream.unwrap(), manner, &seen));
            }
        });
        Self { address, asked }
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

fn serve(mut stream: TcpStream, manner: Manner, seen: &Mutex<Vec<String>>) {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            _ => return,
        }
    }
    let head = String::from_utf8(head).unwrap();
    let authority = head.split(' ').nth(1).unwrap().to_owned();
    seen.lock().unwrap().push(head);
    match manner {
        Manner::Relays(response, piece_bytes) => {
            let server = TcpStream::connect(authority).unwrap();
            stream.set_nodelay(true).unwrap();
            for piece in response.as_bytes().chunks(piece_bytes) {
                stream.write_all(piece).unwrap();
            }
            relay(&stream, &server);
        }
        Manner::Sends(text) => {
            let _ = stream.write_all(text.as_bytes());
            let _ = io::copy(&mut stream, &mut io::sink());
        }
        Manner::SendsAndCloses(text) => {
            let _ = stream.write_all(text.as_bytes());
            let _ = stream.shutdown(Shutdown::Write);
            let _ = io::copy(&mut stream, &mut io::sink());
        }
        // Without lingering, the end of the socket is a reset.
        Manner::Resets => {
            let _ = socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO));
        }
    }
}

/// Copies both ways until each side has ended.
fn relay(client: &TcpStream, server: &TcpStream) {
    std::thread::scope(|scope| {
        for (mut from, mut to) in [(client, server), (server, client)] {
            scope.spawn(move || {
                let _ = io::copy(&mut from, &mut to);
                let _ = to.shutdown(Shutdown::Write);
            });
        }
    });
}

fn options(url: &str, proxy: &str) -> LoadOptions {
    LoadOptions {
        connections: 2,
        threads: 1,
        requests: Some(6),
        // It is far more than a test takes; a load that does not end by itself shows in the counts.
        duration: Some(Duration::from_secs(120)),
        proxy: Some(proxy.to_owned()),
        ..LoadOptions::new(url)
    }
}

#[track_caller]
fn assert_all_succeeded(result: &TestResult) {
    let requests = result.load.requests.unwrap();
    let errors = &result.load.errors;
    assert_eq!((requests.succeeded, requests.failed), (6, 0), "{errors:?}");
    assert!(errors.is_empty(), "{errors:?}");
}

const ESTABLISHED: &str = "HTTP/1.1 200 Connection established\r\n\r\n";

#[test]
fn https_goes_through_a_tunnel_of_each_connection() {
    for piece_bytes in [1, 1000] {
        let proxy = Proxy::start(Manner::Relays(ESTABLISHED, piece_bytes));
        let folder = tempfile::tempdir().unwrap();
        let (server, chain) = secure_server(folder.path(), &["127.0.0.1"], 4000);
        let mut options = options(&server.url(), &proxy.url());
        options.tls.ca = Some(chain);
        assert_all_succeeded(&run(&options));
        let asked = proxy.asked();
        assert_eq!(asked.len(), 2, "one for each connection");
        let authority = server.address();
        let start = format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n");
        assert!(
            asked.iter().all(|head| head.starts_with(&start)),
            "{asked:?}"
        );
        assert!(!asked[0].contains("Proxy-Authorization"));
        assert_eq!(server.stop().requests.answered, 6);
    }
}

#[test]
fn each_request_may_have_a_tunnel_of_its_own() {
    let proxy = Proxy::start(Manner::Relays(
        "HTTP/1.0 200 OK\r\nContent-Length: 7\r\nVia: test\r\n\r\n",
        1000,
    ));
    let folder = tempfile::tempdir().unwrap();
    let (server, chain) = secure_server(folder.path(), &["127.0.0.1"], 4000);
    let mut options = options(&server.url(), &proxy.url());
    options.tls.ca = Some(chain);
    options.keep_alive = false;
    assert_all_succeeded(&run(&options));
    // Two connections were there before the first request.
    assert!(
        (6..=8).contains(&proxy.asked().len()),
        "{:?}",
        proxy.asked()
    );
}

#[test]
fn websocket_goes_through_a_tunnel_with_and_without_tls() {
    let proxy = Proxy::start(Manner::Relays(ESTABLISHED, 5));
    let folder = tempfile::tempdir().unwrap();
    let (secure, chain) = secure_server(folder.path(), &["127.0.0.1"], 4000);
    let plain = TestServer::start(&Conduct {
        address: "127.0.0.1:0".parse().unwrap(),
        ..Conduct::default()
    })
    .unwrap();
    for (server, scheme) in [(&plain, "ws"), (&secure, "wss")] {
        let before = proxy.asked().len();
        let mut options = options(&format!("{scheme}://{}/ws", server.address()), &proxy.url());
        options.tls.ca = (scheme == "wss").then(|| chain.clone());
        options.messages.matching = matching("order").unwrap();
        assert_all_succeeded(&run(&options));
        assert_eq!(proxy.asked().len(), before + 2);
    }
}

#[test]
fn the_user_of_the_url_is_told_to_the_proxy() {
    let proxy = Proxy::start(Manner::Relays(ESTABLISHED, 1000));
    let folder = tempfile::tempdir().unwrap();
    let (server, chain) = secure_server(folder.path(), &["127.0.0.1"], 4000);
    let url = proxy.url().replace("http://", "http://me:p%40ss@");
    let mut options = options(&server.url(), &url);
    options.tls.ca = Some(chain);
    assert_all_succeeded(&run(&options));
    // me:p@ss
    let line = "\r\nProxy-Authorization: Basic bWU6cEBzcw==\r\n";
    assert!(proxy.asked()[0].contains(line), "{:?}", proxy.asked());
}

/// Every connection fails with this error and nothing else happens.
#[track_caller]
fn assert_fails(url: &str, manner: Manner, name: &str) {
    let proxy = Proxy::start(manner);
    let mut options = options(url, &proxy.url());
    options.duration = Some(Duration::from_millis(500));
    options.timeouts.connect_ms = if name == "proxy-timeout" { 50 } else { 10_000 };
    let result = run(&options);
    let errors = &result.load.errors;
    assert!(errors.contains_key(name), "{manner:?}: {errors:?}");
    assert_eq!(errors.len(), 1, "{manner:?}: {errors:?}");
    let succeeded = result
        .load
        .requests
        .map_or(0, |requests| requests.succeeded);
    assert_eq!(succeeded, 0, "{manner:?}");
}

#[test]
fn a_proxy_that_opens_no_tunnel_is_named_with_its_reason() {
    let refusal = "HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno";
    let login = "HTTP/1.1 407 Who are you\r\nProxy-Authenticate: Basic\r\n\r\n";
    for (manner, name) in [
        (Manner::Sends(refusal), "proxy-forbidden"),
        (Manner::SendsAndCloses(refusal), "proxy-forbidden"),
        (Manner::Sends(login), "proxy-authentication-required"),
        (
            Manner::Sends("HTTP/1.1 502 Bad Gateway\r\n\r\n"),
            "proxy-cannot-reach-server",
        ),
        (
            Manner::Sends("HTTP/1.1 405 No\r\nContent-Length: 0\r\n\r\n"),
            "proxy-refused",
        ),
        (Manner::Sends("SSH-2.0-garbage\r\n"), "bad-proxy-response"),
        (Manner::SendsAndCloses(""), "closed-by-proxy"),
        (
            Manner::SendsAndCloses("HTTP/1.1 200 OK\r\n"),
            "closed-by-proxy",
        ),
        (Manner::Resets, "reset-by-proxy"),
        (Manner::Sends(""), "proxy-timeout"),
        (Manner::Sends("HTTP/1.1 200"), "proxy-timeout"),
    ] {
        for url in ["https://service.example/", "ws://service.example/ws"] {
            assert_fails(url, manner, name);
        }
    }
}

#[test]
fn what_fails_behind_the_tunnel_keeps_its_name() {
    let url = "https://service.example/";
    // No TLS is spoken there.
    let garbage = "HTTP/1.1 200 OK\r\n\r\nthis is no TLS, and long enough to see that";
    assert_fails(url, Manner::Sends(garbage), "tls");
    let waits = Manner::Sends(ESTABLISHED);
    let proxy = Proxy::start(waits);
    let mut options = options(url, &proxy.url());
    // The tunnel is there long before, on a busy machine too.
    options.duration = Some(Duration::from_millis(2_500));
    options.timeouts.connect_ms = 2_000;
    let errors = run(&options).load.errors;
    let names: Vec<&String> = errors.keys().collect();
    assert_eq!(names, ["connect-timeout"]);

    let proxy = Proxy::start(Manner::Relays(ESTABLISHED, 1000));
    let folder = tempfile::tempdir().unwrap();
    let (server, chain) = secure_server(folder.path(), &["other.example"], 4000);
    let mut options = self::options(&server.url(), &proxy.url());
    options.tls.ca = Some(chain);
    options.duration = Some(Duration::from_millis(500));
    let errors = run(&options).load.errors;
    let names: Vec<&String> = errors.keys().collect();
    assert_eq!(names, ["tls-wrong-name"]);
}

#[test]
fn a_proxy_that_cannot_be_is_said_before_the_start() {
    for (proxy, part) in [
        ("https://127.0.0.1:1", "plain HTTP"),
        ("127.0.0.1:1", "plain HTTP"),
        ("http://", "no host"),
    ] {
        let error = options("https://127.0.0.1:9/", proxy).plan().unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
    }
}

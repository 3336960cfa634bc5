//! A load over HTTP/2, without TLS and under it, of the test server and of real ones.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeMap;
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tidewire_load::options::body::BodyOptions;
use tidewire_load::options::load::LoadOptions;
use tidewire_load::options::request::RequestOptions;
use tidewire_load::options::tls::TlsOptions;
use tidewire_load::report::TestResult;
use tidewire_load::test_server::{Conduct, Delay, TestServer};

use crate::http_service::Service;
use crate::loading::{report_of, run};
use crate::secure::secure_server;

const REQUESTS: u64 = 60;

fn options(url: &str) -> LoadOptions {
    LoadOptions {
        http2: true,
        connections: 3,
        threads: 1,
        requests: Some(REQUESTS),
        duration: Some(Duration::from_secs(120)),
        ..LoadOptions::new(url)
    }
}

#[track_caller]
fn assert_all_succeeded(result: &TestResult) {
    let requests = result.load.requests.unwrap();
    let errors = &result.load.errors;
    assert_eq!(
        (requests.succeeded, requests.failed),
        (REQUESTS, 0),
        "{errors:?}"
    );
    assert_eq!(requests.unfinished, 0);
    assert!(errors.is_empty(), "{errors:?}");
}

fn server(conduct: Conduct) -> TestServer {
    TestServer::start(&Conduct {
        address: "127.0.0.1:0".parse().unwrap(),
        ..conduct
    })
    .unwrap()
}

#[test]
fn both_sides_count_the_same() {
    let server = server(Conduct {
        body_bytes: 100_000,
        ..Conduct::default()
    });
    let result = run(&LoadOptions {
        streams: Some(7),
        ..options(&server.url())
    });
    assert_all_succeeded(&result);
    assert_eq!(result.test, "http2");
    let bytes = result.load.bytes.unwrap();
    assert_eq!(bytes.received.body, REQUESTS * 100_000);
    assert_eq!(result.load.connecting.unwrap().opened, 3);
    let counts = server.stop();
    assert_eq!(counts.requests.received, REQUESTS);
    assert_eq!(counts.requests.answered, REQUESTS);
    assert_eq!(counts.statuses, BTreeMap::from([(200, REQUESTS)]));
    // Beside what belongs to connecting: settings and their acknowledgement, and a wider window.
    let connecting = counts.bytes.sent - bytes.received.wire;
    assert!(connecting <= 3 * 58, "{connecting}");
    assert_eq!(counts.connections.accepted, 3);
}

#[test]
fn bodies_methods_and_values_arrive() {
    let service = Service::start(|request| {
        let text = format!("{} {}", request.line, request.body.len());
        (
            "200 OK",
            vec![format!("X-Len: {}", request.body.len())],
            text,
        )
    });
    // Larger than the window that a server gives at first.
    let large = "x".repeat(200_000);
    for (method, body) in [
        ("POST", Some(large.as_str())),
        ("PUT", Some("{{seq}}")),
        ("HEAD", None),
        ("OPTIONS", None),
    ] {
        let result = run(&LoadOptions {
            request: RequestOptions {
                method: Some(method.to_owned()),
                body: body.map(|text| BodyOptions::Bytes(text.as_bytes().to_vec())),
                headers: vec![("X-User".to_owned(), "{{user}}".to_owned())],
                ..RequestOptions::default()
            },
            ..options(&service.url("/a/b?c=d"))
        });
        assert_all_succeeded(&result);
        let last = service.requests().pop().unwrap();
        assert_eq!(last.line, format!("{method} /a/b?c=d HTTP/2"));
        assert_eq!(
            last.header("host"),
            Some(service.address.to_string().as_str())
        );
        assert!(last.header("x-user").unwrap().parse::<u32>().unwrap() < 3);
        match body {
            Some("{{seq}}") => assert!(last.body.parse::<u64>().unwrap() <= REQUESTS),
            Some(body) => assert_eq!(last.body, body),
            None => assert_eq!(last.body, ""),
        }
    }
}

#[test]
fn connections_are_replaced_as_over_http_1() {
    let server = server(Conduct::default());
    let result = run(&LoadOptions {
        requests_per_connection: Some(5),
        ..options(&server.url())
    });
    assert_all_succeeded(&result);
    let accepted = server.counts().connections.accepted;
    assert!((12..=15).contains(&accepted), "{accepted}");
    let result = run(&LoadOptions {
        keep_alive: false,
        ..options(&server.url())
    });
    assert_all_succeeded(&result);
    assert_eq!(server.counts().connections.accepted - accepted, REQUESTS);
}

#[test]
fn a_rate_is_kept() {
    let server = server(Conduct::default());
    let result = run(&LoadOptions {
        streams: Some(4),
        rate_per_s: Some(200.0),
        requests: None,
        duration: Some(Duration::from_secs(1)),
        ..options(&server.url())
    });
    let requests = result.load.requests.unwrap();
    assert_eq!(requests.failed, 0, "{:?}", result.load.errors);
    assert_eq!(
        requests.succeeded + requests.unsent + requests.unfinished,
        200
    );
}

#[test]
fn what_the_test_server_does_wrong_is_seen() {
    let slow = server(Conduct {
        delay: Delay::Fixed(400.0),
        ..Conduct::default()
    });
    let mut limited = options(&slow.url());
    limited.timeouts.request_ms = 100;
    limited.requests = Some(6);
    let result = run(&limited);
    assert_eq!(
        result.load.errors,
        BTreeMap::from([("timeout".to_owned(), 6)])
    );
    // Only the streams were given up.
    assert_eq!(slow.counts().connections.accepted, 3);
    assert_eq!(slow.stop().requests.abandoned, 6);
    let closing = server(Conduct {
        close_percent: 100.0,
        ..Conduct::default()
    });
    let result = run(&options(&closing.url()));
    let name = "reset-internal-error".to_owned();
    assert_eq!(result.load.errors, BTreeMap::from([(name, REQUESTS)]));
    let dripping = server(Conduct {
        slow_write_bytes_per_s: Some(10_000),
        body_bytes: 1_000,
        ..Conduct::default()
    });
    let result = run(&LoadOptions {
        requests: Some(6),
        ..options(&dripping.url())
    });
    assert_eq!(
        result.load.requests.unwrap().succeeded,
        6,
        "{:?}",
        result.load.errors
    );
    let least = Duration::from_millis(90).as_secs_f64() * 1e6;
    assert!(result.latency_us.unwrap().min >= least);
}

#[test]
fn under_tls_both_sides_agree_on_it_or_say_why_not() {
    let folder = tempfile::tempdir().unwrap();
    let (server, authority) = secure_server(folder.path(), &["127.0.0.1"], 2099);
    let trusting = TlsOptions {
        ca: Some(authority),
        ..TlsOptions::default()
    };
    let result = run(&LoadOptions {
        tls: trusting,
        streams: Some(3),
        ..options(&server.url())
    });
    assert_all_succeeded(&result);
    for (offered, error) in [
        (&["http/1.1"][..], "tls-no-common-protocol"),
        (&[], "http2-not-offered"),
    ] {
        let service = Tls::start(offered);
        let result = run(&LoadOptions {
            tls: anybody(),
            requests: Some(3),
            ..options(&service.url())
        });
        let errors = result.load.errors;
        assert!(errors.contains_key(error), "{errors:?}");
    }
}

#[test]
fn a_server_that_offers_nothing_else_gets_it() {
    let service = Tls::start(&["h2"]);
    let report = report_of(&LoadOptions {
        tls: anybody(),
        http2: false,
        ..options(&service.url())
    });
    assert_all_succeeded(&report.results[0]);
    assert_eq!(report.results[0].test, "http2");
}

fn anybody() -> TlsOptions {
    TlsOptions {
        insecure: true,
        ..TlsOptions::default()
    }
}

/// nghttpd under TLS and with other protocols than it would offer: `nginx` and the like do not let a test choose them, so
/// this is a server of rustls in front of the small service.
struct Tls {
    address: std::net::SocketAddr,
}

impl Tls {
    fn start(protocols: &[&str]) -> Self {
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let key = made.signing_key.serialize_der().try_into().unwrap();
        let mut config = rustls::ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
        config.alpn_protocols = protocols
            .iter()
            .map(|name| name.as_bytes().to_vec())
            .collect();
        let config = std::sync::Arc::new(config);
        let service = Service::start(|_| ("200 OK", Vec::new(), "ok".to_owned()));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for outside in listener.incoming().map_while(Result::ok) {
                let config = std::sync::Arc::clone(&config);
                let inside = service.address;
                std::thread::spawn(move || forward(outside, config, inside));
            }
        });
        Self { address }
    }

    fn url(&self) -> String {
        format!("https://{}/", self.address)
    }
}

/// Takes turns: what the client sends goes inside, and the answer out.
fn forward(
    outside: TcpStream,
    config: std::sync::Arc<rustls::ServerConfig>,
    inside: std::net::SocketAddr,
) {
    use std::io::{Read, Write};
    let turn = Some(Duration::from_millis(2));
    let mut inside = TcpStream::connect(inside).unwrap();
    outside.set_read_timeout(turn).unwrap();
    inside.set_read_timeout(turn).unwrap();
    let connection = rustls::ServerConnection::new(config).unwrap();
    let mut outside = rustls::StreamOwned::new(connection, outside);
    let mut buffer = [0; 16_384];
    let is_early = |error: &std::io::Error| error.kind() == std::io::ErrorKind::WouldBlock;
    loop {
        match outside.read(&mut buffer) {
            Ok(0) => return,
            Ok(bytes) => inside.write_all(&buffer[..bytes]).unwrap(),
            Err(error) if is_early(&error) => {}
            Err(_) => return,
        }
        match inside.read(&mut buffer) {
            Ok(0) => return,
            Ok(bytes) if outside.write_all(&buffer[..bytes]).is_err() => return,
            Ok(_) => {}
            Err(error) if is_early(&error) => {}
            Err(_) => return,
        }
    }
}

/// A program that serves on a port; ended when dropped.
struct Program(Child);

impl Program {
    fn start(command: &mut Command, port: u16) -> Self {
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let program = Self(child.unwrap_or_else(|error| {
            panic!("{command:?}: {error}: install it, see scripts/requirements")
        }));
        let until = Instant::now() + Duration::from_secs(30);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < until, "{command:?} does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        program
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A port that was free a moment ago.
fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

#[test]
fn nginx_and_nghttpd_are_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    std::fs::write(root.join("page"), vec![b'p'; 70_000]).unwrap();
    let port = free_port();
    // It ends a connection after 100 requests, with a GOAWAY.
    let config = format!(
        "daemon off; pid {root}/pid; error_log stderr; worker_processes 1; user root;\n\
         events {{}}\n\
         http {{ access_log off; client_body_temp_path {root}/b; proxy_temp_path {root}/p; fastcgi_temp_path {root}/f; \
         uwsgi_temp_path {root}/u; scgi_temp_path {root}/s; keepalive_requests 100;\n\
         server {{ listen 127.0.0.1:{port} http2; root {root}; }} }}",
        root = root.display()
    );
    let file = root.join("nginx.conf");
    std::fs::write(&file, config).unwrap();
    let nginx = Program::start(
        Command::new("nginx")
            .arg("-p")
            .arg(root)
            .arg("-c")
            .arg(&file),
        port,
    );
    let load = |port: u16| {
        run(&LoadOptions {
            streams: Some(8),
            requests: Some(1_000),
            ..options(&format!("http://127.0.0.1:{port}/page"))
        })
    };
    let result = load(port);
    let requests = result.load.requests.unwrap();
    assert_eq!(
        (requests.succeeded, requests.failed),
        (1_000, 0),
        "{:?}",
        result.load.errors
    );
    assert_eq!(result.load.bytes.unwrap().received.body, 70_000_000);
    assert!(result.load.connecting.unwrap().opened >= 10);
    drop(nginx);
    let port = free_port();
    let mut command = Command::new("nghttpd");
    command
        .arg("--no-tls")
        .arg("-d")
        .arg(root)
        .arg(port.to_string());
    let _nghttpd = Program::start(&mut command, port);
    let result = load(port);
    let requests = result.load.requests.unwrap();
    assert_eq!(
        (requests.succeeded, requests.failed),
        (1_000, 0),
        "{:?}",
        result.load.errors
    );
    assert_eq!(result.load.bytes.unwrap().received.body, 70_000_000);
}

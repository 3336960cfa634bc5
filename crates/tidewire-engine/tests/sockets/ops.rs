//! The operations listener over real sockets.

#![allow(clippy::unwrap_used, reason = "a test may end in a panic")]

use serde_json::Value;
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tidewire_engine::counters::{
    BOUNDS_NS, Counters, METRICS, MetricKind, Snapshot, TIMINGS, TimingsSnapshot,
};
use tidewire_engine::ops::{CONNECTIONS_MAX, Ops, OpsSource};
use tidewire_testkit::vectors::http::{Refused, RequestCase};
use tidewire_testkit::vectors::{latin_1, load};

#[test]
fn health_and_readiness_are_told_apart() {
    let (ops, source) = start();
    let health = get(&ops, "/health");
    assert_eq!(
        (health.status, health.json()["status"].as_str()),
        (200, Some("ok"))
    );
    let ready = get(&ops, "/ready?verbose");
    assert_eq!(
        (ready.status, ready.json()["status"].as_str()),
        (200, Some("ready"))
    );
    source.draining.store(true, Ordering::Release);
    let ready = get(&ops, "/ready");
    assert_eq!(
        (ready.status, ready.json()["status"].as_str()),
        (503, Some("draining"))
    );
    assert_eq!(get(&ops, "/health").status, 200);
    ops.stop();
}

#[test]
fn stats_have_every_shard_and_the_total() {
    let (ops, source) = start();
    source.shards[0].messages_received.add(5);
    source.shards[1].messages_received.add(6);
    let answer = get(&ops, "/stats");
    assert_eq!(answer.headers["content-type"], "application/json");
    let stats = answer.json();
    assert_eq!(stats["total"]["messages_received"], 11);
    assert_eq!(stats["shards"][1]["messages_received"], 6);
    assert_eq!(stats["process_id"], std::process::id());
    assert_eq!(stats["uptime_s"], 12.5);
    assert_eq!(stats["ready"], true);
    assert_eq!(stats["version"], env!("CARGO_PKG_VERSION"));
}

#[test]
fn metrics_are_in_the_text_format_of_prometheus() {
    let (ops, source) = start();
    source.shards[1].bytes_sent.add(u64::MAX);
    source.shards[0].connections_open.add(3);
    source.shards[0].work_peak_us.set(2_500);
    let answer = get(&ops, "/metrics");
    assert_eq!(
        answer.headers["content-type"],
        "text/plain; version=0.0.4; charset=utf-8"
    );
    let samples = parse_prometheus(&answer.body);
    for metric in METRICS {
        let suffix = if metric.kind == MetricKind::Counter {
            "_total"
        } else {
            ""
        };
        let (name, unit) = match metric.name.strip_suffix("_us") {
            Some(name) => (name, "_seconds"),
            None => (metric.name, ""),
        };
        for shard in 0..2 {
            let sample = format!("tidewire_{name}{unit}{suffix}{{shard=\"{shard}\"}}");
            assert!(samples.contains_key(&sample), "{sample}");
        }
    }
    assert_eq!(
        samples["tidewire_bytes_sent_total{shard=\"1\"}"],
        "18446744073709551615"
    );
    assert_eq!(samples["tidewire_connections_open{shard=\"0\"}"], "3");
    assert_eq!(samples["tidewire_work_peak_seconds{shard=\"0\"}"], "0.0025");
    assert_eq!(samples["tidewire_ready"], "1");
    assert_eq!(samples["tidewire_uptime_seconds"], "12.5");
    assert_eq!(samples["tidewire_start_time_seconds"], "1700000000.25");
    assert_eq!(
        samples
            .keys()
            .filter(|name| name.starts_with("tidewire_info{"))
            .count(),
        1
    );
}

#[test]
fn histograms_are_cumulative() {
    let (ops, source) = start();
    let timings = &source.shards[1].timings;
    for micros in [10, 20, 20, 60_000_000] {
        let duration = Duration::from_micros(micros);
        timings.handshake_duration.record(duration);
    }
    let samples = parse_prometheus(&get(&ops, "/metrics").body);
    let name = "tidewire_handshake_duration_seconds";
    let bucket = |le: &str| &samples[&format!("{name}_bucket{{shard=\"1\",le=\"{le}\"}}")];
    let counts = ["0.00001", "0.000025", "0.5", "10", "+Inf"].map(bucket);
    assert_eq!(counts, ["1", "3", "3", "3", "4"]);
    assert_eq!(samples[&format!("{name}_count{{shard=\"1\"}}")], "4");
    assert_eq!(samples[&format!("{name}_sum{{shard=\"1\"}}")], "60.00005");
    assert_eq!(samples[&format!("{name}_count{{shard=\"0\"}}")], "0");
    for timing in TIMINGS {
        let start = format!("tidewire_{}_seconds_bucket{{", timing.name);
        let buckets = samples.keys().filter(|sample| sample.starts_with(&start));
        assert_eq!(buckets.count(), 2 * (BOUNDS_NS.len() + 1), "{start}");
    }
}

#[test]
fn head_is_answered_without_a_body() {
    let (ops, _) = start();
    let mut peer = connect(&ops);
    peer.send("HEAD /stats HTTP/1.1\r\nHost: localhost\r\n\r\nGET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let head = peer.receive_head();
    assert_eq!(head.status, 200);
    assert!(head.headers["content-length"].parse::<usize>().unwrap() > 100);
    assert_eq!(peer.receive().json()["status"], "ok");
}

#[test]
fn other_paths_and_methods_are_refused_and_the_connection_goes_on() {
    let (ops, _) = start();
    let mut peer = connect(&ops);
    peer.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(peer.receive().status, 404);
    peer.send("DELETE /stats HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let refused = peer.receive();
    assert_eq!(
        (refused.status, refused.headers["allow"].as_str()),
        (405, "GET, HEAD")
    );
    peer.send("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(peer.receive().status, 200);
}

#[test]
fn a_body_ends_the_connection() {
    let (ops, _) = start();
    let mut peer = connect(&ops);
    let body = "GET /stats HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let length = body.len();
    peer.send(&format!(
        "POST /ready HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n{body}"
    ));
    let refused = peer.receive();
    assert_eq!(
        (refused.status, refused.headers["connection"].as_str()),
        (405, "close")
    );
    peer.expect_end();
}

#[test]
fn a_peer_that_asks_for_it_is_closed() {
    let (ops, _) = start();
    for request in [
        "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        "GET /health HTTP/1.0\r\n\r\n",
    ] {
        let mut peer = connect(&ops);
        peer.send(request);
        assert_eq!(peer.receive().status, 200);
        peer.expect_end();
    }
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let (ops, _) = start();
    let mut peer = connect(&ops);
    let three = ["/health", "/none", "/ready"]
        .map(|path| format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"))
        .concat();
    let (most, rest) = three.split_at(three.len() - 7);
    peer.send(most);
    assert_eq!(peer.receive().json()["status"], "ok");
    assert_eq!(peer.receive().status, 404);
    peer.send(rest);
    assert_eq!(peer.receive().json()["status"], "ready");
}

#[test]
fn a_request_may_come_byte_by_byte() {
    let (ops, _) = start();
    let mut peer = connect(&ops);
    for byte in b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n" {
        peer.stream.get_mut().write_all(&[*byte]).unwrap();
    }
    assert_eq!(peer.receive().status, 200);
}

#[test]
fn garbage_is_refused_at_once() {
    let (ops, _) = start();
    for garbage in [
        "\u{16}\u{3}\u{1}\u{2}",
        "GET / HTTP/1.1\r\n\r\n",
        "G T / HTTP/1.1\r\n\r\n",
        "{}\n",
    ] {
        let mut peer = connect(&ops);
        peer.send(garbage);
        assert_eq!(peer.receive().status, 400, "{garbage:?}");
        peer.expect_end();
    }
}

/// Each case of the requests of HTTP, as whatever uses `tidewire-http` reads them.
#[test]
fn heads_are_read_as_http_has_them() {
    let (ops, _) = start();
    for case in load::<RequestCase>("http-requests") {
        let of_body = ["body", "chunk", "trailer"];
        let is_of_body = |error: &Refused| of_body.iter().any(|word| error.name.contains(word));
        let is_of_a_limit =
            case.name.ends_with("past the limit") || case.name.contains("without end");
        if case.end || case.incomplete || is_of_a_limit {
            continue;
        }
        let mut peer = connect(&ops);
        peer.stream
            .get_mut()
            .write_all(&latin_1(&case.bytes))
            .unwrap();
        let found = peer.receive().status;
        match case.error {
            // This listener answers by the head.
            Some(error) if !is_of_body(&error) => {
                assert_eq!(found, error.status, "{}", case.name);
            }
            _ => assert!(matches!(found, 404 | 421), "{}: {found}", case.name),
        }
    }
}

#[test]
fn a_head_without_end_is_refused() {
    let (ops, _) = start();
    let mut peer = connect(&ops);
    peer.send(&format!(
        "GET /health HTTP/1.1\r\nA: {}",
        "b".repeat(8 * 1024)
    ));
    assert_eq!(peer.receive().status, 431);
    peer.expect_end();
}

#[test]
fn half_a_request_and_silence_end_after_a_time() {
    let (ops, _) = start();
    let mut half = connect(&ops);
    half.send("GET /health HTTP/1.1\r\n");
    let mut silent = connect(&ops);
    let mut used = connect(&ops);
    used.send("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(used.receive().status, 200);
    assert_eq!(half.receive().status, 408);
    half.expect_end();
    silent.expect_end();
    used.expect_end();
}

#[test]
fn a_peer_that_never_reads_does_not_stop_the_others() {
    let (ops, _) = start();
    let mut greedy = TcpStream::connect(ops.local_address()).unwrap();
    let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(1000);
    // Far more answers than any socket buffer holds; the listener has to give the peer up.
    let is_cut_off = (0..10_000).any(|_| greedy.write_all(request.as_bytes()).is_err());
    assert!(is_cut_off);
    assert_eq!(get(&ops, "/health").status, 200);
}

#[test]
fn the_oldest_idle_connection_gives_way() {
    let (ops, _) = start();
    let mut peers: Vec<_> = (0..CONNECTIONS_MAX).map(|_| connect(&ops)).collect();
    // A part of a request is nothing that anybody waits for.
    peers[0].send("GET /health HTTP/1.1\r\n");
    // The first one is not the oldest any more.
    let ask = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";
    peers[1].send(ask);
    assert_eq!(peers[1].receive().status, 200);
    // They stay, so that each of them needs a place.
    let _newcomers = [(); 2].map(|()| {
        let mut newcomer = connect(&ops);
        newcomer.send(ask);
        assert_eq!(newcomer.receive().status, 200);
        newcomer
    });
    peers[0].expect_any_end();
    peers[2].expect_any_end();
    peers[1].send(ask);
    assert_eq!(peers[1].receive().status, 200);
    let last = peers.last_mut().unwrap();
    last.send("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(last.receive().status, 200);
}

#[test]
fn connections_whose_peers_do_not_end_them_give_way_too() {
    let (ops, _) = start();
    let ask = "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let mut lingering = Vec::new();
    for _ in 0..CONNECTIONS_MAX + 10 {
        let mut peer = connect(&ops);
        peer.send(ask);
        assert_eq!(peer.receive().status, 200);
        lingering.push(peer);
    }
}

#[test]
fn a_page_that_rebinds_its_name_is_refused() {
    let (ops, _) = start();
    let ask = |host: &str| {
        let mut peer = connect(&ops);
        peer.send(&format!("GET /stats HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        peer.receive()
    };
    let refused = ask("evil.example:5007");
    assert_eq!(refused.status, 421);
    assert_eq!(
        refused.body,
        "host evil.example is not allowed; add it to the option allow_host\n"
    );
    for host in ["localhost", "127.0.0.1:5007", "[::1]:5007"] {
        assert_eq!(ask(host).status, 200, "{host}");
    }
    let metrics = parse_prometheus(&get(&ops, "/metrics").body);
    assert_eq!(metrics["tidewire_ops_host_rejections_total"], "1");
    // HTTP/1.0 has no Host, and no page speaks it.
    let mut old = connect(&ops);
    old.send("GET /health HTTP/1.0\r\n\r\n");
    assert_eq!(old.receive().status, 200);
}

#[test]
fn stopping_ends_connections_and_frees_the_port() {
    let (ops, source) = start();
    let address = ops.local_address();
    let mut peer = connect(&ops);
    let taken = Ops::start(address, Arc::clone(&source) as Arc<dyn OpsSource>).unwrap_err();
    assert_eq!(taken.kind(), std::io::ErrorKind::AddrInUse);
    ops.stop();
    peer.expect_end();
    let again = Ops::start(address, source).unwrap();
    assert_eq!(get(&again, "/health").status, 200);
}

/// A server that serves nobody.
#[derive(Default)]
struct Source {
    draining: AtomicBool,
    shards: [Counters; 2],
}

impl OpsSource for Source {
    fn is_ready(&self) -> bool {
        !self.draining.load(Ordering::Acquire)
    }

    fn shards(&self) -> Vec<Snapshot> {
        self.shards.iter().map(Counters::snapshot).collect()
    }

    fn timings(&self) -> Vec<TimingsSnapshot> {
        let shards = self.shards.iter();
        shards.map(|shard| shard.timings.snapshot()).collect()
    }

    fn uptime_s(&self) -> f64 {
        12.5
    }

    fn started_unix_ms(&self) -> u64 {
        1_700_000_000_250
    }
}

struct Peer {
    stream: BufReader<TcpStream>,
}

struct Answer {
    status: u16,
    headers: HashMap<String, String>,
    body: String,
}

fn start() -> (Ops, Arc<Source>) {
    let source = Arc::new(Source::default());
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    (
        Ops::start(address, Arc::clone(&source) as Arc<dyn OpsSource>).unwrap(),
        source,
    )
}

fn connect(ops: &Ops) -> Peer {
    let stream = TcpStream::connect(ops.local_address()).unwrap();
    // Only so that a broken listener fails the test instead of hanging it.
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    Peer {
        stream: BufReader::new(stream),
    }
}

fn get(ops: &Ops, path: &str) -> Answer {
    let mut peer = connect(ops);
    peer.send(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    peer.receive()
}

impl Peer {
    fn send(&mut self, text: &str) {
        self.stream.get_mut().write_all(text.as_bytes()).unwrap();
    }

    /// An end or a reset.
    fn expect_any_end(&mut self) {
        let mut rest = Vec::new();
        let _ = self.stream.read_to_end(&mut rest);
        assert!(rest.is_empty(), "{rest:?}");
    }

    fn receive_head(&mut self) -> Answer {
        let mut line = String::new();
        self.stream.read_line(&mut line).unwrap();
        let status = line.strip_prefix("HTTP/1.1 ").expect(&line)[..3]
            .parse()
            .unwrap();
        let mut headers = HashMap::new();
        loop {
            let mut line = String::new();
            self.stream.read_line(&mut line).unwrap();
            let Some((name, value)) = line.trim_end().split_once(": ") else {
                break;
            };
            headers.insert(name.to_ascii_lowercase(), value.to_owned());
        }
        Answer {
            status,
            headers,
            body: String::new(),
        }
    }

    fn receive(&mut self) -> Answer {
        let mut answer = self.receive_head();
        let mut body = vec![0; answer.headers["content-length"].parse().unwrap()];
        self.stream.read_exact(&mut body).unwrap();
        answer.body = String::from_utf8(body).unwrap();
        answer
    }

    fn expect_end(&mut self) {
        match self.stream.read(&mut [0]) {
            Ok(bytes) => assert_eq!(bytes, 0, "more came"),
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
        }
    }
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

/// Reads the text format strictly: HELP and TYPE once and before the samples of their metric, names of
/// legal letters, counters that end in `_total`, values that are numbers, a newline at the end.
fn parse_prometheus(text: &str) -> HashMap<String, String> {
    assert!(text.ends_with('\n'));
    let mut samples = HashMap::new();
    let mut kinds = HashMap::new();
    let mut helped = String::new();
    let mut current = String::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap();
            assert!(!help.is_empty());
            helped = name.to_owned();
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert_eq!(name, helped);
            assert!(matches!(kind, "counter" | "gauge" | "histogram"), "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            assert_eq!(
                kinds.insert(name.to_owned(), kind.to_owned()),
                None,
                "{line}"
            );
            current = name.to_owned();
        } else {
            let (sample, value) = line.rsplit_once(' ').unwrap();
            let name = sample.split('{').next().unwrap();
            let parts = ["_bucket", "_sum", "_count"];
            let family = parts.iter().find_map(|part| name.strip_suffix(part));
            let is_histogram = kinds.get(&current).is_some_and(|kind| kind == "histogram");
            let family = family.filter(|_| is_histogram).unwrap_or(name);
            assert_eq!(family, current, "{line}");
            assert!(
                name.bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte == b'_'),
                "{line}"
            );
            assert!(value.parse::<f64>().is_ok(), "{line}");
            assert_eq!(
                samples.insert(sample.to_owned(), value.to_owned()),
                None,
                "{line}"
            );
        }
    }
    samples
}

//! A receiver that is slow, away, or does not accept spans.

use super::receiver::{HttpServer, Receiver};
use super::{PARENT, config, connect, publish, start};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceResponse,
};
use prost::Message as _;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tidewire_engine::TraceCounts;
use tidewire_otlp::{Exporter, ExporterConfig};

const PUBLICATIONS: u64 = 500;
const QUEUE: usize = 16;

fn exporter(url: String) -> Exporter {
    let mut settings = ExporterConfig::new(url);
    settings.queue_spans_max = QUEUE;
    Exporter::start(settings).expect("a thread")
}

#[track_caller]
fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < deadline, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The counter of this name on the page of metrics.
fn metric(operations: SocketAddr, name: &str) -> u64 {
    let mut stream = TcpStream::connect(operations).expect("the operations listener");
    let request =
        format!("GET /metrics HTTP/1.1\r\nHost: {operations}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("a request");
    let mut page = String::new();
    stream.read_to_string(&mut page).expect("an answer");
    let mut lines = page.lines().filter_map(|line| line.split_once(' '));
    let value = lines
        .find(|(known, _)| *known == name)
        .map(|(_, value)| value);
    let value = value.unwrap_or_else(|| panic!("no {name} in {page}"));
    value.parse().expect("a number")
}

#[test]
fn a_receiver_that_never_answers_holds_nothing_back() {
    let receiver = Receiver(HttpServer::start(|_| (0, Vec::new())));
    let exporter = exporter(receiver.url());
    let sink = exporter.sink();
    let mut config = config(&exporter);
    config.ops_listen = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
    let server = start(config);
    let mut client = connect(&server, Some(PARENT));
    wait_until("the exporter waits for an answer", || {
        !receiver.asked().is_empty()
    });
    let started = Instant::now();
    for _ in 0..PUBLICATIONS {
        assert_eq!(publish(&mut client, None)["t"], "publish_response");
    }
    assert!(
        started.elapsed() < Duration::from_secs(8),
        "its requests time out after 10"
    );
    // One batch, of the handshake, is on its way, and the queue is full: all others were dropped.
    let dropped = PUBLICATIONS - QUEUE as u64;
    let expected = TraceCounts {
        dropped,
        ..TraceCounts::default()
    };
    assert_eq!(sink.counts(), expected);
    let operations = server.ops_address().expect("an address");
    assert_eq!(
        metric(operations, "tidewire_trace_spans_dropped_total"),
        dropped
    );
    let started = Instant::now();
    exporter.stop(Duration::from_millis(300));
    assert!(started.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_receiver_that_is_away_holds_nothing_back() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    drop(listener);
    let exporter = exporter(format!("http://{address}/v1/traces"));
    let sink = exporter.sink();
    let server = start(config(&exporter));
    let mut client = connect(&server, Some(PARENT));
    for _ in 0..PUBLICATIONS {
        assert_eq!(publish(&mut client, None)["t"], "publish_response");
    }
    wait_until("a batch is given up", || sink.counts().failed > 0);
    let started = Instant::now();
    exporter.stop(Duration::from_secs(10));
    assert!(
        started.elapsed() < Duration::from_secs(8),
        "it does not try again at the end"
    );
    let counts = sink.counts();
    assert_eq!(counts.exported, 0);
    assert_eq!(
        counts.failed + counts.dropped,
        PUBLICATIONS + 1,
        "none is forgotten"
    );
}

#[test]
fn a_batch_is_sent_again_until_it_is_accepted() {
    let tries = AtomicUsize::new(0);
    let receiver = Receiver(HttpServer::start(move |_| {
        match tries.fetch_add(1, Ordering::Relaxed) {
            0 => (503, b"later".to_vec()),
            1 => (429, Vec::new()),
            _ => (200, Vec::new()),
        }
    }));
    let exporter = exporter(receiver.url());
    let sink = exporter.sink();
    let server = start(config(&exporter));
    connect(&server, Some(PARENT));
    wait_until("the span is exported", || sink.counts().exported == 1);
    assert_eq!(sink.counts().failed, 0);
    let asked = receiver.asked();
    assert_eq!(asked.len(), 3);
    assert!(
        asked
            .iter()
            .all(|asked| asked.body == asked_first(&receiver))
    );
}

fn asked_first(receiver: &Receiver) -> Vec<u8> {
    receiver.asked().swap_remove(0).body
}

#[test]
fn what_the_receiver_rejects_is_counted() {
    let tries = AtomicUsize::new(0);
    let receiver = Receiver(HttpServer::start(move |_| {
        let answer = ExportTraceServiceResponse {
            partial_success: Some(ExportTracePartialSuccess {
                rejected_spans: 1,
                error_message: "too old".to_owned(),
            }),
        };
        match tries.fetch_add(1, Ordering::Relaxed) {
            0 => (200, answer.encode_to_vec()),
            _ => (400, Vec::new()),
        }
    }));
    let exporter = exporter(receiver.url());
    let sink = exporter.sink();
    let server = start(config(&exporter));
    let mut client = connect(&server, Some(PARENT));
    wait_until("the first is rejected", || sink.counts().failed == 1);
    publish(&mut client, None);
    wait_until("the second is not sent again", || sink.counts().failed == 2);
    assert_eq!(receiver.asked().len(), 2);
    assert_eq!(sink.counts().exported, 0);
}

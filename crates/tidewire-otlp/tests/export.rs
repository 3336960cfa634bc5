//! Traces of a real server, exported to a small receiver over real sockets.

#[path = "export/receiver.rs"]
mod receiver;
#[path = "export/trouble.rs"]
mod trouble;

use receiver::{Asked, HttpServer, Receiver, text};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tidewire_engine::apps::Sink;
use tidewire_engine::{
    AccessRules, BackendConfig, BackendEvent, BackendUrl, Config, Server, TraceContext,
};
use tidewire_otlp::{Exporter, ExporterConfig};
use tidewire_testkit::websocket::blocking::{Client, Opening};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const OTHER: &str = "00-11111111111111111111111111111111-2222222222222222-01";

/// One shard on a free port; everybody may publish.
fn config(exporter: &Exporter) -> Config {
    let mut config = Config {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        shards: 1,
        traces: Some(exporter.sink()),
        ..Config::default()
    };
    config.topics.access = AccessRules::open();
    config
}

fn start(config: Config) -> Server {
    Server::start(config, |_| Sink).expect("a server on a free port")
}

fn with_backend(mut config: Config, backend: &HttpServer) -> Config {
    let url = BackendUrl::parse(&format!("http://{}/events", backend.address));
    let mut backend = BackendConfig::new(url.expect("a URL"));
    let events = [
        BackendEvent::Connect,
        BackendEvent::Publish,
        BackendEvent::Request,
        BackendEvent::Disconnect,
    ];
    backend.events = events.into_iter().collect();
    config.backend = Some(backend);
    config
}

/// A backend that allows everything and answers requests with `1`.
fn backend() -> HttpServer {
    HttpServer::start(|asked| match asked.json()["event"].as_str() {
        Some("request") => (200, br#"{"payload":1}"#.to_vec()),
        _ => (204, Vec::new()),
    })
}

/// A session, with this `traceparent` if there is one.
fn connect(server: &Server, traceparent: Option<&str>) -> Client {
    let opening = Opening::new(server.address());
    let mut client = match traceparent {
        Some(value) => opening.header("traceparent", value).open(),
        None => opening.open(),
    };
    assert_eq!(client.next_json()["t"], "server_ready");
    client
}

fn publish(client: &mut Client, traceparent: Option<&str>) -> Value {
    let payload = json!({"topic": "news.a", "type": "chat", "payload": [1]});
    client.ask(&json!({
        "t": "publish_request", "cid": "p", "traceparent": traceparent, "p": payload
    }))
}

fn request(client: &mut Client) -> Value {
    let payload = json!({"type": "sum", "payload": null});
    client.ask(&json!({"t": "call_request", "cid": "c", "p": payload}))
}

/// The `traceparent` of the request about an event.
fn sent(backend: &HttpServer, event: &str) -> TraceContext {
    let asked = backend.asked();
    let mut asked = asked.iter().filter(|asked| asked.json()["event"] == event);
    let header = asked.next().and_then(|asked| asked.header("traceparent"));
    let header = header.unwrap_or_else(|| panic!("no traceparent with {event}"));
    TraceContext::parse(&header).expect("a context of version 00")
}

#[test]
fn one_trace_goes_from_the_handshake_to_the_backend() {
    let (receiver, backend) = (Receiver::start(), backend());
    let mut settings = ExporterConfig::new(receiver.url());
    settings.service_name = "live".to_owned();
    settings.headers = vec![("X-Key".to_owned(), "k".to_owned())];
    let exporter = Exporter::start(settings).expect("a thread");
    let server = start(with_backend(config(&exporter), &backend));
    let mut client = connect(&server, Some(PARENT));
    assert_eq!(publish(&mut client, None)["t"], "publish_response");
    assert_eq!(request(&mut client)["p"], json!({"payload": 1}));

    let spans = receiver.wait_for(6);
    let parent = TraceContext::parse(PARENT).expect("a context");
    assert!(spans.iter().all(|span| span.trace_id == parent.trace_id));
    let named = |name: &str| {
        let mut named = spans.iter().filter(|span| span.name == name);
        named.next().unwrap_or_else(|| panic!("no {name}")).clone()
    };
    let handshake = named("handshake");
    assert_eq!(handshake.parent_span_id, parent.span_id);
    let (publish, request) = (named("publish"), named("request"));
    assert_eq!(publish.parent_span_id, handshake.span_id);
    assert_eq!(request.parent_span_id, handshake.span_id);
    for (event, cause) in [
        ("connect", &handshake),
        ("publish", &publish),
        ("request", &request),
    ] {
        let mut hops = spans.iter().filter(|span| span.name == "POST");
        let hop = hops.find(|span| text(span, "tidewire.backend.event") == event);
        let hop = hop.unwrap_or_else(|| panic!("no call about {event}"));
        assert_eq!(hop.parent_span_id, cause.span_id, "{event}");
        let sent = sent(&backend, event);
        assert_eq!(sent.span_id[..], hop.span_id, "{event}");
        assert_eq!(sent.trace_id, parent.trace_id, "{event}");
        assert!(sent.is_sampled);
        assert!(cause.start_time_unix_nano <= hop.start_time_unix_nano);
        assert!(hop.start_time_unix_nano <= hop.end_time_unix_nano);
        assert!(hop.end_time_unix_nano <= cause.end_time_unix_nano);
        assert_eq!(text(hop, "http.request.method"), "POST");
        assert_eq!(
            text(hop, "url.full"),
            format!("http://{}/events", backend.address)
        );
        let status = if event == "request" { "200" } else { "204" };
        assert_eq!(text(hop, "http.response.status_code"), status);
        assert_eq!(text(hop, "error.type"), "");
    }
    assert_eq!(text(&handshake, "http.response.status_code"), "101");
    assert_eq!(text(&handshake, "network.peer.address"), "127.0.0.1");
    assert_eq!(text(&handshake, "url.path"), "/ws");
    assert_eq!(text(&publish, "messaging.system"), "tidewire");
    assert_eq!(text(&publish, "messaging.destination.name"), "news.a");
    assert_eq!(text(&publish, "messaging.message.body.size"), "3");
    assert_eq!(text(&request, "rpc.method"), "sum");
    assert_eq!(receiver.service_name(), "live");
    assert_eq!(receiver.asked()[0].header("x-key").as_deref(), Some("k"));
    assert_eq!(
        receiver.asked()[0].header("content-type").as_deref(),
        Some("application/x-protobuf")
    );
}

#[test]
fn a_message_can_belong_to_a_trace_of_its_own() {
    let (receiver, backend) = (Receiver::start(), backend());
    let exporter = Exporter::start(ExporterConfig::new(receiver.url())).expect("a thread");
    let server = start(with_backend(config(&exporter), &backend));
    let mut client = connect(&server, Some(PARENT));
    assert_eq!(publish(&mut client, Some(OTHER))["t"], "publish_response");
    let other = TraceContext::parse(OTHER).expect("a context");
    let spans = receiver.wait_for(4);
    let traced = spans.iter().find(|span| span.name == "publish");
    let traced = traced.expect("its span");
    assert_eq!(traced.trace_id, other.trace_id);
    assert_eq!(traced.parent_span_id, other.span_id);
    assert_eq!(sent(&backend, "publish").trace_id, other.trace_id);
    // One that cannot be used is ignored.
    let answer = publish(&mut client, Some("no context"));
    assert_eq!(answer["t"], "publish_response");
    let spans = receiver.wait_for(6);
    let last = spans.iter().rfind(|span| span.name == "publish");
    let parent = TraceContext::parse(PARENT).expect("a context");
    assert_eq!(last.expect("its span").trace_id, parent.trace_id);
}

#[test]
fn refusals_are_failures() {
    let receiver = Receiver::start();
    let exporter = Exporter::start(ExporterConfig::new(receiver.url())).expect("a thread");
    let mut config = config(&exporter);
    config.topics.access = AccessRules::default();
    let server = start(config);
    let opening = Opening::new(server.address()).target("/other");
    assert_eq!(opening.header("traceparent", PARENT).refused().0, 404);
    let mut client = connect(&server, Some(PARENT));
    assert_eq!(publish(&mut client, None)["p"]["code"], "TOPIC_FORBIDDEN");
    assert_eq!(request(&mut client)["p"]["error"]["code"], "NOT_FOUND");
    let spans = receiver.wait_for(4);
    let failures: Vec<(String, String, i32)> = spans
        .iter()
        .map(|span| {
            let status = span.status.as_ref().map_or(0, |status| status.code);
            (span.name.clone(), text(span, "error.type"), status)
        })
        .collect();
    let failure = |name: &str, kind: &str, status| (name.to_owned(), kind.to_owned(), status);
    assert_eq!(
        failures,
        [
            failure("handshake", "404", 2),
            failure("handshake", "", 0),
            failure("publish", "TOPIC_FORBIDDEN", 2),
            failure("request", "NOT_FOUND", 2),
        ]
    );
}

#[test]
fn failures_of_the_backend_are_failures_of_its_span() {
    let receiver = Receiver::start();
    let tries = AtomicUsize::new(0);
    let backend = HttpServer::start(move |asked| match asked.json()["event"].as_str() {
        Some("request") => (500, Vec::new()),
        Some("publish") if tries.fetch_add(1, Ordering::Relaxed) == 0 => (1, Vec::new()),
        _ => (204, Vec::new()),
    });
    let exporter = Exporter::start(ExporterConfig::new(receiver.url())).expect("a thread");
    let server = start(with_backend(config(&exporter), &backend));
    let mut client = connect(&server, None);
    assert_eq!(publish(&mut client, None)["t"], "publish_response");
    assert_eq!(request(&mut client)["p"]["error"]["code"], "HANDLER_ERROR");
    let spans = receiver.wait_for(6);
    let hop = |event: &str| {
        let mut spans = spans.iter();
        let hop = spans.find(|span| text(span, "tidewire.backend.event") == event);
        hop.unwrap_or_else(|| panic!("no call about {event}"))
    };
    assert_eq!(text(hop("publish"), "http.request.resend_count"), "1");
    assert_eq!(text(hop("publish"), "error.type"), "");
    assert_eq!(text(hop("request"), "http.response.status_code"), "500");
    assert_eq!(text(hop("request"), "error.type"), "500");
    let request = spans.iter().find(|span| span.name == "request");
    let request = request.expect("its span");
    assert_eq!(text(request, "error.type"), "HANDLER_ERROR");
    // Nobody gave a parent: the trace begins with the handshake.
    let roots = spans.iter().filter(|span| span.parent_span_id.is_empty());
    let roots: Vec<&str> = roots.map(|span| span.name.as_str()).collect();
    assert_eq!(roots, ["handshake"]);
    assert!(spans.iter().all(|span| span.trace_id == request.trace_id));
}

#[test]
fn a_trace_that_is_not_sampled_has_no_spans() {
    let (receiver, backend) = (Receiver::start(), backend());
    let mut settings = ExporterConfig::new(receiver.url());
    settings.sampling = 0.0;
    let exporter = Exporter::start(settings).expect("a thread");
    let server = start(with_backend(config(&exporter), &backend));
    // A trace that would begin here.
    let mut client = connect(&server, None);
    publish(&mut client, None);
    request(&mut client);
    let asked = backend.asked();
    assert_eq!(asked.len(), 3);
    assert!(
        asked
            .iter()
            .all(|asked| asked.header("traceparent").is_none())
    );
    // A trace that its first span did not sample: the backend receives its context, and nothing is exported.
    let unsampled = format!("{}00", &PARENT[..PARENT.len() - 2]);
    let mut client = connect(&server, Some(&unsampled));
    publish(&mut client, None);
    let last = backend
        .asked()
        .pop()
        .and_then(|asked: Asked| asked.header("traceparent"));
    let last = TraceContext::parse(&last.expect("it is passed on")).expect("a context");
    let parent = TraceContext::parse(PARENT).expect("a context");
    assert_eq!((last.trace_id, last.is_sampled), (parent.trace_id, false));
    // One that its first span sampled is sampled, whatever the ratio.
    connect(&server, Some(OTHER));
    let other = TraceContext::parse(OTHER).expect("a context");
    receiver.wait_for(2);
    exporter.stop(Duration::from_secs(10));
    let spans = receiver.spans();
    assert_eq!(spans.len(), 2, "{spans:?}");
    assert!(spans.iter().all(|span| span.trace_id == other.trace_id));
}

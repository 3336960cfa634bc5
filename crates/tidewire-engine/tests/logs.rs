//! Log events of the engine.
//!
//! All tests of this file are one, because there is one listener for all threads.

mod common;

use common::topics::{open_topics, subscribe};
use common::{Client, Opening, SECRET, assert_settled, start, token, wait_until};
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tidewire_engine::apps::Echo;
use tidewire_engine::auth::{AuthConfig, KeyMaterial};
use tidewire_engine::{
    BackendConfig, BackendEvent, BackendUrl, Config, Handle, HostPolicy, NewPublication,
    OptionSpelling, Server,
};
use tidewire_wire::close::CloseCode;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber, span};

/// The fields of one event; its words are in `message`.
type Fields = BTreeMap<&'static str, String>;

#[derive(Clone, Default)]
struct Listener(Arc<Mutex<Vec<(Level, Fields)>>>);

struct Reader(Fields);

impl Visit for Reader {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
}

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("tidewire_engine")
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut reader = Reader(Fields::new());
        event.record(&mut reader);
        self.0
            .lock()
            .expect("no panic")
            .push((*event.metadata().level(), reader.0));
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

impl Listener {
    /// How many events have these words.
    fn count(&self, words: &str) -> usize {
        let events = self.0.lock().expect("no panic");
        let found = events
            .iter()
            .filter(|(_, fields)| fields["message"] == words);
        found.count()
    }

    /// The first event with these words.
    #[track_caller]
    fn event(&self, level: Level, words: &str) -> Fields {
        let find = || {
            let events = self.0.lock().expect("no panic");
            events
                .iter()
                .find(|(_, fields)| fields["message"] == words)
                .cloned()
        };
        wait_until(words, || find().is_some());
        let (found, fields) = find().expect("it was heard");
        assert_eq!(found, level, "{words}");
        fields
    }
}

#[test]
fn what_happens_to_a_session_is_told() {
    let listener = Listener::default();
    tracing::subscriber::set_global_default(listener.clone()).unwrap();
    let mut config = Config {
        auth: Some(AuthConfig::new(KeyMaterial::Hs256(SECRET.to_vec()))),
        ..open_topics()
    };
    config.limits.outbox_bytes_max = 64 * 1024;
    config.limits.errors_max = 2;
    let server = start(config, Echo);
    let open = || {
        let bearer = format!("Bearer {}", token(json!({"sub": "ada"})));
        let mut client = Opening::new(server.address())
            .header("Authorization", bearer)
            .open();
        assert_eq!(client.next_json()["t"], "server_ready");
        client
    };

    assert_eq!(Opening::new(server.address()).refused().0, 401);
    let refused = listener.event(Level::INFO, "a token is not accepted");
    assert_eq!(refused["code"], "AUTH_FAILED");
    assert!(refused["address"].starts_with("127.0.0.1:"), "{refused:?}");
    assert!(!refused["connection"].is_empty(), "{refused:?}");

    assert_a_refused_page_has_one_line(&server, &listener);
    assert_refused_hosts_have_lines(&listener);
    assert_the_backends_answers_that_are_none_have_reasons(&listener);

    let mut client = open();
    let begun = listener.event(Level::DEBUG, "a session starts");
    assert_eq!(begun["user"], "ada");

    for _ in 0..3 {
        let bad = json!({"t": "publish_request", "p": {"topic": "a.*", "type": "x"}});
        client.ask(&bad);
    }
    let unpublished = listener.event(Level::DEBUG, "a publication is refused");
    assert_eq!(
        (&unpublished["user"], &unpublished["code"]),
        (&begun["user"], &"INVALID_MESSAGE".into())
    );
    let words = "a connection is closed because too much of it had to be refused";
    let opened = listener.event(Level::INFO, words);
    assert_eq!(client.next_json()["p"]["code"], "CIRCUIT_BREAKER_OPEN");
    client.assert_closed(CloseCode::TOO_MANY_ERRORS);
    let ended = listener.event(Level::DEBUG, "a session ends");
    for event in [&unpublished, &opened, &ended] {
        assert_eq!(event["address"], begun["address"]);
    }
    for event in [&unpublished, &opened, &ended] {
        assert_eq!(event["connection"], begun["connection"]);
    }

    let handle = server.handle();
    assert_an_overflow_is_told(&handle, &listener, &mut open());
    assert_settled(&handle);

    assert_eq!(server.drain(Duration::from_secs(1)), 0);
    listener.event(Level::INFO, "the drain starts");
    assert_eq!(
        listener.event(Level::INFO, "the drain is over")["left"],
        "0"
    );
}

/// One line per minute, with the option that allows the page.
fn assert_a_refused_page_has_one_line(server: &Server, listener: &Listener) {
    let page = Opening::new(server.address()).header("Origin", "https://page.example");
    for _ in 0..3 {
        let (status, answer) = page.refused();
        assert_eq!(status, 403);
        assert!(answer.ends_with("add it to the option origin"), "{answer}");
    }
    let words = "origin https://page.example is not allowed; add it to the option origin";
    let origin = listener.event(Level::WARN, words);
    assert!(origin["address"].starts_with("127.0.0.1:"), "{origin:?}");
    assert_eq!(listener.count(words), 1, "one line per minute");
}

/// Each backend has another server, because there is at most one line a second for an event.
fn assert_the_backends_answers_that_are_none_have_reasons(listener: &Listener) {
    for (answer, reason) in [
        (
            "HTTP/1.1 202 Accepted\r\nContent-Length: 2\r\n\r\n{}",
            "the backend answered with status 202; an answer has status 200 with a JSON object, or 204",
        ),
        (
            "HTTP/1.1 200 OK\r\n\r\n",
            "the backend's answer cannot be used: \
             it is empty; an answer without fields is {} or has status 204",
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n[",
            "the backend's answer cannot be used: it is not a JSON object",
        ),
    ] {
        let backend = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = backend.local_addr().expect("an address");
        let answering = std::thread::spawn(move || {
            let (mut stream, _) = backend.accept().expect("the engine connects");
            let mut request = [0; 4096];
            assert!(stream.read(&mut request).expect("a request") > 0);
            stream.write_all(answer.as_bytes()).expect("loopback");
        });
        let url = BackendUrl::parse(&format!("http://{address}/")).expect("a URL");
        let mut config = BackendConfig::new(url);
        config.events = [BackendEvent::Connect].into_iter().collect();
        let server = start(
            Config {
                backend: Some(config),
                ..open_topics()
            },
            Echo,
        );
        assert_eq!(Opening::new(server.address()).refused().0, 503);
        let words = format!("an event has no usable answer: {reason}");
        let line = listener.event(Level::WARN, &words);
        assert_eq!((&*line["event"], &*line["unlogged"]), ("connect", "0"));
        answering.join().expect("one request");
    }
}

/// One line per minute for each host on each listener, with who sends it.
fn assert_refused_hosts_have_lines(listener: &Listener) {
    let config = Config {
        ops_listen: Some("127.0.0.1:0".parse().expect("loopback")),
        hosts: HostPolicy::Listed(vec!["app.example".to_owned()]),
        option_spelling: OptionSpelling::Flag,
        ..open_topics()
    };
    let server = start(config, Echo);
    for host in ["one.example", "two.example", "one.example", "two.example"] {
        let mut opening = Opening::new(server.address());
        opening.host = host.to_owned();
        assert_eq!(opening.refused().0, 421);
    }
    for host in ["one.example", "two.example"] {
        let words = format!("host {host} is not allowed; allow it with --allow-host {host}");
        let line = listener.event(Level::WARN, &words);
        assert!(line["address"].starts_with("127.0.0.1:"), "{line:?}");
        assert!(!line["connection"].is_empty(), "{line:?}");
        assert_eq!(listener.count(&words), 1, "one line per minute");
    }
    let operations = server.ops_address().expect("it listens");
    for _ in 0..2 {
        let mut peer = TcpStream::connect(operations).expect("loopback");
        let request = "GET /stats HTTP/1.1\r\nHost: ops.example\r\nConnection: close\r\n\r\n";
        peer.write_all(request.as_bytes()).expect("loopback");
        let mut answer = String::new();
        peer.read_to_string(&mut answer).expect("loopback");
        assert!(answer.starts_with("HTTP/1.1 421 "), "{answer}");
    }
    let words = "host ops.example is not allowed; allow it with --allow-host ops.example";
    let line = listener.event(Level::WARN, words);
    assert!(line["address"].starts_with("127.0.0.1:"), "{line:?}");
    assert_eq!(listener.count(words), 1, "one line per minute");
}

/// A connection whose peer does not read ends, and the log has the reason.
fn assert_an_overflow_is_told(handle: &Handle, listener: &Listener, slow: &mut Client) {
    subscribe(slow, json!(["busy"]));
    let news = NewPublication::new("news", format!("{:?}", "x".repeat(50_000)));
    wait_until("it overflows", || {
        let _ = handle.publish("busy", &news);
        handle.counters().outbox_overflows == 1
    });
    let words = "a connection ends because its peer does not read what waits for it";
    let overflow = listener.event(Level::INFO, words);
    assert_eq!(
        (&overflow["user"], &overflow["queued_bytes_over"]),
        (&"ada".into(), &"65536".into())
    );
    assert!(
        overflow["address"].starts_with("127.0.0.1:"),
        "{overflow:?}"
    );
}

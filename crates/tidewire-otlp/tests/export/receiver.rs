//! A small HTTP server, and with it a receiver of OTLP.

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A request as it came.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    head: String,
    pub(super) body: Vec<u8>,
}

impl Asked {
    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// The value of a header, whatever its letters.
    pub(super) fn header(&self, name: &str) -> Option<String> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(':'));
        let found = lines.find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.trim().to_owned())
    }
}

/// Answers with a status and a body; status 0 is no answer at all, and 1 the end of the connection.
type Answer = dyn Fn(&Asked) -> (u16, Vec<u8>) + Send + Sync;

pub(super) struct HttpServer {
    pub(super) address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl HttpServer {
    pub(super) fn start(answer: impl Fn(&Asked) -> (u16, Vec<u8>) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let asked: Arc<Mutex<Vec<Asked>>> = Arc::default();
        let (all, answer): (_, Arc<Answer>) = (Arc::clone(&asked), Arc::new(answer));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (all, answer) = (Arc::clone(&all), Arc::clone(&answer));
                std::thread::spawn(move || serve(stream, &all, &*answer));
            }
        });
        Self { address, asked }
    }

    pub(super) fn asked(&self) -> Vec<Asked> {
        let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.clone()
    }
}

fn serve(stream: TcpStream, all: &Mutex<Vec<Asked>>, answer: &Answer) {
    let mut reader = BufReader::new(stream);
    while let Some(asked) = read(&mut reader) {
        // Kept before the answer: who has the answer finds the request.
        all.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(asked.clone());
        let (status, body) = answer(&asked);
        match status {
            0 => continue,
            1 => return,
            _ => {}
        }
        let head = match status {
            204 => "HTTP/1.1 204 X\r\n\r\n".to_owned(),
            status => format!(
                "HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n",
                body.len()
            ),
        };
        if reader
            .get_mut()
            .write_all(&[head.as_bytes(), &body].concat())
            .is_err()
        {
            return;
        }
    }
}

fn read(reader: &mut impl BufRead) -> Option<Asked> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let mut asked = Asked {
        head,
        body: Vec::new(),
    };
    let length = asked.header("content-length")?.parse().ok()?;
    reader.take(length).read_to_end(&mut asked.body).ok()?;
    Some(asked)
}

/// A receiver that decodes what it is sent.
pub(super) struct Receiver(pub(super) HttpServer);

impl Receiver {
    pub(super) fn start() -> Self {
        Self(HttpServer::start(|_| (200, Vec::new())))
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}/v1/traces", self.0.address)
    }

    pub(super) fn asked(&self) -> Vec<Asked> {
        self.0.asked()
    }

    fn requests(&self) -> Vec<ExportTraceServiceRequest> {
        let asked = self.asked().into_iter();
        let decoded = asked.map(|asked| ExportTraceServiceRequest::decode(&*asked.body));
        decoded
            .map(|request| request.expect("a request of OTLP"))
            .collect()
    }

    /// All spans so far, in the order in which they ended.
    pub(super) fn spans(&self) -> Vec<Span> {
        let requests = self.requests().into_iter();
        let scopes = requests.flat_map(|request| request.resource_spans);
        let scopes = scopes.flat_map(|resource| resource.scope_spans);
        scopes.flat_map(|scope| scope.spans).collect()
    }

    pub(super) fn service_name(&self) -> String {
        let first = self.requests().swap_remove(0).resource_spans.swap_remove(0);
        value(
            &first.resource.expect("a resource").attributes,
            "service.name",
        )
    }

    /// Waits for this number of spans; there must not be more.
    #[track_caller]
    pub(super) fn wait_for(&self, count: usize) -> Vec<Span> {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let spans = self.spans();
            if spans.len() >= count || Instant::now() > deadline {
                assert_eq!(spans.len(), count, "{spans:?}");
                return spans;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// An attribute of a span as text; empty without it.
pub(super) fn text(span: &Span, key: &str) -> String {
    value(&span.attributes, key)
}

fn value(attributes: &[KeyValue], key: &str) -> String {
    let found = attributes.iter().find(|attribute| attribute.key == key);
    match found.and_then(|attribute| attribute.value.clone()) {
        Some(AnyValue {
            value: Some(Any::StringValue(text)),
        }) => text,
        Some(AnyValue {
            value: Some(Any::IntValue(number)),
        }) => number.to_string(),
        _ => String::new(),
    }
}

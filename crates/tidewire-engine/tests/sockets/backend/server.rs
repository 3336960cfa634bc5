//! A backend as others might write it: a small HTTP server, well-behaved or not.

use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// The reaction of the backend to a request.
pub(super) enum Behaviour {
    /// Answers with this status and body, and keeps the connection.
    Answer(u16, String),
    /// The same, with a chunk for each byte.
    Chunks(String),
    /// Answers, and closes the connection.
    Last(String),
    /// Answers without a length: the end of the connection is the end of the body.
    UntilClose(String),
    /// Writes these bytes and closes the connection.
    Raw(Vec<u8>),
    /// Writes these bytes and keeps the connection.
    Keep(Vec<u8>),
    /// Writes these bytes and resets the connection.
    Reset(Vec<u8>),
    /// Never answers.
    Silence,
}

/// A request as it came.
#[derive(Debug, Clone)]
pub(super) struct Received {
    /// Which connection it came on, from 0.
    pub connection: usize,
    pub signature: Option<String>,
    pub body: String,
}

impl Received {
    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.body).expect("a body is JSON")
    }
}

/// Lets backends go on that wait for it.
#[derive(Clone, Default)]
pub(super) struct Gate(Arc<AtomicBool>);

impl Gate {
    pub(super) fn open(&self) {
        self.0.store(true, Ordering::Release);
    }

    pub(super) fn pass(&self) {
        while !self.0.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

type Decide = dyn Fn(&Value, usize) -> Behaviour + Send + Sync;

pub(super) struct TestBackend {
    pub address: SocketAddr,
    received: Arc<Mutex<Vec<Received>>>,
}

trait Socket: Read + Write + Send {}

impl<S: Read + Write + Send> Socket for S {}

impl TestBackend {
    /// `decide` is given the body of a request and how many came before.
    pub(super) fn start(
        decide: impl Fn(&Value, usize) -> Behaviour + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        Self::serve(listener, decide)
    }

    pub(super) fn serve(
        listener: TcpListener,
        decide: impl Fn(&Value, usize) -> Behaviour + Send + Sync + 'static,
    ) -> Self {
        Self::serve_with(listener, None, decide)
    }

    pub(super) fn serve_with(
        listener: TcpListener,
        tls: Option<Arc<rustls::ServerConfig>>,
        decide: impl Fn(&Value, usize) -> Behaviour + Send + Sync + 'static,
    ) -> Self {
        let address = listener.local_addr().expect("an address");
        let received = Arc::new(Mutex::new(Vec::new()));
        let decide: Arc<Decide> = Arc::new(decide);
        let all = Arc::clone(&received);
        std::thread::spawn(move || {
            for (connection, stream) in listener.incoming().enumerate() {
                let Ok(stream) = stream else { return };
                let (all, decide) = (Arc::clone(&all), Arc::clone(&decide));
                // A silent answer ends with the engine's patience, or with this.
                let _ = stream.set_read_timeout(Some(Duration::from_secs(60)));
                // Answers are written in pieces.
                let _ = stream.set_nodelay(true);
                let Ok(socket) = stream.try_clone() else {
                    return;
                };
                let stream: Box<dyn Socket> = match &tls {
                    None => Box::new(stream),
                    Some(tls) => {
                        let session = rustls::ServerConnection::new(Arc::clone(tls));
                        Box::new(rustls::StreamOwned::new(session.expect("TLS"), stream))
                    }
                };
                std::thread::spawn(move || serve(stream, &socket, connection, &all, &*decide));
            }
        });
        Self { address, received }
    }

    pub(super) fn received(&self) -> Vec<Received> {
        lock(&self.received).clone()
    }

    /// The bodies of all events of a kind, those of batches one by one.
    pub(super) fn events(&self, event: &str) -> Vec<Value> {
        let bodies = self.received().into_iter().map(|received| received.json());
        let events = bodies.flat_map(|body| match body {
            Value::Array(events) => events,
            one => vec![one],
        });
        events.filter(|body| body["event"] == event).collect()
    }
}

fn serve(
    stream: Box<dyn Socket>,
    socket: &TcpStream,
    connection: usize,
    all: &Mutex<Vec<Received>>,
    decide: &Decide,
) {
    let mut reader = BufReader::new(stream);
    while let Some((signature, body)) = request(&mut reader) {
        let json = serde_json::from_str(&body).unwrap_or(Value::Null);
        let before = {
            let mut all = lock(all);
            all.push(Received {
                connection,
                signature,
                body,
            });
            all.len() - 1
        };
        let stream = reader.get_mut();
        let written = match decide(&json, before) {
            Behaviour::Answer(status, body) => {
                let length = body.len();
                write!(
                    stream,
                    "HTTP/1.1 {status} X\r\nContent-Length: {length}\r\n\r\n{body}"
                )
            }
            Behaviour::Chunks(body) => {
                let mut text = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned();
                for letter in body.chars() {
                    text.push_str(&format!("{:x}\r\n{letter}\r\n", letter.len_utf8()));
                }
                stream.write_all(format!("{text}0\r\n\r\n").as_bytes())
            }
            Behaviour::Last(body) => {
                let length = body.len();
                let _ = write!(
                    stream,
                    "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
                );
                return;
            }
            Behaviour::UntilClose(body) => {
                let _ = write!(stream, "HTTP/1.1 200 OK\r\n\r\n{body}");
                return;
            }
            Behaviour::Raw(bytes) => {
                let _ = stream.write_all(&bytes);
                return;
            }
            Behaviour::Keep(bytes) => stream.write_all(&bytes),
            Behaviour::Reset(bytes) => {
                let _ = stream.write_all(&bytes);
                let _ = socket2::SockRef::from(socket).set_linger(Some(Duration::ZERO));
                return;
            }
            Behaviour::Silence => {
                let _ = stream.read(&mut [0; 1]);
                return;
            }
        };
        if written.is_err() {
            return;
        }
    }
}

/// The next request: its signature and body.
fn request(reader: &mut BufReader<Box<dyn Socket>>) -> Option<(Option<String>, String)> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
    assert_eq!(line, "POST /tidewire?a=b HTTP/1.1\r\n");
    let (mut length, mut signature) = (0, None);
    loop {
        line.clear();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else {
            break;
        };
        match name {
            "Content-Length" => length = value.parse().expect("a length"),
            "Tidewire-Signature" => signature = Some(value.to_owned()),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some((signature, String::from_utf8(body).expect("UTF-8")))
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no thread has panicked")
}

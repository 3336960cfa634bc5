//! A small service of HTTP/1.1 and HTTP/2 on a thread for each connection: it remembers every request and gives the
//! configured answers.

// Outside of `cargo test` it is no test code to the linter.
#![allow(clippy::unwrap_used)]

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use tidewire_http::http2::{Connection, Event, Heads, Limits, write_response};

/// A request as it arrived.
#[derive(Debug, Clone, Default)]
pub(crate) struct Request {
    /// `GET /path HTTP/1.1`
    pub(crate) line: String,
    /// Header lines, without their ends.
    pub(crate) headers: Vec<String>,
    pub(crate) body: String,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find_map(|line| {
            let (other, value) = line.split_once(':')?;
            other.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    pub(crate) fn target(&self) -> &str {
        self.line.split(' ').nth(1).unwrap_or_default()
    }
}

/// The answer of a service: a status line's end, header lines and a body.
pub(crate) type Answer = (&'static str, Vec<String>, String);

pub(crate) struct Service {
    pub(crate) address: SocketAddr,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Service {
    /// Serves until the test ends.
    pub(crate) fn start(answer: impl Fn(&Request) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let requests: Arc<Mutex<Vec<Request>>> = Arc::default();
        let seen = Arc::clone(&requests);
        let answer = Arc::new(answer);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                let (seen, answer) = (Arc::clone(&seen), Arc::clone(&answer));
                std::thread::spawn(move || {
                    let mut start = [0; 4];
                    while matches!(stream.peek(&mut start), Ok(1..4)) {}
                    if start == *b"PRI " {
                        return serve_streams(stream, &*answer, &seen);
                    }
                    let mut writer = stream.try_clone().unwrap();
                    let mut reader = BufReader::new(stream);
                    while let Some(request) = read(&mut reader) {
                        let (status, headers, body) = answer(&request);
                        seen.lock().unwrap().push(request);
                        let lines: String =
                            headers.iter().map(|line| format!("{line}\r\n")).collect();
                        let length = body.len();
                        let text = format!(
                            "HTTP/1.1 {status}\r\n{lines}Content-Length: {length}\r\n\r\n{body}"
                        );
                        if writer.write_all(text.as_bytes()).is_err() {
                            return;
                        }
                    }
                });
            }
        });
        Self { address, requests }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// The requests so far.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }
}

/// Serves a connection of HTTP/2, until it ends.
fn serve_streams(
    stream: TcpStream,
    answer: &(dyn Fn(&Request) -> Answer + Send + Sync),
    seen: &Mutex<Vec<Request>>,
) {
    let mut peer = Peer::new(stream, &Limits::default());
    while let Some(requests) = peer.read() {
        for (stream, request) in requests {
            let (status, headers, body) = answer(&request);
            let is_head = request.line.starts_with("HEAD ");
            seen.lock().unwrap().push(request);
            let length = ("content-length".to_owned(), body.len().to_string());
            let fields = headers.iter().filter_map(|line| line.split_once(": "));
            let fields = fields.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()));
            let fields: Vec<(String, String)> = fields.chain([length]).collect();
            let fields: Vec<(&str, &str)> = fields
                .iter()
                .map(|(name, value)| (name.as_str(), value.as_str()))
                .collect();
            let body = if is_head { "" } else { &body };
            peer.respond(stream, status[..3].parse().unwrap(), &fields, body);
        }
    }
}

/// The server's side of a connection of HTTP/2.
pub(crate) struct Peer {
    pub(crate) stream: TcpStream,
    pub(crate) connection: Connection,
    /// Frames that have not been sent.
    pub(crate) out: Vec<u8>,
    heads: Heads,
    unread: Vec<u8>,
    open: HashMap<u32, Request>,
}

impl Peer {
    pub(crate) fn new(stream: TcpStream, limits: &Limits) -> Self {
        let mut out = Vec::new();
        let connection = Connection::server(limits, &mut out);
        Self {
            stream,
            connection,
            out,
            heads: Heads::default(),
            unread: Vec::new(),
            open: HashMap::new(),
        }
    }

    /// Sends what was written, and reads: the requests that are whole now; `None` after the end of the connection.
    pub(crate) fn read(&mut self) -> Option<Vec<(u32, Request)>> {
        self.connection.pump(usize::MAX, &mut self.out);
        self.stream.write_all(&std::mem::take(&mut self.out)).ok()?;
        let mut buffer = [0; 16_384];
        let bytes = self
            .stream
            .read(&mut buffer)
            .ok()
            .filter(|bytes| *bytes > 0)?;
        self.unread.extend_from_slice(&buffer[..bytes]);
        let (mut at, mut whole) = (0, Vec::new());
        loop {
            let data = &self.unread[at..];
            let read = self
                .connection
                .receive(&mut self.heads, data, 0, &mut self.out);
            let step = read.ok()?;
            at += step.consumed;
            match step.event {
                Event::More if step.consumed == 0 => break,
                Event::Head(head) => {
                    let (method, target) = head.request_line();
                    let line = |(name, value): (&[u8], &[u8])| {
                        let text = [name, b": ", value].concat();
                        String::from_utf8(text).unwrap()
                    };
                    let request = Request {
                        line: format!("{method} {target} HTTP/2"),
                        headers: head.headers().map(line).collect(),
                        body: String::new(),
                    };
                    self.open.insert(head.stream, request);
                }
                Event::Body { stream, bytes } => {
                    let text = std::str::from_utf8(bytes).unwrap();
                    self.open.get_mut(&stream).unwrap().body.push_str(text);
                }
                Event::Done { stream, .. } => {
                    whole.push((stream, self.open.remove(&stream).unwrap()));
                }
                _ => {}
            }
        }
        self.unread.drain(..at);
        Some(whole)
    }

    pub(crate) fn respond(
        &mut self,
        stream: u32,
        status: u16,
        fields: &[(&str, &str)],
        body: &str,
    ) {
        let mut block = Vec::new();
        write_response(status, fields, &mut block);
        let body = Arc::from(body.as_bytes());
        self.connection
            .respond(stream, &block, &body, usize::MAX, &mut self.out);
    }
}

fn read(reader: &mut impl BufRead) -> Option<Request> {
    let mut line = || {
        let mut line = String::new();
        let bytes = reader.read_line(&mut line).ok()?;
        (bytes > 0).then(|| line.trim_end().to_owned())
    };
    let mut request = Request {
        line: line()?,
        ..Request::default()
    };
    loop {
        match line()?.as_str() {
            "" => break,
            header => request.headers.push(header.to_owned()),
        }
    }
    let length = request
        .header("content-length")
        .map_or(0, |n| n.parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    request.body = String::from_utf8(body).unwrap();
    Some(request)
}

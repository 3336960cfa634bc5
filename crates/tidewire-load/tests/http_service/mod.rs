//! A small HTTP service on a thread for each connection: it remembers every request and gives the configured answers.

// Outside of `cargo test` it is no test code to the linter.
#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};

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

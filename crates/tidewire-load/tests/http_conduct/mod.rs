//! HTTP servers that behave badly, each in one way, on real sockets.

// Each test program uses a part of it; outside of `cargo test` it is no test code to the linter.
#![allow(dead_code, clippy::unwrap_used)]

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use tidewire_http::server::{Event, Limits, RequestHeads, RequestReader};

/// How a server answers each request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Conduct {
    /// Sends this and waits for the next request.
    Sends(&'static str),
    /// Sends this and ends its side.
    SendsAndCloses(&'static str),
    /// Sends this and then, for ever, that.
    SendsWithoutEnd(&'static str, &'static str),
    /// Sends this for the first request of a connection, ends its side for the second.
    ServesOnce(&'static str),
    /// Sends this, and a moment later that, unasked, and ends its side.
    SendsAndSaysWhy(&'static str, &'static str),
    /// Sends this for the head, before the body has arrived, and ends its side.
    AnswersEarly(&'static str),
    /// Sends this and resets the connection.
    SendsAndResets(&'static str),
    /// Closes the connection as soon as it is accepted.
    ClosesAtOnce,
}

/// A server on threads of its own; ends when dropped.
pub(crate) struct HostileServer {
    pub(crate) address: SocketAddr,
    /// Requests received whole.
    pub(crate) requests: Arc<AtomicU64>,
    is_stopping: Arc<AtomicBool>,
    accepting: Option<JoinHandle<()>>,
}

impl HostileServer {
    pub(crate) fn start(conduct: Conduct) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(AtomicU64::new(0));
        let is_stopping = Arc::new(AtomicBool::new(false));
        let (counted, stopping) = (Arc::clone(&requests), Arc::clone(&is_stopping));
        let accepting = std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                if stopping.load(Ordering::Acquire) {
                    return;
                }
                let counted = Arc::clone(&counted);
                // It ends with the connection, which ends with the client.
                std::thread::spawn(move || serve(stream, conduct, &counted));
            }
        });
        Self {
            address,
            requests,
            is_stopping,
            accepting: Some(accepting),
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/", self.address)
    }
}

impl Drop for HostileServer {
    fn drop(&mut self) {
        self.is_stopping.store(true, Ordering::Release);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.accepting.take() {
            let _ = thread.join();
        }
    }
}

/// An address where nobody listens.
pub(crate) fn unused_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}

/// A client that is gone is no failure of the server.
fn serve(mut stream: TcpStream, conduct: Conduct, counted: &AtomicU64) {
    if conduct == Conduct::ClosesAtOnce {
        return close(&stream);
    }
    let mut requests = Requests::new();
    let waits_for_body = !matches!(conduct, Conduct::AnswersEarly(_));
    let mut served = 0;
    while let Ok(true) = requests.next(&mut stream, waits_for_body) {
        counted.fetch_add(1, Ordering::Relaxed);
        served += 1;
        let is_over = match conduct {
            Conduct::Sends(text) => stream.write_all(text.as_bytes()).is_err(),
            Conduct::SendsAndCloses(text) | Conduct::AnswersEarly(text) => {
                let _ = stream.write_all(text.as_bytes());
                return close(&stream);
            }
            Conduct::ServesOnce(text) => {
                if served == 2 {
                    return close(&stream);
                }
                stream.write_all(text.as_bytes()).is_err()
            }
            Conduct::SendsAndSaysWhy(text, why) => {
                let _ = stream.write_all(text.as_bytes());
                std::thread::sleep(std::time::Duration::from_millis(20));
                let _ = stream.write_all(why.as_bytes());
                return close(&stream);
            }
            Conduct::SendsWithoutEnd(text, rest) => {
                let rest = rest.repeat(1 + 4096 / rest.len());
                let _ = stream.write_all(text.as_bytes());
                while stream.write_all(rest.as_bytes()).is_ok() {}
                true
            }
            Conduct::SendsAndResets(text) => {
                let _ = stream.write_all(text.as_bytes());
                // Without lingering, the end of the socket is a reset.
                let _ = socket2::SockRef::from(&stream).set_linger(Some(std::time::Duration::ZERO));
                true
            }
            Conduct::ClosesAtOnce => true,
        };
        if is_over {
            return;
        }
    }
}

/// Ends this side, and reads until the client has ended its own: to close a socket with unread bytes would reset it.
fn close(stream: &TcpStream) {
    let _ = stream.shutdown(Shutdown::Write);
    let mut reader = stream;
    let _ = io::copy(&mut reader, &mut io::sink());
}

struct Requests {
    heads: RequestHeads,
    reader: RequestReader,
    unread: Vec<u8>,
}

impl Requests {
    fn new() -> Self {
        Self {
            heads: RequestHeads::new(Limits {
                body_bytes_max: u64::MAX,
                ..Limits::default()
            }),
            reader: RequestReader::new(),
            unread: Vec::new(),
        }
    }

    /// Reads until a request, or its head, is there; `false` if the client has ended.
    fn next(&mut self, stream: &mut TcpStream, waits_for_body: bool) -> io::Result<bool> {
        loop {
            let step = self
                .reader
                .read(&mut self.heads, &self.unread)
                .map_err(io::Error::other)?;
            let (consumed, is_there, has_no_more) = match step.event {
                Event::More => (step.consumed, false, true),
                Event::Head(_) => (step.consumed, !waits_for_body, false),
                Event::Body(_) => (step.consumed, false, false),
                Event::Done(_) => (step.consumed, waits_for_body, false),
            };
            self.unread.drain(..consumed);
            if is_there {
                return Ok(true);
            }
            if has_no_more {
                let mut buffer = [0; 4096];
                match stream.read(&mut buffer)? {
                    0 => return Ok(false),
                    bytes => self.unread.extend_from_slice(&buffer[..bytes]),
                }
            }
        }
    }
}

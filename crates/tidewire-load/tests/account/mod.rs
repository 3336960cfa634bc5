//! A server that keeps its own account of a load, for HTTP and for WebSocket, and that fails as it is told to. It
//! shares no code with the load lab beyond the answer to an upgrade.

// Outside of `cargo test` it is no test code to the linter.
#![allow(dead_code, clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tidewire_wire::handshake::server::{Limits, parse_request, write_accept};

/// The protocol of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http,
    /// Each message is answered by itself.
    WebSocket,
}

/// The behaviour while a fault lasts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Fault {
    /// Answers nothing, and everything as soon as the fault is over.
    Hangs,
    /// Never answers what arrives.
    Swallows,
    /// HTTP: answers with this status. WebSocket: closes with this code.
    Refuses(u16),
    /// Ends the stream without an answer.
    Ends,
    /// Resets the connection.
    Resets,
    /// Answers this much later.
    Slow(Duration),
}

/// How a server behaves, and when.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Conduct {
    pub(crate) protocol: Protocol,
    /// The time that each answer takes.
    pub(crate) answer_after: Duration,
    pub(crate) fault: Option<Fault>,
    /// The fault begins and ends this long after the first request, or the first connection if nothing is sent.
    pub(crate) from: Duration,
    pub(crate) until: Duration,
}

impl Conduct {
    pub(crate) fn honest(protocol: Protocol) -> Self {
        Self {
            protocol,
            answer_after: Duration::ZERO,
            fault: None,
            from: Duration::ZERO,
            until: Duration::ZERO,
        }
    }

    /// The fault during the whole load.
    pub(crate) fn always(protocol: Protocol, fault: Fault) -> Self {
        Self::between(protocol, fault, Duration::ZERO, Duration::MAX)
    }

    pub(crate) fn between(
        protocol: Protocol,
        fault: Fault,
        from: Duration,
        until: Duration,
    ) -> Self {
        Self {
            fault: Some(fault),
            from,
            until,
            ..Self::honest(protocol)
        }
    }
}

/// What a server has seen.
#[derive(Debug, Default, Clone)]
pub(crate) struct Account {
    pub(crate) connections: u64,
    /// Whole requests or messages.
    pub(crate) received: u64,
    /// Answers that were good.
    pub(crate) answered: u64,
    /// Answers that were an error.
    pub(crate) refused: u64,
    /// Requests that got no answer, because the connection ended or they were swallowed.
    pub(crate) unanswered: u64,
    /// Each request, in the order of arrival.
    pub(crate) exchanges: Vec<Exchanged>,
    /// The code of each close frame from the client that answers none of the server's.
    pub(crate) closes: Vec<Option<u16>>,
    /// Connections that ended without a close frame of either side.
    pub(crate) cut: u64,
    first: Option<Instant>,
}

/// A request at the server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Exchanged {
    pub(crate) arrived: Instant,
    /// The time after its answer was written, or its connection ended; none for a request that was left without an
    /// answer.
    pub(crate) ended: Option<Instant>,
    /// Whether the answer was good.
    pub(crate) is_good: bool,
}

impl Account {
    /// Notes a request; its number.
    fn arrive(&mut self, arrived: Instant) -> usize {
        self.received += 1;
        self.exchanges.push(Exchanged {
            arrived,
            ended: None,
            is_good: false,
        });
        self.exchanges.len() - 1
    }

    fn end(&mut self, number: usize, is_good: bool) {
        let exchange = &mut self.exchanges[number];
        exchange.ended = Some(Instant::now());
        exchange.is_good = is_good;
    }

    /// From the arrival of each request to its good answer, in microseconds and ascending.
    pub(crate) fn took_us(&self) -> Vec<u64> {
        let good = self.exchanges.iter().filter(|one| one.is_good);
        let took = good.filter_map(|one| Some(one.ended?.duration_since(one.arrived)));
        let mut took: Vec<u64> = took.map(|time| time.as_micros() as u64).collect();
        took.sort_unstable();
        took
    }
}

/// The server; ends when dropped.
pub(crate) struct AccountServer {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    conduct: Conduct,
    account: Mutex<Account>,
    is_stopping: AtomicBool,
    open: std::sync::atomic::AtomicUsize,
}

impl AccountServer {
    pub(crate) fn start(conduct: Conduct) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            conduct,
            account: Mutex::default(),
            is_stopping: AtomicBool::new(false),
            open: std::sync::atomic::AtomicUsize::new(0),
        });
        let accepting = Arc::clone(&shared);
        std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                if accepting.is_stopping.load(Ordering::Acquire) {
                    return;
                }
                let shared = Arc::clone(&accepting);
                shared.open.fetch_add(1, Ordering::AcqRel);
                std::thread::spawn(move || {
                    Connection::new(stream, &shared).serve();
                    shared.open.fetch_sub(1, Ordering::AcqRel);
                });
            }
        });
        Self { address, shared }
    }

    pub(crate) fn url(&self) -> String {
        match self.shared.conduct.protocol {
            Protocol::Http => format!("http://{}/", self.address),
            Protocol::WebSocket => format!("ws://{}/", self.address),
        }
    }

    /// The time of the first request, or of the first connection if nothing is sent; waits for it.
    pub(crate) fn wait_for_the_first(&self) -> Instant {
        loop {
            if let Some(first) = self.shared.account().first {
                return first;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// The account when every connection has ended.
    pub(crate) fn account(&self) -> Account {
        while self.shared.open.load(Ordering::Acquire) > 0 {
            std::thread::yield_now();
        }
        self.shared.account().clone()
    }
}

impl Drop for AccountServer {
    fn drop(&mut self) {
        self.shared.is_stopping.store(true, Ordering::Release);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
    }
}

impl Shared {
    fn account(&self) -> MutexGuard<'_, Account> {
        self.account.lock().unwrap()
    }

    /// The fault of this moment, and its end.
    fn fault(&self) -> Option<(Fault, Instant)> {
        let first = *self.account().first.get_or_insert_with(Instant::now);
        let since = first.elapsed();
        let is_now = since >= self.conduct.from && since < self.conduct.until;
        let far = Duration::from_secs(3_600);
        let end = first + self.conduct.until.min(far);
        self.conduct
            .fault
            .filter(|_| is_now)
            .map(|fault| (fault, end))
    }
}

struct Connection<'a> {
    stream: TcpStream,
    shared: &'a Shared,
    unread: Vec<u8>,
    has_closed: bool,
}

impl<'a> Connection<'a> {
    fn new(stream: TcpStream, shared: &'a Shared) -> Self {
        stream.set_nodelay(true).unwrap();
        shared.account().connections += 1;
        Self {
            stream,
            shared,
            unread: Vec::new(),
            has_closed: false,
        }
    }

    /// Until either side ends it. Errors are the end.
    fn serve(mut self) {
        match self.shared.conduct.protocol {
            Protocol::Http => while self.exchange_http().is_some() {},
            Protocol::WebSocket => {
                if self.upgrade().is_some() {
                    let _ = self.stream.set_read_timeout(Some(Duration::from_millis(5)));
                    while self.exchange_frame().is_some() {}
                    if !self.has_closed {
                        self.shared.account().cut += 1;
                    }
                }
            }
        }
    }

    /// Some more bytes; `None` at the end of the stream, `false` if there are none yet.
    fn read(&mut self) -> Option<bool> {
        let mut buffer = [0; 4096];
        match self.stream.read(&mut buffer) {
            Ok(0) => None,
            Ok(bytes) => {
                self.unread.extend_from_slice(&buffer[..bytes]);
                Some(true)
            }
            Err(error) => matches!(
                error.kind(),
                std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
            )
            .then_some(false),
        }
    }

    fn exchange_http(&mut self) -> Option<()> {
        let end = loop {
            if let Some(at) = self.unread.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            self.read()?;
        };
        self.unread.drain(..end);
        let good = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".to_vec();
        self.answer(good)
    }

    fn upgrade(&mut self) -> Option<()> {
        loop {
            if let Ok(Some(request)) = parse_request(&self.unread, &Limits::default()) {
                let mut accept = Vec::new();
                write_accept(request.key(), None, &[], &mut accept);
                let head_bytes = request.head_bytes();
                self.unread.drain(..head_bytes);
                return self.stream.write_all(&accept).ok();
            }
            self.read()?;
        }
    }

    /// One frame of the client, or the fault of an idle connection.
    fn exchange_frame(&mut self) -> Option<()> {
        let Some((opcode, payload)) = self.frame() else {
            if let Some((fault @ (Fault::Refuses(_) | Fault::Ends | Fault::Resets), _)) =
                self.shared.fault()
            {
                return self.end_by(fault);
            }
            return self.read().map(|_| ());
        };
        match opcode {
            // A message.
            1 | 2 => self.answer(frame(opcode, &payload)),
            // A ping asks whether everything so far was read.
            9 => {
                self.shared.account().received += 1;
                match self.shared.fault() {
                    Some((Fault::Hangs | Fault::Swallows, _)) => Some(()),
                    _ => self.stream.write_all(&frame(10, &payload)).ok(),
                }
            }
            8 => {
                self.has_closed = true;
                let code = payload
                    .get(..2)
                    .map(|code| u16::from_be_bytes([code[0], code[1]]));
                self.shared.account().closes.push(code);
                let _ = self.stream.write_all(&frame(8, &payload));
                None
            }
            _ => Some(()),
        }
    }

    /// The next whole frame, unmasked.
    fn frame(&mut self) -> Option<(u8, Vec<u8>)> {
        let bytes = &self.unread;
        let length = usize::from(*bytes.get(1)? & 0x7F);
        let (start, length) = match length {
            126 => (
                4,
                usize::from(u16::from_be_bytes([*bytes.get(2)?, *bytes.get(3)?])),
            ),
            length => (2, length),
        };
        let mask: [u8; 4] = bytes.get(start..start + 4)?.try_into().ok()?;
        let payload = bytes.get(start + 4..start + 4 + length)?;
        let payload = payload.iter().zip(mask.iter().cycle());
        let payload = payload.map(|(byte, mask)| byte ^ mask).collect();
        let opcode = bytes[0] & 0x0F;
        self.unread.drain(..start + 4 + length);
        Some((opcode, payload))
    }

    /// Answers one request as the fault of this moment wants.
    fn answer(&mut self, good: Vec<u8>) -> Option<()> {
        let arrived = Instant::now();
        let number = self.shared.account().arrive(arrived);
        let fault = self.shared.fault();
        let mut wait = self.shared.conduct.answer_after;
        match fault {
            Some((Fault::Swallows, _)) => {
                self.shared.account().unanswered += 1;
                return Some(());
            }
            Some((Fault::Hangs, end)) => wait += end.saturating_duration_since(arrived),
            Some((Fault::Slow(more), _)) => wait += more,
            Some((Fault::Refuses(status), _)) if self.shared.conduct.protocol == Protocol::Http => {
                self.shared.account().refused += 1;
                let head = format!("HTTP/1.1 {status} No\r\nContent-Length: 2\r\n\r\nno");
                let written = self.stream.write_all(head.as_bytes());
                self.shared.account().end(number, false);
                return written.ok();
            }
            Some((fault, _)) => {
                let mut account = self.shared.account();
                account.unanswered += 1;
                account.end(number, false);
                drop(account);
                return self.end_by(fault);
            }
            None => {}
        }
        if !wait.is_zero() {
            std::thread::sleep(wait);
        }
        if self.stream.write_all(&good).is_err() {
            self.shared.account().unanswered += 1;
            return None;
        }
        let mut account = self.shared.account();
        account.answered += 1;
        account.end(number, true);
        Some(())
    }

    /// The server ends the connection.
    fn end_by(&mut self, fault: Fault) -> Option<()> {
        self.has_closed = true;
        match fault {
            Fault::Refuses(code) => {
                let payload = [&code.to_be_bytes()[..], b"told to"].concat();
                let _ = self.stream.write_all(&frame(8, &payload));
                // Reads the client's answer, so that nothing resets the frame on its way.
                let _ = self.stream.shutdown(Shutdown::Write);
                while self.read().is_some() {}
            }
            Fault::Resets => {
                // Without lingering, the end of the socket is a reset.
                let _ = socket2::SockRef::from(&self.stream).set_linger(Some(Duration::ZERO));
            }
            _ => {
                let _ = self.stream.shutdown(Shutdown::Both);
            }
        }
        None
    }
}

/// A frame of a server: not masked, and short.
fn frame(opcode: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x80 | opcode];
    match payload.len() {
        length @ 0..126 => frame.push(length as u8),
        length => {
            frame.push(126);
            frame.extend_from_slice(&(length as u16).to_be_bytes());
        }
    }
    frame.extend_from_slice(payload);
    frame
}

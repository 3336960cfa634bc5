//! A shard on its own thread under a handler that tests script and that checks the contract of
//! [`Handler`] as it goes.
#![allow(dead_code, missing_docs, unreachable_pub)]
// Outside of `cargo test` it is no test code to the linter.
#![allow(clippy::unwrap_used)]

use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use tidewire_net::{
    Closed, ConnectionId, Handler, Io, ListenerId, Mailbox, Shard, ShardConfig, bind, tls,
};

/// Past it a test has failed; nothing waits that long when it works.
pub const DEADLINE: Duration = Duration::from_secs(60);

pub type Call = Box<dyn FnMut(&mut Io, ConnectionId) + Send>;
pub type Take = Box<dyn FnMut(&mut Io, ConnectionId, &mut [u8]) -> usize + Send>;
pub type Mail = Box<dyn FnOnce(&mut TestHandler, &mut Io) + Send>;

/// A call of the handler.
#[derive(Debug)]
pub enum Seen {
    Accept(ConnectionId),
    Connect(ConnectionId),
    Data(ConnectionId, usize),
    Timer(ConnectionId, u64),
    Drained(ConnectionId),
    Close(ConnectionId, Closed),
}

pub struct TestHandler {
    pub on_accept: Call,
    pub on_connect: Call,
    pub on_data: Take,
    pub on_drained: Call,
    pub on_timer: Call,
    pub on_close: Call,
    pub may_read: Box<dyn FnMut(ConnectionId) -> bool + Send>,
    pub may_accept: Box<dyn Fn() -> bool + Send>,
    pub accepted: usize,
    pub connected: usize,
    /// Connections begin again when TLS is there.
    pub begins_again: bool,
    /// Every connection that is gone, also those that never were established.
    pub gone: HashSet<ConnectionId>,
    open: HashSet<ConnectionId>,
    seen: Option<Sender<Seen>>,
}

impl TestHandler {
    /// Sends everything back.
    pub fn echo() -> Self {
        Self::with_data(|io, id, data| {
            io.send(id, data);
            data.len()
        })
    }

    pub fn with_data(
        on_data: impl FnMut(&mut Io, ConnectionId, &mut [u8]) -> usize + Send + 'static,
    ) -> Self {
        Self {
            on_accept: Box::new(|_, _| {}),
            on_connect: Box::new(|_, _| {}),
            on_data: Box::new(on_data),
            on_drained: Box::new(|_, _| {}),
            on_timer: Box::new(|_, _| {}),
            on_close: Box::new(|_, _| {}),
            may_read: Box::new(|_| true),
            may_accept: Box::new(|| true),
            accepted: 0,
            connected: 0,
            begins_again: false,
            gone: HashSet::new(),
            open: HashSet::new(),
            seen: None,
        }
    }

    fn tell(&self, seen: Seen) {
        if let Some(sender) = &self.seen {
            let _ = sender.send(seen);
        }
    }

    fn begin(&mut self, id: ConnectionId) {
        assert!(!self.gone.contains(&id), "{id:?} began after its end");
        assert!(
            self.open.iter().all(|other| other.index() != id.index()),
            "an index was shared"
        );
        assert!(self.open.insert(id), "{id:?} began twice");
    }

    fn check_open(&self, id: ConnectionId) {
        assert!(self.open.contains(&id), "{id:?} is not open");
    }
}

impl Handler for TestHandler {
    type Mail = Mail;

    fn handle_accept(&mut self, io: &mut Io, id: ConnectionId, _: ListenerId) {
        self.begin(id);
        self.accepted += 1;
        self.tell(Seen::Accept(id));
        (self.on_accept)(io, id);
    }

    fn handle_connect(&mut self, io: &mut Io, id: ConnectionId) {
        if !self.begins_again || !self.open.contains(&id) {
            self.begin(id);
            self.connected += 1;
        }
        self.tell(Seen::Connect(id));
        (self.on_connect)(io, id);
    }

    fn handle_data(&mut self, io: &mut Io, id: ConnectionId, data: &mut [u8]) -> usize {
        self.check_open(id);
        self.tell(Seen::Data(id, data.len()));
        (self.on_data)(io, id, data)
    }

    fn handle_close(&mut self, io: &mut Io, id: ConnectionId, closed: Closed) {
        assert!(self.gone.insert(id), "the end of {id:?} was told twice");
        self.open.remove(&id);
        assert!(
            !io.send(id, b"late"),
            "a connection that is gone took bytes"
        );
        self.tell(Seen::Close(id, closed));
        (self.on_close)(io, id);
    }

    fn handle_timer(&mut self, io: &mut Io, id: ConnectionId) {
        assert!(
            !self.gone.contains(&id),
            "the timer of {id:?} came after its end"
        );
        self.tell(Seen::Timer(id, io.now().monotonic_ms));
        (self.on_timer)(io, id);
    }

    fn handle_drained(&mut self, io: &mut Io, id: ConnectionId) {
        self.check_open(id);
        self.tell(Seen::Drained(id));
        (self.on_drained)(io, id);
    }

    fn handle_mail(&mut self, io: &mut Io, mail: Mail) {
        mail(self, io);
    }

    fn may_read(&mut self, id: ConnectionId) -> bool {
        self.check_open(id);
        (self.may_read)(id)
    }

    fn may_accept(&self) -> bool {
        (self.may_accept)()
    }
}

/// A shard that runs.
pub struct Running {
    pub address: SocketAddr,
    pub mailbox: Mailbox<Mail>,
    seen: Receiver<Seen>,
    ended: Receiver<TestHandler>,
}

impl Running {
    pub fn plain(handler: TestHandler) -> Self {
        Self::start(handler, "127.0.0.1:0", None, &ShardConfig::default())
    }

    pub fn start(
        handler: TestHandler,
        address: &str,
        tls: Option<Arc<tls::ServerConfig>>,
        config: &ShardConfig,
    ) -> Self {
        let mut listeners = bind(address.parse().unwrap(), 1, 1024).unwrap();
        Self::start_on(handler, listeners.remove(0), tls, config)
    }

    pub fn start_on(
        mut handler: TestHandler,
        listener: std::net::TcpListener,
        tls: Option<Arc<tls::ServerConfig>>,
        config: &ShardConfig,
    ) -> Self {
        let (told, seen) = channel();
        handler.seen = Some(told);
        let address = listener.local_addr().unwrap();
        let (mut shard, mailbox) = Shard::new(config, handler).unwrap();
        shard.listen(listener, tls).unwrap();
        let (done, ended) = channel();
        std::thread::spawn(move || {
            let _ = done.send(shard.run().unwrap());
        });
        Self {
            address,
            mailbox,
            seen,
            ended,
        }
    }

    /// Runs `ask` on the shard and waits for its answer.
    pub fn ask<R: Send + 'static>(
        &self,
        ask: impl FnOnce(&mut TestHandler, &mut Io) -> R + Send + 'static,
    ) -> R {
        let (sender, answer) = channel();
        let mail: Mail = Box::new(move |handler, io| {
            let _ = sender.send(ask(handler, io));
        });
        assert!(self.mailbox.send(mail).is_ok(), "the shard has stopped");
        answer.recv_timeout(DEADLINE).expect("the shard answers")
    }

    /// Waits until `pick` finds what it looks for, passing over everything else.
    pub fn wait_for<R>(&self, mut pick: impl FnMut(Seen) -> Option<R>) -> R {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let seen = self
                .seen
                .recv_timeout(left)
                .expect("the handler is told in time");
            if let Some(found) = pick(seen) {
                return found;
            }
        }
    }

    pub fn accepted(&self) -> ConnectionId {
        self.wait_for(|seen| {
            if let Seen::Accept(id) = seen {
                Some(id)
            } else {
                None
            }
        })
    }

    pub fn connected(&self) -> ConnectionId {
        self.wait_for(|seen| {
            if let Seen::Connect(id) = seen {
                Some(id)
            } else {
                None
            }
        })
    }

    pub fn closed(&self) -> Closed {
        self.wait_for(|seen| {
            if let Seen::Close(_, why) = seen {
                Some(why)
            } else {
                None
            }
        })
    }

    /// The calls that nobody has waited for.
    pub fn rest(&self) -> Vec<Seen> {
        self.seen.try_iter().collect()
    }

    /// Waits until the shard has no connection of any kind.
    pub fn wait_until_empty(&self) {
        let deadline = Instant::now() + DEADLINE;
        while self.ask(|_, io| io.connections()) > 0 {
            assert!(Instant::now() < deadline, "connections are left");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Stops the shard and checks that everything that began has ended.
    pub fn stop(self) -> TestHandler {
        self.ask(|_, io| io.stop());
        let handler = self.ended.recv_timeout(DEADLINE).expect("the loop ends");
        assert!(
            handler.open.is_empty(),
            "the end of {:?} was not told",
            handler.open
        );
        assert!(handler.gone.len() >= handler.accepted + handler.connected);
        handler
    }
}

/// A blocking client that fails instead of hanging.
pub fn dial(address: SocketAddr) -> TcpStream {
    with_deadline(TcpStream::connect_timeout(&address, DEADLINE).unwrap())
}

pub fn with_deadline(stream: TcpStream) -> TcpStream {
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream.set_write_timeout(Some(DEADLINE)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// Bytes of which no part is like another.
pub fn pattern(bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    std::iter::repeat_with(next).take(bytes).collect()
}

/// Fails without printing megabytes.
pub fn assert_same(left: &[u8], right: &[u8]) {
    assert_eq!(left.len(), right.len());
    let difference = left
        .iter()
        .zip(right)
        .position(|(left, right)| left != right);
    assert_eq!(difference, None, "the first byte that differs");
}

pub fn read_to_end(stream: &mut impl Read) -> Vec<u8> {
    let mut received = Vec::new();
    stream
        .read_to_end(&mut received)
        .expect("the stream ends in order");
    received
}

/// Sends `sent` while it reads as much back.
pub fn check_echo(stream: &TcpStream, sent: &[u8]) {
    check_answer(stream, sent, sent);
}

/// Sends `sent` while it reads `expected`.
pub fn check_answer(stream: &TcpStream, sent: &[u8], expected: &[u8]) {
    let mut received = vec![0; expected.len()];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut stream = stream;
            stream.write_all(sent).unwrap();
        });
        let mut stream = stream;
        stream.read_exact(&mut received).unwrap();
    });
    assert_same(&received, expected);
}

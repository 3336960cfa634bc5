//! Small WebSocket servers to load: honest ones, and ones that lie.

// Each test program uses a part of it; outside of `cargo test` it is no test code to the linter.
#![allow(dead_code, clippy::unwrap_used)]

pub(crate) mod conduct;
pub(crate) mod layer;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidewire_load::plan::bench::TestKind;
use tidewire_load::plan::run::BenchOptions;
use tidewire_load::worker::order::Timeouts;
use tidewire_load::worker::target::Target;
use tidewire_load::worker::websocket::layer::Layer;
use tidewire_load::worker::websocket::profile::Profile;
use tidewire_net::{Closed, ConnectionId, Handler, Io, ListenerId, tls};
use tidewire_testkit::shard::{LOOPBACK, ShardThread};
use tidewire_wire::close::CloseCode;
use tidewire_wire::frame::{OpCode, Role, write_close, write_frame};
use tidewire_wire::handshake::server::{Limits, parse_request, write_accept, write_rejection};
use tidewire_wire::message::{Compressed, Event, Input, MessageReader};

use conduct::opcode_of;
pub(crate) use conduct::{Conduct, LIMIT};
use layer::{PeerLayer, Skill};

/// A server on its own thread; ends when dropped.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    conduct: Conduct,
    /// Whole messages read, those of version 1 itself left out.
    pub(crate) received: Arc<AtomicU64>,
    /// The bearer token of each upgrade.
    pub(crate) tokens: Arc<Mutex<Vec<String>>>,
    /// The head of each upgrade.
    pub(crate) heads: Arc<Mutex<Vec<String>>>,
    shard: ShardThread,
}

impl Server {
    pub(crate) fn raw(conduct: Conduct) -> Self {
        Self::start(conduct, false, LOOPBACK)
    }

    pub(crate) fn v1(conduct: Conduct) -> Self {
        Self::start(conduct, true, LOOPBACK)
    }

    pub(crate) fn start(conduct: Conduct, is_v1: bool, address: SocketAddr) -> Self {
        Self::start_with(conduct, is_v1, address, None, Skill::PLAIN)
    }

    /// One that compresses or encrypts.
    pub(crate) fn skilled(conduct: Conduct, is_v1: bool, skill: Skill) -> Self {
        Self::start_with(conduct, is_v1, LOOPBACK, None, skill)
    }

    /// Under TLS, with a certificate of its own.
    pub(crate) fn secure(conduct: Conduct, is_v1: bool) -> Self {
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let key = made.signing_key.serialize_der().try_into().unwrap();
        let tls = tls::server_config_from(vec![made.cert.der().clone()], key).unwrap();
        Self::start_with(conduct, is_v1, LOOPBACK, Some(tls), Skill::PLAIN)
    }

    fn start_with(
        conduct: Conduct,
        is_v1: bool,
        address: SocketAddr,
        tls: Option<Arc<tls::ServerConfig>>,
        skill: Skill,
    ) -> Self {
        let received = Arc::new(AtomicU64::new(0));
        let tokens = Arc::default();
        let heads = Arc::default();
        let app = App {
            conduct,
            is_v1,
            skill,
            received: Arc::clone(&received),
            tokens: Arc::clone(&tokens),
            heads: Arc::clone(&heads),
            stalled: false,
            open: 0,
            peers: Vec::new(),
        };
        let shard = ShardThread::start(app, address, tls);
        Self {
            address: shard.address,
            conduct,
            received,
            tokens,
            heads,
            shard,
        }
    }

    pub(crate) fn url(&self) -> String {
        self.shard.url()
    }

    pub(crate) fn wait(self) {
        self.shard.wait();
    }
}

struct App {
    conduct: Conduct,
    is_v1: bool,
    skill: Skill,
    received: Arc<AtomicU64>,
    tokens: Arc<Mutex<Vec<String>>>,
    heads: Arc<Mutex<Vec<String>>>,
    stalled: bool,
    open: usize,
    peers: Vec<Option<Peer>>,
}

impl App {
    /// Holds everything up once, when it has received enough.
    fn stall(&mut self, fresh: u64) {
        let total = self.received.fetch_add(fresh, Ordering::Relaxed);
        if let Conduct::EchoStalling(after, stall_ms) = self.conduct
            && total > after
            && !self.stalled
        {
            self.stalled = true;
            std::thread::sleep(Duration::from_millis(stall_ms));
        }
        if let Conduct::EchoSlow(slow_ms) = self.conduct {
            std::thread::sleep(Duration::from_millis(slow_ms));
        }
    }
}

fn keep_token(head: &[u8], tokens: &Mutex<Vec<String>>) {
    let request = parse_request(head, &Limits::default());
    if let Some(token) = request.unwrap().and_then(|request| request.bearer()) {
        tokens.lock().unwrap().push(token.to_owned());
    }
}

struct Peer {
    reader: MessageReader,
    layer: PeerLayer,
    upgraded: bool,
    messages: u64,
    /// Messages refused and not told.
    refused: u64,
    /// A message that is sent later.
    held: Vec<u8>,
}

impl Handler for App {
    type Mail = ();

    fn handle_accept(&mut self, _io: &mut Io, id: ConnectionId, _listener: ListenerId) {
        let index = id.index();
        if self.peers.len() <= index {
            self.peers.resize_with(index + 1, || None);
        }
        let mut reader = MessageReader::new(Role::Server, 1 << 20);
        if self.skill.layer == Layer::Deflate {
            reader = reader.with_compression();
        }
        self.peers[index] = Some(Peer {
            reader,
            layer: PeerLayer::new(self.skill),
            upgraded: false,
            messages: 0,
            refused: 0,
            held: Vec::new(),
        });
        self.open += 1;
    }

    fn handle_data(&mut self, io: &mut Io, id: ConnectionId, data: &mut [u8]) -> usize {
        let Some(peer) = self.peers[id.index()].as_mut() else {
            return data.len();
        };
        let mut head_bytes = 0;
        if !peer.upgraded {
            let manner = (self.conduct, self.is_v1, self.skill);
            head_bytes = accept(manner, self.open, io, id, data);
            if head_bytes == 0 {
                return 0;
            }
            let head = &data[..head_bytes];
            keep_token(head, &self.tokens);
            let head = String::from_utf8_lossy(head).into_owned();
            self.heads.lock().unwrap().push(head);
            peer.upgraded = true;
            if close_ready(self.conduct, self.open, io, id) {
                return data.len();
            }
        }
        let mut input = Input::new(&mut data[head_bytes..]);
        let mut fresh = 0;
        loop {
            let event = match peer.reader.read(&mut input) {
                Ok(Some(event)) => event,
                Ok(None) => break,
                Err(error) => panic!("the lab broke the protocol: {error}"),
            };
            let (opcode, received) = match event {
                Event::Text(text) => (OpCode::Text, text.as_bytes()),
                Event::Binary(bytes) => (OpCode::Binary, bytes),
                Event::Compressed(Compressed { is_text, bytes }) => (opcode_of(is_text), bytes),
                Event::Ping(payload) => {
                    let out = io.buffer(id).unwrap();
                    let conduct = self.conduct;
                    conduct.pongs(payload, |pong| write_frame(out, OpCode::Pong, pong, None));
                    continue;
                }
                Event::Pong(_) => continue,
                Event::Close(code, _) => {
                    write_close(io.buffer(id).unwrap(), code, "", None);
                    io.close(id);
                    break;
                }
            };
            let is_compressed = matches!(event, Event::Compressed(_));
            let opened = peer.layer.take_off(is_compressed, opcode, received);
            let payload = opened.as_deref().unwrap_or(received);
            if self.is_v1 && answer_system(self.conduct, &mut peer.layer, io, id, payload) {
                continue;
            }
            peer.messages += 1;
            fresh += u64::from(self.conduct.counts(peer.messages));
            if self.conduct.refuses(peer.messages) {
                refuse(self.conduct, peer, io, id);
                continue;
            }
            let out = io.buffer(id).unwrap();
            let (layer, held) = (&mut peer.layer, &mut peer.held);
            self.conduct.reply(peer.messages, payload, held, |reply| {
                layer.reply(out, opcode, reply, received);
            });
            if let Conduct::ClosingAfter(limit) = self.conduct
                && peer.messages == limit
            {
                io.abort(id);
                break;
            }
        }
        self.stall(fresh);
        head_bytes + input.consumed()
    }

    fn handle_timer(&mut self, io: &mut Io, id: ConnectionId) {
        if let Conduct::ClosingReady(code, _) = self.conduct {
            return end(io, id, code);
        }
        if let Some(peer) = self.peers[id.index()].as_mut() {
            tell_refusals(self.conduct, peer, io, id);
        }
    }

    fn handle_close(&mut self, _io: &mut Io, id: ConnectionId, _closed: Closed) {
        self.peers[id.index()] = None;
        self.open -= 1;
    }

    fn handle_mail(&mut self, io: &mut Io, (): ()) {
        io.stop();
    }
}

/// Answers the upgrade; how many bytes it took.
fn accept(
    (conduct, is_v1, skill): (Conduct, bool, Skill),
    open: usize,
    io: &mut Io,
    id: ConnectionId,
    data: &[u8],
) -> usize {
    let Some(request) = parse_request(data, &Limits::default()).unwrap() else {
        return 0;
    };
    let head_bytes = request.head_bytes();
    let refuses = match conduct {
        Conduct::Refusing => true,
        Conduct::Limited(limit) => open > limit,
        Conduct::Mute => return head_bytes,
        _ => false,
    };
    let out = io.buffer(id).unwrap();
    if refuses {
        write_rejection(503, &[("Retry-After", "1")], "full", out);
        io.close(id);
        return data.len();
    }
    let extensions = skill.extensions(request.extensions());
    let mut headers = vec![("Server", "test/1")];
    headers.extend(
        extensions
            .iter()
            .map(|value| ("Sec-WebSocket-Extensions", value.as_str())),
    );
    write_accept(request.key(), None, &headers, out);
    if is_v1 {
        let ready = br#"{"c":"WSE","t":"server_ready","p":{"details":{"version":"test/1"}}}"#;
        write_frame(out, OpCode::Text, ready, None);
    }
    head_bytes
}

/// Ends a connection that has just become ready, now or later; whether it is ending.
fn close_ready(conduct: Conduct, open: usize, io: &mut Io, id: ConnectionId) -> bool {
    match conduct {
        Conduct::ClosingReady(code, 0) => end(io, id, code),
        Conduct::ClosingReady(_, after_ms) => {
            io.set_timer(id, io.now().monotonic_ms + after_ms);
            return false;
        }
        Conduct::ClosingAbove(limit) if open > limit => end(io, id, 1013),
        _ => return false,
    }
    true
}

fn end(io: &mut Io, id: ConnectionId, code: u16) {
    if let Some(out) = io.buffer(id) {
        write_close(out, CloseCode::from_wire(code), "", None);
    }
    io.close(id);
}

/// Answers a message of version 1 itself; whether it was one.
fn answer_system(
    conduct: Conduct,
    layer: &mut PeerLayer,
    io: &mut Io,
    id: ConnectionId,
    payload: &[u8],
) -> bool {
    if !payload.starts_with(br#"{"c":"WSE""#) {
        return false;
    }
    let text = std::str::from_utf8(payload).unwrap();
    let out = io.buffer(id).unwrap();
    if text.contains(r#""t":"client_hello""#) {
        let key = layer
            .agree(text)
            .map(|key| format!(r#""encryption_public_key":"{key}","#))
            .unwrap_or_default();
        let hello = format!(
            r#"{{"c":"WSE","t":"server_hello","p":{{{key}"limits":{{"rate_limit_capacity":{LIMIT},"rate_limit_refill":1}}}}}}"#
        );
        write_frame(out, OpCode::Text, hello.as_bytes(), None);
    } else if let Some((_, rest)) = text.split_once(r#""timestamp":"#) {
        let stamp: String = rest.chars().take_while(char::is_ascii_digit).collect();
        conduct.app_pongs(&stamp, |pong| {
            layer.write(out, OpCode::Text, pong.as_bytes());
        });
    }
    true
}

fn refuse(conduct: Conduct, peer: &mut Peer, io: &mut Io, id: ConnectionId) {
    peer.refused += 1;
    if matches!(conduct, Conduct::Erring(_)) {
        tell_refusals(conduct, peer, io, id);
    } else if peer.refused == 1 {
        io.set_timer(id, io.now().monotonic_ms + TOLD_LATE_MS);
    }
}

fn tell_refusals(conduct: Conduct, peer: &mut Peer, io: &mut Io, id: ConnectionId) {
    let refused = std::mem::take(&mut peer.refused);
    let told = match conduct {
        Conduct::Limiting => format!(r#""RATE_LIMITED","refused":{refused}"#),
        Conduct::LimitingInSilence => r#""RATE_LIMITED""#.to_owned(),
        _ => r#""INVALID_MESSAGE""#.to_owned(),
    };
    let error = format!(r#"{{"c":"WSE","t":"error","p":{{"code":{told}}}}}"#);
    if let Some(out) = io.buffer(id) {
        peer.layer.write(out, OpCode::Text, error.as_bytes());
    }
}

/// Later than the pong that follows the refused messages.
const TOLD_LATE_MS: u64 = 300;

/// An operations listener whose `/stats` has the result of `claim` for the messages received.
pub(crate) struct StatsServer {
    pub(crate) address: SocketAddr,
}

impl StatsServer {
    pub(crate) fn start(received: Arc<AtomicU64>, claim: fn(u64) -> (u64, u64)) -> Self {
        Self::saying(received, move |received| {
            let (delivered, refused) = claim(received);
            format!(
                r#"{{"messages_delivered":{delivered},"messages_refused_rate":{refused},"messages_refused_size":0}}"#
            )
        })
    }

    /// One whose totals are the result of `totals` for the messages received.
    pub(crate) fn saying(
        received: Arc<AtomicU64>,
        totals: impl Fn(u64) -> String + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                let mut request = [0; 1024];
                let _ = stream.read(&mut request);
                let totals = totals(received.load(Ordering::Relaxed));
                let body = format!(r#"{{"totals":{totals}}}"#);
                let _ = write!(
                    stream,
                    "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                    body.len()
                );
            }
        });
        Self { address }
    }
}

/// A short test of twenty connections on two threads.
pub(crate) fn options(server: &Server, test: TestKind, profile: Profile) -> BenchOptions {
    let mut options = BenchOptions::new(Target::parse(&server.url()).unwrap());
    options.profile = profile;
    options.tests = vec![test];
    options.tiers = vec![20];
    options.duration = Duration::from_millis(300);
    options.hold = Duration::from_millis(300);
    options.hold_ping_every_ms = 50;
    options.threads = 2;
    // A server that answers may be slow beside a busy machine; for the others a test need not wait long.
    let asks_for_echo = test == TestKind::Echo && server.conduct == Conduct::Sink;
    if !server.conduct.answers() || asks_for_echo {
        options.timeouts = Timeouts {
            connect_ms: 2_000,
            pong_ms: 500,
            barrier_ms: 1_000,
            close_ms: 500,
        };
    }
    options
}

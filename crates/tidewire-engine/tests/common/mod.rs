//! A small blocking client, and a server on a free port to try it on.
#![allow(dead_code, missing_docs, unreachable_pub)]

pub mod api;
pub mod held;
pub mod hostile;
pub mod http;
pub mod simulated;
pub mod topics;

use serde_json::{Value, json};
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidewire_engine::auth::KeyMaterial;
use tidewire_engine::counters::Snapshot;
use tidewire_engine::token::{SigningKey, sign};
use tidewire_engine::{Application, Config, Handle, Protocol, Server, TlsFiles};
use tidewire_net::tls;
use tidewire_wire::close::CloseCode;
use tidewire_wire::deflate::{Decompressor, DeflateParameters};
use tidewire_wire::frame::{self, OpCode, Role};
use tidewire_wire::handshake::client::{Offer, RequestHead, parse_response};
use tidewire_wire::message::{Event, Input, MessageReader};

/// Past it a test has failed; nothing waits that long when it works.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// More than the two sockets of a connection hold: it can only be sent if the server reads.
pub const PAST_SOCKETS_BYTES: usize = 64 * 1024 * 1024;

pub const SECRET: &[u8] = b"a secret of more than thirty-two bytes";

/// One shard on a free port, version 1, everyone let in.
pub fn config() -> Config {
    Config {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        shards: 1,
        ..Config::default()
    }
}

/// The same without version 1.
pub fn raw_config() -> Config {
    Config {
        protocol: Protocol::Raw,
        ..config()
    }
}

pub fn start<A: Application + Clone>(config: Config, application: A) -> Server {
    Server::start(config, move |_| application.clone()).expect("a server on a free port")
}

/// A certificate for localhost, a client that trusts it, and the folder that is to be kept as long as either.
pub fn certified() -> (TlsFiles, Arc<tls::ClientConfig>, tempfile::TempDir) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]);
    let made = made.expect("a certificate");
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: String| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("a file");
        path
    };
    let files = TlsFiles {
        certificate: write("certificate.pem", made.cert.pem()),
        key: write("key.pem", made.signing_key.serialize_pem()),
    };
    let trust = tls::client_config(Some(&files.certificate)).expect("a certificate");
    (files, trust, folder)
}

/// A connection to the default path, past the opening handshake.
pub fn connect(server: &Server) -> Client {
    Opening::new(server.address()).open()
}

/// A connection that has read `server_ready` too.
pub fn connect_v1(server: &Server) -> Client {
    let mut client = connect(server);
    assert_eq!(client.next_json()["t"], "server_ready");
    client
}

pub fn tcp(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the server listens");
    stream
        .set_read_timeout(Some(DEADLINE))
        .expect("a timeout that is not zero");
    stream
        .set_write_timeout(Some(DEADLINE))
        .expect("a timeout that is not zero");
    stream.set_nodelay(true).expect("a TCP socket");
    stream
}

/// Waits until `condition` holds.
#[track_caller]
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !condition() {
        assert!(Instant::now() < deadline, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Waits until all connections are gone, and checks that every one and every message is accounted for.
#[track_caller]
pub fn assert_settled(handle: &Handle) -> Snapshot {
    wait_until("all connections gone", || {
        let now = handle.counters();
        let ended = now.sessions_closed_by_peer + now.sessions_closed_by_us + now.sessions_lost;
        handle.connections() == 0
            && now.connections_accepted == now.handshakes_failed + now.handshakes_completed
            && now.handshakes_completed == ended
    });
    let now = handle.counters();
    let pending = now.handshakes_in_progress + now.handshakes_parked;
    assert_eq!((now.connections_open, pending), (0, 0));
    assert_messages_add_up(&now);
    now
}

#[track_caller]
pub fn assert_messages_add_up(now: &Snapshot) {
    let refused =
        now.messages_refused_rate + now.messages_refused_size + now.messages_refused_invalid;
    let numbered = now.messages_repeated + now.messages_out_of_turn;
    let accounted = now.messages_delivered + now.system_messages_received + refused + numbered;
    assert_eq!(now.messages_received, accounted, "{now:?}");
}

/// A token of `SECRET` for `claims`, which are good for an hour but for what they say themselves.
pub fn token(claims: Value) -> String {
    token_by(&KeyMaterial::Hs256(SECRET.to_vec()), None, claims)
}

pub fn token_by(key: &KeyMaterial, kid: Option<&str>, claims: Value) -> String {
    let mut all = json!({ "sub": "user-1", "exp": unix_s() + 3600 });
    for (name, value) in claims.as_object().expect("claims are an object") {
        all[name] = value.clone();
    }
    sign(&all, &SigningKey::new(key).expect("a good key"), kid).expect("a good key signs")
}

pub fn unix_s() -> u64 {
    std::time::UNIX_EPOCH
        .elapsed()
        .expect("a clock after 1970")
        .as_secs()
}

/// What an HTTP server answers to `request`, to the end of the connection.
pub fn answer(address: SocketAddr, request: impl AsRef<[u8]>) -> String {
    let mut stream = tcp(address);
    stream
        .write_all(request.as_ref())
        .expect("the request fits the socket");
    read_to_end(stream)
}

/// All that the server still says, up to an orderly end.
#[track_caller]
pub fn read_to_end(stream: impl Read) -> String {
    let (answer, end) = read_to_any_end(stream);
    assert_eq!(end, Said::End, "after {answer:?}");
    answer
}

/// All that the server still says, and whether an end or a reset came after it.
#[track_caller]
pub fn read_to_any_end(mut stream: impl Read) -> (String, Said) {
    let mut answer = Vec::new();
    let mut part = [0; 4096];
    let end = loop {
        match stream.read(&mut part) {
            Ok(0) => break Said::End,
            Ok(bytes) => answer.extend_from_slice(&part[..bytes]),
            Err(error) if is_reset(&error) => break Said::Reset,
            Err(error) => panic!(
                "no end after {:?}: {error}",
                String::from_utf8_lossy(&answer)
            ),
        }
    };
    (String::from_utf8_lossy(&answer).into_owned(), end)
}

/// The status of an HTTP answer.
#[track_caller]
pub fn status(answer: &str) -> u16 {
    let status = answer
        .strip_prefix("HTTP/1.1 ")
        .and_then(|rest| rest.get(..3));
    status
        .and_then(|status| status.parse().ok())
        .unwrap_or_else(|| panic!("{answer:?}"))
}

/// An opening handshake to be made.
#[derive(Clone)]
pub struct Opening {
    pub address: SocketAddr,
    pub target: String,
    pub host: String,
    pub headers: Vec<(&'static str, String)>,
    pub protocols: Vec<String>,
    /// What comes before everything else, TLS included.
    pub preface: Vec<u8>,
    /// Frames that leave together with the request.
    pub early: Vec<u8>,
    pub deflate: Option<DeflateParameters>,
    pub tls: Option<Arc<tls::ClientConfig>>,
}

impl Opening {
    pub fn new(address: SocketAddr) -> Self {
        Self {
            address,
            target: "/ws".to_owned(),
            host: address.to_string(),
            headers: Vec::new(),
            protocols: Vec::new(),
            preface: Vec::new(),
            early: Vec::new(),
            deflate: None,
            tls: None,
        }
    }

    pub fn target(mut self, target: &str) -> Self {
        self.target = target.to_owned();
        self
    }

    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    pub fn protocol(mut self, name: impl Into<String>) -> Self {
        self.protocols.push(name.into());
        self
    }

    pub fn deflate(mut self, offered: DeflateParameters) -> Self {
        self.deflate = Some(offered);
        self
    }

    fn offer<'a>(&self, protocols: &'a [&'a str]) -> Offer<'a> {
        Offer {
            key: &KEY,
            protocols,
            deflate: self.deflate,
        }
    }

    pub fn tls(mut self, config: &Arc<tls::ClientConfig>) -> Self {
        self.tls = Some(Arc::clone(config));
        self
    }

    pub fn request(&self) -> Vec<u8> {
        let protocols: Vec<_> = self.protocols.iter().map(String::as_str).collect();
        let headers: Vec<_> = self
            .headers
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        let head = RequestHead {
            host: &self.host,
            target: &self.target,
            offer: self.offer(&protocols),
            headers: &headers,
        };
        let mut request = Vec::new();
        head.write(&mut request)
            .expect("a request that can be written");
        request.extend_from_slice(&self.early);
        request
    }

    fn stream(&self) -> Box<dyn Stream> {
        let mut stream = tcp(self.address);
        stream
            .write_all(&self.preface)
            .expect("the preface fits the socket");
        let Some(config) = &self.tls else {
            return Box::new(stream);
        };
        let name = tls::server_name("localhost").expect("a name");
        let tls = rustls::ClientConnection::new(Arc::clone(config), name).expect("a configuration");
        Box::new(TlsStream { tls, tcp: stream })
    }

    /// The status with which the server refuses the handshake, and all it says.
    #[track_caller]
    pub fn refused(&self) -> (u16, String) {
        let mut stream = self.stream();
        stream
            .write_all(&self.request())
            .expect("the request fits the socket");
        let answer = read_to_end(stream);
        (status(&answer), answer)
    }

    /// Makes the handshake, which must succeed.
    #[track_caller]
    pub fn open(&self) -> Client {
        let mut stream = self.stream();
        stream
            .write_all(&self.request())
            .expect("the request fits the socket");
        let offered: Vec<_> = self.protocols.iter().map(String::as_str).collect();
        let mut received = Vec::new();
        loop {
            let mut part = [0; 4096];
            let bytes = stream.read(&mut part).expect("an answer");
            assert!(
                bytes > 0,
                "no answer but {:?}",
                String::from_utf8_lossy(&received)
            );
            received.extend_from_slice(&part[..bytes]);
            let parsed = parse_response(&received, &self.offer(&offered), 16 * 1024);
            let text = String::from_utf8_lossy(&received);
            let Some(response) = parsed.unwrap_or_else(|error| panic!("{error}: {text}")) else {
                continue;
            };
            received.drain(..response.head_bytes);
            let mut reader = MessageReader::new(Role::Client, usize::MAX);
            if response.deflate.is_some() {
                reader = reader.with_compression();
            }
            let keeps_context = response
                .deflate
                .is_some_and(|agreed| !agreed.server_no_context_takeover);
            return Client {
                stream,
                received,
                reader,
                protocol: response.protocol,
                deflate: response.deflate,
                decompressor: Decompressor::new(15, keeps_context),
                compressed: 0,
            };
        }
    }
}

/// What the server said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    Text(String),
    Binary(Vec<u8>),
    Ping(Vec<u8>),
    Pong(Vec<u8>),
    Close(Option<u16>, String),
    /// The orderly end of the stream; under TLS after a close_notify.
    End,
    /// A reset, or the end of TCP under a TLS stream that has not ended.
    Reset,
}

pub struct Client {
    pub stream: Box<dyn Stream>,
    received: Vec<u8>,
    reader: MessageReader,
    pub protocol: Option<String>,
    /// What was agreed.
    pub deflate: Option<DeflateParameters>,
    decompressor: Decompressor,
    /// Messages that came compressed.
    pub compressed: usize,
}

impl Client {
    pub fn send_bytes(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the server reads");
    }

    pub fn send_text(&mut self, text: &str) {
        self.send_bytes(&text_frame(text));
    }

    pub fn send_binary(&mut self, bytes: &[u8]) {
        self.send_bytes(&frame(OpCode::Binary, bytes));
    }

    pub fn send_close(&mut self, code: CloseCode) {
        self.send_bytes(&close_frame(Some(code)));
    }

    /// Sends a JSON message and gives the answer.
    #[track_caller]
    pub fn ask(&mut self, message: &Value) -> Value {
        self.send_text(&message.to_string());
        self.next_json()
    }

    /// The next message; pings of RFC 6455 before it are passed over.
    #[track_caller]
    pub fn next_json(&mut self) -> Value {
        loop {
            match self.next() {
                Said::Text(text) => return serde_json::from_str(&text).expect("JSON"),
                Said::Ping(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    #[track_caller]
    pub fn next_text(&mut self) -> String {
        match self.next() {
            Said::Text(text) => text,
            other => panic!("{other:?}"),
        }
    }

    /// The close that ends what the server says, whatever came before it.
    #[track_caller]
    pub fn close_after_all(&mut self) -> (Option<u16>, String) {
        loop {
            match self.next() {
                Said::Close(code, reason) => return (code, reason),
                end @ (Said::End | Said::Reset) => panic!("no close but {end:?}"),
                _ => {}
            }
        }
    }

    /// The server closes with `code`, at once, and ends the stream when it is answered.
    #[track_caller]
    pub fn assert_closed(&mut self, code: CloseCode) {
        let close = self.next();
        assert!(
            matches!(close, Said::Close(Some(c), _) if c == code.value()),
            "{close:?}"
        );
        // The server still listens, though to nothing but the end.
        self.send_bytes(&close_frame(Some(code)));
        assert_eq!(self.next(), Said::End);
    }

    /// The next thing the server says, waited for.
    #[track_caller]
    pub fn next(&mut self) -> Said {
        loop {
            let mut input = Input::new(&mut self.received);
            let said = match self
                .reader
                .read(&mut input)
                .expect("a server that keeps the rules")
            {
                None => None,
                Some(Event::Text(text)) => Some(Said::Text(text.as_str().to_owned())),
                Some(Event::Binary(bytes)) => Some(Said::Binary(bytes.to_vec())),
                Some(Event::Compressed(message)) => {
                    self.compressed += 1;
                    let mut plain = Vec::new();
                    self.decompressor
                        .decompress(message.bytes, &mut plain, usize::MAX - 1)
                        .expect("a message that inflates");
                    Some(
                        match message.event(&plain).expect("UTF-8 if it is a text") {
                            Event::Text(text) => Said::Text(text.as_str().to_owned()),
                            _ => Said::Binary(plain),
                        },
                    )
                }
                Some(Event::Ping(bytes)) => Some(Said::Ping(bytes.to_vec())),
                Some(Event::Pong(bytes)) => Some(Said::Pong(bytes.to_vec())),
                Some(Event::Close(code, reason)) => {
                    Some(Said::Close(code.map(CloseCode::value), reason.to_owned()))
                }
            };
            let used = input.consumed();
            self.received.drain(..used);
            if let Some(said) = said {
                return said;
            }
            let mut part = [0; 64 * 1024];
            match self.stream.read(&mut part) {
                Ok(0) => return Said::End,
                Ok(bytes) => self.received.extend_from_slice(&part[..bytes]),
                Err(error) if is_reset(&error) => return Said::Reset,
                Err(error) => panic!("the server says nothing: {error}"),
            }
        }
    }
}

fn is_reset(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(
        error.kind(),
        BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof
    )
}

/// A plain or TLS stream.
pub trait Stream: Read + Write + Send {
    fn tcp(&self) -> &TcpStream;

    fn end_writing(&mut self) {
        self.tcp()
            .shutdown(Shutdown::Write)
            .expect("an open socket");
    }
}

impl Stream for TcpStream {
    fn tcp(&self) -> &TcpStream {
        self
    }
}

/// A TLS client that can read while what it wrote is held back, which rustls's own stream does not.
pub struct TlsStream {
    tls: rustls::ClientConnection,
    tcp: TcpStream,
}

impl Stream for TlsStream {
    fn tcp(&self) -> &TcpStream {
        &self.tcp
    }
}

impl Read for TlsStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.tls.reader().read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return result,
            }
            if self.tls.is_handshaking() {
                self.tls.complete_io(&mut self.tcp)?;
                continue;
            }
            self.tls.read_tls(&mut self.tcp)?;
            self.tls.process_new_packets().map_err(io::Error::other)?;
        }
    }
}

impl Write for TlsStream {
    /// Takes all bytes, also if they cannot leave now; `flush` sends what is left.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.tls.is_handshaking() {
            self.tls.complete_io(&mut self.tcp)?;
        }
        let taken = self.tls.writer().write(bytes)?;
        self.flush()?;
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        while self.tls.wants_write() {
            self.tls.write_tls(&mut self.tcp)?;
        }
        Ok(())
    }
}

/// A masked frame.
pub fn frame(opcode: OpCode, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::write_frame(&mut bytes, opcode, payload, Some(MASK));
    bytes
}

/// A masked frame that may be one of several.
pub fn fragment(fin: bool, opcode: OpCode, payload: &[u8]) -> Vec<u8> {
    let mut bytes = frame(opcode, payload);
    bytes[0] = bytes[0] & 0x7F | u8::from(fin) << 7;
    bytes
}

pub fn text_frame(text: &str) -> Vec<u8> {
    frame(OpCode::Text, text.as_bytes())
}

pub fn close_frame(code: Option<CloseCode>) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::write_close(&mut bytes, code, "", Some(MASK));
    bytes
}

const KEY: [u8; 16] = *b"sixteen bytes ok";
pub(crate) const MASK: [u8; 4] = [0x12, 0x34, 0x56, 0x78];

//! A client over a socket, with or without TLS, that waits for what it reads.

use super::{Incoming, Said, close_frame, frame, text_frame};
use serde_json::Value;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;
use tidewire_net::tls;
use tidewire_wire::close::CloseCode;
use tidewire_wire::deflate::DeflateParameters;
use tidewire_wire::frame::OpCode;
use tidewire_wire::handshake::client::{Offer, RequestHead, parse_response};

/// A socket whose reads and writes fail after [`DEADLINE`].
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

/// All that the server still sends, up to an orderly end.
#[track_caller]
pub fn read_to_end(stream: impl Read) -> String {
    let (answer, end) = read_to_any_end(stream);
    assert_eq!(end, Said::End, "after {answer:?}");
    answer
}

/// All that the server still sends, and whether an end or a reset follows.
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
    /// The server's address.
    pub address: SocketAddr,
    /// Path and query; `/ws` by default.
    pub target: String,
    /// The header `Host`; the address by default.
    pub host: String,
    /// Headers besides those of the handshake.
    pub headers: Vec<(&'static str, String)>,
    /// The subprotocols that are offered.
    pub protocols: Vec<String>,
    /// Bytes before everything else, TLS included.
    pub preface: Vec<u8>,
    /// Frames that leave together with the request.
    pub early: Vec<u8>,
    /// The compression that is offered.
    pub deflate: Option<DeflateParameters>,
    /// The certificates that are trusted; without them the connection is plain.
    pub tls: Option<Arc<tls::ClientConfig>>,
}

impl Opening {
    /// An opening handshake with the defaults.
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

    /// Asks for this path and query.
    pub fn target(mut self, target: &str) -> Self {
        self.target = target.to_owned();
        self
    }

    /// Adds a header.
    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// Offers a subprotocol.
    pub fn protocol(mut self, name: impl Into<String>) -> Self {
        self.protocols.push(name.into());
        self
    }

    /// Offers compression.
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

    /// Connects over TLS.
    pub fn tls(mut self, config: &Arc<tls::ClientConfig>) -> Self {
        self.tls = Some(Arc::clone(config));
        self
    }

    /// The bytes of the request, and the frames that leave with it.
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

    /// The status with which the server refuses the handshake, and the whole response.
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
            return Client {
                stream,
                incoming: Incoming::of_server(response.deflate, received),
                protocol: response.protocol,
                deflate: response.deflate,
            };
        }
    }
}

/// A connection past the opening handshake.
pub struct Client {
    /// The socket, for bytes that are not frames.
    pub stream: Box<dyn Stream>,
    incoming: Incoming,
    /// The subprotocol that was agreed on.
    pub protocol: Option<String>,
    /// The compression that was agreed on.
    pub deflate: Option<DeflateParameters>,
}

impl Client {
    /// Sends bytes as they are.
    pub fn send_bytes(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the server reads");
    }

    /// Sends a text message.
    pub fn send_text(&mut self, text: &str) {
        self.send_bytes(&text_frame(text));
    }

    /// Sends a binary message.
    pub fn send_binary(&mut self, bytes: &[u8]) {
        self.send_bytes(&frame(OpCode::Binary, bytes));
    }

    /// Sends a close frame.
    pub fn send_close(&mut self, code: CloseCode) {
        self.send_bytes(&close_frame(Some(code)));
    }

    /// Sends a JSON message and returns the next one.
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

    /// The next message, which must be a text.
    #[track_caller]
    pub fn next_text(&mut self) -> String {
        match self.next() {
            Said::Text(text) => text,
            other => panic!("{other:?}"),
        }
    }

    /// The server's close frame. Messages before it are skipped.
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

    /// The next thing the server sends, waited for.
    #[track_caller]
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Said {
        loop {
            if let Some(said) = self.incoming.next() {
                return said;
            }
            let mut part = [0; 64 * 1024];
            match self.stream.read(&mut part) {
                Ok(0) => return Said::End,
                Ok(bytes) => self.incoming.push(&part[..bytes]),
                Err(error) if is_reset(&error) => return Said::Reset,
                Err(error) => panic!("the server sends nothing: {error}"),
            }
        }
    }

    /// Number of messages that arrived compressed.
    pub fn compressed(&self) -> usize {
        self.incoming.compressed
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
    /// The socket below.
    fn tcp(&self) -> &TcpStream;

    /// Ends this side of the connection; the other side stays open.
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
    /// Buffers as many bytes as rustls accepts, and sends them. After an error, `flush` sends the rest.
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

const KEY: [u8; 16] = *b"sixteen bytes ok";

/// The time after which a test has failed. Nothing waits that long when it works.
pub const DEADLINE: Duration = Duration::from_secs(30);

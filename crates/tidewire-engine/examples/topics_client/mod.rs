//! A server with open topics, and a small blocking client for it that costs little beside it.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use tidewire_engine::apps::Sink;
use tidewire_engine::{AccessRules, Config, Limits, Server, StartError, TopicLimits, Topics};
use tidewire_wire::frame::{OpCode, Role, write_frame};
use tidewire_wire::message::{Event, Input, MessageReader};

/// A server with one shard on a free port, on which everyone may have every topic. It neither pings nor limits
/// rates.
pub(crate) fn start() -> Result<Server, StartError> {
    let config = Config {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        shards: 1,
        topics: Topics {
            access: AccessRules::open(),
            // All subscriptions are of one address.
            limits: TopicLimits {
                subscription_bytes_per_owner_max: 1 << 30,
                ..TopicLimits::default()
            },
            ..Topics::default()
        },
        limits: Limits {
            rate_limit_capacity: 0,
            ping_interval_ms: A_DAY_MS,
            idle_timeout_ms: A_DAY_MS,
            ..Limits::default()
        },
        ..Config::default()
    };
    Server::start(config, |_| Sink)
}

/// A session of protocol version 1.
pub(crate) struct Client {
    stream: TcpStream,
    received: Vec<u8>,
    reader: MessageReader,
}

impl Client {
    /// A session that is ready.
    pub(crate) fn connect(address: SocketAddr) -> io::Result<Self> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(DEADLINE))?;
        stream.set_write_timeout(Some(DEADLINE))?;
        stream.write_all(REQUEST)?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte)?;
            head.extend_from_slice(&byte);
        }
        let mut client = Self {
            stream,
            received: Vec::new(),
            reader: MessageReader::new(Role::Client, MESSAGE_BYTES_MAX),
        };
        client.read(1, |message| message.contains("server_ready"))?;
        Ok(client)
    }

    /// Sends frames.
    pub(crate) fn write(&mut self, frames: &[u8]) -> io::Result<()> {
        self.stream.write_all(frames)
    }

    /// Reads N messages or a few more, all of which must be as `is_expected` says; how many there were.
    pub(crate) fn read(
        &mut self,
        count: usize,
        mut is_expected: impl FnMut(&str) -> bool,
    ) -> io::Result<usize> {
        let mut messages = 0;
        let mut part = [0; 64 * 1024];
        while messages < count {
            match self.stream.read(&mut part)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                bytes => self.received.extend_from_slice(&part[..bytes]),
            }
            let mut input = Input::new(&mut self.received);
            while let Some(event) = self.reader.read(&mut input).map_err(io::Error::other)? {
                match event {
                    Event::Text(text) if is_expected(text.as_str()) => messages += 1,
                    other => return Err(io::Error::other(format!("unexpected: {other:?}"))),
                }
            }
            let used = input.consumed();
            self.received.drain(..used);
        }
        Ok(messages)
    }
}

/// Whether an answer says that all topics of its request were dealt with.
pub(crate) fn is_success(message: &str) -> bool {
    message.contains(r#""failed_topics":[]"#)
}

/// The frame that subscribes to topics or, by `unsubscribe`, does the opposite.
pub(crate) fn update_frame(action: &str, topics: impl Iterator<Item = String>) -> Vec<u8> {
    let topics: Vec<String> = topics.map(|topic| format!("\"{topic}\"")).collect();
    let text = format!(
        r#"{{"t":"subscription_update","p":{{"action":"{action}","topics":[{}]}}}}"#,
        topics.join(",")
    );
    let mut frame = Vec::new();
    write_frame(&mut frame, OpCode::Text, text.as_bytes(), Some(MASK));
    frame
}

const REQUEST: &[u8] = b"GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n\
    Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];
const MESSAGE_BYTES_MAX: usize = 16 * 1024 * 1024;
const A_DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// Past it the server is stuck.
const DEADLINE: Duration = Duration::from_secs(60);

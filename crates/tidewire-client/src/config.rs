//! What a client can be told.

use crate::backoff::Reconnect;
use crate::breaker::BreakerConfig;
use crate::endpoints::{Choice, Endpoint};
use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tidewire_wire::format::Format;
use tidewire_wire::session::PUBLIC_KEY_BYTES;

/// The configuration of a [`Client`](crate::Client). [`Config::new`] gives the defaults that each field states.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where to connect; at least one.
    pub endpoints: Vec<Endpoint>,
    /// Which of several endpoints comes next. Default: by weight and health.
    pub choice: Choice,
    /// The circuit breaker of each endpoint. With one endpoint it is open for no longer than [`Reconnect::max`]: there is
    /// no other to go to, and the back-off alone says how often to try.
    pub breaker: BreakerConfig,
    /// Where the token comes from. Default: there is none.
    pub token: Token,
    /// How the token is sent. Default `Authorization: Bearer`.
    pub token_placement: TokenPlacement,
    /// Further headers of the upgrade request. Default: none.
    pub headers: Vec<(String, String)>,
    /// TLS, for `wss://`.
    pub tls: Tls,
    /// How messages are encoded, both ways. Default JSON.
    pub format: Format,
    /// Whether and how messages are compressed. Default: not.
    pub compression: Compression,
    /// Encryption of messages inside the WebSocket. Default: none.
    pub encryption: Encryption,
    /// Signs messages. Default: nothing is signed.
    pub signing: Option<Signing>,
    /// Whether and when a lost connection is opened again; `None` for never. Default: for ever.
    pub reconnect: Option<Reconnect>,
    /// How long a connection may take to be established, from the first byte to `server_hello`. Default 10 s.
    pub connect_timeout: Duration,
    /// How long an answer may take: of subscriptions, publications, calls and others. Default 10 s.
    pub request_timeout: Duration,
    /// After how long a silence the server is given up; zero for never. Default 60 s.
    pub idle_timeout: Duration,
    /// The time between two pings, if it is to be shorter than what the server asks for; at least 100 ms. Default:
    /// what the server asks for, 25 s.
    pub ping_interval: Option<Duration>,
    /// The largest message that is received, in bytes. Default 16 MiB.
    pub message_bytes_max: usize,
    /// What may wait to be sent, in bytes; past it sends wait. Default 4 MiB.
    pub outbox_bytes_max: usize,
    /// What may wait for the application, in bytes; past it the connection is not read. Default 4 MiB.
    pub inbox_bytes_max: usize,
    /// Requests that may be open: those that wait to be sent, for want of a connection, and those that wait for an
    /// answer. One more is refused with [`Error::Full`](crate::error::Error::Full). Default 10,000.
    pub requests_max: usize,
    /// For how long a publication that comes before its turn waits for those before it. Default 5 s.
    pub reorder_window: Duration,
    /// Heed the rate limit that the server announces, so that it refuses nothing. Default true.
    pub rate_limit: bool,
    /// What the client calls itself. Default `tidewire-client/` and the version.
    pub client_version: String,
    /// The queue of messages that are kept until the server has acknowledged them; `None` for clients that send none
    /// such. Default `None`.
    pub queue: Option<Queue>,
}

/// Where a token comes from.
#[derive(Clone, Default)]
pub enum Token {
    /// Nowhere: the server asks for none.
    #[default]
    None,
    /// Always the same.
    Fixed(String),
    /// Asked for before each connection, and when the server says that the token of the session is about to expire, so
    /// that the session goes on with a fresh one. It is asked once at a time: one that takes longer than a connection
    /// may is not asked again, and its answer is for the next.
    Provider(TokenProvider),
}

/// Gives a token; an error is told as the reason why there is no connection, and is tried again later.
pub type TokenProvider =
    Arc<dyn Fn() -> Pin<Box<dyn Future<Output = Result<String, String>> + Send>> + Send + Sync>;

/// How a token is sent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum TokenPlacement {
    /// `Authorization: Bearer …`.
    #[default]
    Header,
    /// A cookie of this name; servers look for `access_token` unless they are told otherwise.
    Cookie(String),
    /// A query parameter of this name, where the server allows it. It may end up in logs of proxies.
    Query(String),
    /// A subprotocol with this prefix, where the server allows it.
    Subprotocol(String),
}

/// Whom to trust.
#[derive(Debug, Clone, Default)]
pub enum Tls {
    /// The roots that browsers trust (those of Mozilla).
    #[default]
    WebRoots,
    /// The certificates in this file alone, PEM.
    CaFile(PathBuf),
    /// This configuration.
    Custom(Arc<tokio_rustls::rustls::ClientConfig>),
}

/// How messages are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compression {
    /// Not at all.
    #[default]
    Off,
    /// As `C:` messages, those of 1,024 bytes and more.
    Zlib,
    /// permessage-deflate, if the server agrees.
    Deflate,
}

/// Encryption of messages inside the WebSocket, for those who do not trust what ends TLS in between.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Encryption {
    /// None.
    #[default]
    Off,
    /// The newest version that both sides speak. A server that does not encrypt is given up.
    On,
    /// Version 1 alone, for servers that know no other.
    VersionOne,
    /// Version 2, with the server whose identity key this is: the uncompressed point. Any other is given up.
    Pinned(Box<[u8; PUBLIC_KEY_BYTES]>),
}

/// What signs messages.
#[derive(Clone)]
pub struct Signing {
    /// The secret of HMAC-SHA256, at least 32 bytes.
    pub secret: Vec<u8>,
    /// Version 1, which covers the payload alone, for servers that know no other. Default false.
    pub version_one: bool,
}

/// Messages that are kept until the server has acknowledged them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queue {
    /// The SQLite file that they are kept in, so that they survive a crash; in memory without one. One client at a
    /// time uses a file. Default: in memory.
    pub path: Option<PathBuf>,
    /// Messages at most. Default 100,000.
    pub messages_max: usize,
    /// Bytes of their payloads at most. Default 64 MiB.
    pub bytes_max: u64,
    /// For how long a message is kept that was not sent; zero for ever. Default: a day.
    pub age_max: Duration,
    /// Messages that may be on their way without an acknowledgement. Default 1,024.
    pub window: usize,
    /// What becomes of messages of which it is not known whether the server took them, because it has forgotten the
    /// client. Default: they are told and dropped.
    pub uncertain: Uncertain,
}

/// What becomes of messages that may or may not have been taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Uncertain {
    /// They are dropped and told: each counts once at most.
    #[default]
    Drop,
    /// They are sent again and told: each counts once at least.
    Resend,
}

impl Config {
    /// The defaults, for the server at `url`, such as `wss://example.com/ws`.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            endpoints: vec![Endpoint::new(url)],
            choice: Choice::default(),
            breaker: BreakerConfig::default(),
            token: Token::None,
            token_placement: TokenPlacement::Header,
            headers: Vec::new(),
            tls: Tls::WebRoots,
            format: Format::Json,
            compression: Compression::Off,
            encryption: Encryption::Off,
            signing: None,
            reconnect: Some(Reconnect::default()),
            connect_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(60),
            ping_interval: None,
            message_bytes_max: 16 * 1024 * 1024,
            outbox_bytes_max: 4 * 1024 * 1024,
            inbox_bytes_max: 4 * 1024 * 1024,
            requests_max: 10_000,
            reorder_window: Duration::from_secs(5),
            rate_limit: true,
            client_version: concat!("tidewire-client/", env!("CARGO_PKG_VERSION")).to_owned(),
            queue: None,
        }
    }

    /// The circuit breaker that each endpoint gets.
    pub(crate) fn effective_breaker(&self) -> BreakerConfig {
        let mut breaker = self.breaker.clone();
        if let (1, Some(reconnect)) = (self.endpoints.len(), &self.reconnect) {
            breaker.open_for = breaker.open_for.min(reconnect.max);
        }
        breaker
    }

    /// The same with a token that is always the same. When it expires, the server ends the session, and the client ends.
    #[must_use]
    pub fn with_token(mut self, token: impl Into<String>) -> Self {
        self.token = Token::Fixed(token.into());
        self
    }

    /// The same with a queue of unacknowledged messages in this file.
    #[must_use]
    pub fn with_queue(mut self, path: impl Into<PathBuf>) -> Self {
        self.queue = Some(Queue {
            path: Some(path.into()),
            ..Queue::default()
        });
        self
    }

    /// The same with a function that gives a token before each connection, and another one before that expires.
    #[must_use]
    pub fn with_token_provider<F, T>(mut self, provider: F) -> Self
    where
        F: Fn() -> T + Send + Sync + 'static,
        T: Future<Output = Result<String, String>> + Send + 'static,
    {
        self.token = Token::Provider(Arc::new(move || Box::pin(provider())));
        self
    }
}

impl Default for Queue {
    fn default() -> Self {
        Self {
            path: None,
            messages_max: 100_000,
            bytes_max: 64 * 1024 * 1024,
            age_max: Duration::from_secs(24 * 3600),
            window: 1_024,
            uncertain: Uncertain::Drop,
        }
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Fixed(_) => "Fixed(..)",
            Self::Provider(_) => "Provider(..)",
        })
    }
}

impl fmt::Debug for Signing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signing")
            .field("version_one", &self.version_one)
            .finish_non_exhaustive()
    }
}

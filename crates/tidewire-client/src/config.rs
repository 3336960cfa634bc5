//! Configuration of a client.

use crate::backoff::Reconnect;
use crate::breaker::BreakerConfig;
use crate::endpoints::{Choice, Endpoint};
use std::fmt;
use std::future::Future;
use std::net::IpAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tidewire_wire::format::Format;
use tidewire_wire::session::PUBLIC_KEY_BYTES;

/// The configuration of a [`Client`](crate::Client). [`Config::new`] has the default of each field.
#[derive(Debug, Clone)]
pub struct Config {
    /// The endpoints of the service; at least one.
    pub endpoints: Vec<Endpoint>,
    /// The choice among several endpoints. Default: by weight and health.
    pub choice: Choice,
    /// The circuit breaker of each endpoint. With a single endpoint it is open for at most [`Reconnect::max`], because
    /// the client has no alternative.
    pub breaker: BreakerConfig,
    /// The source of the token. Default: no token.
    pub token: Token,
    /// The place of the token in the upgrade request. Default `Authorization: Bearer`.
    pub token_placement: TokenPlacement,
    /// Further headers of the upgrade request. Default: none.
    pub headers: Vec<(String, String)>,
    /// TLS, for `wss://`.
    pub tls: Tls,
    /// The encoding of messages in both directions. Default JSON.
    pub format: Format,
    /// The compression of messages. Default: none.
    pub compression: Compression,
    /// Encryption of messages inside the WebSocket. Default: none.
    pub encryption: Encryption,
    /// The signatures of messages. Default: none.
    pub signing: Option<Signing>,
    /// The policy for reconnecting after a lost connection; `None` to never reconnect. Default: without an end.
    pub reconnect: Option<Reconnect>,
    /// The address of this machine to connect from. Default `None`: the system's choice.
    pub source_address: Option<IpAddr>,
    /// The timeout of a connection attempt, from the first byte to `server_hello`. Default 10 s.
    pub connect_timeout: Duration,
    /// The timeout of subscriptions, publications, calls and other requests. Default 10 s.
    pub request_timeout: Duration,
    /// The client closes a connection on which nothing arrives for this time; zero to never close it. Default 60 s.
    pub idle_timeout: Duration,
    /// The interval of pings, if it should be shorter than the interval of the server; at least 100 ms. Default: the
    /// interval of the server, 25 s.
    pub ping_interval: Option<Duration>,
    /// The maximum size of a received message, in bytes. Default 16 MiB.
    pub message_bytes_max: usize,
    /// The limit of the outbox, in bytes; sends wait while it is full. Default 4 MiB.
    pub outbox_bytes_max: usize,
    /// The limit of the inbox, in bytes; the client does not read the socket while it is full. Default 4 MiB.
    pub inbox_bytes_max: usize,
    /// The maximum number of open requests: those that wait for a connection, and those that wait for an answer. A
    /// further one fails with [`Error::Full`](crate::error::Error::Full). Default 10,000.
    pub requests_max: usize,
    /// The time for which a publication that arrives early waits for those before it. Default 5 s.
    pub reorder_window: Duration,
    /// Whether the client keeps within the rate limit that the server announces. Default true.
    pub rate_limit: bool,
    /// The name and version of the client. Default `tidewire-client/` and the version.
    pub client_version: String,
    /// The queue of messages that the client stores until the server acknowledges them; `None` for a client without
    /// acknowledged messages. Default `None`.
    pub queue: Option<Queue>,
}

/// The source of a token.
#[derive(Clone, Default)]
pub enum Token {
    /// No token: the server requires none.
    #[default]
    None,
    /// One token for all connections.
    Fixed(String),
    /// A function that the client calls before each connection, and when the token of the session is about to
    /// expire, so that the session continues with a new one. The client never calls it twice at the same time.
    /// If a call is not complete within the timeout of the connection, its token is used for the next connection.
    Provider(TokenProvider),
}

/// Returns a token. An error fails the connection attempt, and the client calls the function again later.
pub type TokenProvider =
    Arc<dyn Fn() -> Pin<Box<dyn Future<Output = Result<String, String>> + Send>> + Send + Sync>;

/// The place of a token in the upgrade request.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum TokenPlacement {
    /// `Authorization: Bearer …`.
    #[default]
    Header,
    /// A cookie with this name; servers read `access_token` by default.
    Cookie(String),
    /// A query parameter with this name, if the server allows it. Logs of proxies may contain it.
    Query(String),
    /// A subprotocol with this prefix, if the server allows it.
    Subprotocol(String),
}

/// The trusted certificates.
#[derive(Debug, Clone, Default)]
pub enum Tls {
    /// The root certificates of Mozilla, which browsers trust.
    #[default]
    WebRoots,
    /// Only the certificates in this PEM file.
    CaFile(PathBuf),
    /// This configuration of rustls.
    Custom(Arc<tokio_rustls::rustls::ClientConfig>),
}

/// The compression of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compression {
    /// None.
    #[default]
    Off,
    /// Messages of at least 1,024 bytes as `C:` messages.
    Zlib,
    /// permessage-deflate, if the server agrees.
    Deflate,
}

/// Encryption of messages inside the WebSocket, against proxies that terminate TLS.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Encryption {
    /// None.
    #[default]
    Off,
    /// The newest version that both sides support. The client rejects a server that does not encrypt.
    On,
    /// Only version 1, for servers without version 2.
    VersionOne,
    /// Version 2 with the server that has this identity key, an uncompressed point. The client rejects any other
    /// server.
    Pinned(Box<[u8; PUBLIC_KEY_BYTES]>),
}

/// The signatures of messages.
#[derive(Clone)]
pub struct Signing {
    /// The secret of HMAC-SHA256, at least 32 bytes.
    pub secret: Vec<u8>,
    /// Whether to use version 1, which covers only the payload, for servers without version 2. Default false.
    pub version_one: bool,
}

/// The queue of messages that the client stores until the server acknowledges them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queue {
    /// The SQLite file in which messages survive a crash; `None` for a queue in memory. Only one client can use a file
    /// at a time. Default: in memory.
    pub path: Option<PathBuf>,
    /// The maximum number of messages. Default 100,000.
    pub messages_max: usize,
    /// The maximum size of their payloads together, in bytes. Default 64 MiB.
    pub bytes_max: u64,
    /// The time for which an unsent message is stored; zero for no limit. Default: one day.
    pub age_max: Duration,
    /// The maximum number of messages in flight without an acknowledgement. Default 1,024.
    pub window: usize,
    /// The policy for messages that the server may or may not have accepted, because it has forgotten the client.
    /// Default: the client reports and drops them.
    pub uncertain: Uncertain,
}

/// The policy for messages that the server may or may not have accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Uncertain {
    /// The client reports and drops them: each message arrives at most once.
    #[default]
    Drop,
    /// The client reports them and sends them again: each message arrives at least once.
    Resend,
}

impl Config {
    /// The defaults for the server at `url`, such as `wss://example.com/ws`.
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
            source_address: None,
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

    /// The circuit breaker of each endpoint.
    pub(crate) fn effective_breaker(&self) -> BreakerConfig {
        let mut breaker = self.breaker.clone();
        if let (1, Some(reconnect)) = (self.endpoints.len(), &self.reconnect) {
            breaker.open_for = breaker.open_for.min(reconnect.max);
        }
        breaker
    }

    /// Sets one token for all connections. When it expires, the server ends the session, and the client ends.
    #[must_use]
    pub fn with_token(mut self, token: impl Into<String>) -> Self {
        self.token = Token::Fixed(token.into());
        self
    }

    /// Sets a queue of unacknowledged messages in this file.
    #[must_use]
    pub fn with_queue(mut self, path: impl Into<PathBuf>) -> Self {
        self.queue = Some(Queue {
            path: Some(path.into()),
            ..Queue::default()
        });
        self
    }

    /// Sets a function that returns a token before each connection, and a new one before that expires.
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

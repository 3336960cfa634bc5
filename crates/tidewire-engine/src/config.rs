//! What a server can be told.

use crate::auth::AuthConfig;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

/// The configuration of a server. [`Config::default`] gives the defaults that each field states.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where clients connect. Default `127.0.0.1:5006`; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Where the operations listener answers, if anywhere. Default: none.
    pub ops_listen: Option<SocketAddr>,
    /// Event loops, each with a thread of its own. Default: one per core.
    pub shards: usize,
    /// What is spoken inside the WebSocket. Default: version 1.
    pub protocol: Protocol,
    /// Paths that take connections; empty for any. Default `/ws` and `/wse`.
    pub paths: Vec<String>,
    /// How tokens are checked; `None` lets everyone in. Default `None`.
    pub auth: Option<AuthConfig>,
    /// A bad token is told by an error message and close code 4401 after the upgrade, where a browser
    /// can read it, instead of by HTTP 401. Default `false`.
    pub auth_failure_after_upgrade: bool,
    /// Which web pages may connect. Default: those of the same host.
    pub origins: OriginPolicy,
    /// TLS; without it connections are plain. Default `None`.
    pub tls: Option<TlsFiles>,
    /// All limits.
    pub limits: Limits,
}

/// What is spoken inside the WebSocket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// Tidewire's protocol version 1.
    V1,
    /// Plain messages: nothing is said but what the application says.
    Raw,
}

/// Which values of the `Origin` header are accepted. Programs other than browsers send none, which
/// is always accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OriginPolicy {
    /// The host and port of the origin are those of the `Host` header.
    SameHost,
    /// Any page.
    Any,
    /// The same host, or one of these, such as `https://app.example.com`.
    Listed(Vec<String>),
}

/// The files of a TLS server.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    /// The certificate chain, PEM.
    pub certificate: PathBuf,
    /// Its private key, PEM.
    pub key: PathBuf,
}

/// The limits of a server. They hold for each connection unless the name says otherwise. Times are at
/// least one millisecond.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Sessions in all; the next one gets HTTP 503. Default 1,000,000.
    pub connections_max: usize,
    /// Connections that have not finished the opening handshake, in all; further ones wait to be
    /// accepted. Default 512.
    pub handshakes_max: usize,
    /// Time for the opening handshake, TLS included, in milliseconds. Default 10,000.
    pub handshake_timeout_ms: u64,
    /// The head of the upgrade request, in bytes; at most a quarter of a shard's read buffer,
    /// to which more is lowered. Default 16 KiB.
    pub request_head_bytes_max: usize,
    /// A message, also when inflated, in bytes. Default 1 MiB.
    pub message_bytes_max: usize,
    /// Messages that may come at once; 0 for no rate limit. Default 100,000.
    pub rate_limit_capacity: u64,
    /// Messages a second that may come in the long run. Default 10,000.
    pub rate_limit_refill_per_s: u64,
    /// What may wait to be sent, in bytes; past it the connection is closed. Default 16 MiB.
    pub outbox_bytes_max: usize,
    /// Past this many waiting bytes nothing more is read from the connection, until they have left.
    /// At most half of `outbox_bytes_max`, to which more is lowered. Default 1 MiB.
    pub outbox_pause_bytes: usize,
    /// Time between the server's pings, in milliseconds. Default 25,000.
    pub ping_interval_ms: u64,
    /// A connection that is silent for so long is closed, in milliseconds. Default 60,000.
    pub idle_timeout_ms: u64,
    /// How long a peer has to answer a close, in milliseconds. Default 5,000.
    pub close_timeout_ms: u64,
    /// What a client that finds the server full is told to wait, in seconds. Default 5.
    pub retry_after_s: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 5006)),
            ops_listen: None,
            shards: std::thread::available_parallelism().map_or(1, usize::from),
            protocol: Protocol::V1,
            paths: vec!["/ws".to_owned(), "/wse".to_owned()],
            auth: None,
            auth_failure_after_upgrade: false,
            origins: OriginPolicy::SameHost,
            tls: None,
            limits: Limits::default(),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 1_000_000,
            handshakes_max: 512,
            handshake_timeout_ms: 10_000,
            request_head_bytes_max: 16 * 1024,
            message_bytes_max: 1024 * 1024,
            rate_limit_capacity: 100_000,
            rate_limit_refill_per_s: 10_000,
            outbox_bytes_max: 16 * 1024 * 1024,
            outbox_pause_bytes: 1024 * 1024,
            ping_interval_ms: 25_000,
            idle_timeout_ms: 60_000,
            close_timeout_ms: 5_000,
            retry_after_s: 5,
        }
    }
}

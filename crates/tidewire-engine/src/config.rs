//! Configuration of a server.

pub(crate) mod backend;
pub(crate) mod broker;

use crate::auth::AuthConfig;
use crate::auth::api_key::NamedApiKey;
use crate::auth::hosts::HostPolicy;
use crate::auth::network::Network;
use crate::config::backend::BackendConfig;
use crate::config::broker::BrokerConfig;
use crate::model::spelling::OptionSpelling;
use crate::topics::config::Topics;
use crate::topics::producer::Producers;
use crate::topics::remembered::Remembered;
use crate::trace::TraceSink;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use tidewire_wire::forwarded::ForwardedHeader;
use tidewire_wire::secure::NONCES_DEFAULT_MAX;

/// The configuration of a server. [`Config::default`] gives the defaults that each field states.
#[derive(Debug, Clone)]
pub struct Config {
    /// The address for clients. Default `127.0.0.1:5006`; with port 0 the system chooses a free port.
    pub listen: SocketAddr,
    /// The address of the operations listener. Default: none.
    pub ops_listen: Option<SocketAddr>,
    /// The keys of the HTTP API on the operations listener; without one the API is off. Default: none.
    pub ops_api_keys: Vec<NamedApiKey>,
    /// Event loops, each with a thread of its own. Default: one per core.
    pub shards: usize,
    /// The protocol inside the WebSocket. Default: version 1.
    pub protocol: Protocol,
    /// The type of a client's message that has none. Default: none, such a message is refused with `INVALID_MESSAGE`.
    pub default_type: Option<String>,
    /// Other processes of the same user may listen at the same address, if they share it, too: the system
    /// spreads the connections over all of them. Default `false`: an address that is already in use is an
    /// error.
    pub reuse_port: bool,
    /// Paths that accept connections; empty for any. Default `/ws` and `/wse`.
    pub paths: Vec<String>,
    /// Subprotocols of the application: the first of them that a client offers is confirmed, or none. With
    /// an empty list the client's first offer that carries no token is confirmed, whatever it is. One that carries a token
    /// ([`AuthConfig::subprotocol_prefix`]) is confirmed if nothing else is offered. Default: empty.
    pub subprotocols: Vec<String>,
    /// How tokens are checked; `None` lets everyone in. Default `None`.
    pub auth: Option<AuthConfig>,
    /// A bad token is answered by an error message and close code 4401 after the upgrade, where a browser
    /// can read it, instead of by HTTP 401. Default `false`.
    pub auth_failure_after_upgrade: bool,
    /// Which web pages may connect. Default: those of the same host.
    pub origins: OriginPolicy,
    /// By which names the server may be called, here and on the operations listener. Default: on a loopback address without
    /// authentication by names of this machine alone, else by any.
    pub hosts: HostPolicy,
    /// Proxies whose statements about client addresses are believed. Default: none.
    pub proxies: TrustedProxies,
    /// TLS; without it connections are plain. Default `None`.
    pub tls: Option<TlsFiles>,
    /// Encryption of messages inside the WebSocket, for those who do not trust what ends TLS in between.
    /// Only in version 1. Default off.
    pub encryption: Encryption,
    /// The server's identity key: PKCS#8, PEM, P-256. It signs the key exchange with clients that speak
    /// version 2 of the encryption, so that they can detect somebody in between who pretends to be this
    /// server. Default `None`.
    pub identity_key: Option<PathBuf>,
    /// How signatures of messages (`sig`) are checked; without it they are for the application to look
    /// at. Only in version 1. Default `None`.
    pub signing: Option<Signing>,
    /// Topics: who may use them, and what the server stores of each. Default: clients may use none, nothing
    /// is stored.
    pub topics: Topics,
    /// The broker that this server shares topics over with others. Default: none, every topic is
    /// this server's own.
    pub broker: Option<BrokerConfig>,
    /// The backend that events are sent to by HTTP. Default: none.
    pub backend: Option<BackendConfig>,
    /// Where the spans of traces go. Default: nowhere, and there are no spans.
    pub traces: Option<Arc<dyn TraceSink>>,
    /// Detection of repeated messages.
    pub producers: ProducerConfig,
    /// How sessions leave a server that drains.
    pub drain: Drain,
    /// Compression of messages. Default: permessage-deflate off.
    pub compression: Compression,
    /// How options are spelled in log lines and refusals that name one. Default: as keyword arguments.
    pub option_spelling: OptionSpelling,
    /// All limits.
    pub limits: Limits,
}

/// The protocol inside the WebSocket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// Tidewire's protocol version 1.
    V1,
    /// Plain messages: the server sends nothing but the messages of the application.
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

/// Proxies in front of the server. The client address that one of them reports counts as if the client had
/// connected from there: by a PROXY header (version 1 or 2) at the start of the connection, before TLS, or by
/// a header line of the request. Nobody else is believed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TrustedProxies {
    /// Their addresses. Default: none.
    pub networks: Vec<Network>,
    /// The header line that they write. One that they do not write they may hand on as a client has written it, so only
    /// this one is believed. Default `X-Forwarded-For`.
    pub header: ForwardedHeader,
}

/// The files of a TLS server.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    /// The certificate chain, PEM.
    pub certificate: PathBuf,
    /// Its private key, PEM.
    pub key: PathBuf,
}

/// Whether clients can, or must, encrypt their messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Encryption {
    /// They cannot.
    #[default]
    Off,
    /// Those whose `client_hello` has a key do.
    Optional,
    /// Anything but a `client_hello` with a key is refused with `ENCRYPTION_REQUIRED` and close code 1008. Both versions
    /// are accepted; version 1 does not detect messages that somebody repeats, drops or reorders.
    Required,
    /// The same, and a key for version 1 is refused too.
    RequiredV2,
}

impl Encryption {
    /// Whether a session without encryption is refused.
    #[must_use]
    pub fn is_required(self) -> bool {
        matches!(self, Self::Required | Self::RequiredV2)
    }
}

/// How signatures are checked: pings, hellos, key updates and `batch` itself need none, the messages in a
/// batch need one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signing {
    /// The keys that check them.
    pub key: SignatureKey,
    /// Refuse messages without one. A wrong one is refused in any case.
    pub required: bool,
    /// Signatures remembered for 5 to 7 minutes, so that each counts once; while there are more, further signed
    /// messages are refused with `RATE_LIMITED`. One user or, without authentication, one address has at most a quarter.
    /// [`Signing::new`] gives 1,000,000, which is enough for 2,500 signed messages a second, and for 625 of one owner.
    pub nonces_max: usize,
}

/// A key that checks signatures.
#[derive(Clone, PartialEq, Eq)]
pub enum SignatureKey {
    /// The secret of HMAC-SHA256, at least 32 bytes.
    Hmac(Vec<u8>),
    /// An ECDSA public key on P-256, as an uncompressed point.
    Ecdsa([u8; 65]),
}

impl Signing {
    /// Checks signatures with `key`, and refuses messages that have none if `required`.
    #[must_use]
    pub fn new(key: SignatureKey, required: bool) -> Self {
        Self {
            key,
            required,
            nonces_max: NONCES_DEFAULT_MAX,
        }
    }
}

impl std::fmt::Debug for SignatureKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Hmac(_) => "Hmac(..)",
            Self::Ecdsa(_) => "Ecdsa(..)",
        })
    }
}

/// Detection of repeated messages, so that the application receives each once. Only in version 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProducerConfig {
    /// Producers (those who number their messages) that are remembered, in all. Those without a connection
    /// are forgotten for new ones; while all have one, a further one is not kept, and its `server_hello`
    /// reports this. Default 10,000.
    pub producers_max: usize,
    /// For how long a producer without a connection is remembered, in milliseconds. Default 3,600,000, an hour.
    pub producer_ttl_ms: u64,
    /// Messages for the application are dropped if their `id` has arrived before from the same user or,
    /// without authentication, on the same connection. Default `false`.
    pub deduplicate: bool,
    /// Ids remembered for that, in all; the oldest are forgotten first. Default 50,000.
    pub remembered_ids_max: usize,
}

/// How sessions leave a server that drains.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drain {
    /// Sessions that each shard closes in a second; 0 closes a hundred at once and the others evenly in the
    /// first half of the drain's timeout. Default 0.
    pub rate_per_s: u64,
    /// Each client reconnects after a random time of up to this many milliseconds, or longer if otherwise
    /// more than 5,000 a second would return; with 0 clients receive no delay. Only in version 1. Default
    /// 5,000.
    pub reconnect_spread_ms: u64,
}

/// How messages are compressed on their way to clients. Compressed ones from clients are understood in any
/// case: as `C:` in version 1, and by permessage-deflate (RFC 7692) where it was agreed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compression {
    /// Whether and how clients that offer permessage-deflate get it. Default off.
    pub deflate: Deflate,
    /// 1 (fastest) to 9 (smallest). Default 1.
    pub level: u32,
    /// Messages shorter than this go uncompressed, in bytes. Default 1,024.
    pub threshold_bytes: usize,
    /// Log 2 of how far back compressed messages refer, 9 to 15. Default 15.
    pub window_bits: u8,
}

/// The ways to offer permessage-deflate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Deflate {
    /// Not at all.
    #[default]
    Off,
    /// All connections of a shard share one compressor and one decompressor (some 430 KiB a shard); no
    /// message refers to the one before it. Costs no memory per connection, and a message to many is
    /// compressed once.
    Shared,
    /// Each connection keeps what it sent and received (up to 32 KiB of each) to refer to, as far as its
    /// client agrees: smaller messages, for 340 KB a connection after one message and up to 430 KB later,
    /// allocated with the first compressed message of each direction.
    PerConnection,
}

/// The limits of a server. They hold for each connection unless the name of a limit states another scope.
/// Times are at least one millisecond.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Sessions in all; the next one gets HTTP 503. Default 1,000,000.
    pub connections_max: usize,
    /// Connections in the opening handshake that are read, in all. Past it, a further one replaces the oldest
    /// of the address that has the most, or waits if its own address has as many. Default 512.
    pub handshakes_max: usize,
    /// The same of one address; an IPv6 network of 64 bits counts as one. Past it, a further one is accepted but not
    /// read until one of the same address has finished, or has had half a second and gives way to it. Default 256.
    pub handshakes_per_address_max: usize,
    /// Connections that wait so, in all. Past it, the one that has waited for the longest time of the address that has
    /// the most is cut off for a further one, once it has waited for half a second. Default 16,384.
    pub handshakes_parked_max: usize,
    /// Time for the opening handshake, TLS included, in milliseconds. Default 10,000.
    pub handshake_timeout_ms: u64,
    /// The head of the upgrade request, in bytes; at most a quarter of a shard's read buffer,
    /// to which more is lowered. Default 16 KiB.
    pub request_head_bytes_max: usize,
    /// A message, also when inflated, in bytes. Default 1 MiB.
    pub message_bytes_max: usize,
    /// The memory of the messages of one user or, without authentication, of one address that have begun and not
    /// ended, in bytes; beyond it the connection of the oldest ends with close code 4431. Less than 4 KiB of a message
    /// is not counted, and one message always has room. Default 64 MiB.
    pub unfinished_bytes_per_owner_max: usize,
    /// The same for the whole server: whoever has the most loses its oldest. Default 512 MiB.
    pub unfinished_bytes_max: usize,
    /// Messages that may arrive at once; 0 for no rate limit. Default 100,000.
    pub rate_limit_capacity: u64,
    /// Messages a second that may arrive in the long run. Default 10,000.
    pub rate_limit_refill_per_s: u64,
    /// Messages that may have to be refused within `errors_window_ms`; a connection with more of them
    /// receives `CIRCUIT_BREAKER_OPEN` and is closed with code 4430. Refusals by the rate limit do not count.
    /// 0 for no limit. Default 50. Only in version 1.
    pub errors_max: u64,
    /// The time in which `errors_max` errors are forgotten, evenly, in milliseconds. Default 10,000.
    pub errors_window_ms: u64,
    /// The limit of bytes that wait to be sent; beyond it the connection is closed. Default 16 MiB.
    pub outbox_bytes_max: usize,
    /// The limit of bytes that wait for all connections together; shared bytes count once on each shard. Past it a
    /// connection for which more than 64 KiB wait is closed. Default 1 GiB.
    pub outboxes_bytes_max: usize,
    /// Past this many waiting bytes nothing more is read from the connection, until they have left.
    /// At most half of `outbox_bytes_max`, to which more is lowered. Default 1 MiB.
    pub outbox_pause_bytes: usize,
    /// The bytes that the kernel may hold unread of a connection that sends fast: it bounds the rate of a distant peer
    /// to this much in a round trip. 0 leaves it to the kernel, as do systems other than Linux and those that allow less
    /// than 512 KiB (`net.core.rmem_max`). Default 4 MiB.
    pub receive_buffer_bytes_max: usize,
    /// The same of all connections of the server together, in bytes. Each gets an equal part, but at least 64
    /// KiB, which is also what a connection has before it is fast. Linux uses up to twice as much memory.
    /// Default 1 GiB.
    pub receive_buffers_bytes_max: usize,
    /// Time between the server's pings, in milliseconds: pings of RFC 6455 and, in version 1, `ping` messages. Either
    /// answer keeps a silent session. Default 25,000.
    pub ping_interval_ms: u64,
    /// A connection that is silent for so long is closed, in milliseconds. Default 60,000.
    pub idle_timeout_ms: u64,
    /// How long a peer has to answer a close, in milliseconds. Default 5,000.
    pub close_timeout_ms: u64,
    /// A shard that is in one turn of its event loop for longer counts as stuck, in milliseconds: the operations listener
    /// answers `/health` and `/ready` with status 503, and publishers do not wait for it any more. When it goes on, its
    /// sessions are closed with code 1011, because they may have missed something. Default 5,000.
    pub shard_stall_ms: u64,
    /// The time that a client waits if it finds the server full, in seconds. Default 5.
    pub retry_after_s: u64,
    /// How long the application has to answer a call of a client that does not ask for less, in milliseconds; at
    /// most a day, to which more is lowered. Default 10,000.
    pub call_timeout_ms: u64,
    /// Calls that may be open at once, in each direction. Default 100.
    pub calls_per_connection_max: usize,
    /// How much of a shard's time the requests of one user or, without authentication, of one address may
    /// use: of each second N milliseconds, for work that one message can multiply (subscriptions, filters,
    /// recovery, batches, presence). Past it the rest waits for the next second. 0 for no limit. Default 500.
    pub owner_work_ms_per_s: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 5006)),
            ops_listen: None,
            ops_api_keys: Vec::new(),
            shards: std::thread::available_parallelism().map_or(1, usize::from),
            protocol: Protocol::V1,
            default_type: None,
            paths: vec!["/ws".to_owned(), "/wse".to_owned()],
            subprotocols: Vec::new(),
            auth: None,
            auth_failure_after_upgrade: false,
            reuse_port: false,
            origins: OriginPolicy::SameHost,
            hosts: HostPolicy::default(),
            proxies: TrustedProxies::default(),
            tls: None,
            encryption: Encryption::Off,
            identity_key: None,
            signing: None,
            topics: Topics::default(),
            broker: None,
            backend: None,
            traces: None,
            producers: ProducerConfig::default(),
            drain: Drain::default(),
            compression: Compression::default(),
            option_spelling: OptionSpelling::default(),
            limits: Limits::default(),
        }
    }
}

impl Default for ProducerConfig {
    fn default() -> Self {
        Self {
            producers_max: Producers::PRODUCERS_MAX_DEFAULT,
            producer_ttl_ms: Producers::CLOSED_MAX_MS_DEFAULT,
            deduplicate: false,
            remembered_ids_max: Remembered::<()>::IDS_MAX_DEFAULT,
        }
    }
}

impl Default for Drain {
    fn default() -> Self {
        Self {
            rate_per_s: 0,
            reconnect_spread_ms: 5_000,
        }
    }
}

impl Default for Compression {
    fn default() -> Self {
        Self {
            deflate: Deflate::Off,
            level: 1,
            threshold_bytes: 1024,
            window_bits: 15,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 1_000_000,
            handshakes_max: 512,
            handshakes_per_address_max: 256,
            handshakes_parked_max: 16_384,
            handshake_timeout_ms: 10_000,
            request_head_bytes_max: 16 * 1024,
            message_bytes_max: 1024 * 1024,
            unfinished_bytes_per_owner_max: 64 * 1024 * 1024,
            unfinished_bytes_max: 512 * 1024 * 1024,
            rate_limit_capacity: 100_000,
            rate_limit_refill_per_s: 10_000,
            errors_max: 50,
            errors_window_ms: 10_000,
            outbox_bytes_max: 16 * 1024 * 1024,
            outboxes_bytes_max: 1024 * 1024 * 1024,
            outbox_pause_bytes: 1024 * 1024,
            receive_buffer_bytes_max: 4 * 1024 * 1024,
            receive_buffers_bytes_max: 1024 * 1024 * 1024,
            ping_interval_ms: 25_000,
            idle_timeout_ms: 60_000,
            close_timeout_ms: 5_000,
            shard_stall_ms: 5_000,
            retry_after_s: 5,
            call_timeout_ms: 10_000,
            calls_per_connection_max: 100,
            owner_work_ms_per_s: 500,
        }
    }
}

//! The options of `tidewire serve`, and the engine's configuration they make.

use super::front::FrontFlags;
use super::keys::{KeyFlags, secret_of};
use super::layers::{CompressionFlags, SecurityFlags};
use super::topics::{TopicFlags, TopicLimitFlags};
use crate::config_file::Rule;
use crate::failure::Failure;
use crate::sources::Ranks;
use clap::{Args, ValueEnum};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use tidewire_engine::ops::ApiKey;
use tidewire_engine::{Config, Drain, Intake, Limits, OriginPolicy, Protocol, TlsFiles};

/// All options of `serve`. Each is also a variable of the environment and a key of the file.
#[derive(Debug, Args)]
pub(crate) struct ServeFlags {
    /// A TOML file with any of these options, named with underscores
    #[arg(
        long,
        value_name = "FILE",
        env = "TIDEWIRE_CONFIG",
        hide_env_values = true
    )]
    pub(crate) config: Option<PathBuf>,
    /// Where clients connect; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", value_parser = address, default_value = "127.0.0.1:5006")]
    listen: SocketAddr,
    /// Where /health, /ready, /metrics and /stats are answered, without authentication, and the HTTP API
    /// [default: nowhere]
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    ops_listen: Option<SocketAddr>,
    /// A file with the key of the HTTP API, at least 16 visible letters; without it the API is off
    #[arg(long, value_name = "FILE")]
    api_key_file: Option<PathBuf>,
    /// Event loops, each with a thread of its own [default: one per core]
    #[arg(long, value_name = "N")]
    shards: Option<usize>,
    /// What is spoken inside the WebSocket: Tidewire's protocol version 1, which wants a token unless
    /// --no-auth is given, or plain messages for any client
    #[arg(long, value_enum, default_value = "v1")]
    protocol: ProtocolFlag,
    /// What is done with messages: each sent back, or each taken and forgotten
    #[arg(long, value_enum, default_value = "echo")]
    pub(crate) app: App,
    /// A path that takes connections, or `any`; may be given several times
    #[arg(long, value_name = "PATH", value_parser = path, value_delimiter = ',', default_values = ["/ws", "/wse"])]
    path: Vec<String>,
    /// The origin of web pages that may connect besides those of the same host, or `any`; may be given
    /// several times
    #[arg(long, value_name = "ORIGIN", value_parser = origin, value_delimiter = ',')]
    origin: Vec<String>,
    /// A subprotocol of the application that is confirmed to clients that offer it; may be given several
    /// times [default: the client's first offer, whatever it is]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    subprotocol: Vec<String>,
    /// On a signal: how long sessions have to end, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 10_000)]
    pub(crate) drain_timeout_ms: u64,
    /// What is logged to standard error: error, warn, info, debug, trace, or filters such as
    /// `warn,tidewire_engine=debug`
    #[arg(
        long,
        value_name = "LEVEL",
        env = "TIDEWIRE_LOG",
        hide_env_values = true,
        default_value = "info"
    )]
    pub(crate) log_level: String,
    /// End when standard input ends, as it does when the parent process is gone
    #[arg(long, hide = true)]
    pub(crate) stop_with_stdin: bool,
    #[command(flatten)]
    keys: KeyFlags,
    #[command(flatten)]
    tls: TlsFlags,
    #[command(flatten)]
    front: FrontFlags,
    #[command(flatten)]
    security: SecurityFlags,
    #[command(flatten)]
    compression: CompressionFlags,
    #[command(flatten)]
    topics: TopicFlags,
    #[command(flatten)]
    topic_limits: TopicLimitFlags,
    #[command(flatten)]
    sessions: SessionFlags,
    #[command(flatten)]
    limits: LimitFlags,
}

/// The applications that come with the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum App {
    Echo,
    Sink,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ProtocolFlag {
    V1,
    Raw,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "TLS")]
struct TlsFlags {
    /// The certificate chain, PEM; with --tls-key it turns TLS on
    #[arg(long, value_name = "FILE")]
    tls_certificate: Option<PathBuf>,
    /// The certificate's private key, PEM
    #[arg(long, value_name = "FILE")]
    tls_key: Option<PathBuf>,
}

/// The engine's limits under the engine's names, with the engine's defaults.
#[derive(Debug, Args)]
#[command(next_help_heading = "Limits (for each connection unless they say otherwise)")]
struct LimitFlags {
    /// Sessions in all; the next one gets HTTP 503
    #[arg(long, value_name = "N", default_value_t = Limits::default().connections_max)]
    connections_max: usize,
    /// Connections in the opening handshake that are read, in all; past it, the address with the most gives way
    #[arg(long, value_name = "N", default_value_t = Limits::default().handshakes_max)]
    handshakes_max: usize,
    /// The same of one address (IPv6: of a /64); further ones wait for those of their own address
    #[arg(long, value_name = "N", default_value_t = Limits::default().handshakes_per_address_max)]
    handshakes_per_address_max: usize,
    /// Connections that wait so, in all
    #[arg(long, value_name = "N", default_value_t = Limits::default().handshakes_parked_max)]
    handshakes_parked_max: usize,
    /// Time for the opening handshake, TLS included
    #[arg(long, value_name = "MS", default_value_t = Limits::default().handshake_timeout_ms)]
    handshake_timeout_ms: u64,
    /// Size of the head of the upgrade request
    #[arg(long, value_name = "BYTES", default_value_t = Limits::default().request_head_bytes_max)]
    request_head_bytes_max: usize,
    /// Size of a message, also when inflated
    #[arg(long, value_name = "BYTES", default_value_t = Limits::default().message_bytes_max)]
    message_bytes_max: usize,
    /// Messages that may come at once; 0 for no rate limit
    #[arg(long, value_name = "N", default_value_t = Limits::default().rate_limit_capacity)]
    rate_limit_capacity: u64,
    /// Messages a second that may come in the long run
    #[arg(long, value_name = "N", default_value_t = Limits::default().rate_limit_refill_per_s)]
    rate_limit_refill_per_s: u64,
    /// Messages that may have to be refused in --errors-window-ms before the connection is closed; 0 for no limit
    #[arg(long, value_name = "N", default_value_t = Limits::default().errors_max)]
    errors_max: u64,
    /// The time in which so many errors are forgotten
    #[arg(long, value_name = "MS", default_value_t = Limits::default().errors_window_ms)]
    errors_window_ms: u64,
    /// What may wait to be sent before the connection is closed
    #[arg(long, value_name = "BYTES", default_value_t = Limits::default().outbox_bytes_max)]
    outbox_bytes_max: usize,
    /// What may wait for all connections together; past it a connection for which more than 64 KiB wait is closed
    #[arg(long, value_name = "BYTES", default_value_t = Limits::default().outboxes_bytes_max)]
    outboxes_bytes_max: usize,
    /// What may wait to be sent before nothing more is read
    #[arg(long, value_name = "BYTES", default_value_t = Limits::default().outbox_pause_bytes)]
    outbox_pause_bytes: usize,
    /// What the kernel may hold unread of a connection that sends fast; 0 leaves it to the kernel
    #[arg(long, value_name = "BYTES", default_value_t = Limits::default().receive_buffer_bytes_max)]
    receive_buffer_bytes_max: usize,
    /// The same of all connections together; each gets an equal part, but at least 64 KiB
    #[arg(long, value_name = "BYTES", default_value_t = Limits::default().receive_buffers_bytes_max)]
    receive_buffers_bytes_max: usize,
    /// Time between the server's pings
    #[arg(long, value_name = "MS", default_value_t = Limits::default().ping_interval_ms)]
    ping_interval_ms: u64,
    /// Silence after which a connection is closed
    #[arg(long, value_name = "MS", default_value_t = Limits::default().idle_timeout_ms)]
    idle_timeout_ms: u64,
    /// Time a peer has to answer a close
    #[arg(long, value_name = "MS", default_value_t = Limits::default().close_timeout_ms)]
    close_timeout_ms: u64,
    /// Time that an event loop may take for one turn before it counts as stuck
    #[arg(long, value_name = "MS", default_value_t = Limits::default().shard_stall_ms)]
    shard_stall_ms: u64,
    /// Wait that a client is told that finds the server full
    #[arg(long, value_name = "S", default_value_t = Limits::default().retry_after_s)]
    retry_after_s: u64,
    /// How long the application has to answer a call of a client
    #[arg(long, value_name = "MS", default_value_t = Limits::default().call_timeout_ms)]
    call_timeout_ms: u64,
    /// Calls that may be open at once, in each direction
    #[arg(long, value_name = "N", default_value_t = Limits::default().calls_per_connection_max)]
    calls_per_connection_max: usize,
    /// Milliseconds of each second that the requests of one user or, without tokens, of one address may keep a shard
    /// busy with what one message can multiply; 0 for no limit
    #[arg(long, value_name = "MS", default_value_t = Limits::default().owner_work_ms_per_s)]
    owner_work_ms_per_s: u64,
}

/// How repeated messages are told from new ones, and how sessions leave.
#[derive(Debug, Args)]
#[command(next_help_heading = "Repeated messages, and leaving (protocol version 1)")]
struct SessionFlags {
    /// Drop messages for the application whose `id` has come before from the same user
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = false,
          default_missing_value = "true", action = clap::ArgAction::Set)]
    deduplicate: bool,
    /// Ids remembered for that, in all
    #[arg(long, value_name = "N", default_value_t = Intake::default().remembered_ids_max)]
    intake_ids_max: usize,
    /// Producers (those who number their messages) that are remembered, in all
    #[arg(long, value_name = "N", default_value_t = Intake::default().producers_max)]
    producers_max: usize,
    /// How long a producer without a connection is remembered
    #[arg(long, value_name = "MS", default_value_t = Intake::default().producer_ttl_ms)]
    producer_ttl_ms: u64,
    /// Sessions that each event loop closes in a second of a drain; 0 for all in half of --drain-timeout-ms
    #[arg(long, value_name = "N", default_value_t = Drain::default().rate_per_s)]
    drain_rate_per_s: u64,
    /// Clients that have to leave are told to come back after a random time of up to so long; 0 to tell nothing
    #[arg(long, value_name = "MS", default_value_t = Drain::default().reconnect_spread_ms)]
    reconnect_spread_ms: u64,
}

impl ServeFlags {
    /// The configuration of the engine.
    ///
    /// # Errors
    /// A file of a key or secret cannot be read, or options do not fit together.
    pub(crate) fn engine_config(&self, ranks: &Ranks, rules: &[Rule]) -> Result<Config, Failure> {
        let protocol = match self.protocol {
            ProtocolFlag::V1 => Protocol::V1,
            ProtocolFlag::Raw => Protocol::Raw,
        };
        Ok(Config {
            listen: self.listen,
            ops_listen: self.ops_listen,
            ops_api_key: self.api_key()?,
            shards: self.shards.unwrap_or_else(|| Config::default().shards),
            protocol,
            paths: if is_any(&self.path) {
                Vec::new()
            } else {
                self.path.clone()
            },
            auth: self.keys.auth_config(protocol, ranks)?,
            auth_failure_after_upgrade: self.keys.auth_failure_after_upgrade,
            origins: match self.origin.as_slice() {
                [] => OriginPolicy::SameHost,
                origins if is_any(origins) => OriginPolicy::Any,
                origins => OriginPolicy::Listed(origins.to_vec()),
            },
            hosts: self.front.hosts()?,
            proxies: self.front.proxies(),
            tls: self.tls.files()?,
            subprotocols: self.subprotocol.clone(),
            encryption: self.security.encryption(),
            identity_key: self.security.identity_key()?,
            signing: self.security.signing()?,
            intake: self.sessions.intake(),
            drain: self.sessions.drain(),
            compression: self.compression.compression(),
            topics: self.topics.topics(rules, self.topic_limits.limits())?,
            limits: self.limits.limits(),
        })
    }

    fn api_key(&self) -> Result<Option<ApiKey>, Failure> {
        let Some(path) = &self.api_key_file else {
            return Ok(None);
        };
        if self.ops_listen.is_none() {
            return Err(Failure::usage(
                "--api-key-file is of use on the operations listener only: give --ops-listen",
            ));
        }
        let key = ApiKey::new(secret_of(path)?)
            .map_err(|error| Failure::usage(format!("{}: {error}", path.display())))?;
        Ok(Some(key))
    }

    /// The URL that clients connect to, once the port is known.
    pub(crate) fn url(&self, address: SocketAddr) -> String {
        let scheme = if self.tls.tls_certificate.is_some() {
            "wss"
        } else {
            "ws"
        };
        let path = if is_any(&self.path) {
            "/"
        } else {
            self.path.first().map_or("/", String::as_str)
        };
        format!("{scheme}://{address}{path}")
    }
}

impl TlsFlags {
    fn files(&self) -> Result<Option<TlsFiles>, Failure> {
        match (&self.tls_certificate, &self.tls_key) {
            (None, None) => Ok(None),
            (Some(certificate), Some(key)) => Ok(Some(TlsFiles {
                certificate: certificate.clone(),
                key: key.clone(),
            })),
            (Some(_), None) => Err(Failure::usage(
                "--tls-certificate needs its key: give --tls-key",
            )),
            (None, Some(_)) => Err(Failure::usage(
                "--tls-key needs its certificate: give --tls-certificate",
            )),
        }
    }
}

impl LimitFlags {
    fn limits(&self) -> Limits {
        Limits {
            connections_max: self.connections_max,
            handshakes_max: self.handshakes_max,
            handshakes_per_address_max: self.handshakes_per_address_max,
            handshakes_parked_max: self.handshakes_parked_max,
            handshake_timeout_ms: self.handshake_timeout_ms,
            request_head_bytes_max: self.request_head_bytes_max,
            message_bytes_max: self.message_bytes_max,
            rate_limit_capacity: self.rate_limit_capacity,
            rate_limit_refill_per_s: self.rate_limit_refill_per_s,
            errors_max: self.errors_max,
            errors_window_ms: self.errors_window_ms,
            outbox_bytes_max: self.outbox_bytes_max,
            outboxes_bytes_max: self.outboxes_bytes_max,
            outbox_pause_bytes: self.outbox_pause_bytes,
            receive_buffer_bytes_max: self.receive_buffer_bytes_max,
            receive_buffers_bytes_max: self.receive_buffers_bytes_max,
            ping_interval_ms: self.ping_interval_ms,
            idle_timeout_ms: self.idle_timeout_ms,
            close_timeout_ms: self.close_timeout_ms,
            shard_stall_ms: self.shard_stall_ms,
            retry_after_s: self.retry_after_s,
            call_timeout_ms: self.call_timeout_ms,
            calls_per_connection_max: self.calls_per_connection_max,
            owner_work_ms_per_s: self.owner_work_ms_per_s,
        }
    }
}

impl SessionFlags {
    fn intake(&self) -> Intake {
        Intake {
            producers_max: self.producers_max,
            producer_ttl_ms: self.producer_ttl_ms,
            deduplicate: self.deduplicate,
            remembered_ids_max: self.intake_ids_max,
        }
    }

    fn drain(&self) -> Drain {
        Drain {
            rate_per_s: self.drain_rate_per_s,
            reconnect_spread_ms: self.reconnect_spread_ms,
        }
    }
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.to_socket_addrs()
        .ok()
        .and_then(|mut found| found.next())
        .ok_or_else(|| {
            "expected an address and a port, such as 127.0.0.1:5006 or [::]:5006".to_owned()
        })
}

fn path(text: &str) -> Result<String, String> {
    if text.starts_with('/') || text == ANY {
        Ok(text.to_owned())
    } else {
        Err("expected a path that starts with a slash, or `any`".to_owned())
    }
}

fn origin(text: &str) -> Result<String, String> {
    let is_origin = text.split_once("://").is_some_and(|(scheme, host)| {
        !scheme.is_empty() && !host.is_empty() && !host.contains('/')
    });
    if is_origin || text == ANY {
        Ok(text.to_owned())
    } else {
        Err("expected an origin such as https://app.example.com (no path), or `any`".to_owned())
    }
}

fn is_any(values: &[String]) -> bool {
    values.iter().any(|value| value == ANY)
}

const ANY: &str = "any";

//! Test server: an HTTP server to try load on, with configurable behaviour, which counts its
//! responses.
//!
//! It speaks HTTP/1.1 and HTTP/2: over TLS as ALPN decides, without it as the client's first bytes do. Every path is
//! answered with the same response; `/ws` of HTTP/1.1 echoes WebSocket messages; [`COUNTS_PATH`]
//! returns the counts as JSON, so that a load generator can compare both sides.

mod answers;
mod connection;
mod counts;
mod delay;
mod echo;
mod shard;
mod stalls;
mod streams;

pub use counts::{Bytes, Connections, Counts, Messages, Requests};
pub use delay::{Delay, DelayError};
pub use stalls::Stalls;

use counts::Ledger;
use shard::TestShard;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;
use tidewire_net::{Mailbox, Shard, ShardConfig, bind, io_words, tls};

/// The behaviour of a test server.
#[derive(Clone, Debug)]
pub struct Conduct {
    /// The address to listen on; port 0 is any free port. Default `127.0.0.1:7357`.
    pub address: SocketAddr,
    /// Threads, each with an event loop of its own. Default 1; at least 1.
    pub shards: usize,
    /// Bytes of the body of a successful response: `OK`, cut or filled up with dots. Default 2; at
    /// most [`BODY_BYTES_MAX`].
    pub body_bytes: usize,
    /// Whether HTTP/1.1 clients receive the body in chunks of at most 16 KiB. Default no.
    pub chunked: bool,
    /// The delay of a response after its request is complete. Default none.
    pub delay: Delay,
    /// The status of error responses, 200 to 599. Default 500.
    pub error_status: u16,
    /// Percentage of requests that receive an error response. Default 0.
    pub error_percent: f64,
    /// Percentage of requests for which the connection, or the stream of HTTP/2, is closed instead of a response. Default 0.
    pub close_percent: f64,
    /// Bytes per second and connection at which responses are written, in pieces. Default as fast
    /// as possible.
    pub slow_write_bytes_per_s: Option<u64>,
    /// Times in which the whole server does nothing. Default none.
    pub stalls: Option<Stalls>,
    /// The certificate chain and the key, PEM files, for HTTPS. Default plain HTTP.
    pub tls: Option<(PathBuf, PathBuf)>,
}

impl Default for Conduct {
    fn default() -> Self {
        Self {
            address: SocketAddr::from(([127, 0, 0, 1], DEFAULT_PORT)),
            shards: 1,
            body_bytes: 2,
            chunked: false,
            delay: Delay::None,
            error_status: 500,
            error_percent: 0.0,
            close_percent: 0.0,
            slow_write_bytes_per_s: None,
            stalls: None,
            tls: None,
        }
    }
}

/// The reason for which a test server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An invalid value.
    #[error("{0}")]
    Conduct(&'static str),
    /// The certificate or its key is not usable.
    #[error(transparent)]
    Tls(#[from] tls::TlsError),
    /// Listening on the address failed.
    #[error("cannot listen on {address}: {}", io_words(source))]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The system provided no thread or event queue.
    #[error("cannot start an event loop: {0}")]
    System(std::io::Error),
}

/// A running test server; it stops when it is dropped.
#[derive(Debug)]
pub struct TestServer {
    address: SocketAddr,
    is_secure: bool,
    ledgers: Arc<[Ledger]>,
    shards: Vec<(Mailbox<Stop>, Option<JoinHandle<()>>)>,
}

/// The command to a shard to stop.
#[derive(Debug)]
struct Stop;

impl TestServer {
    /// Listens and serves on threads of its own.
    ///
    /// # Errors
    /// An invalid value of `conduct`, or an error of the operating system.
    pub fn start(conduct: &Conduct) -> Result<Self, StartError> {
        check(conduct)?;
        let tls = match &conduct.tls {
            Some((chain, key)) => {
                let config = tls::server_config(chain, key)?;
                Some(tls::server_offering(&config, &["h2", "http/1.1"]))
            }
            None => None,
        };
        let listen_error = |source| StartError::Listen {
            address: conduct.address,
            source,
        };
        let listeners = bind(conduct.address, conduct.shards, BACKLOG).map_err(listen_error)?;
        let address = match listeners.first() {
            Some(listener) => listener.local_addr().map_err(listen_error)?,
            None => return Err(StartError::Conduct("a server needs at least one shard")),
        };
        let ledgers: Arc<[Ledger]> = (0..conduct.shards).map(|_| Ledger::default()).collect();
        let mut server = Self {
            address,
            is_secure: tls.is_some(),
            ledgers,
            shards: Vec::new(),
        };
        let config = ShardConfig {
            outbox_bytes_max: QUEUED_BYTES_MAX + 2 * (conduct.body_bytes + 4096) + (16 << 20),
            ..ShardConfig::default()
        };
        let started = Instant::now();
        for (index, listener) in listeners.into_iter().enumerate() {
            let handler = TestShard::new(conduct, &server.ledgers, index, started);
            let (mut shard, mailbox) = Shard::new(&config, handler).map_err(StartError::System)?;
            shard
                .listen(listener, tls.clone())
                .map_err(StartError::System)?;
            let thread = std::thread::Builder::new()
                .name(format!("test-server-{index}"))
                .spawn(move || {
                    if let Err(error) = shard.run() {
                        tracing::error!(%error, "a shard of the test server has failed");
                    }
                })
                .map_err(StartError::System)?;
            server.shards.push((mailbox, Some(thread)));
        }
        Ok(server)
    }

    /// Its address, with the actual port.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its URL, which ends with a slash.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = if self.is_secure { "https" } else { "http" };
        format!("{scheme}://{}/", self.address)
    }

    /// The URL of the WebSocket echo.
    #[must_use]
    pub fn websocket_url(&self) -> String {
        let scheme = if self.is_secure { "wss" } else { "ws" };
        format!("{scheme}://{}{WEBSOCKET_PATH}", self.address)
    }

    /// Its counts so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        Counts::of(&self.ledgers)
    }

    /// Stops, and returns the counts. Queued responses still leave, for some seconds at most.
    #[must_use]
    pub fn stop(mut self) -> Counts {
        self.join();
        self.counts()
    }

    fn join(&mut self) {
        for (mailbox, _) in &self.shards {
            // A shard that has failed needs no command.
            let _ = mailbox.send(Stop);
        }
        for (_, thread) in &mut self.shards {
            if let Some(thread) = thread.take() {
                let _ = thread.join();
            }
        }
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.join();
    }
}

fn check(conduct: &Conduct) -> Result<(), StartError> {
    let is_percentage = |percent: f64| (0.0..=100.0).contains(&percent);
    let mistake = match conduct {
        Conduct { shards: 0, .. } => "a server needs at least one shard",
        conduct if conduct.body_bytes > BODY_BYTES_MAX => "a body has at most 256 MiB",
        conduct if !(200..=599).contains(&conduct.error_status) => {
            "the status of errors is 200 to 599"
        }
        conduct if !is_percentage(conduct.error_percent) => "the percentage of errors is 0 to 100",
        conduct if !is_percentage(conduct.close_percent) => {
            "the percentage of closed connections is 0 to 100"
        }
        conduct if conduct.error_percent + conduct.close_percent > 100.0 => {
            "the percentages of errors and of closed connections are together at most 100"
        }
        Conduct {
            slow_write_bytes_per_s: Some(0),
            ..
        } => "the rate of slow writes is at least 1 byte per second",
        Conduct {
            stalls: Some(stalls),
            ..
        } if !stalls.are_possible() => {
            "a stall lasts at least 1 ms and less than the time from one stall to the next, which is at most one hour"
        }
        _ => return Ok(()),
    };
    Err(StartError::Conduct(mistake))
}

/// The default port of well-known load testers.
pub const DEFAULT_PORT: u16 = 7357;

/// The largest body of a response.
pub const BODY_BYTES_MAX: usize = 256 << 20;

/// The path of the counts, as JSON. Requests for it are not counted.
pub const COUNTS_PATH: &str = "/.tidewire/counts";

/// The path of the WebSocket echo.
pub const WEBSOCKET_PATH: &str = "/ws";

/// Bytes that may wait for a client before the server stops reading its requests.
const QUEUED_BYTES_MAX: usize = 1 << 20;

/// Connections that wait to be accepted; the system caps it.
const BACKLOG: i32 = 4096;

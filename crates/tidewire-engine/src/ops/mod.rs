//! The operations listener: whether the server lives and what it counts, for probes and for Prometheus,
//! over HTTP on a port of its own.
//!
//! | path | answer |
//! |---|---|
//! | `/health` | 200, or 503 with the shards that are stuck or have ended, JSON |
//! | `/ready` | 200, or 503 also while the server drains, JSON |
//! | `/metrics` | every counter of every shard in Prometheus's text format 0.0.4 |
//! | `/stats` | the same, with the totals and the busiest topics, in JSON; `?slow=10` adds the connections for which the most waits |
//! | `/api/v1/…` | the HTTP API, for those who show its key; `/api/v1/openapi.json` describes it |
//!
//! It has a thread of its own, so that it answers while the shards are busy, and two more for what asks the
//! shards. But for the API nobody is asked for a token: keep the port inside. On a loopback address, requests have to name
//! this machine in `Host`, or a host that is allowed, so that no web page can ask in its own name.

mod api;
mod hosts;
mod listener;
mod office;
mod pages;
mod places;
mod request;

pub use crate::auth::api_key::{ApiKey, InvalidApiKey};
use crate::auth::hosts::HostPolicy;
use crate::counters::Snapshot;
use crate::handle::Handle;
use crate::shard::health::ShardHealth;
use hosts::OpsHosts;
use listener::{Listener, Word};
use office::{Desk, Office};
use serde::Serialize;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use tidewire_net::{Mailbox, Shard, ShardConfig, bind};

/// What is told about. Asked on the listener's thread, once for each request.
pub trait OpsSource: Send + Sync + 'static {
    /// Whether newcomers are welcome; `false` while the server drains.
    fn is_ready(&self) -> bool;

    /// How each shard is, in the order of the shards. Default: nobody looks.
    fn shard_health(&self) -> Vec<ShardHealth> {
        Vec::new()
    }

    /// The counters of each shard, in the order of the shards.
    fn shards(&self) -> Vec<Snapshot>;

    /// How long the server has been running, in seconds.
    fn uptime_s(&self) -> f64;

    /// When it was started, in milliseconds since 1970, UTC.
    fn started_unix_ms(&self) -> u64;

    /// What the topics take now. Default: nothing.
    fn topics_usage(&self) -> TopicsUsage {
        TopicsUsage::default()
    }
}

/// What the topics of a server take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct TopicsUsage {
    /// All histories, in bytes.
    pub history_bytes: u64,
    /// Topics whose position is known.
    pub history_topics: u64,
    /// Histories dropped because all together were too large, since the start.
    pub histories_evicted: u64,
    /// Topics with somebody present.
    pub presence_topics: u64,
    /// Publications that shards have yet to deliver, in bytes.
    pub publication_backlog_bytes: u64,
    /// What subscriptions take, in bytes as estimated.
    pub subscription_bytes: u64,
}

/// A running operations listener. Dropping it stops it.
#[derive(Debug)]
pub struct Ops {
    address: SocketAddr,
    mailbox: Mailbox<Word>,
    threads: Vec<JoinHandle<()>>,
}

impl Ops {
    /// Listens at `address` (port 0 for a free one) and answers from `source`, without the API.
    ///
    /// # Errors
    /// The address is in use, not of this machine or not permitted, or the operating system has no
    /// thread or event queue left.
    pub fn start(address: SocketAddr, source: Arc<dyn OpsSource>) -> io::Result<Self> {
        Self::open(address, source, None, HostPolicy::default())
    }

    /// The same for a running server, with the API for those who show its key.
    ///
    /// # Errors
    /// Those of [`start`](Self::start).
    pub(crate) fn start_for(
        address: SocketAddr,
        source: Arc<dyn OpsSource>,
        handle: Handle,
        key: Option<ApiKey>,
        hosts: HostPolicy,
    ) -> io::Result<Self> {
        let office = Office::new(Arc::clone(&source), handle, key);
        Self::open(address, source, Some(Arc::new(office)), hosts)
    }

    fn open(
        address: SocketAddr,
        source: Arc<dyn OpsSource>,
        office: Option<Arc<Office>>,
        hosts: HostPolicy,
    ) -> io::Result<Self> {
        let mut sockets = bind(address, 1, BACKLOG)?;
        let socket = sockets.pop().ok_or(io::ErrorKind::NotFound)?;
        let address = socket.local_addr()?;
        let config = ShardConfig {
            read_buffer_bytes: READ_BUFFER_BYTES,
            outbox_bytes_max: OUTBOX_BYTES_MAX,
            mailbox_capacity: CONNECTIONS_MAX,
            ..ShardConfig::default()
        };
        let hosts = OpsHosts::new(hosts, address);
        let listener = Listener::new(source, office.clone(), hosts);
        let (mut shard, mailbox) = Shard::new(&config, listener)?;
        let mut threads = Vec::new();
        if let Some(office) = &office {
            let (desk, clerks) = Desk::open(office, &mailbox)?;
            shard.handler_mut().desk = Some(desk);
            threads = clerks;
        }
        shard.listen(socket, None)?;
        let thread = std::thread::Builder::new()
            .name("tidewire-ops".to_owned())
            .spawn(move || {
                if let Err(error) = shard.run() {
                    tracing::error!(%error, "the operations listener has failed");
                }
            })?;
        threads.push(thread);
        Ok(Self {
            address,
            mailbox,
            threads,
        })
    }

    /// Where it answers, with the port that was taken.
    #[must_use]
    pub fn local_address(&self) -> SocketAddr {
        self.address
    }

    /// Stops it and waits for its threads.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for Ops {
    fn drop(&mut self) {
        // A listener that has stopped already is what we want.
        let _ = self.mailbox.send(Word::Stop);
        // The listener's own comes last in the list and has to end first.
        for thread in self.threads.drain(..).rev() {
            if thread.join().is_err() {
                tracing::error!("a thread of the operations listener ended by a panic");
            }
        }
    }
}

/// Connections that may be open at once. The oldest idle one gives way to a further one, which gets HTTP 503 only if none
/// is idle: all wait for an answer, or are sending what their request announced.
pub const CONNECTIONS_MAX: usize = 256;

/// How long a connection may take for one request or wait for the next, in milliseconds.
pub const REQUEST_TIMEOUT_MS: u64 = 5_000;

/// Connections that the kernel may keep until they are accepted.
const BACKLOG: i32 = 256;

/// Holds some requests of the largest size.
const READ_BUFFER_BYTES: usize = 64 * 1024;

/// Holds the largest answer behind those that the peer has not read yet.
const OUTBOX_BYTES_MAX: usize = 64 * 1024 * 1024;

//! The operations listener: whether the server lives and what it counts, for probes and for
//! Prometheus, over HTTP on a port of its own.
//!
//! | path | answer |
//! |---|---|
//! | `/health` | 200, or 503 with the shards that are stuck or have ended, JSON |
//! | `/ready` | 200, or 503 also while the server drains, JSON |
//! | `/metrics` | every counter and histogram of every shard in Prometheus's text format 0.0.4 |
//! | `/stats` | the same, with the totals and the busiest topics, in JSON; `?slow=10` adds the connections for which the most waits |
//! | `/dashboard` | a page that shows all this, for those who log in with a key of the API; live over the WebSocket `/dashboard/ws` |
//! | `/api/v1/…` | the HTTP API, for those who show its key; `/api/v1/openapi.json` describes it |
//!
//! It has a thread of its own, so that it answers while the shards are busy, and two more for what
//! asks the shards. But for the API nobody is asked for a token: keep the port inside. On a
//! loopback address, requests have to name this machine in `Host`, or a host that is allowed, so
//! that no web page can ask in its own name.

mod api;
pub(crate) mod backend_metrics;
mod dashboard;
mod error;
mod feed;
mod guesses;
mod hosts;
pub(crate) mod keys;
mod listener;
mod logins;
mod metrics;
mod pages;
mod places;
mod process;
mod request;
mod routes;
mod source;
mod sums;
mod task;
mod workers;

pub use crate::auth::api_key::{ApiKey, ApiRights, InvalidApiKey, InvalidNamedKey, NamedApiKey};
use crate::auth::hosts::HostPolicy;
use crate::handle::Handle;
use crate::limits::lines::LineLimits;
use crate::model::spelling::OptionSpelling;
use hosts::OpsHosts;
use listener::Listener;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use task::TaskContext;
use tidewire_net::{Mailbox, Shard, ShardConfig, bind, deal};
use workers::{ListenerMail, Workers};

pub use feed::FEED_SOCKETS_MAX;
pub use listener::REQUEST_TIMEOUT_MS;
pub(crate) use pages::stats_and_topics;
pub use places::CONNECTIONS_MAX;
pub use source::{OpsSource, TopicsUsage};

/// A running operations listener. Dropping it stops it.
#[derive(Debug)]
pub struct Ops {
    address: SocketAddr,
    mailbox: Mailbox<ListenerMail>,
    threads: Vec<JoinHandle<()>>,
}

/// The hosts that are accepted, the spelling of the option in advice, and the limits of lines about others.
type HostRules = (HostPolicy, OptionSpelling, Arc<LineLimits>);

impl Ops {
    /// Listens at `address` (port 0 for a free one) and answers from `source`, without the API.
    ///
    /// # Errors
    /// The address is in use, not of this machine or not permitted, or the operating system has no
    /// thread or event queue left.
    pub fn start(address: SocketAddr, source: Arc<dyn OpsSource>) -> io::Result<Self> {
        let mut sockets = bind(address, 1, OPS_BACKLOG)?;
        let socket = sockets.pop().ok_or(io::ErrorKind::NotFound)?;
        let hosts = (
            HostPolicy::default(),
            OptionSpelling::default(),
            Arc::default(),
        );
        Self::open(socket, source, None, hosts)
    }

    /// The same for a running server at a socket that listens, with the API for those who show one of its keys.
    ///
    /// # Errors
    /// The operating system has no thread or event queue left.
    pub(crate) fn start_for(
        socket: TcpListener,
        source: Arc<dyn OpsSource>,
        handle: Handle,
        hosts: HostRules,
    ) -> io::Result<Self> {
        let context = TaskContext::new(handle);
        Self::open(socket, source, Some(Arc::new(context)), hosts)
    }

    fn open(
        socket: TcpListener,
        source: Arc<dyn OpsSource>,
        context: Option<Arc<TaskContext>>,
        (hosts, spelling, lines): HostRules,
    ) -> io::Result<Self> {
        let address = socket.local_addr()?;
        let sockets = deal(&[socket], 1)?;
        let config = ShardConfig {
            read_buffer_bytes: READ_BUFFER_BYTES,
            outbox_bytes_max: OPS_OUTBOX_BYTES_MAX,
            // An answer for each connection, and some for connections that have ended.
            mailbox_capacity: 2 * CONNECTIONS_MAX,
            ..ShardConfig::default()
        };
        let hosts = OpsHosts::new(hosts, spelling, lines, address);
        let listener = Listener::new(source, context.clone(), hosts);
        let (mut shard, mailbox) = Shard::new(&config, listener)?;
        let mut threads = Vec::new();
        if let Some(context) = &context {
            let (workers, clerks) = Workers::open(context, &mailbox)?;
            shard.handler_mut().workers = Some(workers);
            threads = clerks;
        }
        for socket in sockets.into_iter().flatten() {
            shard.listen(socket, None)?;
        }
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

    /// Its address, with the port in use.
    #[must_use]
    pub fn local_address(&self) -> SocketAddr {
        self.address
    }

    /// Accepts nothing more, and asks those who are connected to connect anew with their next request.
    pub(crate) fn stop_listening(&self) {
        // One that has stopped does not listen.
        let _ = self.mailbox.send(ListenerMail::StopListening);
    }

    /// Stops it and waits for its threads.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for Ops {
    fn drop(&mut self) {
        // A listener that has stopped already is what we want.
        let _ = self.mailbox.send(ListenerMail::Stop);
        // The listener's own thread is the last in the list and has to end first.
        for thread in self.threads.drain(..).rev() {
            if thread.join().is_err() {
                tracing::error!("a thread of the operations listener ended by a panic");
            }
        }
    }
}

/// Connections that the kernel may keep until they are accepted.
pub(crate) const OPS_BACKLOG: i32 = 256;

/// Holds some requests of the largest size.
const READ_BUFFER_BYTES: usize = 64 * 1024;

/// Holds the largest answer behind those that the peer has not read yet.
const OPS_OUTBOX_BYTES_MAX: usize = 64 * 1024 * 1024;

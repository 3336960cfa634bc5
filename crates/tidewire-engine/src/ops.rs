//! The operations listener: whether the server lives and what it counts, for probes and for Prometheus,
//! over HTTP on a port of its own.
//!
//! | path | answer |
//! |---|---|
//! | `/health` | 200 while the process lives, JSON |
//! | `/ready` | 200, or 503 while the server drains, JSON |
//! | `/metrics` | every counter of every shard in Prometheus's text format 0.0.4 |
//! | `/stats` | the same, with the totals, in JSON |
//!
//! It has a thread of its own, so that it answers while the shards are busy. Nobody is asked for a token:
//! keep the port inside.

mod listener;
mod pages;
mod request;

use crate::counters::Snapshot;
use listener::{Listener, Stop};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use tidewire_net::{Mailbox, Shard, ShardConfig, bind};

/// What is told about. Asked on the listener's thread, once for each request.
pub trait OpsSource: Send + Sync + 'static {
    /// Whether newcomers are welcome; `false` while the server drains.
    fn is_ready(&self) -> bool;

    /// The counters of each shard, in the order of the shards.
    fn shards(&self) -> Vec<Snapshot>;

    /// How long the server has been running, in seconds.
    fn uptime_s(&self) -> f64;

    /// When it was started, in milliseconds since 1970, UTC.
    fn started_unix_ms(&self) -> u64;
}

/// A running operations listener. Dropping it stops it.
#[derive(Debug)]
pub struct Ops {
    address: SocketAddr,
    mailbox: Mailbox<Stop>,
    thread: Option<JoinHandle<()>>,
}

impl Ops {
    /// Listens at `address` (port 0 for a free one) and answers from `source`.
    ///
    /// # Errors
    /// The address is in use, not of this machine or not permitted, or the operating system has no
    /// thread or event queue left.
    pub fn start(address: SocketAddr, source: Arc<dyn OpsSource>) -> io::Result<Self> {
        let mut sockets = bind(address, 1, BACKLOG)?;
        let socket = sockets.pop().ok_or(io::ErrorKind::NotFound)?;
        let address = socket.local_addr()?;
        let config = ShardConfig {
            read_buffer_bytes: READ_BUFFER_BYTES,
            outbox_bytes_max: OUTBOX_BYTES_MAX,
            mailbox_capacity: 1,
        };
        let (mut shard, mailbox) = Shard::new(&config, Listener::new(source))?;
        shard.listen(socket, None)?;
        let thread = std::thread::Builder::new()
            .name("tidewire-ops".to_owned())
            .spawn(move || {
                if let Err(error) = shard.run() {
                    tracing::error!(%error, "the operations listener has failed");
                }
            })?;
        Ok(Self {
            address,
            mailbox,
            thread: Some(thread),
        })
    }

    /// Where it answers, with the port that was taken.
    #[must_use]
    pub fn local_address(&self) -> SocketAddr {
        self.address
    }

    /// Stops it and waits for its thread.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for Ops {
    fn drop(&mut self) {
        // A listener that has stopped already is what we want.
        let _ = self.mailbox.send(Stop);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the operations listener ended by a panic");
        }
    }
}

/// Connections that may be open at once; the next one gets HTTP 503.
pub const CONNECTIONS_MAX: usize = 256;

/// How long a connection may take for one request or wait for the next, in milliseconds.
pub const REQUEST_TIMEOUT_MS: u64 = 5_000;

/// Connections that the kernel may keep until they are accepted.
const BACKLOG: i32 = 256;

/// Holds some requests of the largest size.
const READ_BUFFER_BYTES: usize = 64 * 1024;

/// What may wait for a peer that asks and does not read; past it the connection ends.
const OUTBOX_BYTES_MAX: usize = 4 * 1024 * 1024;

//! Listening sockets: those that a server opens, those that it is given, and their hand-over to another process.

use super::{Server, StartError};
use crate::clock::after;
use crate::config::Config;
use crate::handle::Handle;
use crate::ops::OPS_BACKLOG;
use crate::shard::mailbox::Mail;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidewire_net::{Handler, Shard, bind, bind_shared, deal, tls};

/// Sockets at which a server listens. An empty value stands for those that it opens itself.
#[derive(Debug, Default)]
pub struct ListeningSockets {
    /// For clients, of one address. None: the server opens one per shard at [`Config::listen`].
    pub clients: Vec<TcpListener>,
    /// For the operations listener. None: the server opens one at [`Config::ops_listen`], if that is set.
    pub operations: Option<TcpListener>,
    /// The server opens none for clients: all of them are [handed over](Handle::adopt).
    pub adopts_only: bool,
}

impl ListeningSockets {
    /// These, and those that are missing.
    pub(super) fn opened(mut self, config: &Config) -> Result<Self, StartError> {
        if self.clients.is_empty() && !self.adopts_only {
            let bind = if config.reuse_port { bind_shared } else { bind };
            let address = config.listen;
            self.clients = bind(address, config.shards, BACKLOG)
                .map_err(|source| StartError::Listen { address, source })?;
        }
        if let (None, Some(address)) = (&self.operations, config.ops_listen) {
            self.operations = bind(address, 1, OPS_BACKLOG)
                .map_err(|source| StartError::Listen { address, source })?
                .pop();
        }
        Ok(self)
    }

    /// Hands those for clients to the shards; their address.
    pub(super) fn listen<H: Handler>(
        &self,
        shards: &mut [Shard<H>],
        tls: Option<&Arc<tls::ServerConfig>>,
    ) -> io::Result<SocketAddr> {
        let Some(first) = self.clients.first() else {
            return Ok(NOWHERE);
        };
        let hands = deal(&self.clients, shards.len())?;
        for (shard, hand) in shards.iter_mut().zip(hands) {
            for listener in hand {
                shard.listen(listener, tls.cloned())?;
            }
        }
        first.local_addr()
    }
}

/// The address of a server that listens nowhere.
const NOWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

impl Server {
    /// The sockets at which this server listens, for another process that is to listen at them, too.
    #[must_use]
    pub fn sockets(&self) -> &ListeningSockets {
        &self.sockets
    }

    /// Leaves the sockets to another process that has them, too, and drains: nothing more is accepted, so that
    /// new connections wait in the queues of the sockets for the other process; the opening handshakes that have begun are
    /// finished; then every session receives its time to reconnect, as by [`drain`](Self::drain). Returns how many
    /// sessions were left after `timeout`.
    pub fn hand_over(mut self, timeout: Duration) -> usize {
        let deadline = after(timeout);
        self.sockets = ListeningSockets::default();
        if let Some(ops) = &self.ops {
            ops.stop_listening();
        }
        let handshakes_until = Instant::now() + (timeout / 2).min(HANDSHAKES_WAIT);
        stop_listening(&self.handle, handshakes_until);
        while opening(&self.handle, handshakes_until) > 0 && Instant::now() < handshakes_until {
            std::thread::sleep(HANDSHAKES_POLL);
        }
        self.drain(deadline.saturating_duration_since(Instant::now()))
    }
}

/// Asks each shard to close its listener. If the mailbox of a shard is full, it retries until there is room.
fn stop_listening(handle: &Handle, deadline: Instant) {
    for shard in 0..handle.shards() {
        while handle.post(shard, Mail::StopListening).is_err()
            && !handle.is_stopped()
            && Instant::now() < deadline
        {
            std::thread::sleep(HANDSHAKES_POLL);
        }
    }
}

/// Connections that are accepted but no sessions yet.
fn opening(handle: &Handle, deadline: Instant) -> usize {
    let shards = 0..handle.shards();
    let counts = shards.filter_map(|shard| handle.ask(shard, deadline, |view| view.opening()).ok());
    counts.sum()
}

/// Connections that the kernel may keep until they are accepted, at each socket.
const BACKLOG: i32 = 4096;

/// How long a hand-over waits at most for opening handshakes.
const HANDSHAKES_WAIT: Duration = Duration::from_secs(5);

const HANDSHAKES_POLL: Duration = Duration::from_millis(10);

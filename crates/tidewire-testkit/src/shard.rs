//! A shard on a thread of its own, for servers that tests write as a [`Handler`].

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use tidewire_net::{Handler, Mailbox, Shard, ShardConfig, tls};

/// A running shard. It stops when it is dropped.
pub struct ShardThread {
    /// The address on which it listens.
    pub address: SocketAddr,
    is_secure: bool,
    mailbox: Mailbox<()>,
    thread: Option<JoinHandle<()>>,
}

impl ShardThread {
    /// Starts a shard that listens at `address`, whose port may be 0, with TLS if `tls` is given.
    ///
    /// The handler stops its shard when it receives a mail.
    ///
    /// # Panics
    /// The address cannot be bound.
    pub fn start(
        handler: impl Handler<Mail = ()> + Send + 'static,
        address: SocketAddr,
        tls: Option<Arc<tls::ServerConfig>>,
    ) -> Self {
        let is_secure = tls.is_some();
        let (mut shard, mailbox) =
            Shard::new(&ShardConfig::default(), handler).expect("an event loop");
        let listener = tidewire_net::bind(address, 1, 4096)
            .expect("a free port")
            .remove(0);
        let address = listener.local_addr().expect("a bound socket");
        shard.listen(listener, tls).expect("an event loop");
        let run = move || drop(shard.run().expect("an event loop that works"));
        Self {
            address,
            is_secure,
            mailbox,
            thread: Some(std::thread::spawn(run)),
        }
    }

    /// The WebSocket URL of the server.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = if self.is_secure { "wss" } else { "ws" };
        format!("{scheme}://{}/ws", self.address)
    }

    /// Waits until the handler stops the shard by itself.
    pub fn wait(mut self) {
        if let Some(thread) = self.thread.take() {
            thread.join().expect("a handler that does not panic");
        }
    }
}

impl Drop for ShardThread {
    fn drop(&mut self) {
        let _ = self.mailbox.send(());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Any free port of this machine.
pub const LOOPBACK: SocketAddr = SocketAddr::V4(std::net::SocketAddrV4::new(
    std::net::Ipv4Addr::LOCALHOST,
    0,
));

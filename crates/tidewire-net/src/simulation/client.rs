//! The test's end of a simulated connection.

use crate::id::ConnectionId;
use crate::simulated::{End, Wire, lock};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

/// A client of a simulated shard. Its actions happen at the driver's current time. When it is dropped, it
/// ends the connection, and answers later bytes with a reset.
#[derive(Debug)]
pub struct ClientEnd {
    number: usize,
    wire: Arc<Mutex<Wire>>,
}

/// How the shard's side of a connection has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The shard has closed it, and everything that it had sent has arrived.
    Closed,
    /// By a reset; the bytes under way are lost.
    Reset,
}

impl ClientEnd {
    pub(super) fn new(number: usize, wire: Arc<Mutex<Wire>>) -> Self {
        Self { number, wire }
    }

    /// Which connection of the network it is: 0 for the first, and no number twice.
    #[must_use]
    pub fn number(&self) -> usize {
        self.number
    }

    /// The address that the shard sees.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        lock(&self.wire).address
    }

    /// The name that the shard has given the connection, once it has accepted it.
    #[must_use]
    pub fn connection(&self) -> Option<ConnectionId> {
        lock(&self.wire).id
    }

    /// Sends bytes, however many: what the pipe does not hold waits here. `false` after
    /// [`close`](Self::close) and after a reset.
    pub fn send(&self, bytes: &[u8]) -> bool {
        let mut wire = lock(&self.wire);
        if wire.client.reset || wire.up.end != End::Open {
            return false;
        }
        wire.up.waiting.extend(bytes);
        wire.touch();
        true
    }

    /// Bytes that [`send`](Self::send) was given and the shard has not read.
    #[must_use]
    pub fn unread_bytes(&self) -> usize {
        let wire = lock(&self.wire);
        wire.up.waiting.len() + wire.up.held_bytes()
    }

    /// The bytes that have arrived since the last call.
    #[must_use]
    pub fn receive(&self) -> Vec<u8> {
        std::mem::take(&mut lock(&self.wire).client.received)
    }

    /// Ends what it sends, after everything before. It goes on receiving.
    pub fn close(&self) {
        let mut wire = lock(&self.wire);
        if wire.up.end == End::Open {
            wire.up.end = End::Written;
            wire.touch();
        }
    }

    /// Breaks the connection: waiting bytes are lost, and so are later ones.
    pub fn reset(&self) {
        let mut wire = lock(&self.wire);
        if !wire.client.reset {
            wire.client.resets = true;
            wire.reset_client();
            wire.touch();
        }
    }

    /// Reads nothing from now on, so that the pipe fills; or goes on reading.
    pub fn stall(&self, stalled: bool) {
        let mut wire = lock(&self.wire);
        wire.client.is_stalled = stalled;
        if !stalled {
            wire.read_by_client();
        }
        wire.touch();
    }

    /// How the shard's side has ended, if it has and the client has read everything before.
    #[must_use]
    pub fn ended(&self) -> Option<Ended> {
        let wire = lock(&self.wire);
        if wire.client.reset {
            Some(Ended::Reset)
        } else {
            let all_read = wire.down.arrived.is_empty();
            (wire.down.end == End::Arrived && all_read).then_some(Ended::Closed)
        }
    }
}

impl Wire {
    /// The client reads the bytes that have arrived.
    pub(super) fn read_by_client(&mut self) {
        if !self.client.gone {
            self.client.received.extend(self.down.arrived.drain(..));
        }
    }
}

impl Drop for ClientEnd {
    fn drop(&mut self) {
        self.close();
        let mut wire = lock(&self.wire);
        wire.client.gone = true;
        wire.client.received = Vec::new();
        wire.touch();
    }
}

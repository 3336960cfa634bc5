//! What a shard calls.

use crate::{ConnectionId, Io, ListenerId};
use std::io;

/// The owner of a shard's connections.
///
/// Every call gets the shard's [`Io`] to answer with. Whatever is written during a call to one
/// connection leaves in one system call when the call returns.
pub trait Handler {
    /// What other threads send to this shard.
    type Mail: Send;

    /// Whether TLS begins on accepted connections only when [`Io::start_tls`] is called, so that what comes before
    /// can be read as it is, and a connection that sends nothing costs no TLS. Asked for each connection.
    fn holds_tls(&self) -> bool {
        false
    }

    /// A connection was accepted at `listener`. With TLS its handshake has not been made yet.
    fn handle_accept(&mut self, io: &mut Io, id: ConnectionId, listener: ListenerId) {
        let (_, _, _) = (io, id, listener);
    }

    /// A connection that [`Io::connect`] started is ready to send; with TLS its handshake is done.
    fn handle_connect(&mut self, io: &mut Io, id: ConnectionId) {
        let (_, _) = (io, id);
    }

    /// Bytes arrived. Returns how many were used; the rest comes again at the front of the next call,
    /// together with what follows, so it should be short: with half the read buffer the connection
    /// ends. Only a handler that has called [`Io::pause_reading`] may leave more; it comes again after
    /// [`Io::resume_reading`].
    fn handle_data(&mut self, io: &mut Io, id: ConnectionId, data: &mut [u8]) -> usize;

    /// The connection is gone. Called once for each accepted or started connection, also when the
    /// handler closed it. Nothing can be sent to it any more.
    fn handle_close(&mut self, io: &mut Io, id: ConnectionId, closed: Closed);

    /// The time that [`Io::set_timer`] set has come.
    fn handle_timer(&mut self, io: &mut Io, id: ConnectionId) {
        let (_, _) = (io, id);
    }

    /// All that was queued for the connection has been taken by the operating system, after some of
    /// it had to wait.
    fn handle_drained(&mut self, io: &mut Io, id: ConnectionId) {
        let (_, _) = (io, id);
    }

    /// Something from another thread.
    fn handle_mail(&mut self, io: &mut Io, mail: Self::Mail) {
        let (_, _) = (io, mail);
    }

    /// Once per loop turn, after everything else and before the writes of this turn.
    fn handle_turn(&mut self, io: &mut Io) {
        let _ = io;
    }

    /// When [`handle_turn`](Self::handle_turn) wants to run next although nothing else happens, on the
    /// clock of [`std::time::Instant`].
    fn poll_deadline(&self) -> Option<std::time::Instant> {
        None
    }

    /// Whether data of this connection can be taken now. `false` pauses its reading as
    /// [`Io::pause_reading`] does, before anything is read, until [`Io::resume_reading`].
    fn may_read(&mut self, id: ConnectionId) -> bool {
        let _ = id;
        true
    }

    /// The system could not accept a connection, most likely because the process is out of descriptors. Whether the
    /// handler has [aborted](Io::abort) a connection that was of less use, so that it is worth another try at once.
    fn make_room(&mut self, io: &mut Io) -> bool {
        let _ = io;
        false
    }

    /// Whether the next connection in the listeners' queues may be accepted now. Asked again every
    /// turn.
    fn may_accept(&self) -> bool {
        true
    }
}

/// Why a connection is gone.
#[derive(Debug)]
pub enum Closed {
    /// The peer ended its side.
    ByPeer,
    /// The handler called [`Io::close`] or [`Io::abort`], or the shard stopped.
    ByUs,
    /// More waited to be sent than the outbox may hold.
    OutboxOverflow,
    /// It was never established: refused, unreachable, no free port.
    NotConnected(io::Error),
    /// The TLS peer broke the protocol or was refused.
    Tls(rustls::Error),
    /// The operating system reported an error, such as a reset.
    Failed(io::Error),
}

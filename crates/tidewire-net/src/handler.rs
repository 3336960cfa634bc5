//! Handler: the interface that a shard calls.

use crate::closed::Closed;
use crate::id::{ConnectionId, ListenerId};
use crate::io::Io;

/// The owner of a shard's connections.
///
/// Every call receives the shard's [`Io`] for its output. All output to one connection during a call is written
/// with one system call when the call returns.
pub trait Handler {
    /// The mail of other threads to this shard.
    type Mail: Send;

    /// Whether TLS starts on accepted connections only when [`Io::start_tls`] is called, so that the handler can read
    /// earlier bytes, and a silent connection costs no TLS. Called for each connection.
    fn holds_tls(&self) -> bool {
        false
    }

    /// A connection was accepted at `listener`. With TLS its handshake is not done yet.
    fn handle_accept(&mut self, io: &mut Io, id: ConnectionId, listener: ListenerId) {
        let (_, _, _) = (io, id, listener);
    }

    /// A connection that [`Io::connect`] started is ready to send; with TLS its handshake is done.
    fn handle_connect(&mut self, io: &mut Io, id: ConnectionId) {
        let (_, _) = (io, id);
    }

    /// Bytes arrived. Returns the number of used bytes; the next call receives the rest again, followed by new
    /// bytes. The rest should be short: with half the read buffer the connection ends. Only a handler that has
    /// called [`Io::pause_reading`] may leave more, and receives it after [`Io::resume_reading`].
    fn handle_data(&mut self, io: &mut Io, id: ConnectionId, data: &mut [u8]) -> usize;

    /// The connection has ended. Called once for each accepted or started connection, also when the
    /// handler closed it. Nothing can be sent to it any more.
    fn handle_close(&mut self, io: &mut Io, id: ConnectionId, closed: Closed);

    /// The timer of [`Io::set_timer`] is due.
    fn handle_timer(&mut self, io: &mut Io, id: ConnectionId) {
        let (_, _) = (io, id);
    }

    /// The operating system has accepted the whole queue of the connection, after a part had to wait or
    /// [`Io::await_drained`] was called.
    fn handle_drained(&mut self, io: &mut Io, id: ConnectionId) {
        let (_, _) = (io, id);
    }

    /// A mail of another thread.
    fn handle_mail(&mut self, io: &mut Io, mail: Self::Mail) {
        let (_, _) = (io, mail);
    }

    /// Once per loop turn, after everything else and before the writes of this turn.
    fn handle_turn(&mut self, io: &mut Io) {
        let _ = io;
    }

    /// The end of a loop turn, after its writes: for measuring. Nothing can be sent.
    fn handle_turn_end(&mut self, io: &Io) {
        let _ = io;
    }

    /// The time of the next call of [`handle_turn`](Self::handle_turn) without another event, on the clock of
    /// [`std::time::Instant`].
    fn poll_deadline(&self) -> Option<std::time::Instant> {
        None
    }

    /// Whether the handler accepts data of this connection now. `false` pauses its reading like
    /// [`Io::pause_reading`] does, before anything is read, until [`Io::resume_reading`].
    fn may_read(&mut self, id: ConnectionId) -> bool {
        let _ = id;
        true
    }

    /// The system could not accept a connection, most likely because the process has no free descriptors. Returns
    /// whether the handler has [aborted](Io::abort) a less useful connection, so that the shard retries at once.
    fn make_room(&mut self, io: &mut Io) -> bool {
        let _ = io;
        false
    }

    /// Whether the shard may accept the next connection now. Called every turn.
    fn may_accept(&self) -> bool {
        true
    }
}

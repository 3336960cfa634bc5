//! Sending: the cork, the outboxes, and the order and time of writes.

use super::{Io, LINGER_MS};
use crate::closed::Closed;
use crate::id::ConnectionId;
use crate::outbox::Segment;
use crate::places::Places;
use crate::socket::{Phase, Socket};
use crate::stream::Stream;
use std::io::{self, IoSlice};
use std::sync::Arc;
use tidewire_wire::envelope::Priority;

/// When a shared chunk is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    /// At once if nothing waits for this connection: for a chunk that is all it gets in this turn.
    Now,
    /// At the end of the loop turn, in one system call with what else it gets.
    EndOfTurn,
}

impl Io {
    /// The buffer whose content leaves to the connection next, to append whole frames of
    /// [`Priority::Normal`] to; `None` if the connection is gone. It leaves when the handler returns
    /// or, for a connection other than the one the handler was called for, at the end of the loop
    /// turn.
    #[inline]
    pub fn buffer(&mut self, id: ConnectionId) -> Option<&mut Vec<u8>> {
        self.buffer_in(id, Priority::Normal)
    }

    /// The same for another priority, which counts when more is queued than the socket accepts: the highest
    /// leaves first, and frames of one priority in their order.
    #[inline]
    pub fn buffer_in(&mut self, id: ConnectionId, priority: Priority) -> Option<&mut Vec<u8>> {
        if self.current == Some(id) && self.cork.len() >= CORK_BYTES {
            self.write_cork(id);
        }
        let socket = self.sockets.get(id.index())?;
        if socket.id != id || socket.phase != Phase::Open {
            return None;
        }
        if self.current == Some(id) && socket.outbox.is_empty() {
            return Some(&mut self.cork);
        }
        self.buffer_queued(id, priority)
    }

    /// Sends bytes; `false` if the connection is gone.
    #[inline]
    pub fn send(&mut self, id: ConnectionId, bytes: &[u8]) -> bool {
        match self.buffer(id) {
            Some(buffer) => {
                buffer.extend_from_slice(bytes);
                true
            }
            None => false,
        }
    }

    /// Sends a chunk of whole frames that many connections get, without ever copying it; `false` if the
    /// connection is gone. Bytes that the handler sent to the connection before leave before it.
    #[inline]
    pub fn send_shared(
        &mut self,
        id: ConnectionId,
        chunk: &Arc<Vec<u8>>,
        priority: Priority,
        when: When,
    ) -> bool {
        if self.current == Some(id) {
            self.write_cork(id);
        }
        let Some(socket) = self.sockets.get_mut(id.index()) else {
            return false;
        };
        if socket.id != id || socket.phase != Phase::Open {
            return false;
        }
        if when == When::EndOfTurn || socket.flags.blocked || !socket.outbox.is_empty() {
            return self.queue_shared(id, chunk, priority);
        }
        match socket.stream.write(chunk) {
            Ok(bytes) if bytes == chunk.len() => {
                socket.flags.blocked |= socket.stream.wants_write();
                true
            }
            Ok(bytes) => {
                let rest = Segment::Shared(Arc::clone(chunk));
                self.keep_begun(id, rest, bytes, priority)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                socket.flags.blocked = true;
                self.queue_shared(id, chunk, priority)
            }
            Err(error) => {
                self.kill(id, Closed::Failed(error));
                false
            }
        }
    }

    /// Lets the bytes that are queued for a connection now leave before all bytes queued later with a
    /// priority less than critical.
    pub fn fence(&mut self, id: ConnectionId) {
        if let Some(socket) = self.live_mut(id) {
            socket.outbox.fence();
        }
    }

    /// Writes from the front of `bytes` straight to the socket, without a copy, and returns how many it
    /// accepted: none while something is queued or the connection is gone. After fewer than all,
    /// [`handle_drained`](crate::Handler::handle_drained) is called when there is room again.
    pub fn write_now(&mut self, id: ConnectionId, bytes: &[u8]) -> usize {
        self.write_now_with(id, bytes.len(), |stream| stream.write(bytes))
    }

    /// The same from two slices, one behind the other, in one system call.
    pub fn write_both_now(&mut self, id: ConnectionId, first: &[u8], second: &[u8]) -> usize {
        self.write_now_with(id, first.len() + second.len(), |stream| {
            stream.write_vectored(&[IoSlice::new(first), IoSlice::new(second)])
        })
    }

    /// Writes what is queued for a connection now, not at the end of the turn.
    pub fn flush(&mut self, id: ConnectionId) {
        self.write_now(id, &[]);
    }

    fn write_now_with(
        &mut self,
        id: ConnectionId,
        bytes: usize,
        write: impl FnOnce(&mut Stream) -> io::Result<usize>,
    ) -> usize {
        if self.current == Some(id) {
            self.write_cork(id);
        }
        if self
            .live(id)
            .is_some_and(|socket| !socket.flags.blocked && !socket.outbox.is_empty())
        {
            // Queued for the end of the turn, which would not be reported as drained.
            self.write_socket(id);
        }
        let Some(socket) = self.live_mut(id) else {
            return 0;
        };
        if socket.phase != Phase::Open || socket.flags.blocked || bytes == 0 {
            return 0;
        }
        match write(&mut socket.stream) {
            Ok(taken) => {
                socket.flags.blocked = taken < bytes || socket.stream.wants_write();
                taken
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                socket.flags.blocked = true;
                0
            }
            Err(error) => {
                self.kill(id, Closed::Failed(error));
                0
            }
        }
    }

    /// Has [`handle_drained`](crate::Handler::handle_drained) called once when the socket has accepted all
    /// queued bytes, also if it accepts them at once.
    pub fn await_drained(&mut self, id: ConnectionId) {
        if self.current == Some(id) && !self.cork.is_empty() {
            // Queued, so that its end is reported as that of any other bytes.
            let cork = std::mem::take(&mut self.cork);
            if let Some(queue) = self.buffer_queued(id, Priority::Normal) {
                queue.extend_from_slice(&cork);
            }
            self.cork = cork;
            self.cork.clear();
        }
        if let Some(socket) = self.live_mut(id) {
            socket.flags.is_awaited = !socket.outbox.is_empty();
        }
    }

    /// Bytes that wait until the socket accepts them, of every priority, without those that this call to the
    /// handler has added for the connection it is called for.
    #[must_use]
    pub fn queued_bytes(&self, id: ConnectionId) -> usize {
        self.live(id).map_or(0, |socket| socket.outbox.len())
    }

    /// Whether the socket accepted fewer bytes than it was offered, and has not reported room since.
    #[must_use]
    pub fn is_blocked(&self, id: ConnectionId) -> bool {
        self.live(id).is_some_and(|socket| socket.flags.blocked)
    }

    /// Writes the bytes that the handler sent to the connection it was called for.
    #[inline]
    pub(crate) fn write_cork(&mut self, id: ConnectionId) {
        if self.cork.is_empty() {
            return;
        }
        if let Some(socket) = self.sockets.get_mut(id.index())
            && socket.id == id
            && socket.phase != Phase::Dead
        {
            let result = match socket.stream.write(&self.cork) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
                result => result,
            };
            match result {
                Ok(bytes) if bytes == self.cork.len() => {
                    socket.flags.blocked |= socket.stream.wants_write();
                }
                Ok(bytes) => self.keep_rest(id, bytes),
                Err(error) => self.kill(id, Closed::Failed(error)),
            }
        }
        self.cork.clear();
    }

    /// Writes the queued bytes of a connection and, when all are out, ends a closed one.
    pub(crate) fn write_socket(&mut self, id: ConnectionId) {
        let linger_ms = self.now.monotonic_ms + LINGER_MS;
        let Some(socket) = socket_of(&mut self.sockets, id) else {
            return;
        };
        if matches!(socket.phase, Phase::Dead | Phase::Connecting) {
            return;
        }
        let is_awaited = socket.flags.blocked || socket.flags.is_awaited;
        let waiting_bytes = socket.outbox.len();
        let written = socket.write_outbox(&mut self.spares);
        let own_bytes = socket.outbox.own_bytes();
        let before = std::mem::replace(&mut socket.own_bytes, own_bytes);
        self.ledger.change_own(before, own_bytes);
        match written {
            Ok(true) => {
                socket.flags.is_awaited = false;
                std::mem::take(&mut socket.outbox).recycle(&mut self.spares);
                if socket.phase == Phase::Lingering && !socket.flags.write_ended {
                    socket.flags.write_ended = true;
                    socket.stream.shutdown_write();
                    if socket.flags.read_ended {
                        self.kill(id, Closed::ByPeer);
                    }
                } else if is_awaited && socket.phase == Phase::Open {
                    self.drained.push(id);
                }
            }
            Ok(false) if socket.outbox.len() > self.outbox_bytes_max => {
                self.kill(id, Closed::OutboxOverflow);
            }
            Ok(false) => {
                if socket.phase == Phase::Lingering && socket.outbox.len() < waiting_bytes {
                    let due_ms = linger_ms.min(socket.linger_until_ms);
                    self.put_timer(id, due_ms);
                }
            }
            Err(error) => self.kill(id, Closed::Failed(error)),
        }
    }

    /// Writes the bytes that were queued in this turn, unless the socket has not reported room yet. Returns
    /// the work: about the bytes that it wrote, more where they are encrypted.
    pub(crate) fn write_dirty(&mut self, id: ConnectionId) -> usize {
        let outbox_bytes_max = self.outbox_bytes_max;
        let Some(socket) = self.socket_mut(id) else {
            return 0;
        };
        let waiting_bytes = socket.outbox.len();
        socket.flags.dirty = false;
        let is_blocked = socket.flags.blocked && !socket.flags.writable;
        let waits_for_report = is_blocked && socket.phase == Phase::Open;
        if !waits_for_report || socket.outbox.len() > outbox_bytes_max {
            self.write_socket(id);
        }
        self.count_outbox(id);
        let Some(socket) = self.socket(id) else {
            return waiting_bytes;
        };
        let written = waiting_bytes.saturating_sub(socket.outbox.len());
        if socket.stream.is_tls() {
            written.saturating_mul(TLS_WORK)
        } else {
            written
        }
    }

    /// Puts a blocked socket that has room again into the list of those that are written at the end of the
    /// turn.
    pub(crate) fn write_later(&mut self, id: ConnectionId) {
        let Some(socket) = socket_of(&mut self.sockets, id) else {
            return;
        };
        socket.flags.writable = true;
        if socket.mark_dirty() {
            self.dirty.push(id);
        }
    }

    /// Counts what waits for a connection now. If it is too much together with what waits for the others, and not
    /// little, the connection ends.
    pub(crate) fn count_outbox(&mut self, id: ConnectionId) {
        let Some(socket) = socket_of(&mut self.sockets, id) else {
            return;
        };
        let own_bytes = socket.outbox.own_bytes();
        let before = std::mem::replace(&mut socket.own_bytes, own_bytes);
        let waiting_bytes = socket.outbox.len();
        self.ledger.change_own(before, own_bytes);
        if waiting_bytes > OUTBOX_SHARE_BYTES && self.ledger.is_over() {
            self.kill(id, Closed::OutboxOverflow);
        }
    }

    /// TLS may have answered what it has just read, or be able to send what waited for its handshake.
    pub(crate) fn write_after_tls_read(&mut self, id: ConnectionId) {
        let Some(socket) = self.socket_mut(id) else {
            return;
        };
        if socket.stream.wants_write() {
            socket.flags.blocked = true;
        } else if socket.flags.blocked {
            self.write_socket(id);
        }
    }

    fn buffer_queued(&mut self, id: ConnectionId, priority: Priority) -> Option<&mut Vec<u8>> {
        let socket = socket_of(&mut self.sockets, id)?;
        if socket.mark_dirty() {
            self.dirty.push(id);
        }
        if socket.outbox.len() > self.outbox_bytes_max {
            // Past the limit before the turn has ended: it leaves now or the connection does.
            self.write_socket(id);
        }
        let socket = socket_of(&mut self.sockets, id).filter(|socket| socket.is_live())?;
        Some(socket.outbox.buffer(priority, &mut self.spares))
    }

    fn queue_shared(&mut self, id: ConnectionId, chunk: &Arc<Vec<u8>>, priority: Priority) -> bool {
        let Some(socket) = socket_of(&mut self.sockets, id) else {
            return false;
        };
        let segment = Segment::Shared(Arc::clone(chunk));
        socket.outbox.push(segment, priority, &mut self.spares);
        self.ledger.note_chunk(chunk);
        if socket.mark_dirty() {
            self.dirty.push(id);
        }
        if socket.outbox.len() > self.outbox_bytes_max {
            self.write_socket(id);
            return self.live(id).is_some();
        }
        true
    }

    /// The socket accepted only the first `sent` bytes of the cork.
    #[cold]
    fn keep_rest(&mut self, id: ConnectionId, sent: usize) {
        let mut rest = self.spares.take_buffer();
        rest.extend_from_slice(&self.cork[sent..]);
        if sent > 0 {
            // The rest may begin in the middle of a frame: no other lane may leave before it.
            self.keep_begun(id, Segment::Own(rest), 0, Priority::Normal);
        } else if let Some(socket) = socket_of(&mut self.sockets, id) {
            let segment = Segment::Own(rest);
            socket
                .outbox
                .push(segment, Priority::Normal, &mut self.spares);
            self.write_socket(id);
        }
    }

    /// The socket accepted only the first `sent` bytes of a segment, and nothing else is queued. Returns
    /// whether the connection goes on.
    #[cold]
    fn keep_begun(
        &mut self,
        id: ConnectionId,
        segment: Segment,
        sent: usize,
        priority: Priority,
    ) -> bool {
        let Some(socket) = socket_of(&mut self.sockets, id) else {
            return false;
        };
        socket
            .outbox
            .push_begun(segment, sent, priority, &mut self.spares);
        // Until it would block, after which every system reports that there is room again.
        self.write_socket(id);
        self.live(id).is_some()
    }
}

/// [`Io::socket_mut`], which leaves the other fields free.
fn socket_of(sockets: &mut Places<Socket>, id: ConnectionId) -> Option<&mut Socket> {
    sockets.get_mut(id.index()).filter(|socket| socket.id == id)
}

/// A connection for which no more than this waits does not end because all outboxes together are too large.
pub const OUTBOX_SHARE_BYTES: usize = 64 * 1024;

/// The corked bytes at which a write happens although the handler goes on.
const CORK_BYTES: usize = 256 * 1024;

/// The plain bytes that are counted for one encrypted byte. In a profile, encryption took 1.5 times as long as the
/// kernel's write; the rest is caution.
const TLS_WORK: usize = 4;

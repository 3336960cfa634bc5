//! Socket: the state of one connection in a shard.

use crate::id::ConnectionId;
use crate::outbox::{Outbox, Spares};
use crate::receiving::ReceiveBuffer;
use crate::stream::Stream;
use std::io::{self, IoSlice};

#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) stream: Stream,
    pub(crate) id: ConnectionId,
    pub(crate) phase: Phase,
    /// Received but not used by the handler yet.
    pub(crate) tail: Vec<u8>,
    pub(crate) outbox: Outbox,
    /// The bytes of the outbox in the ledger.
    pub(crate) own_bytes: usize,
    pub(crate) receive_buffer: ReceiveBuffer,
    pub(crate) timer: Timer,
    /// The end of lingering at the latest.
    pub(crate) linger_until_ms: u64,
    pub(crate) flags: Flags,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// TCP or, on a client, TLS is not established.
    Connecting,
    /// Bytes go both ways.
    Open,
    /// Closed by the handler: the queued bytes still leave, then the peer's end is awaited for a while,
    /// because closing a socket with unread bytes would reset it and could destroy the bytes that were sent
    /// last.
    Lingering,
    /// Gone; the handler has not been notified yet.
    Dead,
}

/// A deadline and the entry of the timer wheel that stands for it.
#[derive(Debug)]
pub(crate) struct Timer {
    pub(crate) due_ms: u64,
    /// The earliest entry in the wheel for this socket.
    pub(crate) queued_ms: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Flags {
    /// The handler wants no data now.
    pub(crate) paused: bool,
    /// The kernel has reported data that was not read.
    pub(crate) readable: bool,
    /// The handler goes on after a pause: the bytes that it left unused are handed over again before anything
    /// is read.
    pub(crate) retry: bool,
    /// The kernel has reported the end of the stream, which follows the unread bytes.
    pub(crate) ending: bool,
    /// The socket did not accept all; the rest waits for its report.
    pub(crate) blocked: bool,
    /// The kernel has reported that a blocked socket has room, and nothing has been written since.
    pub(crate) writable: bool,
    /// The handler wants to know when the queue is empty, whether the socket was blocked or not.
    pub(crate) is_awaited: bool,
    /// Waits in the list of sockets to be written at the end of the turn.
    pub(crate) dirty: bool,
    /// Waits in the list of sockets to be read.
    pub(crate) queued: bool,
    /// The end of what we send has been sent.
    pub(crate) write_ended: bool,
    /// The end of what the peer sends has been read.
    pub(crate) read_ended: bool,
}

impl Socket {
    pub(crate) fn new(stream: Stream, id: ConnectionId, phase: Phase) -> Self {
        Self {
            stream,
            id,
            phase,
            tail: Vec::new(),
            outbox: Outbox::default(),
            own_bytes: 0,
            receive_buffer: ReceiveBuffer::default(),
            timer: Timer {
                due_ms: NEVER,
                queued_ms: NEVER,
            },
            linger_until_ms: NEVER,
            flags: Flags::default(),
        }
    }

    /// Neither closed by the handler nor gone.
    pub(crate) fn is_live(&self) -> bool {
        !matches!(self.phase, Phase::Lingering | Phase::Dead)
    }

    /// Writes from the outbox until it is empty (`true`) or the socket accepts no more (`false`).
    pub(crate) fn write_outbox(&mut self, spares: &mut Spares) -> io::Result<bool> {
        let result = self.write_all_of_outbox(spares);
        self.flags.blocked = matches!(result, Ok(false));
        self.flags.writable = false;
        result
    }

    /// Notes that it waits in the list of sockets to be written. Returns whether the caller has to put it there.
    pub(crate) fn mark_dirty(&mut self) -> bool {
        !std::mem::replace(&mut self.flags.dirty, true)
    }

    fn write_all_of_outbox(&mut self, spares: &mut Spares) -> io::Result<bool> {
        while !self.outbox.is_empty() {
            let result = match self.outbox.only() {
                Some(bytes) => self.stream.write(bytes),
                None => {
                    let mut slices = [IoSlice::new(&[]); SLICES_PER_WRITE];
                    let count = self.outbox.slices(&mut slices);
                    self.stream.write_vectored(&slices[..count])
                }
            };
            match result {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => self.outbox.mark_sent(bytes, spares),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        match self.stream.flush() {
            Ok(()) => Ok(!self.stream.waits_for_handshake()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// No deadline.
pub(crate) const NEVER: u64 = u64::MAX;

/// Segments handed to the kernel at a time.
const SLICES_PER_WRITE: usize = 64;

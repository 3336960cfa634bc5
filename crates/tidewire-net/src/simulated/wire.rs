//! One simulated connection, and the shard's end of it.

use super::Faults;
use super::random::Random;
use crate::id::ConnectionId;
use crate::readiness::{ReadOutcome, Readiness};
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The state that all connections of a network share.
#[derive(Debug)]
pub(crate) struct Common {
    pub(crate) faults: Mutex<Faults>,
    /// The connections with which something was done that the network has not looked at.
    touched: Mutex<Vec<usize>>,
}

/// The state of a connection between a client and a shard.
#[derive(Debug)]
pub(crate) struct Wire {
    pub(crate) number: usize,
    pub(crate) shard: usize,
    pub(crate) address: SocketAddr,
    /// From the client to the shard.
    pub(crate) up: Direction,
    /// From the shard to the client.
    pub(crate) down: Direction,
    /// The name that the shard has given it.
    pub(crate) id: Option<ConnectionId>,
    /// The events that the shard has not been notified of.
    pub(crate) report: Readiness,
    pub(crate) blocked: Blocked,
    /// The shard's end knows of a reset, or has closed its socket.
    pub(crate) shard_reset: bool,
    pub(crate) shard_gone: bool,
    pub(crate) client: Client,
    is_touched: bool,
    random: Random,
    common: Arc<Common>,
}

/// The state of the client's end.
#[derive(Debug, Default)]
pub(crate) struct Client {
    pub(crate) received: Vec<u8>,
    /// It reads nothing.
    pub(crate) is_stalled: bool,
    pub(crate) reset: bool,
    /// It has reset the connection, and the network has not sent that.
    pub(crate) resets: bool,
    /// Nobody looks at it any more.
    pub(crate) gone: bool,
}

/// One way of a connection.
#[derive(Debug, Default)]
pub(crate) struct Direction {
    /// Written, but not under way.
    pub(crate) waiting: VecDeque<u8>,
    pub(crate) under_way_bytes: usize,
    /// There, but not read.
    pub(crate) arrived: VecDeque<u8>,
    pub(crate) end: End,
    /// Nothing that is sent from now on arrives before.
    pub(crate) last_due_ms: u64,
}

/// The progress of the end of a direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum End {
    #[default]
    Open,
    /// The writer writes no more.
    Written,
    UnderWay,
    Arrived,
}

/// The reason why a shard's socket accepted less than it was offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blocked {
    No,
    /// Until there is room.
    Full,
    /// Until the network unblocks it.
    Fault,
    /// The same, and the network has chosen the time.
    FaultUntil,
}

/// The shard's end.
#[derive(Debug)]
pub(crate) struct SimulatedSocket(pub(crate) Arc<Mutex<Wire>>);

impl Common {
    pub(crate) fn new(faults: Faults) -> Self {
        Self {
            faults: Mutex::new(faults),
            touched: Mutex::new(Vec::new()),
        }
    }

    pub(crate) fn take_touched(&self, numbers: &mut Vec<usize>) {
        numbers.append(&mut lock(&self.touched));
    }
}

impl Wire {
    pub(crate) fn new(
        number: usize,
        shard: usize,
        address: SocketAddr,
        random: Random,
        common: Arc<Common>,
    ) -> Self {
        Self {
            number,
            shard,
            address,
            up: Direction::default(),
            down: Direction::default(),
            id: None,
            report: Readiness::default(),
            blocked: Blocked::No,
            shard_reset: false,
            shard_gone: false,
            client: Client::default(),
            is_touched: false,
            random,
            common,
        }
    }

    /// The network has to look at this connection.
    pub(crate) fn touch(&mut self) {
        if !self.is_touched {
            self.is_touched = true;
            lock(&self.common.touched).push(self.number);
        }
    }

    pub(crate) fn mark_looked_at(&mut self) {
        self.is_touched = false;
    }

    /// The connection breaks for the shard's end, with what it has not read or sent.
    pub(crate) fn reset_shard(&mut self) {
        self.shard_reset = true;
        self.up.arrived.clear();
        self.down.waiting.clear();
        self.report = Readiness {
            readable: true,
            writable: true,
            ending: true,
        };
    }

    /// The connection breaks for the client's end, which keeps what it has read.
    pub(crate) fn reset_client(&mut self) {
        self.client.reset = true;
        self.up.waiting.clear();
        self.down.arrived.clear();
    }

    /// Nobody will use the connection any more, and nothing is under way.
    pub(crate) fn is_over(&self) -> bool {
        let is_still =
            |direction: &Direction| direction.waiting.is_empty() && direction.under_way_bytes == 0;
        self.shard_gone && self.client.gone && is_still(&self.up) && is_still(&self.down)
    }

    /// How many of `bytes` the socket accepts now.
    fn take(&mut self, bytes: usize) -> io::Result<usize> {
        if self.shard_reset {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        if bytes == 0 {
            return Ok(0);
        }
        if matches!(self.blocked, Blocked::Fault | Blocked::FaultUntil) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let (pipe_bytes, chance) = {
            let faults = lock(&self.common.faults);
            (faults.pipe_bytes.max(1), faults.partial_write_chance)
        };
        let held = self.down.held_bytes() + self.down.waiting.len();
        let room = pipe_bytes.saturating_sub(held);
        let mut taken = bytes.min(room);
        self.blocked = Blocked::No;
        if taken < bytes {
            self.blocked = Blocked::Full;
        } else if chance > 0.0 && self.random.happens(chance) {
            self.blocked = Blocked::Fault;
            taken = self.random.within(&(0..=bytes as u64 - 1)) as usize;
        }
        self.touch();
        if taken == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(taken)
    }
}

impl Direction {
    /// Bytes that the pipe holds: under way or not read.
    pub(crate) fn held_bytes(&self) -> usize {
        self.under_way_bytes + self.arrived.len()
    }
}

impl SimulatedSocket {
    pub(crate) fn register(&self, token: u64) {
        let mut wire = lock(&self.0);
        wire.id = Some(ConnectionId::from_u64(token));
        wire.report.readable |= !wire.up.arrived.is_empty() || wire.shard_reset;
        wire.report.ending |= wire.up.end == End::Arrived || wire.shard_reset;
        wire.report.writable = true;
        wire.touch();
    }

    pub(crate) fn peer_address(&self) -> SocketAddr {
        lock(&self.0).address
    }

    pub(crate) fn read(&self, buffer: &mut [u8]) -> io::Result<ReadOutcome> {
        let mut wire = lock(&self.0);
        if wire.shard_reset {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        let bytes = buffer.len().min(wire.up.arrived.len());
        if bytes == 0 {
            return Ok(match wire.up.end {
                End::Arrived => ReadOutcome::End,
                _ => ReadOutcome::WouldBlock,
            });
        }
        for (to, from) in buffer.iter_mut().zip(wire.up.arrived.drain(..bytes)) {
            *to = from;
        }
        wire.touch();
        Ok(ReadOutcome::Data {
            bytes,
            more: bytes == buffer.len(),
        })
    }

    pub(crate) fn write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut wire = lock(&self.0);
        let offered = slices.iter().map(|slice| slice.len()).sum();
        let taken = wire.take(offered)?;
        let mut left = taken;
        for slice in slices {
            let part = left.min(slice.len());
            wire.down.waiting.extend(&slice[..part]);
            left -= part;
        }
        Ok(taken)
    }

    /// Nothing more will be written.
    pub(crate) fn shutdown(&self) {
        let mut wire = lock(&self.0);
        if wire.down.end == End::Open {
            wire.down.end = End::Written;
            wire.touch();
        }
    }
}

impl Drop for SimulatedSocket {
    fn drop(&mut self) {
        self.shutdown();
        let mut wire = lock(&self.0);
        wire.shard_gone = true;
        wire.touch();
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

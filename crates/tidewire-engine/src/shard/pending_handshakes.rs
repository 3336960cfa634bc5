//! Pending handshakes of a shard, and the connections that they belong to.

use crate::config::Limits;
use crate::limits::pending_handshakes::{Decision, PendingLimits};
use crate::limits::source::Source;
use crate::limits::undecided::Full;
use crate::session::application::Application;
use crate::shard::EngineShard;
use std::time::{Duration, Instant};
use tidewire_net::{ConnectionId, Io};

impl PendingLimits {
    /// A shard's part of the limits of a server.
    pub(crate) fn of_shard(limits: &Limits, shards: usize) -> Self {
        let part = |all: usize| all.div_ceil(shards).max(1);
        Self {
            admitted_max: part(limits.handshakes_max),
            admitted_per_source_max: part(limits.handshakes_per_address_max),
            parked_max: part(limits.handshakes_parked_max),
        }
    }
}

impl<A: Application> EngineShard<A> {
    /// Notes the source of a connection, by its address or by a proxy header: the connection is
    /// read, or parked for now. Returns whether it is read.
    pub(crate) fn start_pending(&mut self, io: &mut Io, id: ConnectionId, source: Source) -> bool {
        let now_ms = io.now().monotonic_ms;
        let is_admitted = self.pending.handle_source(id, source, now_ms);
        if !is_admitted {
            io.pause_reading(id);
        }
        self.settle_pending(io);
        is_admitted
    }

    /// The opening handshake is over, well or not.
    pub(crate) fn end_pending(&mut self, io: &mut Io, id: ConnectionId) {
        self.undecided.end(id);
        self.pending.handle_end(id, io.now().monotonic_ms);
        self.settle_pending(io);
    }

    /// The request of a connection waits for a decision. If there is no room for another one, it is refused, and the result is
    /// false.
    pub(crate) fn start_undecided(&mut self, io: &mut Io, id: ConnectionId) -> bool {
        let Some(connection) = self.connection(id) else {
            return false;
        };
        let address = connection.state.peer_address(io);
        if address.is_none() && connection.state.adopted().is_none() {
            // The client has gone.
            io.abort(id);
            return false;
        }
        let source = address.map_or(Source::Unknown, |address| Source::of(address.ip()));
        let begun = self.undecided.begin(id, source);
        self.pending.handle_end(id, io.now().monotonic_ms);
        self.settle_pending(io);
        match begun {
            Ok(None) => {}
            Ok(Some(evicted)) => {
                self.core.counters.handshakes_evicted.add(1);
                self.refuse_undecided(io, evicted);
            }
            Err(Full) => {
                self.core.counters.connections_rejected_full.add(1);
                self.refuse_undecided(io, id);
                return false;
            }
        }
        true
    }

    /// Looks whether slow handshakes have to give way.
    pub(crate) fn sweep_pending(&mut self, io: &mut Io) {
        self.pending.handle_timeout(io.now().monotonic_ms);
        self.settle_pending(io);
    }

    /// Ends a connection that is only parked, if there is one, to be able to accept another.
    pub(crate) fn drop_parked(&mut self, io: &mut Io) -> bool {
        let has_dropped = self.pending.drop_parked();
        self.settle_pending(io);
        has_dropped
    }

    /// When [`sweep_pending`](Self::sweep_pending) is to be called again, given when it was called
    /// last.
    pub(crate) fn next_pending(&self, swept: Option<Instant>) -> Option<Instant> {
        let wait_ms = self.pending.poll_timeout_ms()?;
        Some(swept? + Duration::from_millis(wait_ms))
    }

    fn settle_pending(&mut self, io: &mut Io) {
        while let Some(decision) = self.pending.poll_decision() {
            match decision {
                Decision::Admit(id) => io.resume_reading(id),
                Decision::Evict(id) => {
                    self.core.counters.handshakes_evicted.add(1);
                    io.abort(id);
                }
            }
        }
        let counters = &self.core.counters;
        let (admitted, parked) = (self.pending.admitted(), self.pending.parked());
        let undecided = self.undecided.len();
        counters
            .handshakes_in_progress
            .set((admitted + undecided) as u64);
        counters.handshakes_parked.set(parked as u64);
    }
}

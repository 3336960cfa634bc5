//! A shard whose time and network are simulated: the turns of the loop without the kernel.

use super::Shard;
use super::accepting::ACCEPTS_PER_TURN;
use crate::handler::Handler;
use crate::id::{ConnectionId, ListenerId};
use crate::io::{Io, Now};
use crate::readiness::Readiness;
use crate::simulated::SimulatedSocket;
use crate::stream::Stream;
use std::collections::VecDeque;

/// The state that only a driven shard has.
#[derive(Debug, Default)]
pub(crate) struct Driven {
    /// Connections that wait to be accepted.
    arrived: VecDeque<SimulatedSocket>,
    /// The handler has stopped the shard, and its connections have been closed.
    closing: bool,
}

impl<H: Handler> Shard<H> {
    /// A connection waits to be accepted, at the first listener there would be.
    pub(crate) fn arrive(&mut self, socket: SimulatedSocket) {
        // A shard that has stopped has no listener; the connection ends.
        if !self.driven.closing {
            self.driven.arrived.push_back(socket);
        }
    }

    pub(super) fn accept_simulated(&mut self) {
        for _ in 0..ACCEPTS_PER_TURN {
            if self.driven.arrived.is_empty() || !self.handler.may_accept() {
                return;
            }
            if let Some(socket) = self.driven.arrived.pop_front() {
                let address = socket.peer_address();
                self.start(Stream::Simulated(socket), address, ListenerId(0));
            }
        }
    }

    /// One turn of the loop at this time, with what the kernel would have reported.
    pub(crate) fn turn_at(&mut self, now: Now, reports: &[(ConnectionId, Readiness)]) {
        self.io.set_now(now);
        self.read_ready();
        for (id, readiness) in reports {
            self.handle_readiness(*id, *readiness);
        }
        if self.driven.closing {
            self.run_timers();
            self.settle(&mut { usize::MAX });
            return;
        }
        self.turn();
        self.heartbeat.end_turn();
        if self.io.stopping {
            self.driven.closing = true;
            self.driven.arrived.clear();
            self.close_connections();
        }
    }

    /// When the shard wants a turn although nothing is reported, in monotonic milliseconds, if ever.
    pub(crate) fn wake_ms(&self) -> Option<u64> {
        let now_ms = self.io.now().monotonic_ms;
        if self.driven.closing {
            let has_work_left = !self.io.ready.is_empty() || !self.io.dirty.is_empty();
            return has_work_left.then_some(now_ms).or(self.io.timers.next_ms());
        }
        let has_arrivals = !self.driven.arrived.is_empty() && self.handler.may_accept();
        if self.has_work_left() || has_arrivals || self.inbox.is_woken() {
            return Some(now_ms);
        }
        // A handler that wants to run at once and again would hold the time still.
        let deadline_ms = self
            .handler
            .poll_deadline()
            .map(|deadline| self.io.monotonic_ms_of(deadline).max(now_ms + 1));
        self.next_timer_ms().into_iter().chain(deadline_ms).min()
    }

    /// Whether the handler has stopped the shard and its last connection is gone.
    pub(crate) fn has_ended(&self) -> bool {
        self.driven.closing && self.io.sockets.is_empty()
    }

    /// The handler and what it works with, between turns.
    pub(crate) fn parts(&mut self) -> (&mut H, &mut Io) {
        (&mut self.handler, &mut self.io)
    }

    pub(crate) fn into_handler(self) -> H {
        self.handler
    }
}

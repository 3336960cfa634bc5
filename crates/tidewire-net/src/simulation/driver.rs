//! The loop of the simulation: the network's arrivals and the shards' turns, one after another.

use super::Network;
use crate::handler::Handler;
use crate::id::ConnectionId;
use crate::io::{Io, Now};
use crate::readiness::Readiness;
use crate::shard::Shard;
use crate::simulated::Faults;

/// Runs shards over a simulated network in virtual time, on the calling thread.
pub struct Driver<H: Handler> {
    network: Network,
    seats: Vec<Seat<H>>,
    /// How far the clock of the machine was set forward.
    clock_step_ms: i64,
}

struct Seat<H: Handler> {
    shard: Shard<H>,
    reports: Vec<(ConnectionId, Readiness)>,
    /// Something was done to it from outside.
    wants_turn: bool,
}

impl<H: Handler> Driver<H> {
    /// No shards yet, at the virtual time 0.
    #[must_use]
    pub fn new(faults: Faults) -> Self {
        Self {
            network: Network::new(faults),
            seats: Vec::new(),
            clock_step_ms: 0,
        }
    }

    /// Adds a shard without listeners, whose clock is the driver's from now on. Returns its number, from 0 in
    /// the order of adding.
    pub fn add(&mut self, mut shard: Shard<H>) -> usize {
        shard.parts().1.set_now(self.now());
        self.seats.push(Seat {
            shard,
            reports: Vec::new(),
            wants_turn: false,
        });
        self.seats.len() - 1
    }

    /// The network, to connect clients.
    pub fn network(&mut self) -> &mut Network {
        &mut self.network
    }

    /// The virtual time in milliseconds, from 0.
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        self.network.now_ms()
    }

    /// Calls a shard's handler with what it works with, between its turns, and gives the shard a turn
    /// afterwards.
    ///
    /// # Panics
    /// There is no shard of this number.
    pub fn call<R>(&mut self, shard: usize, call: impl FnOnce(&mut H, &mut Io) -> R) -> R {
        let now = self.now();
        let seat = &mut self.seats[shard];
        let (handler, io) = seat.shard.parts();
        io.set_now(now);
        seat.wants_turn = true;
        call(handler, io)
    }

    /// The next thing that is due: one turn of a shard that has something to do or, when none has, the
    /// time goes on and what arrives then arrives. `false` if nothing is left to happen.
    pub fn step(&mut self) -> bool {
        self.network.tend();
        self.take_reports();
        if let Some(shard) = self.pick_runnable() {
            self.turn(shard);
            return true;
        }
        let Some(due_ms) = self.wake_ms() else {
            return false;
        };
        self.network.set_now(due_ms);
        self.network.deliver();
        for (shard, socket) in self.network.opened.drain(..) {
            // Where nobody listens, the connection ends at once.
            if let Some(seat) = self.seats.get_mut(shard) {
                seat.shard.arrive(socket);
            }
        }
        true
    }

    /// When something happens next, in virtual milliseconds, unless a client does something before.
    pub fn next_due_ms(&mut self) -> Option<u64> {
        self.network.tend();
        self.take_reports();
        self.wake_ms()
    }

    /// Lets everything happen that is due up to this time, which it is then.
    pub fn run_until(&mut self, time_ms: u64) {
        while self.next_due_ms().is_some_and(|due_ms| due_ms <= time_ms) {
            self.step();
        }
        self.network.set_now(time_ms);
    }

    /// Sets the clock of the machine forward, or back: [`Now::unix_ms`] jumps.
    pub fn step_clock(&mut self, ms: i64) {
        self.clock_step_ms += ms;
    }

    /// Whether the shard's handler has stopped it and its last connection is gone.
    ///
    /// # Panics
    /// There is no shard of this number.
    #[must_use]
    pub fn has_ended(&self, shard: usize) -> bool {
        self.seats[shard].shard.has_ended()
    }

    /// The handlers, in the order in which their shards were added.
    #[must_use]
    pub fn into_handlers(self) -> Vec<H> {
        let handlers = self.seats.into_iter();
        handlers.map(|seat| seat.shard.into_handler()).collect()
    }

    fn now(&self) -> Now {
        let monotonic_ms = self.network.now_ms();
        Now {
            monotonic_ms,
            unix_ms: (UNIX_MS_AT_START + monotonic_ms).saturating_add_signed(self.clock_step_ms),
            steady_unix_ms: UNIX_MS_AT_START + monotonic_ms,
        }
    }

    fn take_reports(&mut self) {
        for report in self.network.reports.drain(..) {
            if let Some(seat) = self.seats.get_mut(report.shard) {
                seat.reports.push((report.id, report.readiness));
            }
        }
    }

    /// One of the shards that have something to do now.
    fn pick_runnable(&mut self) -> Option<usize> {
        let now_ms = self.now_ms();
        let is_runnable = |seat: &Seat<H>| seat.wake_ms().is_some_and(|due_ms| due_ms <= now_ms);
        let runnable = self.seats.iter().filter(|seat| is_runnable(seat)).count();
        if runnable == 0 {
            return None;
        }
        let drawn = self.network.random().within(&(0..=runnable as u64 - 1));
        let mut numbers = (0..self.seats.len()).filter(|shard| is_runnable(&self.seats[*shard]));
        numbers.nth(drawn as usize)
    }

    fn turn(&mut self, shard: usize) {
        let now = self.now();
        let seat = &mut self.seats[shard];
        seat.wants_turn = false;
        let reports = std::mem::take(&mut seat.reports);
        seat.shard.turn_at(now, &reports);
    }

    fn wake_ms(&self) -> Option<u64> {
        let shards = self.seats.iter().filter_map(Seat::wake_ms);
        let due_ms = shards.chain(self.network.due_ms()).min();
        due_ms.map(|due_ms| due_ms.max(self.now_ms()))
    }
}

impl<H: Handler> Seat<H> {
    /// When the shard wants a turn; 0 for at once.
    fn wake_ms(&self) -> Option<u64> {
        if self.wants_turn || !self.reports.is_empty() {
            Some(0)
        } else {
            self.shard.wake_ms()
        }
    }
}

/// The [`Now::unix_ms`] at the virtual time 0: the start of 2026, UTC.
pub const UNIX_MS_AT_START: u64 = 1_767_225_600_000;

//! The link's event loop: the sockets of the exchange.

use crate::backend::exchange::{Action, Exchange};
use crate::backend::now::Now;
use crate::backend::resolve::{Found, Route};
use std::io;
use std::time::Instant;
use tidewire_net::{Closed, Connect, ConnectionId, Handler, Io, Mailbox, io_words};

/// Runs the exchange with the backend on a shard of its own.
#[derive(Debug)]
pub(crate) struct LinkHandler {
    exchange: Exchange,
    route: Route,
    /// Of each slot of the exchange, while it is open or being opened.
    connections: Vec<Option<ConnectionId>>,
    /// Slots that wait for the addresses of the backend's name.
    asking: Vec<usize>,
    /// When the next turn is due.
    deadline: Option<Instant>,
}

impl LinkHandler {
    pub(crate) fn new(exchange: Exchange, route: Route) -> Self {
        Self {
            exchange,
            route,
            connections: Vec::new(),
            asking: Vec::new(),
            deadline: None,
        }
    }

    /// Starts what resolves the backend's name, if it has one. It answers to the mailbox of this link.
    pub(crate) fn find_by(&mut self, mailbox: Mailbox<Found>) -> io::Result<()> {
        self.route.find_by(mailbox)
    }

    fn slot_of(&self, id: ConnectionId) -> Option<usize> {
        let mut connections = self.connections.iter();
        connections.position(|connection| *connection == Some(id))
    }

    /// Does what the exchange wants of the sockets.
    fn act(&mut self, io: &mut Io) {
        while let Some(action) = self.exchange.poll_action() {
            match action {
                Action::Open(slot) => self.open(io, slot),
                Action::Close(slot) => {
                    self.asking.retain(|asking| *asking != slot);
                    if let Some(id) = self.connections[slot].take() {
                        io.abort(id);
                    }
                }
                Action::Send(slot, bytes) => {
                    if let Some(id) = self.connections[slot] {
                        io.send(id, &bytes);
                    }
                }
            }
        }
    }

    fn open(&mut self, io: &mut Io, slot: usize) {
        if self.connections.len() <= slot {
            self.connections.resize(slot + 1, None);
        }
        match self.route.connect(io.now().monotonic_ms) {
            Some(connect) => self.open_at(io, slot, connect),
            None => self.asking.push(slot),
        }
    }

    fn open_at(&mut self, io: &mut Io, slot: usize, connect: io::Result<Connect>) {
        match connect.and_then(|connect| io.connect(connect)) {
            Ok(id) => self.connections[slot] = Some(id),
            Err(error) => self
                .exchange
                .closed(slot, &io_words(&error), false, now(io)),
        }
    }
}

impl Handler for LinkHandler {
    type Mail = Found;

    fn handle_mail(&mut self, io: &mut Io, found: Found) {
        let now = now(io);
        let learned = self.route.learn(found, now.ms);
        for slot in std::mem::take(&mut self.asking) {
            match &learned {
                Ok(()) => self.open(io, slot),
                Err(error) => self.exchange.closed(slot, &io_words(error), false, now),
            }
        }
    }

    fn handle_connect(&mut self, io: &mut Io, id: ConnectionId) {
        if let Some(slot) = self.slot_of(id) {
            self.exchange.connected(slot, now(io));
        }
    }

    fn handle_data(&mut self, io: &mut Io, id: ConnectionId, data: &mut [u8]) -> usize {
        match self.slot_of(id) {
            Some(slot) => self.exchange.received(slot, data, now(io)),
            None => data.len(),
        }
    }

    fn handle_close(&mut self, io: &mut Io, id: ConnectionId, closed: Closed) {
        let Some(slot) = self.slot_of(id) else { return };
        self.connections[slot] = None;
        let is_clean = matches!(closed, Closed::ByPeer);
        if matches!(closed, Closed::NotConnected(_)) {
            self.route.forget();
        }
        let reason = closed.reason("the backend");
        self.exchange.closed(slot, &reason, is_clean, now(io));
    }

    fn handle_turn(&mut self, io: &mut Io) {
        if self.exchange.is_stopped() && self.exchange.wind_up(now(io)) {
            return io.stop();
        }
        self.exchange.turn(now(io));
        self.act(io);
        // What could not be opened at once is tried again, until the circuit breaker opens.
        while self.exchange.is_unsettled() {
            self.exchange.turn(now(io));
            self.act(io);
        }
        let next = self.exchange.deadline_ms();
        self.deadline = next.map(|at_ms| io.instant_at(at_ms));
    }

    fn poll_deadline(&self) -> Option<Instant> {
        self.deadline
    }
}

fn now(io: &Io) -> Now {
    let now = io.now();
    Now {
        ms: now.monotonic_ms,
        unix_ms: now.unix_ms,
        precise: Instant::now(),
    }
}

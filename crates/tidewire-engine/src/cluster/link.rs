//! The link's event loop: three connections to the broker, and the turns of the exchange.

use crate::cluster::exchange::Exchange;
use crate::cluster::resolve::{Found, Route, Way};
use std::io;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};
use tidewire_net::{Closed, ConnectionId, Handler, Io, Mailbox, io_words};
use tidewire_redis::{Action, Now, Slot};

/// Runs the link of a server on a shard of its own.
#[derive(Debug)]
pub(crate) struct LinkHandler {
    pub(crate) exchange: Exchange,
    route: Route,
    /// The way to ask the finder thread for the broker's address, if the route does not contain it.
    finder: Option<Sender<Slot>>,
    /// Of each slot, while it is open or being opened.
    connections: [Option<ConnectionId>; 3],
    /// True for each slot that waits for the address of the broker.
    asked: [bool; 3],
    /// An address of the broker that arrived when its slot did not wait any more. Searches may last longer
    /// than the link waits.
    late: Option<(Instant, io::Result<Way>)>,
    /// The shards have too much to deliver.
    is_paused: bool,
    /// The connection of subscriptions that is not read because of that.
    paused: Option<ConnectionId>,
    /// When the next turn is due.
    deadline: Option<Instant>,
}

impl LinkHandler {
    pub(crate) fn new(exchange: Exchange, route: Route) -> Self {
        Self {
            exchange,
            route,
            finder: None,
            connections: [None; 3],
            asked: [false; 3],
            late: None,
            is_paused: false,
            paused: None,
            // The first turn opens the connections.
            deadline: Some(Instant::now()),
        }
    }

    /// Starts what finds the broker by its name, by sentinels or by the nodes of a cluster, if that is needed. It
    /// answers to the mailbox of this link.
    pub(crate) fn find_by(&mut self, mailbox: &Mailbox<Found>) -> io::Result<()> {
        if self.route.at_once().is_none() {
            self.finder = Some(self.route.clone().into_finder(mailbox.clone())?);
        }
        Ok(())
    }

    fn slot_of(&self, id: ConnectionId) -> Option<Slot> {
        let is_its = |slot: &Slot| self.connections[slot.index()] == Some(id);
        Slot::ALL.into_iter().find(is_its)
    }

    /// Opens and closes connections as the link requests, and sends its output.
    fn act(&mut self, io: &mut Io) {
        while let Some(action) = self.exchange.link.poll_action() {
            match action {
                Action::Open(slot) => self.open(io, slot),
                Action::Close(slot) => {
                    self.asked[slot.index()] = false;
                    if let Some(id) = self.connections[slot.index()].take() {
                        io.abort(id);
                    }
                }
            }
        }
        for slot in Slot::ALL {
            let output = self.exchange.link.output(slot);
            if let (false, Some(id)) = (output.is_empty(), self.connections[slot.index()]) {
                io.send(id, output);
                output.clear();
            }
        }
    }

    /// Opens a connection now, or when it is known where to.
    fn open(&mut self, io: &mut Io, slot: Slot) {
        if let Some(place) = self.route.at_once() {
            return self.open_at(io, slot, place.map(Way::from));
        }
        if let Some((at, place)) = self.late.take()
            && at.elapsed() < LATE_MAX
        {
            return self.open_at(io, slot, place);
        }
        self.asked[slot.index()] = true;
        let finder = self.finder.as_ref();
        if finder.is_none_or(|finder| finder.send(slot).is_err()) {
            let error = io::Error::other("nothing finds the broker");
            self.open_at(io, slot, Err(error));
        }
    }

    fn open_at(&mut self, io: &mut Io, slot: Slot, place: io::Result<Way>) {
        self.asked[slot.index()] = false;
        let place = place.map(|way| {
            let Way {
                connect,
                login,
                handover,
            } = way;
            self.exchange.link.set_handover(handover);
            if let Some(login) = login {
                self.exchange.link.set_login(login.user, login.password);
            }
            connect
        });
        match place.and_then(|connect| io.connect(connect)) {
            Ok(id) => self.connections[slot.index()] = Some(id),
            Err(error) => {
                let reason = format!("{}: {}", self.route.address, io_words(&error));
                self.exchange.link.closed(slot, &reason, now(io));
            }
        }
    }

    /// Gives up all connections: the master is another one.
    fn leave(&mut self, io: &mut Io) {
        for slot in Slot::ALL {
            if let Some(id) = self.connections[slot.index()].take() {
                io.abort(id);
                let reason = format!("{}: the master is another one", self.route.address);
                self.exchange.link.closed(slot, &reason, now(io));
            }
        }
    }

    /// Does not read the subscriptions while the shards have too much to deliver.
    fn hold_back(&mut self, io: &mut Io) {
        let is_busy = self.exchange.are_shards_busy();
        let id = self.connections[Slot::Subscribe.index()];
        if is_busy && !self.is_paused {
            self.exchange.link.pause();
        } else if !is_busy && self.is_paused {
            self.exchange.link.resume(now(io));
        }
        self.is_paused = is_busy;
        // The paused connection may have been replaced by another one.
        let wanted = id.filter(|_| is_busy);
        if wanted != self.paused {
            if let Some(id) = wanted {
                io.pause_reading(id);
            } else if let Some(id) = id {
                io.resume_reading(id);
            }
            self.paused = wanted;
        }
    }
}

impl Handler for LinkHandler {
    type Mail = Found;

    fn handle_mail(&mut self, io: &mut Io, mail: Found) {
        match mail {
            Found::Place(slot, place) if self.asked[slot.index()] => self.open_at(io, slot, place),
            Found::Place(_, place) => self.late = Some((Instant::now(), place)),
            Found::Moved => self.leave(io),
        }
    }

    fn handle_connect(&mut self, io: &mut Io, id: ConnectionId) {
        if let Some(slot) = self.slot_of(id) {
            self.exchange.link.connected(slot, now(io));
        }
    }

    fn handle_data(&mut self, io: &mut Io, id: ConnectionId, data: &mut [u8]) -> usize {
        if let Some(slot) = self.slot_of(id) {
            self.exchange.link.received(slot, data, now(io));
        }
        data.len()
    }

    fn handle_close(&mut self, io: &mut Io, id: ConnectionId, closed: Closed) {
        if let Some(slot) = self.slot_of(id) {
            self.connections[slot.index()] = None;
            let reason = closed.reason("the broker");
            let reason = format!("{}: {reason}", self.route.address);
            self.exchange.link.closed(slot, &reason, now(io));
        }
    }

    fn handle_turn(&mut self, io: &mut Io) {
        if self.exchange.is_stopped() && self.exchange.has_left(now(io)) {
            return io.stop();
        }
        self.exchange.turn(now(io));
        self.act(io);
        // What could not be opened is tried again at its time.
        self.hold_back(io);
        let next = self
            .exchange
            .deadline_ms()
            .map(|at_ms| io.instant_at(at_ms));
        let retry = self.is_paused.then(|| Instant::now() + PAUSE_POLL);
        self.deadline = [next, retry].into_iter().flatten().min();
    }

    fn poll_deadline(&self) -> Option<Instant> {
        self.deadline
    }
}

fn now(io: &Io) -> Now {
    let now = io.now();
    Now {
        ms: now.monotonic_ms,
        unix_ms: now.steady_unix_ms,
    }
}

/// How long an address that arrived late is good.
const LATE_MAX: Duration = Duration::from_secs(10);

/// How often the link looks whether the shards have delivered.
const PAUSE_POLL: Duration = Duration::from_millis(1);

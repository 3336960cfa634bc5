//! The link's event loop: the sockets of the fetches.

use crate::backend::resolve::{Found, Route};
use crate::keys::fetch::{Action, Fetch};
use std::io;
use std::time::Instant;
use tidewire_net::{Closed, Connect, ConnectionId, Handler, Io, Mailbox, io_words};

/// Runs the fetches of a set on a shard of its own.
#[derive(Debug)]
pub(crate) struct LinkHandler {
    fetch: Fetch,
    route: Route,
    connection: Option<ConnectionId>,
    /// When the next turn is due.
    deadline: Option<Instant>,
}

impl LinkHandler {
    pub(crate) fn new(fetch: Fetch, route: Route) -> Self {
        Self {
            fetch,
            route,
            connection: None,
            // The first fetch is due at once.
            deadline: Some(Instant::now()),
        }
    }

    /// Starts what resolves the name of the server, if it has one. It answers to the mailbox of this link.
    pub(crate) fn find_by(&mut self, mailbox: Mailbox<Found>) -> io::Result<()> {
        self.route.find_by(mailbox)
    }

    fn act(&mut self, io: &mut Io, action: Option<Action>) {
        match action {
            None => {}
            Some(Action::Open) => {
                // Without an address the name is being resolved, and a mail follows.
                if let Some(connect) = self.route.connect(io.now().monotonic_ms) {
                    self.open_at(io, connect);
                }
            }
            Some(Action::Send(bytes)) => {
                if let Some(id) = self.connection {
                    io.send(id, &bytes);
                }
            }
            Some(Action::Close) => {
                if let Some(id) = self.connection.take() {
                    io.abort(id);
                }
            }
        }
    }

    fn open_at(&mut self, io: &mut Io, connect: io::Result<Connect>) {
        match connect.and_then(|connect| io.connect(connect)) {
            Ok(id) => self.connection = Some(id),
            Err(error) => self.fetch.closed(&io_words(&error), false, io.now()),
        }
    }
}

impl Handler for LinkHandler {
    type Mail = Found;

    fn handle_mail(&mut self, io: &mut Io, found: Found) {
        let now = io.now();
        let learned = self.route.learn(found, now.monotonic_ms);
        if !self.fetch.is_opening() || self.connection.is_some() {
            return;
        }
        match learned {
            Ok(()) => self.act(io, Some(Action::Open)),
            Err(error) => self.fetch.closed(&io_words(&error), false, now),
        }
    }

    fn handle_connect(&mut self, io: &mut Io, id: ConnectionId) {
        if self.connection == Some(id) {
            let action = self.fetch.connected();
            self.act(io, action);
        }
    }

    fn handle_data(&mut self, io: &mut Io, id: ConnectionId, data: &mut [u8]) -> usize {
        if self.connection != Some(id) {
            return data.len();
        }
        let (used, action) = self.fetch.received(data, io.now());
        self.act(io, action);
        used
    }

    fn handle_close(&mut self, io: &mut Io, id: ConnectionId, closed: Closed) {
        if self.connection != Some(id) {
            return;
        }
        self.connection = None;
        let is_clean = matches!(closed, Closed::ByPeer);
        if matches!(closed, Closed::NotConnected(_)) {
            self.route.forget();
        }
        let reason = closed.reason("the server");
        self.fetch.closed(&reason, is_clean, io.now());
    }

    fn handle_turn(&mut self, io: &mut Io) {
        if self.fetch.is_stopped() {
            return io.stop();
        }
        while let Some(action) = self.fetch.turn(io.now()) {
            self.act(io, Some(action));
        }
        self.deadline = Some(io.instant_at(self.fetch.deadline_ms()));
    }

    fn poll_deadline(&self) -> Option<Instant> {
        self.deadline
    }
}

//! Service load: users that send requests to a service over connections of their own, in any dialogue.

mod connect;
mod core;
pub mod order;
mod pacing;
mod phase;
mod tunnel;
pub(crate) mod user;

pub(crate) use self::core::Core;

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use tidewire_net::{Closed, ConnectionId, Handler, Io};

use crate::accounting::live::ServiceCell;
use crate::verdict::expectation::ConnectPart;
use order::{ServiceCommand, ServiceReport, ServiceSetup};
use tunnel::ProxyAnswer;
use user::{Pending, User, UserState};

/// The protocol between users and a service on a connection.
pub(crate) trait Dialogue: Send + 'static {
    /// The state of one connection.
    type Session: Default + Debug + Send;

    /// Whether answers that follow each other closely are awaited before the next requests leave together, see
    /// [`Core::hold`]. Only for dialogues with several requests in flight, of which a server sends the answers in pieces.
    const WAITS_FOR_MORE: bool = false;

    /// TCP and TLS are established. Calls [`Core::ready`] now or when its own handshake is
    /// complete.
    fn greet(&mut self, core: &mut Core, io: &mut Io, user: &mut User<Self::Session>);

    /// Writes a request. It is then one of the pending requests, unless nothing answers it.
    fn send(
        &mut self,
        core: &mut Core,
        io: &mut Io,
        user: &mut User<Self::Session>,
        pending: Pending,
    );

    /// Handles received bytes of the user's connection; returns how many of them are consumed.
    fn receive(
        &mut self,
        core: &mut Core,
        io: &mut Io,
        user: &mut User<Self::Session>,
        data: &mut [u8],
    ) -> usize;

    /// A time at which the user is handled has come, see [`Core::wake_at`].
    fn wake(&mut self, _core: &mut Core, _io: &mut Io, _user: &mut User<Self::Session>) {}

    /// A phase begins, and the times at which the user is to be handled are forgotten.
    fn resume(&mut self, _core: &mut Core, _user: &mut User<Self::Session>) {}

    /// The connection of a user has ended, and the requests on it with it.
    fn end(&mut self, core: &mut Core, user: &mut User<Self::Session>, end: ConnectionEnd<'_>);

    /// The oldest request was not answered in time.
    fn time_out(&mut self, core: &mut Core, io: &mut Io, user: &mut User<Self::Session>) {
        self.end(core, user, ConnectionEnd::TimedOut);
        core.drop_connection(io, user);
    }

    /// The load is over: closes the connection of a user.
    fn part(&mut self, core: &mut Core, io: &mut Io, user: &mut User<Self::Session>) {
        core.drop_connection(io, user);
    }
}

/// The reason for which a ready connection has ended.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ConnectionEnd<'a> {
    /// The socket has ended.
    Closed(&'a Closed),
    /// The oldest request on it was not answered in time.
    TimedOut,
}

/// The handler of a worker's shard.
#[derive(Debug)]
pub(crate) struct ServiceWorker<D: Dialogue> {
    users: Vec<User<D::Session>>,
    core: Core,
    dialogue: D,
}

impl<D: Dialogue> ServiceWorker<D> {
    pub(crate) fn new(
        setup: Arc<ServiceSetup>,
        (number, index): (usize, usize),
        dialogue: D,
        outcomes: Sender<(usize, ServiceReport)>,
        live: Arc<ServiceCell>,
    ) -> Self {
        let numbers = (number..setup.users).step_by(setup.workers.max(1));
        let users = (0..)
            .zip(numbers)
            .map(|(place, number)| User::new(number, place, setup.script.state(number)))
            .collect();
        Self {
            users,
            core: Core::new(setup, (number, index), outcomes, live),
            dialogue,
        }
    }

    /// The user of a connection, unless the user has released it or goes on with another one.
    fn user_of(&self, id: ConnectionId) -> Option<usize> {
        let place = *self.core.by_socket.get(id.index())? as usize;
        let user = self.users.get(place)?;
        (user.link.socket == Some(id)).then_some(place)
    }

    /// Handles a connection on which its user has nothing in flight, because the user goes on with another one.
    fn handle_parked<R>(
        &mut self,
        id: ConnectionId,
        handle: impl FnOnce(&mut D, &mut Core, &mut User<D::Session>) -> R,
    ) -> Option<R> {
        let place = *self.core.by_socket.get(id.index())? as usize;
        let user = self.users.get_mut(place)?;
        let parked = user.place_of(id)?;
        let (core, dialogue) = (&mut self.core, &mut self.dialogue);
        Some(user.with_parked(parked, |user| handle(dialogue, core, user)))
    }

    /// Handles each connection of a user in turn.
    fn handle_each(
        &mut self,
        place: usize,
        mut handle: impl FnMut(&mut D, &mut Core, &mut User<D::Session>),
    ) {
        let (core, user) = (&mut self.core, &mut self.users[place]);
        for parked in 0..user.parked.len() {
            if user.parked[parked].link.socket.is_some() {
                user.with_parked(parked, |user| handle(&mut self.dialogue, core, user));
            }
        }
        handle(&mut self.dialogue, core, user);
    }

    /// Begins the dialogue with the server.
    fn greet(&mut self, io: &mut Io, place: usize) {
        let user = &mut self.users[place];
        user.link.state = UserState::Greeting;
        self.dialogue.greet(&mut self.core, io, user);
        self.serve(io, place);
    }

    /// Reads the proxy's response; returns how many bytes are consumed.
    fn receive_from_proxy(&mut self, io: &mut Io, place: usize, data: &[u8]) -> usize {
        let user = &mut self.users[place];
        let answer = self.core.receive_from_proxy(user, data);
        if let ProxyAnswer::Open(_) = answer {
            self.core.note_part(user, ConnectPart::Proxy);
        }
        match answer {
            ProxyAnswer::More(used) => used,
            ProxyAnswer::Open(used) if self.core.target(user).endpoint.tls.is_some() => {
                if let Some(id) = user.link.socket {
                    self.core.begin_tls(io, user, id, &data[used..]);
                }
                data.len()
            }
            ProxyAnswer::Open(used) => {
                self.greet(io, place);
                used
            }
            ProxyAnswer::Refused(name) => {
                self.core.refuse(io, user, name);
                self.serve(io, place);
                data.len()
            }
        }
    }

    /// Sends the requests that the user may send now, and ensures that it has a connection for
    /// them.
    fn serve(&mut self, io: &mut Io, place: usize) {
        let (core, user) = (&mut self.core, &mut self.users[place]);
        loop {
            if user.link.is_spent && user.link.pending.is_empty() {
                core.replace_connection(io, user);
            }
            while user.link.state == UserState::Open && !user.link.is_spent && core.has_room(user) {
                let next = user.owed.pop_front().or_else(|| core.next(user));
                let Some(pending) = next else { break };
                match core.turns_for(user, &pending) {
                    true => user.owed.push_front(pending),
                    false => self.dialogue.send(core, io, user, pending),
                }
            }
            core.flush(io, user);
            match user.link.state {
                // The connection to another server with which it went on accepts no more requests.
                UserState::Open if user.link.is_spent && user.link.pending.is_empty() => {}
                UserState::Open => return core.wait(user),
                UserState::Absent => core.serve_absent(io, user),
                UserState::Connecting
                | UserState::Securing
                | UserState::Greeting
                | UserState::Retired
                | UserState::Gone => return,
            }
            // Without a connection it may have gone on with one to another server.
            if user.link.state != UserState::Open {
                return;
            }
        }
    }

    /// Opens connections while others end, and starts users while the load grows.
    fn open_more(&mut self, io: &mut Io) {
        self.core.connect_waiting(io, &mut self.users);
        while let Some(place) = self.core.next_to_begin(&mut self.users) {
            self.serve(io, place);
        }
        while let Some(place) = self.core.next_to_retire(&mut self.users) {
            let user = &mut self.users[place];
            // Its state determines how its requests are counted, so the connection is dropped first.
            self.core.drop_connection(io, user);
            self.core.drop_parked(io, user);
            self.core.retire(user);
        }
    }

    /// Sends the requests that are due.
    fn dispatch(&mut self, io: &mut Io) {
        let now_ns = self.core.now_ns();
        while let Some(place) = self.core.next_awake(&mut self.users, now_ns) {
            self.handle_each(place, |dialogue, core, user| dialogue.wake(core, io, user));
            self.serve(io, place);
        }
        self.dispatch_due(io);
    }

    /// Requests that are due at given times, as far as users are free.
    fn dispatch_due(&mut self, io: &mut Io) {
        let now_ns = self.core.now_ns();
        while let Some((place, pending)) = self.core.next_due(&mut self.users, now_ns) {
            self.users[place].owed.push_back(pending);
            self.serve(io, place);
        }
    }
}

impl<D: Dialogue> Handler for ServiceWorker<D> {
    type Mail = ServiceCommand;

    fn handle_connect(&mut self, io: &mut Io, id: ConnectionId) {
        self.core.look_at_clock();
        let Some(place) = self.user_of(id) else {
            return io.abort(id);
        };
        let user = &mut self.users[place];
        let part = match user.link.state {
            UserState::Securing => ConnectPart::Tls,
            _ => ConnectPart::Tcp,
        };
        self.core.note_part(user, part);
        match part {
            ConnectPart::Tls => self.greet(io, place),
            _ if self.core.request_tunnel(io, user) => {}
            _ if io.is_tls_held(id) => self.core.begin_tls(io, user, id, &[]),
            _ => self.greet(io, place),
        }
    }

    fn handle_data(&mut self, io: &mut Io, id: ConnectionId, data: &mut [u8]) -> usize {
        self.core.look_at_clock();
        let Some(place) = self.user_of(id) else {
            let used = self.handle_parked(id, |dialogue, core, user| {
                let used = dialogue.receive(core, io, user, data);
                user.link.socket.map(|_| used)
            });
            return used.flatten().unwrap_or(data.len());
        };
        self.core.end_spin();
        let user = &mut self.users[place];
        if user.link.tunnel.is_requested() {
            return self.receive_from_proxy(io, place, data);
        }
        let used = self.dialogue.receive(&mut self.core, io, user, data);
        if !D::WAITS_FOR_MORE || !self.core.hold(&mut self.users[place]) {
            self.serve(io, place);
        }
        // A turn may bring data for many connections: requests that are due do not wait for its
        // end.
        if self.core.is_due(self.core.now_ns()) {
            self.core.call.is_in_turn = true;
            self.dispatch_due(io);
            self.core.call.is_in_turn = false;
        }
        // The remaining data of an abandoned connection is useless.
        match self.users[place].link.socket {
            Some(socket) if socket == id => used,
            _ => data.len(),
        }
    }

    fn handle_close(&mut self, io: &mut Io, id: ConnectionId, closed: Closed) {
        self.core.look_at_clock();
        let Some(place) = self.user_of(id) else {
            self.handle_parked(id, |dialogue, core, user| {
                dialogue.end(core, user, ConnectionEnd::Closed(&closed));
                core.note_gone(user);
            });
            return;
        };
        let user = &mut self.users[place];
        match user.link.state {
            UserState::Open => {
                let end = ConnectionEnd::Closed(&closed);
                let is_unused = user.link.sent_here == 0;
                self.dialogue.end(&mut self.core, user, end);
                self.core.note_gone(user);
                if is_unused {
                    self.core.rest_unused(user);
                }
            }
            _ if user.link.tunnel.is_requested() => {
                self.core.fail_to_connect(user, tunnel::end_name(&closed));
            }
            _ => self.core.fail_to_connect(user, connect_error(&closed)),
        }
        self.serve(io, place);
    }

    fn handle_timer(&mut self, io: &mut Io, id: ConnectionId) {
        self.core.look_at_clock();
        let Some(place) = self.user_of(id) else {
            // Nothing is in flight on it.
            self.handle_parked(id, |_, _, user| user.link.is_timed = false);
            return;
        };
        let user = &mut self.users[place];
        match user.link.state {
            UserState::Open => {
                while self.core.is_overdue(io, user) {
                    self.dialogue.time_out(&mut self.core, io, user);
                }
            }
            _ => {
                io.abort(id);
                let name = match user.link.tunnel.is_requested() {
                    true => "proxy-timeout",
                    false => "connect-timeout",
                };
                self.core.fail_to_connect(user, name);
            }
        }
        self.serve(io, place);
    }

    fn handle_mail(&mut self, io: &mut Io, mail: ServiceCommand) {
        self.core.look_at_clock();
        match mail {
            ServiceCommand::Connect => {
                self.core.begin_connecting();
                self.open_more(io);
            }
            ServiceCommand::Run(phase) => {
                self.core.begin_phase(*phase, &mut self.users);
                self.core.call.is_in_turn = true;
                for place in 0..self.users.len() {
                    self.handle_each(place, |dialogue, core, user| dialogue.resume(core, user));
                    self.serve(io, place);
                }
                self.core.call.is_in_turn = false;
            }
            ServiceCommand::Stop => self.core.stop_phase(),
            ServiceCommand::Abandon => {
                self.core.stop_phase();
                self.core.abandon(io, &mut self.users);
            }
            ServiceCommand::Close => {
                for place in 0..self.users.len() {
                    self.handle_each(place, |dialogue, core, user| match user.link.state {
                        UserState::Open => dialogue.part(core, io, user),
                        _ => core.drop_connection(io, user),
                    });
                }
                self.core.end_closing();
            }
            ServiceCommand::Quit => io.stop(),
        }
    }

    fn handle_turn(&mut self, io: &mut Io) {
        self.core.look_at_clock();
        self.core.call.is_in_turn = true;
        self.core.end_spin();
        while let Some(place) = self.core.next_held(&mut self.users) {
            self.serve(io, place);
        }
        self.core.end_turn();
        self.open_more(io);
        self.dispatch(io);
        self.core.call.is_in_turn = false;
        self.core.publish();
        self.core.end_connecting(&self.users);
        self.core.end_phase(io, &mut self.users);
        self.core.note_spin();
    }

    fn poll_deadline(&self) -> Option<Instant> {
        if self.core.is_holding() {
            return Some(self.core.setup.epoch);
        }
        let next_ns = self.core.next_ns()?;
        Some(self.core.setup.epoch + Duration::from_nanos(next_ns))
    }
}

/// The name of the reason for which a connection was not opened.
fn connect_error(closed: &Closed) -> &'static str {
    use crate::accounting::failure::{Failure, tls_error_name};
    match closed {
        Closed::Tls(error) => tls_error_name(error),
        Closed::ByPeer => "closed-while-connecting",
        closed => match Failure::of_closed(closed) {
            Failure::Reset => "reset-while-connecting",
            failure => failure.name(),
        },
    }
}

//! A user of a service load: its connection, and the requests that wait for it or on it.

use std::collections::VecDeque;

use tidewire_http::response::ResponseReader;
use tidewire_net::ConnectionId;

use crate::accounting::tally::Exchange;
use crate::worker::jar::Jar;
use crate::worker::walk::ScriptState;

/// A user. `S` is the state that its dialogue keeps for a connection.
#[derive(Debug)]
pub(crate) struct User<S> {
    /// Its number over all workers, counted from 0.
    pub(crate) number: usize,
    /// Its index in its worker.
    pub(crate) index: u32,
    /// Its current connection.
    pub(crate) link: Link<S>,
    /// Those to other servers: if one is open, it has nothing in flight.
    pub(crate) parked: Vec<Parked<S>>,
    /// Requests that leave as soon as a connection is ready.
    pub(crate) owed: VecDeque<Pending>,
    /// The request that follows a redirect, while it is in flight.
    pub(crate) detour: Option<WholeRequest>,
    /// The last request with values in it, as far as redirects or cookies need it.
    pub(crate) rendered: WholeRequest,
    /// The cookies that servers have set.
    pub(crate) jar: Jar,
    /// The user is in the list of free users.
    pub(crate) is_listed: bool,
    /// The user's next requests wait for the end of a turn.
    pub(crate) is_held: bool,
    /// The time since which it is free.
    pub(crate) free_ns: u64,
    /// With requests at given times of each connection: the time at which the next is due.
    pub(crate) next_ns: u64,
    /// The time before which nothing is sent: the user thinks.
    pub(crate) rests_until_ns: u64,
    /// A connection was begun since the last order to connect all users.
    pub(crate) has_tried: bool,
    pub(crate) script: ScriptState,
}

/// A connection of a user to a server, or the lack of one.
#[derive(Debug)]
pub(crate) struct Link<S> {
    /// The number of the server.
    pub(crate) target: u16,
    pub(crate) state: UserState,
    pub(crate) socket: Option<ConnectionId>,
    /// The progress of the connection through a proxy.
    pub(crate) tunnel: Tunnel,
    /// The start of the connection.
    pub(crate) connect_ns: u64,
    /// The start of the part of connecting that runs: TCP, a proxy's tunnel, TLS, the dialogue's handshake.
    pub(crate) part_ns: u64,
    /// The time at which the connection became ready.
    pub(crate) ready_ns: u64,
    /// Requests without a complete response, oldest first.
    pub(crate) pending: VecDeque<Pending>,
    /// Requests that the server takes at a time on this connection.
    pub(crate) room: u32,
    /// Requests sent on this connection.
    pub(crate) sent_here: u64,
    /// Complete responses on this connection.
    pub(crate) done_here: u64,
    /// The connection accepts no further request.
    pub(crate) is_spent: bool,
    /// The timer for requests is set.
    pub(crate) is_timed: bool,
    /// The time before which no connection is opened, after a failure or the end of one.
    pub(crate) pause_ns: u64,
    /// Attempts to connect that failed since the last success.
    pub(crate) failures: u32,
    /// The last connection ended before the plan ended it, and the next one replaces it.
    pub(crate) is_replacing: bool,
    pub(crate) session: S,
}

/// A connection that is not the current one.
#[derive(Debug)]
pub(crate) struct Parked<S> {
    pub(crate) link: Link<S>,
    /// The values that its conversation has captured: the first variables of the script.
    captured: Vec<Vec<u8>>,
}

impl<S: Default> Link<S> {
    /// None yet.
    fn to(target: u16) -> Self {
        Self {
            target,
            state: UserState::Absent,
            socket: None,
            tunnel: Tunnel::None,
            connect_ns: 0,
            part_ns: 0,
            ready_ns: 0,
            pending: VecDeque::new(),
            room: u32::MAX,
            sent_here: 0,
            done_here: 0,
            is_spent: false,
            is_timed: false,
            pause_ns: 0,
            failures: 0,
            is_replacing: false,
            session: S::default(),
        }
    }
}

impl<S> Link<S> {
    /// The same with another session; returns that which it had, too.
    fn exchange<T>(self, session: T) -> (Link<T>, S) {
        let link = Link {
            target: self.target,
            state: self.state,
            socket: self.socket,
            tunnel: self.tunnel,
            connect_ns: self.connect_ns,
            part_ns: self.part_ns,
            ready_ns: self.ready_ns,
            pending: self.pending,
            room: self.room,
            sent_here: self.sent_here,
            done_here: self.done_here,
            is_spent: self.is_spent,
            is_timed: self.is_timed,
            pause_ns: self.pause_ns,
            failures: self.failures,
            is_replacing: self.is_replacing,
            session,
        };
        (link, self.session)
    }
}

impl<S> Parked<S> {
    /// Exchanges the current connection of a user with this one.
    fn swap(&mut self, user: &mut User<S>) {
        std::mem::swap(&mut self.link, &mut user.link);
        for (mine, other) in self.captured.iter_mut().zip(&mut user.script.captured) {
            std::mem::swap(mine, other);
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UserState {
    /// Without a connection.
    Absent,
    /// TCP or a proxy.
    Connecting,
    /// TLS.
    Securing,
    /// The dialogue's own handshake.
    Greeting,
    Open,
    /// Has left permanently.
    Retired,
    /// Its connection has ended, and the plan replaces none.
    Gone,
}

/// The progress of a connection through the proxy.
#[derive(Debug, Default)]
pub(crate) enum Tunnel {
    /// No tunnel has been requested.
    #[default]
    None,
    /// The request is sent, and the proxy's response is read.
    Requested(ResponseReader),
    /// The proxy forwards every byte to the server.
    Open,
}

/// A request that is in flight, or will be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pending {
    pub(crate) exchange: Exchange,
    /// It was sent before, on a connection that ended before the first byte of the response.
    pub(crate) is_again: bool,
    /// The number of its server.
    pub(crate) target: u16,
    /// Redirects that have led to it.
    pub(crate) redirects: u32,
    /// The identification of the reply: of messages that are matched by a field, and the stream of HTTP/2.
    pub(crate) key: u64,
}

/// The bytes of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct WholeRequest {
    /// All of them.
    pub(crate) bytes: Vec<u8>,
    /// The length of the head.
    pub(crate) head_bytes: usize,
}

impl WholeRequest {
    /// Keeps the first bytes of a request, whose head has `head_bytes`.
    pub(crate) fn keep(&mut self, bytes: &[u8], head_bytes: usize) {
        self.bytes.clear();
        self.bytes.extend_from_slice(bytes);
        self.head_bytes = head_bytes.min(bytes.len());
    }
}

impl<S: Default> User<S> {
    pub(crate) fn new(number: usize, index: u32, script: ScriptState) -> Self {
        Self {
            number,
            index,
            link: Link::to(0),
            parked: Vec::new(),
            owed: VecDeque::new(),
            detour: None,
            rendered: WholeRequest::default(),
            jar: Jar::default(),
            is_listed: false,
            is_held: false,
            free_ns: 0,
            next_ns: 0,
            rests_until_ns: 0,
            has_tried: false,
            script,
        }
    }

    /// Goes on with its connection to another server, if it has one; the current one is kept. Nothing is in flight. A
    /// conversation captures this number of values.
    pub(crate) fn turn_to(&mut self, target: u16, captured: usize) {
        let known = self
            .parked
            .iter()
            .position(|parked| parked.link.target == target);
        let mut parked = match known {
            Some(place) => self.parked.swap_remove(place),
            None => Parked {
                link: Link::to(target),
                captured: vec![Vec::new(); captured],
            },
        };
        parked.swap(self);
        self.parked.push(parked);
    }

    /// Connections may be opened at once.
    pub(crate) fn end_pauses(&mut self) {
        let parked = self.parked.iter_mut().map(|parked| &mut parked.link);
        for link in parked.chain([&mut self.link]) {
            link.pause_ns = 0;
        }
    }

    /// A user that has left begins again, as a new one.
    pub(crate) fn begin_again(&mut self, script: ScriptState) {
        *self = Self::new(self.number, self.index, script);
    }

    /// The place of a connection among those that are parked.
    pub(crate) fn place_of(&self, id: ConnectionId) -> Option<usize> {
        let mut parked = self.parked.iter();
        parked.position(|parked| parked.link.socket == Some(id))
    }

    /// Handles a parked connection as if it were the current one.
    pub(crate) fn with_parked<R>(
        &mut self,
        place: usize,
        handle: impl FnOnce(&mut Self) -> R,
    ) -> R {
        let mut parked = std::mem::take(&mut self.parked);
        parked[place].swap(self);
        let result = handle(self);
        parked[place].swap(self);
        self.parked = parked;
        result
    }

    /// Whether it still takes part in the load.
    pub(crate) fn is_there(&self) -> bool {
        !matches!(self.link.state, UserState::Retired | UserState::Gone)
    }

    /// Handles it with a session of another type; returns that session, too.
    pub(crate) fn with_session<T: Default, R>(
        &mut self,
        session: T,
        handle: impl FnOnce(&mut User<T>) -> R,
    ) -> (T, R) {
        let parked = std::mem::take(&mut self.parked);
        let nobody = Self::new(0, 0, ScriptState::default());
        let (mut user, own) = std::mem::replace(self, nobody).exchange(session);
        let result = handle(&mut user);
        let (user, session) = user.exchange(own);
        *self = User { parked, ..user };
        (session, result)
    }

    /// The same user with another session, and without its parked connections.
    fn exchange<T>(self, session: T) -> (User<T>, S) {
        let (link, own) = self.link.exchange(session);
        let user = User {
            number: self.number,
            index: self.index,
            link,
            parked: Vec::new(),
            owed: self.owed,
            detour: self.detour,
            rendered: self.rendered,
            jar: self.jar,
            is_listed: self.is_listed,
            is_held: self.is_held,
            free_ns: self.free_ns,
            next_ns: self.next_ns,
            rests_until_ns: self.rests_until_ns,
            has_tried: self.has_tried,
            script: self.script,
        };
        (user, own)
    }

    /// Resets the connection and its state.
    pub(crate) fn forget_connection(&mut self) {
        let link = &mut self.link;
        link.socket = None;
        link.tunnel = Tunnel::None;
        link.room = u32::MAX;
        link.sent_here = 0;
        link.done_here = 0;
        link.is_spent = false;
        link.is_timed = false;
        link.session = S::default();
        if self.is_there() {
            self.link.state = UserState::Absent;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user() -> User<u8> {
        let mut script = ScriptState::default();
        script.captured = vec![b"of here".to_vec(), b"of the user".to_vec()];
        User::new(3, 1, script)
    }

    #[test]
    fn what_belongs_to_a_connection_stays_with_it() {
        let mut user = user();
        (user.link.session, user.link.pause_ns, user.link.sent_here) = (7, 5, 9);
        user.rests_until_ns = 2;
        user.turn_to(1, 1);
        assert_eq!(
            (user.link.target, user.link.session, user.link.pause_ns),
            (1, 0, 0)
        );
        assert_eq!(user.script.captured, [&b""[..], b"of the user"]);
        assert_eq!((user.link.sent_here, user.rests_until_ns), (0, 2));
        user.script.captured[0] = b"of there".to_vec();
        user.link.failures = 4;
        let seen = user.with_parked(0, |user| {
            user.link.is_spent = true;
            (
                user.link.target,
                user.link.session,
                user.script.captured[0].clone(),
            )
        });
        assert_eq!(seen, (0, 7, b"of here".to_vec()));
        assert_eq!(
            (user.link.target, user.link.is_spent, user.link.failures),
            (1, false, 4)
        );
        user.turn_to(0, 1);
        assert_eq!(
            (user.link.session, user.link.is_spent, user.link.failures),
            (7, true, 0)
        );
        assert_eq!(user.script.captured, [&b"of here"[..], b"of the user"]);
        user.turn_to(1, 1);
        assert_eq!(user.script.captured[0], b"of there");
        assert_eq!(user.parked.len(), 1);
        user.end_pauses();
        user.turn_to(0, 1);
        assert_eq!(user.link.pause_ns, 0);
    }

    #[test]
    fn another_session_changes_nothing_else() {
        let mut user = user();
        user.turn_to(2, 0);
        user.link.session = 5;
        let (session, number) = user.with_session("text".to_owned(), |typed| {
            typed.link.failures = 6;
            typed.link.session.push('s');
            typed.number
        });
        assert_eq!((session.as_str(), number), ("texts", 3));
        assert_eq!(
            (user.link.session, user.link.failures, user.link.target),
            (5, 6, 2)
        );
        assert_eq!(user.parked.len(), 1);
    }
}

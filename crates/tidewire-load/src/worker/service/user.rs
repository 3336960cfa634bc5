//! A user of a service load: its connection, and the requests that wait for it or on it.

use std::collections::VecDeque;

use tidewire_http::response::ResponseReader;
use tidewire_net::ConnectionId;

use crate::accounting::tally::Exchange;
use crate::worker::jar::Jar;
use crate::worker::walk::ScriptState;

/// A user. `S` is the state that its dialogue keeps for the connection.
#[derive(Debug)]
pub(crate) struct User<S> {
    /// Its number over all workers, counted from 0.
    pub(crate) number: usize,
    /// Its index in its worker.
    pub(crate) index: u32,
    /// The number of the server of its connection.
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
    /// Requests that leave as soon as a connection is ready.
    pub(crate) owed: VecDeque<Pending>,
    /// Requests that the server takes at a time on this connection.
    pub(crate) room: u32,
    /// Requests sent on this connection.
    pub(crate) sent_here: u64,
    /// Complete responses on this connection.
    pub(crate) done_here: u64,
    /// The request that follows a redirect, while it is in flight.
    pub(crate) detour: Option<WholeRequest>,
    /// The last request with values in it, as far as redirects or cookies need it.
    pub(crate) rendered: WholeRequest,
    /// The cookies that the server has set.
    pub(crate) jar: Jar,
    /// The connection accepts no further request.
    pub(crate) is_spent: bool,
    /// The user is in the list of free users.
    pub(crate) is_listed: bool,
    /// The user's next requests wait for the end of a turn.
    pub(crate) is_held: bool,
    /// The time since which it is free.
    pub(crate) free_ns: u64,
    /// The timer for requests is set.
    pub(crate) is_timed: bool,
    /// With requests at given times of each connection: the time at which the next is due.
    pub(crate) next_ns: u64,
    /// The time before which nothing is sent: the user thinks.
    pub(crate) rests_until_ns: u64,
    /// The time before which no connection is opened, after a failure or the end of one.
    pub(crate) pause_ns: u64,
    /// Attempts to connect that failed since the last success.
    pub(crate) failures: u32,
    /// A connection was begun since the last order to connect all users.
    pub(crate) has_tried: bool,
    /// Its last connection ended before the plan ended it, and the next one replaces it.
    pub(crate) is_replacing: bool,
    pub(crate) script: ScriptState,
    pub(crate) session: S,
    /// Those to other servers: if one is open, it has nothing in flight.
    pub(crate) parked: Vec<Link<S>>,
}

/// What belongs to a connection of a user, and to its server.
#[derive(Debug)]
pub(crate) struct Link<S> {
    target: u16,
    pub(crate) socket: Option<ConnectionId>,
    pause_ns: u64,
    failures: u32,
    is_replacing: bool,
    /// The values that its conversation has captured: the first variables of the script.
    captured: Vec<Vec<u8>>,
    state: UserState,
    tunnel: Tunnel,
    connect_ns: u64,
    part_ns: u64,
    ready_ns: u64,
    pending: VecDeque<Pending>,
    room: u32,
    sent_here: u64,
    done_here: u64,
    is_spent: bool,
    is_timed: bool,
    session: S,
}

impl<S: Default> Link<S> {
    /// None yet, of a conversation that captures this number of values.
    fn to(target: u16, captured: usize) -> Self {
        Self {
            target,
            socket: None,
            pause_ns: 0,
            failures: 0,
            is_replacing: false,
            captured: vec![Vec::new(); captured],
            state: UserState::Absent,
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
            session: S::default(),
        }
    }

    /// Exchanges the connection of a user with this one.
    fn swap(&mut self, user: &mut User<S>) {
        use std::mem::swap;
        swap(&mut self.target, &mut user.target);
        swap(&mut self.socket, &mut user.socket);
        swap(&mut self.pause_ns, &mut user.pause_ns);
        swap(&mut self.failures, &mut user.failures);
        swap(&mut self.is_replacing, &mut user.is_replacing);
        for (mine, other) in self.captured.iter_mut().zip(&mut user.script.captured) {
            swap(mine, other);
        }
        swap(&mut self.state, &mut user.state);
        swap(&mut self.tunnel, &mut user.tunnel);
        swap(&mut self.connect_ns, &mut user.connect_ns);
        swap(&mut self.part_ns, &mut user.part_ns);
        swap(&mut self.ready_ns, &mut user.ready_ns);
        swap(&mut self.pending, &mut user.pending);
        swap(&mut self.room, &mut user.room);
        swap(&mut self.sent_here, &mut user.sent_here);
        swap(&mut self.done_here, &mut user.done_here);
        swap(&mut self.is_spent, &mut user.is_spent);
        swap(&mut self.is_timed, &mut user.is_timed);
        swap(&mut self.session, &mut user.session);
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
            target: 0,
            state: UserState::Absent,
            socket: None,
            tunnel: Tunnel::None,
            connect_ns: 0,
            part_ns: 0,
            ready_ns: 0,
            pending: VecDeque::new(),
            owed: VecDeque::new(),
            room: u32::MAX,
            sent_here: 0,
            done_here: 0,
            detour: None,
            rendered: WholeRequest::default(),
            jar: Jar::default(),
            is_spent: false,
            is_listed: false,
            is_held: false,
            free_ns: 0,
            is_timed: false,
            next_ns: 0,
            rests_until_ns: 0,
            pause_ns: 0,
            failures: 0,
            has_tried: false,
            is_replacing: false,
            script,
            session: S::default(),
            parked: Vec::new(),
        }
    }

    /// Goes on with its connection to another server, if it has one; the current one is kept. Nothing is in flight. A
    /// conversation captures this number of values.
    pub(crate) fn turn_to(&mut self, target: u16, captured: usize) {
        if self.target == target {
            return;
        }
        let known = self.parked.iter().position(|link| link.target == target);
        let mut link = match known {
            Some(place) => self.parked.swap_remove(place),
            None => Link::to(target, captured),
        };
        link.swap(self);
        self.parked.push(link);
    }

    /// Connections may be opened at once.
    pub(crate) fn end_pauses(&mut self) {
        self.pause_ns = 0;
        for link in &mut self.parked {
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
        parked.position(|link| link.socket == Some(id))
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
        !matches!(self.state, UserState::Retired | UserState::Gone)
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
        let user = User {
            number: self.number,
            index: self.index,
            target: self.target,
            state: self.state,
            socket: self.socket,
            tunnel: self.tunnel,
            connect_ns: self.connect_ns,
            part_ns: self.part_ns,
            ready_ns: self.ready_ns,
            pending: self.pending,
            owed: self.owed,
            room: self.room,
            sent_here: self.sent_here,
            done_here: self.done_here,
            detour: self.detour,
            rendered: self.rendered,
            jar: self.jar,
            is_spent: self.is_spent,
            is_listed: self.is_listed,
            is_held: self.is_held,
            free_ns: self.free_ns,
            is_timed: self.is_timed,
            next_ns: self.next_ns,
            rests_until_ns: self.rests_until_ns,
            pause_ns: self.pause_ns,
            failures: self.failures,
            has_tried: self.has_tried,
            is_replacing: self.is_replacing,
            script: self.script,
            session,
            parked: Vec::new(),
        };
        (user, self.session)
    }

    /// Resets the connection and its state.
    pub(crate) fn forget_connection(&mut self) {
        self.socket = None;
        self.tunnel = Tunnel::None;
        self.room = u32::MAX;
        self.sent_here = 0;
        self.done_here = 0;
        self.is_spent = false;
        self.is_timed = false;
        self.session = S::default();
        if self.is_there() {
            self.state = UserState::Absent;
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
        (user.session, user.pause_ns, user.sent_here) = (7, 5, 9);
        user.rests_until_ns = 2;
        user.turn_to(1, 1);
        assert_eq!((user.target, user.session, user.pause_ns), (1, 0, 0));
        assert_eq!(user.script.captured, [&b""[..], b"of the user"]);
        assert_eq!((user.sent_here, user.rests_until_ns), (0, 2));
        user.script.captured[0] = b"of there".to_vec();
        user.failures = 4;
        let seen = user.with_parked(0, |user| {
            user.is_spent = true;
            (user.target, user.session, user.script.captured[0].clone())
        });
        assert_eq!(seen, (0, 7, b"of here".to_vec()));
        assert_eq!((user.target, user.is_spent, user.failures), (1, false, 4));
        user.turn_to(0, 1);
        assert_eq!((user.session, user.is_spent, user.failures), (7, true, 0));
        assert_eq!(user.script.captured, [&b"of here"[..], b"of the user"]);
        user.turn_to(1, 1);
        assert_eq!(user.script.captured[0], b"of there");
        assert_eq!(user.parked.len(), 1);
        user.end_pauses();
        user.turn_to(0, 1);
        assert_eq!(user.pause_ns, 0);
    }

    #[test]
    fn another_session_changes_nothing_else() {
        let mut user = user();
        user.turn_to(2, 0);
        user.session = 5;
        let (session, number) = user.with_session("text".to_owned(), |typed| {
            typed.failures = 6;
            typed.session.push('s');
            typed.number
        });
        assert_eq!((session.as_str(), number), ("texts", 3));
        assert_eq!((user.session, user.failures, user.target), (5, 6, 2));
        assert_eq!(user.parked.len(), 1);
    }
}

//! Feed of the dashboard: WebSockets of this listener that receive the statistics of the server once a second.
//!
//! All of them receive the same snapshot. A ping follows each snapshot, and the next one is sent after its pong: at most
//! one snapshot is on its way to a peer, and a slow reader misses some. A socket ends with the login that opened it.

use crate::ops::request::Response;
use crate::ops::task::TaskContext;
use std::collections::HashMap;
use std::time::{Duration, Instant};
use tidewire_net::{ConnectionId, Io};
use tidewire_wire::close::CloseCode;
use tidewire_wire::connection::{Connection, ConnectionState};
use tidewire_wire::frame::{OpCode, Role, write_frame};
use tidewire_wire::handshake::server::{Limits, parse_request, write_accept};
use tidewire_wire::message::{Event, Input};

/// The sockets, and when they receive the next snapshot.
#[derive(Debug, Default)]
pub(crate) struct Feed {
    sockets: HashMap<ConnectionId, FeedSocket>,
    /// The time of the next snapshot; `None` without a socket.
    due: Option<Instant>,
    /// Whether a worker makes a snapshot now.
    is_asked: bool,
    /// Snapshots so far; the payload of the pings.
    snapshots: u64,
    /// How often a login had been ended at the last look.
    login_ends: u64,
}

#[derive(Debug)]
struct FeedSocket {
    websocket: Connection,
    /// The token of the login that opened it.
    login: String,
    /// The number of the snapshot whose pong has not arrived yet.
    awaited: Option<u64>,
}

impl Feed {
    pub(crate) fn has(&self, id: ConnectionId) -> bool {
        self.sockets.contains_key(&id)
    }

    /// Answers an opening handshake, of which `head` is the request.
    ///
    /// # Errors
    /// The bytes of the refusal, after which the connection has to be closed.
    pub(crate) fn open(
        &mut self,
        io: &mut Io,
        id: ConnectionId,
        login: String,
        head: &[u8],
    ) -> Result<(), Vec<u8>> {
        let mut out = Vec::new();
        let key = match parse_request(head, &Limits::default()) {
            Ok(Some(request)) => request.key().to_owned(),
            // The listener has read the whole head already.
            Ok(None) => return Err(out),
            Err(error) => {
                error.write(&mut out);
                return Err(out);
            }
        };
        if self.sockets.len() >= FEED_SOCKETS_MAX {
            let full = Response::text(503, FULL).with("Retry-After", "5");
            full.write(false, false, &mut out);
            return Err(out);
        }
        if let Some(buffer) = io.buffer(id) {
            write_accept(&key, None, &[("Cache-Control", "no-store")], buffer);
        }
        io.clear_timer(id);
        let socket = FeedSocket {
            websocket: Connection::new(Role::Server, MESSAGE_BYTES_MAX),
            login,
            awaited: None,
        };
        self.sockets.insert(id, socket);
        // The page shows something at once.
        self.due = Some(io.turn_started());
        Ok(())
    }

    /// The connection has ended.
    pub(crate) fn remove(&mut self, id: ConnectionId) {
        self.sockets.remove(&id);
        if self.sockets.is_empty() {
            self.due = None;
        }
    }

    /// Reads what the peer sends; how much of it is used up.
    pub(crate) fn receive(&mut self, io: &mut Io, id: ConnectionId, data: &mut [u8]) -> usize {
        let all = data.len();
        let Some(socket) = self.sockets.get_mut(&id) else {
            return all;
        };
        let Connection { reader, control } = &mut socket.websocket;
        let mut input = Input::new(data);
        let (mut is_answered, mut is_forbidden) = (false, false);
        loop {
            let Some(buffer) = io.buffer(id) else {
                return all;
            };
            match control.receive(reader, &mut input, buffer) {
                Ok(None) => break,
                Ok(Some(Event::Pong(payload))) => {
                    let number = socket.awaited.map(u64::to_be_bytes);
                    is_answered |= number.is_some_and(|number| number == payload);
                }
                Ok(Some(Event::Ping(_) | Event::Close(..))) => {}
                Ok(Some(Event::Text(_) | Event::Binary(_) | Event::Compressed(_))) => {
                    is_forbidden |= control.close(POLICY, NO_MESSAGES, buffer);
                }
                Err(error) => control.fail(error.close_code(), &error.to_string(), buffer),
            }
            if control.state() == ConnectionState::Closed {
                io.close(id);
                return all;
            }
        }
        if is_forbidden {
            io.set_timer(id, io.now().monotonic_ms + CLOSE_TIMEOUT_MS);
        } else if is_answered && control.is_open() {
            socket.awaited = None;
            io.clear_timer(id);
        }
        input.consumed()
    }

    /// The time of the next call of [`turn`](Self::turn).
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.due
    }

    /// Ends the sockets whose login has ended; whether a snapshot is to be made now.
    pub(crate) fn turn(&mut self, io: &mut Io, context: &TaskContext) -> bool {
        let now = io.turn_started();
        if self.due.is_none_or(|due| now < due) {
            return false;
        }
        self.due = Some(now + SNAPSHOT_INTERVAL);
        self.end_stale(io, context);
        let is_wanted = self.sockets.values().any(FeedSocket::is_free);
        is_wanted && !self.is_asked
    }

    /// A worker makes a snapshot, or none is free to.
    pub(crate) fn ask(&mut self, is_asked: bool) {
        self.is_asked = is_asked;
    }

    /// Sends a snapshot to every peer that has received the one before.
    pub(crate) fn send(&mut self, io: &mut Io, snapshot: &str) {
        self.is_asked = false;
        self.snapshots += 1;
        for (id, socket) in &mut self.sockets {
            if !socket.is_free() || io.queued_bytes(*id) > 0 {
                continue;
            }
            let Some(buffer) = io.buffer(*id) else {
                continue;
            };
            write_frame(buffer, OpCode::Text, snapshot.as_bytes(), None);
            write_frame(buffer, OpCode::Ping, &self.snapshots.to_be_bytes(), None);
            socket.awaited = Some(self.snapshots);
            io.set_timer(*id, io.now().monotonic_ms + PONG_TIMEOUT_MS);
        }
    }

    /// Ends the sockets whose login has ended, or whose key is none any more.
    fn end_stale(&mut self, io: &mut Io, context: &TaskContext) {
        let now = Instant::now();
        for (id, socket) in &mut self.sockets {
            if context.known_login(&socket.login, now).is_none() {
                socket.close(io, *id, POLICY, LOGGED_OUT);
            }
        }
    }

    /// The same if a login was ended since the last look, which costs little if none was.
    pub(crate) fn look_at_logins(&mut self, io: &mut Io, context: &TaskContext) {
        let ends = context.logins.ends();
        if ends != self.login_ends {
            self.login_ends = ends;
            self.end_stale(io, context);
        }
    }

    /// The listener stops.
    pub(crate) fn end_all(&mut self, io: &mut Io) {
        for (id, socket) in &mut self.sockets {
            socket.close(io, *id, Some(CloseCode::GOING_AWAY), STOPPING);
        }
    }
}

impl FeedSocket {
    /// Whether it may receive a snapshot.
    fn is_free(&self) -> bool {
        self.awaited.is_none() && self.websocket.control.is_open()
    }

    fn close(&mut self, io: &mut Io, id: ConnectionId, code: Option<CloseCode>, reason: &str) {
        if let Some(buffer) = io.buffer(id)
            && self.websocket.control.close(code, reason, buffer)
        {
            io.set_timer(id, io.now().monotonic_ms + CLOSE_TIMEOUT_MS);
        }
    }
}

/// Sockets at the same time; the next one gets HTTP 503.
pub const FEED_SOCKETS_MAX: usize = 16;

/// How often the sockets receive a snapshot.
const SNAPSHOT_INTERVAL: Duration = Duration::from_secs(1);

/// The largest message that is read before it is refused, in bytes.
const MESSAGE_BYTES_MAX: usize = 1024;

/// The time for a peer to receive a snapshot, in milliseconds.
const PONG_TIMEOUT_MS: u64 = 30_000;

/// The time for a peer to answer a close frame, in milliseconds.
const CLOSE_TIMEOUT_MS: u64 = 2_000;

const POLICY: Option<CloseCode> = Some(CloseCode::POLICY_VIOLATION);

const FULL: &str = "there are too many dashboards open\n";

const NO_MESSAGES: &str = "this socket takes no messages";

const LOGGED_OUT: &str = "the login has ended";

const STOPPING: &str = "the server stops";

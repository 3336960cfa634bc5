//! Places of the listener's connections: which connection is closed when all places are in use.

use std::collections::VecDeque;
use tidewire_net::{ConnectionId, Io};

/// The connections in the order in which they were of use last.
#[derive(Debug, Default)]
pub(crate) struct Places {
    /// Open ones, by the time of their last whole request or, before it, of their opening.
    open: VecDeque<ConnectionId>,
    /// Closed ones that wait for their peers, and some that do not any more.
    closing: VecDeque<ConnectionId>,
}

impl Places {
    pub(crate) fn enter(&mut self, id: ConnectionId) {
        self.open.push_back(id);
    }

    /// The connection has sent a whole request.
    pub(crate) fn touch(&mut self, id: ConnectionId) {
        self.leave(id);
        self.open.push_back(id);
    }

    /// The connection is over for the listener.
    pub(crate) fn close(&mut self, io: &Io, id: ConnectionId) {
        self.leave(id);
        if self.closing.len() >= 2 * super::CONNECTIONS_MAX {
            self.closing.retain(|id| io.is_closing(*id));
        }
        self.closing.push_back(id);
    }

    /// Ends a connection of which nobody waits for anything: the oldest that is closed already, or
    /// else the oldest that is idle. `false` if there is none.
    pub(crate) fn make_room(
        &mut self,
        io: &mut Io,
        is_idle: impl Fn(ConnectionId) -> bool,
    ) -> bool {
        while let Some(id) = self.closing.pop_front() {
            if io.is_closing(id) {
                io.abort(id);
                return true;
            }
        }
        // A connection with an unsent answer counts as idle only if no other connection is idle.
        let has_taken_all = |id: &&ConnectionId| is_idle(**id) && io.queued_bytes(**id) == 0;
        let idle = self.open.iter().find(has_taken_all);
        let Some(id) = idle.or_else(|| self.open.iter().find(|id| is_idle(**id))) else {
            return false;
        };
        let id = *id;
        self.leave(id);
        io.abort(id);
        true
    }

    fn leave(&mut self, id: ConnectionId) {
        if let Some(place) = self.open.iter().position(|other| *other == id) {
            self.open.remove(place);
        }
    }
}

/// Connections that may be open at once. The oldest idle one gives way to a further one, which gets
/// HTTP 503 only if none is idle: all wait for an answer, or are sending what their request
/// announced.
pub const CONNECTIONS_MAX: usize = 256;

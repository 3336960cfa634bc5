//! Changes to sessions that other threads ask for.

use crate::session::Session;
use crate::session::application::Application;
use crate::shard::EngineShard;
use crate::shard::drain::tell_when_to_return;
use crate::shard::mailbox::{ChangeKind, ChangedSessions, SessionChange};
use std::collections::VecDeque;
use std::vec;
use tidewire_net::{ConnectionId, Io};
use tidewire_wire::session::Action;

/// The id of a connection has the time of its beginning.
fn began_after(session: &Session<'_>, unix_ms: Option<u64>) -> bool {
    let began = session.state.session.connection_id().unix_ms();
    unix_ms.is_some_and(|unix_ms| began > unix_ms)
}

impl<A: Application> EngineShard<A> {
    /// Goes on with the checks of rights, each session in its turn, at least one of them.
    pub(crate) fn check_rights(&mut self, io: &mut Io) {
        for _ in 0..self.core.rights_checks.len() {
            let Some(id) = self.core.rights_checks.pop_front() else {
                return;
            };
            self.with_session(io, id, |session| session.check_rights());
            if self.core.turn.meter.is_turn_over() {
                return;
            }
        }
    }

    /// Does to one session or to those of a user what another thread asked for: at once what a turn has room for, and the
    /// rest in the next turns. Changes are done in the order in which they were asked for.
    pub(crate) fn change(&mut self, io: &mut Io, change: SessionChange) {
        let sessions = match &change.whose {
            ChangedSessions::Connection(id) => vec![*id],
            ChangedSessions::User(user) => self.core.users.of(user),
            ChangedSessions::All => self.sessions(),
        };
        let spread_ms = match change.whose {
            ChangedSessions::All => self.reconnect_spread_ms(),
            _ => 0,
        };
        self.changes.waiting.push_back(WaitingChange {
            change,
            sessions: sessions.into_iter(),
            spread_ms,
        });
        self.make_changes(io);
    }

    /// Goes on with the changes that wait.
    pub(crate) fn make_changes(&mut self, io: &mut Io) {
        while let Some(mut waiting) = self.changes.waiting.pop_front() {
            // So that what waits stays bounded.
            let has_room = self.changes.waiting.len() < WAITING_CHANGES_MAX;
            while !has_room
                || (self.changes.left_in_turn > 0 && !self.core.turn.meter.is_turn_over())
            {
                let Some(id) = waiting.sessions.next() else {
                    break;
                };
                self.changes.left_in_turn = self.changes.left_in_turn.saturating_sub(1);
                self.with_session(io, id, |session| waiting.make(session));
            }
            if waiting.sessions.len() > 0 {
                self.changes.waiting.push_front(waiting);
                return;
            }
        }
    }
}

/// The changes that are not done yet, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    waiting: VecDeque<WaitingChange>,
    /// How many sessions may be changed in this turn still.
    left_in_turn: usize,
}

impl Changes {
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(crate) fn start_turn(&mut self) {
        self.left_in_turn = CHANGED_SESSIONS_PER_TURN;
    }
}

#[derive(Debug)]
struct WaitingChange {
    change: SessionChange,
    /// Those that are not changed yet.
    sessions: vec::IntoIter<ConnectionId>,
    spread_ms: u64,
}

impl WaitingChange {
    fn make(&self, session: &mut Session<'_>) {
        if began_after(session, self.change.until_unix_ms) {
            return;
        }
        match &self.change.what {
            ChangeKind::Subscription(Action::Subscribe, topic) => {
                // The client has been notified of a limit.
                let _ = session.subscribe_for(topic);
            }
            ChangeKind::Subscription(Action::Unsubscribe, topic) => {
                session.unsubscribe_for(topic);
            }
            ChangeKind::Access(rules) => {
                session.state.client.access_is_set = true;
                session.set_access(rules);
            }
            ChangeKind::End(code, reason) => {
                tell_when_to_return(session, self.spread_ms, reason);
                session.start_close(*code, reason);
            }
            ChangeKind::BrokerUpdate => session.tell_broker_update(),
        }
    }
}

/// The sessions changed in one turn. The end of a session costs some 10 µs.
const CHANGED_SESSIONS_PER_TURN: usize = 256;

/// A change that finds as many waiting has the oldest finished at once.
const WAITING_CHANGES_MAX: usize = 16;

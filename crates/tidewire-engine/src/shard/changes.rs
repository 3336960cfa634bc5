//! Changes to sessions that other threads ask for.

use crate::session::Session;
use crate::session::application::Application;
use crate::shard::EngineShard;
use crate::shard::drain::tell_when_to_return;
use crate::shard::mailbox::{ChangeKind, ChangedSessions, SessionChange};
use tidewire_net::Io;
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
            if self.core.meter.is_turn_over() {
                return;
            }
        }
    }

    /// Does to one session or to those of a user what another thread asked for.
    pub(crate) fn change(&mut self, io: &mut Io, change: &SessionChange) {
        let sessions = match &change.whose {
            ChangedSessions::Connection(id) => vec![*id],
            ChangedSessions::User(user) => self.core.users.of(user),
            ChangedSessions::All => self.sessions(),
        };
        let spread_ms = match change.whose {
            ChangedSessions::All => self.reconnect_spread_ms(),
            _ => 0,
        };
        for id in sessions {
            self.with_session(io, id, |session| match &change.what {
                _ if began_after(session, change.until_unix_ms) => {}
                ChangeKind::Subscription(Action::Subscribe, topic) => {
                    // The client has been told of a limit.
                    let _ = session.subscribe_for(topic);
                }
                ChangeKind::Subscription(Action::Unsubscribe, topic) => {
                    session.unsubscribe_for(topic);
                }
                ChangeKind::Access(rules) => {
                    session.state.access_is_set = true;
                    session.set_access(rules);
                }
                ChangeKind::End(code, reason) => {
                    tell_when_to_return(session, spread_ms, reason);
                    session.start_close(*code, reason);
                }
            });
        }
    }
}

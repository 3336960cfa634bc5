//! Ends of a WebSocket before the load ends it.

use super::MessagesUser;
use crate::accounting::ended::Ended;
use crate::worker::service::Core;

/// Fails the messages in flight. Without any, the error is counted once.
pub(super) fn end_session(core: &mut Core, user: &mut MessagesUser, name: &'static str) {
    if user.link.pending.is_empty() {
        core.tally.add_error(name);
    }
    while let Some(pending) = user.link.pending.pop_front() {
        core.fail(user, &pending, name, 0);
    }
}

pub(super) fn note_ended(
    core: &mut Core,
    user: &mut MessagesUser,
    how: &'static str,
    (code, reason): (Option<u16>, &str),
) {
    let ended = Ended {
        how,
        code,
        reason: reason.to_owned(),
        was_ready: true,
    };
    core.note_ended(user, ended);
}

//! Sessions that have ended, on their way out of their topics: those of a session with many take several turns.

use crate::session::Session;
use crate::state::topics::Leaver;
use crate::topics::member::member_key;

impl Session<'_> {
    /// Takes a session that has ended out of everything: at once, or out of many topics in the turns to come.
    pub(crate) fn leave_topics(&mut self) {
        self.leave_groups(None);
        let Some(topics) = self.state.topics.take() else {
            return;
        };
        let mut leaver = Leaver {
            holder: self.state.holder(),
            who: self.presence_name(),
            topics,
        };
        let is_long = leaver.topics.slots.len() > LEFT_AT_ONCE_MAX;
        if is_long {
            self.core.leavers.keys.insert(member_key(self.state.key.id));
            self.core.leavers.queue.push_back(leaver);
        } else {
            while self.core.leave_next(&mut leaver) {}
        }
    }
}

/// Of so many topics a session is taken out in one step, which is some hundred microseconds of work.
const LEFT_AT_ONCE_MAX: usize = 100;

//! Removal of an ended session from its topics. A session with many topics needs several turns.

use crate::session::Session;
use crate::state::session_topics::EndedSession;
use crate::topics::member::member_key;

impl Session<'_> {
    /// Removes a session that has ended from everything: at once, or from many topics in the next
    /// turns.
    pub(crate) fn leave_topics(&mut self) {
        self.leave_groups(None);
        let Some(topics) = self.state.topics.take() else {
            return;
        };
        let mut ended = EndedSession {
            holder: self.state.holder(),
            who: self.presence_name(),
            topics,
        };
        let is_long = ended.topics.slots.len() > LEFT_AT_ONCE_MAX;
        if is_long {
            self.core
                .leaving
                .ended_sessions
                .keys
                .insert(member_key(self.state.key.id));
            self.core.leaving.ended_sessions.queue.push_back(ended);
        } else {
            while self.core.leave_next(&mut ended) {}
        }
    }
}

/// Up to this many topics, a session leaves all in one step, which is some hundred microseconds of
/// work.
const LEFT_AT_ONCE_MAX: usize = 100;

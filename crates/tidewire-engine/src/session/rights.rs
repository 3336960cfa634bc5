//! Checks of rights: they run in their part of each turn, whatever else the connection waits for.

use crate::session::Session;
use crate::state::rights::RightsCheck;

impl Session<'_> {
    /// Has the shard check subscriptions of this session, from its next turn on.
    pub(super) fn start_check(&mut self, check: RightsCheck) {
        let topics = self.state.topics.get_or_insert_default();
        // A session with a check is in the shard's list once.
        if topics.checks.is_empty() {
            self.core.rights_checks.push_back(self.state.key.id);
        }
        topics.checks.push(check);
    }

    /// Goes on with the checks; what exceeds the part of this turn follows in the next one.
    pub(crate) fn check_rights(&mut self) {
        while let Some(check) = self.next_check() {
            let rest = match check {
                RightsCheck::Changed(changed) => {
                    self.check_changed_right(changed).map(RightsCheck::Changed)
                }
                RightsCheck::TokensEnded(ended) => {
                    self.check_ended_token(ended).map(RightsCheck::TokensEnded)
                }
            };
            if let (Some(rest), Some(topics)) = (rest, &mut self.state.topics) {
                topics.checks.push(rest);
            }
            if self.core.turn.meter.is_spent() {
                if self.has_checks() {
                    self.core.rights_checks.push_back(self.state.key.id);
                }
                return;
            }
        }
    }

    /// A session on its way out leaves its topics anyway.
    fn next_check(&mut self) -> Option<RightsCheck> {
        let is_open = self.state.is_open();
        let checks = &mut self.state.topics.as_mut()?.checks;
        if !is_open {
            checks.clear();
        }
        checks.pop()
    }

    fn has_checks(&self) -> bool {
        let topics = self.state.topics.as_ref();
        topics.is_some_and(|topics| !topics.checks.is_empty())
    }
}

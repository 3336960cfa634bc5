//! Answers that are known by the same value in a field.

use super::{Matching, Messages, MessagesUser};
use crate::worker::service::user::Pending;

impl Messages {
    /// The place of the message that a message of the server answers by the same value in a field.
    fn place_of(&self, user: &MessagesUser, message: &[u8]) -> Option<usize> {
        let Matching::Field(pointer) = &self.setup.matching else {
            return None;
        };
        let key = pointer.key(message)?;
        user.pending.iter().position(|pending| pending.key == key)
    }

    pub(super) fn is_answer(&self, user: &MessagesUser, message: &[u8]) -> bool {
        self.place_of(user, message).is_some()
    }

    pub(super) fn answered_by(&self, user: &mut MessagesUser, message: &[u8]) -> Option<Pending> {
        let at = self.place_of(user, message)?;
        user.pending.remove(at)
    }
}

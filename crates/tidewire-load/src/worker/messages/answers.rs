//! Answers: the message of the user that a message of the server answers.

use super::places::Bytes;
use super::{Matching, Messages, MessagesUser};
use crate::worker::service::user::Pending;

impl Messages {
    /// The place of the message that a message of the server answers by the same value.
    pub(super) fn place_of(&self, user: &MessagesUser, message: &[u8]) -> Option<usize> {
        let conversation = self.setup.conversation.as_ref();
        let content_at = conversation.map_or(0, |all| all.framing.content_at(message));
        let key = self.setup.matching.key(Bytes {
            all: message,
            content_at,
        })?;
        user.link
            .pending
            .iter()
            .position(|pending| pending.key == key)
    }

    pub(super) fn is_answer(&self, user: &MessagesUser, message: &[u8]) -> bool {
        self.place_of(user, message).is_some()
    }

    pub(super) fn answered_by(&self, user: &mut MessagesUser, message: &[u8]) -> Option<Pending> {
        match &self.setup.matching {
            Matching::None => None,
            Matching::Order => user.link.pending.pop_front(),
            Matching::Field(_) | Matching::Regex(_) | Matching::Sequence(_) => {
                let at = self.place_of(user, message)?;
                user.link.pending.remove(at)
            }
        }
    }
}

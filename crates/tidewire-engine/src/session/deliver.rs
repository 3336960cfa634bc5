//! Delivery of publications to one subscriber.

use crate::state::connection::ConnectionState;
use crate::state::core::Core;
use crate::topics::local::Item;
use crate::topics::publication::Publication;
use std::sync::Arc;
use tidewire_net::Io;

impl Core {
    /// Puts into the place of publications that are expired what tells so.
    pub(crate) fn replace_expired(&mut self, io: &Io, batch: &mut Vec<Item>) {
        let unix_ms = io.now().unix_ms;
        batch.retain_mut(|item| {
            if !item.publication.is_expired(unix_ms) {
                return true;
            }
            match self.gap_of_expired(&item.publication, unix_ms) {
                Some(gap) => item.publication = Arc::new(gap),
                None => return false,
            }
            true
        });
    }

    /// Counts an expired publication; what tells of it, if it had a position.
    fn gap_of_expired(&mut self, expired: &Publication, unix_ms: u64) -> Option<Publication> {
        self.counters.publications_expired.add(1);
        let id = self.new_id(unix_ms);
        Publication::gap_of(expired, id, unix_ms)
    }

    /// Sends a publication to a session, if it is for it. One that is expired is told of.
    pub(crate) fn publish_to(
        &mut self,
        io: &mut Io,
        state: &mut ConnectionState,
        publication: &Publication,
    ) {
        if publication.exclude == Some(state.key) {
            return;
        }
        let unix_ms = io.now().unix_ms;
        if publication.is_expired(unix_ms) {
            if let Some(gap) = self.gap_of_expired(publication, unix_ms) {
                self.send(io, state, gap.payload(state.session.format()));
            }
            return;
        }
        let payload = publication.payload(state.session.format());
        self.counters.deliveries.add(1);
        self.send(io, state, payload);
    }

    /// Whether a publication has not come to a connection by another of its subscriptions. It has from now on.
    pub(crate) fn is_first_way(&self, state: &mut ConnectionState, item: &Item) -> bool {
        let round = self.topics.round.number;
        let topics = state.topics.as_mut();
        topics.is_some_and(|topics| topics.received.take(round, item.mark))
    }
}

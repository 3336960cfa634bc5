//! Delivery of publications to one subscriber.

use crate::session::Session;
use crate::topics::local::Item;
use crate::topics::publication::Publication;
use tidewire_net::{ConnectionId, Io};

impl Session<'_> {
    /// Sends a publication to a session, if it is for it. An expired one is reported.
    pub(crate) fn deliver(&mut self, publication: &Publication) {
        if publication.exclude.contains(self.state.key) {
            return;
        }
        if publication.is_volatile && lags(self.io, self.state.key.id) {
            return self.core.counters.deliveries_skipped.add(1);
        }
        let unix_ms = self.io.now().steady_unix_ms;
        if publication.is_expired(unix_ms) {
            if let Some(gap) = self.core.gap_of_expired(publication, unix_ms) {
                self.send(gap.payload(self.state.session.format()));
            }
            return;
        }
        let payload = publication.payload(self.state.session.format());
        self.core.counters.deliveries.add(1);
        self.send(payload);
    }

    /// True if no other subscription of the connection has received this publication. The call marks the
    /// publication as received.
    pub(crate) fn is_first_way(&mut self, item: &Item) -> bool {
        let round = self.core.topics.round.number;
        let topics = self.state.topics.as_mut();
        topics.is_some_and(|topics| topics.received.take(round, item.mark))
    }
}

/// Whether a connection has not accepted the bytes that were sent to it. If so, it will be reported to have
/// drained.
pub(crate) fn lags(io: &mut Io, id: ConnectionId) -> bool {
    if io.queued_bytes(id) > LAG_BYTES && !io.is_blocked(id) {
        // Writes only the bytes that wait.
        io.write_now(id, &[]);
    }
    io.is_blocked(id)
}

/// Above this many bytes that wait for a socket, the shard tries to write them before it adds more.
const LAG_BYTES: usize = 64 * 1024;

//! A session together with the application.

use crate::config::backend::BackendEvent;
use crate::counters::Counters;
use crate::model::{Message, Peer};
use crate::session::Session;
use crate::session::application::{Application, Marked};
use crate::session::context::Context;
use crate::state::connection::Unannounced;

/// A [`Session`] and the application that its messages are dispatched to.
pub(crate) struct Inbound<'a, A: Application> {
    pub(crate) session: Session<'a>,
    pub(crate) app: &'a mut Marked<A>,
    pub(crate) tally: Tally,
}

/// Counts of one call, added to the shard's counters at its end.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) received: u64,
    pub(crate) received_bytes: u64,
    pub(crate) dispatched: u64,
}

impl Tally {
    /// Adds to the counters what has not been added yet.
    pub(crate) fn count(&mut self, counters: &Counters) {
        let counts = std::mem::take(self);
        counters.messages_received.add(counts.received);
        counters.bytes_received.add(counts.received_bytes);
        counters.messages_delivered.add(counts.dispatched);
    }
}

/// Counts the received messages even if the application has panicked.
impl<A: Application> Drop for Inbound<'_, A> {
    fn drop(&mut self) {
        if self.tally.received | self.tally.dispatched > 0 {
            self.tally.count(&self.session.core.counters);
        }
    }
}

impl<A: Application> Inbound<'_, A> {
    /// Announces a new session to the application. A session that has to be encrypted is announced
    /// once it is.
    pub(crate) fn announce_when_encrypted(&mut self, peer: Peer) {
        let config = &self.session.core.setup.config;
        if !config.encryption.is_required() {
            return self.announce(&peer);
        }
        let timeout_ms = config.limits.handshake_timeout_ms;
        let until_ms = self.session.now().monotonic_ms.saturating_add(timeout_ms);
        self.session.state.unannounced = Some(Box::new(Unannounced { peer, until_ms }));
        self.session.set_timer();
    }

    /// Announces a session to the application.
    pub(crate) fn announce(&mut self, peer: &Peer) {
        tracing::debug!(
            connection = %peer.connection,
            user = peer.user.as_deref(),
            address = peer.address.map(tracing::field::display),
            "a session starts",
        );
        let mut context = Context::new(&mut self.session);
        self.app.on_connect(&mut context, peer);
        self.session.close_if_asked();
    }

    /// Acknowledges and counts the messages of one read, and stops reading if too much waits to be
    /// sent.
    #[inline]
    pub(crate) fn settle(&mut self) {
        if self.session.state.producer.is_some() {
            self.session.acknowledge_accepted();
        }
        let Session { io, core, state } = &mut self.session;
        self.tally.count(&core.counters);
        core.turn.meter.settle(state.limits.owner);
        let id = state.key.id;
        let outbox_bytes = io.queued_bytes(id);
        if outbox_bytes > core.setup.config.limits.outbox_pause_bytes {
            state.limits.pauses.outbox = true;
            state.limits.pauses.outbox_bytes_seen = outbox_bytes;
            io.pause_reading(id);
            // The socket may accept all of it at the end of the turn.
            io.await_drained(id);
            core.counters.reading_pauses.add(1);
        }
    }

    /// Dispatches a message to the application.
    #[inline(always)]
    pub(crate) fn dispatch_message(&mut self, message: Message<'_>) {
        self.tally.dispatched += 1;
        if let Some(backend) = self.session.backend(BackendEvent::Message) {
            return self.session.report_message(&backend, message);
        }
        let mut context = Context::new(&mut self.session);
        self.app.on_message(&mut context, message);
    }
}

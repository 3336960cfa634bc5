//! Messages of peers that have begun and not ended.

use crate::limits::lines::LineKind;
use crate::limits::unfinished::Evicted;
use crate::session::Session;
use crate::session::application::Application;
use crate::shard::EngineShard;
use crate::state::connection::{Connection, Phase};
use tidewire_net::{ConnectionId, Io};
use tidewire_wire::close::CloseCode;

impl<A: Application> EngineShard<A> {
    /// Charges a connection for what it has of a message.
    #[cold]
    pub(crate) fn charge_unfinished(&mut self, id: ConnectionId) {
        let Some(Some(Connection { reader, state })) = self.connections.get_mut(id.index()) else {
            return;
        };
        if state.phase() == Phase::Over {
            // Nothing more is read of it.
            reader.discard();
        }
        let place = (self.core.index, id);
        let bytes = reader.unfinished_bytes();
        let unfinished = &self.core.shared.charges.unfinished;
        unfinished.charge(
            &mut state.limits.unfinished,
            state.limits.owner,
            place,
            bytes,
        );
    }

    /// Ends the connections whose messages have to make room.
    pub(crate) fn end_unfinished(&mut self, io: &mut Io) {
        let shard = self.core.index as usize;
        if !self.core.shared.charges.unfinished.is_due(shard) {
            return;
        }
        for evicted in self.core.shared.charges.unfinished.take_evicted(shard) {
            self.lose_message(io, evicted);
        }
    }

    fn lose_message(&mut self, io: &mut Io, evicted: Evicted) {
        let id = evicted.connection;
        let Some(connection) = self.connection(id) else {
            return;
        };
        let charge = connection.state.limits.unfinished.as_ref();
        if !charge.is_some_and(|charge| charge.is(evicted)) {
            return;
        }
        let bytes = connection.reader.unfinished_bytes();
        connection.reader.discard();
        connection.state.limits.unfinished = None;
        self.core.counters.messages_unfinished_evicted.add(1);
        self.with_session(io, id, |session| {
            if session.permits_line(LineKind::UnfinishedMessage) {
                tracing::info!(
                    connection = %session.state.key,
                    address = session.state.peer_address(session.io).map(tracing::field::display),
                    user = session.state.client.user.as_deref(),
                    bytes,
                    "a connection ends because too many unfinished messages wait for their rest",
                );
            }
            if session.state.phase() != Phase::Over {
                let words = "too many unfinished messages of this user or address";
                session.end(CloseCode::UNFINISHED_MESSAGES, words);
            }
        });
    }
}

impl Session<'_> {
    /// Releases the charge for the unfinished message of a connection that is gone.
    pub(crate) fn release_unfinished(&mut self) {
        let charge = self.state.limits.unfinished.take();
        self.core.shared.charges.unfinished.release(charge);
    }
}

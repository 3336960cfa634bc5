//! Operations on a shard: what the broker has answered since the last turn.

use crate::limits::lines::LineKind;
use crate::session::application::Application;
use crate::shard::EngineShard;
use crate::state::broker_operations::Operation;
use crate::topics::broker::TicketOutcome;
use tidewire_net::{ConnectionId, Io};

impl<A: Application> EngineShard<A> {
    /// Passes the answers of the broker to the connections; those that have waited for it go on.
    pub(crate) fn settle_operations(&mut self, io: &mut Io) {
        for (number, outcome) in self.core.operations.inbox.take(ANSWERS_PER_TURN) {
            match self.core.operations.close(number) {
                None => {}
                Some(Operation::Unawaited(topic)) => {
                    if let Err(refusal) = outcome {
                        self.core.counters.publications_refused.add(1);
                        if self.core.shared.lines.permit(
                            LineKind::PublicationLost,
                            None,
                            io.now().unix_ms,
                        ) {
                            tracing::warn!(%topic, ?refusal, "the application's publication is lost");
                        }
                    }
                }
                Some(Operation::Publication(id, publication)) => {
                    self.with_session(io, id, |session| {
                        session.finish_publication(publication, outcome);
                    });
                    self.end_broker_pause(io, id);
                }
                Some(Operation::ProducerOpening(id)) => {
                    self.with_inbound(io, id, |inbound| inbound.finish_opening(outcome));
                    self.end_broker_pause(io, id);
                }
                Some(Operation::ProducerKeeping(id, last)) => {
                    self.with_inbound(io, id, |inbound| inbound.finish_keeping(last, outcome));
                    self.end_broker_pause(io, id);
                }
                Some(Operation::Preparation(id, topic)) => {
                    self.note_prepared(id, topic, outcome);
                    self.end_broker_pause(io, id);
                }
            }
        }
    }

    fn note_prepared(
        &mut self,
        id: ConnectionId,
        topic: std::sync::Arc<str>,
        outcome: TicketOutcome,
    ) {
        let connection = self.connection(id);
        let operations = connection.and_then(|found| found.state.work.operations.as_deref_mut());
        let Some(operations) = operations else { return };
        operations.preparing = operations.preparing.saturating_sub(1);
        if let Err(refusal) = outcome {
            operations.refused.push((topic, refusal));
        }
    }

    /// A connection goes on if it has waited for the broker or the backend and need not any longer.
    pub(crate) fn end_broker_pause(&mut self, io: &mut Io, id: ConnectionId) {
        let Some(connection) = self.connection(id) else {
            return;
        };
        let state = &mut connection.state;
        if state.limits.pauses.broker && !state.awaits_broker() {
            state.limits.pauses.broker = false;
            self.go_on(io, id);
        }
    }
}

/// Answers passed on in one turn before the connections are served again.
const ANSWERS_PER_TURN: usize = 4096;

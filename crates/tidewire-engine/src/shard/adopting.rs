//! Connections that the application hands over.

use crate::limits::lines::LineKind;
use crate::session::application::Application;
use crate::shard::EngineShard;
use crate::state::adoption::{Adopted, Adoption, Forwarded};
use tidewire_net::{Io, io_words};

impl<A: Application> EngineShard<A> {
    /// Begins a connection as if it had been accepted at a listener.
    pub(crate) fn adopt(&mut self, io: &mut Io, adoption: Adoption) {
        let forwarded = Forwarded {
            address: adoption.address,
            by_proxy: false,
            adopted: Some(Adopted {
                ticket: adoption.ticket,
                is_local: adoption.is_local,
                decision: adoption.decision,
            }),
        };
        match io.adopt(adoption.stream, adoption.received) {
            Ok(id) => self.begin(io, id, Some(Box::new(forwarded))),
            Err(error) => {
                self.core.counters.handshakes_failed.add(1);
                let lines = &self.core.shared.lines;
                if lines.permit(LineKind::NotAdopted, adoption.address, io.now().unix_ms) {
                    let error = io_words(&error);
                    tracing::warn!(error, "a connection could not be handed over");
                }
            }
        }
    }
}

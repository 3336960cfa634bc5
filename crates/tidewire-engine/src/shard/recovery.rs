//! Return of a shard that was stuck.

use crate::session::application::Application;
use crate::shard::EngineShard;
use tidewire_net::Io;
use tidewire_wire::close::CloseCode;

impl<A: Application> EngineShard<A> {
    /// Ends all sessions if the others have not waited for this shard: the deliveries dropped
    /// meanwhile may have been for any of them.
    pub(crate) fn return_from_stall(&mut self, io: &mut Io) {
        if !self.core.shared.hub.outlets[self.core.index as usize].reattach() {
            return;
        }
        self.core.counters.shard_stalls.add(1);
        tracing::error!(
            shard = self.core.index,
            "a shard was stuck and goes on; its sessions end with close code 1011",
        );
        for index in 0..self.connections.len() {
            let connection = self.connections[index].as_ref();
            if let Some(id) = connection.map(|connection| connection.state.key.id) {
                self.with_session(io, id, |session| {
                    let reason = "the server was stuck; messages may be missing";
                    session.start_close(CloseCode::INTERNAL_ERROR, reason);
                });
            }
        }
    }
}

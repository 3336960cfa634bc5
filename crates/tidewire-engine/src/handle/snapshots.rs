//! Snapshots that an application sends from another thread.

use crate::handle::Handle;
use crate::model::ConnectionKey;
use crate::model::content::Content;
use crate::session::snapshots::{check, write};
use crate::topics::broker::Sending;
use crate::topics::error::PublishError;
use crate::topics::outlet::{Origin, Target};
use crate::topics::publication::Publication;
use std::sync::Arc;

impl Handle {
    /// Sends the state of a topic to a connection, as
    /// [`Context::send_snapshot`](crate::Context::send_snapshot) does; for applications that answer a
    /// `sync_request` later. If the connection has ended meanwhile, the state is dropped without an error.
    ///
    /// # Errors
    /// [`PublishError`]; nothing was sent.
    pub fn send_snapshot(
        &self,
        connection: ConnectionKey,
        topic: &str,
        t: &str,
        payload: impl Into<Content>,
        correlation_id: Option<&str>,
    ) -> Result<(), PublishError> {
        let payload = payload.into();
        let hub = &self.shared.hub;
        check(topic, t, &payload, hub.limits.get().payload_bytes_max)?;
        if self.shared.is_stopped() {
            return Err(PublishError::Stopped);
        }
        if hub.is_busy(Origin::Outside) {
            return Err(PublishError::Busy);
        }
        let json = write(
            topic,
            None,
            t,
            (payload.as_json().as_bytes(), payload.is_binary()),
            correlation_id,
        );
        if !hub.is_here(connection) {
            hub.post_to(connection, &Sending::Event(&json));
            return Ok(());
        }
        let publication = Arc::new(Publication::event(None, json));
        let target = Target::Connection(connection.id);
        let shard = Some(connection.shard());
        hub.post(&target, shard, &publication, Origin::Outside);
        Ok(())
    }
}

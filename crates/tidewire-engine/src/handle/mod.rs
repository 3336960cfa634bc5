//! The handle of a running server, for other threads.

mod calls;
pub(crate) mod cluster_queries;
mod health;
pub(crate) mod inspect;
mod publish;
mod sessions;
mod snapshots;
pub(crate) mod topic_queries;
mod wait;

use crate::counters::Snapshot;
use crate::model::{ConnectionKey, Outgoing, SendError};
use crate::shard::mailbox::Mail;
use crate::state::adoption::Adoption;
use crate::state::shared::Shared;
use crate::topics::broker::Sending;
use crate::topics::outlet::{Origin, Target};
use crate::topics::publication::Publication;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tidewire_net::{Mailbox, MailboxError};

/// The way to a running server from any thread; cheap to clone.
#[derive(Debug, Clone)]
pub struct Handle {
    pub(crate) shared: Arc<Shared>,
    pub(crate) mailboxes: Arc<[Mailbox<Mail>]>,
}

impl Handle {
    /// Sends a message to a connection, with a broker also to one of another server, at most once. If the
    /// connection has ended meanwhile, the message is dropped without an error.
    ///
    /// # Errors
    /// [`SendError`]; nothing was queued.
    pub fn send(&self, connection: ConnectionKey, message: Outgoing) -> Result<(), SendError> {
        let hub = &self.shared.hub;
        if hub.is_here(connection) {
            return self.post(connection.shard(), Mail::Send(connection.id, message));
        }
        if self.shared.is_stopped() {
            return Err(SendError::Stopped);
        }
        if hub.is_cluster_busy() {
            return Err(SendError::Busy);
        }
        hub.post_to(connection, &Sending::Verbatim(&message));
        Ok(())
    }

    /// Sends a message as it is to every session that is open when its shard handles the message, with a broker to those
    /// of all servers. It is compressed at most once, for all sessions that use compression. In the envelope of the
    /// protocol it is sent by [`publish_to_everyone`](Self::publish_to_everyone).
    ///
    /// # Errors
    /// [`SendError`]; nobody got it.
    pub fn broadcast(&self, message: Outgoing) -> Result<(), SendError> {
        if self.shared.is_stopped() {
            return Err(SendError::Stopped);
        }
        let hub = &self.shared.hub;
        if hub.is_busy(Origin::Outside) {
            return Err(SendError::Busy);
        }
        hub.post_elsewhere(&Target::Everyone, &Sending::Verbatim(&message));
        let publication = Arc::new(Publication::verbatim(message));
        hub.post(&Target::Everyone, None, &publication, Origin::Outside);
        Ok(())
    }

    /// Takes over a connection that the application has accepted itself. Its opening handshake is answered later.
    ///
    /// # Errors
    /// [`SendError`]; the connection is closed.
    pub fn adopt(&self, adoption: Adoption) -> Result<(), SendError> {
        if self.shared.is_stopped() {
            return Err(SendError::Stopped);
        }
        let turn = self.shared.adoptions.fetch_add(1, Ordering::Relaxed);
        let shard = turn % self.mailboxes.len();
        self.post(shard as u32, Mail::Adopt(Box::new(adoption)))
    }

    /// Sessions now.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.shared.sessions.load(Ordering::Acquire)
    }

    /// The counters of all shards, summed now.
    #[must_use]
    pub fn counters(&self) -> Snapshot {
        self.shared.total()
    }

    /// The memory of the messages of all clients that have begun and not ended, in bytes, apart from those that are
    /// shorter than 4 KiB so far.
    #[must_use]
    pub fn unfinished_message_bytes(&self) -> usize {
        self.shared.charges.unfinished.bytes()
    }

    /// Whether the server rejects new connections because it is about to stop.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.shared.is_draining()
    }

    /// Accepts new connections, or rejects them with 503 and `Retry-After`, for an application that
    /// does not answer for a while. Those who are there stay. A server is not ready while it turns
    /// new connections.
    pub fn set_admitting(&self, is_admitting: bool) {
        if self
            .shared
            .life
            .admitting
            .swap(is_admitting, Ordering::AcqRel)
            != is_admitting
        {
            tracing::info!(is_admitting, "newcomers are let in, or turned away");
        }
    }

    /// Starts what [`Server::drain`](crate::Server::drain) does with a timeout of 10 seconds, without waiting or
    /// stopping.
    pub fn start_drain(&self) {
        if !self.shared.life.draining.swap(true, Ordering::AcqRel) {
            tracing::info!(connections = self.connections(), "the drain starts");
        }
        for mailbox in self.mailboxes.iter() {
            mailbox.wake();
        }
    }

    pub(crate) fn post(&self, shard: u32, mail: Mail) -> Result<(), SendError> {
        let mailbox = self
            .mailboxes
            .get(shard as usize)
            .ok_or(SendError::Stopped)?;
        post(mailbox, mail)
    }
}

fn post(mailbox: &Mailbox<Mail>, mail: Mail) -> Result<(), SendError> {
    mailbox.try_send(mail).map_err(|error| match error {
        MailboxError::Full(_) => SendError::Busy,
        MailboxError::Stopped(_) => SendError::Stopped,
    })
}

//! The bounded way into a shard from other threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

/// Sends to one shard; cheap to clone.
#[derive(Debug)]
pub struct Mailbox<M> {
    sender: SyncSender<M>,
    bell: Arc<Bell>,
}

/// Wakes the shard, once for however many mails it has not looked at.
#[derive(Debug)]
struct Bell {
    waker: mio::Waker,
    rung: AtomicBool,
}

/// Why a mail was not taken. It is given back.
#[derive(Debug, thiserror::Error)]
pub enum MailboxError<M> {
    /// The shard has not caught up with what was sent before; try again later.
    #[error("the shard's mailbox is full")]
    Full(M),
    /// The shard has stopped.
    #[error("the shard has stopped")]
    Stopped(M),
}

impl<M> Mailbox<M> {
    /// Hands `mail` to the shard without waiting.
    ///
    /// # Errors
    /// [`MailboxError::Full`] or [`MailboxError::Stopped`], with the mail.
    pub fn try_send(&self, mail: M) -> Result<(), MailboxError<M>> {
        self.sender.try_send(mail).map_err(|error| match error {
            TrySendError::Full(mail) => MailboxError::Full(mail),
            TrySendError::Disconnected(mail) => MailboxError::Stopped(mail),
        })?;
        self.bell.ring();
        Ok(())
    }

    /// Hands `mail` to the shard and waits for room. Never call it on a shard's own thread.
    ///
    /// # Errors
    /// [`MailboxError::Stopped`], with the mail.
    pub fn send(&self, mail: M) -> Result<(), MailboxError<M>> {
        // A full mailbox has a rung bell, so waiting before ringing cannot deadlock.
        self.sender
            .send(mail)
            .map_err(|error| MailboxError::Stopped(error.0))?;
        self.bell.ring();
        Ok(())
    }

    /// Makes the shard take a turn although it gets no mail: for a sender that left its work where
    /// [`handle_turn`](crate::Handler::handle_turn) looks.
    pub fn wake(&self) {
        self.bell.ring();
    }
}

impl<M> Clone for Mailbox<M> {
    fn clone(&self) -> Self {
        Self {
            sender: self.sender.clone(),
            bell: Arc::clone(&self.bell),
        }
    }
}

impl Bell {
    fn ring(&self) {
        if !self.rung.swap(true, Ordering::AcqRel)
            && let Err(error) = self.waker.wake()
        {
            tracing::error!(%error, "a shard could not be woken");
        }
    }
}

/// The shard's end.
#[derive(Debug)]
pub(crate) struct Letters<M> {
    receiver: Receiver<M>,
    bell: Arc<Bell>,
}

impl<M> Letters<M> {
    /// Must be called before a round of [`next`](Self::next): mail that comes later rings again.
    pub(crate) fn answer_bell(&self) {
        // A plain store could become visible after the round, so that a sender in between would
        // neither be seen nor ring. The swap reads from its ring, and so sees its mail.
        self.bell.rung.swap(false, Ordering::AcqRel);
    }

    /// There may be mail, or somebody wants a turn.
    #[cfg(feature = "simulation")]
    pub(crate) fn is_bell_rung(&self) -> bool {
        self.bell.rung.load(Ordering::Acquire)
    }

    pub(crate) fn next(&self) -> Option<M> {
        self.receiver.try_recv().ok()
    }
}

pub(crate) fn mailbox<M>(waker: mio::Waker, capacity: usize) -> (Mailbox<M>, Letters<M>) {
    // A channel without room hands over only to a receiver that waits, and a shard never does.
    let (sender, receiver) = sync_channel(capacity.max(1));
    let bell = Arc::new(Bell {
        waker,
        rung: AtomicBool::new(false),
    });
    (
        Mailbox {
            sender,
            bell: Arc::clone(&bell),
        },
        Letters { receiver, bell },
    )
}

//! Mailbox: a bounded queue from other threads to a shard.

use crate::closed::io_words;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

/// Sends to one shard; cheap to clone.
#[derive(Debug)]
pub struct Mailbox<M> {
    sender: SyncSender<M>,
    waker: Waker,
}

/// Wakes one shard from any thread, once for all unread mail; cheap to clone.
#[derive(Debug, Clone)]
pub struct Waker(Arc<Wake>);

#[derive(Debug)]
struct Wake {
    poll: mio::Waker,
    /// The shard has been woken and has not accepted the wake yet.
    is_requested: AtomicBool,
}

/// The reason why a mail was not accepted; the mail is returned.
#[derive(Debug, thiserror::Error)]
pub enum MailboxError<M> {
    /// The mailbox is full; retry later.
    #[error("the shard's mailbox is full")]
    Full(M),
    /// The shard has stopped.
    #[error("the shard has stopped")]
    Stopped(M),
}

impl<M> Mailbox<M> {
    /// Sends `mail` to the shard without waiting.
    ///
    /// # Errors
    /// [`MailboxError::Full`] or [`MailboxError::Stopped`], with the mail.
    pub fn try_send(&self, mail: M) -> Result<(), MailboxError<M>> {
        self.sender.try_send(mail).map_err(|error| match error {
            TrySendError::Full(mail) => MailboxError::Full(mail),
            TrySendError::Disconnected(mail) => MailboxError::Stopped(mail),
        })?;
        self.waker.wake();
        Ok(())
    }

    /// Sends `mail` to the shard, and waits for room. Never call it on a shard's own thread.
    ///
    /// # Errors
    /// [`MailboxError::Stopped`], with the mail.
    pub fn send(&self, mail: M) -> Result<(), MailboxError<M>> {
        // The shard of a full mailbox has been woken already, so waiting before waking it cannot
        // deadlock.
        self.sender
            .send(mail)
            .map_err(|error| MailboxError::Stopped(error.0))?;
        self.waker.wake();
        Ok(())
    }

    /// Makes the shard run a turn without mail, for a sender whose work
    /// [`handle_turn`](crate::Handler::handle_turn) finds elsewhere.
    pub fn wake(&self) {
        self.waker.wake();
    }

    /// A waker of the same shard, for senders that do not know the type of its mail.
    #[must_use]
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }
}

impl<M> Clone for Mailbox<M> {
    fn clone(&self) -> Self {
        Self {
            sender: self.sender.clone(),
            waker: self.waker.clone(),
        }
    }
}

impl Waker {
    /// Makes the shard run a turn.
    pub fn wake(&self) {
        if !self.0.is_requested.swap(true, Ordering::AcqRel)
            && let Err(error) = self.0.poll.wake()
        {
            tracing::error!(error = io_words(&error), "a shard could not be woken");
        }
    }
}

/// The shard's end of its mailbox.
#[derive(Debug)]
pub(crate) struct Inbox<M> {
    receiver: Receiver<M>,
    waker: Waker,
}

impl<M> Inbox<M> {
    /// Must be called before a round of [`next`](Self::next): later mail wakes the shard again.
    pub(crate) fn accept_wake(&self) {
        // A plain store could become visible after the round, so that a sender in between would
        // neither be seen nor wake the shard. The swap reads from the sender's swap, and so sees its
        // mail.
        self.waker.0.is_requested.swap(false, Ordering::AcqRel);
    }

    /// Whether there may be mail, or a sender has requested a turn.
    #[cfg(feature = "simulation")]
    pub(crate) fn is_woken(&self) -> bool {
        self.waker.0.is_requested.load(Ordering::Acquire)
    }

    pub(crate) fn next(&self) -> Option<M> {
        self.receiver.try_recv().ok()
    }
}

pub(crate) fn mailbox<M>(poll: mio::Waker, capacity: usize) -> (Mailbox<M>, Inbox<M>) {
    // A channel without room hands over only to a receiver that waits, and a shard never does.
    let (sender, receiver) = sync_channel(capacity.max(1));
    let waker = Waker(Arc::new(Wake {
        poll,
        is_requested: AtomicBool::new(false),
    }));
    (
        Mailbox {
            sender,
            waker: waker.clone(),
        },
        Inbox { receiver, waker },
    )
}

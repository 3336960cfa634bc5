//! The messages between the connection and the thread of a store.

use super::receipts::Receipt;
use super::{Durable, MessageLimits, Numbered, QueueDepth};
use crate::error::Error;
use crate::event;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use tokio::sync::oneshot;

/// An event of the store for the connection.
#[derive(Debug)]
pub(crate) enum StoreEvent {
    /// There is something to send that was not there before.
    Stored,
    /// Send these.
    Taken(Vec<Numbered>),
    /// The store could not give any out.
    NotTaken,
    /// The store knows what the server has; it can be asked for messages.
    Resumed,
    /// The server was asked again for its last number before the store knew it.
    NotResumed,
    /// This many messages were larger than the server accepts.
    TooLarge(usize),
    /// This many messages were binary, which the server does not know.
    Unsupported(usize),
    /// It is not known whether the server accepted these messages.
    Uncertain(Box<event::Uncertain>),
    /// This many messages were too old to be sent.
    Expired(usize),
    /// The file or the disk has begun not to work.
    Failed(String),
}

/// A job of the worker.
#[derive(Debug)]
pub(super) enum Job {
    Push {
        message: Durable,
        stored: Receipt,
        receipt: Receipt,
    },
    Resume {
        epoch: u32,
        last: u64,
        limits: MessageLimits,
    },
    Take {
        count_max: usize,
        bytes_max: usize,
    },
    Acknowledge {
        last: u64,
    },
    Rewind {
        last: u64,
    },
    /// The application has received the event about these uncertain messages.
    Forget {
        rows: Vec<u64>,
    },
    /// Closes the store and reports that.
    Close(oneshot::Sender<()>),
    /// The server has received the message with this row and rejected it.
    Refused {
        row: u64,
        error: Error,
    },
}

/// How much the store holds, for everybody to look at.
#[derive(Debug, Default)]
pub(super) struct SharedDepth {
    messages: AtomicUsize,
    bytes: AtomicU64,
}

impl SharedDepth {
    pub(super) fn set(&self, depth: QueueDepth) {
        self.messages.store(depth.messages, Ordering::Relaxed);
        self.bytes.store(depth.bytes, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> QueueDepth {
        QueueDepth {
            messages: self.messages.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
        }
    }
}

//! The threads of a fleet, each with an event loop, and the channels to them.

use std::io;
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;

use tidewire_net::{Handler, Mailbox, Shard, ShardConfig};

use super::FleetError;

/// Threads that receive commands. They end when this value is dropped.
#[derive(Debug)]
pub(super) struct Crew<C: Send + 'static> {
    threads: Vec<Thread<C>>,
    /// The command that ends a thread.
    quit: fn() -> C,
}

#[derive(Debug)]
struct Thread<C> {
    mailbox: Mailbox<C>,
    handle: Option<JoinHandle<()>>,
}

impl<C: Send + 'static> Crew<C> {
    /// No threads.
    pub(super) fn new(quit: fn() -> C) -> Self {
        Self {
            threads: Vec::new(),
            quit,
        }
    }

    /// Starts a thread with this handler. If its event loop fails, `died` creates the outcome that
    /// is sent.
    pub(super) fn start<H, O>(
        &mut self,
        config: &ShardConfig,
        handler: H,
        outcomes: Sender<(usize, O)>,
        died: fn(io::Error) -> O,
    ) -> io::Result<()>
    where
        H: Handler<Mail = C> + Send + 'static,
        O: Send + 'static,
    {
        let index = self.threads.len();
        let (shard, mailbox) = Shard::new(config, handler)?;
        let handle = std::thread::Builder::new()
            .name(format!("load-{index}"))
            .spawn(move || {
                if let Err(error) = shard.run() {
                    // A dropped fleet waits for nothing.
                    let _ = outcomes.send((index, died(error)));
                }
            })?;
        self.threads.push(Thread {
            mailbox,
            handle: Some(handle),
        });
        Ok(())
    }

    /// Number of threads.
    pub(super) fn len(&self) -> usize {
        self.threads.len()
    }

    /// The channel to each thread, in order.
    pub(super) fn mailboxes(&self) -> impl Iterator<Item = &Mailbox<C>> {
        self.threads.iter().map(|thread| &thread.mailbox)
    }

    /// Sends each thread a command, created from its index.
    ///
    /// # Errors
    /// [`FleetError::Gone`].
    pub(super) fn order(&self, mut command: impl FnMut(usize) -> C) -> Result<(), FleetError> {
        for (index, mailbox) in self.mailboxes().enumerate() {
            mailbox.send(command(index)).map_err(|_| FleetError::Gone)?;
        }
        Ok(())
    }

    /// Checks that no thread has ended.
    ///
    /// # Errors
    /// [`FleetError::Gone`].
    pub(super) fn check_alive(&self) -> Result<(), FleetError> {
        let is_gone = |thread: &Thread<C>| {
            let handle = thread.handle.as_ref();
            handle.is_none_or(JoinHandle::is_finished)
        };
        match self.threads.iter().any(is_gone) {
            true => Err(FleetError::Gone),
            false => Ok(()),
        }
    }
}

impl<C: Send + 'static> Drop for Crew<C> {
    fn drop(&mut self) {
        for mailbox in self.mailboxes() {
            // A thread that has ended needs no command.
            let _ = mailbox.send((self.quit)());
        }
        for thread in &mut self.threads {
            if let Some(handle) = thread.handle.take() {
                // A worker's panic has been reported as a missing answer.
                let _ = handle.join();
            }
        }
    }
}

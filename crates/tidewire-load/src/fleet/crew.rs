//! The threads of a fleet, each with an event loop, and the channels to them.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tidewire_net::{Handler, Mailbox, Shard, ShardConfig};

use super::FleetError;

/// Threads that receive commands. They end when this value is dropped.
#[derive(Debug)]
pub(super) struct Crew<C: Send + 'static> {
    threads: Vec<Thread<C>>,
    endings: Endings<C>,
}

/// The commands that end something.
#[derive(Debug)]
pub(super) struct Endings<C> {
    /// Ends the current order early, as if its time were over.
    pub(super) stop: fn() -> C,
    /// Ends it at once, whatever is in flight.
    pub(super) abandon: fn() -> C,
    /// Ends a thread.
    pub(super) quit: fn() -> C,
}

/// The decision of the observer of a phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// The phase continues.
    GoOn,
    /// The phase ends as planned.
    Stop,
    /// The phase ends at once, after a short time for messages in flight.
    Interrupt,
}

#[derive(Debug)]
struct Thread<C> {
    mailbox: Mailbox<C>,
    handle: Option<JoinHandle<()>>,
}

impl<C: Send + 'static> Crew<C> {
    /// No threads.
    pub(super) fn new(endings: Endings<C>) -> Self {
        Self {
            threads: Vec::new(),
            endings,
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

    /// Waits for one report of each thread, and returns whether the phase was interrupted. `watch` is called after each
    /// `tick`. This thread sleeps between the ticks, because it may share a core with a worker.
    ///
    /// # Errors
    /// [`FleetError::Gone`], and the errors of `take`.
    pub(super) fn wait<R>(
        &self,
        reports: &Receiver<(usize, R)>,
        tick: Duration,
        mut watch: impl FnMut() -> Wish,
        mut take: impl FnMut(R) -> Result<(), FleetError>,
    ) -> Result<bool, FleetError> {
        let mut missing = self.len();
        let mut is_stopped = false;
        let mut interrupted_at: Option<Instant> = None;
        let mut is_abandoned = false;
        let mut next_tick = Instant::now() + tick;
        while missing > 0 {
            let wait = next_tick.saturating_duration_since(Instant::now());
            match reports.recv_timeout(wait) {
                Ok((_, report)) => {
                    take(report)?;
                    missing -= 1;
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => return Err(FleetError::Gone),
                Err(RecvTimeoutError::Timeout) => {
                    next_tick = (next_tick + tick).max(Instant::now());
                }
            }
            let wish = watch();
            if wish != Wish::GoOn && !is_stopped {
                is_stopped = true;
                self.order(|_| (self.endings.stop)())?;
            }
            if wish == Wish::Interrupt {
                let at = *interrupted_at.get_or_insert_with(Instant::now);
                if !is_abandoned && at.elapsed() >= GRACE {
                    is_abandoned = true;
                    self.order(|_| (self.endings.abandon)())?;
                }
            }
            self.check_alive()?;
        }
        Ok(interrupted_at.is_some())
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
            let _ = mailbox.send((self.endings.quit)());
        }
        for thread in &mut self.threads {
            if let Some(handle) = thread.handle.take() {
                // A worker's panic has been reported as a missing answer.
                let _ = handle.join();
            }
        }
    }
}

/// After an interruption, messages in flight have this time.
const GRACE: Duration = Duration::from_millis(250);

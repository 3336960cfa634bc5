//! The workers of a fleet, threads or processes, and the way to them.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tidewire_net::{Handler, Mailbox, Shard, ShardConfig, Waker};

use super::error::FleetError;

/// Workers that receive commands. They end when this value is dropped.
#[derive(Debug)]
pub(super) struct Crew<C: Send + 'static> {
    hands: Vec<Member<C>>,
    endings: Endings<C>,
}

/// The way to one worker.
pub(super) trait Hand<C>: std::fmt::Debug + Send {
    /// Gives it a command.
    ///
    /// # Errors
    /// [`FleetError::Gone`].
    fn send(&self, command: C) -> Result<(), FleetError>;

    /// True if it has ended and no report of its end will follow.
    fn is_finished(&self) -> bool;

    /// Waits for its end after the command to quit.
    fn join(&mut self);

    /// The handle that wakes its event loop, if it has one in this process.
    fn waker(&self) -> Option<Waker>;
}

#[derive(Debug)]
struct Member<C> {
    hand: Box<dyn Hand<C>>,
    /// It has reported its end.
    is_gone: bool,
}

/// The meaning of a worker's report for the current order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reported {
    /// It is carried out.
    Done,
    /// The worker has ended. The other workers go on.
    Gone,
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

impl<C: Send + std::fmt::Debug> Hand<C> for Thread<C> {
    fn send(&self, command: C) -> Result<(), FleetError> {
        self.mailbox.send(command).map_err(|_| FleetError::Gone)
    }

    fn is_finished(&self) -> bool {
        self.handle.as_ref().is_none_or(JoinHandle::is_finished)
    }

    fn join(&mut self) {
        if let Some(handle) = self.handle.take() {
            // A worker's panic has been reported as a missing answer.
            let _ = handle.join();
        }
    }

    fn waker(&self) -> Option<Waker> {
        Some(self.mailbox.waker())
    }
}

impl<C: Send + std::fmt::Debug + 'static> Crew<C> {
    /// No workers.
    pub(super) fn new(endings: Endings<C>) -> Self {
        Self {
            hands: Vec::new(),
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
        let index = self.hands.len();
        let (shard, mailbox) = Shard::new(config, handler)?;
        let handle = std::thread::Builder::new()
            .name(format!("load-{index}"))
            .spawn(move || {
                if let Err(error) = shard.run() {
                    // A dropped fleet waits for nothing.
                    let _ = outcomes.send((index, died(error)));
                }
            })?;
        self.add(Thread {
            mailbox,
            handle: Some(handle),
        });
        Ok(())
    }

    /// Adds a worker.
    pub(super) fn add(&mut self, hand: impl Hand<C> + 'static) {
        self.hands.push(Member {
            hand: Box::new(hand),
            is_gone: false,
        });
    }

    /// Number of workers, also of those that have ended.
    pub(super) fn len(&self) -> usize {
        self.hands.len()
    }

    /// Whether the worker with this index has ended.
    pub(super) fn is_gone(&self, index: usize) -> bool {
        self.hands.get(index).is_none_or(|member| member.is_gone)
    }

    /// What wakes the worker with this index.
    pub(super) fn waker(&self, index: usize) -> Option<Waker> {
        self.hands.get(index)?.hand.waker()
    }

    /// Gives the worker with this index a command, unless it has ended.
    ///
    /// # Errors
    /// [`FleetError::Gone`].
    pub(super) fn send(&self, index: usize, command: C) -> Result<(), FleetError> {
        match self.hands.get(index) {
            Some(member) if !member.is_gone => member.hand.send(command),
            _ => Ok(()),
        }
    }

    /// Gives each living worker a command, created from its index.
    ///
    /// # Errors
    /// [`FleetError::Gone`].
    pub(super) fn order(&self, mut command: impl FnMut(usize) -> C) -> Result<(), FleetError> {
        for index in 0..self.len() {
            if !self.is_gone(index) {
                self.send(index, command(index))?;
            }
        }
        Ok(())
    }

    /// Waits for one report of each living worker, and returns whether the phase was interrupted. `watch` is called
    /// after each `tick`. This thread sleeps between the ticks, because it may share a core with a worker.
    ///
    /// # Errors
    /// [`FleetError::Gone`], and the errors of `take`.
    pub(super) fn wait<R>(
        &mut self,
        reports: &Receiver<(usize, R)>,
        tick: Duration,
        mut watch: impl FnMut() -> Wish,
        mut take: impl FnMut(usize, R) -> Result<Reported, FleetError>,
    ) -> Result<bool, FleetError> {
        let mut is_awaited: Vec<bool> = self.hands.iter().map(|member| !member.is_gone).collect();
        let mut is_stopped = false;
        let mut interrupted_at: Option<Instant> = None;
        let mut is_abandoned = false;
        let mut next_tick = Instant::now() + tick;
        while is_awaited.contains(&true) {
            let wait = next_tick.saturating_duration_since(Instant::now());
            match reports.recv_timeout(wait) {
                Ok((index, report)) => {
                    self.hands[index].is_gone |= take(index, report)? == Reported::Gone;
                    is_awaited[index] = false;
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

    /// Checks that no worker has ended without a report of its end.
    ///
    /// # Errors
    /// [`FleetError::Gone`].
    pub(super) fn check_alive(&self) -> Result<(), FleetError> {
        let mut living = self.hands.iter().filter(|member| !member.is_gone);
        match living.any(|member| member.hand.is_finished()) {
            true => Err(FleetError::Gone),
            false => Ok(()),
        }
    }
}

impl<C: Send + 'static> Drop for Crew<C> {
    fn drop(&mut self) {
        for member in &self.hands {
            // A worker that has ended needs no command.
            let _ = member.hand.send((self.endings.quit)());
        }
        for member in &mut self.hands {
            member.hand.join();
        }
    }
}

/// After an interruption, messages in flight have this time.
const GRACE: Duration = Duration::from_millis(250);

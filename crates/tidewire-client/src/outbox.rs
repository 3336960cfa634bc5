//! The messages that wait to be sent: appended under a short lock, removed as a whole by the driver, one wake
//! for a burst.

use crate::command::Command;
use crate::error::Error;
use crate::payload::Payload;
use crate::priority_queue::Priority;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

#[derive(Debug)]
pub(crate) struct Outbox {
    state: Mutex<OutboxState>,
    bytes_max: usize,
    /// The driver waits for something to send.
    filled: Notify,
    /// Senders wait for room.
    room: Notify,
}

#[derive(Debug, Default)]
struct OutboxState {
    burst: Burst,
    /// Why nothing can be sent any more.
    closed: Option<Error>,
    /// Calls for which nobody waits any more; most of their commands are still in the burst.
    abandoned: usize,
}

/// The waiting items, in order.
#[derive(Debug, Default)]
pub(crate) struct Burst {
    /// Types and payloads, one after another.
    bytes: Vec<u8>,
    at: usize,
    records: VecDeque<Record>,
    /// The size of the commands.
    command_bytes: usize,
}

#[derive(Debug)]
enum Record {
    Message {
        t_bytes: usize,
        payload_bytes: usize,
        is_binary: bool,
        priority: Priority,
    },
    /// A whole envelope of the application's, in JSON.
    Envelope {
        bytes: usize,
    },
    Command(Box<Command>),
}

/// One of the things to send.
#[derive(Debug)]
pub(crate) enum Outgoing<'a> {
    Message {
        t: &'a str,
        payload: &'a [u8],
        is_binary: bool,
        priority: Priority,
    },
    Envelope(&'a [u8]),
    Command(Box<Command>),
}

impl Outbox {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self {
            state: Mutex::default(),
            bytes_max,
            filled: Notify::new(),
            room: Notify::new(),
        }
    }

    /// Appends a message; the payload is not checked.
    pub(crate) fn try_send(
        &self,
        t: &str,
        payload: &Payload<'_>,
        priority: Priority,
    ) -> Result<(), Error> {
        let is_binary = payload.is_binary();
        let payload = payload.as_json().as_bytes();
        let mut state = self.room_for(t.len() + payload.len())?;
        let burst = &mut state.burst;
        burst.bytes.extend_from_slice(t.as_bytes());
        burst.bytes.extend_from_slice(payload);
        self.append(
            state,
            Record::Message {
                t_bytes: t.len(),
                payload_bytes: payload.len(),
                is_binary,
                priority,
            },
        );
        Ok(())
    }

    /// Appends an envelope, which is not checked.
    pub(crate) fn try_send_envelope(&self, envelope: &[u8]) -> Result<(), Error> {
        let mut state = self.room_for(envelope.len())?;
        state.burst.bytes.extend_from_slice(envelope);
        let bytes = envelope.len();
        self.append(state, Record::Envelope { bytes });
        Ok(())
    }

    /// Appends a command; gives it back if there is no room.
    pub(crate) fn try_command(&self, command: Box<Command>) -> Result<(), (Error, Box<Command>)> {
        let bytes = command.bytes();
        match self.room_for(bytes) {
            Ok(mut state) => {
                state.burst.command_bytes += bytes;
                self.append(state, Record::Command(command));
                Ok(())
            }
            Err(error) => Err((error, command)),
        }
    }

    /// Whether there is room for anything.
    pub(crate) fn check_room(&self) -> Result<(), Error> {
        self.room_for(1).map(|_| ())
    }

    /// Calls `attempt` until it finds room.
    pub(crate) async fn wait<T>(
        &self,
        mut attempt: impl FnMut() -> Result<T, Error>,
    ) -> Result<T, Error> {
        loop {
            let waiting = self.room.notified();
            tokio::pin!(waiting);
            waiting.as_mut().enable();
            match attempt() {
                Err(Error::Full) => waiting.await,
                done => return done,
            }
        }
    }

    /// Moves everything into `spent`, whose old content is dropped and whose memory is used again.
    pub(crate) fn take(&self, spent: &mut Burst) {
        spent.clear();
        let mut state = self.lock();
        std::mem::swap(&mut state.burst, spent);
        state.abandoned = 0;
        drop(state);
        if !spent.is_empty() {
            self.room.notify_waiters();
        }
    }

    /// Returns when something waits to be sent.
    pub(crate) async fn filled(&self) {
        loop {
            let waiting = self.filled.notified();
            tokio::pin!(waiting);
            waiting.as_mut().enable();
            if !self.lock().burst.is_empty() {
                return;
            }
            waiting.await;
        }
    }

    /// Somebody has given up waiting for a call. Commands that are not sent yet and that nobody waits for are thrown
    /// away when they are as many as the rest, so that each is looked at a few times at most.
    pub(crate) fn handle_abandoned(&self) {
        let mut state = self.lock();
        state.abandoned += 1;
        if state.abandoned < ABANDONED_MIN || 2 * state.abandoned < state.burst.records.len() {
            return;
        }
        state.abandoned = 0;
        let dropped = state.burst.take_abandoned();
        drop(state);
        if !dropped.is_empty() {
            self.room.notify_waiters();
        }
    }

    /// Closes the outbox, which accepts nothing more. Messages in it are dropped, and commands fail with `reason`.
    pub(crate) fn close(&self, reason: &Error) {
        let mut state = self.lock();
        state.closed.get_or_insert_with(|| reason.clone());
        let mut burst = std::mem::take(&mut state.burst);
        drop(state);
        burst.fail(reason);
        self.room.notify_waiters();
    }

    /// The size of the waiting items, in bytes.
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.lock().burst.size()
    }

    /// A message of any size goes into an empty outbox, or it could never be sent.
    fn room_for(&self, bytes: usize) -> Result<MutexGuard<'_, OutboxState>, Error> {
        let state = self.lock();
        if let Some(reason) = &state.closed {
            return Err(reason.clone());
        }
        let size = state.burst.size();
        if size > 0 && size.saturating_add(bytes) > self.bytes_max {
            return Err(Error::Full);
        }
        Ok(state)
    }

    fn append(&self, mut state: MutexGuard<'_, OutboxState>, record: Record) {
        let was_empty = state.burst.records.is_empty();
        state.burst.records.push_back(record);
        drop(state);
        if was_empty {
            self.filled.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, OutboxState> {
        // A panic while it was held cannot have left it half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Burst {
    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The next thing to send. Without `may_request`, a request at the front stays there, and nothing overtakes it.
    pub(crate) fn next(&mut self, may_request: bool) -> Option<Outgoing<'_>> {
        if let Record::Command(command) = self.records.front()?
            && command.is_request()
            && !may_request
        {
            return None;
        }
        Some(match self.records.pop_front()? {
            Record::Message {
                t_bytes,
                payload_bytes,
                is_binary,
                priority,
            } => {
                let payload_at = self.at + t_bytes;
                let t = &self.bytes[self.at..payload_at];
                self.at = payload_at + payload_bytes;
                Outgoing::Message {
                    t: std::str::from_utf8(t).unwrap_or_default(),
                    payload: &self.bytes[payload_at..self.at],
                    is_binary,
                    priority,
                }
            }
            Record::Envelope { bytes } => {
                let start = self.at;
                self.at += bytes;
                Outgoing::Envelope(&self.bytes[start..self.at])
            }
            Record::Command(command) => {
                self.command_bytes -= command.bytes();
                Outgoing::Command(command)
            }
        })
    }

    /// Removes and returns the commands that nobody waits for.
    fn take_abandoned(&mut self) -> Vec<Record> {
        let is_abandoned =
            |record: &Record| matches!(record, Record::Command(command) if command.is_abandoned());
        let (mut abandoned, mut kept) = (Vec::new(), VecDeque::new());
        for record in self.records.drain(..) {
            if is_abandoned(&record) {
                abandoned.push(record);
            } else {
                kept.push_back(record);
            }
        }
        self.records = kept;
        for record in &abandoned {
            if let Record::Command(command) = record {
                self.command_bytes -= command.bytes();
            }
        }
        abandoned
    }

    /// Fails all commands with `error`.
    pub(crate) fn fail(&mut self, error: &Error) {
        for record in self.records.drain(..) {
            if let Record::Command(command) = record {
                command.fail(error);
            }
        }
        self.clear();
    }

    fn clear(&mut self) {
        self.bytes.clear();
        // What a single large burst needed is not kept for ever.
        self.bytes.shrink_to(BYTES_KEPT_MAX);
        self.at = 0;
        self.records.clear();
        self.command_bytes = 0;
    }

    fn size(&self) -> usize {
        self.bytes.len() - self.at + self.command_bytes + self.records.len() * size_of::<Record>()
    }
}

/// This many commands that nobody waits for are not looked for.
const ABANDONED_MIN: usize = 32;

/// Memory of an empty burst that is kept for the next.
const BYTES_KEPT_MAX: usize = 256 * 1024;

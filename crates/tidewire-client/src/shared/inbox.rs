//! Events that wait for the application: bounded, in batches, with one wake for a burst.

use crate::event::{Batch, BatchBuilder};
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// Called when there is something after there was nothing.
pub(crate) type Waker = Arc<dyn Fn() + Send + Sync>;

pub(crate) struct Inbox {
    state: Mutex<InboxState>,
    bytes_max: usize,
    /// Somebody waits for events, in a task or in a thread.
    filled: Notify,
    filled_thread: Condvar,
    /// The driver waits for room.
    room: Notify,
}

#[derive(Default)]
struct InboxState {
    batches: VecDeque<BatchBuilder>,
    bytes: usize,
    is_closed: bool,
    waker: Option<Waker>,
}

impl Inbox {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self {
            state: Mutex::default(),
            bytes_max,
            filled: Notify::new(),
            filled_thread: Condvar::new(),
            room: Notify::new(),
        }
    }

    /// Puts a batch behind the others, even if there is little room or none; see [`Self::has_room`].
    pub(crate) fn push(&self, batch: BatchBuilder) {
        if batch.is_empty() {
            return;
        }
        let mut state = self.lock();
        if state.is_closed {
            return;
        }
        let was_empty = state.batches.is_empty();
        state.bytes += batch.bytes();
        let apart = match state.batches.back_mut() {
            Some(last) => last.append(batch),
            None => Some(batch),
        };
        state.batches.extend(apart);
        if was_empty {
            self.wake(state);
        }
    }

    /// No further events arrive; the stored ones can still be received.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        self.wake(state);
    }

    pub(crate) fn has_room(&self) -> bool {
        self.lock().bytes < self.bytes_max
    }

    /// Returns when there is room.
    pub(crate) async fn room(&self) {
        loop {
            let waiting = self.room.notified();
            tokio::pin!(waiting);
            waiting.as_mut().enable();
            if self.has_room() {
                return;
            }
            waiting.await;
        }
    }

    /// The waiting events, if any; `Err` if there will be no more.
    pub(crate) fn try_take(&self) -> Result<Option<Batch>, ()> {
        self.take(self.lock())
    }

    /// The next events; `None` if there are no more and none will arrive.
    pub(crate) async fn next(&self) -> Option<Batch> {
        loop {
            let waiting = self.filled.notified();
            tokio::pin!(waiting);
            waiting.as_mut().enable();
            match self.try_take() {
                Ok(Some(batch)) => return Some(batch),
                Ok(None) => waiting.await,
                Err(()) => return None,
            }
        }
    }

    /// [`Self::try_take`] that blocks this thread for up to so long.
    pub(crate) fn wait(&self, timeout: Duration) -> Result<Option<Batch>, ()> {
        let state = self.lock();
        let is_idle = |state: &mut InboxState| state.batches.is_empty() && !state.is_closed;
        let (state, _) = self
            .filled_thread
            .wait_timeout_while(state, timeout, is_idle)
            .unwrap_or_else(PoisonError::into_inner);
        self.take(state)
    }

    /// Calls `waker` whenever events arrive in an empty inbox, and at the end of the client; also at once, if
    /// events are waiting.
    pub(crate) fn set_waker(&self, waker: Option<Waker>) {
        let mut state = self.lock();
        let wakes = !state.batches.is_empty() || state.is_closed;
        state.waker.clone_from(&waker);
        drop(state);
        if let Some(waker) = waker.filter(|_| wakes) {
            waker();
        }
    }

    fn take(&self, mut state: std::sync::MutexGuard<'_, InboxState>) -> Result<Option<Batch>, ()> {
        let Some(batch) = state.batches.pop_front() else {
            return if state.is_closed { Err(()) } else { Ok(None) };
        };
        let was_full = state.bytes >= self.bytes_max;
        state.bytes -= batch.bytes().min(state.bytes);
        let has_room = state.bytes < self.bytes_max;
        let wakes = !state.batches.is_empty();
        let waker = state.waker.clone().filter(|_| wakes);
        drop(state);
        if was_full && has_room {
            self.room.notify_waiters();
        }
        if let Some(waker) = waker {
            waker();
        }
        if wakes {
            self.filled.notify_one();
        }
        Ok(Some(batch.finish()))
    }

    fn wake(&self, state: std::sync::MutexGuard<'_, InboxState>) {
        let waker = state.waker.clone();
        drop(state);
        self.filled.notify_waiters();
        self.filled_thread.notify_all();
        if let Some(waker) = waker {
            waker();
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, InboxState> {
        // A panic while it was held cannot have left it half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbox")
            .field("bytes", &self.lock().bytes)
            .finish_non_exhaustive()
    }
}

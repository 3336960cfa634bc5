//! Publishing without waiting: a broker that servers share answers later, on a thread of its own.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tidewire_engine::{Handle, NewPublication, PublishError, Published};

/// The outcome of a publication.
pub type PublishResult = Result<Published, PublishError>;

/// The state of a publication when [`publish`] returns.
pub enum PublishStart {
    /// It is known what became of it: the topic is the server's own, or the publication was refused.
    Done(PublishResult),
    /// The broker has it, and answers later.
    Pending(PendingPublication),
}

/// A publication that the broker has. Dropping it gives up the answer, not the publication.
pub struct PendingPublication(Arc<Slot>);

/// The place for the answer.
#[derive(Default)]
struct Slot {
    state: Mutex<AnswerSlot>,
    filled: Condvar,
}

#[derive(Default)]
enum AnswerSlot {
    #[default]
    Open,
    Here(PublishResult),
    /// Called with the answer.
    Wanted(Box<dyn FnOnce(PublishResult) + Send>),
    Gone,
}

/// Publishes to a topic. This never waits for a broker.
#[must_use]
pub fn publish(handle: &Handle, topic: &str, new: &NewPublication) -> PublishStart {
    let slot = Arc::new(Slot::default());
    let filled = Arc::clone(&slot);
    handle.publish_with(topic, new, move |result| filled.fill(result));
    match slot.take() {
        Some(result) => PublishStart::Done(result),
        None => PublishStart::Pending(PendingPublication(slot)),
    }
}

impl PendingPublication {
    /// Waits for the answer; `None` if there is none in this time. It is given once.
    #[must_use]
    pub fn wait(&self, time: Duration) -> Option<PublishResult> {
        let is_open = |state: &mut AnswerSlot| matches!(state, AnswerSlot::Open);
        drop(
            self.0
                .filled
                .wait_timeout_while(self.0.locked(), time, is_open),
        );
        self.0.take()
    }

    /// Calls `done` with the answer: at once if it is there, or later on the thread of the broker. It must not block.
    pub fn on_answer(self, done: impl FnOnce(PublishResult) + Send + 'static) {
        let mut state = self.0.locked();
        match std::mem::replace(&mut *state, AnswerSlot::Gone) {
            AnswerSlot::Here(result) => {
                drop(state);
                done(result);
            }
            _ => *state = AnswerSlot::Wanted(Box::new(done)),
        }
    }
}

impl Slot {
    fn fill(&self, result: PublishResult) {
        let mut state = self.locked();
        match std::mem::replace(&mut *state, AnswerSlot::Gone) {
            AnswerSlot::Wanted(done) => {
                drop(state);
                done(result);
            }
            _ => {
                *state = AnswerSlot::Here(result);
                drop(state);
                self.filled.notify_all();
            }
        }
    }

    fn take(&self) -> Option<PublishResult> {
        let mut state = self.locked();
        match std::mem::replace(&mut *state, AnswerSlot::Gone) {
            AnswerSlot::Here(result) => Some(result),
            other => {
                *state = other;
                None
            }
        }
    }

    fn locked(&self) -> MutexGuard<'_, AnswerSlot> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

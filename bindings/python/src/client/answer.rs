//! The answers to requests: waited for by a thread, or reported to an event loop by a wake-up.

use super::message::ClientBatch;
use super::position::position;
use super::runtime;
use crate::arguments::Whole;
use crate::errors::Failure;
use crate::json;
use crate::signal::{SIGNALS_CHECKED, Signal};
use pyo3::IntoPyObjectExt as _;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tidewire_client::request::{PresenceAnswer, Subscribed};
use tidewire_client::{Error, HistoryPage, Payload, Published};
use tokio::task::AbortHandle;

/// A pending answer. Dropping it cancels the request, unless that was already executed.
#[pyclass(frozen, module = "tidewire._native")]
pub(crate) struct Ticket {
    slot: Arc<Slot>,
    /// `None` if it was done at once.
    work: Option<AbortHandle>,
    /// In which process it was made.
    generation: u64,
}

/// The place for the answer.
struct Slot {
    number: u64,
    state: Mutex<Fill>,
    filled: Condvar,
}

/// Puts the answer in. There is one for each ticket, wherever its work has gone: dropped without an answer,
/// by a panic or because the thread of the clients ends, it reports that no answer will follow.
pub(super) struct TicketWriter {
    slot: Arc<Slot>,
    signal: Arc<Signal>,
    is_done: bool,
}

enum Fill {
    Open,
    Done(Option<Result<TicketAnswer, Error>>),
    /// Nobody waits for it any more.
    Dropped,
}

/// An answer.
pub(super) enum TicketAnswer {
    Nothing,
    Payload(Payload<'static>),
    Seconds(f64),
    Subscribed(Subscribed),
    Published(Published),
    Presence(PresenceAnswer),
    History(Box<HistoryPage>),
}

impl Ticket {
    /// A ticket for `work`, which is started with what answers it.
    pub(super) fn start(
        signal: Arc<Signal>,
        start: impl FnOnce(TicketWriter) -> Option<AbortHandle>,
    ) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let slot = Arc::new(Slot {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            state: Mutex::new(Fill::Open),
            filled: Condvar::new(),
        });
        let work = start(TicketWriter {
            slot: slot.clone(),
            signal,
            is_done: false,
        });
        Self {
            slot,
            work,
            generation: runtime::generation(),
        }
    }
}

impl TicketWriter {
    pub(super) fn answer(mut self, result: Result<TicketAnswer, Error>) {
        self.fill(result);
    }

    fn fill(&mut self, result: Result<TicketAnswer, Error>) {
        self.is_done = true;
        if self.slot.fill(result) {
            self.signal.finish(self.slot.number);
        }
    }
}

impl Drop for TicketWriter {
    fn drop(&mut self) {
        if !self.is_done {
            self.fill(Err(Error::Closed("its thread has ended".to_owned())));
        }
    }
}

impl Slot {
    /// Puts the answer in; false if nobody waits for it.
    fn fill(&self, result: Result<TicketAnswer, Error>) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*state, Fill::Dropped) {
            return false;
        }
        *state = Fill::Done(Some(result));
        drop(state);
        self.filled.notify_all();
        true
    }

    fn take(&self) -> Option<Result<TicketAnswer, Error>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *state {
            Fill::Done(result) => result.take(),
            Fill::Open | Fill::Dropped => None,
        }
    }

    fn wait(&self, time: Duration) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_open = |state: &mut Fill| matches!(state, Fill::Open);
        drop(self.filled.wait_timeout_while(state, time, is_open));
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.generation != runtime::generation() {
            // The work is in another process, and whatever lock a thread of it held will never be opened here.
            return;
        }
        let mut state = self
            .slot
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if matches!(*state, Fill::Open) {
            *state = Fill::Dropped;
            drop(state);
            if let Some(work) = &self.work {
                work.abort();
            }
        }
    }
}

#[pymethods]
impl Ticket {
    /// The number of the ticket, as in `finished`.
    #[getter]
    fn number(&self) -> u64 {
        self.slot.number
    }

    /// The answer, which can be taken once; raises what went wrong, and `BusyError` if it is not there yet.
    fn take(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match self.slot.take() {
            None => Err(Failure::from(Error::Full).into()),
            Some(Ok(answer)) => answer.into_python(py),
            Some(Err(error)) => Err(Failure::from(error).into()),
        }
    }

    /// Waits for the answer, which can be taken once. Ctrl-C is heard. Raises `CallTimeoutError` after `timeout_ms`.
    #[pyo3(signature = (timeout_ms = None))]
    fn wait(&self, py: Python<'_>, timeout_ms: Option<Whole>) -> PyResult<Py<PyAny>> {
        let limit = timeout_ms.map(Whole::ms);
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        loop {
            let left = deadline.map_or(SIGNALS_CHECKED, |deadline| {
                deadline.saturating_duration_since(Instant::now())
            });
            py.detach(|| self.slot.wait(left.min(SIGNALS_CHECKED)));
            match self.slot.take() {
                Some(Ok(answer)) => return answer.into_python(py),
                Some(Err(error)) => return Err(Failure::from(error).into()),
                None if left.is_zero() => return Err(Failure::from(Error::TimedOut).into()),
                None => py.check_signals()?,
            }
        }
    }
}

impl TicketAnswer {
    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match self {
            Self::Nothing => Ok(py.None()),
            Self::Payload(payload) => {
                let value = json::loads_content(py, payload.as_json(), payload.to_bytes())?;
                Ok(value.unbind())
            }
            Self::Seconds(seconds) => seconds.into_py_any(py),
            Self::Subscribed(subscribed) => {
                let positions = PyDict::new(py);
                for known in subscribed.positions {
                    let (epoch, offset) = position(known.position);
                    positions
                        .set_item(known.topic, (epoch, offset, known.recovered, known.count))?;
                }
                let reasons = PyDict::new(py);
                for failure in subscribed.failures {
                    reasons.set_item(failure.topic, (failure.code, failure.message))?;
                }
                (subscribed.topics, subscribed.failed, positions, reasons).into_py_any(py)
            }
            Self::Published(published) => {
                (published.is_duplicate, published.position.map(position)).into_py_any(py)
            }
            Self::Presence(answer) => presence(py, answer),
            Self::History(page) => {
                let publications = Py::new(py, ClientBatch::of(page.publications))?;
                let stands = position(page.position);
                (stands, page.oldest, publications, page.more, page.complete).into_py_any(py)
            }
        }
    }
}

fn presence(py: Python<'_>, answer: PresenceAnswer) -> PyResult<Py<PyAny>> {
    let topics = PyDict::new(py);
    for topic in answer.topics {
        let members = PyDict::new(py);
        for member in topic.members.unwrap_or_default() {
            let data = match member.data {
                None => py.None(),
                Some(data) => json::loads(py, data.as_bytes())?.unbind(),
            };
            members.set_item(member.user, (member.connections, data))?;
        }
        let counts = (topic.users, topic.connections, topic.truncated, members);
        topics.set_item(topic.topic, counts)?;
    }
    (topics, answer.failed).into_py_any(py)
}

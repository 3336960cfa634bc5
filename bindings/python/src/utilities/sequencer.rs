//! Sequencer: each message of a topic once and in order, with a report of missing ones.

use crate::arguments::{Epoch, Number, Place, Str, Whole, generic, now_ms};
use crate::errors::argument;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString, PyType};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tidewire_client::sequencer::{
    Gap as Missing, Position, Sequenced, Sequencer as Core, SequencerLimits, SequencerOutcome,
};
use tidewire_wire::envelope::epoch_text;

type Messages = Vec<Sequenced<Py<PyAny>>>;

/// The sequencer of the client. Safe to use from several threads.
#[pyclass(frozen, module = "tidewire")]
pub(crate) struct Sequencer {
    core: Mutex<Core<Py<PyAny>>>,
    started: Instant,
}

/// Messages that have not arrived.
#[pyclass(frozen, module = "tidewire", eq)]
#[derive(PartialEq)]
pub(crate) struct Gap {
    #[pyo3(get)]
    topic: String,
    #[pyo3(get)]
    epoch: String,
    #[pyo3(get)]
    first: u64,
    #[pyo3(get)]
    last: u64,
}

#[pymethods]
impl Sequencer {
    #[new]
    #[pyo3(signature = (*, topics_max = Whole(10_000), held_messages_max = Whole(1_024), window_ms = Whole(1_000)), text_signature = "(*, topics_max=10000, held_messages_max=1024, window_ms=1000)")]
    fn new(topics_max: Whole, held_messages_max: Whole, window_ms: Whole) -> PyResult<Self> {
        if topics_max.0 == 0 {
            return Err(argument("topics_max has to be at least 1").into());
        }
        let count = |Whole(count)| usize::try_from(count).unwrap_or(usize::MAX);
        let limits = SequencerLimits {
            topics_max: count(topics_max),
            held_messages_max: count(held_messages_max),
            window_ms: window_ms.0,
        };
        Ok(Self {
            core: Mutex::new(Core::new(limits)),
            started: Instant::now(),
        })
    }

    /// Adds a message. Returns its outcome, and the items that can be let through now.
    #[pyo3(signature = (topic, position, message, *, now = None))]
    fn add<'py>(
        &self,
        topic: Str,
        position: Place,
        message: Bound<'py, PyAny>,
        now: Option<Number>,
    ) -> PyResult<(Bound<'py, PyString>, Bound<'py, PyList>)> {
        let py = message.py();
        let (position, now_ms) = (position.into(), now_ms(now, self.started)?);
        let mut out = Messages::new();
        let message = message.clone().unbind();
        let outcome = self
            .core()
            .handle(&topic, position, message, now_ms, &mut out);
        let outcome = match outcome {
            SequencerOutcome::Delivered => intern!(py, "delivered"),
            SequencerOutcome::Held => intern!(py, "held"),
            SequencerOutcome::Duplicate => intern!(py, "duplicate"),
            SequencerOutcome::NewEpoch => intern!(py, "new_epoch"),
        };
        Ok((outcome.clone(), listed(py, out)?))
    }

    /// Records that everything up to `position` is known.
    #[pyo3(signature = (topic, position, *, now = None))]
    fn advance<'py>(
        &self,
        py: Python<'py>,
        topic: Str,
        position: Place,
        now: Option<Number>,
    ) -> PyResult<Bound<'py, PyList>> {
        let (position, now_ms) = (position.into(), now_ms(now, self.started)?);
        let mut out = Messages::new();
        self.core().advance(&topic, position, now_ms, &mut out);
        listed(py, out)
    }

    /// Records that the messages from `first` to `last` are missing.
    #[pyo3(signature = (topic, epoch, first, last, *, now = None))]
    fn skip<'py>(
        &self,
        py: Python<'py>,
        topic: Str,
        epoch: Epoch,
        first: Whole,
        last: Whole,
        now: Option<Number>,
    ) -> PyResult<Bound<'py, PyList>> {
        let now_ms = now_ms(now, self.started)?;
        let mut out = Messages::new();
        self.core()
            .skip(&topic, epoch.0, first.0, last.0, now_ms, &mut out);
        listed(py, out)
    }

    /// Gives up waiting where the time is over.
    #[pyo3(signature = (*, now = None))]
    fn expire<'py>(&self, py: Python<'py>, now: Option<Number>) -> PyResult<Bound<'py, PyList>> {
        let now_ms = now_ms(now, self.started)?;
        let mut out = Messages::new();
        self.core().handle_timeout(now_ms, &mut out);
        listed(py, out)
    }

    /// Forgets a topic, and lets through what it held.
    fn forget<'py>(&self, py: Python<'py>, topic: Str) -> PyResult<Bound<'py, PyList>> {
        let mut out = Messages::new();
        self.core().forget(&topic, &mut out);
        listed(py, out)
    }

    /// The last message of a topic that was let through.
    fn position(&self, topic: Str) -> Option<(String, u64)> {
        let position = self.core().position(&topic)?;
        Some((epoch_text(position.epoch), position.offset))
    }

    /// The time of the next call of `expire`, in seconds on the clock of `now`.
    #[getter]
    fn deadline(&self) -> Option<f64> {
        let deadline_ms = self.core().poll_deadline_ms()?;
        Some(deadline_ms as f64 / 1000.0)
    }

    /// The number of known topics.
    #[getter]
    fn topics(&self) -> usize {
        self.core().topics()
    }

    /// The number of held messages.
    #[getter]
    fn held(&self) -> usize {
        self.core().held()
    }

    #[classmethod]
    fn __class_getitem__<'py>(
        class: &Bound<'py, PyType>,
        item: Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        generic(class, item)
    }

    fn __repr__(&self) -> String {
        let core = self.core();
        format!(
            "Sequencer({} topics, {} messages held)",
            core.topics(),
            core.held()
        )
    }
}

impl Sequencer {
    fn core(&self) -> MutexGuard<'_, Core<Py<PyAny>>> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Gap {
    fn __len__(&self) -> usize {
        usize::try_from(self.last - self.first).map_or(usize::MAX, |more| more.saturating_add(1))
    }

    fn __repr__(&self) -> String {
        let Self {
            topic, first, last, ..
        } = self;
        format!("Gap(topic={topic:?}, first={first}, last={last})")
    }
}

impl From<Place> for Position {
    fn from(place: Place) -> Self {
        Self {
            epoch: place.epoch.0,
            offset: place.offset,
        }
    }
}

fn listed(py: Python<'_>, out: Messages) -> PyResult<Bound<'_, PyList>> {
    let list = PyList::empty(py);
    for item in out {
        match item {
            Sequenced::Message(message) => list.append(message)?,
            Sequenced::Gap(gap) => list.append(Py::new(py, Gap::from(gap))?)?,
        }
    }
    Ok(list)
}

impl From<Missing> for Gap {
    fn from(gap: Missing) -> Self {
        Self {
            topic: gap.topic.to_string(),
            epoch: epoch_text(gap.epoch),
            first: gap.from,
            last: gap.to,
        }
    }
}

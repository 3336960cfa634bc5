//! The results of publications, and waiting for them: until the server has caught up and a broker has answered.

use crate::arguments::Whole;
use crate::errors::Failure;
use crate::signal::{SIGNALS_CHECKED, Signal};
use pyo3::prelude::*;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tidewire_bindings::server::publishing::{PendingPublication, PublishResult, PublishStart};
use tidewire_engine::{PublishError, Published as Place, SendError};

/// The result of a publication.
#[pyclass(frozen, get_all, module = "tidewire")]
pub(crate) struct Published {
    /// Its number in its topic, from 1; `None` if the topic keeps no history.
    offset: Option<u64>,
    /// The life of the topic that the number is of; `None` if the topic keeps no history.
    epoch: Option<String>,
    /// Whether it repeats the `id` of one that was published before, and went to nobody.
    duplicate: bool,
}

/// A publication whose result is pending.
#[pyclass(frozen, module = "tidewire._native")]
pub(crate) struct PendingPublish {
    number: u64,
    result: Arc<Mutex<Option<PublishResult>>>,
}

impl PendingPublish {
    /// Gives `signal` the number of this publication once its result is there.
    pub(super) fn start(pending: PendingPublication, signal: Arc<Signal>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let result = Arc::new(Mutex::new(None));
        let place = Arc::clone(&result);
        pending.on_answer(move |result| {
            *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
            signal.finish(number);
        });
        Self { number, result }
    }
}

#[pymethods]
impl PendingPublish {
    /// The number that the signal gives when the result is there.
    #[getter]
    fn number(&self) -> u64 {
        self.number
    }

    /// The result, once.
    fn take(&self) -> PyResult<Published> {
        let result = self
            .result
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let result = result.unwrap_or(Err(PublishError::Unknown));
        Ok(result.map_err(Failure::from)?.into())
    }
}

#[pymethods]
impl Published {
    fn __repr__(&self) -> String {
        let place = match (&self.epoch, self.offset) {
            (Some(epoch), Some(offset)) => format!(" offset={offset} epoch={epoch}"),
            _ => String::new(),
        };
        let duplicate = if self.duplicate { " duplicate" } else { "" };
        format!("<tidewire.Published{place}{duplicate}>")
    }
}

impl From<Place> for Published {
    fn from(place: Place) -> Self {
        Self {
            offset: place.position.map(|position| position.offset),
            epoch: place.position.map(|position| position.epoch_hex()),
            duplicate: place.is_duplicate,
        }
    }
}

/// The outcome of a publication. Other threads run while the broker has it, and Ctrl-C is handled.
pub(super) fn settled(py: Python<'_>, start: PublishStart) -> PyResult<PublishResult> {
    let pending = match start {
        PublishStart::Done(result) => return Ok(result),
        PublishStart::Pending(pending) => pending,
    };
    loop {
        if let Some(result) = py.detach(|| pending.wait(SIGNALS_CHECKED)) {
            return Ok(result);
        }
        py.check_signals()?;
    }
}

/// The reason why a call can be retried.
pub(super) trait MayBeBusy: Into<Failure> {
    fn is_busy(&self) -> bool;
}

impl MayBeBusy for PublishError {
    fn is_busy(&self) -> bool {
        *self == Self::Busy
    }
}

impl MayBeBusy for SendError {
    fn is_busy(&self) -> bool {
        *self == Self::Busy
    }
}

/// Tries again while the server has not caught up, for so long. A try does not wait, so the interpreter stays locked;
/// between two of them other threads run.
pub(super) fn retry<T, E: MayBeBusy>(
    py: Python<'_>,
    wait_ms: Whole,
    mut attempt: impl FnMut() -> PyResult<Result<T, E>>,
) -> PyResult<T> {
    let wait = wait_ms.ms();
    let started = Instant::now();
    let mut pause = PAUSE_MIN;
    loop {
        match attempt()? {
            Err(error) if error.is_busy() && started.elapsed() < wait => {}
            outcome => return outcome.map_err(|error| error.into().into()),
        }
        py.detach(|| thread::sleep(pause));
        py.check_signals()?;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

const PAUSE_MIN: Duration = Duration::from_micros(50);
const PAUSE_MAX: Duration = Duration::from_millis(2);

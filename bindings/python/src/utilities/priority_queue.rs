//! Priority queue.

use crate::arguments::{Whole, generic, is_text};
use crate::errors::{Failure, argument};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyType};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tidewire_client::priority_queue::{Priority, PriorityQueue as Core, QueueLimits};

/// The queue of the client. Safe to use from several threads.
#[pyclass(frozen, module = "tidewire")]
pub(crate) struct PriorityQueue {
    core: Mutex<Core<Py<PyAny>>>,
}

#[pymethods]
impl PriorityQueue {
    #[new]
    #[pyo3(signature = (*, items_max = Whole(10_000), bytes_max = Whole(16 * 1024 * 1024)), text_signature = "(*, items_max=10000, bytes_max=16777216)")]
    fn new(items_max: Whole, bytes_max: Whole) -> Self {
        let count = |Whole(count)| usize::try_from(count).unwrap_or(usize::MAX);
        Self {
            core: Mutex::new(Core::new(QueueLimits {
                items_max: count(items_max),
                bytes_max: count(bytes_max),
            })),
        }
    }

    /// Puts an item behind those of its priority.
    #[pyo3(signature = (item, priority = Whole(5), *, size = None), text_signature = "($self, item, priority=5, *, size=None)")]
    fn push(&self, item: Bound<'_, PyAny>, priority: Whole, size: Option<Whole>) -> PyResult<()> {
        let (priority, bytes) = (level(priority)?, weight(&item, size)?);
        let pushed = self.core().push(priority, bytes, item.unbind());
        pushed.map_err(|_| full().into())
    }

    /// `push` that removes less urgent items to make room; returns the removed items.
    #[pyo3(signature = (item, priority = Whole(5), *, size = None), text_signature = "($self, item, priority=5, *, size=None)")]
    fn push_displacing<'py>(
        &self,
        item: Bound<'py, PyAny>,
        priority: Whole,
        size: Option<Whole>,
    ) -> PyResult<Bound<'py, PyList>> {
        let py = item.py();
        let (priority, bytes) = (level(priority)?, weight(&item, size)?);
        let displaced = self.core().push_displacing(priority, bytes, item.unbind());
        let displaced = displaced.map_err(|_| full())?;
        PyList::new(py, displaced.into_iter().map(numbered))
    }

    /// Removes and returns the next item, with its priority; `None` if there is none.
    fn pop(&self) -> Option<(u8, Py<PyAny>)> {
        self.core().pop().map(numbered)
    }

    /// Removes and returns up to `n` items, with their priorities.
    fn pop_many<'py>(&self, py: Python<'py>, n: Whole) -> PyResult<Bound<'py, PyList>> {
        let mut core = self.core();
        let n = usize::try_from(n.0).unwrap_or(usize::MAX).min(core.len());
        let popped: Vec<_> = (0..n).map_while(|_| core.pop()).collect();
        drop(core);
        PyList::new(py, popped.into_iter().map(numbered))
    }

    /// The next item, which stays.
    fn peek(&self, py: Python<'_>) -> Option<(u8, Py<PyAny>)> {
        let core = self.core();
        let (priority, item) = core.peek()?;
        Some((priority.number(), item.clone_ref(py)))
    }

    /// The counted size of all items.
    #[getter]
    fn bytes(&self) -> usize {
        self.core().bytes()
    }

    fn __len__(&self) -> usize {
        self.core().len()
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
            "PriorityQueue({} items, {} bytes)",
            core.len(),
            core.bytes()
        )
    }
}

impl PriorityQueue {
    fn core(&self) -> MutexGuard<'_, Core<Py<PyAny>>> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn numbered((priority, item): (Priority, Py<PyAny>)) -> (u8, Py<PyAny>) {
    (priority.number(), item)
}

fn full() -> Failure {
    tidewire_bindings::Failure::queue_full("push_displacing").into()
}

fn level(Whole(number): Whole) -> Result<Priority, Failure> {
    Priority::from_number(number)
        .ok_or_else(|| argument(format!("priority has to be 1, 3, 5, 8 or 10, not {number}")))
}

/// The bytes that an item counts for: the given size, or the length of text and bytes.
fn weight(item: &Bound<'_, PyAny>, size: Option<Whole>) -> PyResult<usize> {
    match size {
        Some(Whole(size)) => Ok(usize::try_from(size).unwrap_or(usize::MAX)),
        None if is_text(item) => item.len(),
        None => Ok(0),
    }
}

//! Batches: events of the engine that Python receives together.

use super::core::Core;
use super::message::Message;
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use std::ops::Range;
use std::sync::Arc;
use tidewire_engine::queue;

/// One batch of the engine's queue, shared by the messages made of it.
pub(super) struct Stored {
    pub(super) batch: queue::Batch,
    pub(super) core: Arc<Core>,
}

/// A part of a batch of the engine's queue.
pub(super) struct Segment {
    stored: Arc<Stored>,
    range: Range<usize>,
}

/// Messages in the order of their arrival: `for message in batch`.
#[pyclass(frozen, module = "tidewire")]
pub(crate) struct Batch {
    segments: Arc<[Segment]>,
    len: usize,
}

/// Walks through a [`Batch`].
#[pyclass(module = "tidewire._native")]
pub(crate) struct BatchIterator {
    segments: Arc<[Segment]>,
    segment: usize,
    next: usize,
}

impl Stored {
    pub(super) fn new(batch: queue::Batch, core: &Arc<Core>) -> Arc<Self> {
        Arc::new(Self {
            batch,
            core: Arc::clone(core),
        })
    }
}

impl Segment {
    pub(super) fn new(stored: Arc<Stored>) -> Self {
        let range = 0..stored.batch.len();
        Self { stored, range }
    }

    pub(super) fn len(&self) -> usize {
        self.range.len()
    }

    /// Keeps N, and gives the rest if there is one.
    pub(super) fn split_off(&mut self, keep: usize) -> Option<Self> {
        if self.len() <= keep {
            return None;
        }
        let middle = self.range.start + keep;
        let rest = middle..self.range.end;
        self.range.end = middle;
        Some(Self {
            stored: Arc::clone(&self.stored),
            range: rest,
        })
    }
}

impl Batch {
    pub(super) fn new(segments: Vec<Segment>) -> Self {
        Self {
            len: segments.iter().map(Segment::len).sum(),
            segments: segments.into(),
        }
    }
}

#[pymethods]
impl Batch {
    fn __len__(&self) -> usize {
        self.len
    }

    fn __iter__(&self) -> BatchIterator {
        BatchIterator {
            segments: Arc::clone(&self.segments),
            segment: 0,
            next: self
                .segments
                .first()
                .map_or(0, |segment| segment.range.start),
        }
    }

    fn __getitem__(&self, index: isize) -> PyResult<Message> {
        let from_start = match index {
            0.. => index,
            _ => index + self.len as isize,
        };
        let mut left = usize::try_from(from_start).map_err(|_| PyIndexError::new_err(index))?;
        for segment in self.segments.iter() {
            if left < segment.len() {
                return Ok(Message::new(&segment.stored, segment.range.start + left));
            }
            left -= segment.len();
        }
        Err(PyIndexError::new_err(index))
    }

    fn __repr__(&self) -> String {
        let plural = if self.len == 1 { "" } else { "s" };
        format!("<tidewire.Batch of {} message{plural}>", self.len)
    }
}

#[pymethods]
impl BatchIterator {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__(&mut self) -> Option<Message> {
        let mut segment = self.segments.get(self.segment)?;
        if self.next == segment.range.end {
            self.segment += 1;
            segment = self.segments.get(self.segment)?;
            self.next = segment.range.start;
        }
        let message = Message::new(&segment.stored, self.next);
        self.next += 1;
        Some(message)
    }
}

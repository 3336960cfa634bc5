//! Signal: wakes an event loop. And how often a thread that waits for anything looks for Ctrl-C.

use crate::errors::stopped;
use pyo3::prelude::*;
use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A descriptor that becomes readable when something happened, once for however much.
///
/// It outlives its client, for who watches the descriptor: one that is closed while it is watched may be another's
/// before that is noticed.
#[pyclass(frozen, weakref, module = "tidewire._native")]
pub(crate) struct ClientSignal(Arc<Signal>);

pub(crate) struct Signal {
    reader: UnixStream,
    writer: UnixStream,
    is_given: AtomicBool,
    /// Tickets that are done and that nobody has looked at.
    finished: Mutex<Vec<u64>>,
}

impl Signal {
    pub(crate) fn new() -> std::io::Result<Arc<Self>> {
        let (reader, writer) = UnixStream::pair()?;
        reader.set_nonblocking(true)?;
        writer.set_nonblocking(true)?;
        Ok(Arc::new(Self {
            reader,
            writer,
            is_given: AtomicBool::new(false),
            finished: Mutex::default(),
        }))
    }

    pub(crate) fn give(&self) {
        if !self.is_given.swap(true, Ordering::AcqRel) {
            // A full pipe is readable already.
            let _ = (&self.writer).write(&[1]);
        }
    }

    /// A ticket is done.
    pub(crate) fn finish(&self, ticket: u64) {
        self.finished
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(ticket);
        self.give();
    }
}

impl From<Arc<Signal>> for ClientSignal {
    fn from(signal: Arc<Signal>) -> Self {
        Self(signal)
    }
}

impl ClientSignal {
    pub(crate) fn signal(&self) -> Arc<Signal> {
        Arc::clone(&self.0)
    }
}

#[pymethods]
impl ClientSignal {
    /// A signal of the caller's own.
    #[new]
    fn new() -> PyResult<Self> {
        let signal = Signal::new().map_err(|error| stopped(format!("no descriptor: {error}")))?;
        Ok(Self(signal))
    }

    /// The descriptor that is readable when something happened, until `clear`.
    fn fileno(&self) -> i32 {
        self.0.reader.as_raw_fd()
    }

    /// Resets the signal, and returns the numbers of the tickets that were done since. Then the caller has to
    /// look at everything that happened.
    fn clear(&self) -> Vec<u64> {
        let mut bytes = [0; 16];
        // What happens from here on gives a signal again; who called this looks at all that happened before.
        while matches!((&self.0.reader).read(&mut bytes), Ok(1..)) {}
        self.0.is_given.store(false, Ordering::Release);
        let mut finished = self
            .0
            .finished
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *finished)
    }
}

/// The interval at which a waiting thread checks for Ctrl-C.
pub(crate) const SIGNALS_CHECKED: Duration = Duration::from_millis(100);

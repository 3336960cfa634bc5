//! Calls that wait for an answer: how many there may be, and what becomes of those that are given up.

use crate::error::Error;
use crate::outbox::Outbox;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The calls of one client that are open: not answered, whether they are sent already or wait for a connection.
#[derive(Debug)]
pub(crate) struct Calls {
    open: AtomicUsize,
    open_max: usize,
    outbox: Arc<Outbox>,
}

/// One of them, open until this is dropped.
#[derive(Debug)]
pub(crate) struct OpenCall<'a> {
    calls: &'a Calls,
    is_answered: bool,
}

impl Calls {
    pub(crate) fn new(open_max: usize, outbox: Arc<Outbox>) -> Self {
        Self {
            open: AtomicUsize::new(0),
            open_max: open_max.max(1),
            outbox,
        }
    }

    /// Opens a call.
    ///
    /// # Errors
    /// [`Error::Full`]: too many are open.
    pub(crate) fn open(&self) -> Result<OpenCall<'_>, Error> {
        let one_more = |open| (open < self.open_max).then_some(open + 1);
        self.open
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more)
            .map_err(|_| Error::Full)?;
        Ok(OpenCall {
            calls: self,
            is_answered: false,
        })
    }
}

impl OpenCall<'_> {
    /// Ends an answered call. A call that is dropped without this counts as abandoned.
    pub(crate) fn handle_answer(mut self) {
        self.is_answered = true;
    }
}

impl Drop for OpenCall<'_> {
    fn drop(&mut self) {
        self.calls.open.fetch_sub(1, Ordering::Relaxed);
        if !self.is_answered {
            self.calls.outbox.handle_abandoned();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_too_many_is_refused_and_an_end_makes_room() {
        let calls = Calls::new(2, Arc::new(Outbox::new(1_000)));
        let first = calls.open().unwrap();
        let _second = calls.open().unwrap();
        assert_eq!(calls.open().unwrap_err(), Error::Full);
        first.handle_answer();
        assert!(calls.open().is_ok());
    }
}

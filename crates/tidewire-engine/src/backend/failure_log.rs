//! The log of events without a usable answer: at most one line in a second for each event, so that many failures of one
//! event do not hide the reason of another one's.

use crate::backend::failure::Failure;
use crate::config::backend::BackendEvent;
use crate::model::url::HttpUrl;

#[derive(Debug, Default)]
pub(crate) struct FailureLog([Line; BackendEvent::ALL.len()]);

/// When a failure of an event was logged last, and how many were not since.
#[derive(Debug, Default)]
struct Line {
    logged_ms: Option<u64>,
    unlogged: u64,
}

impl FailureLog {
    pub(crate) fn note(&mut self, url: &HttpUrl, event: BackendEvent, failure: &Failure, ms: u64) {
        let line = &mut self.0[event as usize];
        let last_ms = line.logged_ms;
        if last_ms.is_some_and(|last_ms| ms < last_ms + LOG_INTERVAL_MS) {
            line.unlogged += 1;
            return;
        }
        line.logged_ms = Some(ms);
        let unlogged = std::mem::take(&mut line.unlogged);
        tracing::warn!(
            backend = %url,
            event = event.name(),
            unlogged,
            "an event has no usable answer: {failure}",
        );
    }
}

/// A failure of an event is logged at most once in this many milliseconds.
const LOG_INTERVAL_MS: u64 = 1_000;

//! Log lines about clients that were refused because of the origin or the host that they name.
//!
//! A page cannot see why it was refused: its browser reports code 1006 for everything. Whoever runs the server reads it
//! in the log, once a minute for each name. A client chooses what it sends as its origin or host and how often, so the
//! number of names that are remembered, and with it the number of lines per minute, is bounded.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// The names that were reported within the last minute: origins, or hosts.
#[derive(Debug, Default)]
pub(crate) struct RefusalReports(Mutex<Reports>);

#[derive(Debug, Default)]
struct Reports {
    /// When each was reported, in milliseconds.
    reported: HashMap<String, u64>,
    /// A line has said that further names are not reported.
    is_full: bool,
}

/// The report of a refused name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RefusalReport {
    /// In a line of its own.
    Line,
    /// In a line that also says that further names are not reported for a while.
    LastLine,
    /// It was reported within the last minute, or too many others were.
    Silence,
}

impl RefusalReports {
    /// Notes that a name was refused at `now_ms`.
    pub(crate) fn note(&self, name: &str, now_ms: u64) -> RefusalReport {
        let mut reports = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let name = shown(name);
        let is_recent = |at_ms: &u64| now_ms.saturating_sub(*at_ms) < INTERVAL_MS;
        if reports.reported.get(name).is_some_and(is_recent) {
            return RefusalReport::Silence;
        }
        if reports.reported.len() >= NAMES_MAX {
            reports.reported.retain(|_, at_ms| is_recent(at_ms));
        }
        if reports.reported.len() >= NAMES_MAX {
            return RefusalReport::Silence;
        }
        reports.reported.insert(name.to_owned(), now_ms);
        let was_full = reports.is_full;
        reports.is_full = reports.reported.len() >= NAMES_MAX;
        if reports.is_full && !was_full {
            RefusalReport::LastLine
        } else {
            RefusalReport::Line
        }
    }
}

/// The part of a name that is remembered and shown.
pub(crate) fn shown(name: &str) -> &str {
    match name.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => &name[..end],
        None => name,
    }
}

/// The time between two lines about one name, in milliseconds.
const INTERVAL_MS: u64 = 60_000;

/// Names that are remembered, and so the lines per minute.
const NAMES_MAX: usize = 64;

/// A scheme, a name of the longest kind, and a port.
const SHOWN_CHARS_MAX: usize = 300;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_has_one_line_per_minute() {
        let reports = RefusalReports::default();
        assert_eq!(reports.note("https://a", 1_000), RefusalReport::Line);
        assert_eq!(reports.note("https://b", 1_001), RefusalReport::Line);
        assert_eq!(reports.note("https://a", 60_999), RefusalReport::Silence);
        assert_eq!(reports.note("https://a", 61_000), RefusalReport::Line);
        assert_eq!(reports.note("https://a", 61_001), RefusalReport::Silence);
    }

    #[test]
    fn a_client_that_invents_origins_fills_neither_the_log_nor_the_memory() {
        let reports = RefusalReports::default();
        let mut lines = 0;
        for number in 0..10_000 {
            let origin = format!("https://{number}{}", "x".repeat(1_000));
            match reports.note(&origin, 5) {
                RefusalReport::Line => lines += 1,
                RefusalReport::LastLine => {
                    lines += 1;
                    assert_eq!(lines, NAMES_MAX);
                }
                RefusalReport::Silence => assert_eq!(lines, NAMES_MAX),
            }
        }
        let reported = &reports.0.lock().unwrap().reported;
        assert_eq!(reported.len(), NAMES_MAX);
        assert!(
            reported
                .keys()
                .all(|origin| origin.len() <= SHOWN_CHARS_MAX)
        );
    }

    #[test]
    fn after_a_minute_there_is_room_again() {
        let reports = RefusalReports::default();
        for number in 0..NAMES_MAX {
            reports.note(&number.to_string(), 0);
        }
        assert_eq!(reports.note("other", 59_999), RefusalReport::Silence);
        assert_eq!(reports.note("other", 60_000), RefusalReport::Line);
    }
}

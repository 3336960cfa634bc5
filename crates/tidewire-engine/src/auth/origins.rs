//! Log lines about web pages that were refused because of their origin.
//!
//! A page cannot see why it was refused: its browser reports code 1006 for everything. Whoever runs the server reads it
//! in the log, once a minute for each origin. A client chooses what it sends as its origin and how often, so the number
//! of origins that are remembered, and with it the number of lines per minute, is bounded.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// The origins that were reported within the last minute.
#[derive(Debug, Default)]
pub(crate) struct OriginReports(Mutex<Reports>);

#[derive(Debug, Default)]
struct Reports {
    /// When each was reported, in milliseconds.
    reported: HashMap<String, u64>,
    /// Whether it was said that further origins are not reported.
    is_full: bool,
}

/// Whether a refused origin is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OriginReport {
    /// In a line of its own.
    Line,
    /// In a line that also says that further origins are not reported for a while.
    LastLine,
    /// It was reported within the last minute, or too many others were.
    Silence,
}

impl OriginReports {
    /// Notes that an origin was refused at `now_ms`.
    pub(crate) fn note(&self, origin: &str, now_ms: u64) -> OriginReport {
        let mut reports = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let origin = shown(origin);
        let is_recent = |at_ms: &u64| now_ms.saturating_sub(*at_ms) < INTERVAL_MS;
        if reports.reported.get(origin).is_some_and(is_recent) {
            return OriginReport::Silence;
        }
        if reports.reported.len() >= ORIGINS_MAX {
            reports.reported.retain(|_, at_ms| is_recent(at_ms));
        }
        if reports.reported.len() >= ORIGINS_MAX {
            return OriginReport::Silence;
        }
        reports.reported.insert(origin.to_owned(), now_ms);
        let was_full = reports.is_full;
        reports.is_full = reports.reported.len() >= ORIGINS_MAX;
        if reports.is_full && !was_full {
            OriginReport::LastLine
        } else {
            OriginReport::Line
        }
    }
}

/// The part of an origin that is remembered and shown.
pub(crate) fn shown(origin: &str) -> &str {
    match origin.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => &origin[..end],
        None => origin,
    }
}

/// The time between two lines about one origin, in milliseconds.
const INTERVAL_MS: u64 = 60_000;

/// Origins that are remembered, and so the lines per minute.
const ORIGINS_MAX: usize = 64;

/// A scheme, a name of the longest kind, and a port.
const SHOWN_CHARS_MAX: usize = 300;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_has_one_line_per_minute() {
        let reports = OriginReports::default();
        assert_eq!(reports.note("https://a", 1_000), OriginReport::Line);
        assert_eq!(reports.note("https://b", 1_001), OriginReport::Line);
        assert_eq!(reports.note("https://a", 60_999), OriginReport::Silence);
        assert_eq!(reports.note("https://a", 61_000), OriginReport::Line);
        assert_eq!(reports.note("https://a", 61_001), OriginReport::Silence);
    }

    #[test]
    fn a_client_that_invents_origins_fills_neither_the_log_nor_the_memory() {
        let reports = OriginReports::default();
        let mut lines = 0;
        for number in 0..10_000 {
            let origin = format!("https://{number}{}", "x".repeat(1_000));
            match reports.note(&origin, 5) {
                OriginReport::Line => lines += 1,
                OriginReport::LastLine => {
                    lines += 1;
                    assert_eq!(lines, ORIGINS_MAX);
                }
                OriginReport::Silence => assert_eq!(lines, ORIGINS_MAX),
            }
        }
        let reported = &reports.0.lock().unwrap().reported;
        assert_eq!(reported.len(), ORIGINS_MAX);
        assert!(
            reported
                .keys()
                .all(|origin| origin.len() <= SHOWN_CHARS_MAX)
        );
    }

    #[test]
    fn after_a_minute_there_is_room_again() {
        let reports = OriginReports::default();
        for number in 0..ORIGINS_MAX {
            reports.note(&number.to_string(), 0);
        }
        assert_eq!(reports.note("other", 59_999), OriginReport::Silence);
        assert_eq!(reports.note("other", 60_000), OriginReport::Line);
    }
}

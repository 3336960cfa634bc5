//! The circuit breaker of connections: after several that could not be opened in a row the backend is left alone for a
//! while. Their failure is nobody's fault, so that it holds for all.

use crate::backend::breaker::{FAILURES_MAX, next_pause_ms};

/// Closed while connections can be opened; open for a growing time after [`FAILURES_MAX`] failures in a row; then one
/// connection probes whether there are others.
#[derive(Debug, Default)]
pub(crate) struct Reach {
    failures: u32,
    away: Option<Away>,
    pause_ms: u64,
}

#[derive(Debug)]
struct Away {
    reason: String,
    /// When it may be probed; while it is, when it may be at the latest.
    until_ms: u64,
    is_probing: bool,
}

impl Reach {
    /// Why nothing may be sent now, if so.
    pub(crate) fn check(&self, now_ms: u64) -> Result<(), &str> {
        match &self.away {
            Some(away) if now_ms < away.until_ms => Err(&away.reason),
            _ => Ok(()),
        }
    }

    /// Something is sent that [`Reach::check`] has let pass. The connection that it needs is the probe, and is there
    /// within `patience_ms` or never.
    pub(crate) fn probe(&mut self, now_ms: u64, patience_ms: u64) {
        if let Some(away) = &mut self.away {
            away.is_probing = true;
            away.until_ms = now_ms.saturating_add(patience_ms);
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.away.is_some()
    }

    /// When something may be sent at the earliest.
    pub(crate) fn due_ms(&self) -> u64 {
        self.away.as_ref().map_or(0, |away| away.until_ms)
    }

    /// A connection is open. Whether the backend had been left alone before.
    pub(crate) fn succeed(&mut self) -> bool {
        self.failures = 0;
        self.pause_ms = 0;
        self.away.take().is_some()
    }

    /// A connection could not be opened. Whether the backend is left alone from now on.
    pub(crate) fn fail(&mut self, reason: &str, now_ms: u64) -> bool {
        self.failures = self.failures.saturating_add(1);
        // The failure of an attempt that began before the pause changes nothing.
        let waits = self.away.as_ref().is_some_and(|away| !away.is_probing);
        if waits || self.failures < FAILURES_MAX {
            return false;
        }
        self.pause_ms = next_pause_ms(self.pause_ms);
        self.away = Some(Away {
            reason: reason.to_owned(),
            until_ms: now_ms + self.pause_ms,
            is_probing: false,
        });
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::breaker::{PAUSE_MS, PAUSE_MS_MAX};

    fn away() -> Reach {
        let mut reach = Reach::default();
        for _ in 1..FAILURES_MAX {
            assert!(!reach.fail("down", 0));
            assert_eq!(reach.check(0), Ok(()));
        }
        assert!(reach.fail("down", 0));
        reach
    }

    #[test]
    fn failures_in_a_row_open_it_and_one_probe_closes_it() {
        let mut reach = away();
        assert_eq!(reach.check(PAUSE_MS - 1), Err("down"));
        assert_eq!(reach.check(PAUSE_MS), Ok(()));
        reach.probe(PAUSE_MS, 1_000);
        assert_eq!(reach.check(PAUSE_MS), Err("down"), "one probe");
        assert_eq!(reach.check(PAUSE_MS + 1_000), Ok(()), "or another one");
        assert!(reach.succeed());
        assert_eq!(reach.check(PAUSE_MS), Ok(()));
        assert!(!reach.is_open());
    }

    #[test]
    fn pauses_grow_up_to_a_limit() {
        let mut reach = away();
        let (mut now_ms, mut last) = (0, PAUSE_MS);
        for _ in 0..10 {
            now_ms += last;
            reach.probe(now_ms, 1_000);
            assert!(reach.fail("still down", now_ms));
            assert!(!reach.fail("an older one", now_ms));
            last = (last * 2).min(PAUSE_MS_MAX);
            assert_eq!(reach.due_ms(), now_ms + last);
        }
        assert_eq!(last, PAUSE_MS_MAX);
    }
}

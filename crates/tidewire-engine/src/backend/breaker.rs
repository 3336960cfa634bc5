//! The circuit breaker: after failures in a row the backend is left alone for a while.

/// Closed while the backend works; open for a growing time after [`FAILURES_MAX`] failures in a row; then one event
/// probes whether it works again.
#[derive(Debug, Default)]
pub(crate) struct Breaker {
    failures: u32,
    /// When it may be probed, while it is open.
    open_until_ms: Option<u64>,
    is_probing: bool,
    pause_ms: u64,
    reason: String,
}

impl Breaker {
    /// Why an event may not be sent now, if so. The first one after a pause is the probe.
    pub(crate) fn admit(&mut self, now_ms: u64) -> Result<(), String> {
        match self.open_until_ms {
            None => Ok(()),
            Some(until_ms) if now_ms >= until_ms && !self.is_probing => {
                self.is_probing = true;
                Ok(())
            }
            Some(_) => Err(self.reason.clone()),
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.open_until_ms.is_some()
    }

    /// When it may be probed, if it waits for that.
    pub(crate) fn probe_at_ms(&self) -> Option<u64> {
        self.open_until_ms.filter(|_| !self.is_probing)
    }

    /// The backend has answered. Whether it had been left alone before.
    pub(crate) fn succeed(&mut self) -> bool {
        self.failures = 0;
        self.pause_ms = 0;
        self.is_probing = false;
        self.open_until_ms.take().is_some()
    }

    /// The backend has failed. Whether it is left alone from now on.
    pub(crate) fn fail(&mut self, reason: &str, now_ms: u64) -> bool {
        self.failures = self.failures.saturating_add(1);
        // What was sent before the pause and fails during it says nothing new.
        let waits = self.open_until_ms.is_some() && !self.is_probing;
        if waits || self.failures < FAILURES_MAX {
            return false;
        }
        self.pause_ms = (self.pause_ms * 2).clamp(PAUSE_MS, PAUSE_MS_MAX);
        self.open_until_ms = Some(now_ms + self.pause_ms);
        self.is_probing = false;
        reason.clone_into(&mut self.reason);
        true
    }
}

/// Failures in a row after which the backend is left alone.
pub(crate) const FAILURES_MAX: u32 = 5;

/// The first pause, in milliseconds; each further one is twice as long.
const PAUSE_MS: u64 = 500;

/// The longest pause, in milliseconds.
const PAUSE_MS_MAX: u64 = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn opened() -> Breaker {
        let mut breaker = Breaker::default();
        for _ in 1..FAILURES_MAX {
            assert!(!breaker.fail("down", 0));
            assert_eq!(breaker.admit(0), Ok(()));
        }
        assert!(breaker.fail("down", 0));
        breaker
    }

    #[test]
    fn failures_in_a_row_open_it_and_one_probe_closes_it() {
        let mut breaker = opened();
        assert_eq!(breaker.admit(PAUSE_MS - 1), Err("down".to_owned()));
        assert_eq!(breaker.admit(PAUSE_MS), Ok(()));
        assert_eq!(breaker.admit(PAUSE_MS), Err("down".to_owned()), "one probe");
        assert!(breaker.succeed());
        assert_eq!(breaker.admit(PAUSE_MS), Ok(()));
        assert!(!breaker.is_open());
    }

    #[test]
    fn pauses_grow_up_to_a_limit() {
        let mut breaker = opened();
        let (mut now_ms, mut last) = (0, PAUSE_MS);
        for _ in 0..10 {
            now_ms += last;
            assert_eq!(breaker.admit(now_ms), Ok(()));
            assert!(breaker.fail("still down", now_ms));
            last = (last * 2).min(PAUSE_MS_MAX);
            assert_eq!(breaker.probe_at_ms(), Some(now_ms + last));
        }
        assert_eq!(last, PAUSE_MS_MAX);
    }

    #[test]
    fn a_success_between_failures_counts_from_zero() {
        let mut breaker = Breaker::default();
        for _ in 0..10 {
            for _ in 1..FAILURES_MAX {
                assert!(!breaker.fail("down", 0));
            }
            assert!(!breaker.succeed());
        }
    }
}

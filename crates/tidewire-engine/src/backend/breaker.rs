//! The circuit breaker of one kind of requests: after failures of several owners in a row, requests of this kind are not
//! sent for a while. What fails for one owner alone is that owner's, so that nobody closes the backend to others.

use crate::backend::seen::Seen;
use crate::limits::owner::OwnerId;

/// Closed while requests of the kind succeed. It opens after [`FAILURES_MAX`] failures in a row of at least
/// [`OWNERS_MIN`] owners, or of the only owner that has been seen lately. Then there are rounds of probes, each of another
/// owner: one success closes it, and failures of as many owners as before open it for longer.
#[derive(Debug, Default)]
pub(crate) struct Breaker {
    seen: Seen,
    /// Failures since the last success.
    failures: u32,
    failing: Few,
    opening: Option<Opening>,
    pause_ms: u64,
}

/// The state of an open circuit breaker.
#[derive(Debug)]
struct Opening {
    reason: String,
    /// The only owner whose failures have opened it, if it was only one. Others are not affected.
    only: Option<OwnerId>,
    /// When the next round of probes begins. During a round, when it is over at the latest.
    until_ms: u64,
    /// The owners that have probed in this round; none before the first one.
    probing: Few,
    failed: Few,
}

/// At most [`OWNERS_MIN`] different owners.
#[derive(Debug, Default)]
struct Few(Vec<OwnerId>);

impl Breaker {
    /// An owner has an event of this kind.
    pub(crate) fn note(&mut self, owner: OwnerId, now_ms: u64) {
        self.seen.note(owner, now_ms);
    }

    pub(crate) fn is_only(&self, owner: OwnerId, now_ms: u64) -> bool {
        self.seen.is_only(owner, now_ms)
    }

    /// Why a request of an owner may not be sent now, if so. One that may be sent while the circuit breaker is open is a
    /// probe, and has its outcome within `patience_ms`.
    pub(crate) fn admit(
        &mut self,
        owner: OwnerId,
        now_ms: u64,
        patience_ms: u64,
    ) -> Result<(), String> {
        self.note(owner, now_ms);
        let Some(opening) = &mut self.opening else {
            return Ok(());
        };
        if opening.only.is_some_and(|only| only != owner) {
            // The failures of one owner do not count against another owner.
            self.close();
            return Ok(());
        }
        if now_ms >= opening.until_ms {
            opening.probing = Few(vec![owner]);
            opening.failed = Few::default();
            opening.until_ms = now_ms.saturating_add(patience_ms);
            return Ok(());
        }
        let is_round = !opening.probing.0.is_empty();
        match is_round && opening.probing.add(owner) {
            true => Ok(()),
            false => Err(opening.reason.clone()),
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.opening.is_some()
    }

    /// When a request of an owner may be sent at the earliest.
    pub(crate) fn due_ms(&self, owner: OwnerId) -> u64 {
        match &self.opening {
            Some(opening) if opening.only.is_none_or(|only| only == owner) => {
                let probing = &opening.probing;
                let is_next = !probing.0.is_empty() && !probing.is_full() && !probing.has(owner);
                if is_next { 0 } else { opening.until_ms }
            }
            _ => 0,
        }
    }

    /// A request has succeeded. Whether the circuit breaker was open.
    pub(crate) fn succeed(&mut self) -> bool {
        let was_open = self.is_open();
        self.close();
        was_open
    }

    /// A request of an owner has failed. Whether this opens the circuit breaker, or opens it again.
    pub(crate) fn fail(&mut self, owner: OwnerId, reason: &str, now_ms: u64) -> bool {
        let is_only = self.is_only(owner, now_ms);
        let failing = match &mut self.opening {
            None => {
                self.failures = self.failures.saturating_add(1);
                self.failing.add(owner);
                if self.failures < FAILURES_MAX {
                    return false;
                }
                &self.failing
            }
            // The failure of a request that was sent before the pause changes nothing.
            Some(opening) if !opening.probing.has(owner) => return false,
            Some(opening) => {
                opening.failed.add(owner);
                if opening.failed.0.len() == opening.probing.0.len() {
                    let next_ms = now_ms.saturating_add(self.pause_ms);
                    opening.until_ms = opening.until_ms.min(next_ms);
                }
                &opening.failed
            }
        };
        if !is_only && !failing.is_full() {
            return false;
        }
        self.pause_ms = next_pause_ms(self.pause_ms);
        self.opening = Some(Opening {
            reason: reason.to_owned(),
            only: is_only.then_some(owner),
            until_ms: now_ms + self.pause_ms,
            probing: Few::default(),
            failed: Few::default(),
        });
        true
    }

    fn close(&mut self) {
        self.failures = 0;
        self.failing = Few::default();
        self.opening = None;
        self.pause_ms = 0;
    }
}

impl Few {
    /// Adds an owner. True if it is new and there was room.
    fn add(&mut self, owner: OwnerId) -> bool {
        let is_added = !self.is_full() && !self.has(owner);
        if is_added {
            self.0.push(owner);
        }
        is_added
    }

    fn has(&self, owner: OwnerId) -> bool {
        self.0.contains(&owner)
    }

    fn is_full(&self) -> bool {
        self.0.len() >= OWNERS_MIN
    }
}

/// The pause after another one.
pub(crate) fn next_pause_ms(pause_ms: u64) -> u64 {
    (pause_ms * 2).clamp(PAUSE_MS, PAUSE_MS_MAX)
}

/// Failures in a row after which a circuit breaker opens.
pub(crate) const FAILURES_MAX: u32 = 5;

/// Owners whose failures open it.
const OWNERS_MIN: usize = 3;

/// The first pause, in milliseconds; each further one is twice as long.
pub(crate) const PAUSE_MS: u64 = 500;

/// The longest pause, in milliseconds.
pub(crate) const PAUSE_MS_MAX: u64 = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    const ANN: OwnerId = OwnerId(1);
    const BOB: OwnerId = OwnerId(2);
    const EVE: OwnerId = OwnerId(3);
    const DAN: OwnerId = OwnerId(4);
    const PATIENCE_MS: u64 = 5_000;

    impl Breaker {
        fn may(&mut self, owner: OwnerId, now_ms: u64) -> bool {
            self.admit(owner, now_ms, PATIENCE_MS).is_ok()
        }

        fn fails(&mut self, owner: OwnerId, now_ms: u64) -> bool {
            assert!(self.may(owner, now_ms), "{owner:?}");
            self.fail(owner, "down", now_ms)
        }
    }

    /// Opened by three owners at 0.
    fn opened() -> Breaker {
        let mut breaker = Breaker::default();
        for owner in [ANN, BOB, ANN, ANN] {
            assert!(!breaker.fails(owner, 0));
        }
        assert!(breaker.fails(EVE, 0));
        breaker
    }

    #[test]
    fn failures_of_three_owners_open_it_and_one_success_closes_it() {
        let mut breaker = opened();
        assert_eq!(
            breaker.admit(DAN, PAUSE_MS - 1, PATIENCE_MS),
            Err("down".to_owned())
        );
        assert!(breaker.may(DAN, PAUSE_MS));
        assert!(breaker.succeed());
        assert!(breaker.may(ANN, PAUSE_MS) && !breaker.is_open());
    }

    #[test]
    fn two_owners_among_others_never_open_it() {
        let mut breaker = Breaker::default();
        breaker.note(DAN, 0);
        for number in 0..1_000 {
            assert!(!breaker.fails([ANN, BOB][number % 2], number as u64));
        }
    }

    #[test]
    fn the_only_owner_opens_it_for_itself_alone() {
        let mut breaker = Breaker::default();
        for _ in 1..FAILURES_MAX {
            assert!(!breaker.fails(ANN, 0));
        }
        assert!(breaker.fails(ANN, 0));
        assert!(!breaker.may(ANN, PAUSE_MS - 1));
        assert!(breaker.fails(ANN, PAUSE_MS), "the probe fails");
        assert!(!breaker.may(ANN, PAUSE_MS * 3 - 1), "for longer");
        assert!(breaker.may(BOB, PAUSE_MS) && !breaker.is_open());
        // Now there are two of them.
        for _ in 0..100 {
            assert!(!breaker.fails(ANN, PAUSE_MS));
        }
    }

    #[test]
    fn each_round_has_a_probe_of_each_of_three_owners() {
        let mut breaker = opened();
        let now_ms = PAUSE_MS;
        assert!(!breaker.fails(ANN, now_ms));
        assert!(!breaker.may(ANN, now_ms), "once in a round");
        assert_eq!(
            (breaker.due_ms(ANN), breaker.due_ms(DAN)),
            (now_ms + PAUSE_MS, 0)
        );
        assert!(breaker.may(DAN, now_ms), "but others as well");
        assert!(breaker.may(BOB, now_ms));
        assert!(!breaker.may(EVE, now_ms), "three of them");
        assert!(breaker.succeed());
    }

    #[test]
    fn rounds_begin_again_after_a_pause_or_without_an_outcome() {
        let mut breaker = opened();
        assert!(!breaker.fails(ANN, PAUSE_MS));
        assert!(!breaker.may(ANN, PAUSE_MS * 2 - 1));
        assert!(breaker.may(ANN, PAUSE_MS * 2));
        // This probe has no outcome.
        assert!(!breaker.may(ANN, PAUSE_MS * 2 + PATIENCE_MS - 1));
        assert!(breaker.may(ANN, PAUSE_MS * 2 + PATIENCE_MS));
    }

    #[test]
    fn pauses_grow_up_to_a_limit() {
        let mut breaker = opened();
        let (mut now_ms, mut last) = (0, PAUSE_MS);
        for _ in 0..10 {
            now_ms += last;
            assert!(!breaker.fails(ANN, now_ms));
            assert!(!breaker.fails(BOB, now_ms));
            assert!(breaker.fails(EVE, now_ms));
            last = (last * 2).min(PAUSE_MS_MAX);
            assert_eq!(breaker.due_ms(DAN), now_ms + last);
        }
        assert_eq!(last, PAUSE_MS_MAX);
    }

    #[test]
    fn a_success_between_failures_counts_from_zero() {
        let mut breaker = Breaker::default();
        for _ in 0..10 {
            for owner in [ANN, BOB, EVE, DAN] {
                assert!(!breaker.fails(owner, 0));
            }
            assert!(!breaker.succeed());
        }
    }

    #[test]
    fn it_remembers_a_few_owners_however_many_there_are() {
        let mut breaker = Breaker::default();
        for number in 0..10_000 {
            breaker.note(OwnerId(number), number);
            breaker.fail(OwnerId(number), "down", number);
        }
        assert_eq!(breaker.failing.0.len(), OWNERS_MIN);
    }
}

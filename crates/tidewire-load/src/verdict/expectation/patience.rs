//! Patience: how long an expectation may be broken before a load is aborted.

use super::{Expectation, ExpectationOutcome, Figures};

/// The figures of a part of a load.
pub trait Piece: Sized {
    /// Adds a later part.
    fn extend(&mut self, later: &Self);
    /// Its length in seconds.
    fn seconds(&self) -> f64;
    /// Its figures; those that are known only at the end are `None`.
    fn figures(&self) -> Figures<'_>;
    /// The same part of the load with the requests of this name alone, if they are known apart.
    fn of_name(&self, name: &str) -> Option<Self>;
}

/// Checks expectations during a load, part by part.
///
/// A part with too few values is combined with the following parts, until there are enough.
#[derive(Debug, Clone)]
pub struct Patience<P> {
    abort_after_s: f64,
    watched: Vec<Watched<P>>,
}

#[derive(Debug, Clone)]
struct Watched<P> {
    expectation: Expectation,
    /// The request whose figure it is, if not all, and the expectation without its name.
    scope: Option<String>,
    unscoped: Expectation,
    /// The parts that have too few values so far.
    pending: Option<P>,
    broken_s: f64,
}

impl<P: Piece + Clone> Patience<P> {
    /// Aborts when one of the expectations is broken for this number of consecutive seconds. Those whose
    /// figure is known only at the end are not checked.
    #[must_use]
    pub fn new(expectations: &[Expectation], abort_after_s: f64) -> Self {
        let known = expectations.iter().filter(|one| one.may_end_early());
        let watched = known.map(|expectation| {
            let (scope, unscoped) = expectation.clone().into_parts();
            Watched {
                expectation: expectation.clone(),
                scope,
                unscoped,
                pending: None,
                broken_s: 0.0,
            }
        });
        Self {
            abort_after_s,
            watched: watched.collect(),
        }
    }

    /// Adds the next part; returns the expectation that has been broken for too long, if there is
    /// one.
    pub fn observe(&mut self, piece: &P) -> Option<&Expectation> {
        let abort_after_s = self.abort_after_s;
        for watched in &mut self.watched {
            watched.observe(piece);
        }
        let exhausted = self
            .watched
            .iter()
            .find(|watched| watched.broken_s > 0.0 && watched.broken_s >= abort_after_s);
        exhausted.map(|watched| &watched.expectation)
    }
}

impl<P: Piece + Clone> Watched<P> {
    fn observe(&mut self, piece: &P) {
        let piece = match &self.scope {
            None => Some(piece.clone()),
            Some(name) => piece.of_name(name),
        };
        let Some(piece) = piece else { return };
        let whole = match self.pending.take() {
            None => piece,
            Some(mut pending) => {
                pending.extend(&piece);
                pending
            }
        };
        match self.unscoped.check(&whole.figures()) {
            ExpectationOutcome::Kept(_) => self.broken_s = 0.0,
            ExpectationOutcome::Broken(_) => self.broken_s += whole.seconds(),
            ExpectationOutcome::Unknown(_) => self.pending = Some(whole),
        }
    }
}

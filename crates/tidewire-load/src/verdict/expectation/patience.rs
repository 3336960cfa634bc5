//! How long an expectation may be broken before a load is aborted.

use super::{Expectation, Figures, Outcome};

/// What was seen in a part of a load.
pub trait Piece {
    /// Adds a later part.
    fn extend(&mut self, later: &Self);
    /// Its length in seconds.
    fn seconds(&self) -> f64;
    /// Its figures; those that are known only at the end are `None`.
    fn figures(&self) -> Figures<'_>;
}

/// Watches expectations while a load goes on, part by part.
///
/// A part with too few values to tell is put together with those after it, until there are enough.
#[derive(Debug, Clone)]
pub struct Patience<P> {
    abort_after_s: f64,
    watched: Vec<Watched<P>>,
}

#[derive(Debug, Clone)]
struct Watched<P> {
    expectation: Expectation,
    /// What could not be judged yet.
    pending: Option<P>,
    broken_s: f64,
}

impl<P: Piece + Clone> Patience<P> {
    /// Aborts when one of the expectations is broken for so many seconds without a break.
    #[must_use]
    pub fn new(expectations: &[Expectation], abort_after_s: f64) -> Self {
        let watched = expectations.iter().map(|expectation| Watched {
            expectation: expectation.clone(),
            pending: None,
            broken_s: 0.0,
        });
        Self {
            abort_after_s,
            watched: watched.collect(),
        }
    }

    /// Takes the next part; returns the expectation that has been broken for too long, if there is one.
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
        let whole = match self.pending.take() {
            None => piece.clone(),
            Some(mut pending) => {
                pending.extend(piece);
                pending
            }
        };
        match self.expectation.check(&whole.figures()) {
            Outcome::Kept(_) => self.broken_s = 0.0,
            Outcome::Broken(_) => self.broken_s += whole.seconds(),
            Outcome::Unknown(_) => self.pending = Some(whole),
        }
    }
}

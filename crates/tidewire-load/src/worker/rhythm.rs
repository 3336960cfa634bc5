//! Rhythm: when messages or requests leave, the same value in the plans of `bench` and `load`.

use super::pace::Pace;
use crate::report::{self, LoopKind};

/// The rate of a phase, over all workers.
#[derive(Debug, Clone)]
pub enum Rhythm {
    /// Each connection sends the next one when a previous one is answered.
    Closed,
    /// At given times, on any connection that is free.
    Open {
        /// The times.
        pace: Pace,
        /// Messages or requests per second on average, for the report.
        per_s: f64,
    },
    /// Each connection at this rate.
    Each {
        /// Messages or requests per second on one connection.
        per_s: f64,
    },
}

impl Rhythm {
    /// Closed without a rate, and open with one.
    #[must_use]
    pub fn at(rate_per_s: Option<f64>, is_poisson: bool, seed: u64) -> Self {
        match rate_per_s {
            None => Self::Closed,
            Some(per_s) => Self::Open {
                pace: Pace::at(per_s, is_poisson, seed),
                per_s,
            },
        }
    }

    /// The planned rate; `None` in a closed loop.
    #[must_use]
    pub fn per_s(&self) -> Option<f64> {
        match self {
            Self::Closed => None,
            Self::Open { per_s, .. } | Self::Each { per_s } => Some(*per_s),
        }
    }

    fn is_random(&self) -> bool {
        matches!(self, Self::Open { pace, .. } if pace.is_random())
    }

    /// In the words of a report, with the number in flight of a closed loop.
    #[must_use]
    pub fn in_words(&self, in_flight: Option<u32>) -> String {
        let random = match self.is_random() {
            true => "Poisson",
            false => "constant",
        };
        match (self, in_flight) {
            (Self::Closed, None) => "closed loop".to_owned(),
            (Self::Closed, Some(in_flight)) => format!("closed loop, {in_flight} in flight"),
            (Self::Each { per_s }, _) => format!("{per_s}/s on each connection"),
            (
                Self::Open {
                    pace: Pace::Stages(_),
                    ..
                },
                _,
            ) => format!("stages, {random}"),
            (Self::Open { per_s, .. }, _) => format!("{per_s}/s, {random}"),
        }
    }

    /// In a result. The offered rate is added when it is known.
    #[must_use]
    pub fn report(&self, in_flight: Option<u64>) -> report::Pace {
        let planned_per_s = self.per_s();
        report::Pace {
            kind: match planned_per_s {
                None => LoopKind::Closed,
                Some(_) => LoopKind::Open,
            },
            in_flight: in_flight.filter(|_| planned_per_s.is_none()),
            unconfirmed_bytes_max: None,
            planned_per_s,
            offered_per_s: None,
            poisson: self.is_random(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_opens_the_loop() {
        let closed = Rhythm::at(None, true, 1);
        assert_eq!(closed.in_words(None), "closed loop");
        assert_eq!(closed.in_words(Some(4)), "closed loop, 4 in flight");
        let report = closed.report(Some(4));
        assert_eq!((report.kind, report.in_flight), (LoopKind::Closed, Some(4)));
        assert!(!report.poisson);

        let open = Rhythm::at(Some(50.0), true, 1);
        assert_eq!(open.in_words(Some(4)), "50/s, Poisson");
        let report = open.report(Some(4));
        assert_eq!((report.kind, report.in_flight), (LoopKind::Open, None));
        assert_eq!((report.planned_per_s, report.poisson), (Some(50.0), true));
        assert_eq!(
            Rhythm::at(Some(2.5), false, 1).in_words(None),
            "2.5/s, constant"
        );
    }
}

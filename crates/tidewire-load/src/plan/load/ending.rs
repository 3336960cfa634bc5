//! Why a phase ends before its time: an expectation that is broken for too long, or a figure that is known well enough.

use std::time::Duration;

use crate::accounting::live::ServiceLive;
use crate::accounting::observation::Observation;
use crate::accounting::precision::Precision;
use crate::accounting::windows::Window;
use crate::report::number;
use crate::verdict::expectation::{Expectation, Patience};

/// Looks at each window once.
#[derive(Default)]
pub(super) struct Ending {
    patience: Option<Patience<Observation>>,
    precision: Option<Precision>,
    /// What the precision is computed from.
    windows: Vec<Window>,
    windows_seen: usize,
    reason: Option<EndedBy>,
}

/// Why a phase ended before its time.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum EndedBy {
    /// An expectation was broken for longer than it may be.
    Broken(String),
    /// A figure is known well enough.
    Known,
}

impl Ending {
    /// Ends the phase when an expectation has been broken for so long.
    pub(super) fn abort_after(&mut self, expectations: &[Expectation], after: Duration) {
        self.patience = Some(Patience::new(expectations, after.as_secs_f64()));
    }

    /// Ends the phase when a figure is known well enough.
    pub(super) fn when_known(&mut self, precision: &Precision) {
        self.precision = Some(precision.clone());
    }

    /// Why the phase is to end now.
    pub(super) fn look(&mut self, service: &ServiceLive) -> Option<&EndedBy> {
        if let Some((index, window)) = &service.window
            && *index >= self.windows_seen
            && is_complete(*index, service.elapsed)
        {
            self.windows_seen = index + 1;
            self.observe(window);
        }
        self.reason.as_ref()
    }

    fn observe(&mut self, window: &Window) {
        if let Some(patience) = &mut self.patience {
            let observation = Observation {
                seconds: WINDOW_S,
                window: window.clone(),
                ..Observation::default()
            };
            if let Some(broken) = patience.observe(&observation) {
                self.reason = Some(EndedBy::Broken(broken.to_string()));
            }
        }
        if let Some(precision) = &self.precision {
            self.windows.push(window.clone());
            if self.reason.is_none() && precision.is_met(&self.windows) {
                self.reason = Some(EndedBy::Known);
            }
        }
    }

    /// What came of it: the expectation that was broken for too long, and how well the figure is known, in a sentence.
    pub(super) fn into_words(self) -> (Option<String>, Option<String>) {
        let known = self.precision.as_ref().map(|precision| {
            let width = precision.half_width(&self.windows).map_or_else(
                || "the interval cannot be told, as there are too few windows or values".to_owned(),
                |width| {
                    format!(
                        "half of its 95 % interval is {}",
                        number::percent(width * 100.0)
                    )
                },
            );
            match &self.reason {
                Some(EndedBy::Known) => format!("Ended when `{precision}` was reached: {width}."),
                _ => format!("`{precision}` was not reached: {width}."),
            }
        });
        match self.reason {
            Some(EndedBy::Broken(expectation)) => (Some(expectation), known),
            _ => (None, known),
        }
    }
}

/// Whether every worker has had the time to publish its part of the window.
fn is_complete(index: usize, elapsed: Duration) -> bool {
    elapsed.as_secs_f64() >= (index + 1) as f64 * WINDOW_S + PUBLISHING_S
}

const WINDOW_S: f64 = 1.0;
const PUBLISHING_S: f64 = 0.2;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounting::windows::WindowSeries;

    /// What is seen `ms` after the start, with so many requests of this latency in the last whole second.
    fn live(ms: u64, requests: u64, latency_us: u64) -> ServiceLive {
        let mut series = WindowSeries::new();
        (0..requests).for_each(|request| series.succeed(request, latency_us * 1_000, 1));
        let window = series.whole(Duration::from_secs(1)).remove(0);
        ServiceLive {
            elapsed: Duration::from_millis(ms),
            window: Some(((ms / 1_000) as usize - 1, window)),
            ..ServiceLive::default()
        }
    }

    #[test]
    fn a_window_counts_once_and_when_all_have_published_it() {
        let expectation: Expectation = "p50<1ms".parse().expect("it is right");
        let mut ending = Ending::default();
        ending.abort_after(&[expectation], Duration::from_secs(2));
        for ms in [1_000, 1_100, 1_250, 1_500, 1_950, 2_100] {
            assert_eq!(ending.look(&live(ms, 10, 5_000)), None, "{ms}");
        }
        let broken = EndedBy::Broken("p50<1ms".to_owned());
        assert_eq!(ending.look(&live(2_200, 10, 5_000)), Some(&broken));
        assert_eq!(ending.into_words(), (Some("p50<1ms".to_owned()), None));
    }

    #[test]
    fn a_figure_that_is_known_ends_the_phase_after_ten_windows() {
        let precision: Precision = "rate:2%".parse().expect("it is right");
        let mut ending = Ending::default();
        ending.when_known(&precision);
        for second in 1..10 {
            assert_eq!(ending.look(&live(second * 1_000 + 500, 100, 50)), None);
        }
        assert_eq!(ending.look(&live(10_500, 100, 50)), Some(&EndedBy::Known));
        let (broken, known) = ending.into_words();
        assert_eq!(broken, None);
        assert_eq!(
            known.as_deref(),
            Some("Ended when `rate:2%` was reached: half of its 95 % interval is 0 %.")
        );
    }

    #[test]
    fn a_figure_that_varies_is_said_to_be_unknown() {
        let precision: Precision = "rate:2%".parse().expect("it is right");
        let mut ending = Ending::default();
        ending.when_known(&precision);
        for second in 1..30 {
            let requests = if second % 2 == 0 { 10 } else { 200 };
            assert_eq!(ending.look(&live(second * 1_000 + 500, requests, 50)), None);
        }
        let (_, known) = ending.into_words();
        assert!(known.is_some_and(|words| words.starts_with("`rate:2%` was not reached: half of")));
    }
}

//! Early end of a phase: an expectation that is broken for too long, or a figure that is known
//! precisely enough.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::accounting::live::ServiceLive;
use crate::accounting::observation::Observation;
use crate::accounting::precision::Precision;
use crate::accounting::windows::{EndedWindow, Window};
use crate::report::number;
use crate::verdict::expectation::{Expectation, Patience};

/// Examines each window once.
#[derive(Default)]
pub(super) struct Ending {
    patience: Option<Patience<Observation>>,
    /// The names of the requests, in the order of the scenario.
    names: Vec<String>,
    precision: Option<Precision>,
    /// The windows from which the precision is computed, all of one length.
    windows: Vec<Window>,
    /// The index of each of them, ascending.
    indexes: Vec<usize>,
    length: Duration,
    /// The end of the last examined window.
    seen: Duration,
    /// The users of the load, if it ends when all of them have lost their connections.
    users: Option<u64>,
    /// The time, besides [`PUBLISHING`], until all workers have published a window that has ended.
    delay: Duration,
    reason: Option<EndedBy>,
}

/// The reason for an early end of a phase.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum EndedBy {
    /// An expectation was broken for longer than allowed.
    Broken(String),
    /// A figure is known precisely enough.
    Known,
    /// No connection is left, after this time.
    NobodyLeft(Duration),
}

impl Ending {
    /// Ends the phase when an expectation has been broken for this long. `names` are those of the
    /// requests.
    pub(super) fn abort_after(
        &mut self,
        expectations: &[Expectation],
        names: Vec<String>,
        after: Duration,
    ) {
        self.names = names;
        self.patience = Some(Patience::new(expectations, after.as_secs_f64()));
    }

    /// Ends the phase when a figure is known precisely enough.
    pub(super) fn when_known(&mut self, precision: &Precision) {
        self.precision = Some(precision.clone());
    }

    /// What the workers publish is here this much later.
    pub(super) fn delayed(&mut self, delay: Duration) {
        self.delay = delay;
    }

    /// Ends the phase when this number of users have lost their connections.
    pub(super) fn without(&mut self, users: u64) {
        self.users = Some(users);
    }

    /// The reason to end the phase now, if there is one. Each window is observed once, when every
    /// worker has published it.
    pub(super) fn look(&mut self, service: &ServiceLive) -> Option<&EndedBy> {
        if self.reason.is_none() && self.users.is_some_and(|users| service.gone >= users) {
            self.reason = Some(EndedBy::NobodyLeft(service.elapsed));
        }
        if let Some(ended) = &service.window
            && ended.end() > self.seen
            && service.elapsed >= ended.end().saturating_add(PUBLISHING + self.delay)
        {
            self.observe_expectations(ended);
            self.observe_precision(ended);
            self.seen = ended.end();
        }
        self.reason.as_ref()
    }

    fn observe_expectations(&mut self, ended: &EndedWindow) {
        // The first window of twice the length may begin with one that was examined before.
        if ended.start() < self.seen {
            return;
        }
        let Some(patience) = &mut self.patience else {
            return;
        };
        let mut named = BTreeMap::<String, Window>::new();
        // A single request is not counted apart from the load.
        let windows = match ended.steps.as_slice() {
            [] => std::slice::from_ref(&ended.window),
            steps => steps,
        };
        for (name, window) in self.names.iter().zip(windows) {
            named.entry(name.clone()).or_default().add(window);
        }
        let observation = Observation {
            seconds: ended.length.as_secs_f64(),
            window: ended.window.clone(),
            named,
            ..Observation::default()
        };
        if let Some(broken) = patience.observe(&observation) {
            self.reason = Some(EndedBy::Broken(broken.to_string()));
        }
    }

    fn observe_precision(&mut self, ended: &EndedWindow) {
        let Some(precision) = &self.precision else {
            return;
        };
        if self.windows.is_empty() {
            self.length = ended.length;
        }
        while self.length < ended.length {
            self.length *= 2;
            let windows = std::mem::take(&mut self.indexes)
                .into_iter()
                .zip(std::mem::take(&mut self.windows));
            (self.indexes, self.windows) = pairs(windows).into_iter().unzip();
        }
        // The last pair may be what has ended now.
        let known = self.indexes.partition_point(|index| *index < ended.index);
        self.indexes.truncate(known);
        self.windows.truncate(known);
        self.indexes.push(ended.index);
        self.windows.push(ended.window.clone());
        if self.reason.is_none() && precision.is_met(&self.windows) {
            self.reason = Some(EndedBy::Known);
        }
    }

    /// The end of the last connection, if it has ended the phase.
    pub(super) fn nobody_left(&self) -> Option<Duration> {
        match self.reason {
            Some(EndedBy::NobodyLeft(after)) => Some(after),
            _ => None,
        }
    }

    /// The result: the expectation that was broken for too long, and the precision of the figure,
    /// in a sentence.
    pub(super) fn into_words(self) -> (Option<String>, Option<String>) {
        let known = self.precision.as_ref().map(|precision| {
            let width = precision.half_width(&self.windows).map_or_else(
                || {
                    "the interval is not known, because there are too few windows or values"
                        .to_owned()
                },
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

/// Windows of twice the length; one whose other half is missing is left out.
fn pairs(windows: impl Iterator<Item = (usize, Window)>) -> Vec<(usize, Window)> {
    let mut doubled = Vec::new();
    let mut windows = windows.peekable();
    while let Some((index, mut window)) = windows.next() {
        let second = windows.next_if(|(next, _)| index % 2 == 0 && *next == index + 1);
        if let Some((_, second)) = second {
            window.add(&second);
            doubled.push((index / 2, window));
        }
    }
    doubled
}

/// Every worker has published its part of a window this long after its end.
const PUBLISHING: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounting::windows::WindowSeries;
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    /// The observation `ms` after the start, with this number of requests of this latency in the
    /// last whole second.
    fn live(ms: u64, requests: u64, latency_us: u64) -> ServiceLive {
        let mut series = WindowSeries::new();
        (0..requests).for_each(|request| series.succeed(request, latency_us * 1_000, 1));
        let mut ended = series.last_whole(Duration::from_secs(1));
        if let Some(ended) = &mut ended {
            ended.index = (ms / 1_000) as usize - 1;
        }
        ServiceLive {
            elapsed: Duration::from_millis(ms),
            window: ended,
            ..ServiceLive::default()
        }
    }

    /// A load that is observed twenty times per second: requests of this latency, one every 50 ms.
    struct Simulated {
        series: WindowSeries,
        ms: u64,
    }

    impl Simulated {
        fn new() -> Self {
            let series = WindowSeries::new();
            Self { series, ms: 0 }
        }

        /// Continues until this second, or until the phase ends; then returns the time of the end.
        fn go_on(&mut self, ending: &mut Ending, until_s: u64, latency_us: u64) -> Option<u64> {
            while self.ms < until_s * 1_000 {
                self.series
                    .succeed(self.ms * 1_000_000, latency_us * 1_000, 1);
                self.ms += 50;
                let elapsed = Duration::from_millis(self.ms);
                let live = ServiceLive {
                    elapsed,
                    window: self.series.last_whole(elapsed),
                    ..ServiceLive::default()
                };
                if ending.look(&live).is_some() {
                    return Some(self.ms);
                }
            }
            None
        }
    }

    #[test]
    fn an_expectation_that_breaks_after_an_hour_ends_the_load_as_soon_as_before() {
        // Just before, at and after the moments at which the windows double in length, and far
        // behind.
        for from_s in [
            10, 3_595, 3_599, 3_600, 3_700, 7_199, 7_200, 10_000, 14_399, 20_000,
        ] {
            let expectation: Expectation = "p50<1ms".parse().expect("it is right");
            let mut ending = Ending::default();
            ending.abort_after(&[expectation], Vec::new(), Duration::from_secs(10));
            let mut load = Simulated::new();
            assert_eq!(load.go_on(&mut ending, from_s, 100), None, "{from_s}");
            let ended = load.go_on(&mut ending, from_s + 1_000, 5_000);
            let after_ms = ended.expect("it ends") - from_s * 1_000;
            // At most two windows are lost: one that is only partly good, and one that is examined
            // for the second time.
            let length_ms = load.series.window().as_millis() as u64;
            let late_ms = 10_000 + 2 * length_ms + 300;
            assert!(
                (10_000..=late_ms).contains(&after_ms),
                "{from_s}: {after_ms}"
            );
        }
    }

    #[test]
    fn a_figure_that_becomes_known_after_an_hour_ends_the_load() {
        let precision: Precision = "mean:0.5%".parse().expect("it is right");
        let mut ending = Ending::default();
        ending.when_known(&precision);
        let mut load = Simulated::new();
        let mut random = SmallRng::seed_from_u64(1);
        for second in 1..=3_600 {
            let latency_us = random.random_range(100..1_000);
            assert_eq!(load.go_on(&mut ending, second, latency_us), None);
        }
        // The figure stays the same from here on, so that its earlier variation counts less and
        // less.
        let ended_ms = load.go_on(&mut ending, 2_000_000, 550);
        assert!(ended_ms.is_some_and(|ms| ms > 3_600_000), "{ended_ms:?}");
        assert_eq!(ending.reason, Some(EndedBy::Known));
        assert!(ending.indexes.is_sorted() && ending.indexes.len() < 3_600);
        let requests: u64 = ending.windows.iter().map(|window| window.succeeded).sum();
        let all = ended_ms.unwrap_or(0) / 50;
        assert!(
            all - requests <= 40 * ending.length.as_secs(),
            "{requests} of {all}"
        );
    }

    #[test]
    fn windows_double_only_with_both_halves() {
        let window = |succeeded| {
            let mut window = Window::default();
            window.succeeded = succeeded;
            window
        };
        let windows = [0, 1, 3, 4, 5, 6].map(|index| (index, window(index as u64 + 1)));
        let doubled = [(0, window(3)), (2, window(11))];
        assert_eq!(pairs(windows.into_iter()), doubled);
    }

    #[test]
    fn a_window_counts_once_and_when_all_have_published_it() {
        let expectation: Expectation = "p50<1ms".parse().expect("it is right");
        let mut ending = Ending::default();
        ending.abort_after(&[expectation], Vec::new(), Duration::from_secs(2));
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

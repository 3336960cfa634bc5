//! Windows of one second: successes and failures of each, with a coarse histogram of the latencies.
//!
//! Memory does not grow with the length of a run: beyond [`WINDOWS_MAX`] windows two neighbours
//! become one, so that a run of a day has windows of 32 seconds. The series of several workers are
//! merged at the end.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::report::buckets::{self, BUCKETS};
use crate::report::{LatencyOverTime, LatencyWindow, Spread, Windows};

/// Counts and latencies of one window.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// Requests or messages that succeeded.
    pub succeeded: u64,
    /// Those that failed, or were not answered or not sent when the load ended.
    pub failed: u64,
    /// Received bytes.
    pub bytes: u64,
    /// The sum of all latencies.
    sum_ns: u64,
    max_ns: u64,
    /// Index and count of each bucket in use, ascending.
    counts: Vec<(u16, u32)>,
}

impl Window {
    /// Number of latencies.
    #[must_use]
    pub fn latencies(&self) -> u64 {
        self.counts.iter().map(|&(_, count)| u64::from(count)).sum()
    }

    /// The latency in microseconds that `percentile` (0 to 100) of all do not exceed, within 3.1 %;
    /// `None` without latencies.
    #[must_use]
    pub fn percentile_us(&self, percentile: f64) -> Option<f64> {
        let found = buckets::percentile_us(self.histogram(), percentile)?;
        // No latency is above the largest, whatever the end of its bucket.
        Some(found.min(self.max_ns as f64 / 1000.0))
    }

    /// The largest latency in microseconds.
    #[must_use]
    pub fn max_us(&self) -> Option<f64> {
        (!self.counts.is_empty()).then_some(self.max_ns as f64 / 1000.0)
    }

    /// The mean latency in microseconds.
    #[must_use]
    pub fn mean_us(&self) -> Option<f64> {
        Self::mean_us_of(std::slice::from_ref(self))
    }

    /// The mean latency of several windows in microseconds; `None` without latencies.
    pub(crate) fn mean_us_of(windows: &[Self]) -> Option<f64> {
        let count: u64 = windows.iter().map(Self::latencies).sum();
        let sum_ns: f64 = windows.iter().map(|window| window.sum_ns as f64).sum();
        (count > 0).then(|| sum_ns / count as f64 / 1000.0)
    }

    /// The upper end of each bucket in use in microseconds, and its count.
    fn histogram(&self) -> impl Iterator<Item = (f64, u64)> + Clone {
        let counts = self.counts.iter();
        counts.map(|&(index, count)| (buckets::upper_us(usize::from(index)), u64::from(count)))
    }

    /// Adds everything of another window.
    pub fn add(&mut self, other: &Self) {
        self.succeeded += other.succeeded;
        self.failed += other.failed;
        self.bytes += other.bytes;
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
        if self.counts.is_empty() {
            self.counts.clone_from(&other.counts);
        } else if !other.counts.is_empty() {
            self.counts = merged(&self.counts, &other.counts);
        }
    }

    fn record(&mut self, index: usize, latency_ns: u64, count: u64) {
        self.sum_ns = self.sum_ns.saturating_add(latency_ns.saturating_mul(count));
        self.max_ns = self.max_ns.max(latency_ns);
        let index = index as u16;
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        match self.counts.binary_search_by_key(&index, |entry| entry.0) {
            Ok(at) => self.counts[at].1 = self.counts[at].1.saturating_add(count),
            Err(at) => self.counts.insert(at, (index, count)),
        }
    }

    fn report(&self) -> LatencyWindow {
        LatencyWindow {
            count: self.succeeded,
            errors: self.failed,
            bytes: self.bytes,
            p50: self.percentile_us(50.0).map(neat),
            p90: self.percentile_us(90.0).map(neat),
            p99: self.percentile_us(99.0).map(neat),
            max: self.max_us(),
            mean: self.mean_us().map(neat),
            histogram: self.histogram().collect(),
        }
    }
}

/// A window that has ended, and its position in the run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedWindow {
    /// The number of windows of this length that had ended before it.
    pub index: usize,
    /// One second at first, and twice as long whenever there are [`WINDOWS_MAX`].
    pub length: Duration,
    /// Its content.
    pub window: Window,
    /// The part of each request of a scenario; empty if there is only one.
    pub steps: Vec<Window>,
}

impl EndedWindow {
    /// Adds the same window of another worker.
    pub fn add(&mut self, other: &Self) {
        self.window.add(&other.window);
        for (mine, theirs) in self.steps.iter_mut().zip(&other.steps) {
            mine.add(theirs);
        }
    }

    /// Its start, counted from the start of the run.
    #[must_use]
    pub fn start(&self) -> Duration {
        self.length
            .saturating_mul(u32::try_from(self.index).unwrap_or(u32::MAX))
    }

    /// Its end.
    #[must_use]
    pub fn end(&self) -> Duration {
        self.start().saturating_add(self.length)
    }

    /// Whether a series can have such a window.
    pub(crate) fn is_possible(&self) -> bool {
        let shortest = Duration::from_nanos(SECOND_NS);
        self.index < WINDOWS_MAX && (shortest..LENGTH_MAX).contains(&self.length)
    }
}

/// The windows of one worker, or of all after [`WindowSeries::merge`].
///
/// Recording costs an addition to a table of 4 KiB while the time stays within the current window.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(from = "Settled", into = "Settled")]
pub struct WindowSeries {
    window_ns: u64,
    /// From the start, without those after the last event.
    windows: Vec<Window>,
    /// The window whose latencies `dense` contains.
    current: usize,
    current_end_ns: u64,
    dense: Box<[u32]>,
    /// The used entries of `dense` lie between these.
    dense_from: usize,
    dense_to: usize,
}

/// A series in the form that travels.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Settled {
    window_ns: u64,
    windows: Vec<Window>,
}

impl From<WindowSeries> for Settled {
    fn from(mut series: WindowSeries) -> Self {
        series.settle();
        Self {
            window_ns: series.window_ns,
            windows: series.windows,
        }
    }
}

impl From<Settled> for WindowSeries {
    fn from(settled: Settled) -> Self {
        let mut windows = settled.windows;
        windows.truncate(WINDOWS_MAX);
        windows.resize_with(windows.len().max(1), Window::default);
        let mut series = Self {
            window_ns: settled.window_ns.max(SECOND_NS),
            windows,
            ..Self::new()
        };
        series.enter(series.windows.len() - 1);
        series
    }
}

impl WindowSeries {
    /// Without events, and with windows of one second.
    #[must_use]
    pub fn new() -> Self {
        Self {
            window_ns: SECOND_NS,
            windows: vec![Window::default()],
            current: 0,
            current_end_ns: SECOND_NS,
            dense: vec![0; BUCKETS].into_boxed_slice(),
            dense_from: BUCKETS,
            dense_to: 0,
        }
    }

    /// The length of a window.
    #[must_use]
    pub fn window(&self) -> Duration {
        Duration::from_nanos(self.window_ns)
    }

    /// Counts a success at `at_ns` after the start, with its latency and the bytes that were received for it.
    #[inline]
    pub fn succeed(&mut self, at_ns: u64, latency_ns: u64, bytes: u64) {
        let bucket = buckets::index_of(latency_ns);
        let window = self.at(at_ns);
        if window == self.current {
            self.dense[bucket] = self.dense[bucket].saturating_add(1);
            self.dense_from = self.dense_from.min(bucket);
            self.dense_to = self.dense_to.max(bucket + 1);
            let window = &mut self.windows[window];
            window.succeeded += 1;
            window.bytes += bytes;
            window.sum_ns = window.sum_ns.saturating_add(latency_ns);
            window.max_ns = window.max_ns.max(latency_ns);
        } else {
            let window = &mut self.windows[window];
            window.succeeded += 1;
            window.bytes += bytes;
            window.record(bucket, latency_ns, 1);
        }
    }

    /// Counts a success without a latency.
    pub fn count(&mut self, at_ns: u64, bytes: u64) {
        let window = self.at(at_ns);
        self.windows[window].succeeded += 1;
        self.windows[window].bytes += bytes;
    }

    /// Counts a failure without a latency.
    pub fn fail(&mut self, at_ns: u64) {
        let window = self.at(at_ns);
        self.windows[window].failed += 1;
    }

    /// Counts failures, each at its age when it failed, so that percentiles include them.
    pub fn fail_at_age(&mut self, at_ns: u64, age_ns: u64, count: u64) {
        let window = self.at(at_ns);
        let window = &mut self.windows[window];
        window.failed += count;
        window.record(buckets::index_of(age_ns), age_ns, count);
    }

    /// Counts bytes that belong to no success.
    pub fn add_bytes(&mut self, at_ns: u64, bytes: u64) {
        let window = self.at(at_ns);
        self.windows[window].bytes += bytes;
    }

    /// Adds the events of another worker with the same start.
    pub fn merge(&mut self, other: &Self) {
        self.settle();
        let mut other = other.clone();
        other.settle();
        while self.window_ns < other.window_ns {
            self.coarsen();
        }
        while other.window_ns < self.window_ns {
            other.coarsen();
        }
        if self.windows.len() < other.windows.len() {
            self.windows
                .resize_with(other.windows.len(), Window::default);
        }
        for (mine, theirs) in self.windows.iter_mut().zip(&other.windows) {
            mine.add(theirs);
        }
        self.enter(self.windows.len() - 1);
    }

    /// The whole windows of a measurement of this length, including those without an event.
    #[must_use]
    pub fn whole(&self, measured: Duration) -> Vec<Window> {
        let mut settled = self.clone();
        settled.settle();
        let whole = u64::try_from(measured.as_nanos()).unwrap_or(u64::MAX) / self.window_ns;
        settled
            .windows
            .resize_with((whole as usize).min(WINDOWS_MAX), Window::default);
        settled.windows
    }

    /// The window that ended last before `now`; `None` in the first one. For observers of a running
    /// load: its length depends on `now` alone, so that it is the same for all workers.
    #[must_use]
    pub fn last_whole(&self, now: Duration) -> Option<EndedWindow> {
        let now_ns = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        let mut length_ns = self.window_ns;
        while now_ns / length_ns >= WINDOWS_MAX as u64 {
            length_ns = length_ns.saturating_mul(2);
        }
        let index = usize::try_from((now_ns / length_ns).checked_sub(1)?).ok()?;
        // A series without a recent event has not combined its windows yet.
        let parts = usize::try_from(length_ns / self.window_ns).ok()?;
        let mut window = Window::default();
        for part in index.saturating_mul(parts)..(index + 1).saturating_mul(parts) {
            let Some(found) = self.windows.get(part) else {
                break;
            };
            window.add(found);
            if part == self.current {
                window.counts = merged(&window.counts, &self.sparse());
            }
        }
        Some(EndedWindow {
            index,
            length: Duration::from_nanos(length_ns),
            window,
            steps: Vec::new(),
        })
    }

    /// The differences between the rates of whole windows; `None` without a whole window.
    #[must_use]
    pub fn spread(&self, measured: Duration) -> Option<Windows> {
        let whole = self.whole(measured);
        let window_s = self.window().as_secs_f64();
        let per_s = |figure: fn(&Window) -> u64| {
            let rates: Vec<f64> = whole
                .iter()
                .map(|window| figure(window) as f64 / window_s)
                .collect();
            Spread::of(&rates)
        };
        Some(Windows {
            window_s,
            requests_per_s: per_s(|window| window.succeeded)?,
            bytes_per_s: per_s(|window| window.bytes)?,
        })
    }

    /// The whole windows in the form of a report; `None` without a whole window.
    #[must_use]
    pub fn over_time(&self, measured: Duration) -> Option<LatencyOverTime> {
        let whole = self.whole(measured);
        (!whole.is_empty()).then(|| LatencyOverTime {
            window_s: self.window().as_secs_f64(),
            windows: whole.iter().map(Window::report).collect(),
        })
    }

    /// Everything in one window, including a partial window at the end.
    #[must_use]
    pub fn total(&self) -> Window {
        let mut settled = self.clone();
        settled.settle();
        let mut total = Window::default();
        settled.windows.iter().for_each(|window| total.add(window));
        total
    }

    /// All latencies, in the form of a report's `histogram`.
    #[must_use]
    pub fn histogram(&self) -> Vec<(f64, u64)> {
        self.total().histogram().collect()
    }

    /// The index of the window of a time; it exists afterwards.
    #[inline]
    fn at(&mut self, at_ns: u64) -> usize {
        let starts_ns = self.current_end_ns - self.window_ns;
        if at_ns < self.current_end_ns && at_ns >= starts_ns {
            return self.current;
        }
        self.find(at_ns)
    }

    #[cold]
    fn find(&mut self, at_ns: u64) -> usize {
        while at_ns / self.window_ns >= WINDOWS_MAX as u64 {
            self.coarsen();
        }
        let index = (at_ns / self.window_ns) as usize;
        if index >= self.windows.len() {
            self.settle();
            self.windows.resize_with(index + 1, Window::default);
            self.enter(index);
        }
        index
    }

    /// Combines each pair of windows.
    fn coarsen(&mut self) {
        self.settle();
        let pairs = self.windows.chunks(2).map(|pair| {
            let mut sum = pair[0].clone();
            pair[1..].iter().for_each(|window| sum.add(window));
            sum
        });
        self.windows = pairs.collect();
        self.window_ns = self.window_ns.saturating_mul(2);
        self.enter(self.windows.len() - 1);
    }

    fn enter(&mut self, index: usize) {
        self.current = index;
        self.current_end_ns = self.window_ns.saturating_mul(index as u64 + 1);
    }

    /// Moves the content of `dense` to its window.
    fn settle(&mut self) {
        let sparse = self.sparse();
        if sparse.is_empty() {
            return;
        }
        let window = &mut self.windows[self.current];
        window.counts = merged(&window.counts, &sparse);
        self.dense[self.dense_from..self.dense_to].fill(0);
        (self.dense_from, self.dense_to) = (BUCKETS, 0);
    }

    fn sparse(&self) -> Vec<(u16, u32)> {
        let used = self.dense.iter().enumerate().take(self.dense_to);
        used.skip(self.dense_from)
            .filter(|(_, count)| **count > 0)
            .map(|(index, count)| (index as u16, *count))
            .collect()
    }
}

impl Default for WindowSeries {
    fn default() -> Self {
        Self::new()
    }
}

/// The sums of two ascending lists of counts.
fn merged(a: &[(u16, u32)], b: &[(u16, u32)]) -> Vec<(u16, u32)> {
    let mut sums = Vec::with_capacity(a.len().max(b.len()));
    let (mut a, mut b) = (a.iter().peekable(), b.iter().peekable());
    while let (Some(&&(left, of_left)), Some(&&(right, of_right))) = (a.peek(), b.peek()) {
        let count = match left.cmp(&right) {
            std::cmp::Ordering::Less => of_left,
            std::cmp::Ordering::Greater => of_right,
            std::cmp::Ordering::Equal => of_left.saturating_add(of_right),
        };
        sums.push((left.min(right), count));
        a.next_if(|entry| entry.0 <= right);
        b.next_if(|entry| entry.0 <= left);
    }
    sums.extend(a.chain(b).copied());
    sums
}

/// Microseconds with three decimals: a nanosecond is the clock's own resolution.
fn neat(us: f64) -> f64 {
    (us * 1e3).round() / 1e3
}

/// The largest number of windows of a series.
pub const WINDOWS_MAX: usize = 3_600;
const SECOND_NS: u64 = 1_000_000_000;

/// No load has windows of this length.
const LENGTH_MAX: Duration = Duration::from_secs(1 << 30);

#[cfg(test)]
mod tests;

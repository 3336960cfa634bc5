//! The charts that only a load has: everything over time on one axis, and latency by its size and
//! by the rate.

use super::chart::{
    Figure, bounds, figure, linear, logarithmic, on_decades, ordinates, seconds, usable,
};
use super::model::{LatencyOverTime, RateStep, ResourceSample, TargetFigures, TestResult};
use super::svg::{self, Axis, Series};
use super::{number, table};

/// The charts of all results of a test. With several results each caption names its result.
pub(super) fn figures(results: &[&TestResult]) -> Vec<Figure> {
    let is_alone = results.len() == 1;
    let of_one = |result: &&TestResult| {
        let mut figures = all_of(result);
        if !is_alone {
            let whose = table::label(result);
            for figure in &mut figures {
                figure.caption = format!("{}, {whose}", figure.caption);
            }
        }
        figures
    };
    results.iter().take(RESULTS_MAX).flat_map(of_one).collect()
}

fn all_of(result: &TestResult) -> Vec<Figure> {
    let load = &result.load;
    let time = Time::of(result);
    let over_time = load.latency_over_time.as_ref();
    let charts = [
        over_time.and_then(|over_time| rate(over_time, &time)),
        over_time.and_then(|over_time| percentiles(over_time, &time)),
        over_time.and_then(|over_time| heat(over_time, &time)),
        of_requests(&load.targets, &time, rates),
        of_requests(&load.targets, &time, high_percentiles),
        histogram(&load.histogram),
        by_rate(&load.latency_by_rate),
        processor(&load.resources_over_time, &time),
        memory(&load.resources_over_time, &time),
    ];
    charts.into_iter().flatten().collect()
}

/// The time axis that all charts of a result share.
struct Time {
    seconds: f64,
}

impl Time {
    fn of(result: &TestResult) -> Self {
        let load = &result.load;
        let windows = load.latency_over_time.as_ref();
        let of_windows = windows.map_or(0.0, |all| all.window_s * all.windows.len() as f64);
        let of_samples = load
            .resources_over_time
            .last()
            .map_or(0.0, |last| last.at_s);
        let seconds = of_windows.max(of_samples);
        Self {
            seconds: if usable(seconds) { seconds } else { 1.0 },
        }
    }

    fn axis(&self) -> Axis {
        seconds(self.seconds)
    }
}

/// Lines over time with a linear axis; `None` without two points.
fn lines(
    caption: &str,
    label: &'static str,
    time: &Time,
    series: Vec<Series>,
    text: fn(f64) -> String,
) -> Option<Figure> {
    let mut series = series;
    series.retain(|one| one.points.len() >= POINTS_MIN);
    let (_, largest) = bounds(ordinates(&series))?;
    let svg = svg::lines(
        caption,
        &time.axis(),
        &linear(label, largest, text),
        &series,
    );
    Some(figure(caption, svg, &series))
}

/// The end of each window with one of its figures.
pub(super) fn over<T>(
    windows: &[T],
    window_s: f64,
    of: impl Fn(&T) -> Option<f64>,
) -> Vec<(f64, f64)> {
    let ends = (1u32..).map(|n| f64::from(n) * window_s);
    let points = ends
        .zip(windows)
        .filter_map(|(end, window)| Some((end, of(window)?)));
    points.collect()
}

fn rate(over_time: &LatencyOverTime, time: &Time) -> Option<Figure> {
    let (windows, window_s) = (&over_time.windows, over_time.window_s);
    if !usable(window_s) {
        return None;
    }
    let mut series = vec![Series {
        name: "requests/s".to_owned(),
        points: over(windows, window_s, |window| {
            Some(window.count as f64 / window_s)
        }),
    }];
    if windows.iter().any(|window| window.errors > 0) {
        series.push(Series {
            name: "errors/s".to_owned(),
            points: over(windows, window_s, |window| {
                Some(window.errors as f64 / window_s)
            }),
        });
    }
    lines(
        "Requests/s over time",
        "per second",
        time,
        series,
        number::si,
    )
}

fn percentiles(over_time: &LatencyOverTime, time: &Time) -> Option<Figure> {
    let (windows, window_s) = (&over_time.windows, over_time.window_s);
    let line = |name: &str, points| Series {
        name: name.to_owned(),
        points,
    };
    let series = [
        line("p50", over(windows, window_s, |window| window.p50)),
        line("p99", over(windows, window_s, |window| window.p99)),
        line("max", over(windows, window_s, |window| window.max)),
    ];
    if series[0].points.len() < POINTS_MIN {
        return None;
    }
    on_decades("Latency over time", "latency", &time.axis(), &series)
}

/// A request of a scenario, and its figures of each window.
type Timed<'a> = (&'a str, &'a LatencyOverTime);

/// A chart with a line for each of the most frequent requests of a scenario; `None` for fewer than two.
fn of_requests(
    targets: &[TargetFigures],
    time: &Time,
    chart: fn(&[Timed<'_>], &Time) -> Option<Figure>,
) -> Option<Figure> {
    let mut targets: Vec<&TargetFigures> = targets.iter().collect();
    targets.sort_by_key(|target| std::cmp::Reverse(target.requests.sent));
    let lines: Vec<Timed<'_>> = targets
        .into_iter()
        .filter_map(|target| Some((target.name.as_str(), target.latency_over_time.as_ref()?)))
        .filter(|(_, over_time)| usable(over_time.window_s))
        .take(REQUESTS_MAX)
        .collect();
    (lines.len() > 1).then(|| chart(&lines, time)).flatten()
}

fn rates(requests: &[Timed<'_>], time: &Time) -> Option<Figure> {
    let series = requests.iter().map(|(name, over_time)| Series {
        name: (*name).to_owned(),
        points: over(&over_time.windows, over_time.window_s, |window| {
            Some(window.count as f64 / over_time.window_s)
        }),
    });
    let caption = "Requests/s of each request over time";
    lines(caption, "per second", time, series.collect(), number::si)
}

fn high_percentiles(requests: &[Timed<'_>], time: &Time) -> Option<Figure> {
    let series = requests.iter().map(|(name, over_time)| Series {
        name: (*name).to_owned(),
        points: over(&over_time.windows, over_time.window_s, |window| window.p99),
    });
    let series: Vec<Series> = series
        .filter(|one| one.points.len() >= POINTS_MIN)
        .collect();
    if series.is_empty() {
        return None;
    }
    on_decades(
        "p99 of each request over time",
        "latency",
        &time.axis(),
        &series,
    )
}

/// The number of latencies of each size at each moment; the column of each moment has the same sum.
fn heat(over_time: &LatencyOverTime, time: &Time) -> Option<Figure> {
    let windows = &over_time.windows;
    let uppers = windows
        .iter()
        .flat_map(|window| &window.histogram)
        .map(|bucket| bucket.0);
    let (low, high) = bounds(uppers)?;
    if windows.len() < POINTS_MIN || !usable(over_time.window_s) {
        return None;
    }
    let y = logarithmic("latency", low, high);
    let columns = windows.len().min(HEAT_COLUMNS_MAX);
    let mut cells = vec![[0.0; HEAT_ROWS]; columns];
    for (index, window) in windows.iter().enumerate() {
        let column = index * columns / windows.len();
        for (upper_us, count) in window.histogram.iter().filter(|bucket| usable(bucket.0)) {
            let share = (upper_us.log10() - y.min) / (y.max - y.min).max(f64::MIN_POSITIVE);
            let row = (share.clamp(0.0, 1.0) * HEAT_ROWS as f64) as usize;
            cells[column][row.min(HEAT_ROWS - 1)] += *count as f64;
        }
    }
    for column in &mut cells {
        let sum: f64 = column.iter().sum();
        column
            .iter_mut()
            .filter(|_| sum > 0.0)
            .for_each(|cell| *cell /= sum);
    }
    let caption = "Latency distribution over time";
    let measured_s = over_time.window_s * windows.len() as f64;
    let cells: Vec<&[f64]> = cells.iter().map(<[f64; HEAT_ROWS]>::as_slice).collect();
    let svg = svg::cloud(caption, &time.axis(), &y, measured_s, &cells);
    Some(figure(caption, svg, &[]))
}

/// The share of all latencies in bins that are equally wide on a logarithmic axis.
fn histogram(buckets: &[(f64, u64)]) -> Option<Figure> {
    let (low, high) = bounds(buckets.iter().map(|bucket| bucket.0))?;
    let total: f64 = buckets.iter().map(|bucket| bucket.1 as f64).sum();
    let x = logarithmic("latency", low, high);
    let width = (x.max - x.min) / HISTOGRAM_BINS as f64;
    if total <= 0.0 || width <= 0.0 {
        return None;
    }
    let mut bins = [0.0; HISTOGRAM_BINS];
    for (upper_us, count) in buckets.iter().filter(|bucket| usable(bucket.0)) {
        let bin = ((upper_us.log10() - x.min) / width) as usize;
        bins[bin.min(HISTOGRAM_BINS - 1)] += *count as f64 / total * 100.0;
    }
    let middles = (0u32..).map(|bin| x.min + (f64::from(bin) + 0.5) * width);
    let series = [Series {
        name: "share of the latencies".to_owned(),
        points: middles.zip(bins).collect(),
    }];
    let caption = "Distribution of the latencies";
    let largest = bins.into_iter().fold(0.0, f64::max);
    let y = linear("share", largest, |share| format!("{} %", number::si(share)));
    Some(figure(
        caption,
        svg::lines(caption, &x, &y, &series),
        &series,
    ))
}

fn by_rate(steps: &[RateStep]) -> Option<Figure> {
    let mut steps = steps.to_vec();
    steps.retain(|step| usable(step.offered_per_s));
    steps.sort_by(|a, b| a.offered_per_s.total_cmp(&b.offered_per_s));
    let line = |name: &str, of: fn(&RateStep) -> Option<f64>| Series {
        name: name.to_owned(),
        points: steps
            .iter()
            .filter_map(|step| Some((step.offered_per_s, of(step)?)))
            .collect(),
    };
    let series = [line("p50", |step| step.p50), line("p99", |step| step.p99)];
    if steps.len() < 2 {
        return None;
    }
    let x = linear(
        "offered per second",
        steps.last()?.offered_per_s,
        number::si,
    );
    on_decades("Latency by offered rate", "latency", &x, &series)
}

fn sampled(
    name: &str,
    samples: &[ResourceSample],
    of: impl Fn(&ResourceSample) -> Option<f64>,
) -> Series {
    let points = samples
        .iter()
        .filter_map(|sample| Some((sample.at_s, of(sample)?)));
    Series {
        name: name.to_owned(),
        points: points.collect(),
    }
}

fn processor(samples: &[ResourceSample], time: &Time) -> Option<Figure> {
    let percent = |share: Option<f64>| share.map(|share| share * 100.0);
    let series = vec![
        sampled("generator", samples, |sample| percent(sample.client_share)),
        sampled("server", samples, |sample| percent(sample.server_share)),
    ];
    let text = |share: f64| format!("{share:.0} %");
    lines(
        "Processor time over time",
        "share of the available time",
        time,
        series,
        text,
    )
}

fn memory(samples: &[ResourceSample], time: &Time) -> Option<Figure> {
    let bytes = |bytes: Option<u64>| bytes.map(|bytes| bytes as f64);
    let series = vec![
        sampled("generator", samples, |sample| {
            bytes(sample.client_rss_bytes)
        }),
        sampled("server", samples, |sample| bytes(sample.server_rss_bytes)),
    ];
    lines(
        "Memory over time",
        "resident",
        time,
        series,
        number::decimal_bytes,
    )
}

/// Charts of more results are left to the tables.
const RESULTS_MAX: usize = 4;
/// Lines of the charts of requests.
const REQUESTS_MAX: usize = 6;
/// Fewer moments do not make a useful line.
pub(super) const POINTS_MIN: usize = 3;
const HEAT_COLUMNS_MAX: usize = 120;
const HEAT_ROWS: usize = 24;
const HISTOGRAM_BINS: usize = 60;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::model::{LatencyWindow, LoadFigures, Requests};

    fn window(count: u64, us: f64) -> LatencyWindow {
        LatencyWindow {
            count,
            p50: Some(us),
            p99: Some(us * 2.0),
            max: Some(us * 4.0),
            histogram: vec![(us, count - 1), (us * 4.0, 1)],
            ..LatencyWindow::default()
        }
    }

    fn load(windows: Vec<LatencyWindow>) -> TestResult {
        let samples = (0..windows.len()).map(|second| ResourceSample {
            at_s: second as f64 + 1.0,
            client_share: Some(0.5),
            server_rss_bytes: Some(1 << 20),
            ..ResourceSample::default()
        });
        TestResult {
            load: LoadFigures {
                resources_over_time: samples.collect(),
                histogram: vec![(100.0, 900), (10_000.0, 100)],
                latency_over_time: Some(LatencyOverTime {
                    window_s: 1.0,
                    windows,
                }),
                ..LoadFigures::default()
            },
            ..TestResult::new("http", 10)
        }
    }

    fn captions(figures: &[Figure]) -> Vec<&str> {
        figures
            .iter()
            .map(|figure| figure.caption.as_str())
            .collect()
    }

    #[test]
    fn every_figure_over_time_has_a_chart_on_the_same_axis() {
        let result = load((0..10).map(|n| window(100, 100.0 + f64::from(n))).collect());
        let figures = figures(&[&result]);
        assert_eq!(
            captions(&figures),
            [
                "Requests/s over time",
                "Latency over time",
                "Latency distribution over time",
                "Distribution of the latencies",
                "Processor time over time",
                "Memory over time"
            ]
        );
        let ends = figures
            .iter()
            .filter(|figure| figure.caption.contains("time"));
        for figure in ends {
            assert!(figure.svg.contains(">10</text>"), "{}", figure.svg);
        }
    }

    #[test]
    fn each_frequent_request_of_a_scenario_has_a_line() {
        let mut result = load(vec![window(100, 100.0); 5]);
        let target = |number: u64| TargetFigures {
            name: format!("request {number}"),
            requests: Requests {
                sent: number,
                ..Requests::default()
            },
            latency_over_time: Some(LatencyOverTime {
                window_s: 1.0,
                windows: vec![window(number, number as f64 * 100.0); 5],
            }),
            ..TargetFigures::default()
        };
        result.load.targets = (1..=9).map(target).collect();
        let drawn = figures(&[&result]);
        for caption in [
            "Requests/s of each request over time",
            "p99 of each request over time",
        ] {
            let figure = drawn
                .iter()
                .find(|figure| figure.caption == caption)
                .unwrap();
            assert_eq!(figure.legend.len(), REQUESTS_MAX);
            assert_eq!(figure.legend[0], "request 9");
        }
        result.load.targets.truncate(1);
        assert_eq!(figures(&[&result]).len(), drawn.len() - 2);
    }

    #[test]
    fn a_step_of_the_rate_is_a_point_of_both_lines() {
        let step = |rate: f64| RateStep {
            offered_per_s: rate,
            p50: Some(rate),
            p99: Some(rate * 3.0),
            ..RateStep::default()
        };
        let figure = by_rate(&[step(2_000.0), step(1_000.0), step(f64::NAN)]).unwrap();
        assert_eq!(figure.legend, ["p50", "p99"]);
        assert_eq!(figure.svg.matches("class=\"line\"").count(), 2);
        assert!(
            by_rate(&[step(1_000.0)]).is_none(),
            "one rate makes no line"
        );
    }

    #[test]
    fn absurd_figures_make_no_chart_and_no_panic() {
        let absurd = |us: f64| LatencyWindow {
            p50: Some(us),
            histogram: vec![(us, u64::MAX), (f64::NAN, 3)],
            ..LatencyWindow::default()
        };
        for us in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e300] {
            let mut result = load(vec![absurd(us); 5]);
            result.load.histogram = vec![(us, 1)];
            for sample in &mut result.load.resources_over_time {
                (sample.at_s, sample.client_share) = (us, Some(us));
            }
            for figure in figures(&[&result, &result]) {
                assert!(
                    !figure.svg.contains("NaN") && !figure.svg.contains("inf"),
                    "{us}"
                );
            }
        }
        assert!(figures(&[&TestResult::new("http", 1)]).is_empty());
    }
}

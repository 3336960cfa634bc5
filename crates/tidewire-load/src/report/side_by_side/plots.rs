//! The charts of loads beside one another: the same figure of each report as a line of its own.

use crate::report::chart::{Figure, in_decades, linear, logarithmic, usable};
use crate::report::load_plots::{POINTS_MIN, bounds, figure, over};
use crate::report::model::{LatencyWindow, Report, TestResult};
use crate::report::number;
use crate::report::svg::{self, Axis, SERIES_MAX, Series};

/// The charts that at least one report has figures for; the first says most.
pub(super) fn figures(reports: &[(String, Report)]) -> Vec<Figure> {
    // A load has one result. Only as many lines as there are colours.
    let results: Vec<(&str, &TestResult)> = reports
        .iter()
        .filter_map(|(name, report)| Some((name.as_str(), report.results.first()?)))
        .take(SERIES_MAX)
        .collect();
    let charts = [
        by_percentile(&results),
        over_time(&results, "p99 over time", |window| window.p99),
        over_time(&results, "Median over time", |window| window.p50),
        rates(&results),
        by_rate(&results),
    ];
    charts.into_iter().flatten().collect()
}

fn series<'r>(
    results: &[(&'r str, &'r TestResult)],
    points: impl Fn(&'r TestResult) -> Vec<(f64, f64)>,
) -> Vec<Series> {
    let each = results.iter().map(|(name, result)| Series {
        name: (*name).to_owned(),
        points: points(result),
    });
    each.collect()
}

/// Latency by the share of the requests that took longer, on axes of decades.
fn by_percentile(results: &[(&str, &TestResult)]) -> Option<Figure> {
    let lines = series(results, |result| {
        let histogram = &result.load.histogram;
        let total: f64 = histogram.iter().map(|bucket| bucket.1 as f64).sum();
        let mut below = 0.0;
        let mut points = Vec::new();
        for (upper_us, count) in histogram {
            below += *count as f64;
            let above = 1.0 - below / total;
            if usable(*upper_us) && above > 0.0 && above.is_finite() {
                points.push((-above.log10(), *upper_us));
            }
        }
        points
    });
    let x = percentiles(
        lines
            .iter()
            .flat_map(|line| &line.points)
            .map(|point| point.0),
    )?;
    on_decades("Latency by percentile", &x, &lines)
}

/// An axis with a tick for each further nine.
fn percentiles(nines: impl Iterator<Item = f64>) -> Option<Axis> {
    let most = nines.fold(0.0, f64::max);
    let names = ["0", "p90", "p99", "p99.9", "p99.99", "p99.999", "p99.9999"];
    let count = (most.ceil() as usize).clamp(1, names.len() - 1);
    let ticks = names.iter().take(count + 1).zip(0u32..);
    (most > 0.0).then(|| Axis {
        label: "percentile",
        min: 0.0,
        max: count as f64,
        ticks: ticks
            .map(|(name, at)| (f64::from(at), (*name).to_owned()))
            .collect(),
    })
}

fn over_time(
    results: &[(&str, &TestResult)],
    caption: &str,
    of: fn(&LatencyWindow) -> Option<f64>,
) -> Option<Figure> {
    let lines = series(results, |result| match &result.load.latency_over_time {
        Some(over_time) => over(&over_time.windows, over_time.window_s, of),
        None => Vec::new(),
    });
    on_decades(caption, &seconds(&lines)?, &lines)
}

fn rates(results: &[(&str, &TestResult)]) -> Option<Figure> {
    let mut lines = series(results, |result| match &result.load.latency_over_time {
        Some(over_time) if usable(over_time.window_s) => {
            let window_s = over_time.window_s;
            over(&over_time.windows, window_s, |window| {
                Some(window.count as f64 / window_s)
            })
        }
        _ => Vec::new(),
    });
    lines.retain(|line| line.points.len() >= POINTS_MIN);
    let x = seconds(&lines)?;
    let (_, most) = bounds(
        lines
            .iter()
            .flat_map(|line| &line.points)
            .map(|point| point.1),
    )?;
    let caption = "Requests/s over time";
    let svg = svg::lines(caption, &x, &linear("per second", most, number::si), &lines);
    Some(figure(caption, svg, &lines))
}

/// The 99th percentile at each rate that was tried.
fn by_rate(results: &[(&str, &TestResult)]) -> Option<Figure> {
    let mut lines = series(results, |result| {
        let steps = result.load.latency_by_rate.iter();
        let points = steps.filter_map(|step| Some((step.offered_per_s, step.p99?)));
        let mut points: Vec<(f64, f64)> = points.filter(|point| usable(point.0)).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        points
    });
    lines.retain(|line| line.points.len() > 1);
    let rates = lines
        .iter()
        .flat_map(|line| &line.points)
        .map(|point| point.0);
    let (_, most) = bounds(rates)?;
    let x = linear("offered per second", most, number::si);
    on_decades("p99 by offered rate", &x, &lines)
}

/// The time axis of all lines; `None` without a line.
fn seconds(lines: &[Series]) -> Option<Axis> {
    let long = lines.iter().filter(|line| line.points.len() >= POINTS_MIN);
    let ends = long
        .filter_map(|line| line.points.last())
        .map(|point| point.0);
    let last = ends.filter(|&end| usable(end)).fold(0.0, f64::max);
    (last > 0.0).then(|| {
        let mut axis = linear("seconds", last, number::si);
        axis.max = last;
        axis.ticks.retain(|tick| tick.0 <= last);
        axis
    })
}

fn on_decades(caption: &str, x: &Axis, lines: &[Series]) -> Option<Figure> {
    let (low, high) = bounds(
        lines
            .iter()
            .flat_map(|line| &line.points)
            .map(|point| point.1),
    )?;
    let y = logarithmic("latency", low, high);
    let svg = svg::lines(caption, x, &y, &in_decades(lines));
    Some(figure(caption, svg, lines))
}

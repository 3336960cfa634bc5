//! The charts of loads beside one another: the same figure of each report as a line of its own.

use crate::report::chart::{
    Figure, abscissas, bounds, figure, linear, nines_axis, on_decades, ordinates, seconds, usable,
};
use crate::report::load_plots::{POINTS_MIN, over};
use crate::report::model::{LatencyWindow, Report, TestResult};
use crate::report::number;
use crate::report::svg::{self, Axis, SERIES_MAX, Series};

/// The charts that at least one report has figures for, the most informative first.
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
    on_decades(
        "Latency by percentile",
        "latency",
        &nines_axis(&lines),
        &lines,
    )
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
    on_decades(caption, "latency", &time_of(&lines)?, &lines)
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
    let x = time_of(&lines)?;
    let (_, most) = bounds(ordinates(&lines))?;
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
    let (_, most) = bounds(abscissas(&lines))?;
    let x = linear("offered per second", most, number::si);
    on_decades("p99 by offered rate", "latency", &x, &lines)
}

/// The time axis of all lines; `None` without a line.
fn time_of(lines: &[Series]) -> Option<Axis> {
    let long = lines.iter().filter(|line| line.points.len() >= POINTS_MIN);
    let ends = long
        .filter_map(|line| line.points.last())
        .map(|point| point.0);
    let last = ends.filter(|&end| usable(end)).fold(0.0, f64::max);
    (last > 0.0).then(|| seconds(last))
}

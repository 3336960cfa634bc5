//! A chart with its caption, and the axes that charts share.

use super::number;
use super::svg::{Axis, SERIES_MAX, Series};

/// A chart with its caption and, when it has several series, their names in the order of the colours.
pub(super) struct Figure {
    pub(super) caption: String,
    pub(super) svg: String,
    pub(super) legend: Vec<String>,
}

/// Names for the colours; a single series needs none.
pub(super) fn legend(series: &[Series]) -> Vec<String> {
    let mut names: Vec<String> = series
        .iter()
        .take(SERIES_MAX)
        .map(|one| one.name.clone())
        .collect();
    if names.len() == 1 {
        names.clear();
    }
    names
}

/// The same series with the logarithm of y, for an axis of [`logarithmic`].
pub(super) fn in_decades(series: &[Series]) -> Vec<Series> {
    let points = |one: &Series| {
        let positive = one.points.iter().filter(|point| point.1 > 0.0);
        positive.map(|&(x, y)| (x, y.log10())).collect()
    };
    series
        .iter()
        .map(|one| Series {
            name: one.name.clone(),
            points: points(one),
        })
        .collect()
}

/// An axis from zero to a round number above `largest`, with about five ticks.
pub(super) fn linear(label: &'static str, largest: f64, text: fn(f64) -> String) -> Axis {
    let rough = largest / 4.0;
    let magnitude = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0]
        .into_iter()
        .map(|factor| factor * magnitude)
        .find(|&step| step >= rough * 0.999)
        .unwrap_or(rough);
    let count = (largest / step).ceil().clamp(1.0, 10.0) as u32;
    let ticks = (0..=count)
        .map(|n| (f64::from(n) * step, text(f64::from(n) * step)))
        .collect();
    // Room above the tallest bar for its value.
    let max = (f64::from(count) * step).max(largest * 1.04);
    Axis {
        label,
        min: 0.0,
        max,
        ticks,
    }
}

/// An axis of log10 microseconds that contains `low` to `high`, with ticks at 1, 2 and 5 of each
/// decade, or only at the decades when there are many.
pub(super) fn logarithmic(label: &'static str, low: f64, high: f64) -> Axis {
    let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
    let factors: &[f64] = if last - first > 2 {
        &[1.0]
    } else {
        &[1.0, 2.0, 5.0]
    };
    let all: Vec<f64> = (first..=last)
        .flat_map(|decade| {
            factors
                .iter()
                .map(move |factor| factor * 10f64.powi(decade))
        })
        .collect();
    // One tick at or below the lowest value and one at or above the highest.
    let from = all.iter().rposition(|&tick| tick <= low).unwrap_or(0);
    let to = all
        .iter()
        .position(|&tick| tick >= high && tick > low)
        .unwrap_or(all.len() - 1);
    let shown = &all[from.min(to)..=to];
    Axis {
        label,
        min: shown[0].log10(),
        max: shown[shown.len() - 1].log10(),
        ticks: shown
            .iter()
            .map(|&tick| (tick.log10(), number::us(tick)))
            .collect(),
    }
}

/// True for a number that a chart can show: a report is an untrusted file.
pub(super) fn usable(value: f64) -> bool {
    value.is_finite() && (1e-6..1e18).contains(&value)
}

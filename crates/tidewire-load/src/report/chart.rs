//! A chart with its caption, and the axes that charts share.

use super::number;
use super::svg::{self, Axis, SERIES_MAX, Series};

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

/// A chart with the names of its series.
pub(super) fn figure(caption: &str, svg: String, series: &[Series]) -> Figure {
    Figure {
        caption: caption.to_owned(),
        svg,
        legend: legend(series),
    }
}

/// Times on an axis of decades; `None` without a time that can be shown.
pub(super) fn on_decades(
    caption: &str,
    label: &'static str,
    x: &Axis,
    series: &[Series],
) -> Option<Figure> {
    let (low, high) = bounds(ordinates(series))?;
    let y = logarithmic(label, low, high);
    let svg = svg::lines(caption, x, &y, &in_decades(series));
    Some(figure(caption, svg, series))
}

/// The places of all points on the axis from left to right.
pub(super) fn abscissas(series: &[Series]) -> impl Iterator<Item = f64> + Clone {
    series
        .iter()
        .flat_map(|one| &one.points)
        .map(|point| point.0)
}

/// The places of all points on the axis from below.
pub(super) fn ordinates(series: &[Series]) -> impl Iterator<Item = f64> + Clone {
    series
        .iter()
        .flat_map(|one| &one.points)
        .map(|point| point.1)
}

/// The smallest and the largest of the values that a chart can show.
pub(super) fn bounds(values: impl Iterator<Item = f64> + Clone) -> Option<(f64, f64)> {
    let usable = values.filter(|&value| usable(value));
    let low = usable.clone().fold(f64::INFINITY, f64::min);
    let high = usable.fold(0.0, f64::max);
    (high > 0.0).then_some((low, high))
}

/// An axis of time that ends with the last second.
pub(super) fn seconds(last: f64) -> Axis {
    let mut axis = linear("seconds", last, number::si);
    axis.max = last;
    axis.ticks.retain(|tick| tick.0 <= last);
    axis
}

/// An axis for points at log10 1/(1-p) of a percentile p: each further nine is as wide as the previous one.
pub(super) fn nines_axis(series: &[Series]) -> Axis {
    let right = abscissas(series).fold(1.0, f64::max);
    Axis {
        label: "percentile",
        min: 0.0,
        max: right,
        ticks: nine_ticks(right),
    }
}

fn nine_ticks(max: f64) -> Vec<(f64, String)> {
    const NAMES: [(f64, &str); 8] = [
        (std::f64::consts::LOG10_2, "50 %"),
        (1.0, "90 %"),
        (2.0, "99 %"),
        (3.0, "99.9 %"),
        (4.0, "99.99 %"),
        (5.0, "99.999 %"),
        (6.0, "99.9999 %"),
        (7.0, "99.99999 %"),
    ];
    let shown = NAMES.iter().filter(|tick| tick.0 <= max + 1e-6);
    shown.map(|&(at, name)| (at, name.to_owned())).collect()
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

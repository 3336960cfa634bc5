//! Comparison of a report with an earlier one: faster, slower, or cannot tell, for each result that
//! both have.
//!
//! Two runs of the same program never agree to the last digit. The windows of each run show the
//! significance of a difference: they are drawn again with replacement (the bootstrap of Efron),
//! the figure is computed from the drawn windows, and the interval is the middle 95 % of the
//! ratios. It is widened as for a sample of that size (Student's t for the smaller number of
//! windows). Neighbouring windows of a long run are combined first, which preserves variations that
//! last longer than one window.

mod bootstrap;
mod series;

use super::compare::Key;
use super::model::{BaselineFigure, BaselineFinding, BaselineSource, Report, TestResult, Verdict};
use super::{buckets, table};
use bootstrap::Interval;
use series::{Figure, Series};

/// Compares each result of `report` with those of the same set-up in `before`, and adds the
/// findings to `report`. `file` is the name of the earlier report.
pub fn compare(report: &mut Report, before: &Report, file: &str, fail_if_slower: bool) {
    let keys: Vec<Key> = report
        .results
        .iter()
        .map(|result| Key::of(report, result))
        .collect();
    let earlier: Vec<(Key, &TestResult)> = before
        .results
        .iter()
        .map(|result| (Key::of(before, result), result))
        .collect();
    let mut unmatched = Vec::new();
    for (result, key) in report.results.iter_mut().zip(&keys) {
        let same = earlier.iter().filter(|(other, _)| other == key);
        let same: Vec<&TestResult> = same.map(|(_, result)| *result).collect();
        result.load.baseline = match same.is_empty() {
            true => {
                unmatched.push(format!("{}: not in {file}", name(result)));
                Vec::new()
            }
            false => figures(&same, result),
        };
    }
    let lost = earlier.iter().filter(|(key, _)| !keys.contains(key));
    unmatched.extend(lost.map(|(_, result)| format!("{}: only in {file}", name(result))));
    report.baseline = Some(BaselineSource {
        file: file.to_owned(),
        started_at: before.started_at.clone(),
        fail_if_slower,
        unmatched,
    });
}

fn name(result: &TestResult) -> String {
    format!("{}, {}", result.test, table::label(result))
}

/// The figures that both sides have, each compared. Several earlier results of one set-up count as
/// one long run.
fn figures(before: &[&TestResult], after: &TestResult) -> Vec<BaselineFigure> {
    let old = Series::of(before);
    let new = Series::of(&[after]);
    let doubt = doubt(before, after);
    let compared = Figure::ALL.into_iter().filter_map(|figure| {
        let (was, is) = (figure.median(before)?, figure.of(after)?);
        let usable = |value: f64| value.is_finite() && value > 0.0;
        (usable(was) && usable(is)).then_some((figure, was, is))
    });
    let compared: Vec<(Figure, f64, f64)> = compared.collect();
    let wanted: Vec<Figure> = compared.iter().map(|(figure, ..)| *figure).collect();
    let intervals = bootstrap::intervals(&old, &new, &wanted);
    let rows = compared.into_iter().zip(intervals);
    rows.map(|((figure, was, is), interval)| {
        let interval = match (&doubt, figure.doubt(before, after)) {
            (Some(doubt), _) => Err(doubt.clone()),
            (None, Some(doubt)) => Err(doubt),
            (None, None) => interval,
        };
        row(figure, (was, is), interval)
    })
    .collect()
}

/// Reasons that make every figure of either side incomparable.
fn doubt(before: &[&TestResult], after: &TestResult) -> Option<String> {
    let is_bound = |result: &TestResult| result.verdict == Verdict::GeneratorBound;
    let has_failed = |result: &TestResult| result.verdict == Verdict::Failed;
    match (
        before.iter().any(|result| has_failed(result)),
        has_failed(after),
    ) {
        (true, _) => Some("the earlier result has the verdict failed".to_owned()),
        (_, true) => Some("this result has the verdict failed".to_owned()),
        _ if before.iter().any(|result| is_bound(result)) || is_bound(after) => {
            Some("the generator was the limit of one of the two".to_owned())
        }
        _ => None,
    }
}

fn row(
    figure: Figure,
    (before, after): (f64, f64),
    interval: Result<Interval, String>,
) -> BaselineFigure {
    let change = after / before - 1.0;
    let row = BaselineFigure {
        figure: figure.name().to_owned(),
        before,
        after,
        change: neat(change),
        ..BaselineFigure::default()
    };
    let spread = match interval {
        Ok(spread) => spread,
        Err(reason) => {
            return BaselineFigure {
                reason: Some(reason),
                ..row
            };
        }
    };
    // Windows distinguish the times of one bucket only up to its width.
    let blur = if figure.is_percentile() {
        buckets::RESOLUTION / 2.0
    } else {
        0.0
    };
    let ratio = after / before;
    let low = ratio * spread.low * (1.0 - blur) - 1.0;
    let high = ratio * spread.high * (1.0 + blur) - 1.0;
    let finding = match (low > SAME, high < -SAME) {
        (true, _) if figure.is_better_higher() => BaselineFinding::Faster,
        (_, true) if figure.is_better_higher() => BaselineFinding::Slower,
        (true, _) => BaselineFinding::Slower,
        (_, true) => BaselineFinding::Faster,
        _ => BaselineFinding::CannotTell,
    };
    let reason = (finding == BaselineFinding::CannotTell).then(|| {
        let share = SAME * 100.0;
        format!("the interval contains changes of less than {share:.0} %")
    });
    BaselineFigure {
        interval: Some((neat(low), neat(high))),
        finding,
        reason,
        ..row
    }
}

/// A share with four decimals.
fn neat(share: f64) -> f64 {
    (share * 1e4).round() / 1e4
}

/// A smaller change is not significant: two starts of the same program differ by as much.
pub const SAME: f64 = 0.01;

#[cfg(test)]
mod tests;

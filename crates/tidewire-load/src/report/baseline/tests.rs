use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::report::model::{
    Latency, LatencyOrigin, LatencyOverTime, LatencyWindow, LoadFigures, Machine, Target,
};
use BaselineFinding::{CannotTell, Faster, Slower};
use tidewire_testkit::seeds::number_of_seeds;

/// The seeds of a commit.
const SEEDS: u64 = 5;

/// A run of one-second windows with known parameters: a rate that varies by `spread` of itself, and
/// exponential latencies around `mean_us`.
struct Truth {
    rate: f64,
    spread: f64,
    mean_us: f64,
    windows: usize,
}

const TRUTH: Truth = Truth {
    rate: 10_000.0,
    spread: 0.05,
    mean_us: 500.0,
    windows: 20,
};

impl Truth {
    fn report(&self, seed: u64) -> Report {
        let mut random = SmallRng::seed_from_u64(seed);
        let rates: Vec<f64> = (0..self.windows)
            .map(|_| self.rate * (1.0 + self.spread * normal(&mut random)))
            .collect();
        let times: Vec<Vec<f64>> = (0..self.windows)
            .map(|_| {
                (0..400)
                    .map(|_| self.mean_us * exponential(&mut random))
                    .collect()
            })
            .collect();
        let rate = rates.iter().sum::<f64>() / rates.len() as f64;
        report(TestResult {
            rate_per_s: Some(rate),
            rate_series: rates,
            latency_us: Some(latency(&times.concat())),
            load: LoadFigures {
                latency_over_time: Some(LatencyOverTime {
                    window_s: 1.0,
                    windows: times.iter().map(|times| window(times)).collect(),
                }),
                ..LoadFigures::default()
            },
            ..TestResult::new("http", 10)
        })
    }
}

fn normal(random: &mut SmallRng) -> f64 {
    // Irwin and Hall: the sum of twelve uniform values less six.
    (0..12).map(|_| random.random::<f64>()).sum::<f64>() - 6.0
}

fn exponential(random: &mut SmallRng) -> f64 {
    -(1.0 - random.random::<f64>()).ln()
}

fn window(times_us: &[f64]) -> LatencyWindow {
    let mut counts = vec![0; buckets::BUCKETS];
    for us in times_us {
        counts[buckets::index_of((us * 1000.0) as u64)] += 1;
    }
    let used = counts.iter().enumerate().filter(|(_, count)| **count > 0);
    LatencyWindow {
        count: times_us.len() as u64,
        mean: Some(times_us.iter().sum::<f64>() / times_us.len() as f64),
        histogram: used
            .map(|(index, count)| (buckets::upper_us(index), *count))
            .collect(),
        ..LatencyWindow::default()
    }
}

fn latency(times_us: &[f64]) -> Latency {
    let mut sorted = times_us.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |percentile: f64| sorted[buckets::rank(percentile, sorted.len() as u64) as usize - 1];
    Latency {
        origin: LatencyOrigin::Sent,
        p50: at(50.0),
        p90: at(90.0),
        p99: at(99.0),
        p99_9: at(99.9),
        mean: sorted.iter().sum::<f64>() / sorted.len() as f64,
        count: sorted.len() as u64,
        ..Latency::default()
    }
}

fn report(result: TestResult) -> Report {
    let target = Target {
        url: "http://h/".into(),
        server: None,
        embedded: false,
    };
    let mut report = Report::new(Machine::default(), target);
    report.results.push(result);
    report
}

fn compared(before: &Report, mut after: Report) -> Vec<BaselineFigure> {
    compare(&mut after, before, "before.json", false);
    after.results.remove(0).load.baseline
}

fn finding(figures: &[BaselineFigure], name: &str) -> BaselineFinding {
    let found = figures.iter().find(|figure| figure.figure == name);
    found
        .unwrap_or_else(|| panic!("{name} is not in {figures:?}"))
        .finding
}

/// The number of seeds with this finding, for each figure.
fn counts(
    before: &Truth,
    after: &Truth,
    wanted: impl Fn(&str) -> BaselineFinding,
) -> Vec<(String, u64)> {
    let mut counts: Vec<(String, u64)> = Vec::new();
    for seed in 0..number_of_seeds(SEEDS) {
        for figure in compared(&before.report(2 * seed), after.report(2 * seed + 1)) {
            let says_so = u64::from(figure.finding == wanted(&figure.figure));
            match counts.iter_mut().find(|(name, _)| *name == figure.figure) {
                Some((_, count)) => *count += says_so,
                None => counts.push((figure.figure, says_so)),
            }
        }
    }
    counts
}

#[test]
fn equal_runs_cannot_be_told_apart_but_in_one_of_twenty() {
    let told = counts(&TRUTH, &TRUTH, |_| CannotTell);
    assert_eq!(told.len(), 6, "{told:?}");
    assert!(
        told.iter()
            .all(|(_, count)| *count * 20 >= number_of_seeds(SEEDS) * 19),
        "{told:?}"
    );
}

#[test]
fn a_tenth_slower_is_found_when_windows_differ_little() {
    let (before, after) = (
        Truth {
            spread: 0.02,
            ..TRUTH
        },
        Truth {
            rate: 9_000.0,
            spread: 0.02,
            mean_us: 600.0,
            ..TRUTH
        },
    );
    let (slower, faster) = (
        counts(&before, &after, |_| Slower),
        counts(&after, &before, |_| Faster),
    );
    for (name, count) in slower.iter().chain(&faster) {
        if ["rate", "mean", "p50", "p90"].contains(&name.as_str()) {
            assert_eq!(
                *count,
                number_of_seeds(SEEDS),
                "{name}: {slower:?} {faster:?}"
            );
        }
    }
}

#[test]
fn the_interval_holds_the_change_and_the_same_reports_give_the_same() {
    let (before, after) = (TRUTH.report(1), TRUTH.report(2));
    let figures = compared(&before, after.clone());
    for figure in figures.iter().filter(|figure| figure.figure != "p99.9") {
        let (low, high) = figure.interval.unwrap();
        assert!(low <= figure.change && figure.change <= high, "{figure:?}");
    }
    assert_eq!(compared(&before, after), figures);
}

#[test]
fn a_change_of_less_than_one_per_cent_is_none() {
    let steady = |rate: f64| {
        report(TestResult {
            rate_per_s: Some(rate),
            rate_series: vec![rate; 30],
            ..TestResult::new("http", 10)
        })
    };
    assert_eq!(
        finding(&compared(&steady(1_000.0), steady(991.0)), "rate"),
        CannotTell
    );
    assert_eq!(
        finding(&compared(&steady(1_000.0), steady(980.0)), "rate"),
        Slower
    );
}

#[test]
fn what_cannot_be_told_says_why() {
    let reason = |before: &Report, after: Report, name: &str| {
        let figures = compared(before, after);
        let figure = figures.iter().find(|figure| figure.figure == name).unwrap();
        assert_eq!((figure.finding, figure.interval), (CannotTell, None));
        figure.reason.clone().unwrap()
    };
    let usual = TRUTH.report(1);
    let short = Truth {
        windows: 5,
        ..TRUTH
    };
    let said = reason(&usual, short.report(2), "rate");
    assert_eq!(
        said,
        "this result has 5 one-second windows, and 10 are needed: measure for longer"
    );
    let mut old = usual.clone();
    old.results[0].load = LoadFigures::default();
    let said = reason(&old, usual.clone(), "p99");
    assert_eq!(said, "the earlier result has no windows of this figure");
    let mut failed = usual.clone();
    failed.results[0].verdict = Verdict::Failed;
    assert!(reason(&usual, failed, "p50").contains("this result has the verdict failed"));
    let mut bound = usual.clone();
    bound.results[0].verdict = Verdict::GeneratorBound;
    assert!(reason(&usual, bound.clone(), "rate").contains("the generator was the limit"));
    assert!(
        compared(&usual, bound)
            .iter()
            .all(|figure| figure.interval.is_none())
    );
    let mut intended = usual.clone();
    intended.results[0].latency_us.as_mut().unwrap().origin = LatencyOrigin::Intended;
    assert!(reason(&usual, intended, "p50").contains("start at different moments"));
    let said = reason(&usual, TRUTH.report(2), "p99.9");
    assert!(
        said.starts_with("only 8 latencies are above it, and 30 are needed"),
        "{said}"
    );
}

#[test]
fn results_without_a_match_are_named() {
    let before = TRUTH.report(1);
    let mut after = TRUTH.report(2);
    after.results[0].connections = 20;
    compare(&mut after, &before, "before.json", true);
    let source = after.baseline.clone().unwrap();
    assert!(source.fail_if_slower);
    assert_eq!(
        source.unmatched,
        [
            "http, 20 connections: not in before.json",
            "http, 10 connections: only in before.json"
        ]
    );
    assert!(after.results[0].load.baseline.is_empty());
}

#[test]
fn hostile_windows_give_no_panic() {
    let mut before = TRUTH.report(1);
    let result = &mut before.results[0];
    result.rate_series = vec![f64::MAX; 12];
    let over_time = result.load.latency_over_time.as_mut().unwrap();
    for window in &mut over_time.windows {
        window.histogram = vec![(0.0, 1), (f64::MAX, u64::MAX >> 20), (5.0, 3)];
    }
    over_time.window_s = 0.0;
    assert_eq!(compared(&before, TRUTH.report(2)).len(), 6);
}

//! The bootstrap over windows: the variation of the ratio of a figure of two runs if they were
//! repeated.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::super::buckets;
use super::super::model::LatencyWindow;
use super::super::statistics::{NORMAL_97_5, student_97_5};
use super::series::{Figure, Series};

/// The ends of an interval, as factors of the measured ratio: 0.95 and 1.05 are 5 % to both sides.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Interval {
    pub(super) low: f64,
    pub(super) high: f64,
}

/// The interval of each figure, or the reason why there is none.
pub(super) fn intervals(
    before: &Series,
    after: &Series,
    figures: &[Figure],
) -> Vec<Result<Interval, String>> {
    let is_rate = |figure: &&Figure| **figure == Figure::Rate;
    let (of_rates, of_times): (Vec<Figure>, Vec<Figure>) = figures.iter().partition(is_rate);
    let rates = |rates: &[f64]| rates.to_vec();
    let mut rates =
        Pair::of(&before.rates, &after.rates).intervals(&of_rates, rates, |rates, weights| {
            vec![weighted_mean(rates, weights)]
        });
    let times = Pair::of(&before.latencies, &after.latencies);
    let mut times = times.intervals(&of_times, Times::of, |times, weights| {
        times.figures(weights, &of_times)
    });
    // Both keep the order of the figures.
    let next = |figure: &Figure| {
        let side = if is_rate(&figure) {
            &mut rates
        } else {
            &mut times
        };
        side.remove(0)
    };
    figures.iter().map(next).collect()
}

/// The windows of both sides, few enough to draw from them repeatedly.
struct Pair<'a, W> {
    before: &'a [W],
    after: &'a [W],
}

impl<'a, W> Pair<'a, W> {
    fn of(before: &'a [W], after: &'a [W]) -> Self {
        Self { before, after }
    }

    /// The interval of each figure that `compute` derives from the weighted windows.
    fn intervals<T>(
        &self,
        figures: &[Figure],
        prepare: impl Fn(&[W]) -> T,
        compute: impl Fn(&T, &[f64]) -> Vec<f64>,
    ) -> Vec<Result<Interval, String>> {
        if figures.is_empty() {
            return Vec::new();
        }
        if let Some(reason) = self.shortage() {
            return figures.iter().map(|_| Err(reason.clone())).collect();
        }
        let smaller = groups_of(self.before.len()).min(groups_of(self.after.len()));
        let ratios = ratios(self, figures.len(), prepare, compute);
        ratios
            .iter()
            .map(|ratios| interval(ratios, smaller))
            .collect()
    }

    /// The reason if there are too few windows.
    fn shortage(&self) -> Option<String> {
        let sides = [
            ("the earlier result", self.before.len()),
            ("this result", self.after.len()),
        ];
        let (which, count) = sides.into_iter().find(|(_, count)| *count < WINDOWS_MIN)?;
        Some(match count {
            0 => format!("{which} has no windows of this figure"),
            _ => format!(
                "{which} has {count} one-second windows, and {WINDOWS_MIN} are needed: measure for longer"
            ),
        })
    }
}

/// Ratios of each figure in each resample, divided by the measured ratio.
fn ratios<W, T>(
    pair: &Pair<'_, W>,
    figures: usize,
    prepare: impl Fn(&[W]) -> T,
    compute: impl Fn(&T, &[f64]) -> Vec<f64>,
) -> Vec<Vec<f64>> {
    let mut random = SmallRng::seed_from_u64(SEED);
    let sides = [pair.before, pair.after].map(|windows| (prepare(windows), windows.len()));
    let measured = sides
        .each_ref()
        .map(|(side, count)| compute(side, &vec![1.0; *count]));
    let mut ratios = vec![Vec::with_capacity(RESAMPLES); figures];
    for _ in 0..RESAMPLES {
        let [before, after] = sides
            .each_ref()
            .map(|(side, count)| compute(side, &drawn(*count, &mut random)));
        for (figure, ratios) in ratios.iter_mut().enumerate() {
            let ratio = after[figure] / before[figure];
            ratios.push(ratio / (measured[1][figure] / measured[0][figure]));
        }
    }
    ratios
}

/// The number of times each window was drawn. Neighbours of a long run are drawn together.
fn drawn(windows: usize, random: &mut SmallRng) -> Vec<f64> {
    let groups = groups_of(windows);
    let mut counts = vec![0.0; groups];
    for _ in 0..groups {
        counts[random.random_range(0..groups)] += 1.0;
    }
    (0..windows)
        .map(|window| counts[window * groups / windows])
        .collect()
}

fn groups_of(windows: usize) -> usize {
    windows.min(GROUPS_MAX)
}

/// The middle 95 % of the ratios, widened for a small number of windows.
fn interval(ratios: &[f64], windows: usize) -> Result<Interval, String> {
    let mut logs: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
    logs.retain(|log| log.is_finite());
    if logs.len() < ratios.len() {
        return Err("in some windows the figure was 0".to_owned());
    }
    logs.sort_by(f64::total_cmp);
    let at = |share: f64| logs[((logs.len() - 1) as f64 * share).round() as usize];
    let n = windows as f64;
    let widening = (n / (n - 1.0)).sqrt() * student_97_5(n - 1.0) / NORMAL_97_5;
    // For skewed ratios neither the percentiles of the resamples nor their mirror image contain the
    // true value often enough.
    let (low, high) = (at(0.025).min(-at(0.975)), at(0.975).max(-at(0.025)));
    Ok(Interval {
        low: (low * widening).exp(),
        high: (high * widening).exp(),
    })
}

fn weighted_mean(values: &[f64], weights: &[f64]) -> f64 {
    let total: f64 = weights.iter().sum();
    values
        .iter()
        .zip(weights)
        .map(|(value, weight)| value * weight)
        .sum::<f64>()
        / total
}

/// The latencies of each window, in buckets that all windows share.
struct Times {
    uppers_us: Vec<f64>,
    /// For each bucket the index and count of the windows that contain it.
    counts: Vec<Vec<(usize, f64)>>,
    /// The sum of the latencies of each window, and their number.
    sums: Vec<(f64, f64)>,
}

impl Times {
    fn of(windows: &[LatencyWindow]) -> Self {
        let all = windows.iter().flat_map(|window| &window.histogram);
        let mut uppers_us: Vec<f64> = all
            .map(|bucket| bucket.0)
            .filter(|us| us.is_finite())
            .collect();
        uppers_us.sort_by(f64::total_cmp);
        uppers_us.dedup();
        let mut counts = vec![Vec::new(); uppers_us.len()];
        let mut sums = Vec::with_capacity(windows.len());
        for (index, window) in windows.iter().enumerate() {
            let mut number = 0.0;
            for (upper_us, count) in &window.histogram {
                if let Ok(bucket) = uppers_us.binary_search_by(|known| known.total_cmp(upper_us)) {
                    counts[bucket].push((index, *count as f64));
                    number += *count as f64;
                }
            }
            sums.push((window.mean.unwrap_or(0.0) * number, number));
        }
        Self {
            uppers_us,
            counts,
            sums,
        }
    }

    fn figures(&self, weights: &[f64], figures: &[Figure]) -> Vec<f64> {
        let weighted = |window: &Vec<(usize, f64)>| -> f64 {
            window
                .iter()
                .map(|(index, count)| weights[*index] * count)
                .sum()
        };
        // Weights and counts are whole numbers.
        let counts: Vec<u64> = self
            .counts
            .iter()
            .map(|bucket| weighted(bucket) as u64)
            .collect();
        let buckets = self.uppers_us.iter().copied().zip(counts.iter().copied());
        let figure = |figure: &Figure| match figure {
            Figure::Percentile(_, percentile) => {
                buckets::percentile_us(buckets.clone(), *percentile).unwrap_or(0.0)
            }
            _ => {
                let sum: f64 = self
                    .sums
                    .iter()
                    .zip(weights)
                    .map(|(sum, weight)| sum.0 * weight)
                    .sum();
                let number: f64 = self
                    .sums
                    .iter()
                    .zip(weights)
                    .map(|(sum, weight)| sum.1 * weight)
                    .sum();
                sum / number
            }
        };
        figures.iter().map(figure).collect()
    }
}

/// With fewer windows their variation is not known well enough.
pub(super) const WINDOWS_MIN: usize = 10;
/// Windows of a long run are drawn in this number of groups of neighbours.
const GROUPS_MAX: usize = 120;
const RESAMPLES: usize = 2_000;
/// The same reports always give the same findings.
const SEED: u64 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_window_is_drawn_with_its_neighbours_and_as_often_as_any_other() {
        let mut random = SmallRng::seed_from_u64(7);
        let mut sums = vec![0.0; 1_000];
        for _ in 0..2_000 {
            let weights = drawn(1_000, &mut random);
            assert_eq!(
                weights[0], weights[7],
                "they are in the same group of 8 or 9"
            );
            sums.iter_mut()
                .zip(&weights)
                .for_each(|(sum, weight)| *sum += weight);
        }
        let (low, high) = (1_700.0, 2_300.0);
        assert!(sums.iter().all(|sum| (low..high).contains(sum)));
    }
}

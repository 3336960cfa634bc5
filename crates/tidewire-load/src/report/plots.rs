//! The charts of each test, and their axes.

use super::chart::{
    Figure, abscissas, bounds, figure, linear, nines_axis, on_decades, ordinates, seconds, usable,
};
use super::grid::{distinct, grids};
use super::load_plots;
use super::model::{self, Latency, TestResult};
use super::svg::{self, Series};
use super::table::{Section, label, rate_name};
use crate::report::number;

/// The charts of one test; none for figures that a table also shows.
pub(super) fn figures(section: &Section<'_>) -> Vec<Figure> {
    let results = &section.results;
    let mut figures = Vec::new();
    match section.test {
        model::SIZE_MATRIX => figures.extend(matrix(results)),
        model::SUSTAINED_HOLD | model::CONNECTION_LIMIT => {}
        _ => figures.extend(rates(section.rate_name(), results)),
    }
    figures.extend(percentiles(
        ("Latency by percentile", "latency"),
        results,
        |r| r.latency_us.as_ref(),
    ));
    figures.extend(percentiles(("Skew by percentile", "skew"), results, |r| {
        r.fan_out.as_ref()?.skew_us.as_ref()
    }));
    if matches!(section.test, model::THROUGHPUT | model::SUSTAINED_HOLD) {
        figures.extend(over_time(section.test, results));
    }
    figures.extend(load_plots::figures(results));
    figures
}

/// Rate over connections: a group per number of connections, a bar per format and payload.
fn rates(rate_name: &'static str, results: &[&TestResult]) -> Option<Figure> {
    let rated: Vec<_> = results
        .iter()
        .filter(|r| r.rate_per_s.is_some_and(usable) && !is_given(r))
        .collect();
    let tiers = distinct(rated.iter().map(|r| r.connections));
    let mut series: Vec<Series> = Vec::new();
    for result in &rated {
        let name = variant(result);
        let group = tiers.iter().position(|&tier| tier == result.connections)? as f64;
        let point = (group, result.rate_per_s?);
        match series.iter_mut().find(|one| one.name == name) {
            Some(one) => one.points.push(point),
            None => series.push(Series {
                name,
                points: vec![point],
            }),
        }
    }
    let largest = rated
        .iter()
        .filter_map(|r| r.rate_per_s)
        .fold(0.0, f64::max);
    if largest <= 0.0 {
        return None;
    }
    let caption = format!("{rate_name} over connections");
    let groups: Vec<String> = tiers.iter().map(|&tier| number::grouped(tier)).collect();
    let y = linear(rate_name, largest, number::si);
    let svg = svg::bars(&caption, "connections", &groups, &y, &series, number::si);
    Some(figure(&caption, svg, &series))
}

/// Two grids of payload size and number of connections: messages and bytes per second.
fn matrix(results: &[&TestResult]) -> impl Iterator<Item = Figure> {
    grids(results).into_iter().map(|grid| Figure {
        caption: grid.caption.to_owned(),
        svg: svg::heat(
            grid.caption,
            &grid.columns,
            &grid.rows,
            &grid.cells,
            grid.text,
        ),
        legend: Vec::new(),
    })
}

/// Times by percentile, on an axis where each further nine is as wide as the previous one. `label` is that of the axis
/// of the times.
fn percentiles(
    (caption, label_of_times): (&str, &'static str),
    results: &[&TestResult],
    of: for<'a> fn(&'a TestResult) -> Option<&'a Latency>,
) -> Option<Figure> {
    let series: Vec<Series> = results
        .iter()
        .filter_map(|result| Some((result, of(result)?)))
        .filter(|(_, latency)| latency.points.len() >= 2)
        .map(|(result, latency)| Series {
            name: label(result),
            points: nines(latency),
        })
        .collect();
    on_decades(caption, label_of_times, &nines_axis(&series), &series)
}

/// The rate of each second.
fn over_time(test: &str, results: &[&TestResult]) -> Option<Figure> {
    let series: Vec<Series> = results
        .iter()
        .filter(|result| result.rate_series.len() >= SECONDS_MIN)
        .map(|result| {
            let seconds = (1u32..).map(f64::from);
            let points = seconds.zip(result.rate_series.iter().copied()).collect();
            Series {
                name: label(result),
                points,
            }
        })
        .collect();
    let longest = abscissas(&series).fold(0.0, f64::max);
    let (_, largest) = bounds(ordinates(&series))?;
    let caption = format!("{} over time", rate_name(test));
    let y = linear(rate_name(test), largest, number::si);
    let svg = svg::lines(&caption, &seconds(longest), &y, &series);
    Some(figure(&caption, svg, &series))
}

/// Whether the rate was given and not measured.
fn is_given(result: &TestResult) -> bool {
    let fan_out = result.fan_out.as_ref();
    fan_out.is_some_and(|fan_out| fan_out.publications_per_s.is_some())
}

/// The properties that distinguish results with the same number of connections.
fn variant(result: &TestResult) -> String {
    let payload = result
        .payload_bytes
        .map(|bytes| number::bytes(bytes as f64));
    let parts = [result.format.clone(), payload];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// The points with log10 1/(1-p) for the percentile p; the maximum is at the position of one value
/// of the whole number.
fn nines(latency: &Latency) -> Vec<(f64, f64)> {
    let last = (latency.count.max(1) as f64).log10().min(NINES_MAX);
    latency
        .points
        .iter()
        .filter(|point| (0.0..=100.0).contains(&point.0))
        .map(|&(percentile, us)| {
            let nines = -(1.0 - percentile / 100.0).log10();
            (
                if nines.is_finite() {
                    nines.clamp(0.0, last)
                } else {
                    last
                },
                us,
            )
        })
        .collect()
}

const NINES_MAX: f64 = 7.5;

/// Fewer seconds do not make a useful line.
const SECONDS_MIN: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::chart::logarithmic;
    use crate::report::model::FanOut;

    fn section(results: &[TestResult]) -> Vec<Figure> {
        let refs: Vec<_> = results.iter().collect();
        figures(&Section {
            test: &results[0].test,
            about: "",
            results: refs,
        })
    }

    #[test]
    fn a_linear_axis_is_round_and_holds_the_largest_value() {
        for largest in [0.003, 1.0, 7.3, 99.0, 101.0, 15_200_000.0] {
            let axis = linear("", largest, number::si);
            assert!(axis.max >= largest, "{largest}");
            assert!(
                (3..=7).contains(&axis.ticks.len()),
                "{largest}: {:?}",
                axis.ticks
            );
        }
    }

    #[test]
    fn a_logarithmic_axis_holds_both_ends() {
        for (low, high) in [
            (50.0, 50.0),
            (12.0, 900.0),
            (0.4, 6e7),
            (1.0, 1.0),
            (100.0, 1000.0),
        ] {
            let axis = logarithmic("", low, high);
            assert!(axis.min <= low.log10() + 1e-9 && axis.max >= high.log10() - 1e-9);
            assert!(
                (2..=12).contains(&axis.ticks.len()),
                "{low} {high}: {:?}",
                axis.ticks
            );
        }
    }

    #[test]
    fn formats_become_series_and_tiers_become_groups() {
        let result = |format: &str, connections, rate| TestResult {
            format: Some(format.into()),
            rate_per_s: Some(rate),
            ..TestResult::new(model::FORMAT_COMPARISON, connections)
        };
        let made = section(&[result("json", 10, 1.0), result("msgpack", 10, 2.0)]);
        assert_eq!(made.len(), 1);
        assert_eq!(made[0].legend, ["json", "msgpack"]);
        assert_eq!(made[0].svg.matches("class=\"bar\"").count(), 2);
    }

    #[test]
    fn a_given_rate_is_no_bar_but_has_a_latency_and_a_skew() {
        let latency = Latency {
            count: 9,
            points: vec![(0.0, 1.0), (100.0, 2.0)],
            ..Latency::default()
        };
        let result = |publications_per_s| TestResult {
            rate_per_s: Some(1e6),
            latency_us: Some(latency.clone()),
            fan_out: Some(FanOut {
                publications_per_s,
                skew_us: Some(latency.clone()),
                ..FanOut::default()
            }),
            ..TestResult::new(model::FAN_OUT, 10)
        };
        let made = section(&[result(None), result(Some(20.0))]);
        let captions: Vec<&str> = made.iter().map(|figure| figure.caption.as_str()).collect();
        let expected = [
            "Deliveries/s over connections",
            "Latency by percentile",
            "Skew by percentile",
        ];
        assert_eq!(captions, expected);
        assert_eq!(made[0].svg.matches("class=\"bar\"").count(), 1);
        assert_eq!(made[2].legend.len(), 2);
        let has_label = |figure: &Figure, label| figure.svg.contains(&format!(">{label}</text>"));
        assert!(has_label(&made[1], "latency") && !has_label(&made[1], "skew"));
        assert!(has_label(&made[2], "skew") && !has_label(&made[2], "latency"));
    }

    #[test]
    fn a_matrix_has_both_rates_with_a_cell_for_every_pair() {
        let cell = |connections, bytes| TestResult {
            payload_bytes: Some(bytes),
            rate_per_s: Some(1e6),
            bytes_per_s: Some(1e8),
            ..TestResult::new(model::SIZE_MATRIX, connections)
        };
        let made = section(&[cell(10, 64), cell(10, 1024), cell(100, 64)]);
        assert_eq!(made.len(), 2);
        assert!(
            made.iter()
                .all(|figure| figure.svg.matches("class=\"cell\"").count() == 4)
        );
        assert!(made[0].svg.contains(">1 M<") && made[1].svg.contains(">100 MB<"));
    }

    #[test]
    fn absurd_numbers_make_no_chart_and_no_panic() {
        for absurd in [
            f64::NAN,
            f64::INFINITY,
            f64::MAX,
            f64::MIN,
            -1.0,
            0.0,
            5e-324,
        ] {
            let result = |test| TestResult {
                rate_per_s: Some(absurd),
                bytes_per_s: Some(absurd),
                payload_bytes: Some(u64::MAX),
                rate_series: vec![absurd; 3],
                latency_us: Some(Latency {
                    points: vec![(absurd, absurd), (50.0, absurd), (100.0, absurd)],
                    ..Latency::default()
                }),
                ..TestResult::new(test, u64::MAX)
            };
            assert_eq!(section(&[result(model::THROUGHPUT)]).len(), 0, "{absurd}");
            assert_eq!(
                section(&[result(model::SUSTAINED_HOLD)]).len(),
                0,
                "{absurd}"
            );
            section(&[result(model::SIZE_MATRIX)]);
        }
    }
}

//! The figures that only a load of a service has: requests, statuses, errors, and their development
//! over time.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

use super::connecting::Connecting;
use super::{Latency, Verdict};
use crate::report::buckets;

/// The additional figures of a load of an HTTP or WebSocket service. In the JSON form its fields
/// are beside those of the result; a field that does not apply is absent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadFigures {
    /// Whether the measurement is reliable, apart from what the service did: `valid`, `noisy` or
    /// `generator_bound`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measurement: Option<Verdict>,
    /// What the service did wrong, in sentences; the most serious first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub service: Vec<String>,
    /// Requests and their outcomes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<Requests>,
    /// Complete responses by status.
    #[serde(
        default,
        deserialize_with = "numbered",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub statuses: BTreeMap<u16, u64>,
    /// Failed requests and connections by the name of the error.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub errors: BTreeMap<String, u64>,
    /// Bytes on the wire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<Traffic>,
    /// Connections over the whole load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connecting: Option<Connecting>,
    /// Messages from the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received: Option<Received>,
    /// From the creation time that a message contains to its arrival; the origin is `sent`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_age_us: Option<Latency>,
    /// From the first byte of a request to the first byte of its response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_byte_us: Option<Latency>,
    /// Latency of the requests that succeeded alone; absent if all did, because it is then `latency_us`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub succeeded_latency_us: Option<Latency>,
    /// Latency of the requests that failed with a response, which is a part of `latency_us`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_latency_us: Option<Latency>,
    /// The differences between the rates of equal windows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub windows: Option<Windows>,
    /// The figures of each window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_over_time: Option<LatencyOverTime>,
    /// All latencies of `latency_us`: the upper end of a bucket in microseconds and its count, ascending,
    /// without empty buckets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub histogram: Vec<(f64, u64)>,
    /// One entry per offered rate, if the load had several, in the order in which they ran.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub latency_by_rate: Vec<RateStep>,
    /// The answer of a search for the highest rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found_rate: Option<FoundRate>,
    /// Processor and memory of both sides, about once per second.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resources_over_time: Vec<ResourceSample>,
    /// The figures of each request of a scenario.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<TargetFigures>,
    /// The expectations and their results.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub expectations: Vec<ExpectationResult>,
    /// The comparison of this result with that of an earlier report.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub baseline: Vec<BaselineFigure>,
    /// The meaning of the figures for the users of the service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assessment: Option<Assessment>,
}

/// Requests and their outcomes. `sent` is the sum of `succeeded`, `failed` and `unfinished`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requests {
    /// Requests of which at least one byte was written.
    pub sent: u64,
    /// Complete responses that passed every check.
    pub succeeded: u64,
    /// Requests without a complete response, and responses that did not pass a check.
    pub failed: u64,
    /// The part of `failed` that timed out.
    #[serde(default)]
    pub timeouts: u64,
    /// Requests without an outcome when the load ended.
    #[serde(default)]
    pub unfinished: u64,
    /// Requests that were due at a given time and never sent; they are not part of `sent`.
    #[serde(default)]
    pub unsent: u64,
    /// Requests that were sent again because their reused connection was closed before the first
    /// byte of the response.
    #[serde(default)]
    pub retried: u64,
    /// Responses that led to another request.
    #[serde(default)]
    pub redirects: u64,
}

impl Requests {
    /// All requests that were due, sent or not.
    #[must_use]
    pub fn due(&self) -> u64 {
        self.sent + self.unsent
    }

    /// Those without a success: failed, unanswered at the end, or never sent.
    #[must_use]
    pub fn unsuccessful(&self) -> u64 {
        self.failed + self.unfinished + self.unsent
    }

    /// Adds those of another worker.
    pub fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        self.succeeded += other.succeeded;
        self.failed += other.failed;
        self.timeouts += other.timeouts;
        self.unfinished += other.unfinished;
        self.unsent += other.unsent;
        self.retried += other.retried;
        self.redirects += other.redirects;
    }
}

/// Bytes in both directions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// From the generator to the server.
    pub sent: ByteCounts,
    /// From the server to the generator.
    pub received: ByteCounts,
}

impl Traffic {
    /// Adds that of another worker.
    pub fn add(&mut self, other: &Self) {
        self.sent.add(&other.sent);
        self.received.add(&other.received);
    }
}

/// Bytes in one direction, without those of TLS, TCP and IP.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ByteCounts {
    /// Everything.
    pub wire: u64,
    /// Request or status lines and header fields.
    #[serde(default)]
    pub head: u64,
    /// Contents, without the framing of chunks.
    #[serde(default)]
    pub body: u64,
}

impl ByteCounts {
    /// Adds those of another worker.
    pub fn add(&mut self, other: &Self) {
        self.wire += other.wire;
        self.head += other.head;
        self.body += other.body;
    }
}

/// Messages from the server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Received {
    /// All of them.
    pub messages: u64,
    /// Per second.
    pub per_s: f64,
    /// Those that answer no message of the generator.
    #[serde(default)]
    pub unsolicited: u64,
}

/// The differences between the rates of equal windows; whole windows only.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Windows {
    /// Seconds of one window.
    pub window_s: f64,
    /// Successful requests in one second.
    pub requests_per_s: Spread,
    /// Received bytes in one second.
    pub bytes_per_s: Spread,
}

/// The distribution of a figure over windows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Number of windows.
    pub count: u64,
    /// Smallest value.
    pub min: f64,
    /// 1st percentile.
    pub p1: f64,
    /// 2.5th percentile.
    pub p2_5: f64,
    /// Median.
    pub p50: f64,
    /// 97.5th percentile.
    pub p97_5: f64,
    /// Largest value.
    pub max: f64,
    /// Arithmetic mean.
    pub mean: f64,
    /// Standard deviation of a sample.
    pub stdev: f64,
}

impl Spread {
    /// The distribution of `values`, percentiles by nearest rank; `None` without values.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (&min, &max) = (sorted.first()?, sorted.last()?);
        let n = sorted.len() as f64;
        let at = |percent: f64| {
            let rank = buckets::rank(percent, sorted.len() as u64) as usize;
            sorted[rank.min(sorted.len()) - 1]
        };
        let mean = sorted.iter().sum::<f64>() / n;
        let squares = sorted.iter().map(|value| (value - mean).powi(2));
        let stdev = (squares.sum::<f64>() / (n - 1.0).max(1.0)).sqrt();
        Some(Self {
            count: sorted.len() as u64,
            min,
            p1: at(1.0),
            p2_5: at(2.5),
            p50: at(50.0),
            p97_5: at(97.5),
            max,
            mean,
            stdev,
        })
    }
}

/// The figures of each window, in order from the start of the measurement.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LatencyOverTime {
    /// Seconds of one window: 1, or a power of two in a load of more than an hour.
    pub window_s: f64,
    /// Whole windows; a part of one at the end is left out.
    pub windows: Vec<LatencyWindow>,
}

impl LatencyOverTime {
    /// The same without the histogram of each window.
    #[must_use]
    pub fn without_histograms(mut self) -> Self {
        for window in &mut self.windows {
            window.histogram = Vec::new();
        }
        self
    }
}

/// One window; times in microseconds, absent without a success.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LatencyWindow {
    /// Successful requests.
    pub count: u64,
    /// Failed ones.
    #[serde(default)]
    pub errors: u64,
    /// Received bytes.
    #[serde(default)]
    pub bytes: u64,
    /// Median.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50: Option<f64>,
    /// 90th percentile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p90: Option<f64>,
    /// 99th percentile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99: Option<f64>,
    /// Largest value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<f64>,
    /// Arithmetic mean.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean: Option<f64>,
    /// The upper end of a bucket in microseconds and its count, ascending, without empty buckets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub histogram: Vec<(f64, u64)>,
}

/// One offered rate of a load that had several.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RateStep {
    /// Requests due per second.
    pub offered_per_s: f64,
    /// Successful requests per second.
    pub achieved_per_s: f64,
    /// Median latency in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50: Option<f64>,
    /// 99th percentile of the latency in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99: Option<f64>,
    /// Failed requests.
    pub errors: u64,
    /// Seconds at this rate.
    pub duration_s: f64,
    /// Whether every threshold was kept; absent if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<bool>,
    /// Why it did not hold, or why it was tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The answer of a search for the highest rate at which the expectations hold.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FoundRate {
    /// The highest rate that held, per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_per_s: Option<f64>,
    /// The lowest rate above it that did not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broke_per_s: Option<f64>,
    /// The first measured violation there, with its value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The answer in a sentence.
    pub text: String,
}

/// Processor and memory of both sides at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct ResourceSample {
    /// Seconds since the start of the measurement.
    pub at_s: f64,
    /// The used share of the generator's available processor time since the previous sample.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_share: Option<f64>,
    /// The used share of the server's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_share: Option<f64>,
    /// Resident memory of the generator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_rss_bytes: Option<u64>,
    /// Resident memory of the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_rss_bytes: Option<u64>,
    /// Open connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connected: Option<u64>,
}

/// The figures of one request of a scenario.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TargetFigures {
    /// Its name, or its method and path.
    pub name: String,
    /// Its outcomes.
    pub requests: Requests,
    /// Its successes per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_per_s: Option<f64>,
    /// Complete responses by status.
    #[serde(
        default,
        deserialize_with = "numbered",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub statuses: BTreeMap<u16, u64>,
    /// Its latency, from the same origin as that of the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_us: Option<Latency>,
    /// Its figures of each window, without histograms; of the most frequent requests only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_over_time: Option<LatencyOverTime>,
}

/// One expectation and its measured figure.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpectationResult {
    /// The expectation as it was given, such as `p99<20ms`.
    pub text: String,
    /// The figure that was measured, with its unit; absent if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<String>,
    /// Whether it was kept.
    pub kept: bool,
    /// The reason if it is broken for another reason than its figure, such as too few values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// One figure of this result in comparison with the same figure of an earlier report.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct BaselineFigure {
    /// `rate`, `mean`, `p50`, `p90`, `p99` or `p99.9`.
    pub figure: String,
    /// The earlier value: of a rate per second, otherwise in microseconds.
    pub before: f64,
    /// The value of this result.
    pub after: f64,
    /// `after` divided by `before`, minus one: 0.1 is 10 % more.
    pub change: f64,
    /// The 95 % confidence interval of `change`, its lower and its upper end; absent if it is not
    /// known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<(f64, f64)>,
    /// The meaning of the interval.
    pub finding: BaselineFinding,
    /// Why it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The finding of a comparison with an earlier figure.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BaselineFinding {
    /// A higher rate, or a lower latency.
    Faster,
    /// A lower rate, or a higher latency.
    Slower,
    /// The two may be equal.
    #[default]
    CannotTell,
}

impl BaselineFinding {
    /// The finding in words.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Faster => "faster",
            Self::Slower => "slower",
            Self::CannotTell => "cannot tell",
        }
    }
}

/// The earlier report with which this one was compared.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BaselineSource {
    /// The file.
    pub file: String,
    /// When that run began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<String>,
    /// Whether a slower figure causes an exit code of its own.
    #[serde(default)]
    pub fail_if_slower: bool,
    /// Results of either report that the other one lacks, in sentences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unmatched: Vec<String>,
}

/// The meaning of the figures for the users of the service.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Assessment {
    /// The word of the worst threshold.
    pub word: AssessmentWord,
    /// The number of connections or requests that the figures allow, in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<String>,
    /// The thresholds that decided the word.
    pub thresholds: Vec<AssessmentThreshold>,
}

/// How good a service is, from best to worst.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AssessmentWord {
    /// Every figure is at most its first threshold.
    #[default]
    Excellent,
    /// Every figure is at most its second threshold.
    Good,
    /// Every figure is at most its third threshold.
    Degraded,
    /// A figure is above all of its thresholds.
    Poor,
}

impl AssessmentWord {
    /// The value in a report.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Excellent => "excellent",
            Self::Good => "good",
            Self::Degraded => "degraded",
            Self::Poor => "poor",
        }
    }
}

/// A figure of an assessment with its thresholds, all in the same unit; smaller is better.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AssessmentThreshold {
    /// The assessed figure, such as `p99`.
    pub figure: String,
    /// The unit of the numbers: `ms`, `%` or none.
    pub unit: String,
    /// Excellent up to this.
    pub excellent: f64,
    /// Good up to this.
    pub good: f64,
    /// Degraded up to this, poor above.
    pub degraded: f64,
    /// The measured value.
    pub seen: f64,
    /// The word for it.
    pub word: AssessmentWord,
}

/// JSON has no numbers as names, and a flattened field gets its names as text.
fn numbered<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<u16, u64>, D::Error> {
    let named = BTreeMap::<String, u64>::deserialize(deserializer)?;
    let numbers = named.into_iter().map(|(name, count)| {
        let number = name.parse().map_err(|_| {
            serde::de::Error::custom(format!(
                "`{name}` is not a status: expected a number, such as 200"
            ))
        })?;
        Ok((number, count))
    });
    numbers.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::TestResult;

    #[test]
    fn the_figures_stand_beside_those_of_the_result_and_are_read_back() {
        let load = LoadFigures {
            statuses: [(200, 7), (503, 1)].into(),
            errors: [("truncated-body".to_owned(), 2)].into(),
            histogram: vec![(1.023, 4)],
            ..LoadFigures::default()
        };
        let result = TestResult {
            load,
            ..TestResult::new("http", 1)
        };
        let value = serde_json::to_value(&result).unwrap();
        assert_eq!(value["statuses"]["503"], 1);
        assert_eq!(value["errors"]["truncated-body"], 2);
        assert_eq!(serde_json::from_value::<TestResult>(value).unwrap(), result);
    }

    #[test]
    fn a_status_that_is_no_number_is_an_error_that_names_it() {
        let text = r#"{"test":"http","connections":1,"verdict":"valid","statuses":{"ok":1}}"#;
        let error = serde_json::from_str::<TestResult>(text).unwrap_err();
        assert!(
            error.to_string().contains("`ok` is not a status"),
            "{error}"
        );
    }

    #[test]
    fn a_spread_has_nearest_ranks_and_the_deviation_of_a_sample() {
        let values: Vec<f64> = (1..=200).rev().map(f64::from).collect();
        let spread = Spread::of(&values).unwrap();
        assert_eq!((spread.min, spread.p1, spread.p2_5), (1.0, 2.0, 5.0));
        assert_eq!(
            (spread.p50, spread.p97_5, spread.max),
            (100.0, 195.0, 200.0)
        );
        assert!((spread.stdev - 57.879).abs() < 1e-3, "{}", spread.stdev);
        assert_eq!(Spread::of(&[]), None);
        assert_eq!(
            Spread::of(&[5.0]).map(|one| (one.count, one.stdev)),
            Some((1, 0.0))
        );
    }
}

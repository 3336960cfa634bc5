//! The data of a report: schema `tidewire-report/1`, documented field by field in
//! `docs/report-format.md`.
//!
//! A field that does not apply is absent, not zero. Readers ignore fields they do not know, so that
//! the format can grow without a new version.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tidewire_net::io_words;

mod connecting;
mod figures;
mod judgement;
mod load;
mod repeats;

pub use connecting::{Connecting, EndedConnections, ended_in_words};
pub use figures::{
    ConfirmedBy, ConnectionLimit, Cpu, FanOut, Latency, LatencyOrigin, LimitPhase, LimitProbe,
    LoopKind, Memory, Messages, Pace, Pings, Processes, StoppedBy, Survival,
};

pub use judgement::{
    Bottleneck, EXIT_BROKEN, EXIT_INTERRUPTED, EXIT_USAGE, ErrorBounds, GeneratorHealth,
    INTERRUPTED, Lateness, ReplyFaults, Verdict, exit_code_of,
};
pub use load::{
    Assessment, AssessmentThreshold, AssessmentWord, BaselineFigure, BaselineFinding,
    BaselineSource, ByteCounts, ExpectationResult, FoundRate, LatencyOverTime, LatencyWindow,
    LoadFigures, RateStep, Received, Requests, ResourceSample, Spread, TargetFigures, Traffic,
    Windows,
};
pub use repeats::{Range, Repeats};

/// The value of `schema` in every report of this version.
pub const SCHEMA: &str = "tidewire-report/1";

/// Test name: opens all connections as fast as possible.
pub const CONNECTION_STORM: &str = "connection-storm";
/// Test name: from connect to ready, one connection after another.
pub const CONNECT_LATENCY: &str = "connect-latency";
/// Test name: connects, authenticates and disconnects repeatedly.
pub const RAPID_RECONNECT: &str = "rapid-reconnect";
/// Test name: application pings, one after another on each connection.
pub const PING_LATENCY: &str = "ping-latency";
/// Test name: every connection sends as fast as possible.
pub const THROUGHPUT: &str = "throughput";
/// Test name: the same over a longer time, with the rate of each second.
pub const SUSTAINED_THROUGHPUT: &str = "sustained-throughput";
/// Test name: throughput for a range of payload sizes.
pub const SIZE_MATRIX: &str = "size-matrix";
/// Test name: the same message in several formats.
pub const FORMAT_COMPARISON: &str = "format-comparison";
/// Test name: holds connections for a while with a slow ping.
pub const SUSTAINED_HOLD: &str = "sustained-hold";
/// Test name: searches the largest stable number of connections.
pub const CONNECTION_LIMIT: &str = "connection-limit";

/// Test name: one publisher, many subscribers of one topic.
pub const FAN_OUT: &str = "fan-out";
/// Test name: messages that the server sends back.
pub const ECHO: &str = "echo";

/// All measurements of one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// The program that measured.
    pub tool: Tool,
    /// When the run began: RFC 3339, UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<String>,
    /// True when the run ended before its plan was complete; the results are the complete ones.
    #[serde(default)]
    pub partial: bool,
    /// Why the run ended early, in words; only with `partial`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partial_reason: Option<String>,
    /// The machine that generated the load.
    pub machine: Machine,
    /// The server under load.
    pub target: Target,
    /// The requested measurements.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<Plan>,
    /// The checks before the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub preflight: Vec<Finding>,
    /// The earlier report with which the results were compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<BaselineSource>,
    /// One entry per test and variation, in the order in which they ran.
    pub results: Vec<TestResult>,
}

impl Report {
    /// A report without results, measured by this crate's version of the lab.
    pub fn new(machine: Machine, target: Target) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            tool: Tool::this(),
            started_at: None,
            partial: false,
            partial_reason: None,
            machine,
            target,
            plan: None,
            preflight: Vec::new(),
            baseline: None,
            results: Vec::new(),
        }
    }

    /// Reads a report from a JSON file.
    ///
    /// # Errors
    /// The file cannot be read, is not JSON, has another schema, or lacks a required field; each
    /// message names the file and the error.
    pub fn load(path: &Path) -> Result<Self, LoadError> {
        let text = fs::read(path).map_err(|source| LoadError::Read {
            path: path.into(),
            source,
        })?;
        let malformed = |source| LoadError::Malformed {
            path: path.into(),
            source,
        };
        let value: serde_json::Value = serde_json::from_slice(&text).map_err(malformed)?;
        match value.get("schema").and_then(serde_json::Value::as_str) {
            Some(SCHEMA) => serde_json::from_value(value).map_err(malformed),
            found => Err(LoadError::Schema {
                path: path.into(),
                found: found.map_or_else(|| "no `schema` field".into(), |s| format!("`{s}`")),
            }),
        }
    }

    /// The report as indented JSON with a final line feed.
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self)
            .expect("strings, numbers and lists always have a JSON form");
        text.push('\n');
        text
    }

    /// The verdict of the run: that of its worst result. A report without results has confirmed
    /// nothing and counts as failed.
    pub fn verdict(&self) -> Verdict {
        self.results
            .iter()
            .map(|result| result.verdict)
            .max()
            .unwrap_or(Verdict::Failed)
    }

    /// The exit code of the program that wrote this report, by [`exit_code_of`]: of an
    /// interruption, of a load that is impossible on this machine, of the verdicts, and of the
    /// expectations.
    pub fn exit_code(&self) -> u8 {
        // A run that ends early for another reason, such as the end of a worker, has failed.
        let reason = self.partial_reason.as_deref().unwrap_or(INTERRUPTED);
        let partial = self.partial.then(|| match reason {
            INTERRUPTED => EXIT_INTERRUPTED,
            _ => Verdict::Failed.exit_code(),
        });
        let verdicts = self.results.iter().map(TestResult::exit_code);
        let nothing = self.results.is_empty().then(|| self.verdict().exit_code());
        let broken = self.is_broken().then_some(EXIT_BROKEN);
        let all = partial.into_iter().chain(verdicts).chain(nothing);
        exit_code_of(all.chain(broken))
    }

    /// Whether an expectation is broken, or a figure is slower than the baseline's and this fails
    /// the run.
    fn is_broken(&self) -> bool {
        let must_keep_up = self
            .baseline
            .as_ref()
            .is_some_and(|baseline| baseline.fail_if_slower);
        let mut expectations = self
            .results
            .iter()
            .flat_map(|result| &result.load.expectations);
        expectations.any(|expectation| !expectation.kept) || (must_keep_up && self.is_slower())
    }

    /// Whether a figure is slower than that of the baseline.
    pub fn is_slower(&self) -> bool {
        let mut figures = self.results.iter().flat_map(|result| &result.load.baseline);
        figures.any(|figure| figure.finding == BaselineFinding::Slower)
    }
}

/// The program that measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tool {
    /// Its name, such as `tidewire`.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The language its load generator is written in.
    pub language: String,
}

impl Tool {
    /// This lab.
    pub fn this() -> Self {
        Self {
            name: "tidewire".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            language: "rust".into(),
        }
    }
}

/// The machine that generated the load; unknown values are absent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's model name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<String>,
    /// Logical processors the generator may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<u32>,
    /// Physical memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Name and version of the operating system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub os: Option<String>,
    /// Release of the kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
}

/// The server under load.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// The URL the connections were opened to.
    pub url: String,
    /// The server's name for itself, such as `tidewire/0.1.0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// True when the lab started the server itself.
    #[serde(default)]
    pub embedded: bool,
}

/// The plan, so that a reader can repeat the run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The protocol of a session, such as `v1` or `raw`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// Names of the tests, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tests: Vec<String>,
    /// Numbers of connections the tests ran with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub connection_tiers: Vec<u64>,
    /// How messages were paced, in words, such as `closed loop` or `1000/s, Poisson`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pace: Option<String>,
    /// Seconds of one measurement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_s: Option<f64>,
    /// Seconds of one hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold_s: Option<f64>,
    /// Application pings for each connection of the ping test.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pings_per_connection: Option<u64>,
    /// How often each test ran, if more than once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeats: Option<u64>,
    /// Threads of the generator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<u32>,
    /// Source addresses of the connections when more than the default one were needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_addresses: Option<u32>,
    /// The command line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
}

/// One check made before the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The checked property, such as `open files`.
    pub name: String,
    /// The value that was found.
    pub value: String,
    /// The value that the run needs.
    pub wanted: String,
    /// Whether the found value is sufficient.
    pub ok: bool,
    /// The advice if it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// The figures of one test at one number of connections, format and payload size.
///
/// `TestResult::new` gives the required fields; set the others where they apply:
///
/// ```
/// use tidewire_load::report::{TestResult, Verdict};
/// let result = TestResult { rate_per_s: Some(2.0e6), ..TestResult::new("throughput", 100) };
/// assert_eq!(result.verdict, Verdict::Valid);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TestResult {
    /// The test's name.
    pub test: String,
    /// Requested connections.
    pub connections: u64,
    /// Connections that were opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connected: Option<u64>,
    /// Connections that could not be opened or broke.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<u64>,
    /// Seconds from the first to the last counted event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_s: Option<f64>,
    /// `json`, `msgpack`, `zlib` or `raw`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
    /// Bytes of one message as the application sees it (the JSON form for other formats).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload_bytes: Option<u64>,
    /// Bytes of one message's WebSocket payload in its format.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wire_bytes: Option<f64>,
    /// WebSocket extensions that every connection used, by their registered names; absent without any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extensions: Vec<String>,
    /// Version of the protocol's encryption that every connection used; absent without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encryption_version: Option<u32>,
    /// How the messages were paced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pace: Option<Pace>,
    /// The two-sided account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub messages: Option<Messages>,
    /// The evidence of the confirmations.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub confirmed_by: Vec<ConfirmedBy>,
    /// Messages that the server refused, by its reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub refused_by: BTreeMap<String, u64>,
    /// The errors of the replies; only if every message must be answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replies: Option<ReplyFaults>,
    /// Pings and their answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pings: Option<Pings>,
    /// Confirmed messages, round trips or handshakes per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_per_s: Option<f64>,
    /// `rate_per_s` divided by that of JSON at the same number of connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio_to_json: Option<f64>,
    /// Confirmed payload bytes per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_s: Option<f64>,
    /// Confirmed messages in each whole second of the test, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rate_series: Vec<f64>,
    /// Latency from the origin that the plan defines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_us: Option<Latency>,
    /// Latency of the same messages from the other origin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_other_us: Option<Latency>,
    /// Connections that lasted; for holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub survival: Option<Survival>,
    /// Outcome of the search for the largest number of connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<ConnectionLimit>,
    /// The additional figures of a fan-out. Its `connections` are subscribers, and its `messages`
    /// are deliveries: one publication to one subscriber.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fan_out: Option<FanOut>,
    /// The additional figures of a load of a service; in the JSON form its fields are beside these.
    #[serde(flatten)]
    pub load: LoadFigures,
    /// Processor time used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Cpu>,
    /// How the rate is divided among the processes of the generator, when it has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processes: Option<Processes>,
    /// Memory of the server, when it runs on the same machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// Whether the generator had the processor and sent in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generator: Option<GeneratorHealth>,
    /// The spread over the repeats of the test, if it ran more than once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeats: Option<Repeats>,
    /// The side that was the limit.
    #[serde(default)]
    pub bottleneck: Bottleneck,
    /// Whether the figures are reliable.
    pub verdict: Verdict,
    /// The names of all doubts about the figures; empty if they are valid.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub doubts: Vec<String>,
    /// Further information for readers, in sentences.
    #[serde(default)]
    pub notes: Vec<String>,
}

impl TestResult {
    /// The rate that one success stands for.
    pub(crate) fn each_per_s(&self) -> Option<f64> {
        let succeeded = self.load.requests?.succeeded.max(1);
        Some(self.rate_per_s? / succeeded as f64)
    }

    /// Notes that the test ended early because of this expectation, which counts as broken whatever the
    /// figure of the whole test is.
    pub(crate) fn end_early_by(&mut self, expectation: &str) {
        let why = "broken for longer than allowed";
        self.notes
            .push(format!("Ended early: `{expectation}` was {why}."));
        let mut all = self.load.expectations.iter_mut();
        if let Some(broken) = all.find(|one| one.kept && one.text == expectation) {
            broken.kept = false;
            broken.reason = Some(why.to_owned());
        }
    }

    /// A valid result of `test` with this number of requested connections and nothing else known.
    pub fn new(test: &str, connections: u64) -> Self {
        Self {
            test: test.to_owned(),
            connections,
            ..Self::default()
        }
    }

    /// The exit code of this result alone, without that of its expectations.
    fn exit_code(&self) -> u8 {
        match self.doubts.iter().any(|doubt| doubt == IMPOSSIBLE) {
            true => EXIT_USAGE,
            false => self.verdict.exit_code(),
        }
    }
}

/// The doubt about a load that this machine cannot generate.
pub const IMPOSSIBLE: &str = "connections_impossible";

/// Why a report file could not be loaded; always the caller's file, and a retry does not help.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file could not be read.
    #[error("cannot read {}: {}", path.display(), io_words(source))]
    Read {
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// The file is not JSON or lacks a required field.
    #[error("{} is not a valid report: {source}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The fault and its place.
        source: serde_json::Error,
    },
    /// The file is JSON of another kind or version.
    #[error("{}: expected schema `{SCHEMA}`, found {found}", path.display())]
    Schema {
        /// The file.
        path: PathBuf,
        /// The value that stands there instead.
        found: String,
    },
}

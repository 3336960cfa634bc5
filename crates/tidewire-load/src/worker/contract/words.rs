//! Words: the lines that a worker sends to its controller.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::figures::{LiveFigures, OpenedFigures, RanFigures};
use super::load::{Counted, Loading};

/// A line from a worker.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "snake_case")]
pub enum Word {
    /// The first line.
    Hello(Hello),
    /// The answer to a question for the clock.
    Clock {
        /// The number of the question.
        id: u64,
        /// The worker's clock, in nanoseconds. It never goes back.
        clock_ns: i64,
    },
    /// The current figures, ten times a second while an order is carried out, and at least every two seconds.
    Live(LiveFigures),
    /// The outcome of `open` and `reconnect`.
    Opened(Box<OpenedFigures>),
    /// The outcome of `run`.
    Ran(Box<RanFigures>),
    /// The current figures of a service load, several times a second while an order is carried out.
    Loading(Box<Loading>),
    /// The outcome of `connect` and `send`.
    Counted(Box<Counted>),
    /// All connections are closed.
    Closed,
    /// During a fan-out: what all subscribers of this worker have received.
    Progress {
        /// The number of the newest publication that all of them have.
        received: u64,
    },
    /// During a fan-out, from the worker with the publisher: nothing more will be published.
    Published {
        /// The number of the last publication.
        publications: u64,
    },
    /// The worker cannot carry out an order, and ends.
    Failed {
        /// The reason, for a person.
        reason: String,
    },
}

/// The largest number that a worker of a bench may count to: the largest that every JSON library keeps. The figures of many
/// workers can then be added up.
pub const COUNT_MAX: u64 = 1 << 53;

impl Word {
    /// Reads the JSON object of a line.
    ///
    /// # Errors
    /// It is no word of the contract, or a figure of it is larger than [`COUNT_MAX`]. The text is for a person.
    pub fn of(value: &Value) -> Result<Self, String> {
        let word = Self::deserialize(value).map_err(|error| error.to_string())?;
        // A load has sums of times that may be larger, and only workers of this program.
        let is_of_bench = matches!(word, Self::Live(_) | Self::Opened(_) | Self::Ran(_));
        match is_of_bench.then(|| largest(value)).flatten() {
            Some(count) if count > COUNT_MAX => Err(format!("{count} is more than 2^53")),
            _ => Ok(word),
        }
    }
}

/// The largest whole number in it.
fn largest(value: &Value) -> Option<u64> {
    match value {
        Value::Array(values) => values.iter().filter_map(largest).max(),
        Value::Object(fields) => fields.values().filter_map(largest).max(),
        _ => value.as_u64(),
    }
}

/// A worker's introduction.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Hello {
    /// The version of the contract.
    pub contract: u32,
    /// The language of its client library.
    pub language: String,
    /// The version of its client library.
    pub version: String,
    /// The name of its machine.
    #[serde(default)]
    pub host: String,
    /// Its process on that machine.
    pub pid: u32,
    /// The cores that it may use.
    #[serde(default)]
    pub cores: f64,
    /// Its resident memory, before it has opened anything.
    #[serde(default)]
    pub rss_bytes: u64,
    /// The connections that its limit of open files allows.
    pub connections_max: u64,
    /// The profiles of a session that it has.
    pub profiles: Vec<String>,
    /// The formats of a message that it has.
    pub encodings: Vec<String>,
    /// The layers of a message that it has.
    pub layers: Vec<String>,
    /// The version of the protocol's encryption that its client uses; without it that of the Rust worker.
    #[serde(default)]
    pub encryption_version: Option<u32>,
    /// Whether it can accept any certificate.
    #[serde(default)]
    pub accepts_any_certificate: bool,
    /// The threads that it has for service loads; without them it has no such loads.
    #[serde(default)]
    pub load_threads: usize,
}

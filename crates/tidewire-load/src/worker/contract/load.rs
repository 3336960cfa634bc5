//! Orders and words of a service load, which is `tidewire load`.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::figures::LiveFigures;
use crate::accounting::live::ServiceLive;
use crate::accounting::tally::Tally;
use crate::worker::inputs::Inputs;

/// The terms of a load.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Load {
    /// The version of the contract.
    pub contract: u32,
    /// The worker's clock at the zero of all times of the load, in nanoseconds; it may be negative.
    pub zero_clock_ns: i64,
    /// The service's URL with all that it may contain.
    pub url: String,
    /// The options of the load, as `docs/load-options.md` has them.
    pub options: Map<String, Value>,
    /// The files and the variables that the options name.
    #[serde(flatten)]
    pub inputs: Arc<Inputs>,
    /// Over HTTP/2, whatever the options say: the server offers nothing else.
    #[serde(default)]
    pub over_http2: bool,
    /// The number of the first of this worker's threads, over all workers. User number N belongs to the thread whose
    /// number is N modulo all threads.
    pub first_thread: usize,
    /// Its threads.
    pub own_threads: usize,
    /// The threads of all workers.
    pub all_threads: usize,
}

/// Requests of all users.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Send {
    /// The time at which they begin.
    pub begin_ns: u64,
    /// From then to the end of sending; without it, until the requests are sent or it is stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longest_ns: Option<u64>,
    /// The largest number of requests of this worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<u64>,
    /// The users of each worker; 0 for one that has ended.
    pub members: Vec<u64>,
    /// The index of this worker among them.
    pub index: usize,
    /// The rate.
    pub rhythm: SendRhythm,
    /// Connections that ended in an earlier phase are opened again.
    #[serde(default)]
    pub revives: bool,
    /// The load is over: users send only the steps of their teardown.
    #[serde(default)]
    pub is_teardown: bool,
}

/// When requests leave.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SendRhythm {
    /// As the options say.
    AsPlanned,
    /// Each connection sends the next one when the previous one is answered.
    Closed,
    /// At a rate of all workers together.
    Open {
        /// Requests per second.
        per_s: f64,
        /// At random times, not evenly.
        poisson: bool,
    },
}

/// The outcome of `connect` and `send`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Counted {
    /// All counts and latencies.
    pub tally: Box<Tally>,
    /// The worker's figures after the order.
    #[serde(default)]
    pub live: LiveFigures,
}

/// The figures of a load at one moment of an order.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Loading {
    /// Those of its requests and connections.
    pub load: ServiceLive,
    /// Those of the worker.
    pub live: LiveFigures,
}

//! Observation of a run: the figures of the current moment, for whoever shows them.

use std::time::Duration;

use crate::accounting::live::{Live, ServiceLive};
use crate::report::model::Requests;
use crate::report::{ResourceSample, TestResult};

/// Observer of a run. Every method may do nothing.
pub trait Progress {
    /// A part of the run begins, such as `connecting` or `throughput, 100 connections`, with its
    /// approximate duration.
    fn phase_started(&mut self, what: &str, expected: Option<Duration>) {
        let (_, _) = (what, expected);
    }

    /// Called ten times per second or more often.
    fn tick(&mut self, live: &RunLive) {
        let _ = live;
    }

    /// A result is complete.
    fn finished(&mut self, result: &TestResult) {
        let _ = result;
    }
}

/// An observer that shows nothing.
impl Progress for () {}

/// The figures of a run at one moment.
#[derive(Debug, Clone, Default)]
pub struct RunLive {
    /// The counts of the workers in this phase. In a test of `bench`, requests are messages, round
    /// trips or connections.
    pub service: ServiceLive,
    /// Successes per second, over the last second.
    pub rate_per_s: f64,
    /// Latencies of the last second, or of the phase so far in a test of `bench`.
    pub latency: LiveLatency,
    /// The used share of the generator's processor time in the last second; `None` if it is not
    /// known.
    pub client_share: Option<f64>,
    /// The same for the server.
    pub server_share: Option<f64>,
    /// Resident memory of the server.
    pub server_rss_bytes: Option<u64>,
}

/// Latencies in microseconds, as far as they are known while a phase runs.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct LiveLatency {
    /// The median.
    pub p50_us: Option<f64>,
    /// The 99th percentile.
    pub p99_us: Option<f64>,
    /// The largest.
    pub max_us: Option<f64>,
}

impl RunLive {
    /// The figures of a load.
    pub(super) fn of_load(
        service: &ServiceLive,
        rate_per_s: f64,
        resources: Option<&ResourceSample>,
    ) -> Self {
        let window = service.window.as_ref().map(|ended| &ended.window);
        let at = |percentile| window.and_then(|window| window.percentile_us(percentile));
        Self {
            service: service.clone(),
            rate_per_s,
            latency: LiveLatency {
                p50_us: at(50.0),
                p99_us: at(99.0),
                max_us: window.and_then(|window| window.max_us()),
            },
            ..Self::default()
        }
        .with(resources)
    }

    /// The figures of a test of `bench`.
    pub(super) fn of_test(live: &Live, resources: Option<&ResourceSample>) -> Self {
        Self {
            service: ServiceLive {
                elapsed: live.elapsed,
                connected: live.connected,
                not_opened: live.failed,
                requests: Requests {
                    sent: live.offered,
                    succeeded: live.confirmed,
                    failed: live.failed,
                    ..Requests::default()
                },
                ..ServiceLive::default()
            },
            rate_per_s: live.rate_per_s,
            latency: LiveLatency {
                p99_us: live.latency_p99_us,
                ..LiveLatency::default()
            },
            ..Self::default()
        }
        .with(resources)
    }

    fn with(self, resources: Option<&ResourceSample>) -> Self {
        Self {
            client_share: resources.and_then(|last| last.client_share),
            server_share: resources.and_then(|last| last.server_share),
            server_rss_bytes: resources.and_then(|last| last.server_rss_bytes),
            ..self
        }
    }
}

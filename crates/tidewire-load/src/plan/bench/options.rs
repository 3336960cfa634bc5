//! Options of a run, and the errors without a report.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use super::expected::TestExpectation;
use super::kind::TestKind;
use crate::accounting::server::ServerPidError;
use crate::accounting::stats::StatsSource;
use crate::fleet::FleetError;
use crate::fleet::preflight::{self, Shortage};
use crate::worker::order::{HANDSHAKES_IN_FLIGHT_MAX, Timeouts};
use crate::worker::rhythm::Rhythm;
use crate::worker::target::Target;
use crate::worker::websocket::layer::Layer;
use crate::worker::websocket::payload::{Content, Payload};
use crate::worker::websocket::profile::Profile;

/// The measurements of a run and their parameters.
#[derive(Debug, Clone)]
pub struct BenchOptions {
    /// The server.
    pub target: Target,
    /// The protocol of a session. Default [`Profile::V1`].
    pub profile: Profile,
    /// The layer of the messages. Default [`Layer::Plain`].
    pub layer: Layer,
    /// The tests, in order. Default [`TestKind::DEFAULT`].
    pub tests: Vec<TestKind>,
    /// Numbers of connections that each test runs with. Default 100 and 1,000.
    pub tiers: Vec<usize>,
    /// JSON payload sizes of the size matrix, in bytes. Default 64 B to 64 KiB.
    pub sizes: Vec<usize>,
    /// JSON payload sizes of the echo test, in bytes. Default 175.
    pub echo_sizes: Vec<usize>,
    /// JSON sizes of the publications of the fan-out test, in bytes; at least 80. Default 95.
    pub fan_out_sizes: Vec<usize>,
    /// The content of the messages of the size matrix and of the echo test. Default one trade, and
    /// several with [`Layer::Deflate`], whose messages must be compressible.
    pub content: Option<Content>,
    /// How long one measurement sends. Default 5 s.
    pub duration: Duration,
    /// Messages of each connection, at least 1, in place of a duration, for the tests that send messages as fast as the server
    /// accepts or answers them. Default none.
    pub messages: Option<u64>,
    /// How long `sustained-throughput` sends. Default 10 s.
    pub sustained: Duration,
    /// Connections of `connect-latency`, one after the other. Default 200.
    pub rounds: u64,
    /// How often each connection of `rapid-reconnect` is opened, in place of a duration. Default none.
    pub cycles: Option<u64>,
    /// How long a hold lasts. Default 30 s.
    pub hold: Duration,
    /// Milliseconds between two pings of a held connection. Default 5,000.
    pub hold_ping_every_ms: u64,
    /// Pings of each connection in the ping test. Default 50.
    pub pings_per_connection: u64,
    /// Messages in flight on each connection of the echo test. Default 64.
    pub in_flight: u32,
    /// Publications of the fan-out test that may be ahead of the slowest subscriber at full speed.
    /// Default the number that fits into 64 KiB.
    pub fan_out_in_flight: Option<u32>,
    /// Messages per second, over all connections, instead of as many as possible; for the tests
    /// that send messages. In the fan-out test, publications. Default none: that test then runs at
    /// full speed, with 1,000 subscribers or more also at 100/s, with 10,000 or more at 20/s.
    pub rate_per_s: Option<f64>,
    /// Whether a given rate has random gaps. Default false: even ones.
    pub poisson: bool,
    /// If given, a sending test continues after its duration until half the width of the 95 %
    /// confidence interval of its rate is at most this share of the mean, such as 0.02, for up to
    /// ten times the duration. Default none.
    pub confidence: Option<f64>,
    /// Where the search for the largest number of connections ends, unless open files end it before.
    /// Default 1,000,000.
    pub connections_max: usize,
    /// How close that search comes to the limit, as a share of it. Default 1/64; at least one connection.
    pub limit_resolution: f64,
    /// Threads of the generator. Default half of the machine's cores, at least one.
    pub threads: usize,
    /// Commands that start workers as processes of their own, each of which speaks the worker contract on its
    /// standard streams. Default none: the workers are threads of this process.
    pub workers: Vec<String>,
    /// Ends the run when a worker has ended. Default false: the remaining workers go on, and the next test
    /// starts it again.
    pub stops_with_worker: bool,
    /// Connections being opened at once. Default 256.
    pub handshakes_in_flight_max: usize,
    /// Timeouts.
    pub timeouts: Timeouts,
    /// The source of the server's own counters. Default none.
    pub stats: Option<StatsSource>,
    /// The server's process, if its listening port does not identify it.
    pub server_pid: Option<u32>,
    /// Whether this program has started the server itself. Default false.
    pub embedded: bool,
    /// The expectations of the figures. Default none.
    pub expectations: Vec<TestExpectation>,
    /// Ends a test, and the run, when one of its expectations has been broken for this long. It applies
    /// to `rate`, of each second, and to `p99`, from the start of the test until then. Default none.
    pub abort_after: Option<Duration>,
    /// Measures the memory of both sides: per connection, second by second, and of the server after
    /// the connections are closed. Default false.
    pub memory: bool,
    /// The seed of masks, messages and arrival times. Default 1.
    pub seed: u64,
    /// The command line, for the report.
    pub command: Option<String>,
}

impl BenchOptions {
    /// The defaults for a target.
    #[must_use]
    pub fn new(target: Target) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self {
            target,
            profile: Profile::default(),
            layer: Layer::default(),
            tests: TestKind::DEFAULT.to_vec(),
            tiers: vec![100, 1_000],
            sizes: vec![64, 256, 1_024, 4_096, 16_384, 65_536],
            echo_sizes: vec![Payload::TRADE.json_bytes],
            fan_out_sizes: vec![95],
            content: None,
            duration: Duration::from_secs(5),
            messages: None,
            sustained: Duration::from_secs(10),
            rounds: 200,
            cycles: None,
            hold: Duration::from_secs(30),
            hold_ping_every_ms: 5_000,
            pings_per_connection: 50,
            in_flight: 64,
            fan_out_in_flight: None,
            rate_per_s: None,
            poisson: false,
            confidence: None,
            connections_max: 1_000_000,
            limit_resolution: LIMIT_RESOLUTION,
            threads: (cores / 2).max(1),
            workers: Vec::new(),
            stops_with_worker: false,
            handshakes_in_flight_max: HANDSHAKES_IN_FLIGHT_MAX,
            timeouts: Timeouts::default(),
            stats: None,
            server_pid: None,
            embedded: false,
            expectations: Vec::new(),
            abort_after: None,
            memory: false,
            seed: 1,
            command: None,
        }
    }

    /// When messages leave at this rate, or without one.
    pub(crate) fn rhythm(&self, rate_per_s: Option<f64>) -> Rhythm {
        Rhythm::at(rate_per_s, self.poisson, self.seed)
    }

    /// The largest number of connections of any test.
    pub(crate) fn connections_most(&self) -> usize {
        let tiers = self.tiers.iter().copied().max().unwrap_or(1);
        // Plus one for the publisher.
        let tiers = tiers + usize::from(self.tests.contains(&TestKind::FanOut));
        if self.tests.contains(&TestKind::ConnectionLimit) {
            // On other machines it may be another, and the addresses of this one do not count there.
            let room = preflight::connections_room().saturating_mul(self.workers.len().max(1));
            tiers.max(self.connections_max.min(room))
        } else {
            tiers
        }
    }

    pub(crate) fn sources(&self) -> Arc<[IpAddr]> {
        let IpAddr::V4(address) = self.target.address.ip() else {
            return Arc::new([]);
        };
        if !address.is_loopback() {
            return Arc::new([]);
        }
        let wanted = self.connections_most() as u64;
        let sources = preflight::source_addresses(wanted, &preflight::port_range());
        if sources.len() < 2 {
            return Arc::new([]);
        }
        sources.into_iter().map(IpAddr::V4).collect()
    }
}

/// The reason for which there is no report.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The options request nothing.
    #[error("nothing to do: no {0} given")]
    Nothing(&'static str),
    /// A number that the lab cannot keep.
    #[error("{name} of {given} is out of bounds: {bounds}")]
    OutOfBounds {
        /// The name of the option.
        name: &'static str,
        /// The given value.
        given: String,
        /// The possible values.
        bounds: String,
    },
    /// The process that was named as the server's does not serve the target.
    #[error(transparent)]
    ServerPid(#[from] ServerPidError),
    /// The options request encryption from a plain WebSocket server.
    #[error("only protocol version 1 has encryption: remove the other profile")]
    NothingToEncryptWith,
    /// A rate was given for tests that send no messages.
    #[error(
        "a rate has no effect on {tests}: remove the rate, or choose tests that send messages, such as throughput"
    )]
    RateWithoutEffect {
        /// The names of the tests.
        tests: String,
    },
    /// A number of messages together with a rate or a confidence, which end a test as well.
    #[error(
        "a number of messages ends a test: remove the rate and the confidence, or give a duration"
    )]
    TwoEnds,
    /// An expectation of a figure that no test of the run has.
    #[error("`{expectation}`: no test of this run has this figure: {tests}")]
    NoSuchFigure {
        /// The expectation as it was given.
        expectation: String,
        /// The tests and their figures.
        tests: String,
    },
    /// A run that nothing can end early.
    #[error("an early end needs an expectation of `rate` or `p99`, which are known during a test")]
    NothingToAbortFor,
    /// No test can have its number of connections.
    #[error("{0}")]
    Impossible(Shortage),
    /// The generator itself failed.
    #[error(transparent)]
    Fleet(#[from] FleetError),
}

/// Durations of a measurement: at most 30 days.
pub const DURATION: RangeInclusive<Duration> =
    Duration::from_millis(10)..=Duration::from_secs(30 * 24 * 3600);

/// How close a search for the limit of connections may be asked to come to it, as a share of the limit.
pub const LIMIT_RESOLUTIONS: RangeInclusive<f64> = 1e-6..=0.5;

/// By default it comes to one part in 64.
pub(super) const LIMIT_RESOLUTION: f64 = 1.0 / 64.0;

pub use crate::worker::websocket::payload::PAYLOAD_BYTES;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_of_several_processes_has_addresses_for_the_connections_of_all() {
        let addresses = |workers: usize| {
            let target = Target::parse("ws://127.0.0.1:1/ws").expect("a target");
            let options = BenchOptions {
                tests: vec![TestKind::ConnectionLimit],
                connections_max: usize::MAX,
                workers: vec!["tidewire worker".to_owned(); workers],
                ..BenchOptions::new(target)
            };
            options.sources().len()
        };
        let room = preflight::connections_room();
        let needed = |connections: usize| {
            preflight::source_addresses(connections as u64, &preflight::port_range()).len()
        };
        // One address is not named.
        let named = |count: usize| if count < 2 { 0 } else { count };
        assert_eq!(addresses(0), named(needed(room)));
        assert_eq!(addresses(6), named(needed(room.saturating_mul(6))));
    }
}

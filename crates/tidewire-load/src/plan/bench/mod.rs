//! The tests of a run: each a short script over a fleet.

mod conclude;
mod connection_limit;
mod echo;
mod ending;
mod expected;
mod fan_out;
mod format_comparison;
mod kind;
mod measure;
mod measured;
mod opening;
pub mod options;
mod ping_latency;
mod size_matrix;
mod sustained_hold;
mod throughput;

pub use expected::{TestExpectation, TestExpectationError};
pub use kind::TestKind;
pub(crate) use measure::Bench;

use crate::report::TestResult;
use options::RunError;

/// Runs a test with this number of connections.
pub(crate) fn run_test(
    test: TestKind,
    bench: &mut Bench<'_>,
    connections: usize,
) -> Result<Vec<TestResult>, RunError> {
    match test {
        TestKind::ConnectionStorm => opening::storm(bench, connections),
        TestKind::PingLatency => ping_latency::run(bench, connections),
        TestKind::Throughput => throughput::run(bench, connections),
        TestKind::SizeMatrix => size_matrix::run(bench, connections),
        TestKind::FormatComparison => format_comparison::run(bench, connections),
        TestKind::SustainedHold => sustained_hold::run(bench, connections),
        TestKind::ConnectionLimit => connection_limit::run(bench, connections),
        TestKind::FanOut => fan_out::run(bench, connections),
        TestKind::ConnectLatency => opening::latency(bench),
        TestKind::RapidReconnect => opening::rapid(bench, connections),
        TestKind::SustainedThroughput => throughput::sustained(bench, connections),
        TestKind::Echo => echo::run(bench, connections),
    }
}

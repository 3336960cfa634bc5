//! The figures by which reports are compared, and their words.

use std::collections::BTreeSet;

use crate::report::model::{Latency, TestResult};
use crate::report::{number, service, table};

/// A figure by which reports are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metric {
    /// Confirmed messages, round trips, handshakes, or requests that succeeded per second.
    Rate,
    /// Requests of a load that were due and had no success, in percent.
    Errors,
    /// Complete responses with this status, in percent of all responses.
    Status(u16),
    /// Median latency in microseconds.
    LatencyP50,
    /// 90th percentile of the latency of a load in microseconds.
    LatencyP90,
    /// 99th percentile of the latency in microseconds.
    LatencyP99,
    /// 99.9th percentile of the latency of a load in microseconds.
    LatencyP99_9,
    /// The largest latency of a load in microseconds.
    LatencyMax,
    /// The mean latency of a load in microseconds.
    LatencyMean,
    /// 99th percentile of the time to the first byte in microseconds.
    FirstByteP99,
    /// 99th percentile of the time until a connection was ready, in microseconds.
    ConnectP99,
    /// The same of the handshake of TLS.
    TlsP99,
    /// Bytes that a load received per second.
    Received,
    /// Median skew of a fan-out in microseconds.
    SkewP50,
    /// 99th percentile of the skew in microseconds.
    SkewP99,
    /// Server processor time per message, request or handshake, in microseconds.
    ServerCpu,
    /// Server memory per connection, in bytes.
    Memory,
    /// The highest memory of the server during a fan-out, in bytes.
    MemoryPeak,
    /// The largest stable number of connections.
    LargestStable,
    /// The highest rate that a search found.
    FoundRate,
}

impl Metric {
    /// The figures that these results can have, in the order of the rows.
    pub(super) fn all_of(results: &[&TestResult]) -> Vec<Self> {
        let statuses: BTreeSet<u16> = results
            .iter()
            .flat_map(|result| result.load.statuses.keys().copied())
            .collect();
        // A single status that all reports have shows no difference.
        let statuses = statuses.iter().filter(|_| statuses.len() > 1);
        let mut all = vec![Self::FoundRate, Self::Rate, Self::Errors];
        all.extend(statuses.map(|status| Self::Status(*status)));
        all.extend([
            Self::LatencyP50,
            Self::LatencyP90,
            Self::LatencyP99,
            Self::LatencyP99_9,
            Self::LatencyMax,
            Self::LatencyMean,
            Self::FirstByteP99,
            Self::ConnectP99,
            Self::TlsP99,
            Self::Received,
            Self::SkewP50,
            Self::SkewP99,
            Self::ServerCpu,
            Self::Memory,
            Self::MemoryPeak,
            Self::LargestStable,
        ]);
        all
    }

    /// The value in a result. Some figures are shown of loads alone: the tables of `bench` have enough rows.
    pub(super) fn of(self, result: &TestResult) -> Option<f64> {
        let latency = result.latency_us.as_ref();
        let of_load = latency.filter(|_| service::is_load(result));
        let load = &result.load;
        let connecting = load.connecting.as_ref();
        let p99 = |latency: &Option<Latency>| latency.as_ref().map(|latency| latency.p99);
        match self {
            Self::Rate => result.rate_per_s,
            Self::Errors => {
                let requests = load.requests.filter(|requests| requests.due() > 0)?;
                Some(requests.unsuccessful() as f64 / requests.due() as f64 * 100.0)
            }
            Self::Status(status) => {
                let all: u64 = load.statuses.values().sum();
                let count = load.statuses.get(&status).copied().unwrap_or(0);
                (all > 0).then(|| count as f64 / all as f64 * 100.0)
            }
            Self::LatencyP50 => latency.map(|latency| latency.p50),
            Self::LatencyP99 => latency.map(|latency| latency.p99),
            Self::LatencyP90 => of_load.map(|latency| latency.p90),
            Self::LatencyP99_9 => of_load.map(|latency| latency.p99_9),
            Self::LatencyMax => of_load.map(|latency| latency.max),
            Self::LatencyMean => of_load.map(|latency| latency.mean),
            Self::FirstByteP99 => p99(&load.first_byte_us),
            Self::ConnectP99 => p99(&connecting?.latency_us),
            Self::TlsP99 => p99(&connecting?.tls_us),
            Self::Received => result.bytes_per_s.filter(|_| service::is_load(result)),
            Self::SkewP50 => Some(result.fan_out.as_ref()?.skew_us.as_ref()?.p50),
            Self::SkewP99 => Some(result.fan_out.as_ref()?.skew_us.as_ref()?.p99),
            Self::ServerCpu => Some(result.cpu?.server_s? * 1e6 / events(result)?),
            Self::Memory => result.memory?.per_connection_bytes,
            Self::MemoryPeak => Some(result.memory?.server_rss_peak_bytes? as f64),
            Self::LargestStable => result
                .limit
                .as_ref()
                .map(|limit| limit.largest_stable as f64),
            Self::FoundRate => load.found_rate.as_ref()?.held_per_s,
        }
    }

    /// Its name in a row; that of a rate depends on the test.
    pub(super) fn name(self) -> String {
        let name = match self {
            Self::Rate => "Rate",
            Self::Errors => "Errors",
            Self::Status(status) => return format!("Status {status}"),
            Self::LatencyP50 => "Latency, median",
            Self::LatencyP90 => "Latency, p90",
            Self::LatencyP99 => "Latency, p99",
            Self::LatencyP99_9 => "Latency, p99.9",
            Self::LatencyMax => "Latency, max",
            Self::LatencyMean => "Latency, mean",
            Self::FirstByteP99 => "First byte, p99",
            Self::ConnectP99 => "Connect, p99",
            Self::TlsP99 => "TLS, p99",
            Self::Received => "Received/s",
            Self::SkewP50 => "Skew, median",
            Self::SkewP99 => "Skew, p99",
            Self::MemoryPeak => "Server memory, peak",
            Self::ServerCpu => "Server CPU each",
            Self::Memory => "Memory per connection",
            Self::LargestStable => "Largest stable",
            Self::FoundRate => "Highest rate that held",
        };
        name.to_owned()
    }

    pub(super) fn format(self, value: f64) -> String {
        match self {
            Self::Rate | Self::FoundRate => number::si(value),
            Self::Errors | Self::Status(_) => number::percent(value),
            Self::Received => number::byte_rate(value),
            Self::Memory | Self::MemoryPeak => number::bytes(value),
            Self::LargestStable => number::grouped(value as u64),
            _ => number::us(value),
        }
    }

    /// True for a latency of requests or messages. Its clock starts at the `origin` of the result.
    pub(super) fn is_latency(self) -> bool {
        matches!(
            self,
            Self::LatencyP50
                | Self::LatencyP90
                | Self::LatencyP99
                | Self::LatencyP99_9
                | Self::LatencyMax
                | Self::LatencyMean
        )
    }
}

/// The number of events that the server's processor time is divided by.
fn events(result: &TestResult) -> Option<f64> {
    let ended = result
        .load
        .requests
        .map(|requests| (requests.succeeded + requests.failed) as f64);
    let ended = ended.filter(|count| *count > 0.0);
    table::events(result).or(ended)
}

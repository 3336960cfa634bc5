//! The figures that the report lines of all tools print.

use std::time::Duration;

use tidewire_load::Report;
use tidewire_load::report::{Latency, Requests, TestResult};

/// The parts of the command line that a tool repeats in its lines.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Asked {
    pub(crate) requests: Option<u64>,
    pub(crate) duration: Option<Duration>,
    pub(crate) keeps_alive: bool,
    /// The distribution of the latency, which wrk prints only with --latency.
    pub(crate) latency: bool,
}

/// The figures that all tools print.
pub(super) struct Figures<'a> {
    pub(super) asked: Asked,
    pub(super) url: &'a str,
    pub(super) server: &'a str,
    /// The run was interrupted.
    pub(super) is_partial: bool,
    pub(super) result: &'a TestResult,
    pub(super) threads: u32,
    pub(super) requests: Requests,
    pub(super) seconds: f64,
    pub(super) rate_per_s: f64,
    pub(super) latency: Latency,
    /// All received bytes.
    pub(super) wire: u64,
    pub(super) body: u64,
    /// Responses that are neither 2xx nor 3xx.
    pub(super) refused: u64,
}

impl<'a> Figures<'a> {
    pub(super) fn of(report: &'a Report, result: &'a TestResult, asked: Asked) -> Self {
        let load = &result.load;
        let received = load.bytes.unwrap_or_default().received;
        let refused = load.statuses.iter().filter(|(status, _)| **status > 399);
        Self {
            asked,
            url: &report.target.url,
            server: report.target.server.as_deref().unwrap_or_default(),
            is_partial: report.partial,
            result,
            threads: report
                .plan
                .as_ref()
                .and_then(|plan| plan.threads)
                .unwrap_or(1),
            requests: load.requests.unwrap_or_default(),
            seconds: result.duration_s.unwrap_or(0.0),
            rate_per_s: result.rate_per_s.unwrap_or(0.0),
            // The tools leave out what has no answer.
            latency: (load.succeeded_latency_us.clone())
                .or_else(|| result.latency_us.clone())
                .unwrap_or_default(),
            wire: received.wire,
            body: received.body,
            refused: refused.map(|(_, count)| count).sum(),
        }
    }

    /// Milliseconds that a share of the latencies do not exceed.
    pub(super) fn ms(&self, percentile: f64) -> f64 {
        let latency = &self.latency;
        let known = [
            (50.0, latency.p50),
            (90.0, latency.p90),
            (95.0, latency.p95),
            (99.0, latency.p99),
            (100.0, latency.max),
        ];
        if let Some((_, us)) = known.iter().find(|known| known.0 == percentile) {
            return us / 1e3;
        }
        let buckets = &self.result.load.histogram;
        let total: u64 = buckets.iter().map(|bucket| bucket.1).sum();
        let mut left = (total as f64 * percentile / 100.0).ceil();
        for (upper_us, count) in buckets {
            left -= *count as f64;
            if left <= 0.0 {
                return upper_us.min(latency.max) / 1e3;
            }
        }
        latency.max / 1e3
    }

    /// Responses after which the connection stayed open.
    pub(super) fn kept_alive(&self) -> u64 {
        let connecting = self.result.load.connecting.as_ref();
        let opened = connecting.map_or(0, |connecting| connecting.opened);
        let replaced = opened.saturating_sub(self.result.connections);
        self.requests.succeeded.saturating_sub(replaced)
    }

    /// The part of the seconds whose rate is within one standard deviation of the mean, in per cent.
    pub(super) fn seconds_near_the_mean(&self, mean: f64, stdev: f64) -> f64 {
        let rates = &self.result.rate_series;
        let near = (mean - stdev)..=(mean + stdev);
        let within = rates.iter().filter(|rate| near.contains(*rate)).count();
        within as f64 / rates.len().max(1) as f64 * 100.0
    }

    /// The part of the latencies within one standard deviation of the mean, in per cent.
    pub(super) fn near_the_mean(&self) -> f64 {
        self.near_the_mean_of(&self.latency)
    }

    /// The part of the latencies within one standard deviation of the mean of `latency`, in per cent.
    pub(super) fn near_the_mean_of(&self, latency: &Latency) -> f64 {
        let near = (latency.mean - latency.stdev)..=(latency.mean + latency.stdev);
        let buckets = &self.result.load.histogram;
        let within = buckets.iter().filter(|bucket| near.contains(&bucket.0));
        let total: u64 = buckets.iter().map(|bucket| bucket.1).sum();
        within.map(|bucket| bucket.1).sum::<u64>() as f64 / total.max(1) as f64 * 100.0
    }
}

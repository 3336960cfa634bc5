//! What the load lab judges and writes, for `tidewire.bench`: the load itself is Python's.

use crate::errors::{Failure, argument};
use pyo3::prelude::*;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use tidewire_load::report::{Bottleneck, LatencyOrigin, Report, save_all, terminal};
use tidewire_load::stats::StatsSource;
use tidewire_load::verdict::{coefficient_of_variation, cpu_share};
use tidewire_load::{Accounting, Recorder, bottleneck, preflight, resources, verdict};

/// Latencies, in nanoseconds.
#[pyclass(module = "tidewire._native")]
pub(crate) struct LatencyRecorder {
    recorder: Recorder,
}

#[pymethods]
impl LatencyRecorder {
    #[new]
    fn new() -> Self {
        Self {
            recorder: Recorder::new(),
        }
    }

    /// Records latencies as they stand in an array of 64-bit numbers of this machine.
    fn record(&mut self, latencies_ns: &[u8]) -> PyResult<()> {
        let (latencies, rest) = latencies_ns.as_chunks::<8>();
        if !rest.is_empty() {
            return Err(argument("an array of 64-bit numbers is needed").into());
        }
        for latency in latencies {
            self.recorder.record_ns(u64::from_ne_bytes(*latency));
        }
        Ok(())
    }

    /// The distribution as a report has it, in JSON; `None` if nothing was recorded.
    fn summary(&self, origin: &str) -> PyResult<Option<String>> {
        let origin: LatencyOrigin = parsed(&format!("\"{origin}\""))?;
        let summary = self.recorder.summary(origin);
        Ok(summary.map(|summary| written(&summary)))
    }
}

/// The machine, in JSON.
#[pyfunction]
pub(crate) fn lab_machine() -> String {
    written(&resources::machine())
}

/// What limits so many connections to an address, in JSON. Raises the limit of open files.
#[pyfunction]
pub(crate) fn lab_preflight(connections: u64, address: Option<&str>) -> PyResult<String> {
    let address = address.map(ip).transpose()?;
    Ok(written(&preflight::check(connections, address)))
}

/// The connections that the limit of open files allows. Raises it.
#[pyfunction]
pub(crate) fn lab_connections_room() -> usize {
    preflight::connections_room()
}

/// The processes that listen on an address of this machine.
#[pyfunction]
pub(crate) fn lab_listener_pids(address: &str, port: u16) -> PyResult<Vec<u32>> {
    Ok(resources::listener_pids(SocketAddr::new(
        ip(address)?,
        port,
    )))
}

/// Processor time in seconds and resident memory in bytes, of some processes together.
#[pyfunction]
pub(crate) fn lab_usage(pids: Vec<u32>) -> Option<(f64, u64)> {
    let usage = resources::processes_usage(&pids)?;
    Some((usage.cpu.as_secs_f64(), usage.rss_bytes))
}

/// A server's own counters: delivered, refused, deliveries.
#[pyfunction]
pub(crate) fn lab_counters(
    py: Python<'_>,
    address: &str,
    port: u16,
) -> PyResult<(u64, u64, Option<u64>)> {
    let address = SocketAddr::new(ip(address)?, port);
    let counts = py.detach(|| StatsSource { address }.read());
    let counts = counts.map_err(|error| {
        let fault = crate::errors::Fault::Peer;
        Failure::new("TidewireError", "NO_COUNTERS", fault, error)
    })?;
    Ok((counts.delivered, counts.refused, counts.deliveries))
}

/// Who was the limit: processor time of the busiest process of the generator and thread of the server, as a share
/// of the time, and that of all together as a share of all cores.
#[pyfunction]
pub(crate) fn lab_bottleneck(
    client_s: f64,
    server_s: Option<f64>,
    together_s: f64,
    duration_s: f64,
    cores: u32,
) -> &'static str {
    let share = |cpu_s| cpu_share(cpu_s, duration_s, 1);
    let found = bottleneck(share(client_s), server_s.map(share));
    let machine = bottleneck(cpu_share(together_s, duration_s, cores), None);
    let is_machine_full = server_s.is_some() && machine != Bottleneck::None;
    match found {
        Bottleneck::None if is_machine_full => Bottleneck::Both.as_str(),
        found => found.as_str(),
    }
}

/// The verdict over an account, and why: `windows` counts what was confirmed in each quarter of a second.
#[expect(clippy::too_many_arguments, reason = "each is a part of the account")]
#[pyfunction]
pub(crate) fn lab_verdict(
    sends: bool,
    offered: u64,
    confirmed: u64,
    delivered: Option<u64>,
    refused: Option<u64>,
    attempted: u64,
    failed: u64,
    pings: u64,
    pongs_lost: u64,
    limit: &str,
    saturating: bool,
    windows: Vec<u64>,
) -> PyResult<(&'static str, Vec<String>)> {
    let account = Accounting {
        sends,
        offered,
        confirmed,
        delivered,
        refused,
        connections_attempted: attempted,
        connections_failed: failed,
        pings_sent: pings,
        pongs_lost,
    };
    let limit: Bottleneck = parsed(&format!("\"{limit}\""))?;
    let noise = coefficient_of_variation(&windows).filter(|_| saturating);
    let (judged, notes) = verdict(&account, limit, saturating, noise);
    Ok((judged.as_str(), notes))
}

/// Writes a report, in JSON, to a directory in all forms: the page's path, the tables, and the exit code.
#[pyfunction]
pub(crate) fn lab_save(report: &str, directory: PathBuf) -> PyResult<(PathBuf, String, u8)> {
    let report: Report = parsed(report)?;
    let saved = save_all(&report, &directory).map_err(argument)?;
    Ok((saved.html, terminal::render(&report), report.exit_code()))
}

fn ip(address: &str) -> Result<IpAddr, Failure> {
    let parsed = address.parse();
    parsed.map_err(|_| argument(format!("{address} is no IP address")))
}

fn parsed<T: serde::de::DeserializeOwned>(json: &str) -> Result<T, Failure> {
    serde_json::from_str(json).map_err(argument)
}

fn written(value: &impl serde::Serialize) -> String {
    // Strings, numbers and lists always have a JSON form.
    serde_json::to_string(value).unwrap_or_default()
}

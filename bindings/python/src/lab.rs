//! Verdicts and reports of the load lab, for `tidewire.bench`, whose load is written in Python.

use crate::errors::{Failure, argument};
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;
use tidewire_load::accounting::resources;
use tidewire_load::accounting::stats::StatsSource;
use tidewire_load::fleet::preflight;
use tidewire_load::options::load::LoadOptions;
use tidewire_load::plan::load::{self, LoadPlan};
use tidewire_load::report::{LatencyOrigin, Report, save_all, terminal};
use tidewire_load::verdict::evidence::Evidence;
use tidewire_load::{Progress, Recorder, RunLive, judge};

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

/// The limits for this number of connections to an address, in JSON. Raises the limit of open files.
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

/// A server's own counters: delivered, refused by reason, deliveries.
#[pyfunction]
pub(crate) fn lab_counters(
    py: Python<'_>,
    address: &str,
    port: u16,
) -> PyResult<(u64, BTreeMap<String, u64>, Option<u64>)> {
    let address = SocketAddr::new(ip(address)?, port);
    let counts = py.detach(|| StatsSource { address }.read());
    let counts = counts.map_err(|error| {
        let fault = crate::errors::Fault::Peer;
        Failure::new("TidewireError", "NO_COUNTERS", fault, error)
    })?;
    Ok((counts.delivered, counts.refused_by, counts.deliveries))
}

/// The verdict over evidence, in JSON as `tidewire_load::verdict::evidence::Evidence` has it: the verdict, the names of the
/// doubts, the notes, the bottleneck, and what each side used of its processor time.
#[pyfunction]
#[expect(clippy::type_complexity, reason = "a tuple is what Python takes apart")]
pub(crate) fn lab_judge(
    evidence: &str,
) -> PyResult<(
    &'static str,
    Vec<&'static str>,
    Vec<String>,
    &'static str,
    f64,
    Option<f64>,
    Option<f64>,
)> {
    let evidence: Evidence = parsed(evidence)?;
    let judged = judge(&evidence);
    let doubts = judged.doubts.iter().map(|doubt| doubt.name()).collect();
    let usage = &evidence.usage;
    let offered_per_s = evidence.pace.map(|pace| pace.offered_per_s());
    Ok((
        judged.verdict.as_str(),
        doubts,
        judged.notes,
        usage.bottleneck().as_str(),
        usage.client_share(),
        usage.server_share(),
        offered_per_s,
    ))
}

/// The processes that serve an address of this machine: the listener and all that it has started.
#[pyfunction]
pub(crate) fn lab_tree(pids: Vec<u32>) -> Vec<u32> {
    resources::process_tree(&pids).into_iter().collect()
}

/// Checks that a process is the server at an address of this machine.
#[pyfunction]
pub(crate) fn lab_check_pid(pid: u32, address: &str, port: u16) -> PyResult<()> {
    let target = SocketAddr::new(ip(address)?, port);
    Ok(tidewire_load::check_server_pid(pid, target).map_err(argument)?)
}

/// The cores that a process may run on.
#[pyfunction]
pub(crate) fn lab_cores(pid: u32) -> Vec<u32> {
    resources::allowed_cores(pid).into_iter().collect()
}

/// The URL as a report may show it, without what may be secret.
#[pyfunction]
pub(crate) fn lab_redacted(url: &str) -> String {
    tidewire_load::worker::target::redacted(url)
}

/// Tries whether a report can be written to a directory, which is made.
#[pyfunction]
pub(crate) fn lab_try_out(directory: PathBuf) -> PyResult<()> {
    Ok(tidewire_load::report::try_directory(&directory).map_err(argument)?)
}

/// The tables of a report in JSON, and the exit code.
#[pyfunction]
pub(crate) fn lab_tables(report: &str) -> PyResult<(String, u8)> {
    let report: Report = parsed(report)?;
    Ok((terminal::render(&report), report.exit_code()))
}

/// Writes a report, in JSON, to a directory in all forms: the page's path.
#[pyfunction]
pub(crate) fn lab_save(report: &str, directory: PathBuf) -> PyResult<PathBuf> {
    let report: Report = parsed(report)?;
    let saved = save_all(&report, &directory).map_err(argument)?;
    Ok(saved.html)
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

/// Loads a service and gives the report in JSON and its exit code. Other threads of Python go on meanwhile, and a
/// signal such as Ctrl-C ends the load early, with a partial report; before its start it is raised.
#[pyfunction]
#[pyo3(signature = (url, options, progress=None))]
pub(crate) fn lab_load(
    py: Python<'_>,
    url: &str,
    options: &str,
    progress: Option<Py<PyAny>>,
) -> PyResult<(String, u8)> {
    let options = LoadOptions::from_json(url, options).map_err(argument)?;
    let plan = planned(py, options)?;
    let stop = AtomicBool::new(false);
    let mut watch = Watch {
        progress,
        stop: &stop,
        raised: None,
    };
    let outcome = py.detach(|| load::run(&plan, &mut watch, &stop));
    match watch.raised {
        // Ctrl-C returns the partial report, so that no measurement is lost.
        Some(error) if !error.is_instance_of::<PyKeyboardInterrupt>(py) => return Err(error),
        _ => {}
    }
    let report = outcome.map_err(argument)?;
    Ok((written(&report), report.exit_code()))
}

/// The plan. The name of the service is resolved and files are read on another thread, so that
/// other threads of Python go on, and a signal ends the wait at once.
fn planned(py: Python<'_>, options: LoadOptions) -> PyResult<LoadPlan> {
    let (sender, mut receiver) = mpsc::channel();
    let plan = move || {
        // After a signal nobody waits for it.
        let _ = sender.send(options.plan());
    };
    let started = thread::Builder::new().name("plan".to_owned()).spawn(plan);
    started.map_err(argument)?;
    loop {
        let (plan, same) = py.detach(move || (receiver.recv_timeout(SIGNALS_EVERY), receiver));
        receiver = same;
        match plan {
            Ok(plan) => return Ok(plan.map_err(argument)?),
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(argument("the plan could not be made").into());
            }
        }
    }
}

/// How often a waiting thread looks for signals.
const SIGNALS_EVERY: Duration = Duration::from_millis(50);

/// Shows a load to Python, and looks for signals.
struct Watch<'a> {
    progress: Option<Py<PyAny>>,
    stop: &'a AtomicBool,
    raised: Option<PyErr>,
}

impl Progress for Watch<'_> {
    fn tick(&mut self, live: &RunLive) {
        if self.raised.is_some() {
            return;
        }
        let shown = Python::attach(|py| {
            py.check_signals()?;
            if let Some(progress) = &self.progress {
                let service = &live.service;
                progress.call1(
                    py,
                    (
                        service.elapsed.as_secs_f64(),
                        live.rate_per_s,
                        service.requests.succeeded,
                        service.requests.failed,
                        service.connected,
                    ),
                )?;
            }
            Ok(())
        });
        if let Err(error) = shown {
            self.raised = Some(error);
            self.stop.store(true, Ordering::Relaxed);
        }
    }
}

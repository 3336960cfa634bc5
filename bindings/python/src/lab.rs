//! The load lab: loads and their reports, and the histograms of `tidewire.worker`.

use crate::errors::{Failure, argument};
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;
use tidewire_load::options::load::LoadOptions;
use tidewire_load::plan::load::{self, LoadPlan};
use tidewire_load::report::{Report, save_all, terminal};
use tidewire_load::{Progress, Recorder, RunLive};

/// The buckets of latencies in nanoseconds, which stand in an array of 64-bit numbers of this machine: a value of
/// each, and how many are in it.
#[pyfunction]
pub(crate) fn latency_buckets(latencies_ns: &[u8]) -> PyResult<Vec<(u64, u64)>> {
    let (latencies, rest) = latencies_ns.as_chunks::<8>();
    if !rest.is_empty() {
        return Err(argument("an array of 64-bit numbers is needed").into());
    }
    let mut recorder = Recorder::new();
    for latency in latencies {
        recorder.record_ns(u64::from_ne_bytes(*latency));
    }
    Ok(recorder.buckets())
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

fn parsed<T: serde::de::DeserializeOwned>(json: &str) -> Result<T, Failure> {
    serde_json::from_str(json).map_err(argument)
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
    let written = serde_json::to_string(&report).map_err(argument)?;
    Ok((written, report.exit_code()))
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

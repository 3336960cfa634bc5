//! A load for programs, with results as typed values.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::OptionError;
use super::load::LoadOptions;
use crate::plan::load::{self, LoadError};
use crate::plan::observe::{Progress, RunLive};
use crate::report::{Latency, Report, TestResult};

/// A load of an HTTP or WebSocket service.
///
/// ```no_run
/// use std::time::Duration;
/// use tidewire_load::{Load, LoadOptions};
///
/// let outcome = Load::new(LoadOptions {
///     connections: 100,
///     duration: Some(Duration::from_secs(10)),
///     expectations: vec!["p99<20ms".parse()?],
///     ..LoadOptions::new("http://127.0.0.1:8080/")
/// })
/// .run()?;
/// println!("{:.0} requests/s", outcome.rate_per_s());
/// assert!(outcome.is_as_expected(), "{:?}", outcome.result().notes);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Load {
    options: LoadOptions,
    on_progress: Option<OnProgress>,
    stop: Arc<AtomicBool>,
}

type OnProgress = Box<dyn FnMut(&RunLive)>;

impl std::fmt::Debug for Load {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Load")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// The reason for which a load has no outcome.
#[derive(Debug, thiserror::Error)]
pub enum RunLoadError {
    /// An option is wrong: the caller's mistake.
    #[error(transparent)]
    Option(#[from] OptionError),
    /// The load cannot run on this machine, or the generator failed.
    #[error(transparent)]
    Load(#[from] LoadError),
}

impl Load {
    /// A load of a URL with the defaults of [`LoadOptions::new`], or with other options.
    #[must_use]
    pub fn new(options: impl Into<LoadOptions>) -> Self {
        Self {
            options: options.into(),
            on_progress: None,
            stop: Arc::default(),
        }
    }

    /// Called about twenty times per second while the load runs, on the thread that runs it.
    #[must_use]
    pub fn on_progress(mut self, show: impl FnMut(&RunLive) + 'static) -> Self {
        self.on_progress = Some(Box::new(show));
        self
    }

    /// Set this flag from any thread to end the load early; its report is then partial.
    #[must_use]
    pub fn stop_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stop)
    }

    /// Runs the load and blocks until it ends.
    ///
    /// # Errors
    /// An option is wrong, or the load cannot run here. A service that fails is an outcome, not an error.
    pub fn run(self) -> Result<LoadOutcome, RunLoadError> {
        let plan = self.options.plan()?;
        let mut shown = Shown(self.on_progress);
        let report = load::run(&plan, &mut shown, &self.stop)?;
        Ok(LoadOutcome {
            report,
            interrupted: self.stop.load(Ordering::Relaxed),
        })
    }
}

struct Shown(Option<OnProgress>);

impl Progress for Shown {
    fn tick(&mut self, live: &RunLive) {
        if let Some(show) = &mut self.0 {
            show(live);
        }
    }
}

/// The outcome of a load.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadOutcome {
    report: Report,
    interrupted: bool,
}

impl LoadOutcome {
    /// The complete report, as it is written to files.
    #[must_use]
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// The result of the load.
    ///
    /// # Panics
    /// Never: every load has a result.
    #[must_use]
    pub fn result(&self) -> &TestResult {
        &self.report.results[0]
    }

    /// Successful requests or messages per second.
    #[must_use]
    pub fn rate_per_s(&self) -> f64 {
        self.result().rate_per_s.unwrap_or(0.0)
    }

    /// Latency of the successful requests; `None` without any.
    #[must_use]
    pub fn latency(&self) -> Option<&Latency> {
        self.result().latency_us.as_ref()
    }

    /// Failed requests or messages.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.result()
            .load
            .requests
            .map_or(0, |requests| requests.failed)
    }

    /// Whether every expectation was kept.
    #[must_use]
    pub fn is_as_expected(&self) -> bool {
        let mut expectations = self.result().load.expectations.iter();
        expectations.all(|expectation| expectation.kept)
    }

    /// Whether the load was ended by its stop flag.
    #[must_use]
    pub fn is_interrupted(&self) -> bool {
        self.interrupted
    }

    /// The exit code that `tidewire load` would have.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        self.report.exit_code()
    }
}

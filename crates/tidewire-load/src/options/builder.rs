//! Builder of a load for programs, with results as typed values.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::OptionError;
use super::body::BodyOptions;
use super::load::LoadOptions;
use super::request::statuses;
use crate::plan::load::{self, FindLimit, LoadError};
use crate::plan::observe::{Progress, RunLive};
use crate::report::{Latency, Report, TestResult};
use crate::worker::messages::Matching;

/// A load of an HTTP or WebSocket service.
///
/// ```no_run
/// use std::time::Duration;
/// use tidewire_load::Load;
///
/// let outcome = Load::new("http://127.0.0.1:8080/")
///     .connections(100)
///     .duration(Duration::from_secs(10))
///     .expect("p99<20ms")?
///     .run()?;
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
    /// A load of a URL with the defaults of [`LoadOptions::new`].
    #[must_use]
    pub fn new(url: &str) -> Self {
        Self::with_options(LoadOptions::new(url))
    }

    /// A load with options for which this builder has no method.
    #[must_use]
    pub fn with_options(options: LoadOptions) -> Self {
        Self {
            options,
            on_progress: None,
            stop: Arc::default(),
        }
    }

    /// Connections in total. Default 50.
    #[must_use]
    pub fn connections(mut self, connections: usize) -> Self {
        self.options.connections = connections;
        self
    }

    /// The duration. Default 10 s, without a number of requests.
    #[must_use]
    pub fn duration(mut self, duration: Duration) -> Self {
        self.options.duration = Some(duration);
        self
    }

    /// The number of requests.
    #[must_use]
    pub fn requests(mut self, requests: u64) -> Self {
        self.options.requests = Some(requests);
        self
    }

    /// Requests per second over all connections, with latencies from the time at which each was
    /// due.
    #[must_use]
    pub fn rate_per_s(mut self, rate: f64) -> Self {
        self.options.rate_per_s = Some(rate);
        self
    }

    /// Requests or messages per second on each connection.
    #[must_use]
    pub fn messages_per_s(mut self, rate: f64) -> Self {
        self.options.each_per_s = Some(rate);
        self
    }

    /// Searches for the highest rate at which the expectations hold.
    #[must_use]
    pub fn find_limit(mut self, search: FindLimit) -> Self {
        self.options.find_limit = Some(search);
        self
    }

    /// The method of the request.
    #[must_use]
    pub fn method(mut self, method: &str) -> Self {
        self.options.request.method = Some(method.to_uppercase());
        self
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        let header = (name.to_owned(), value.to_owned());
        self.options.request.headers.push(header);
        self
    }

    /// The body of the request.
    #[must_use]
    pub fn body(mut self, body: BodyOptions) -> Self {
        self.options.request.body = Some(body);
        self
    }

    /// The message of a WebSocket load, as a template.
    #[must_use]
    pub fn message(mut self, message: &str) -> Self {
        self.options.messages.message = Some(message.to_owned());
        self
    }

    /// The evidence that a message of a WebSocket load has arrived.
    #[must_use]
    pub fn reply(mut self, matching: Matching) -> Self {
        self.options.messages.matching = matching;
        self
    }

    /// A file with several requests or messages.
    #[must_use]
    pub fn scenario(mut self, path: &Path) -> Self {
        self.options.scenario = Some(PathBuf::from(path));
        self
    }

    /// The statuses that count as a success, such as `2xx,404`.
    ///
    /// # Errors
    /// The text is not a list of statuses.
    pub fn expect_status(mut self, text: &str) -> Result<Self, OptionError> {
        self.options.request.statuses = Some(statuses(text)?);
        Ok(self)
    }

    /// The required value of a figure, such as `p99<20ms`.
    ///
    /// # Errors
    /// The text is not an expectation.
    pub fn expect(mut self, text: &str) -> Result<Self, OptionError> {
        let expectation = text.parse().map_err(OptionError::new)?;
        self.options.expectations.push(expectation);
        Ok(self)
    }

    /// Ends the load when a figure is known precisely enough, such as `p99:5%`.
    ///
    /// # Errors
    /// The text is not a figure and a precision.
    pub fn confidence(mut self, text: &str) -> Result<Self, OptionError> {
        self.options.precision = Some(text.parse().map_err(OptionError::new)?);
        Ok(self)
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

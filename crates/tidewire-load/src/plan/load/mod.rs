//! A load of a service: connects its users, sends as planned, judges the results, and reports.

mod assess;
mod conclude;
mod ending;
mod figures;
mod limit;
mod watch;

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tidewire_net::Address;

use crate::accounting::failure::NO_PROTOCOL;
use crate::accounting::generator::{GeneratorCores, Moment};
use crate::accounting::precision::Precision;
use crate::accounting::resources;
use crate::accounting::server::{ServerPidError, ServerWatch};
use crate::accounting::tally::Tally;
use crate::fleet::FleetError;
use crate::fleet::preflight::{self, Shortage};
use crate::fleet::service::{PhasePlan, Processes, ServiceFleet, Workers};
use crate::plan::memory::EmptyMemory;
use crate::plan::observe::Progress;
use crate::plan::run::now_rfc3339;
use crate::report::model::INTERRUPTED;
use crate::report::{self, LatencyOrigin, Plan, Report, TestResult, Verdict};
use crate::verdict::expectation::Expectation;
use crate::worker::rhythm::Rhythm;
use crate::worker::service::order::{DialogueKind, ServiceSetup};
use crate::worker::target::TargetTls;
use assess::{assess, has_outcome};
use conclude::Concluding;
pub use limit::FindLimit;
use watch::Watcher;

/// The service to load, the plan and the expectations.
#[derive(Debug, Clone)]
pub struct LoadPlan {
    /// The name of the result: `http`, `http2` or `websocket`.
    pub test: &'static str,
    /// The URL without secrets.
    pub url: String,
    /// The users, their target, and their requests.
    pub setup: ServiceSetup,
    /// The rate.
    pub rhythm: Rhythm,
    /// The duration; `None` until the requests are sent.
    pub longest: Option<Duration>,
    /// The largest number of requests.
    pub requests: Option<u64>,
    /// Duration of the load before the measurement, which no figure includes.
    pub warm_up: Duration,
    /// The expectations of the figures.
    pub expectations: Vec<Expectation>,
    /// Ends the load when an expectation has been broken for this long.
    pub abort_after: Option<Duration>,
    /// Ends the load when a figure is known this precisely.
    pub precision: Option<Precision>,
    /// Searches for the highest rate at which every expectation holds.
    pub find_limit: Option<FindLimit>,
    /// Measures the memory of both sides: per connection, and of the server after they are closed.
    pub memory: bool,
    /// The server's process, if its listening port does not identify it.
    pub server_pid: Option<u32>,
    /// The command line, for the report.
    pub command: Option<String>,
    /// The workers, if they are processes of their own.
    pub workers: Option<Workers>,
}

/// The reason for which there is no report of a load.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// This machine cannot carry the load out.
    #[error("{0}")]
    Impossible(Shortage),
    /// The process that was named as the server's does not serve the target.
    #[error(transparent)]
    ServerPid(#[from] ServerPidError),
    /// The generator itself failed.
    #[error(transparent)]
    Fleet(#[from] FleetError),
    /// Every connection was refused because it offered only HTTP/1.1.
    #[error("the server does not offer HTTP/1.1")]
    OnlyHttp2,
}

/// Runs a load and reports. When `stop` is set, it ends soon with a partial report.
///
/// A service that refuses, lies or does not exist makes requests fail, not the load. One that offers nothing but HTTP/2 over
/// TLS gets it.
///
/// # Errors
/// [`LoadError`].
pub fn run(
    plan: &LoadPlan,
    progress: &mut dyn Progress,
    stop: &AtomicBool,
) -> Result<Report, LoadError> {
    check_possible(plan)?;
    match run_as_planned(plan, progress, stop) {
        Err(LoadError::OnlyHttp2) => run_as_planned(&plan.over_http2(), progress, stop),
        other => other,
    }
}

fn run_as_planned(
    plan: &LoadPlan,
    progress: &mut dyn Progress,
    stop: &AtomicBool,
) -> Result<Report, LoadError> {
    let mut report = begin_report(plan);
    let tcp = match plan.setup.own().endpoint.address {
        Address::Tcp(address) => Some(address),
        Address::Unix(_) => None,
    };
    let server = match (tcp, plan.server_pid) {
        (Some(address), named) => ServerWatch::find(address, named, plan.setup.users as u64)?,
        (None, Some(pid)) => ServerWatch::named(pid)?,
        (None, None) => ServerWatch::default(),
    };
    let fleet = match &plan.workers {
        None => ServiceFleet::start(plan.setup.clone())?,
        Some(workers) => ServiceFleet::start_processes(plan.setup.clone(), workers, stop)?,
    };
    let mut empty = EmptyMemory::of(&server);
    empty.add_workers(fleet.processes_live().rss_bytes);
    if let Some(known) = &mut report.plan {
        known.threads = u32::try_from(fleet.setup().workers).ok();
    }
    let mut load = Loading {
        plan,
        cores: GeneratorCores::of(fleet.processes().and_then(Processes::cores_elsewhere)),
        fleet,
        empty,
        server,
        progress,
        stop,
        connected: Tally::new(0, 1),
    };
    let mut results = load.run()?;
    // Whoever ends later has done its work.
    let is_short = load.fleet.processes().is_some_and(Processes::is_short);
    if load.lost_workers() > 0 {
        for result in &mut results {
            result.verdict = Verdict::Failed;
            result.doubts.push(WORKER_ENDED.to_owned());
        }
    }
    // Connections end with a closing handshake, also those of a load that was interrupted.
    load.fleet.close()?;
    report.target.server = load.connected.server.clone();
    let is_interrupted = stop.load(Ordering::Relaxed);
    if let (Some(processes), Some(result)) = (load.fleet.processes(), results.first_mut()) {
        result.notes.extend(processes.notes());
    }
    drop(load);
    for result in &results {
        progress.finished(result);
    }
    report.results = results;
    if is_interrupted {
        report.partial = true;
        report.partial_reason = Some(INTERRUPTED.into());
    } else if is_short {
        report.partial = true;
        report.partial_reason = Some("a worker has ended".into());
    }
    Ok(report)
}

fn begin_report(plan: &LoadPlan) -> Report {
    let target = report::Target {
        url: plan.url.clone(),
        server: None,
        embedded: false,
    };
    let mut report = Report::new(resources::machine(), target);
    report.started_at = Some(now_rfc3339());
    let address = match plan.setup.own().endpoint.address {
        Address::Tcp(address) => Some(address.ip()),
        Address::Unix(_) => None,
    };
    // Other processes have limits of their own.
    if plan.workers.is_none() {
        report.preflight = preflight::check(plan.setup.users as u64, address);
    }
    report.plan = Some(Plan {
        tests: vec![plan.test.to_owned()],
        connection_tiers: vec![plan.setup.users as u64],
        pace: Some(plan.pace_in_words()),
        duration_s: plan.longest.map(|longest| longest.as_secs_f64()),
        threads: u32::try_from(plan.setup.workers).ok(),
        source_addresses: u32::try_from(plan.setup.sources.len())
            .ok()
            .filter(|count| *count > 1),
        command: plan.command.clone(),
        ..Plan::default()
    });
    report
}

/// Reports limits of this machine before the start.
fn check_possible(plan: &LoadPlan) -> Result<(), LoadError> {
    // Those machines have limits of their own.
    if plan.workers.is_some() {
        return Ok(());
    }
    let setup = &plan.setup;
    let (address, sources) = match setup.own().endpoint.address {
        Address::Tcp(address) => (Some(address.ip()), setup.sources.len() as u64),
        // A Unix socket needs no port, like a loopback address with free sources.
        Address::Unix(_) => (Some(Ipv4Addr::LOCALHOST.into()), 0),
    };
    // Ports are those to one server, and a loopback address with free sources needs none.
    let ports = preflight::shortage(setup.users as u64, address, sources);
    let files = preflight::shortage(setup.connections_max(), Some(Ipv4Addr::LOCALHOST.into()), 0);
    match files.or(ports) {
        Some(shortage) => Err(LoadError::Impossible(shortage)),
        None => Ok(()),
    }
}

impl LoadPlan {
    fn pace_in_words(&self) -> String {
        match self.find_limit {
            Some(_) => "open loop, highest rate searched".to_owned(),
            None => self.rhythm.in_words(Some(self.setup.in_flight)),
        }
    }

    /// The same load over HTTP/2.
    #[must_use]
    pub fn over_http2(&self) -> Self {
        let mut plan = self.clone();
        plan.test = HTTP2;
        for target in &mut plan.setup.targets {
            target.dialogue = DialogueKind::Http2;
            let tls = target.endpoint.tls.take();
            target.endpoint.tls = tls.map(TargetTls::over_http2);
        }
        if let Some(workers) = &mut plan.workers {
            workers.load.over_http2 = true;
        }
        plan
    }

    /// Whether connections are opened before the clock starts.
    fn connects_first(&self) -> bool {
        self.setup.growth.is_constant() && self.setup.keeps_alive
    }
}

/// A load that runs.
struct Loading<'a> {
    plan: &'a LoadPlan,
    fleet: ServiceFleet,
    cores: GeneratorCores,
    server: ServerWatch,
    empty: EmptyMemory,
    progress: &'a mut dyn Progress,
    stop: &'a AtomicBool,
    /// The result of connecting.
    connected: Tally,
}

impl Loading<'_> {
    fn run(&mut self) -> Result<Vec<TestResult>, LoadError> {
        if self.plan.connects_first() {
            self.connect()?;
            if self.is_refused_http1() {
                return Err(LoadError::OnlyHttp2);
            }
            if self.connected.opened == 0 {
                return Ok(vec![self.nobody_connected()]);
            }
        }
        if !self.plan.warm_up.is_zero() && !self.is_stopped() {
            self.warm_up()?;
        }
        let mut result = match &self.plan.find_limit {
            Some(search) => self.find_limit(search)?,
            None => self.send_as_planned()?,
        };
        if self.plan.setup.script.has_teardown() && !self.is_stopped() {
            self.tear_down(&mut result)?;
        }
        if self.plan.memory {
            self.weigh(&mut result)?;
        }
        if has_outcome(&result) {
            result.load.assessment = Some(assess(&result));
        }
        Ok(vec![result])
    }

    fn send_as_planned(&mut self) -> Result<TestResult, LoadError> {
        let phase = PhasePlan {
            rhythm: self.plan.rhythm.clone(),
            longest: self.plan.longest,
            requests: self.plan.requests,
            revives: false,
            is_teardown: false,
        };
        self.progress.phase_started("sending", phase.longest);
        let mut result = TestResult::new(self.plan.test, self.plan.setup.users as u64);
        let seen = self.measure(&phase, true)?;
        let seen = self.conclude(&mut result, seen, &self.plan.expectations);
        self.note_server(&seen);
        Ok(result)
    }

    /// Lets users send the steps of their teardown. Only their rows are in the result.
    fn tear_down(&mut self, result: &mut TestResult) -> Result<(), LoadError> {
        let phase = PhasePlan {
            rhythm: Rhythm::Closed,
            longest: Some(TEARDOWN_MAX),
            requests: None,
            revives: false,
            is_teardown: true,
        };
        self.progress.phase_started("tearing down", phase.longest);
        let mut watcher = Watcher::new(self.stop, &mut *self.progress, &self.server, &self.cores);
        let tally = self.fleet.run(&phase, &mut |live| watcher.look(live))?;
        let kinds = self.plan.setup.script.kinds.iter();
        let rows = self.targets(&tally, LatencyOrigin::Sent, None);
        let mut unsuccessful = 0;
        for step in kinds.flat_map(|kind| kind.teardown.clone()) {
            let (Some(row), Some(place)) = (rows.get(step), result.load.targets.get_mut(step))
            else {
                continue;
            };
            unsuccessful += row.requests.unsuccessful();
            place.clone_from(row);
            // Another time than that of the result.
            place.latency_over_time = None;
        }
        if unsuccessful > 0 {
            result.notes.push(format!(
                "{unsuccessful} requests of the teardown failed; they are only in the rows of their requests"
            ));
        }
        Ok(())
    }

    /// Whether the server refuses every connection because it does not offer HTTP/1.1.
    fn is_refused_http1(&self) -> bool {
        let mut errors = self.connected.errors.keys();
        let targets = &self.plan.setup.targets;
        matches!(&targets[..], [one] if matches!(one.dialogue, DialogueKind::Http))
            && self.connected.opened == 0
            && !self.connected.errors.is_empty()
            && errors.all(|name| *name == NO_PROTOCOL)
    }

    fn is_stopped(&self) -> bool {
        let is_short = self.fleet.processes().is_some_and(Processes::is_short);
        is_short || self.is_interrupted()
    }

    /// Whether the user has ended the load.
    fn is_interrupted(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Workers that have ended.
    fn lost_workers(&self) -> usize {
        self.fleet.processes().map_or(0, Processes::lost)
    }

    fn note_server(&mut self, tally: &Tally) {
        if self.connected.server.is_none() {
            self.connected.server.clone_from(&tally.server);
        }
    }

    fn connect(&mut self) -> Result<(), LoadError> {
        self.progress.phase_started("connecting", None);
        let mut watcher = Watcher::new(self.stop, &mut *self.progress, &self.server, &self.cores);
        self.connected = self.fleet.connect(&mut |live| watcher.look(live))?;
        Ok(())
    }

    fn warm_up(&mut self) -> Result<(), LoadError> {
        let phase = PhasePlan {
            rhythm: self.plan.rhythm.clone(),
            longest: Some(self.plan.warm_up),
            requests: None,
            revives: false,
            is_teardown: false,
        };
        self.progress.phase_started("warming up", phase.longest);
        let mut watcher = Watcher::new(self.stop, &mut *self.progress, &self.server, &self.cores);
        let warmed = self.fleet.run(&phase, &mut |live| watcher.look(live))?;
        self.note_server(&warmed);
        self.connected.ended.merge(&warmed.ended);
        Ok(())
    }

    /// What the generator has used so far.
    fn moment(&self) -> Moment {
        let workers_cpu = self.fleet.processes().map(Processes::cpu_here);
        Moment::now(&self.cores, self.fleet.stopped()).with_workers(workers_cpu.unwrap_or_default())
    }

    /// Runs a phase and measures both sides.
    fn measure(&mut self, phase: &PhasePlan, may_abort: bool) -> Result<Concluding, LoadError> {
        self.server.look(self.connected.peak);
        let before = self.server.sample();
        let started = self.moment();
        let mut watcher = Watcher::new(self.stop, &mut *self.progress, &self.server, &self.cores);
        watcher.ending().without(self.plan.setup.users as u64);
        let delay = self.fleet.processes().map(Processes::delay);
        watcher.ending().delayed(delay.unwrap_or_default());
        if let Some(after) = self.plan.abort_after.filter(|_| may_abort) {
            let steps = self.plan.setup.script.steps.iter();
            let names = steps.map(|step| step.name.clone()).collect();
            watcher
                .ending()
                .abort_after(&self.plan.expectations, names, after);
        }
        if let Some(precision) = self.plan.precision.as_ref().filter(|_| may_abort) {
            watcher.ending().when_known(precision);
        }
        let tally = self.fleet.run(phase, &mut |live| watcher.look(live))?;
        let samples = watcher.into_samples();
        let ended = self.moment();
        let after = self.server.sample();
        Ok(Concluding {
            tally,
            rhythm: phase.rhythm.clone(),
            planned: phase.longest.filter(|_| phase.requests.is_none()),
            started,
            ended,
            server: before.zip(after),
            samples,
            interrupted: self.is_interrupted(),
        })
    }
}

/// The doubt about a load of which a worker has ended.
const WORKER_ENDED: &str = "worker_ended";

/// The name of the result of a load over HTTP/2.
pub(crate) const HTTP2: &str = "http2";

/// The longest time for the teardown of all users.
const TEARDOWN_MAX: Duration = Duration::from_secs(30);

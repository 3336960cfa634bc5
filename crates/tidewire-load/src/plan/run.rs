//! A complete run: checks first, then the tests, then the report.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use tidewire_wire::timestamp::write_rfc3339_ms;

use crate::accounting::resources;
use crate::accounting::server::ServerWatch;
use crate::fleet::preflight::{self, Shortage};
pub use crate::plan::bench::options::{
    BenchOptions, DURATION, LIMIT_RESOLUTIONS, PAYLOAD_BYTES, RunError,
};
use crate::plan::bench::{Bench, TestExpectation, TestKind, run_test};
use crate::plan::observe::Progress;
use crate::report::model::{IMPOSSIBLE, INTERRUPTED};
use crate::report::{self, Plan, Report, TestResult, Verdict};
use crate::worker::pace::RATE_PER_S;
use crate::worker::websocket::layer::Layer;
use crate::worker::websocket::profile::Profile;

/// Runs the tests and reports. When `stop` is set, the run ends soon with a partial report.
///
/// A server that refuses, lies or does not exist makes tests fail, not the run.
///
/// # Errors
/// [`RunError`].
pub fn run(
    options: &BenchOptions,
    progress: &mut dyn Progress,
    stop: &AtomicBool,
) -> Result<Report, RunError> {
    if options.tests.is_empty() {
        return Err(RunError::Nothing("tests"));
    }
    if options.tiers.is_empty() {
        return Err(RunError::Nothing("numbers of connections"));
    }
    if options.layer == Layer::Encryption && options.profile != Profile::V1 {
        return Err(RunError::NothingToEncryptWith);
    }
    if options.messages.is_some() && (options.rate_per_s.is_some() || options.confidence.is_some())
    {
        return Err(RunError::TwoEnds);
    }
    check_bounds(options)?;
    check_rate(options)?;
    check_expectations(options)?;
    let mut expectations = options.expectations.iter();
    if options.abort_after.is_some() && !expectations.any(TestExpectation::may_end_a_test) {
        return Err(RunError::NothingToAbortFor);
    }
    if let Some(shortage) = shortage_of_all(options) {
        return Err(RunError::Impossible(shortage));
    }
    let address = options.target.address;
    let mut findings = preflight::check(options.connections_most() as u64, Some(address.ip()));
    if !options.workers.is_empty() {
        // Each worker has a limit of its own.
        findings.retain(|finding| finding.name != preflight::OPEN_FILES);
    }
    let sources = options.sources();
    let target = report::Target {
        url: options.target.url.clone(),
        server: None,
        embedded: options.embedded,
    };
    let mut report = Report::new(resources::machine(), target);
    report.started_at = Some(now_rfc3339());
    report.preflight = findings;
    report.plan = Some(plan(options, sources.len()));

    let connections = options.connections_most() as u64;
    let server = ServerWatch::find(address, options.server_pid, connections)?;
    let mut bench = Bench::new(options, sources, server, progress, stop);
    let failure = run_all(&mut bench, &mut report).err();
    report.target.server = bench.server_name();
    if let Some(language) = bench.language() {
        report.tool.language = language;
    }
    let reason = match failure {
        // Without a result there is nothing to lose.
        Some(error) if report.results.is_empty() => return Err(error),
        Some(error) => Some(error.to_string()),
        None if bench.is_short_of_workers() => Some("a worker has ended".to_owned()),
        None if stop.load(Ordering::Relaxed) => Some(INTERRUPTED.to_owned()),
        None => None,
    };
    report.partial = reason.is_some();
    report.partial_reason = reason;
    Ok(report)
}

/// Runs test after test until one cannot be run or the run is stopped.
fn run_all(bench: &mut Bench<'_>, report: &mut Report) -> Result<(), RunError> {
    let options = bench.options;
    for test in &options.tests {
        for tier in test.tiers(&options.tiers) {
            if bench.is_stopped() {
                return Ok(());
            }
            let rows = match shortage(options, *test, *tier) {
                Some(shortage) => vec![impossible(*test, *tier, shortage)],
                None => run_test(*test, bench, *tier)?,
            };
            report.results.extend(rows);
        }
    }
    Ok(())
}

/// The reason for which this machine cannot run a test with this number of connections.
fn shortage(options: &BenchOptions, test: TestKind, connections: usize) -> Option<Shortage> {
    let connections = match test {
        // Workers that are processes have limits of their own.
        _ if !options.workers.is_empty() => return None,
        // This test ends at the limit of the machine.
        TestKind::ConnectionLimit => return None,
        // Plus one for the publisher.
        TestKind::FanOut => connections.saturating_add(1),
        _ => connections,
    };
    preflight::shortage(connections as u64, Some(options.target.address.ip()), 0)
}

/// The reason for which nothing of the run is possible; `None` if some of it is.
fn shortage_of_all(options: &BenchOptions) -> Option<Shortage> {
    let rows = options.tests.iter().flat_map(|test| {
        let tiers = test.tiers(&options.tiers).iter();
        tiers.map(|tier| shortage(options, *test, *tier))
    });
    let all: Option<Vec<Shortage>> = rows.collect();
    all?.into_iter().min_by_key(|shortage| shortage.connections)
}

/// The row of a test that was not run.
fn impossible(test: TestKind, connections: usize, shortage: Shortage) -> TestResult {
    TestResult {
        verdict: Verdict::Failed,
        doubts: vec![IMPOSSIBLE.to_owned()],
        notes: vec![format!("The test was not run. {shortage}")],
        ..TestResult::new(test.name(), connections as u64)
    }
}

/// Checks for numbers that would make a run without an end, without a message, or beyond any
/// machine.
fn check_bounds(options: &BenchOptions) -> Result<(), RunError> {
    let out = |name, given: String, bounds: String| {
        Err(RunError::OutOfBounds {
            name,
            given,
            bounds,
        })
    };
    if let Some(rate) = options.rate_per_s.filter(|rate| !RATE_PER_S.contains(rate)) {
        let (least, most) = (RATE_PER_S.start(), RATE_PER_S.end());
        let bounds = format!("from {least} to {most} messages per second");
        return out("a rate", rate.to_string(), bounds);
    }
    if options.messages == Some(0) {
        return out(
            "a number of messages",
            "0".to_owned(),
            "at least 1".to_owned(),
        );
    }
    for (name, time) in [
        ("a duration", options.duration),
        ("a sustained duration", options.sustained),
        ("a hold", options.hold),
    ] {
        if !DURATION.contains(&time) {
            let (least, most) = (DURATION.start(), DURATION.end());
            return out(
                name,
                format!("{time:?}"),
                format!("from {least:?} to {most:?}"),
            );
        }
    }
    if !LIMIT_RESOLUTIONS.contains(&options.limit_resolution) {
        let (least, most) = (LIMIT_RESOLUTIONS.start(), LIMIT_RESOLUTIONS.end());
        let bounds = format!("from {least} to {most}");
        return out("a resolution", options.limit_resolution.to_string(), bounds);
    }
    let needs = |tests: &[TestKind]| options.tests.iter().any(|test| tests.contains(test));
    let of_trades = [
        (TestKind::SizeMatrix, &options.sizes),
        (TestKind::Echo, &options.echo_sizes),
    ];
    let sizes = of_trades.into_iter().filter(|(test, _)| needs(&[*test]));
    for bytes in sizes.flat_map(|(_, sizes)| sizes.iter().copied()) {
        if !PAYLOAD_BYTES.contains(&bytes) {
            let (least, most) = (PAYLOAD_BYTES.start(), PAYLOAD_BYTES.end());
            let bounds = format!("a message has from {least} to {most} bytes");
            return out("a payload", format!("{bytes} bytes"), bounds);
        }
    }
    Ok(())
}

/// A rate that no test heeds is a mistake. One that only some heed is noted in the results of the
/// others.
fn check_rate(options: &BenchOptions) -> Result<(), RunError> {
    let tests = &options.tests;
    if options.rate_per_s.is_none() || tests.iter().any(|test| test.has_rate()) {
        return Ok(());
    }
    let names: Vec<&str> = tests.iter().map(|test| test.name()).collect();
    Err(RunError::RateWithoutEffect {
        tests: names.join(", "),
    })
}

/// An expectation of a figure that no test has is a mistake.
fn check_expectations(options: &BenchOptions) -> Result<(), RunError> {
    let is_paced = options.rate_per_s.is_some();
    let mut expectations = options.expectations.iter();
    let without_a_test = expectations.find(|expectation| {
        let mut tests = options.tests.iter();
        !tests.any(|test| expectation.applies_to(*test, is_paced))
    });
    match without_a_test {
        None => Ok(()),
        Some(expectation) => Err(RunError::NoSuchFigure {
            expectation: expectation.to_string(),
            tests: TestKind::figures_in_words(&options.tests, is_paced),
        }),
    }
}

fn plan(options: &BenchOptions, sources: usize) -> Plan {
    let pace = options.rhythm(options.rate_per_s).in_words(None);
    Plan {
        profile: Some(options.profile.as_str().to_owned()),
        tests: options
            .tests
            .iter()
            .map(|test| test.name().to_owned())
            .collect(),
        connection_tiers: options.tiers.iter().map(|tier| *tier as u64).collect(),
        pace: Some(pace),
        duration_s: Some(options.duration.as_secs_f64()),
        hold_s: Some(options.hold.as_secs_f64()),
        pings_per_connection: Some(options.pings_per_connection),
        repeats: None,
        threads: u32::try_from(match options.workers.len() {
            0 => options.threads,
            workers => workers,
        })
        .ok(),
        source_addresses: u32::try_from(sources).ok().filter(|count| *count > 1),
        command: options.command.clone(),
    }
}

pub(super) fn now_rfc3339() -> String {
    let since_1970 = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let mut text = Vec::new();
    write_rfc3339_ms(since_1970.as_millis() as u64, &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

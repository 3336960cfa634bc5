//! `tidewire bench`: loads a server, shows the run and writes the report.

mod child;
mod credential;
mod flags;
mod server;
mod tiers;
pub(crate) mod workers;

pub(crate) use child::{EmbeddedServer, FREE_PORT};
pub(crate) use flags::BenchFlags;

use crate::baseline::Baseline;
use crate::failure::Failure;
use crate::live::{self, RunKind};
use crate::output::{print, print_error, print_json, table_width};
use crate::report::save_comparison;
use crate::sources::Ranks;
use crate::stop;
use flags::{OutputFlags, PayloadFlag, PlanFlags};
use server::BenchServer;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tidewire_load::fleet::FleetError;
use tidewire_load::plan::bench::TestKind;
use tidewire_load::report::compare::scale;
use tidewire_load::report::side_by_side::SideBySide;
use tidewire_load::report::{Reservation, save_all, terminal, try_directory};
use tidewire_load::worker::websocket::fan_out::MESSAGE_BYTES_MIN as FAN_OUT_BYTES_MIN;
use tidewire_load::worker::websocket::payload::Content;
use tidewire_load::{BenchOptions, Report, RunError};
use workers::{ClientFlag, Crew};

/// Runs the tests and returns the exit code of the report's verdict.
pub(crate) fn run(flags: &BenchFlags, ranks: &Ranks) -> Result<u8, Failure> {
    let out = &flags.output.out;
    // Before the run, not after it, so that a mistyped directory or a full disk loses no figure.
    try_directory(out).map_err(|error| Failure::usage(format!("cannot write to {error}")))?;
    let _reservation = Reservation::of(out).map_err(Failure::usage)?;
    flags.output.files.check()?;
    let baseline = Baseline::read(&flags.output.baseline)?;
    let crews = flags.workers.crews()?;
    let wants_one = flags.output.json || flags.output.files.is_any() || baseline.is_some();
    if crews.len() > 1 && wants_one {
        return Err(Failure::usage(
            "--client all and several numbers of --processes make several reports: --json, --junit, --csv and --baseline \
             need one client and one number",
        ));
    }
    let stop = stop::on_signals()?;
    if flags.workers.end_with_stdin {
        stop::with_stdin(&stop);
    }
    let mut server = BenchServer::prepare(flags, ranks, &stop)?;
    let mut options = options(&flags.plan, &server)?;
    options.memory = flags.target.memory;
    options.stops_with_worker = flags.workers.stop_with_worker;
    if crews.len() > 1 {
        return compare_crews(flags, &crews, &mut options, &mut server, &stop);
    }
    let (mut report, end) = run_with(flags, crews[0], &mut options, &mut server, &stop)?;
    if let Some(baseline) = &baseline {
        baseline.compare(&mut report);
    }
    publish(&report, &flags.output)?;
    flags.output.files.write(&report)?;
    match end {
        Some(end) => Err(Failure::run(end)),
        None if report.partial && !stop.load(Ordering::Relaxed) => {
            Err(Failure::run(report.partial_reason.unwrap_or_default()))
        }
        None => Ok(report.exit_code()),
    }
}

/// Runs the plan with these workers. Returns the report, and a reason if the server that was
/// started for the run has ended.
fn run_with(
    flags: &BenchFlags,
    crew: Crew,
    options: &mut BenchOptions,
    server: &mut BenchServer<'_>,
    stop: &AtomicBool,
) -> Result<(Report, Option<String>), Failure> {
    options.workers = flags.workers.commands(crew, flags.plan.threads)?;
    let outcome = runs(flags, options, stop);
    let end = server.end_of_embedded();
    let mut report = outcome.map_err(|error| failure(error, crew.client))?;
    server.annotate(&mut report);
    if end.is_some() {
        report.partial = true;
        report.partial_reason.clone_from(&end);
    }
    Ok((report, end))
}

/// Runs the plan with each client library or number of processes, one after the other, and compares them.
fn compare_crews(
    flags: &BenchFlags,
    crews: &[Crew],
    options: &mut BenchOptions,
    server: &mut BenchServer<'_>,
    stop: &AtomicBool,
) -> Result<u8, Failure> {
    let mut reports = Vec::new();
    let mut exit_code = 0;
    let mut server_end = None;
    let has_several_clients = crews.iter().any(|crew| crew.client != crews[0].client);
    for &crew in crews {
        let (report, end) = run_with(flags, crew, options, server, stop)?;
        exit_code = match (exit_code, report.exit_code()) {
            // A failed test weighs more than a limit that was reached.
            (0, code) | (_, code @ 1) => code,
            (known, _) => known,
        };
        let is_last = report.partial;
        reports.push((crew.name(has_several_clients), report));
        if !has_several_clients {
            scale(&mut reports);
        }
        // The earlier reports are saved again: a run of one process adds their scaling.
        for (name, report) in &reports {
            save_all(report, &flags.output.out.join(name))
                .map_err(|error| Failure::run(format!("cannot save the report: {error}")))?;
        }
        server_end = end;
        if is_last {
            break;
        }
    }
    let comparison = SideBySide::new(&reports);
    print(&comparison.terminal())?;
    let page = save_comparison(&comparison, &flags.output.out)?;
    print(&format!("comparison: {}\n", page.display()))?;
    match server_end {
        Some(end) => Err(Failure::run(end)),
        None => Ok(exit_code),
    }
}

/// Runs the plan as often as it is wanted, and reports all runs together. An interrupted run is the last.
fn runs(flags: &BenchFlags, options: &BenchOptions, stop: &AtomicBool) -> Result<Report, RunError> {
    let (is_quiet, repeats) = (flags.output.quiet, flags.plan.repeats);
    let mut reports = Vec::new();
    for number in 1..=repeats {
        if repeats > 1 && !is_quiet {
            // A closed standard error must not end the run.
            print_error(&format!("run {number} of {repeats}\n"));
        }
        let mut progress = live::for_stderr(is_quiet, &options.target.url, RunKind::Tests);
        let report = tidewire_load::run(options, &mut *progress, stop)?;
        let is_last = report.partial;
        reports.push(report);
        if is_last {
            break;
        }
    }
    Ok(tidewire_load::report::repeats::merged(reports).expect("there is at least one run"))
}

/// The failure of a run that could not begin: ours or the user's.
fn failure(error: RunError, client: ClientFlag) -> Failure {
    match error {
        RunError::Fleet(FleetError::Worker { is_mute, .. }) => match client.advice() {
            advice if is_mute && !advice.is_empty() => Failure::usage(format!("{error}: {advice}")),
            _ => Failure::usage(error),
        },
        RunError::Fleet(FleetError::Interrupted) => Failure::interrupted(error),
        RunError::Fleet(_) => Failure::run(error),
        _ => Failure::usage(error),
    }
}

/// Prints the tables, or the report itself, and writes the files. It prints first, so that a full
/// disk loses no figure.
fn publish(report: &Report, output: &OutputFlags) -> Result<(), Failure> {
    let width = table_width().filter(|_| !output.json);
    let mut tables = format!("\n{}", terminal::render_within(report, width));
    if let Some(reason) = report.partial_reason.as_ref().filter(|_| report.partial) {
        tables.push_str(&format!("Partial  {reason}\n"));
    }
    let printed = if output.json {
        print_error(&tables);
        print_json(&report.to_json())
    } else {
        print(&tables)
    };
    let saved = save_all(report, &output.out);
    match saved {
        Ok(saved) => {
            let line = format!("report: {} (also .json and .md)\n", saved.html.display());
            if output.json {
                print_error(&line);
                printed
            } else {
                printed.and_then(|()| print(&line))
            }
        }
        Err(error) if output.json => Err(Failure::run(format!("cannot save the report: {error}"))),
        Err(error) => {
            print_json(&report.to_json())?;
            Err(Failure::run(format!(
                "cannot save the report, which is printed above: {error}"
            )))
        }
    }
}

fn options(plan: &PlanFlags, server: &BenchServer) -> Result<BenchOptions, Failure> {
    let mut options = BenchOptions::new(server.target()?);
    options.profile = server.profile();
    options.layer = server.layer();
    options.stats = server.stats()?;
    options.server_pid = server.process_id();
    options.embedded = server.is_embedded();
    options.tiers = tiers::tiers(&plan.connections, plan.quick, tiers::room());
    options.connections_max =
        plan.connections_max
            .unwrap_or(if plan.quick { QUICK_LIMIT } else { LIMIT });
    options.limit_resolution = plan.limit_resolution.unwrap_or(options.limit_resolution);
    if !plan.test.is_empty() {
        options.tests = plan.test.clone();
    } else if server.has_open_topics() {
        options.tests.push(TestKind::FanOut);
    }
    if !plan.payload_bytes.is_empty() {
        options.sizes = plan.payload_bytes.clone();
        options.echo_sizes = plan.payload_bytes.clone();
        options.fan_out_sizes = plan.payload_bytes.clone();
    }
    let is_short = options
        .fan_out_sizes
        .iter()
        .any(|bytes| *bytes < FAN_OUT_BYTES_MIN);
    if options.tests == [TestKind::FanOut] && is_short {
        return Err(Failure::usage(format!(
            "--payload-bytes: a publication of fan-out has at least {FAN_OUT_BYTES_MIN} bytes"
        )));
    }
    options.content = plan.payload.map(|payload| match payload {
        PayloadFlag::Trade => Content::Trade,
        PayloadFlag::Trades => Content::Trades,
    });
    let usual = if plan.quick { &QUICK } else { &DEFAULT };
    options.duration = plan.duration_s.unwrap_or(usual.duration);
    options.sustained = plan.sustained_s.unwrap_or(usual.sustained);
    options.hold = plan.hold_s.unwrap_or(usual.hold);
    options.pings_per_connection = plan.pings_per_connection.unwrap_or(usual.pings);
    if let Some(timeout) = plan.pong_timeout_s {
        options.timeouts.pong_ms = timeout.as_millis() as u64;
    }
    options.rounds = plan.rounds.unwrap_or(usual.rounds);
    options.cycles = plan.cycles;
    options.messages = plan.messages;
    if plan.quick {
        options.hold_ping_every_ms = QUICK_HOLD_PING_EVERY_MS;
    }
    if let Some(every) = plan.hold_ping_s {
        options.hold_ping_every_ms = every.as_millis() as u64;
    }
    if let Some(count) = plan.handshakes_in_flight {
        options.handshakes_in_flight_max = count as usize;
    }
    options.in_flight = plan.in_flight.unwrap_or(options.in_flight);
    options.fan_out_in_flight = plan.in_flight;
    options.rate_per_s = plan.rate_per_s;
    options.expectations.clone_from(&plan.expect);
    options.abort_after = plan.abort_after_s;
    options.poisson = plan.poisson;
    options.threads = plan.threads.unwrap_or(options.threads);
    options.seed = plan.seed.unwrap_or(options.seed);
    options.command = Some(crate::command_line::shown());
    Ok(options)
}

/// The lengths of the tests.
struct Lengths {
    duration: Duration,
    sustained: Duration,
    hold: Duration,
    pings: u64,
    rounds: u64,
}

const DEFAULT: Lengths = Lengths {
    duration: Duration::from_secs(2),
    sustained: Duration::from_secs(10),
    hold: Duration::from_secs(30),
    pings: 50,
    rounds: 200,
};
const QUICK: Lengths = Lengths {
    duration: Duration::from_millis(300),
    sustained: Duration::from_secs(2),
    hold: Duration::from_secs(1),
    pings: 20,
    rounds: 20,
};
const QUICK_HOLD_PING_EVERY_MS: u64 = 200;
/// The default limit of the search for the largest number of connections.
const LIMIT: usize = 1_000_000;
const QUICK_LIMIT: usize = 100;

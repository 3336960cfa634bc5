//! `tidewire load`: loads a service, shows the run and reports.

mod flags;
mod foreign;

pub(crate) use flags::LoadFlags;
pub(crate) use foreign::translate;

use crate::baseline::Baseline;
use crate::failure::Failure;
use crate::live::{self, RunKind};
use crate::output::{print, print_error, print_json, table_width};
use crate::stop;
use tidewire_load::fleet::FleetError;
use tidewire_load::options::load::LoadOptions;
use tidewire_load::plan::load::{self, LoadError};
use tidewire_load::report::{Report, Reservation, save_all, terminal, try_directory};
use tidewire_load::worker::template::Syntax;

/// Runs the load and returns the exit code of its report.
pub(crate) fn run(flags: &LoadFlags) -> Result<u8, Failure> {
    if flags.output.foreign.is_some() {
        let advice = "write --as directly after `load`: tidewire load --as ab -n 1000 -c 10 URL";
        return Err(Failure::usage(advice));
    }
    let out = flags.output.out.as_deref();
    let _reservation = out
        .map(|out| {
            try_directory(out)
                .map_err(|error| Failure::usage(format!("cannot write to {error}")))?;
            Reservation::of(out).map_err(Failure::usage)
        })
        .transpose()?;
    let output = &flags.output;
    output.files.check()?;
    let baseline = Baseline::read(&output.baseline)?;
    let options = options(flags)?;
    let plan = options.plan().map_err(Failure::usage)?;
    let stop = stop::on_signals()?;
    let mut progress = live::for_stderr(flags.output.quiet, &plan.url, RunKind::Load);
    let mut report = load::run(&plan, &mut *progress, &stop).map_err(failure)?;
    drop(progress);
    if let Some(baseline) = &baseline {
        baseline.compare(&mut report);
    }
    publish(&report, flags, &options)?;
    Ok(report.exit_code())
}

fn failure(error: LoadError) -> Failure {
    match error {
        LoadError::Fleet(FleetError::Interrupted) => Failure::interrupted(error),
        LoadError::Fleet(_) => Failure::run(error),
        _ => Failure::usage(error),
    }
}

fn options(flags: &LoadFlags) -> Result<LoadOptions, Failure> {
    let values = flags.values()?;
    let mut options = LoadOptions::from_values(&flags.url, values).map_err(Failure::usage)?;
    options.command = Some(crate::command_line::shown());
    // Other tools keep no cookies.
    options.keep_cookies &= flags.output.lines_of.is_none();
    if let Some(text) = &flags.output.index_text {
        options.syntax = Syntax::Index(text.clone());
    } else if flags.output.lines_of.is_some() {
        // Other tools send every text as it is.
        options.syntax = Syntax::Literal;
    }
    Ok(options)
}

/// Prints the tables, or the report itself, and writes the files.
fn publish(report: &Report, flags: &LoadFlags, options: &LoadOptions) -> Result<(), Failure> {
    let mut tables = format!("\n{}", terminal::render_within(report, table_width()));
    if let Some(reason) = report.partial_reason.as_ref().filter(|_| report.partial) {
        tables.push_str(&format!("Partial  {reason}\n"));
    }
    if flags.output.json {
        print_json(&report.to_json())?;
    } else if let Some(tool) = flags.output.lines_of {
        let asked = foreign::Asked {
            requests: options.requests,
            duration: options.duration,
            keeps_alive: options.keep_alive,
            latency: flags.output.lines_latency,
        };
        print(&foreign::report(tool, report, asked))?;
    } else {
        print(&tables)?;
    }
    flags.output.files.write(report)?;
    let Some(out) = &flags.output.out else {
        return Ok(());
    };
    let saved = save_all(report, out)
        .map_err(|error| Failure::run(format!("cannot save the report: {error}")))?;
    print_error(&format!(
        "report: {} (also .json and .md)\n",
        saved.html.display()
    ));
    Ok(())
}

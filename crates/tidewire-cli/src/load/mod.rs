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
use flags::{CheckFlags, ConnectionFlags, MessageFlags, RequestFlags};
use tidewire_load::options::load::{LoadOptions, TlsOptions};
use tidewire_load::options::message::MessageOptions;
use tidewire_load::options::request::{BodyOptions, RequestOptions};
use tidewire_load::plan::load::{self, FindLimit, LoadError};
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
    let plan = options(flags)?.plan().map_err(Failure::usage)?;
    let stop = stop::on_signals()?;
    let mut progress = live::for_stderr(flags.output.quiet, &plan.url, RunKind::Load);
    let mut report = load::run(&plan, &mut *progress, &stop).map_err(failure)?;
    drop(progress);
    if let Some(baseline) = &baseline {
        baseline.compare(&mut report);
    }
    publish(&report, flags)?;
    Ok(report.exit_code())
}

fn failure(error: LoadError) -> Failure {
    match error {
        LoadError::Fleet(_) => Failure::run(error),
        _ => Failure::usage(error),
    }
}

fn options(flags: &LoadFlags) -> Result<LoadOptions, Failure> {
    let mut options = LoadOptions::new(&flags.url);
    let plan = &flags.plan;
    options.request = request(&flags.request, &flags.check)?;
    options.scenario.clone_from(&flags.request.scenario);
    options.syntax = syntax(flags);
    options.compressed = flags.request.compressed;
    options.redirects = flags.request.redirects.unwrap_or(0);
    if let Some(connections) = plan.connections {
        options.connections = usize::try_from(connections).unwrap_or(usize::MAX);
    }
    options.ramp_per_s = plan.ramp_per_s;
    options.connection_stages = plan
        .connection_stages
        .as_ref()
        .map(|stages| stages.to_vec());
    options.duration = plan.duration_s;
    options.requests = plan.requests;
    options.warm_up = plan.warm_up_s.unwrap_or_default();
    options.rate_per_s = plan.rate_per_s;
    options.each_per_s = plan.messages_per_s;
    options.stages = plan.stages.as_ref().map(|stages| stages.to_vec());
    options.poisson = plan.poisson;
    options.find_limit = plan.find_limit.then(|| {
        let usual = FindLimit::default();
        FindLimit {
            from_per_s: plan.from_per_s.unwrap_or(usual.from_per_s),
            to_per_s: plan.to_per_s.unwrap_or(usual.to_per_s),
            step: plan.step_s.unwrap_or(usual.step),
            is_poisson: plan.poisson,
            ..usual
        }
    });
    options.in_flight = plan.in_flight.unwrap_or(options.in_flight);
    if let Some(threads) = plan.threads {
        options.threads = usize::try_from(threads).unwrap_or(usize::MAX);
    }
    options.seed = plan.seed.unwrap_or(options.seed);
    options.expectations.clone_from(&flags.check.expect);
    options.abort_after = flags.check.abort_after_s;
    options.precision.clone_from(&plan.confidence);
    options.command = Some(crate::bench::command_line());
    options.messages = messages(&flags.message);
    connections(&mut options, &flags.connection);
    Ok(options)
}

/// Other tools send every text as it is.
fn syntax(flags: &LoadFlags) -> Syntax {
    match &flags.request.index_text {
        Some(text) => Syntax::Index(text.clone()),
        None if flags.request.literal || flags.output.lines_of.is_some() => Syntax::Literal,
        None => Syntax::Braces,
    }
}

fn connections(options: &mut LoadOptions, flags: &ConnectionFlags) {
    options.keep_alive = !flags.no_keepalive;
    options.reconnect = flags.reconnect;
    options.retry = flags.retry.unwrap_or_default();
    options.requests_per_connection = flags.requests_per_connection;
    let timeouts = &mut options.timeouts;
    timeouts.request_ms = flags.timeout_ms.unwrap_or(timeouts.request_ms);
    timeouts.connect_ms = flags.connect_timeout_ms.unwrap_or(timeouts.connect_ms);
    timeouts.drain_ms = flags.drain_ms.unwrap_or(timeouts.drain_ms);
    options.tls = TlsOptions {
        ca: flags.ca.clone(),
        cert: flags.cert.clone(),
        key: flags.key.clone(),
        sni: flags.sni.clone(),
        insecure: flags.insecure,
    };
    options.proxy.clone_from(&flags.proxy);
    options.unix_socket.clone_from(&flags.unix_socket);
    options.source_addresses.clone_from(&flags.source_address);
    options.resolve.clone_from(&flags.resolve);
    options.memory = flags.memory;
    options.server_pid = flags.server_pid;
}

fn messages(flags: &MessageFlags) -> MessageOptions {
    MessageOptions {
        message: flags.message.clone(),
        file: flags.message_file.clone(),
        subscribe: flags.subscribe.clone(),
        matching: flags.reply.clone().unwrap_or_default(),
        stamp: flags.timestamp_field.clone(),
        is_binary: flags.binary,
        deflate: flags.deflate,
        encrypt: flags.encrypt,
        profile: flags.profile.map(Into::into),
        token: flags.token.clone(),
    }
}

fn request(flags: &RequestFlags, checks: &CheckFlags) -> Result<RequestOptions, Failure> {
    let file = flags.body_file.as_ref().map(|path| {
        std::fs::read(path)
            .map_err(|error| Failure::usage(format!("cannot read {}: {error}", path.display())))
    });
    let body = flags
        .body
        .clone()
        .map(|text| BodyOptions::Bytes(text.into_bytes()))
        .or(file.transpose()?.map(BodyOptions::Bytes))
        .or(flags.json_body.clone().map(BodyOptions::Json))
        .or((!flags.form.is_empty()).then(|| BodyOptions::Form(flags.form.clone())));
    Ok(RequestOptions {
        method: flags.method.as_ref().map(|method| method.to_uppercase()),
        headers: flags.header.clone(),
        cookies: flags.cookie.clone(),
        body,
        statuses: checks
            .expect_status
            .as_ref()
            .map(|statuses| statuses.to_vec()),
        body_contains: checks.expect_body.clone(),
        body_bytes: checks.expect_length,
        ..RequestOptions::default()
    })
}

/// Prints the tables, or the report itself, and writes the files.
fn publish(report: &Report, flags: &LoadFlags) -> Result<(), Failure> {
    let mut tables = format!("\n{}", terminal::render_within(report, table_width()));
    if let Some(reason) = report.partial_reason.as_ref().filter(|_| report.partial) {
        tables.push_str(&format!("Partial  {reason}\n"));
    }
    if flags.output.json {
        print_json(&report.to_json())?;
    } else if let Some(tool) = flags.output.lines_of {
        let asked = foreign::Asked {
            requests: flags.plan.requests,
            duration: flags.plan.duration_s,
            keeps_alive: !flags.connection.no_keepalive,
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

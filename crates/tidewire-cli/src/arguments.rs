//! The command line as a whole.

use crate::bench::BenchFlags;
use crate::failure::Failure;
use crate::init::InitFlags;
use crate::load::{self, LoadFlags};
use crate::numbers;
use crate::partition::PartitionFlags;
use crate::report::ReportFlags;
use crate::serve::ServeFlags;
use crate::sources::Ranks;
use crate::test_server::TestServerFlags;
use crate::token::TokenFlags;
use crate::top::TopFlags;
use crate::worker::WorkerFlags;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use std::ffi::OsString;
use tidewire_engine::settings::nearest;

/// The command of a command line.
#[derive(Debug)]
pub(crate) enum Parsed {
    /// Help or version.
    Text(String),
    /// Nothing was asked for.
    Usage(String),
    /// `init`
    Init(InitFlags),
    /// `serve`
    Serve(Box<ServeFlags>),
    /// `partition`
    Partition(Box<PartitionFlags>),
    /// `top`
    Top(TopFlags),
    /// `token`, and the source of each option.
    Token(Box<TokenFlags>, Box<Ranks>),
    /// `bench`, and the source of each option.
    Bench(Box<BenchFlags>, Box<Ranks>),
    /// `load`
    Load(Box<LoadFlags>),
    /// `report`
    Report(ReportFlags),
    /// `test-server`
    TestServer(Box<TestServerFlags>),
    /// `worker`
    Worker(WorkerFlags),
}

/// A WebSocket server for live data, and the load lab that measures it
#[derive(Debug, Parser)]
#[command(name = "tidewire", version, subcommand_required = true, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Write a commented configuration file and a secret for tokens
    #[command(after_help = INIT_NOTES)]
    Init(InitFlags),
    /// Run a WebSocket server
    #[command(after_help = SERVE_NOTES)]
    Serve(Box<ServeFlags>),
    /// Move the topics of stopped servers into other partitions of their broker
    #[command(after_help = PARTITION_NOTES)]
    Partition(Box<PartitionFlags>),
    /// Show the activity of a server, second by second
    #[command(after_help = TOP_NOTES)]
    Top(TopFlags),
    /// Load a WebSocket server and report its limits
    #[command(after_help = BENCH_NOTES)]
    Bench(Box<BenchFlags>),
    /// Load any HTTP or WebSocket service and judge the results
    #[command(after_help = LOAD_NOTES)]
    Load(Box<LoadFlags>),
    /// Show one report, or compare several
    #[command(after_help = REPORT_NOTES)]
    Report(ReportFlags),
    /// Run an HTTP server to try load on
    #[command(after_help = TEST_SERVER_NOTES)]
    TestServer(Box<TestServerFlags>),
    /// Carry out the orders of a bench, as one of its workers
    #[command(after_help = WORKER_NOTES)]
    Worker(WorkerFlags),
    /// Create a JSON Web Token for tests
    #[command(after_help = TOKEN_NOTES)]
    Token(Box<TokenFlags>),
}

/// Reads the command line.
///
/// # Errors
/// A mistake in it, in one line.
pub(crate) fn parse(words: Vec<OsString>) -> Result<Parsed, Failure> {
    if words.len() <= 1 {
        let usage = "say what to do: init, serve, partition, top, bench, load, report, test-server, worker or token (see `tidewire --help`)";
        return Ok(Parsed::Usage(usage.to_owned()));
    }
    let words = load::translate(words)?;
    let command = Cli::command();
    let matches = match command.clone().try_get_matches_from(&words) {
        Ok(matches) => matches,
        Err(error) => return text_or_failure(&command, &words, &error),
    };
    let cli =
        Cli::from_arg_matches(&matches).map_err(|error| Failure::usage(usage_text(&error)))?;
    let ranks = matches
        .subcommand()
        .map(|(_, options)| Box::new(Ranks::new(options)))
        .unwrap_or_default();
    Ok(match cli.command {
        Command::Init(flags) => Parsed::Init(flags),
        Command::Serve(flags) => Parsed::Serve(flags),
        Command::Partition(flags) => Parsed::Partition(flags),
        Command::Top(flags) => Parsed::Top(flags),
        Command::Bench(flags) => Parsed::Bench(flags, ranks),
        Command::Load(flags) => Parsed::Load(flags),
        Command::Report(flags) => Parsed::Report(flags),
        Command::TestServer(flags) => Parsed::TestServer(flags),
        Command::Worker(flags) => Parsed::Worker(flags),
        Command::Token(flags) => Parsed::Token(flags, ranks),
    })
}

/// Help and version are text, anything else is a mistake.
fn text_or_failure(
    command: &clap::Command,
    words: &[OsString],
    error: &clap::Error,
) -> Result<Parsed, Failure> {
    if matches!(
        error.kind(),
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
    ) {
        return Ok(Parsed::Text(error.render().to_string()));
    }
    let text = unknown_flag(command, words, error)
        .or_else(|| wrong_number(command, words, error))
        .unwrap_or_else(|| usage_text(error));
    Err(Failure::usage(text))
}

/// A flag that a command does not have, with the nearest one that it has.
fn unknown_flag(
    command: &clap::Command,
    words: &[OsString],
    error: &clap::Error,
) -> Option<String> {
    let (ErrorKind::UnknownArgument, Some(ContextValue::String(flag))) =
        (error.kind(), error.get(ContextKind::InvalidArg))
    else {
        return None;
    };
    let subcommand = command.find_subcommand(words.get(1)?)?;
    let shown = subcommand.get_arguments().filter(|arg| !arg.is_hide_set());
    let known = shown.filter_map(clap::Arg::get_long);
    let hint = nearest(flag.strip_prefix("--")?, known)
        .map_or_else(String::new, |known| format!(": did you mean --{known}?"));
    Some(format!("unknown option {flag}{hint}"))
}

/// A number that its flag does not accept, with the range that it does.
fn wrong_number(
    command: &clap::Command,
    words: &[OsString],
    error: &clap::Error,
) -> Option<String> {
    let (Some(ContextValue::String(arg)), Some(ContextValue::String(value))) = (
        error.get(ContextKind::InvalidArg),
        error.get(ContextKind::InvalidValue),
    ) else {
        return None;
    };
    let subcommand = command.find_subcommand(words.get(1)?)?;
    let name = arg.strip_prefix("--")?;
    let name = name.split([' ', '=', '[']).next()?;
    let mut known = subcommand.get_arguments();
    let known = known.find(|known| known.get_long() == Some(name))?;
    let expected = numbers::expected(error, known.get_value_parser())?;
    Some(format!("invalid value '{value}' for '{arg}': {expected}"))
}

/// The error in a command line, without the usage that `clap` adds.
fn usage_text(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let end = ["\n\nUsage:", "\n\nFor more information"]
        .iter()
        .filter_map(|mark| text.find(mark))
        .min();
    let text = &text[..end.unwrap_or(text.len())];
    text.strip_prefix("error: ").unwrap_or(text).to_owned()
}

const EXAMPLES: &str = "Examples:
  tidewire bench                            start a server, load it, write a report
  tidewire serve --no-auth                  a server that sends every message back
  tidewire bench ws://127.0.0.1:8080/       load any WebSocket server
  tidewire report a/report.json b/report.json

Exit codes: 0 done, 1 failed, 2 a mistake in options, files or addresses, 130 interrupted;
`tidewire bench` has more, see its --help.";

const INIT_NOTES: &str =
    "Every option stands in the file, those at their default as comments. Nothing is overwritten.

Examples:
  tidewire init
  tidewire init /etc/tidewire/tidewire.toml

Exit codes: 0 written, 1 failed, 2 a file exists or cannot be written.";

const SERVE_NOTES: &str = "Every option is also a variable of the environment (TIDEWIRE_ and its name, \
lists with commas) and a key of the --config file (its name with underscores, at the top or in [auth], \
[tls], [topics] or [limits]). A flag overrides a variable, and a variable overrides the file.

The first lines on standard output say where the server listens; at a terminal, lines on standard error say who may \
connect and what to do next. --check says the same without a start. SIGTERM or SIGINT: newcomers get HTTP \
503, sessions are closed with code 4300, and the server ends when they are gone or after \
--drain-timeout-ms. A second signal ends it at once.

Examples:
  tidewire serve --no-auth
  TIDEWIRE_JWT_SECRET=$(openssl rand -hex 32) tidewire serve --listen '[::]:5006'
  tidewire serve --config tidewire.toml --ops-listen 127.0.0.1:5007
  tidewire serve --config tidewire.toml --check
  tidewire serve --protocol raw --app sink --path any
  tidewire serve --no-auth --app sink --topics-open --history 'orders.>=1000' --presence 'rooms.*'

Exit codes: 0 stopped, 1 failed, 2 a mistake in options, files or addresses, 130 ended by a second signal.";

const PARTITION_NOTES: &str = "\
Stop all servers of the cluster first. Every topic keeps its history, its epochs, its ids and its open work, and producers
their numbers. While topics are moved no server joins the cluster. After an interruption run the same command again.
docs/scale-out.md says when partitions help.

Examples:
  tidewire partition --broker redis://127.0.0.1:6379 --to 4
  tidewire partition --config tidewire.toml --to 4 --to-broker redis://redis-1:6379,redis://redis-2:6379

Exit codes: 0 moved, 1 servers run or a broker failed, 2 a mistake in options.";

const TOP_NOTES: &str =
    "`tidewire serve` prints the URL after `operations on`. Press q or Escape to end the program.

Examples:
  tidewire top
  tidewire top http://127.0.0.1:5007 --interval-s 0.5
  tidewire top http://127.0.0.1:5007 --once

Exit codes: 0 ended, 1 the server does not answer (with --once), 2 a mistake in options.";

const LOAD_NOTES: &str = "\
Examples:
  tidewire load http://127.0.0.1:8080/ -c 100 -d 10
  tidewire load http://127.0.0.1:8080/ -c 100 --rate-per-s 5k --expect 'p99<20ms' --expect 'errors<0.1%'
  tidewire load http://127.0.0.1:8080/ --find-limit --expect 'p99<50ms'

Exit codes: 0 as expected, 1 failed, 2 wrong or impossible, 3 the generator was the limit, 4 noisy,
5 an expectation was broken, 130 interrupted";

const WORKER_NOTES: &str = "A worker opens the connections and sends the messages that its controller orders, and tells it \
what it has counted: one JSON object per line on standard input and output (docs/worker-contract.md). It ends when its \
standard input ends, or when it has heard nothing for 10 seconds. `tidewire bench` starts it:

  tidewire bench ws://server:5006/ws --worker 'ssh load-1 tidewire worker' --worker 'ssh load-2 tidewire worker'";

const BENCH_NOTES: &str = "Without a URL the program starts a server on a free port of this machine, loads \
it and stops it. With a URL it loads that server. Load only servers that you are allowed to load.

A message counts when the server has accounted for it: after its last message a connection sends a ping \
and waits for the pong. A Tidewire server's own counters are compared as well (--stats-url).

Examples:
  tidewire bench --quick
  tidewire bench --test throughput,size-matrix --connections 100,1000 --duration-s 5
  tidewire bench ws://127.0.0.1:5006/ws --jwt-secret \"$SECRET\" --stats-url http://127.0.0.1:5007
  tidewire bench wss://echo.example.com/ --test echo --in-flight 64 --ca ca.pem
  tidewire bench --client python --processes 2 --test throughput
  tidewire bench ws://server:5006/ws --worker 'ssh load-1 tidewire worker'

Exit codes, by the worst result: 0 valid, 1 failed (a connection or message was lost, or contradicted by \
the server's counters), 2 a mistake in options, files or addresses, 3 the load generator was the limit, 4 \
the rate of a test varied too much, 130 interrupted (the report is partial).";

const REPORT_NOTES: &str = "Examples:
  tidewire report tidewire-report/report.json
  tidewire report before/report.json after/report.json --out comparison

Exit codes: 0 shown, 2 a file that cannot be read or is not a report.";

const TEST_SERVER_NOTES: &str = "Every path gets the same response, /ws echoes WebSocket messages, and \
/.tidewire/counts returns the counts so far as JSON (requests for it are not counted). SIGTERM or SIGINT \
ends the server, which then prints its counts; a second signal ends it at once. Responses have no Date, so \
that all are equal.

Examples:
  tidewire test-server
  tidewire test-server --delay-ms exp:10 --error-percent 1
  tidewire test-server --port 0 --body-bytes 65536 --chunked --json
  tidewire test-server --stall-every-ms 1000 --stall-ms 100

Exit codes: 0 stopped, 1 failed, 2 a mistake in options, files or addresses, 130 ended by a second signal.";

const TOKEN_NOTES: &str = "Examples:
  TIDEWIRE_JWT_SECRET=$SECRET tidewire token --subject user-1
  tidewire token --jwt-secret-file secret.txt --subject user-1 --expires-in-s 60 --claim role=admin
  tidewire token --jwt-private-key es256=private.pem --subject user-1 --jwt-key-id 2025-01";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_options_are_consistent() {
        Cli::command().debug_assert();
    }
}

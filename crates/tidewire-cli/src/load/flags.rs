//! The options of `tidewire load`.

use super::foreign::Tool;
use crate::bench::ProfileFlag;
use clap::Args;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;
use tidewire_load::accounting::precision::Precision;
use tidewire_load::options::{message, quantity, request};
use tidewire_load::verdict::expectation::Expectation;
use tidewire_load::worker::messages::{Matching, Pointer};

/// All options of `load`.
#[derive(Debug, Args)]
pub(crate) struct LoadFlags {
    /// What to load: http://, https://, ws:// or wss://
    pub(crate) url: String,
    #[command(flatten)]
    pub(crate) plan: PlanFlags,
    #[command(flatten)]
    pub(crate) request: RequestFlags,
    #[command(flatten)]
    pub(crate) message: MessageFlags,
    #[command(flatten)]
    pub(crate) check: CheckFlags,
    #[command(flatten)]
    pub(crate) connection: ConnectionFlags,
    #[command(flatten)]
    pub(crate) output: LoadOutputFlags,
}

/// Number, rate and duration.
#[derive(Debug, Args)]
#[command(next_help_heading = "Plan")]
pub(crate) struct PlanFlags {
    /// Connections in all, not on each core [default: 50]
    #[arg(short = 'c', long, value_name = "N", value_parser = whole)]
    pub(crate) connections: Option<u64>,
    /// Requests in all, as 1000 or 10k
    #[arg(short = 'n', long, value_name = "N", value_parser = quantity::count)]
    pub(crate) requests: Option<u64>,
    /// Seconds to send for; with --requests, whichever ends first [default: 10, without --requests]
    #[arg(short = 'd', long, value_name = "S", value_parser = quantity::duration)]
    pub(crate) duration_s: Option<Duration>,
    /// Send until a figure is known well enough, such as p99:5%, mean:2% or rate:1%: half of its 95 % confidence
    /// interval is at most so much of it. At the latest after --duration-s [default: 300]
    #[arg(long, value_name = "FIGURE", value_parser = precision, conflicts_with_all = ["find_limit", "stages", "connection_stages"])]
    pub(crate) confidence: Option<Precision>,
    /// Seconds to send for before the measurement [default: 0]
    #[arg(long, value_name = "S", value_parser = quantity::duration)]
    pub(crate) warm_up_s: Option<Duration>,
    /// Requests a second over all connections, sent when their time has come and not when there is room;
    /// their latency counts from that time [default: the next when the one before is answered]
    #[arg(short = 'r', long, value_name = "N", value_parser = quantity::number)]
    pub(crate) rate_per_s: Option<f64>,
    /// Requests or messages a second on each connection
    #[arg(long, value_name = "N", value_parser = quantity::number)]
    pub(crate) messages_per_s: Option<f64>,
    /// Rates over time, in a straight line to each from the one before, such as 10s:1k,30s:5k,10s:0
    #[arg(long, value_name = "STAGES", value_parser = stages)]
    pub(crate) stages: Option<Stages>,
    /// With a rate: at random times, as independent users send, and not evenly
    #[arg(long)]
    pub(crate) poisson: bool,
    /// Search the highest rate at which every --expect is kept: raised until one breaks, then halved
    #[arg(long)]
    pub(crate) find_limit: bool,
    /// With --find-limit: the first rate [default: 1000]
    #[arg(long, value_name = "N", value_parser = quantity::number, requires = "find_limit")]
    pub(crate) from_per_s: Option<f64>,
    /// With --find-limit: the highest rate to try [default: 10M]
    #[arg(long, value_name = "N", value_parser = quantity::number, requires = "find_limit")]
    pub(crate) to_per_s: Option<f64>,
    /// With --find-limit: seconds for each rate [default: 5]
    #[arg(long, value_name = "S", value_parser = quantity::duration, requires = "find_limit")]
    pub(crate) step_s: Option<Duration>,
    /// New connections a second [default: all before the clock starts]
    #[arg(long, value_name = "N", value_parser = quantity::number)]
    pub(crate) ramp_per_s: Option<f64>,
    /// Numbers of connections over time, such as 10s:100,1m:500,10s:0
    #[arg(long, value_name = "STAGES", value_parser = stages)]
    pub(crate) connection_stages: Option<Stages>,
    /// Requests on their way on each connection (pipelining) [default: 1]
    #[arg(short = 'p', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) in_flight: Option<u32>,
    /// Threads of the generator [default: half of the cores]
    #[arg(short = 't', long, value_name = "N", value_parser = whole)]
    pub(crate) threads: Option<u64>,
    /// What random choices are drawn from; the same seed, the same choices [default: 1]
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
}

/// Options of the HTTP request.
#[derive(Debug, Args)]
#[command(next_help_heading = "Request")]
pub(crate) struct RequestFlags {
    /// The method [default: GET, with a body POST]
    #[arg(short = 'm', long)]
    pub(crate) method: Option<String>,
    /// A header, as 'name: value'; several times for several
    #[arg(short = 'H', long, value_name = "HEADER", value_parser = request::header)]
    pub(crate) header: Vec<(String, String)>,
    /// A cookie, as name=value; several times for several
    #[arg(long, value_name = "COOKIE", value_parser = request::pair)]
    pub(crate) cookie: Vec<(String, String)>,
    /// The body
    #[arg(short = 'b', long, value_name = "TEXT", group = "content")]
    pub(crate) body: Option<String>,
    /// The body is what the file holds
    #[arg(long, value_name = "FILE", group = "content")]
    pub(crate) body_file: Option<PathBuf>,
    /// A JSON body
    #[arg(long, value_name = "JSON", group = "content")]
    pub(crate) json_body: Option<String>,
    /// A field of a form, as name=value; several times for several
    #[arg(long, value_name = "FIELD", value_parser = request::pair, group = "content")]
    pub(crate) form: Vec<(String, String)>,
    /// Several requests from a file (TOML or JSON Lines): weighted, or the steps of a journey
    #[arg(long, value_name = "FILE", conflicts_with_all = ["content", "method"])]
    pub(crate) scenario: Option<PathBuf>,
    /// Ask for compressed responses; their bytes count as they come
    #[arg(long)]
    pub(crate) compressed: bool,
    /// Redirects that are followed for one request, on the same server [default: 0]
    #[arg(long, value_name = "N")]
    pub(crate) redirects: Option<u32>,
}

/// Options of a WebSocket session.
#[derive(Debug, Args)]
#[command(next_help_heading = "WebSocket")]
pub(crate) struct MessageFlags {
    /// The message, with values such as {{seq}}, {{user}}, {{now_ms}}, {{rand:1:100}} and {{uuid}}
    /// [default: a small JSON object]
    #[arg(long, value_name = "TEXT")]
    pub(crate) message: Option<String>,
    /// Messages from this file, one a line, in turn
    #[arg(long, value_name = "FILE", conflicts_with = "message")]
    pub(crate) message_file: Option<PathBuf>,
    /// A message that each connection sends first, such as a subscription; several times for several
    #[arg(long, value_name = "TEXT")]
    pub(crate) subscribe: Vec<String>,
    /// How a message is known to have arrived: by the pong to a ping behind it (pong), by the next message from
    /// the server (order), or by one with the same value in a field (field:NAME) [default: pong]
    #[arg(long, value_name = "HOW", value_parser = message::matching)]
    pub(crate) reply: Option<Matching>,
    /// The field of messages from the server that says when they were made, for their age
    #[arg(long, value_name = "FIELD", value_parser = pointer)]
    pub(crate) timestamp_field: Option<Pointer>,
    /// Send binary messages
    #[arg(long)]
    pub(crate) binary: bool,
    /// Compress messages by permessage-deflate, without memory between them; a server that does not accept it fails the
    /// connection
    #[arg(long)]
    pub(crate) deflate: bool,
    /// What a session says: nothing but its messages, or Tidewire's protocol version 1 [default: raw]
    #[arg(long, value_enum)]
    pub(crate) profile: Option<ProfileFlag>,
    /// A token for Authorization: Bearer
    #[arg(long, value_name = "JWT")]
    pub(crate) token: Option<String>,
}

/// Checks of responses, and expectations of figures.
#[derive(Debug, Args)]
#[command(next_help_heading = "Checks")]
pub(crate) struct CheckFlags {
    /// Statuses that are a success, such as 200, 2xx,404 or any [default: up to 399]
    #[arg(long, value_name = "STATUSES", value_parser = statuses)]
    pub(crate) expect_status: Option<Statuses>,
    /// A text that each body has to contain
    #[arg(long, value_name = "TEXT")]
    pub(crate) expect_body: Option<String>,
    /// The bytes that each body has to have
    #[arg(long, value_name = "BYTES")]
    pub(crate) expect_length: Option<u64>,
    /// What a figure has to be, such as 'p99<20ms', 'errors<0.1%' or 'rate>10k'; several times for several.
    /// Exit code 5 if one is broken
    #[arg(long, value_name = "EXPECTATION", value_parser = expectation)]
    pub(crate) expect: Vec<Expectation>,
    /// End the load early when an expectation has been broken for this many seconds without a break
    #[arg(long, value_name = "S", value_parser = quantity::duration, requires = "expect")]
    pub(crate) abort_after_s: Option<Duration>,
}

/// Options of connections.
#[derive(Debug, Args)]
#[command(next_help_heading = "Connections")]
pub(crate) struct ConnectionFlags {
    /// A new connection for each request
    #[arg(long)]
    pub(crate) no_keepalive: bool,
    /// Replace a connection after this many requests
    #[arg(long, value_name = "N", value_parser = whole)]
    pub(crate) requests_per_connection: Option<u64>,
    /// Milliseconds to wait for a whole response [default: 30000]
    #[arg(long, value_name = "MS", value_parser = whole)]
    pub(crate) timeout_ms: Option<u64>,
    /// Milliseconds to wait for a connection, with TLS [default: 10000]
    #[arg(long, value_name = "MS", value_parser = whole)]
    pub(crate) connect_timeout_ms: Option<u64>,
    /// Milliseconds to wait for the last responses after the sending [default: 2000]
    #[arg(long, value_name = "MS")]
    pub(crate) drain_ms: Option<u64>,
    /// Trust the authorities in this PEM file [default: those that browsers trust]
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// A certificate chain (PEM) for servers that ask for one
    #[arg(long, value_name = "FILE", requires = "key")]
    pub(crate) cert: Option<PathBuf>,
    /// The key (PEM) of --cert
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub(crate) key: Option<PathBuf>,
    /// The name to ask for and to check in TLS [default: the URL's host]
    #[arg(long, value_name = "NAME")]
    pub(crate) sni: Option<String>,
    /// Accept any certificate
    #[arg(long)]
    pub(crate) insecure: bool,
    /// Go through this HTTP proxy, http://[user:password@]host:port; to all but http:// by CONNECT
    #[arg(long, value_name = "URL")]
    pub(crate) proxy: Option<String>,
    /// Connect to this Unix socket instead of the URL's host
    #[arg(long, value_name = "PATH")]
    pub(crate) unix_socket: Option<PathBuf>,
    /// Connect from these addresses in turn, with commas [default: on loopback as many as ports need]
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',')]
    pub(crate) source_address: Vec<IpAddr>,
    /// Use this address for a host and port, as host:port:address; several times for several
    #[arg(long, value_name = "RULE")]
    pub(crate) resolve: Vec<String>,
    /// Weigh both sides: the memory of each connection, and the server's after they are closed
    #[arg(long)]
    pub(crate) memory: bool,
    /// The server's process, if the lab does not find it by its port
    #[arg(long, value_name = "PID")]
    pub(crate) server_pid: Option<u32>,
}

/// Output: display, files, and the comparison with an earlier report.
#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct LoadOutputFlags {
    /// Where the report goes: report.json, report.html and report.md in this folder [default: no files]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Compare with this earlier report: faster, slower or cannot tell, figure by figure
    #[arg(long, value_name = "REPORT.json")]
    pub(crate) baseline: Option<PathBuf>,
    /// With --baseline: exit code 5 if a figure is slower
    #[arg(long, requires = "baseline")]
    pub(crate) fail_if_slower: bool,
    /// First of all words: the words after it are the flags of that tool, and its report lines are printed
    #[arg(long = "as", value_name = "TOOL", value_enum)]
    pub(crate) foreign: Option<Tool>,
    /// The result of reading the flags after --as
    #[arg(long, value_enum, hide = true)]
    pub(crate) lines_of: Option<Tool>,
    /// Print the report as JSON instead of tables
    #[arg(long)]
    pub(crate) json: bool,
    /// Show nothing while the load runs
    #[arg(short = 'q', long)]
    pub(crate) quiet: bool,
}

/// Stages, wrapped as each is one value of a flag.
pub(crate) type Stages = std::sync::Arc<[(Duration, f64)]>;

/// Ranges of statuses.
pub(crate) type Statuses = std::sync::Arc<[RangeInclusive<u16>]>;

fn pointer(text: &str) -> Result<Pointer, String> {
    Ok(Pointer::new(text))
}

fn stages(text: &str) -> Result<Stages, String> {
    let stages = quantity::stages(text).map_err(|error| error.to_string())?;
    Ok(stages.into())
}

fn statuses(text: &str) -> Result<Statuses, String> {
    let statuses = request::statuses(text).map_err(|error| error.to_string())?;
    Ok(statuses.into())
}

fn expectation(text: &str) -> Result<Expectation, String> {
    text.parse()
        .map_err(|error: tidewire_load::verdict::expectation::ExpectationError| error.to_string())
}

fn precision(text: &str) -> Result<Precision, String> {
    text.parse()
        .map_err(|error: tidewire_load::accounting::precision::PrecisionError| error.to_string())
}

fn whole(text: &str) -> Result<u64, String> {
    match quantity::count(text).map_err(|error| error.to_string())? {
        0 => Err("it has to be at least 1".to_owned()),
        count => Ok(count),
    }
}

//! The options of `tidewire load`.

use super::foreign::Tool;
use crate::baseline::BaselineFlags;
use crate::bench::ProfileFlag;
use crate::files::FileFlags;
use crate::numbers;
use clap::Args;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;
use tidewire_load::accounting::precision::Precision;
use tidewire_load::options::load::Retry;
use tidewire_load::options::{message, quantity, request};
use tidewire_load::verdict::expectation::Expectation;
use tidewire_load::worker::messages::{Matching, Pointer};

/// All options of `load`.
#[derive(Debug, Args)]
pub(crate) struct LoadFlags {
    /// The URL to load: http://, https://, ws:// or wss://
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
    /// Connections in total, not per core [default: 50]
    #[arg(short = 'c', long, value_name = "N", value_parser = whole)]
    pub(crate) connections: Option<u64>,
    /// Requests in total, such as 1000 or 10k
    #[arg(short = 'n', long, value_name = "N", value_parser = quantity::count)]
    pub(crate) requests: Option<u64>,
    /// Duration of the load in seconds; with --requests, whichever ends first [default: 10, without
    /// --requests]
    #[arg(short = 'd', long, value_name = "S", value_parser = quantity::duration)]
    pub(crate) duration_s: Option<Duration>,
    /// Continue until a figure is known precisely enough, such as p99:5%, mean:2% or rate:1%: half
    /// of its 95 % confidence interval is at most this share of it. Ends at the latest after
    /// --duration-s [default: 300]
    #[arg(long, value_name = "FIGURE", value_parser = precision, conflicts_with_all = ["find_limit", "stages", "connection_stages"])]
    pub(crate) confidence: Option<Precision>,
    /// Seconds of load before the measurement [default: 0]
    #[arg(long, value_name = "S", value_parser = quantity::duration)]
    pub(crate) warm_up_s: Option<Duration>,
    /// Requests per second over all connections, each sent at its planned time (open loop); latency
    /// counts from that time [default: the next when the previous one is answered]
    #[arg(short = 'r', long, value_name = "N", value_parser = quantity::number)]
    pub(crate) rate_per_s: Option<f64>,
    /// Requests or messages per second on each connection
    #[arg(long, value_name = "N", value_parser = quantity::number)]
    pub(crate) messages_per_s: Option<f64>,
    /// Rates over time, each reached in a straight line, such as 10s:1k,30s:5k,10s:0
    #[arg(long, value_name = "STAGES", value_parser = stages)]
    pub(crate) stages: Option<Stages>,
    /// With a rate: at random times, as independent users send, not evenly
    #[arg(long)]
    pub(crate) poisson: bool,
    /// Search for the highest rate at which every --expect holds: doubled until one breaks, then
    /// halved
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
    /// New connections per second [default: all before the clock starts]
    #[arg(long, value_name = "N", value_parser = quantity::number)]
    pub(crate) ramp_per_s: Option<f64>,
    /// Numbers of connections over time, such as 10s:100,1m:500,10s:0
    #[arg(long, value_name = "STAGES", value_parser = stages)]
    pub(crate) connection_stages: Option<Stages>,
    /// Requests in flight on each connection (pipelining) [default: 1]
    #[arg(short = 'p', long, value_name = "N", value_parser = numbers::positive::<u32>)]
    pub(crate) in_flight: Option<u32>,
    /// Threads of the generator [default: half of the cores]
    #[arg(short = 't', long, value_name = "N", value_parser = whole)]
    pub(crate) threads: Option<u64>,
    /// The seed of random choices; the same seed gives the same choices [default: 1]
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
}

/// Options of the HTTP request.
#[derive(Debug, Args)]
#[command(next_help_heading = "Request")]
pub(crate) struct RequestFlags {
    /// The method [default: GET, or POST with a body]
    #[arg(short = 'm', long)]
    pub(crate) method: Option<String>,
    /// A header, as 'name: value'; may be repeated
    #[arg(short = 'H', long, value_name = "HEADER", value_parser = request::header)]
    pub(crate) header: Vec<(String, String)>,
    /// A cookie, as name=value; may be repeated
    #[arg(long, value_name = "COOKIE", value_parser = request::pair)]
    pub(crate) cookie: Vec<(String, String)>,
    /// The body
    #[arg(short = 'b', long, value_name = "TEXT", group = "content")]
    pub(crate) body: Option<String>,
    /// A file with the body
    #[arg(long, value_name = "FILE", group = "content")]
    pub(crate) body_file: Option<PathBuf>,
    /// A JSON body
    #[arg(long, value_name = "JSON", group = "content")]
    pub(crate) json_body: Option<String>,
    /// A field of a form, as name=value; may be repeated
    #[arg(long, value_name = "FIELD", value_parser = request::pair, group = "content")]
    pub(crate) form: Vec<(String, String)>,
    /// Several requests from a file (TOML or JSON Lines): weighted, or the steps of a journey
    #[arg(long, value_name = "FILE", conflicts_with_all = ["content", "method"])]
    pub(crate) scenario: Option<PathBuf>,
    /// Send texts as they are: {{seq}} and the like stand for nothing
    #[arg(long, conflicts_with = "scenario")]
    pub(crate) literal: bool,
    /// The text for which 1, 2, 3 … is sent in the target and the body; set by the translation of --as
    #[arg(long, hide = true, value_name = "TEXT")]
    pub(crate) index_text: Option<String>,
    /// Request compressed responses; their compressed bytes count
    #[arg(long)]
    pub(crate) compressed: bool,
    /// Redirects to follow per request, on the same server [default: 0]
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
    /// Messages from this file, one per line, in turn
    #[arg(long, value_name = "FILE", conflicts_with = "message")]
    pub(crate) message_file: Option<PathBuf>,
    /// A message that each connection sends first, such as a subscription; may be repeated
    #[arg(long, value_name = "TEXT")]
    pub(crate) subscribe: Vec<String>,
    /// The confirmation of a message: the pong to a ping that was sent after it (pong), the next message
    /// from the server (order), or a message with the same value in a field (field:NAME) [default:
    /// pong]
    #[arg(long, value_name = "HOW", value_parser = message::matching)]
    pub(crate) reply: Option<Matching>,
    /// The field of the server's messages with the time at which they were created, for their age
    #[arg(long, value_name = "FIELD", value_parser = pointer)]
    pub(crate) timestamp_field: Option<Pointer>,
    /// Send binary messages
    #[arg(long)]
    pub(crate) binary: bool,
    /// Compress messages by permessage-deflate, without memory between them; a server that does not
    /// accept it fails the connection
    #[arg(long)]
    pub(crate) deflate: bool,
    /// Encrypt every message under a key of each connection, as Tidewire's protocol version 1 does; a
    /// server that does not agree on a key fails the connection
    #[arg(long)]
    pub(crate) encrypt: bool,
    /// The protocol of a session: nothing but its messages, or Tidewire's protocol version 1
    /// [default: raw, with --encrypt v1]
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
    /// Statuses that count as a success, such as 200, 2xx,404 or any [default: up to 399]
    #[arg(long, value_name = "STATUSES", value_parser = statuses)]
    pub(crate) expect_status: Option<Statuses>,
    /// A text that each body must contain
    #[arg(long, value_name = "TEXT")]
    pub(crate) expect_body: Option<String>,
    /// The required length of each body in bytes
    #[arg(long, value_name = "BYTES")]
    pub(crate) expect_length: Option<u64>,
    /// An expectation of a figure, such as 'p99<20ms', 'errors<0.1%' or 'rate>10k'; may be repeated.
    /// The exit code is 5 if one is broken
    #[arg(long, value_name = "EXPECTATION", value_parser = expectation)]
    pub(crate) expect: Vec<Expectation>,
    /// End the load early when an expectation has been broken for this many consecutive seconds
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
    /// Whether an HTTP request whose connection is closed before the first byte of the response is sent
    /// again: never (it has failed), or idle-close (once, on a reused connection, if the method allows it)
    /// [default: never]
    #[arg(long, value_name = "WHEN", value_parser = retry)]
    pub(crate) retry: Option<Retry>,
    /// Replace a WebSocket that ends before the load ends it, or that cannot be opened; each end is
    /// counted as a failure all the same
    #[arg(long)]
    pub(crate) reconnect: bool,
    /// Milliseconds to wait for a complete response [default: 30000]
    #[arg(long, value_name = "MS", value_parser = whole)]
    pub(crate) timeout_ms: Option<u64>,
    /// Milliseconds to wait for a connection, TLS included [default: 10000]
    #[arg(long, value_name = "MS", value_parser = whole)]
    pub(crate) connect_timeout_ms: Option<u64>,
    /// Milliseconds to wait for the last responses after the last request [default: 2000]
    #[arg(long, value_name = "MS")]
    pub(crate) drain_ms: Option<u64>,
    /// Trust the authorities in this PEM file [default: those that browsers trust]
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// The client's certificate chain (PEM) for servers that request one
    #[arg(long, value_name = "FILE", requires = "key")]
    pub(crate) cert: Option<PathBuf>,
    /// The key (PEM) of --cert
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub(crate) key: Option<PathBuf>,
    /// The server name to send and to verify in TLS [default: the URL's host]
    #[arg(long, value_name = "NAME")]
    pub(crate) sni: Option<String>,
    /// Accept any certificate
    #[arg(long)]
    pub(crate) insecure: bool,
    /// Use this HTTP proxy, http://[user:password@]host:port; with CONNECT for all but http://
    #[arg(long, value_name = "URL")]
    pub(crate) proxy: Option<String>,
    /// Connect to this Unix socket instead of the URL's host
    #[arg(long, value_name = "PATH")]
    pub(crate) unix_socket: Option<PathBuf>,
    /// Connect from these addresses in turn, with commas [default: on loopback as many as ports need]
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',')]
    pub(crate) source_address: Vec<IpAddr>,
    /// Use this address for a host and port, as host:port:address; may be repeated
    #[arg(long, value_name = "RULE")]
    pub(crate) resolve: Vec<String>,
    /// Measure the memory of both sides: per connection, and the server's after they are closed
    #[arg(long)]
    pub(crate) memory: bool,
    /// The server's process, if the program cannot find it by its port
    #[arg(long, value_name = "PID")]
    pub(crate) server_pid: Option<u32>,
}

/// Output: display, files, and the comparison with an earlier report.
#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct LoadOutputFlags {
    /// The directory for report.json, report.html and report.md [default: no files]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) files: FileFlags,
    #[command(flatten)]
    pub(crate) baseline: BaselineFlags,
    /// Directly after `load`: the following words are the flags of that tool, and its report lines
    /// are printed
    #[arg(long = "as", value_name = "TOOL", value_enum)]
    pub(crate) foreign: Option<Tool>,
    /// The tool whose report lines are printed, set by the translation of --as
    #[arg(long, value_enum, hide = true)]
    pub(crate) lines_of: Option<Tool>,
    /// With --lines-of: print the distribution of the latency as well; set by the translation of --as
    #[arg(long, hide = true, requires = "lines_of")]
    pub(crate) lines_latency: bool,
    /// Print the report as JSON instead of tables
    #[arg(long)]
    pub(crate) json: bool,
    /// Show no progress while the load runs
    #[arg(short = 'q', long)]
    pub(crate) quiet: bool,
}

/// Stages, wrapped because together they are one value of a flag.
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

fn retry(text: &str) -> Result<Retry, String> {
    text.parse()
        .map_err(|error: tidewire_load::options::OptionError| error.to_string())
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
        0 => Err("expected a number from 1".to_owned()),
        count => Ok(count),
    }
}

//! The options of `tidewire bench`.

use super::workers::WorkerFlags;
use crate::baseline::BaselineFlags;
use crate::files::FileFlags;
use crate::numbers;
use clap::{Args, ValueEnum};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;
use tidewire_load::plan::bench::{TestExpectation, TestExpectationError, TestKind};
use tidewire_load::plan::run::{DURATION, LIMIT_RESOLUTIONS, PAYLOAD_BYTES};
use tidewire_load::worker::pace::RATE_PER_S;
use tidewire_load::worker::websocket::profile::Profile;

/// All options of `bench`.
#[derive(Debug, Args)]
pub(crate) struct BenchFlags {
    /// The server to load, ws:// or wss://; without a URL the program starts one on this machine
    pub(crate) url: Option<String>,
    #[command(flatten)]
    pub(crate) plan: PlanFlags,
    #[command(flatten)]
    pub(crate) target: TargetFlags,
    #[command(flatten)]
    pub(crate) workers: WorkerFlags,
    #[command(flatten)]
    pub(crate) output: OutputFlags,
}

/// The tests and their sizes.
#[derive(Debug, Args)]
#[command(next_help_heading = "Plan")]
pub(crate) struct PlanFlags {
    /// The tests, with commas: connection-storm, ping-latency, throughput, size-matrix,
    /// format-comparison, sustained-hold, connection-limit, connect-latency, rapid-reconnect,
    /// sustained-throughput, fan-out (for servers that allow clients to publish), echo (for servers
    /// that echo) [default: the first seven, and fan-out without a URL and --profile raw]
    #[arg(long, value_name = "TEST", value_delimiter = ',', value_parser = test)]
    pub(crate) test: Vec<TestKind>,
    /// Numbers of connections, with commas [default: 100,1000,10000, as far as open files allow]
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = numbers::positive::<usize>)]
    pub(crate) connections: Vec<usize>,
    /// Seconds of one measurement [default: 2, with --quick 0.3]
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub(crate) duration_s: Option<Duration>,
    /// Seconds of sustained-throughput [default: 10, with --quick 2]
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub(crate) sustained_s: Option<Duration>,
    /// Connections of connect-latency, one after the other [default: 200, with --quick 20]
    #[arg(long, value_name = "N", value_parser = numbers::positive::<u64>)]
    pub(crate) rounds: Option<u64>,
    /// Seconds of a sustained hold [default: 30, with --quick 1]
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub(crate) hold_s: Option<Duration>,
    /// Sizes for size-matrix, fan-out and echo, with commas [default: 64,256,1024,4096,16384,65536,
    /// 95 for fan-out, and 175 for echo]
    #[arg(long, value_name = "BYTES", value_delimiter = ',', value_parser = payload)]
    pub(crate) payload_bytes: Vec<usize>,
    /// For size-matrix and echo, from 512 bytes: one trade filled up with random letters, or several
    /// trades, which compress as real messages do [default: trade, with --deflate trades]
    #[arg(long, value_enum)]
    pub(crate) payload: Option<PayloadFlag>,
    /// For echo: messages in flight on each connection [default: 64]. For fan-out at full speed:
    /// publications ahead of the slowest subscriber [default: as many as 64 KiB hold]
    #[arg(long, value_name = "N", value_parser = numbers::positive::<u32>)]
    pub(crate) in_flight: Option<u32>,
    /// For throughput, size-matrix, format-comparison, fan-out and echo: messages per second over
    /// all connections, each sent at its planned time (open loop) [default: as many as possible;
    /// fan-out also at 100/s from 1,000 subscribers on, from 10,000 on at 20/s]
    #[arg(long, value_name = "N", value_parser = rate)]
    pub(crate) rate_per_s: Option<f64>,
    /// For throughput, size-matrix, format-comparison, sustained-throughput and echo: messages of each
    /// connection, in place of --duration-s, for at most 10 minutes
    #[arg(long, value_name = "N", value_parser = numbers::positive::<u64>, conflicts_with = "rate_per_s")]
    pub(crate) messages: Option<u64>,
    /// With --rate-per-s: at random times, as independent users send, not evenly
    #[arg(long, requires = "rate_per_s")]
    pub(crate) poisson: bool,
    /// For rapid-reconnect: how often each connection is opened, in place of --duration-s
    #[arg(long, value_name = "N", value_parser = numbers::positive::<u64>)]
    pub(crate) cycles: Option<u64>,
    /// Seconds between two pings of a held connection [default: 5, with --quick 0.2]
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub(crate) hold_ping_s: Option<Duration>,
    /// Connections being opened at once, over all workers, from 1 to 65536 [default: 256]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(crate) handshakes_in_flight: Option<u32>,
    /// For ping-latency: pings of each connection [default: 50, with --quick 20]
    #[arg(long, value_name = "N", value_parser = numbers::positive::<u64>)]
    pub(crate) pings_per_connection: Option<u64>,
    /// Seconds to wait for the answer to a ping [default: 10]
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub(crate) pong_timeout_s: Option<Duration>,
    /// The number at which connection-limit ends its search, unless open files end it before [default:
    /// 1000000, with --quick 100]
    #[arg(long, value_name = "N", value_parser = numbers::positive::<usize>)]
    pub(crate) connections_max: Option<usize>,
    /// How close connection-limit comes to the limit, as a share of it [default: 0.015625, which is 1/64]
    #[arg(long, value_name = "SHARE", value_parser = resolution)]
    pub(crate) limit_resolution: Option<f64>,
    /// An expectation of a figure, such as 'p99<5ms', for each test that has the figure; with the
    /// name of a test, such as 'throughput: rate>100k', for that test. May be repeated. The exit code
    /// is 5 if one is broken
    #[arg(long, value_name = "EXPECTATION", value_parser = expectation)]
    pub(crate) expect: Vec<TestExpectation>,
    /// End a test, and the run, when an expectation has been broken for this many consecutive seconds:
    /// `rate`, of each second, or `p99`, from the start of the test until then
    #[arg(long, value_name = "S", value_parser = seconds, requires = "expect", conflicts_with = "repeats")]
    pub(crate) abort_after_s: Option<Duration>,
    /// Runs of the whole plan, 1 to 100; each row is that of the median run, with the least and the largest
    /// rate and p99 of all runs
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = repeats)]
    pub(crate) repeats: usize,
    /// The seed of random messages and masks; the same seed gives the same messages [default: 1]
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Threads of the generator [default: half of the cores]
    #[arg(long, value_name = "N", value_parser = numbers::positive::<usize>)]
    pub(crate) threads: Option<usize>,
    /// A run of a few seconds that shows that everything works: 10 connections, short tests
    #[arg(long)]
    pub(crate) quick: bool,
}

/// The server under load and how to reach it.
#[derive(Debug, Args)]
#[command(next_help_heading = "Server")]
pub(crate) struct TargetFlags {
    /// The protocol of a session: Tidewire's protocol version 1, or only WebSocket pings and the
    /// messages of the test [default: v1 with a token, with a client other than rust or without a URL,
    /// else raw]
    #[arg(long, value_enum)]
    pub(crate) profile: Option<ProfileFlag>,
    /// Compress every message by permessage-deflate, without memory between messages; a server that
    /// does not accept it fails the connection
    #[arg(long, conflicts_with = "encrypt")]
    pub(crate) deflate: bool,
    /// Encrypt every message under a key of each connection, as protocol version 1 does
    #[arg(long)]
    pub(crate) encrypt: bool,
    /// The token that every connection sends. Tokens and secrets from the environment are sent to
    /// servers on this machine, to others only with --profile v1, and never with --profile raw
    #[arg(
        long,
        value_name = "JWT",
        env = "TIDEWIRE_TOKEN",
        hide_env_values = true
    )]
    pub(crate) token: Option<String>,
    /// The server's HS256 secret: each connection gets a token of its own for bench-user-N
    #[arg(
        long,
        value_name = "SECRET",
        env = "TIDEWIRE_JWT_SECRET",
        hide_env_values = true
    )]
    pub(crate) jwt_secret: Option<String>,
    /// Send the token in this cookie, not in `Authorization: Bearer`
    #[arg(long, value_name = "NAME")]
    pub(crate) cookie_name: Option<String>,
    /// The server's process on this machine, for its processor time and memory [default: the one that
    /// listens on the URL's port]
    #[arg(long, value_name = "PID", requires = "url")]
    pub(crate) server_pid: Option<u32>,
    /// Measure the memory of both sides: second by second, per connection, and the server's after the
    /// connections are closed
    #[arg(long)]
    pub(crate) memory: bool,
    /// The operations listener of a Tidewire server, for its own counters
    #[arg(long, value_name = "URL", requires = "url")]
    pub(crate) stats_url: Option<String>,
    /// For wss: the certificate authorities to trust, PEM
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with = "insecure",
        requires = "url"
    )]
    pub(crate) ca: Option<PathBuf>,
    /// For wss: accept any certificate
    #[arg(long, requires = "url")]
    pub(crate) insecure: bool,
    /// Without a URL: event loops of the server [default: half of the cores]
    #[arg(long, value_name = "N", value_parser = numbers::positive::<usize>, conflicts_with = "url")]
    pub(crate) server_shards: Option<usize>,
    /// Without a URL: processes of the server, which share one port, for more connections than one
    /// process may have open files; each is a server of its own, so fan-out is left out
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = numbers::positive::<usize>, conflicts_with = "url")]
    pub(crate) server_processes: usize,
}

/// The destination of the report.
#[derive(Debug, Args)]
#[command(next_help_heading = "Report")]
pub(crate) struct OutputFlags {
    /// The directory for report.json, report.md and report.html
    #[arg(long, value_name = "DIR", default_value = "tidewire-report")]
    pub(crate) out: PathBuf,
    #[command(flatten)]
    pub(crate) files: FileFlags,
    #[command(flatten)]
    pub(crate) baseline: BaselineFlags,
    /// Print the report as JSON on standard output; the tables go to standard error
    #[arg(long)]
    pub(crate) json: bool,
    /// Show no progress while the tests run
    #[arg(short = 'q', long)]
    pub(crate) quiet: bool,
}

/// The protocol of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProfileFlag {
    Raw,
    V1,
}

impl From<ProfileFlag> for Profile {
    fn from(flag: ProfileFlag) -> Self {
        match flag {
            ProfileFlag::Raw => Self::Raw,
            ProfileFlag::V1 => Self::V1,
        }
    }
}

/// The content of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PayloadFlag {
    Trade,
    Trades,
}

fn test(text: &str) -> Result<TestKind, String> {
    TestKind::parse(text).ok_or_else(|| {
        let known: Vec<&str> = TestKind::ALL.iter().map(|test| test.name()).collect();
        format!("expected one of {}", known.join(", "))
    })
}

fn expectation(text: &str) -> Result<TestExpectation, String> {
    text.parse()
        .map_err(|error: TestExpectationError| error.to_string())
}

fn repeats(text: &str) -> Result<usize, String> {
    let number = text
        .parse()
        .ok()
        .filter(|number| (1..=REPEATS_MAX).contains(number));
    number.ok_or_else(|| format!("expected a number from 1 to {REPEATS_MAX}"))
}

fn rate(text: &str) -> Result<f64, String> {
    within(
        &RATE_PER_S,
        "messages per second, such as 5000 or 0.5",
        text,
    )
}

fn resolution(text: &str) -> Result<f64, String> {
    within(&LIMIT_RESOLUTIONS, "a share, such as 0.01", text)
}

/// A number within bounds; `what` says in the error what was expected.
fn within(bounds: &RangeInclusive<f64>, what: &str, text: &str) -> Result<f64, String> {
    let (least, most) = (bounds.start(), bounds.end());
    let number = text.parse().ok().filter(|number| bounds.contains(number));
    number.ok_or_else(|| format!("expected {what}, from {least} to {most}"))
}

fn payload(text: &str) -> Result<usize, String> {
    let (least, most) = (PAYLOAD_BYTES.start(), PAYLOAD_BYTES.end());
    text.parse()
        .ok()
        .filter(|bytes| PAYLOAD_BYTES.contains(bytes))
        .ok_or_else(|| format!("a message has from {least} to {most} bytes"))
}

fn seconds(text: &str) -> Result<Duration, String> {
    let (least, most) = (DURATION.start(), DURATION.end());
    let seconds = text.parse().ok().filter(|&seconds: &f64| seconds > 0.0);
    seconds
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .filter(|time| DURATION.contains(time))
        .ok_or_else(|| {
            let (least, most) = (least.as_secs_f64(), most.as_secs_f64());
            format!("expected seconds, such as 2 or 0.5, from {least} to {most}")
        })
}

/// The most runs of a plan.
const REPEATS_MAX: usize = 100;

//! `tidewire test-server`: a server to try load on.

use crate::failure::Failure;
use crate::output::print;
use crate::stop;
use clap::Args;
use std::fmt::Write as _;
use std::io::Write as _;
use std::net::{SocketAddr, ToSocketAddrs};
use std::num::{NonZeroU64, NonZeroUsize};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tidewire_load::fleet::preflight;
use tidewire_load::test_server::{
    Conduct, Counts, DEFAULT_PORT, Delay, Stalls, StartError, TestServer,
};

/// The options of `test-server`.
#[derive(Debug, Args)]
pub(crate) struct TestServerFlags {
    /// Address or name of this machine on which to listen
    #[arg(long, default_value = "127.0.0.1")]
    host: String,
    /// Port on which to listen; 0 for any free one
    #[arg(long, default_value_t = DEFAULT_PORT)]
    port: u16,
    /// Threads, each with an event loop of its own [default: half of the cores]
    #[arg(long, value_name = "N")]
    shards: Option<NonZeroUsize>,
    /// Bytes of the body: `OK`, cut or filled up with dots
    #[arg(long, value_name = "BYTES", default_value_t = 2)]
    body_bytes: usize,
    /// Send the body in chunks
    #[arg(long)]
    chunked: bool,
    /// Delay of each response in milliseconds: 20, or a range 5..20, exp:MEAN, normal:MEAN,DEVIATION
    #[arg(long, value_name = "DELAY", default_value_t)]
    delay_ms: Delay,
    /// Status of errors [default: 500]; without --error-percent all responses have it
    #[arg(long, value_name = "STATUS")]
    error_status: Option<u16>,
    /// Percentage of requests that get an error
    #[arg(long, value_name = "PERCENT")]
    error_percent: Option<f64>,
    /// Percentage of requests for which the connection is closed instead of a response
    #[arg(long, value_name = "PERCENT", default_value_t = 0.0)]
    close_percent: f64,
    /// Write responses in pieces, at this number of bytes per second and connection
    #[arg(long, value_name = "BYTES_PER_S")]
    slow_write: Option<NonZeroU64>,
    /// Each time this number of milliseconds has passed, do nothing for --stall-ms
    #[arg(long, value_name = "MS", requires = "stall_ms")]
    stall_every_ms: Option<u64>,
    /// Length of each stall in milliseconds
    #[arg(long, value_name = "MS", requires = "stall_every_ms")]
    stall_ms: Option<u64>,
    /// The certificate chain, PEM; with --tls-key it turns TLS on
    #[arg(
        long,
        visible_alias = "tls-cert",
        value_name = "FILE",
        requires = "tls_key"
    )]
    tls_certificate: Option<PathBuf>,
    /// Its private key, PEM
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    tls_key: Option<PathBuf>,
    /// At the end print the counts as one line of JSON; the address goes to standard error
    #[arg(long)]
    json: bool,
}

/// Serves until a signal, and prints the counts.
pub(crate) fn run(flags: &TestServerFlags) -> Result<u8, Failure> {
    let conduct = flags.conduct()?;
    let stop = stop::on_signals()?;
    // A connection is an open file, and the current limit is often only 1,024.
    preflight::raise_open_files();
    let server = TestServer::start(&conduct).map_err(|error| explain(&error))?;
    let place = format!(
        "listening on {}\nWebSocket echo at {}\n",
        server.url(),
        server.websocket_url()
    );
    if flags.json {
        // A closed standard error is not a failure.
        let _ = std::io::stderr().write_all(place.as_bytes());
    } else {
        print(&place)?;
    }
    while !stop.load(Ordering::Acquire) {
        std::thread::sleep(STOP_POLL);
    }
    let counts = server.stop();
    if flags.json {
        let line = serde_json::to_string(&counts)
            .map_err(|error| Failure::run(format!("cannot write the counts: {error}")))?;
        print(&format!("{line}\n"))?;
    } else {
        print(&summary(&counts))?;
    }
    Ok(0)
}

impl TestServerFlags {
    fn conduct(&self) -> Result<Conduct, Failure> {
        let has_errors = self.error_status.is_some();
        let stalls = self.stall_every_ms.zip(self.stall_ms);
        Ok(Conduct {
            address: self.address()?,
            shards: self
                .shards
                .map_or_else(half_of_the_cores, NonZeroUsize::get),
            body_bytes: self.body_bytes,
            chunked: self.chunked,
            delay: self.delay_ms,
            error_status: self.error_status.unwrap_or(500),
            error_percent: self
                .error_percent
                .unwrap_or(if has_errors { 100.0 } else { 0.0 }),
            close_percent: self.close_percent,
            slow_write_bytes_per_s: self.slow_write.map(NonZeroU64::get),
            stalls: stalls.map(|(every_ms, stall_ms)| Stalls { every_ms, stall_ms }),
            tls: self.tls_certificate.clone().zip(self.tls_key.clone()),
        })
    }

    fn address(&self) -> Result<SocketAddr, Failure> {
        let found = (self.host.trim_matches(['[', ']']), self.port).to_socket_addrs();
        let first = found.ok().and_then(|mut addresses| addresses.next());
        first.ok_or_else(|| {
            Failure::usage(format!(
                "--host {:?} is neither an address nor a known name: give one, such as 127.0.0.1",
                self.host
            ))
        })
    }
}

fn half_of_the_cores() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get().div_ceil(2))
}

fn explain(error: &StartError) -> Failure {
    use std::io::ErrorKind;
    let advice = match error {
        StartError::Listen { source, .. } => match source.kind() {
            ErrorKind::AddrInUse => {
                "another program uses this address: stop it, or give another --port (0 selects a free one)"
            }
            ErrorKind::PermissionDenied => {
                "ports below 1024 need privileges: give another with --port"
            }
            _ => "give another address with --host",
        },
        StartError::Tls(_) => "give PEM files with --tls-certificate and --tls-key",
        StartError::Conduct(_) => "see `tidewire test-server --help`",
        StartError::System(_) => return Failure::run(error),
    };
    Failure::usage(format!("{error}: {advice}"))
}

/// The counts, as text for a person.
fn summary(counts: &Counts) -> String {
    let requests = &counts.requests;
    let mut text = format!(
        "served {} requests on {} connections, {} bytes received, {} bytes sent\n",
        requests.answered, counts.connections.accepted, counts.bytes.received, counts.bytes.sent
    );
    for (status, responses) in &counts.statuses {
        let _ = writeln!(text, "  status {status}: {responses}");
    }
    for (number, words) in [
        (requests.closed, "closed instead of a response"),
        (
            requests.abandoned,
            "abandoned by the client before the response",
        ),
        (requests.cut_off, "cut off in the middle"),
        (requests.malformed, "malformed"),
    ] {
        if number > 0 {
            let _ = writeln!(text, "  {words}: {number}");
        }
    }
    let echo = &counts.websocket;
    if echo.connections > 0 {
        let _ = writeln!(
            text,
            "  WebSocket: {} connections, {} messages received, {} sent back",
            echo.connections, echo.received, echo.sent
        );
    }
    text
}

/// The interval at which the program checks for a signal to stop.
const STOP_POLL: Duration = Duration::from_millis(50);

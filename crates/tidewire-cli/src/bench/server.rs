//! The server under load: the server of a URL, or one that is started for the run.

use super::child::{EmbeddedServer, FREE_PORT};
use super::credential::Credential;
use super::flags::{BenchFlags, ProfileFlag, TargetFlags};
use crate::failure::Failure;
use crate::sources::Ranks;
use std::io::ErrorKind;
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tidewire_load::Report;
use tidewire_load::accounting::stats::StatsSource;
use tidewire_load::plan::bench::TestKind;
use tidewire_load::worker::target::{Target, TokenPlace, redacted};
use tidewire_load::worker::websocket::layer::Layer;
use tidewire_load::worker::websocket::profile::Profile;

/// The server of a run.
#[derive(Debug)]
pub(crate) struct BenchServer<'a> {
    flags: &'a TargetFlags,
    kind: Kind,
    target: Target,
    profile: Profile,
    credential: Option<Credential>,
}

#[derive(Debug)]
enum Kind {
    At,
    Embedded {
        /// Its processes, at one port.
        processes: Vec<EmbeddedServer>,
        shards: usize,
    },
}

impl<'a> BenchServer<'a> {
    /// The server of the URL, or a new one. `stop` is set when a new one ends by itself.
    ///
    /// # Errors
    /// The URL is malformed, options exclude each other, or a server could not be started.
    pub(crate) fn prepare(
        flags: &'a BenchFlags,
        ranks: &Ranks,
        stop: &Arc<AtomicBool>,
    ) -> Result<Self, Failure> {
        if flags.target.encrypt && flags.target.profile == Some(ProfileFlag::Raw) {
            return Err(Failure::usage(NOTHING_TO_ENCRYPT_WITH));
        }
        match &flags.url {
            Some(url) => Self::at(url, flags, ranks),
            None => Self::embedded(flags, stop),
        }
    }

    fn at(url: &str, flags: &'a BenchFlags, ranks: &Ranks) -> Result<Self, Failure> {
        let speaks_v1 = flags.workers.has_client_of_v1();
        let flags = &flags.target;
        let target = Target::parse(url).map_err(Failure::usage)?;
        let credential = Credential::choose(flags, ranks, target.is_loopback())?;
        let profile = match flags.profile {
            Some(ProfileFlag::V1) => Profile::V1,
            None if credential.is_some() || speaks_v1 => Profile::V1,
            None if flags.encrypt => Profile::V1,
            Some(ProfileFlag::Raw) | None => Profile::Raw,
        };
        Ok(Self {
            flags,
            kind: Kind::At,
            target,
            profile,
            credential,
        })
    }

    fn embedded(flags: &'a BenchFlags, stop: &Arc<AtomicBool>) -> Result<Self, Failure> {
        let shards = flags.target.server_shards.unwrap_or_else(half_of_the_cores);
        let count = shards.to_string();
        let app = if needs_echo(&flags.plan.test)? {
            "echo"
        } else {
            "sink"
        };
        let mut arguments = vec!["--shards", &count, "--app", app];
        match layer(&flags.target) {
            Layer::Plain => {}
            Layer::Deflate => arguments.extend(["--deflate", "shared"]),
            Layer::Encryption => arguments.extend(["--encryption", "required"]),
        }
        let is_raw = flags.target.profile == Some(ProfileFlag::Raw);
        if is_raw && flags.plan.test.contains(&TestKind::FanOut) {
            return Err(Failure::usage(NO_TOPICS));
        }
        if is_raw {
            arguments.extend(["--protocol", "raw", "--no-auth"]);
        } else {
            arguments.push("--topics-open");
        }
        let wanted = flags.target.server_processes;
        if wanted > 1 {
            if flags.plan.test.contains(&TestKind::FanOut) {
                return Err(Failure::usage(NO_SHARED_TOPICS));
            }
            arguments.push("--reuse-port");
        }
        let first = EmbeddedServer::start(&arguments, FREE_PORT, None, stop)?;
        let target = Target::parse(&first.url).map_err(Failure::run)?;
        let credential = (!is_raw).then(|| Credential::Secret(first.secret.clone()));
        let address = target.address.to_string();
        let mut processes = vec![first];
        while processes.len() < wanted {
            let secret = Some(processes[0].secret.clone());
            processes.push(EmbeddedServer::start(&arguments, &address, secret, stop)?);
        }
        Ok(Self {
            flags: &flags.target,
            target,
            profile: if is_raw { Profile::Raw } else { Profile::V1 },
            credential,
            kind: Kind::Embedded { processes, shards },
        })
    }

    /// The destination of the load, with its tokens.
    ///
    /// # Errors
    /// Nothing listens there, or an option is missing.
    pub(crate) fn target(&self) -> Result<Target, Failure> {
        let mut target = self.target.clone();
        if target.tls.is_some() {
            target = match &self.flags.ca {
                Some(authorities) => target.trusting(authorities).map_err(Failure::usage)?,
                None if self.flags.insecure => target,
                None => return Err(Failure::usage(NO_TRUST)),
            };
        }
        TcpStream::connect_timeout(&target.address, CONNECT_TIMEOUT)
            .map_err(|error| unreachable_server(&target.url, &error))?;
        if let Some(credential) = &self.credential {
            target.token = credential.tokens()?;
        }
        if let Some(name) = &self.flags.cookie_name {
            target.token_place = TokenPlace::Cookie(name.clone());
        }
        Ok(target)
    }

    /// The protocol of a session.
    pub(crate) fn profile(&self) -> Profile {
        self.profile
    }

    /// The layer of the messages: none, compression or encryption.
    pub(crate) fn layer(&self) -> Layer {
        layer(self.flags)
    }

    /// The source of the server's own counters, if it is known.
    ///
    /// # Errors
    /// The counters cannot be read.
    pub(crate) fn stats(&self) -> Result<Option<StatsSource>, Failure> {
        let urls: Vec<&str> = match &self.kind {
            Kind::Embedded { processes, .. } => {
                let urls = processes.iter().map(|server| server.stats_url.as_str());
                urls.collect()
            }
            Kind::At => self.flags.stats_url.iter().map(String::as_str).collect(),
        };
        if urls.is_empty() {
            return Ok(None);
        }
        let addresses: Result<Vec<_>, Failure> = urls
            .into_iter()
            .map(|url| {
                url.strip_prefix("http://")
                    .map(|rest| rest.split('/').next().unwrap_or(rest))
                    .and_then(|host| host.to_socket_addrs().ok()?.next())
                    .ok_or_else(|| {
                        let url = redacted(url);
                        Failure::usage(format!("--stats-url {url:?}: expected http://host:port"))
                    })
            })
            .collect();
        let source = StatsSource {
            addresses: addresses?,
        };
        source.read().map_err(|error| {
            Failure::usage(format!(
                "{error}: give the --ops-listen address of `tidewire serve`"
            ))
        })?;
        Ok(Some(source))
    }

    /// The server's process, if it is known without a search.
    pub(crate) fn process_id(&self) -> Option<u32> {
        match &self.kind {
            Kind::Embedded { processes, .. } => processes.first().map(EmbeddedServer::process_id),
            Kind::At => self.flags.server_pid,
        }
    }

    /// Whether it was started for the run.
    pub(crate) fn is_embedded(&self) -> bool {
        matches!(self.kind, Kind::Embedded { .. })
    }

    /// Whether it was started for the run as one process with all topics open.
    pub(crate) fn has_open_topics(&self) -> bool {
        self.flags.server_processes == 1 && self.is_embedded() && self.profile == Profile::V1
    }

    /// Why a server that was started for the run has ended by itself, if it has.
    pub(crate) fn end_of_embedded(&mut self) -> Option<String> {
        let Kind::Embedded { processes, .. } = &mut self.kind else {
            return None;
        };
        let gone = processes
            .iter_mut()
            .find_map(|server| server.is_gone().then_some(server));
        gone.map(|server| format!("the server ended during the run {}", server.last_words()))
    }

    /// Adds a note to the report about the configuration of a server that was started for the run.
    pub(crate) fn annotate(&self, report: &mut Report) {
        if let (Kind::Embedded { processes, shards }, Some(first)) =
            (&self.kind, report.results.first_mut())
        {
            let processes = match processes.len() {
                1 => String::new(),
                count => format!(" as {count} processes"),
            };
            first.notes.push(format!(
                "The server was started for this run{processes}, with {shards} event loop{} and its rate limit off.",
                if *shards == 1 { "" } else { "s" }
            ));
        }
    }
}

fn layer(flags: &TargetFlags) -> Layer {
    if flags.deflate {
        Layer::Deflate
    } else if flags.encrypt {
        Layer::Encryption
    } else {
        Layer::Plain
    }
}

fn unreachable_server(url: &str, error: &std::io::Error) -> Failure {
    let advice = match error.kind() {
        ErrorKind::ConnectionRefused => {
            "nothing listens there: start the server, or correct the URL"
        }
        ErrorKind::TimedOut | ErrorKind::WouldBlock => {
            "it does not answer: check whether a firewall blocks it"
        }
        _ => "check the URL and the network",
    };
    Failure::usage(format!("cannot connect to {url}: {error}: {advice}"))
}

fn half_of_the_cores() -> usize {
    (std::thread::available_parallelism().map_or(1, usize::from) / 2).max(1)
}

const NO_SHARED_TOPICS: &str = "several processes of the server share no topics, which needs a broker: remove \
    fan-out or --server-processes";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const NOTHING_TO_ENCRYPT_WITH: &str =
    "--encrypt is the encryption of protocol version 1: remove --profile raw";
const NO_TOPICS: &str = "fan-out needs topics, which are part of protocol version 1: remove --profile raw, or \
    give the URL of a server that sends the messages of one connection to all others";
const NO_TRUST: &str = "a wss:// server needs a trusted certificate: give --ca FILE with its certificate \
    authority (such as /etc/ssl/certs/ca-certificates.crt), or --insecure for any certificate";

/// True if the tests need a server that sends messages back.
///
/// # Errors
/// Some of the tests do and some do not: one server cannot do both.
fn needs_echo(tests: &[TestKind]) -> Result<bool, Failure> {
    let echoes = tests.iter().filter(|test| **test == TestKind::Echo).count();
    if echoes > 0 && echoes < tests.len() {
        let text = "the echo test needs a server that sends messages back, the other tests one that does \
                    not: run `tidewire bench --test echo` by itself";
        return Err(Failure::usage(text));
    }
    Ok(echoes > 0)
}

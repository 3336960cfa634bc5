//! The server that is loaded: one somewhere else, or one that is started for the run.

use super::child::EmbeddedServer;
use super::flags::{BenchFlags, ProfileFlag, TargetFlags};
use super::needs_echo;
use crate::failure::Failure;
use crate::token;
use serde_json::Map;
use std::io::ErrorKind;
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tidewire_engine::auth::KeyMaterial;
use tidewire_engine::token::SigningKey;
use tidewire_load::Report;
use tidewire_load::profile::Profile;
use tidewire_load::stats::StatsSource;
use tidewire_load::target::{Target, TokenPlace, TokenSource};

/// The server of a run.
#[derive(Debug)]
pub(crate) struct BenchServer<'a> {
    flags: &'a TargetFlags,
    kind: Kind<'a>,
    profile: Profile,
}

#[derive(Debug)]
enum Kind<'a> {
    At(&'a str),
    Embedded {
        server: EmbeddedServer,
        shards: usize,
    },
}

impl<'a> BenchServer<'a> {
    /// The server of the URL, or a new one. `stop` is set when a new one ends by itself.
    ///
    /// # Errors
    /// A server could not be started.
    pub(crate) fn prepare(flags: &'a BenchFlags, stop: &Arc<AtomicBool>) -> Result<Self, Failure> {
        let target = &flags.target;
        let is_known = target.token.is_some() || target.jwt_secret.is_some();
        let profile = match (target.profile, &flags.url) {
            (Some(ProfileFlag::V1), _) | (None, None) => Profile::V1,
            (Some(ProfileFlag::Raw), _) => Profile::Raw,
            (None, Some(_)) if is_known => Profile::V1,
            (None, Some(_)) => Profile::Raw,
        };
        let kind = match &flags.url {
            Some(url) => Kind::At(url),
            None => {
                let shards = target.server_shards.unwrap_or_else(half_of_the_cores);
                let count = shards.to_string();
                let app = if needs_echo(&flags.plan.test)? {
                    "echo"
                } else {
                    "sink"
                };
                let mut arguments = vec!["--shards", &count, "--app", app];
                if profile == Profile::Raw {
                    arguments.extend(["--protocol", "raw", "--no-auth"]);
                }
                Kind::Embedded {
                    server: EmbeddedServer::start(&arguments, stop)?,
                    shards,
                }
            }
        };
        Ok(Self {
            flags: target,
            kind,
            profile,
        })
    }

    /// Where the load goes, with its tokens.
    ///
    /// # Errors
    /// The URL is malformed, nothing listens there, or an option is missing.
    pub(crate) fn target(&self) -> Result<Target, Failure> {
        let url = match &self.kind {
            Kind::At(url) => url,
            Kind::Embedded { server, .. } => server.url.as_str(),
        };
        let mut target = Target::parse(url).map_err(Failure::usage)?;
        if target.tls.is_some() {
            target = match &self.flags.ca {
                Some(authorities) => target.trusting(authorities).map_err(Failure::usage)?,
                None if self.flags.insecure => target,
                None => return Err(Failure::usage(NO_TRUST)),
            };
        }
        TcpStream::connect_timeout(&target.address, CONNECT_TIMEOUT)
            .map_err(|error| unreachable_server(url, &error))?;
        target.token = self.tokens()?;
        if let Some(name) = &self.flags.cookie_name {
            target.token_place = TokenPlace::Cookie(name.clone());
        }
        Ok(target)
    }

    /// What a session says.
    pub(crate) fn profile(&self) -> Profile {
        self.profile
    }

    /// Where the server's own counters are, if that is known.
    ///
    /// # Errors
    /// They are not there.
    pub(crate) fn stats(&self) -> Result<Option<StatsSource>, Failure> {
        let url = match &self.kind {
            Kind::Embedded { server, .. } => &server.stats_url,
            Kind::At(_) => match &self.flags.stats_url {
                Some(url) => url,
                None => return Ok(None),
            },
        };
        let address = url
            .strip_prefix("http://")
            .map(|rest| rest.split('/').next().unwrap_or(rest))
            .and_then(|host| host.to_socket_addrs().ok()?.next())
            .ok_or_else(|| {
                Failure::usage(format!("--stats-url {url:?}: expected http://host:port"))
            })?;
        let source = StatsSource { address };
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
            Kind::Embedded { server, .. } => Some(server.process_id()),
            Kind::At(_) => self.flags.server_pid,
        }
    }

    /// Whether it was started for the run.
    pub(crate) fn is_embedded(&self) -> bool {
        matches!(self.kind, Kind::Embedded { .. })
    }

    /// Why a server that was started for the run has ended by itself, if it has.
    pub(crate) fn end_of_embedded(&mut self) -> Option<String> {
        match &mut self.kind {
            Kind::Embedded { server, .. } if server.is_gone() => Some(format!(
                "the server ended during the run {}",
                server.last_words()
            )),
            _ => None,
        }
    }

    /// Says in the report how a server that was started for the run was set up.
    pub(crate) fn annotate(&self, report: &mut Report) {
        if let (Kind::Embedded { shards, .. }, Some(first)) =
            (&self.kind, report.results.first_mut())
        {
            first.notes.push(format!(
                "The server was started for this run, with {shards} event loop{} and its rate limit off.",
                if *shards == 1 { "" } else { "s" }
            ));
        }
    }

    fn tokens(&self) -> Result<TokenSource, Failure> {
        let secret = match &self.kind {
            Kind::Embedded { .. } if self.profile == Profile::Raw => return Ok(TokenSource::None),
            Kind::Embedded { server, .. } => &server.secret,
            Kind::At(_) => match (&self.flags.token, &self.flags.jwt_secret) {
                (Some(token), _) => return Ok(TokenSource::Fixed(token.clone())),
                (None, Some(secret)) => secret,
                (None, None) => return Ok(TokenSource::None),
            },
        };
        let key = KeyMaterial::Hs256(secret.clone().into_bytes());
        let key = SigningKey::new(&key).map_err(Failure::usage)?;
        Ok(TokenSource::PerConnection(Arc::new(move |number| {
            let subject = format!("bench-user-{number}");
            // A token that cannot be made shows as a refused connection.
            token::sign(&key, Map::new(), &subject, TOKEN_EXPIRES_IN_S, None).unwrap_or_default()
        })))
    }
}

fn unreachable_server(url: &str, error: &std::io::Error) -> Failure {
    let advice = match error.kind() {
        ErrorKind::ConnectionRefused => "nothing listens there: start the server, or mend the URL",
        ErrorKind::TimedOut | ErrorKind::WouldBlock => "it does not answer: is a firewall between?",
        _ => "mend the URL, or the network",
    };
    Failure::usage(format!("cannot connect to {url}: {error}: {advice}"))
}

fn half_of_the_cores() -> usize {
    (std::thread::available_parallelism().map_or(1, usize::from) / 2).max(1)
}

/// Longer than any run.
const TOKEN_EXPIRES_IN_S: i64 = 24 * 3600;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const NO_TRUST: &str = "a wss:// server has to be trusted: give --ca FILE with its certificate \
    authority (such as /etc/ssl/certs/ca-certificates.crt), or --insecure for any certificate";

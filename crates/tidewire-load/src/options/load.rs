//! The options of a load of a service, and the plan that follows from them.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::OptionError;
use super::contents::check_contents;
use super::conversation::ConversationFile;
use super::expected::check_expectations;
use super::message::MessageOptions;
use super::proxy::Proxy;
use super::request::{RequestFrame, RequestOptions};
pub use super::retry::Retry;
use super::scenario::{Host, Scenario, StepFrame};
use super::tls::TlsOptions;
use super::upgrade::UpgradeHeaders;
use super::workers::WorkerOptions;
use crate::accounting::precision::Precision;
use crate::plan::load::{FindLimit, HTTP2, LoadPlan};
use crate::verdict::expectation::Expectation;
use crate::worker::jar::CookieOrigin;
use crate::worker::messages::MessagesSetup;
use crate::worker::order::HANDSHAKES_IN_FLIGHT_MAX;
use crate::worker::pace::Pace;
use crate::worker::rhythm::Rhythm;
use crate::worker::script::{Capture, CaptureFrom, Script};
use crate::worker::service::order::{
    DialogueKind, Forwarding, Growth, ServiceSetup, ServiceTarget, ServiceTimeouts,
};
use crate::worker::target::{Parts, TokenPlace, TokenSource, redacted};
use crate::worker::template::{Feed, Names, Syntax, Template};

/// All options of a load of a service.
#[derive(Debug, Clone)]
pub struct LoadOptions {
    /// `http://`, `https://`, `ws://` or `wss://`.
    pub url: String,
    /// The request, if there is no scenario.
    pub request: RequestOptions,
    /// The messages of a WebSocket load.
    pub messages: MessageOptions,
    /// A file with several requests or messages.
    pub scenario: Option<PathBuf>,
    /// How placeholders are written in the request or the message. Default: names in double braces, which
    /// a scenario always has.
    pub syntax: Syntax,
    /// Connections in total. Default 50.
    pub connections: usize,
    /// New connections per second; by default all of them before the clock starts.
    pub ramp_per_s: Option<f64>,
    /// Numbers of connections over time, instead of `connections`.
    pub connection_stages: Option<Vec<(Duration, f64)>>,
    /// The duration. Default 10 s, unless `requests` is given.
    pub duration: Option<Duration>,
    /// The largest number of requests.
    pub requests: Option<u64>,
    /// Duration of the load before the measurement. Default none.
    pub warm_up: Duration,
    /// Requests per second over all connections; by default the next when the previous one is
    /// answered.
    pub rate_per_s: Option<f64>,
    /// Requests or messages per second on each connection.
    pub each_per_s: Option<f64>,
    /// Rates over time.
    pub stages: Option<Vec<(Duration, f64)>>,
    /// A rate has random gaps.
    pub poisson: bool,
    /// Searches for the highest rate at which the expectations hold.
    pub find_limit: Option<FindLimit>,
    /// Requests in flight on each connection. Default 1.
    pub in_flight: u32,
    /// Whether the load speaks HTTP/2: over TLS as ALPN agrees, without TLS from the first byte. Default false, which is
    /// HTTP/1.1, unless a server over TLS offers nothing but HTTP/2.
    pub http2: bool,
    /// With `http2`: requests in flight on each connection. Default 1.
    pub streams: Option<u32>,
    /// Whether a connection is reused. Default true.
    pub keep_alive: bool,
    /// A connection is replaced after this many requests.
    pub requests_per_connection: Option<u64>,
    /// Whether a WebSocket that ends before the plan ends it, or that cannot be opened, is replaced.
    /// Its end is a failure in any case. Default false.
    pub reconnect: bool,
    /// Whether an HTTP request that is closed unanswered is sent again. Default never.
    pub retry: Retry,
    /// Redirects to follow per request. Default 0.
    pub redirects: u32,
    /// Whether the cookies that the server sets come back with later requests of the same user. Default true.
    pub keep_cookies: bool,
    /// Whether the requests ask for compressed responses. Default false.
    pub compressed: bool,
    /// Timeouts.
    pub timeouts: ServiceTimeouts,
    /// Threads. Default half of the machine's cores, at least one.
    pub threads: usize,
    /// Certificates.
    pub tls: TlsOptions,
    /// An HTTP proxy, as `http://host:port` or `http://user:password@host:port`. It forwards
    /// requests of `http://`, and opens a tunnel (CONNECT) for everything else.
    pub proxy: Option<String>,
    /// A Unix socket instead of the URL's host and port.
    pub unix_socket: Option<PathBuf>,
    /// Source addresses, in turn.
    pub source_addresses: Vec<IpAddr>,
    /// Addresses for hosts, as `host:port:address`, instead of their resolved addresses.
    pub resolve: Vec<String>,
    /// The expectations of the figures.
    pub expectations: Vec<Expectation>,
    /// Ends the load when an expectation has been broken for this long.
    pub abort_after: Option<Duration>,
    /// Measures the memory of both sides: per connection, and of the server after they are closed.
    pub memory: bool,
    /// Ends the load when a figure is known this precisely; at the latest after the duration, which
    /// is then 5 minutes by default.
    pub precision: Option<Precision>,
    /// The server's process, if its listening port does not identify it.
    pub server_pid: Option<u32>,
    /// The seed of random choices. Default 1.
    pub seed: u64,
    /// The command line, for the report.
    pub command: Option<String>,
    /// The workers, if they are processes, see [`LoadOptions::from_json`].
    pub workers: Option<WorkerOptions>,
}

impl From<&str> for LoadOptions {
    fn from(url: &str) -> Self {
        Self::new(url)
    }
}

impl LoadOptions {
    /// The defaults for a URL.
    #[must_use]
    pub fn new(url: &str) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self {
            url: url.to_owned(),
            request: RequestOptions::default(),
            messages: MessageOptions::default(),
            scenario: None,
            syntax: Syntax::default(),
            connections: 50,
            ramp_per_s: None,
            connection_stages: None,
            duration: None,
            requests: None,
            warm_up: Duration::ZERO,
            rate_per_s: None,
            each_per_s: None,
            stages: None,
            poisson: false,
            find_limit: None,
            in_flight: 1,
            http2: false,
            streams: None,
            keep_alive: true,
            requests_per_connection: None,
            reconnect: false,
            retry: Retry::Never,
            redirects: 0,
            keep_cookies: true,
            compressed: false,
            timeouts: ServiceTimeouts::default(),
            threads: (cores / 2).max(1),
            tls: TlsOptions::default(),
            proxy: None,
            unix_socket: None,
            source_addresses: Vec::new(),
            resolve: Vec::new(),
            expectations: Vec::new(),
            abort_after: None,
            memory: false,
            precision: None,
            server_pid: None,
            seed: 1,
            command: None,
            workers: None,
        }
    }

    /// The plan. Resolves the host, which blocks until the resolver answers.
    ///
    /// # Errors
    /// An option that is wrong, or that conflicts with another.
    pub fn plan(&self) -> Result<LoadPlan, OptionError> {
        match &self.workers {
            None => self.plan_here(),
            Some(workers) => workers.plan(&self.shown(), || self.plan_here()),
        }
    }

    /// What workers get of these options, to be compared.
    pub(super) fn shown(&self) -> String {
        let own = Self {
            workers: None,
            command: None,
            ..self.clone()
        };
        format!("{own:?}")
    }

    fn plan_here(&self) -> Result<LoadPlan, OptionError> {
        let parts = Parts::of_service(&self.url).map_err(OptionError::new)?;
        self.check_scenario(&parts)?;
        let scenario = self.scenario.as_deref().map(Scenario::read).transpose()?;
        let mut hosts = vec![Host {
            name: "",
            parts,
            headers: Vec::new(),
        }];
        hosts.extend(scenario.as_ref().map_or(Ok(Vec::new()), Scenario::hosts)?);
        self.check(&hosts)?;
        let (users, growth) = self.growth()?;
        self.check_numbers(users)?;
        let script = self.script(scenario.as_ref(), &hosts)?;
        check_rows(&script, users)?;
        let is_cookie = |one: &Capture| matches!(one.from, CaptureFrom::Cookie(_));
        let mut captures = script.steps.iter().flat_map(|step| &step.captures);
        if !self.keep_cookies && captures.any(is_cookie) {
            return Err(OptionError::new(
                "a request captures a cookie, and --no-cookies ignores what the server sets: remove one of them",
            ));
        }
        let in_flight = self.requests_in_flight(&script)?;
        let of_scenario = scenario.as_ref().map(|_| &Syntax::Braces);
        let syntax = of_scenario.unwrap_or(&self.syntax);
        let names = self.messages.names_of(&script, syntax);
        let targets = hosts.iter().map(|host| self.target(host, &names));
        let targets = targets.collect::<Result<Vec<_>, _>>()?;
        check_contents(&targets, &script)?;
        check_expectations(&self.expectations, &script, &targets)?;
        let sources = self.sources(&targets, users);
        let threads = self.threads.clamp(1, users.max(1));
        let setup = ServiceSetup {
            targets,
            script: Arc::new(script),
            users,
            workers: threads,
            growth,
            keeps_alive: self.keep_alive,
            requests_per_connection: self.requests_per_connection,
            in_flight,
            // With several servers a user goes on with the others, and comes back.
            reconnects: self.reconnect || hosts.len() > 1 || !hosts[0].parts.is_websocket,
            retries: self.retry == Retry::IdleClose,
            redirects_max: self.redirects,
            timeouts: self.timeouts,
            handshakes_in_flight_max: HANDSHAKES_IN_FLIGHT_MAX,
            sources,
            seed: self.seed,
            epoch: Instant::now(),
        };
        Ok(LoadPlan {
            test: match setup.own().dialogue {
                DialogueKind::Http => HTTP,
                DialogueKind::Http2 => HTTP2,
                DialogueKind::Messages(_) => WEBSOCKET,
            },
            url: redacted(&self.url),
            longest: self.longest(&setup.growth),
            setup,
            rhythm: self.rhythm()?,
            requests: self.requests,
            warm_up: self.warm_up,
            expectations: self.expectations.clone(),
            abort_after: self.abort_after,
            precision: self.precision.clone(),
            find_limit: self.find_limit.clone(),
            memory: self.memory,
            server_pid: self.server_pid,
            command: self.command.clone(),
            workers: None,
        })
    }

    /// The requests in flight on each connection.
    fn requests_in_flight(&self, script: &Script) -> Result<u32, OptionError> {
        let has_think = script.steps.iter().any(|step| step.think.is_some());
        let (in_flight, several) = match self.http2 {
            true => (self.streams.unwrap_or(1), "--streams"),
            false => (self.in_flight, "--in-flight"),
        };
        if in_flight > 1 && (has_think || script.is_journey() || script.has_hosts()) {
            return Err(OptionError::new(format_args!(
                "a user of a journey, one with a setup or a teardown, with several hosts, or one that thinks has one \
                 request in flight: remove {several}",
            )));
        }
        if self.redirects > 0 && in_flight > 1 {
            return Err(OptionError::new(format_args!(
                "--redirects needs one request in flight per connection: remove {several}",
            )));
        }
        Ok(if self.keep_alive { in_flight } else { 1 })
    }

    fn growth(&self) -> Result<(usize, Growth), OptionError> {
        match (&self.connection_stages, self.ramp_per_s) {
            (Some(_), Some(_)) => Err(OptionError::new(
                "--connection-stages and --ramp-per-s exclude each other: the stages define how the number grows",
            )),
            (Some(stages), None) => {
                let most = stages.iter().map(|stage| stage.1).fold(0.0, f64::max);
                let stages = stages.iter().map(|(time, to)| (*time, *to as usize));
                Ok((most as usize, Growth::Stages(stages.collect())))
            }
            (None, Some(per_s)) => Ok((self.connections, Growth::PerS(per_s))),
            (None, None) => Ok((self.connections, Growth::Before)),
        }
    }

    fn check_numbers(&self, users: usize) -> Result<(), OptionError> {
        let nothing = [Some(self.in_flight), self.streams].contains(&Some(0));
        if users == 0 || nothing || self.requests == Some(0) {
            return Err(OptionError::new(
                "there is nothing to do: connections, requests and requests in flight must be at least 1",
            ));
        }
        if self.duration.is_some_and(|duration| duration.is_zero()) {
            return Err(OptionError::new(
                "a load without duration sends nothing: give a time above 0",
            ));
        }
        for (name, number) in [
            ("--in-flight", Some(self.in_flight)),
            ("--streams", self.streams),
        ] {
            if number.is_some_and(|number| number > IN_FLIGHT_MAX) {
                return Err(OptionError::new(format_args!(
                    "{name} is at most {IN_FLIGHT_MAX}"
                )));
            }
        }
        let mut expectations = self.expectations.iter();
        if self.abort_after.is_some() && !expectations.any(Expectation::may_end_early) {
            return Err(OptionError::new(
                "--abort-after-s needs an expectation that is checked while the load runs, of a latency, rate, bytes \
                 or errors: give --expect",
            ));
        }
        Ok(())
    }

    fn rhythm(&self) -> Result<Rhythm, OptionError> {
        if let Some(stages) = &self.stages {
            let sum: f64 = stages.iter().map(|stage| stage.1).sum();
            if sum <= 0.0 {
                return Err(OptionError::new(
                    "--stages has no rate above 0: give at least one",
                ));
            }
            let pace = Pace::stages(stages, self.poisson, self.seed);
            let whole = stages.iter().map(|stage| stage.0).sum::<Duration>();
            let due = crate::worker::pace::Share::whole(pace.clone(), 1.0).due_in(u64::MAX);
            let per_s = due as f64 / whole.as_secs_f64();
            return Ok(Rhythm::Open { pace, per_s });
        }
        Ok(match (self.rate_per_s, self.each_per_s) {
            (None, Some(per_s)) => Rhythm::Each { per_s },
            (rate_per_s, _) => Rhythm::at(rate_per_s, self.poisson, self.seed),
        })
    }

    fn longest(&self, growth: &Growth) -> Option<Duration> {
        let of_stages = self
            .stages
            .as_ref()
            .map(|stages| stages.iter().map(|stage| stage.0).sum());
        let of_growth = match growth {
            Growth::Stages(stages) => Some(stages.iter().map(|stage| stage.0).sum()),
            _ => None,
        };
        let given = self.duration.or(of_stages).or(of_growth);
        let usual = match self.precision {
            Some(_) => DURATION_UNTIL_KNOWN,
            None => DURATION,
        };
        given.or_else(|| self.requests.is_none().then_some(usual))
    }

    fn script(
        &self,
        scenario: Option<&Scenario>,
        hosts: &[Host<'_>],
    ) -> Result<Script, OptionError> {
        let Some(scenario) = scenario else {
            if hosts[0].parts.is_websocket {
                return self.messages.script(&self.syntax);
            }
            let names = Names {
                syntax: self.syntax.clone(),
                ..Names::default()
            };
            let parts = FrameParts::of(self, &hosts[0])?;
            return Ok(Script::of(self.request.step(&parts.frame(self), &names)?));
        };
        let parts = hosts.iter().map(|host| FrameParts::of(self, host));
        let parts = parts.collect::<Result<Vec<_>, _>>()?;
        let frames = hosts.iter().zip(&parts).map(|(host, parts)| {
            Ok(match host.parts.is_websocket {
                true => StepFrame::Messages(self.messages.envelope()?),
                false => StepFrame::Http(parts.frame(self)),
            })
        });
        let frames = frames.collect::<Result<Vec<_>, OptionError>>()?;
        let own = self.messages.conversation.as_ref();
        let own = own.map_or(Vec::new(), ConversationFile::captured);
        if let Some(name) = scenario.captured().iter().find(|name| own.contains(name)) {
            return Err(OptionError::new(format_args!(
                "a request and the profile both capture `{name}`: rename one of them"
            )));
        }
        scenario.script(&frames, self.messages.names(&Syntax::Braces))
    }

    /// The additions to the requests to a server that a proxy forwards.
    fn forwarding(&self, parts: &Parts<'_>) -> Result<Forwarding, OptionError> {
        let (prefix, headers) = self.proxy_parts(parts)?;
        let lines = headers
            .iter()
            .map(|(name, value)| format!("{name}: {value}\r\n"));
        Ok(Forwarding {
            prefix,
            headers: lines.collect::<String>().into_bytes(),
        })
    }

    /// A server, and how users speak to it. The texts of an upgrade may have these values.
    fn target(&self, host: &Host<'_>, names: &Names) -> Result<ServiceTarget, OptionError> {
        let parts = &host.parts;
        let of_host = |error: OptionError| match host.is_own() {
            true => error,
            false => OptionError::new(format_args!("the host `{}`: {error}", host.name)),
        };
        Ok(ServiceTarget {
            authority: parts.authority.to_owned(),
            name: host.name.to_owned(),
            forwarding: self.forwarding(parts)?,
            dialogue: match parts.is_websocket {
                true => {
                    let sessions = self.sessions(host, names).map_err(of_host)?;
                    DialogueKind::Messages(Arc::new(sessions))
                }
                false if self.http2 => DialogueKind::Http2,
                false => DialogueKind::Http,
            },
            endpoint: self.endpoint(host).map_err(of_host)?,
            cookies: self
                .keep_cookies
                .then(|| CookieOrigin::new(parts.host, parts.is_secure)),
        })
    }

    /// The sessions of a WebSocket server.
    fn sessions(&self, host: &Host<'_>, names: &Names) -> Result<MessagesSetup, OptionError> {
        if !self.keep_alive || self.requests_per_connection.is_some() {
            return Err(OptionError::new(
                "--no-keepalive and --requests-per-connection are for HTTP",
            ));
        }
        let messages = &self.messages;
        let (profile, layer) = messages.session()?;
        let conversation = messages.conversation.as_ref();
        let is_protocol =
            |(name, _): &(String, String)| name.eq_ignore_ascii_case("sec-websocket-protocol");
        let given = match host.is_own() {
            true => self.request.upgrade_headers()?,
            false => host.headers.clone(),
        };
        let (given, headers): (Vec<_>, Vec<_>) = given.into_iter().partition(is_protocol);
        let given = given.iter().flat_map(|(_, value)| value.split(','));
        let of_conversation = conversation.map_or(&[][..], |all| &all.subprotocols);
        let usual = conversation.and_then(|all| all.path.clone());
        let path = host.parts.path_and_query();
        let mut target = Template::default();
        let path = usual.filter(|_| path == "/").unwrap_or(path);
        target
            .push_target(path.as_bytes(), names)
            .map_err(OptionError::new)?;
        let headers = UpgradeHeaders::of(headers, names)?;
        headers.check(&target)?;
        Ok(MessagesSetup {
            host: headers.host.unwrap_or(host.parts.authority.to_owned()),
            path: target,
            headers: headers.others,
            protocols: given
                .map(|name| name.trim().to_owned())
                .chain(of_conversation.iter().cloned())
                .collect(),
            conversation: conversation
                .map(ConversationFile::conversation)
                .transpose()?,
            captured: conversation.map_or(0, |all| all.captured().len()),
            token: match &messages.token {
                Some(token) if host.is_own() => TokenSource::Fixed(token.clone()),
                _ => TokenSource::None,
            },
            token_place: TokenPlace::Bearer,
            profile,
            first_messages: messages.first_messages(names)?,
            is_binary: messages.is_binary,
            layer,
            matching: messages.matching.clone(),
            stamp: messages.stamp.clone(),
        })
    }

    /// The prefix of request targets through a proxy, and the headers that the proxy needs.
    fn proxy_parts(
        &self,
        parts: &Parts<'_>,
    ) -> Result<(String, Vec<(String, String)>), OptionError> {
        match self.proxy()? {
            Some(proxy) if !needs_tunnel(parts) => {
                Ok((format!("http://{}", parts.authority), proxy.headers()))
            }
            _ => Ok((String::new(), Vec::new())),
        }
    }

    pub(super) fn proxy(&self) -> Result<Option<Proxy>, OptionError> {
        self.proxy.as_deref().map(Proxy::parse).transpose()
    }
}

/// The parts that all requests to a server share.
struct FrameParts<'a> {
    host: &'a str,
    path: String,
    prefix: String,
    headers: Vec<(String, String)>,
}

impl<'a> FrameParts<'a> {
    /// The headers of the command line go to the server of the URL alone; without a scenario they are a part of the request.
    fn of(options: &LoadOptions, host: &Host<'a>) -> Result<Self, OptionError> {
        let (prefix, mut headers) = options.proxy_parts(&host.parts)?;
        match host.is_own() {
            true if options.scenario.is_some() => headers.extend(options.request.shared_headers()?),
            _ => headers.extend(host.headers.iter().cloned()),
        }
        Ok(Self {
            host: host.parts.authority,
            path: host.parts.path_and_query(),
            prefix,
            headers,
        })
    }

    fn frame(&self, options: &LoadOptions) -> RequestFrame<'_> {
        RequestFrame {
            host: self.host,
            path: &self.path,
            prefix: &self.prefix,
            keeps_alive: options.keep_alive,
            headers: &self.headers,
            accepts_encoded: options.compressed,
        }
    }
}

/// That each user has a row of its own where it needs one.
fn check_rows(script: &Script, users: usize) -> Result<(), OptionError> {
    let short = |feed: &&Feed| feed.is_unique && feed.rows.len() < users;
    match script.feeds.iter().find(short) {
        None => Ok(()),
        Some(feed) => Err(OptionError::new(format_args!(
            "{} has {} rows, and each of {users} connections needs a row of its own: add rows, or give --connections {}",
            feed.name,
            feed.rows.len(),
            feed.rows.len()
        ))),
    }
}

/// Whether a proxy cannot read the requests, so that it must open a tunnel.
pub(super) fn needs_tunnel(parts: &Parts<'_>) -> bool {
    parts.is_secure || parts.is_websocket
}

/// Names of results.
const HTTP: &str = "http";
const WEBSOCKET: &str = "websocket";

const DURATION: Duration = Duration::from_secs(10);
const DURATION_UNTIL_KNOWN: Duration = Duration::from_secs(300);
const IN_FLIGHT_MAX: u32 = 10_000;

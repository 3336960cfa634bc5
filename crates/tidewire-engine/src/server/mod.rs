//! The running server: its start, its drain and its stop.

#[cfg(test)]
mod broker_contract;
mod built_in;
pub(crate) mod neighbour;
mod operations_pages;
mod reload;
mod sockets;
mod threads;

use self::neighbour::ThisServer;
use crate::auth::{AuthConfigError, Verifier};
use crate::backend::{self, BackendError};
use crate::clock::{after, unix_ms};
use crate::cluster::{Cluster, ClusterError, LinkLimits};
use crate::config::{Config, Encryption, Protocol};
use crate::handle::Handle;
use crate::keys::{self, KeysError};
use crate::limits::pace::span_ms;
use crate::model::ShardWaker;
use crate::ops::{Ops, OpsSource};
use crate::session::application::Application;
use crate::shard::EngineShard;
use crate::state::core::Core;
use crate::state::shared::{Keys, Shared};
use crate::state::signatures::Signatures;
use crate::topics::access::InvalidRules;
use crate::topics::broker::Broker;
use crate::topics::broker::memory::{MemoryBroker, MemoryLimits};
use crate::topics::config::RuleSet;
use crate::topics::hub::{Hub, SHARDS_MAX};
use crate::topics::name::InvalidTopic;
use rand::SeedableRng;
use rand::rngs::StdRng;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tidewire_net::tls::CertificateSlot;
use tidewire_net::{Handler, Shard, ShardConfig, io_words, tls};
use tidewire_wire::deflate::{WINDOW_BITS_MAX, WINDOW_BITS_MIN};
use tidewire_wire::envelope::Kind;
use tidewire_wire::secure::{IdentityKey, SigningKeyError};

pub use reload::{ReloadError, Reloader};
pub use sockets::ListeningSockets;

/// A running server. Dropping it stops it without a drain.
#[derive(Debug)]
pub struct Server {
    handle: Handle,
    threads: Vec<JoinHandle<()>>,
    /// Of the link to the broker.
    links: Vec<JoinHandle<()>>,
    /// Of the link to the backend.
    backend: Option<JoinHandle<()>>,
    /// Of the link that fetches keys.
    keys: Option<JoinHandle<()>>,
    ops: Option<Ops>,
    address: SocketAddr,
    /// Copies of the listening sockets, for a successor.
    sockets: ListeningSockets,
    certificate: Option<CertificateSlot>,
}

/// Why a server could not start. The caller's fault, but for [`StartError::System`].
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address is in use, not of this machine, or not permitted.
    #[error("cannot listen on {address}: {}", io_words(source))]
    Listen {
        /// Where the server should have listened.
        address: SocketAddr,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A key or another part of the authentication cannot be used.
    #[error(transparent)]
    Auth(#[from] AuthConfigError),
    /// The TLS certificate or key cannot be used.
    #[error(transparent)]
    Tls(#[from] tls::TlsError),
    /// The identity key cannot be used.
    #[error("the identity key {path}: {reason}")]
    IdentityKey {
        /// The file.
        path: PathBuf,
        /// Its fault.
        reason: String,
    },
    /// The key that checks signatures cannot be used.
    #[error("the key of signatures: {0}")]
    SignatureKey(#[from] SigningKeyError),
    /// A limit that makes no sense.
    #[error("{name} must be at least {minimum}")]
    Limit {
        /// The field of the configuration.
        name: &'static str,
        /// Its smallest value.
        minimum: u64,
    },
    /// Options that have no effect, or none that was meant.
    #[error("{0}")]
    Useless(&'static str),
    /// The brokers and the partitions do not fit together.
    #[error("the broker: {0}")]
    Broker(&'static str),
    /// A rule of access cannot be used.
    #[error("the access to topics: {0}")]
    Access(#[from] InvalidRules),
    /// A rule of topics has a pattern that is none.
    #[error("the topic rule {pattern}: {problem}")]
    TopicRule {
        /// The pattern.
        pattern: String,
        /// Its fault.
        problem: InvalidTopic,
    },
    /// The operating system has no thread or event queue left.
    #[error("the operating system cannot start the server: {}", io_words(.0))]
    System(#[from] io::Error),
}

impl Server {
    /// Starts a server; `application` makes the application of each shard, given the shard's
    /// number.
    ///
    /// # Errors
    /// [`StartError`], before anything was accepted.
    pub fn start<A: Application>(
        config: Config,
        application: impl FnMut(usize) -> A,
    ) -> Result<Self, StartError> {
        Self::start_on(ListeningSockets::default(), config, application)
    }

    /// The same with sockets that listen already, of whatever number. Where there are none, the server opens its own.
    ///
    /// # Errors
    /// [`StartError`], before anything was accepted.
    pub fn start_on<A: Application>(
        given: ListeningSockets,
        config: Config,
        application: impl FnMut(usize) -> A,
    ) -> Result<Self, StartError> {
        let tls = match &config.tls {
            Some(files) => Some(tls::server_config_with_slot(
                &files.certificate,
                &files.key,
            )?),
            None => None,
        };
        let (tls, certificate) = tls.unzip();
        check(&config)?;
        let cluster = join_cluster(&config)?;
        let broker = cluster.as_ref().map(Cluster::broker);
        let random = |_| StdRng::from_os_rng();
        let (mut shards, handle) = assemble(config, application, random, broker)?;
        let sockets = given.opened(&handle.shared.setup.get().config)?;
        let address = sockets.listen(&mut shards, tls.as_ref())?;
        let backend = backend_link(&handle)?;
        let keys = keys_link(&handle)?;
        let ops = start_ops(&handle, sockets.operations.as_ref())?;
        // From here on an early return stops the shards that run.
        let mut server = Self {
            handle,
            threads: Vec::new(),
            links: Vec::new(),
            backend: None,
            keys: None,
            ops,
            address,
            sockets,
            certificate,
        };
        if let Some(cluster) = cluster {
            let hub = Arc::downgrade(&server.handle.shared.hub);
            let this = ThisServer {
                handle: server.handle(),
                address: address.to_string(),
                questions: Arc::default(),
            };
            for link in cluster.into_links(&hub, &this) {
                let thread = threads::spawn_link("broker", link, server.handle())?;
                server.links.push(thread);
            }
        }
        if let Some(link) = backend {
            let thread = threads::spawn_link("backend", link, server.handle())?;
            server.backend = Some(thread);
        }
        if let Some(link) = keys {
            let thread = threads::spawn_link("keys", link, server.handle())?;
            server.keys = Some(thread);
            wait_for_keys(&server.handle.shared);
        }
        for (index, shard) in shards.into_iter().enumerate() {
            let thread = threads::spawn(index, shard, server.handle())?;
            server.threads.push(thread);
        }
        server.log_start();
        Ok(server)
    }

    /// Logs where the server listens, and whether everybody may connect.
    fn log_start(&self) {
        let setup = self.handle.shared.setup.get();
        let config = &setup.config;
        let scheme = if config.tls.is_some() { "wss" } else { "ws" };
        let path = config.paths.first().map_or("/", String::as_str);
        if self.address.port() == 0 {
            tracing::info!(
                version = env!("CARGO_PKG_VERSION"),
                shards = config.shards,
                tokens = config.auth.is_some(),
                operations = self.ops_address().map(tracing::field::display),
                "serving connections that are handed over",
            );
            return;
        }
        tracing::info!(
            version = env!("CARGO_PKG_VERSION"),
            shards = config.shards,
            tokens = config.auth.is_some(),
            operations = self.ops_address().map(tracing::field::display),
            "listening on {scheme}://{}{path}",
            self.address,
        );
    }

    /// Checks a configuration as [`start`](Self::start) does, but opens no socket: limits, rules of topics, keys and
    /// certificates.
    ///
    /// # Errors
    /// [`StartError`], but not of addresses.
    pub fn check(config: &Config) -> Result<(), StartError> {
        check(config)?;
        Keys::new(config)?;
        new_hub(config, None)?;
        if let Some(backend) = &config.backend {
            backend::check(backend)?;
        }
        if let Some(auth) = &config.auth {
            keys::check(auth)?;
        }
        if let Some(files) = &config.tls {
            tls::server_config(&files.certificate, &files.key)?;
        }
        Ok(())
    }

    /// The address for clients, with the port in use; port 0 if it [listens nowhere](ListeningSockets::adopts_only).
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where the operations listener answers, if there is one.
    #[must_use]
    pub fn ops_address(&self) -> Option<SocketAddr> {
        self.ops.as_ref().map(Ops::local_address)
    }

    /// The handle for other threads.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Rejects new connections with HTTP 503, sends every session the time to reconnect and closes it with
    /// code 4300, waits at most `timeout` until all have gone, and stops. Returns how many sessions were
    /// left. Many are closed over the first half of `timeout`, or at the rate of [`Drain`](crate::Drain).
    pub fn drain(self, timeout: Duration) -> usize {
        self.drain_while(timeout, || true)
    }

    /// [`drain`](Self::drain) that ends when `is_wanted` returns false, too. It is asked every few milliseconds.
    pub fn drain_while(self, timeout: Duration, is_wanted: impl Fn() -> bool) -> usize {
        let deadline = after(timeout);
        let span_ms = span_ms(timeout);
        let shared = &self.handle.shared;
        shared.life.drain_span_ms.store(span_ms, Ordering::Release);
        self.handle.start_drain();
        while self.handle.connections() > 0 && Instant::now() < deadline && is_wanted() {
            std::thread::sleep(DRAIN_POLL);
        }
        let left = self.handle.connections();
        tracing::info!(left, "the drain is over");
        drop(self);
        left
    }

    /// Stops at once: connections are ended without a closing handshake.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        threads::stop(&self.handle, std::mem::take(&mut self.threads));
        for link in std::mem::take(&mut self.links) {
            // The link ends with its next turn. Before that it notifies those who wait for it.
            let _ = link.join();
        }
        if let Some(backend) = &self.handle.shared.backend {
            backend.stop();
        }
        if let Some(link) = self.backend.take() {
            let _ = link.join();
        }
        if let Some(set) = &self.handle.shared.key_set {
            set.stop();
        }
        if let Some(link) = self.keys.take() {
            let _ = link.join();
        }
        if let Some(ops) = self.ops.take() {
            ops.stop();
        }
        self.handle.shared.lines.finish(unix_ms());
    }
}

/// The shards of a server, before they run.
type Shards<A> = Vec<Shard<EngineShard<A>>>;

/// The shards of a server, which nothing reaches yet, and its handle. `random` seeds what each
/// shard draws; `cluster` is the broker of topics that other servers share.
pub(crate) fn assemble<A: Application>(
    mut config: Config,
    mut application: impl FnMut(usize) -> A,
    random: impl Fn(usize) -> StdRng,
    cluster: Option<Arc<dyn Broker>>,
) -> Result<(Shards<A>, Handle), StartError> {
    check(&config)?;
    lower(&mut config);
    let keys = Keys::new(&config)?;
    let hub = Arc::new(new_hub(&config, cluster)?);
    let shared = Arc::new(Shared::new(config, keys, hub));
    let setup = shared.setup.owned();
    let config = &setup.config;
    let mut mailboxes = Vec::new();
    let mut shards = Vec::new();
    for index in 0..config.shards {
        let core = Core::new(index, &shared, random(index));
        let shard_config = ShardConfig {
            outbox_bytes_max: config.limits.outbox_bytes_max,
            outboxes_bytes_max: config.limits.outboxes_bytes_max / config.shards,
            receive_buffer_bytes_max: config.limits.receive_buffer_bytes_max,
            receive_buffers_bytes_max: config.limits.receive_buffers_bytes_max / config.shards,
            ..ShardConfig::default()
        };
        let handler = EngineShard::new(core, application(index));
        let (mut shard, mailbox) = Shard::new(&shard_config, handler)?;
        shard
            .handler_mut()
            .app
            .on_start(ShardWaker(mailbox.waker()));
        shared.charges.unfinished.connect(index, mailbox.waker());
        shared.hub.outlets[index].connect(mailbox.waker(), shard.heartbeat());
        let core = &mut shard.handler_mut().core;
        core.calls.connect(mailbox.waker());
        core.operations.inbox.connect(mailbox.waker());
        core.questions.inbox.connect(mailbox.waker());
        mailboxes.push(mailbox);
        shards.push(shard);
    }
    let handle = Handle {
        shared,
        mailboxes: mailboxes.into(),
    };
    Ok((shards, handle))
}

/// Lowers limits that others bound.
fn lower(config: &mut Config) {
    let limits = &mut config.limits;
    limits.request_head_bytes_max = limits.request_head_bytes_max.min(request_head_bytes_cap());
    // Reading has to pause before the outbox is full.
    limits.outbox_pause_bytes = limits.outbox_pause_bytes.min(limits.outbox_bytes_max / 2);
}

impl Keys {
    fn new(config: &Config) -> Result<Self, StartError> {
        Ok(Self {
            verifier: config.auth.as_ref().map(Verifier::new).transpose()?,
            identity: read_identity(config.identity_key.as_deref())?,
            signatures: config.signing.as_ref().map(Signatures::new).transpose()?,
        })
    }
}

fn read_identity(path: Option<&Path>) -> Result<Option<IdentityKey>, StartError> {
    let Some(path) = path else { return Ok(None) };
    let unusable = |reason: String| StartError::IdentityKey {
        path: path.to_owned(),
        reason,
    };
    let pem = std::fs::read_to_string(path).map_err(|error| unusable(error.to_string()))?;
    let pem = zeroize::Zeroizing::new(pem);
    let key = IdentityKey::from_pkcs8_pem(&pem).map_err(|error| unusable(error.to_string()))?;
    Ok(Some(key))
}

/// Waits a moment for the first answer with keys, so that the first clients are not refused for lack of keys: until then
/// they wait in the queues of the sockets.
fn wait_for_keys(shared: &Shared) {
    let deadline = Instant::now() + KEYS_WAIT;
    let is_tried = || shared.key_set.as_ref().is_none_or(|set| set.is_tried());
    while !is_tried() && Instant::now() < deadline {
        std::thread::sleep(KEYS_POLL);
    }
}

fn start_ops(handle: &Handle, socket: Option<&TcpListener>) -> Result<Option<Ops>, StartError> {
    let Some(socket) = socket else {
        return Ok(None);
    };
    let shared = &handle.shared;
    let source = Arc::clone(shared) as Arc<dyn OpsSource>;
    let setup = shared.setup.get();
    let hosts = (
        setup.config.hosts.clone(),
        setup.config.option_spelling,
        Arc::clone(&shared.lines),
    );
    let ops = Ops::start_for(socket.try_clone()?, source, handle.clone(), hosts)?;
    Ok(Some(ops))
}

fn new_hub(config: &Config, cluster: Option<Arc<dyn Broker>>) -> Result<Hub, StartError> {
    let topics = &config.topics;
    topics.access.check()?;
    let rules = RuleSet::new(&topics.rules)
        .map_err(|(pattern, problem)| StartError::TopicRule { pattern, problem })?;
    let limits = topics.limits.clone();
    let local = MemoryBroker::new(&MemoryLimits {
        history_bytes_max: limits.history_bytes_max,
        history_topics_max: limits.history_topics_max,
        remembered_ids_max: limits.remembered_ids_max,
    });
    let stall_ms = config.limits.shard_stall_ms;
    Ok(Hub::new(
        config.shards,
        rules,
        limits,
        stall_ms,
        local,
        cluster,
    ))
}

/// This server's part of the cluster, if it has a broker.
fn join_cluster(config: &Config) -> Result<Option<Cluster>, StartError> {
    let Some(broker) = &config.broker else {
        return Ok(None);
    };
    match Cluster::new(broker, &LinkLimits::of(config)) {
        Ok(cluster) => Ok(Some(cluster)),
        Err(ClusterError::Tls(error)) => Err(error.into()),
        Err(ClusterError::System(error)) => Err(error.into()),
    }
}

/// The link to the backend, if the server has one.
fn backend_link(handle: &Handle) -> Result<Option<Shard<impl Handler + use<>>>, StartError> {
    let backend = handle.shared.backend.as_ref();
    match backend.map(backend::link).transpose() {
        Ok(link) => Ok(link),
        Err(BackendError::Tls(error)) => Err(error.into()),
        Err(BackendError::System(error)) => Err(error.into()),
    }
}

/// The link that fetches keys, if they are fetched.
fn keys_link(handle: &Handle) -> Result<Option<Shard<impl Handler + use<>>>, StartError> {
    let Some(set) = &handle.shared.key_set else {
        return Ok(None);
    };
    match keys::link(set) {
        Ok(link) => Ok(link),
        Err(KeysError::Tls(error)) => Err(error.into()),
        Err(KeysError::System(error)) => Err(error.into()),
    }
}

/// A request head has to fit into a shard's read buffer with room to spare.
fn request_head_bytes_cap() -> usize {
    ShardConfig::default().read_buffer_bytes / 4
}

fn check(config: &Config) -> Result<(), StartError> {
    let limits = &config.limits;
    let minimums = [
        ("shards", config.shards as u64, 1),
        ("handshakes_max", limits.handshakes_max as u64, 1),
        (
            "handshakes_per_address_max",
            limits.handshakes_per_address_max as u64,
            1,
        ),
        (
            "handshakes_parked_max",
            limits.handshakes_parked_max as u64,
            1,
        ),
        ("connections_max", limits.connections_max as u64, 1),
        ("message_bytes_max", limits.message_bytes_max as u64, 125),
        (
            "request_head_bytes_max",
            limits.request_head_bytes_max as u64,
            512,
        ),
        (
            "outbox_bytes_max",
            limits.outbox_bytes_max as u64,
            64 * 1024,
        ),
        ("ping_interval_ms", limits.ping_interval_ms, 1),
        ("idle_timeout_ms", limits.idle_timeout_ms, 1),
        ("handshake_timeout_ms", limits.handshake_timeout_ms, 1),
        ("call_timeout_ms", limits.call_timeout_ms, 1),
        ("shard_stall_ms", limits.shard_stall_ms, 1),
    ];
    if let Some((name, _, minimum)) = minimums
        .into_iter()
        .find(|(_, value, minimum)| value < minimum)
    {
        return Err(StartError::Limit { name, minimum });
    }
    if config.shards > SHARDS_MAX {
        return Err(StartError::Useless("shards is at most 64"));
    }
    if !(WINDOW_BITS_MIN..=WINDOW_BITS_MAX).contains(&config.compression.window_bits) {
        return Err(StartError::Useless("window_bits is 9 to 15"));
    }
    let is_secured = config.encryption != Encryption::Off || config.signing.is_some();
    if config.protocol == Protocol::Raw && (is_secured || config.default_type.is_some()) {
        return Err(StartError::Useless(
            "encryption, signatures and default_type are version 1's: plain messages have none",
        ));
    }
    let default_type = config.default_type.as_deref();
    if default_type.is_some_and(|t| t.is_empty() || Kind::of(t) != Kind::Application) {
        let problem = "default_type is empty, or a type of the protocol";
        return Err(StartError::Useless(problem));
    }
    match &config.broker {
        Some(broker) => broker.check().map_err(StartError::Broker),
        None => Ok(()),
    }
}

/// How long a start waits at most for the keys of tokens.
const KEYS_WAIT: Duration = Duration::from_secs(2);

const KEYS_POLL: Duration = Duration::from_millis(5);

/// How often a drain looks whether all have gone.
const DRAIN_POLL: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::broker::{BrokerAddress, BrokerConfig};

    #[test]
    fn a_limit_without_sense_is_named() {
        let mut config = Config::default();
        config.limits.handshakes_max = 0;
        let error = Server::start(config, |_| crate::apps::Sink).unwrap_err();
        assert_eq!(error.to_string(), "handshakes_max must be at least 1");
    }

    #[test]
    fn brokers_that_do_not_fit_together_are_named() {
        let addresses = BrokerAddress::parse_list("redis://a,redis://b").expect("URLs");
        let mut broker = BrokerConfig::new(addresses[0].clone());
        for (addresses, words) in [
            (
                addresses,
                "the broker: each broker of the list needs a partition",
            ),
            (Vec::new(), "the broker: no broker is named"),
        ] {
            broker.addresses = addresses;
            let config = Config {
                broker: Some(broker.clone()),
                ..Config::default()
            };
            let error = Server::start(config, |_| crate::apps::Sink).unwrap_err();
            assert!(error.to_string().starts_with(words), "{error}");
        }
    }
}

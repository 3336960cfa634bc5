//! State that all shards of a server share.

use crate::auth::Verifier;
use crate::auth::hosts::HostGuard;
use crate::auth::key_set::KeySet;
use crate::backend::Backend;
use crate::clock::unix_ms;
use crate::config::{Config, Encryption};
use crate::counters::{Counters, Snapshot};
use crate::limits::accounts::Accounts;
use crate::limits::budget::OwnerBudgets;
use crate::limits::errors::ErrorLimit;
use crate::limits::lines::{LineKind, LineLimits};
use crate::limits::owner::Owners;
use crate::limits::pace::SPAN_MS_DEFAULT;
use crate::limits::rate::RateLimit;
use crate::limits::unfinished::Unfinished;
use crate::live::Live;
use crate::model::{ReloadFunction, ServerFailure, SettingsFunction, ShardHealth};
use crate::state::busiest::Busiest;
use crate::state::producers::SharedProducers;
use crate::state::signatures::Signatures;
use crate::topics::access::AccessRules;
use crate::topics::hub::Hub;
use crate::trace::TraceSink;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;
use tidewire_wire::secure::IdentityKey;
use tidewire_wire::session::{Features, ServerProfile};

/// The state that all shards of a server share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// The values that a reload replaces.
    pub(crate) setup: Live<Setup>,
    /// The keys of tokens that are fetched, if they are.
    pub(crate) key_set: Option<Arc<KeySet>>,
    pub(crate) identity: Option<IdentityKey>,
    pub(crate) signatures: Option<Signatures>,
    pub(crate) hub: Arc<Hub>,
    /// Where events go, if the server has a backend.
    pub(crate) backend: Option<Arc<Backend>>,
    /// Where spans go, if there are any.
    pub(crate) traces: Option<Arc<dyn TraceSink>>,
    /// The usage of each owner.
    pub(crate) charges: Charges,
    /// Sessions of all shards.
    pub(crate) sessions: AtomicUsize,
    /// Connections that the application has handed over, which go to the shards in turn.
    pub(crate) adoptions: AtomicUsize,
    pub(crate) counters: Vec<Arc<Counters>>,
    pub(crate) producers: SharedProducers,
    pub(crate) hosts: HostGuard,
    /// The limits of the log lines that strangers cause.
    pub(crate) lines: Arc<LineLimits>,
    /// The functions that the program has set.
    pub(crate) functions: ProgramFunctions,
    /// The stage of the server: starting, serving, draining, stopped.
    pub(crate) life: Life,
}

/// The usage of the server by each owner.
#[derive(Debug)]
pub(crate) struct Charges {
    pub(crate) owners: Owners,
    /// The charges of the owners.
    pub(crate) accounts: Accounts,
    pub(crate) busiest: Busiest,
    /// The charges for unfinished messages.
    pub(crate) unfinished: Unfinished,
    /// The presence data that each owner may make the server send.
    pub(crate) presence_budgets: OwnerBudgets,
}

/// The functions that the program of the server has set.
#[derive(Debug)]
pub(crate) struct ProgramFunctions {
    /// The function that reads the configuration again, if the program has set it.
    pub(crate) reload: OnceLock<ReloadFunction>,
    pub(crate) settings: OnceLock<SettingsFunction>,
}

/// The stage of a server, from its start to its end.
#[derive(Debug)]
pub(crate) struct Life {
    pub(crate) draining: AtomicBool,
    /// Whether new connections are accepted.
    pub(crate) admitting: AtomicBool,
    /// The broker has not answered for so long that clients are notified.
    pub(crate) broker_is_away: AtomicBool,
    /// The time in which the sessions are sent away, in milliseconds.
    pub(crate) drain_span_ms: AtomicU64,
    pub(crate) stopped: AtomicBool,
    /// Why the server has ended by itself, once it has.
    pub(crate) failure: OnceLock<ServerFailure>,
    pub(crate) started: Instant,
    pub(crate) started_unix_ms: u64,
}

/// The configuration, and the values that are made from it. A shard reads its own view of it: `core.setup`.
#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) config: Config,
    pub(crate) profile: ServerProfile,
    pub(crate) verifier: Option<Verifier>,
    /// The rights of clients whose tokens do not set their own.
    pub(crate) access: Arc<AccessRules>,
    pub(crate) rate_limit: RateLimit,
    /// The error budget of a connection, if there is one.
    pub(crate) error_limit: Option<ErrorLimit>,
}

impl Setup {
    pub(crate) fn new(config: Config, verifier: Option<Verifier>) -> Self {
        let limits = &config.limits;
        Self {
            profile: profile_of(&config),
            verifier,
            access: Arc::new(config.topics.access.clone()),
            rate_limit: RateLimit::new(limits.rate_limit_capacity, limits.rate_limit_refill_per_s),
            error_limit: ErrorLimit::new(limits.errors_max, limits.errors_window_ms),
            config,
        }
    }
}

/// The keys made from the configuration.
pub(crate) struct Keys {
    pub(crate) verifier: Option<Verifier>,
    pub(crate) identity: Option<IdentityKey>,
    pub(crate) signatures: Option<Signatures>,
}

/// The description of a server for clients.
fn profile_of(config: &Config) -> ServerProfile {
    let limits = &config.limits;
    ServerProfile {
        server_version: env!("CARGO_PKG_VERSION").to_owned(),
        features: Features {
            compression: true,
            encryption: config.encryption != Encryption::Off,
            batching: true,
            priority_queue: true,
            recovery: true,
            circuit_breaker: limits.errors_max > 0,
            calls: true,
            topics: true,
            presence: true,
            history: true,
            binary: true,
            server_subscriptions: true,
            broker_updates: config.broker.is_some(),
        },
        message_bytes_max: limits.message_bytes_max,
        rate_limit_capacity: limits.rate_limit_capacity,
        rate_limit_refill_per_s: limits.rate_limit_refill_per_s,
        ping_interval_ms: limits.ping_interval_ms,
        idle_timeout_ms: limits.idle_timeout_ms,
    }
}

impl Shared {
    pub(crate) fn new(config: Config, keys: Keys, hub: Arc<Hub>) -> Self {
        let counters = (0..config.shards)
            .map(|_| Arc::new(Counters::default()))
            .collect();
        let key_set = keys.verifier.as_ref().and_then(Verifier::set);
        Self {
            key_set: key_set.filter(|set| set.source.is_some()).cloned(),
            identity: keys.identity,
            signatures: keys.signatures,
            backend: config.backend.clone().map(Backend::new).map(Arc::new),
            traces: config.traces.clone(),
            charges: Charges {
                owners: Owners::new(),
                accounts: Accounts::new(
                    config.topics.limits.subscription_bytes_per_owner_max,
                    config.topics.limits.subscription_bytes_max,
                ),
                busiest: Busiest::default(),
                unfinished: Unfinished::new(
                    config.limits.unfinished_bytes_per_owner_max,
                    config.limits.unfinished_bytes_max,
                    config.limits.message_bytes_max,
                    config.shards,
                ),
                presence_budgets: OwnerBudgets::default(),
            },
            sessions: AtomicUsize::new(0),
            adoptions: AtomicUsize::new(0),
            counters,
            producers: SharedProducers::new(&config.producers),
            hosts: HostGuard::new(
                config.hosts.clone(),
                config.option_spelling,
                LineKind::HostRefused,
                Arc::clone(&hub.lines),
            ),
            lines: Arc::clone(&hub.lines),
            hub,
            functions: ProgramFunctions {
                reload: OnceLock::new(),
                settings: OnceLock::new(),
            },
            life: Life {
                draining: AtomicBool::new(false),
                admitting: AtomicBool::new(true),
                broker_is_away: AtomicBool::new(false),
                drain_span_ms: AtomicU64::new(SPAN_MS_DEFAULT),
                stopped: AtomicBool::new(false),
                failure: OnceLock::new(),
                started: Instant::now(),
                started_unix_ms: unix_ms(),
            },
            setup: Live::new(Setup::new(config, keys.verifier)),
        }
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.life.stopped.load(Ordering::Acquire)
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.life.draining.load(Ordering::Acquire)
    }

    pub(crate) fn is_admitting(&self) -> bool {
        self.life.admitting.load(Ordering::Acquire)
    }

    /// How each shard is, in the order of the shards.
    pub(crate) fn shard_health(&self) -> Vec<ShardHealth> {
        let stall_ms = self.setup.get().config.limits.shard_stall_ms;
        let outlets = self.hub.outlets.iter();
        outlets.map(|outlet| outlet.health(stall_ms)).collect()
    }

    /// Whether clients are notified that the broker does not answer.
    pub(crate) fn is_broker_away(&self) -> bool {
        self.life.broker_is_away.load(Ordering::Acquire)
    }

    /// Whether there are keys to check tokens with, or none are needed.
    pub(crate) fn has_keys(&self) -> bool {
        let setup = self.setup.get();
        !setup.verifier.as_ref().is_some_and(Verifier::is_waiting)
    }

    /// Whether the server accepts new connections.
    pub(crate) fn is_ready(&self) -> bool {
        !self.is_draining() && self.is_admitting()
    }

    /// The time since the start of the server, in seconds.
    pub(crate) fn uptime_s(&self) -> f64 {
        self.life.started.elapsed().as_secs_f64()
    }

    /// The counters of each shard, in the order of the shards.
    pub(crate) fn snapshots(&self) -> Vec<Snapshot> {
        self.counters
            .iter()
            .map(|counters| counters.snapshot())
            .collect()
    }

    /// The sum of the counters of all shards.
    pub(crate) fn total(&self) -> Snapshot {
        self.snapshots()
            .iter()
            .fold(Snapshot::default(), |sum, shard| sum.sum(shard))
    }
}

//! The Tidewire server.
//!
//! A [`Server`] runs one [shard](tidewire_net::Shard) per thread. Each shard owns its connections: it makes
//! the opening handshake, checks the token, keeps the limits, answers the protocol's own messages and calls
//! the [`Application`] with the others, on the shard. An application that lives on another thread receives
//! its events in batches from a bounded [`queue`].
//!
//! Clients subscribe to topics and patterns, as far as the [`AccessRules`] let them; [`Handle::publish`], and
//! [`Context::publish`] on a shard, reach every subscriber in one order. A [`TopicRule`] states what the
//! server stores of which topics: history, from which clients that were away recover, the last value, and who
//! is present. Both sides can [call](Handle::call) each other and wait for the answer. Messages that a
//! [`Limits`], a [`TopicLimits`] or an [`ProducerConfig`] does not allow are refused, or reported as a gap,
//! and counted, never lost without a report. `docs/engine.md` of the repository is the guide,
//! `examples/topics.rs` a program that uses most of it.
//!
//! ```no_run
//! use tidewire_engine::{Config, Server, apps::Echo};
//!
//! let config = Config { auth: None, ..Config::default() };
//! let server = Server::start(config, |_shard| Echo)?;
//! println!("listening on {}", server.address());
//! server.drain(std::time::Duration::from_secs(10));
//! # Ok::<(), tidewire_engine::StartError>(())
//! ```

/// The snippets of the repository's first page.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// The snippets of the guide to this crate.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/engine.md")]
struct Guide;

pub mod apps;
pub mod auth;
mod backend;
mod clock;
mod cluster;
mod config;
pub mod counters;
mod handle;
mod keys;
mod limits;
mod live;
mod log;
mod model;
pub mod ops;
pub mod queue;
mod server;
mod session;
pub mod settings;
mod shard;
#[cfg(feature = "simulation")]
pub mod simulation;
mod state;
mod topics;
mod trace;

pub use auth::hosts::HostPolicy;
pub use auth::network::{InvalidNetwork, Network};
pub use auth::{hosts, token};
pub use cluster::{RepartitionError, Repartitioned, repartition};
pub use config::backend::{
    BackendAway, BackendConfig, BackendEvent, BackendEvents, BackendSecret, BackendUrl,
    InvalidBackendUrl,
};
pub use config::broker::{BrokerAddress, BrokerConfig, InvalidBrokerUrl, PasswordSource};
pub use config::{
    Compression, Config, Deflate, Drain, Encryption, Limits, OriginPolicy, ProducerConfig,
    Protocol, SignatureKey, Signing, TlsFiles, TrustedProxies,
};
pub use handle::Handle;
pub use limits::rate;
pub use log::{
    HeldLog, LOG_BYTES_MAX, LOG_LINES_MAX, LogLines, LogQueue, dropped_log_lines, dropped_words,
};
pub use model::adoption::AdoptionTicket;
pub use model::call_types::{Call, CallFailure, NewCall};
pub use model::content::Content;
pub use model::queries::{
    ConnectionDetails, ConnectionInfo, ConnectionQuery, HistoryPage, HistoryQuery, Kept, Listed,
    ListedEverywhere, OnServers, PresentMember, SyncRequest, TopicInfo, TopicPresence, TopicQuery,
};
pub use model::spelling::OptionSpelling;
pub use model::url::{HttpUrl, InvalidHttpUrl};
pub use model::{
    CloseReason, ConnectionKey, Encoding, GivenSetting, InvalidConnectionKey, Message, Outgoing,
    Peer, Position, ReloadFunction, Reloaded, SendError, ServerFailure, SettingsFunction,
    ShardHealth,
};
pub use server::{ListeningSockets, ReloadError, Reloader, Server, StartError};
pub use session::application::Application;
pub use session::context::Context;
pub use state::adoption::{Adoption, ConnectDecision, InvalidDecision};
pub use state::connect_request::{ConnectRequest, ConnectRequests, ConnectResponder};
pub use state::open_calls::Responder;
pub use tidewire_net::ADOPTED_BYTES_MAX;
pub use tidewire_wire::envelope::Priority;
pub use tidewire_wire::forwarded::ForwardedHeader;
pub use tidewire_wire::session::{CallError, Overload};
pub use topics::access::{Access, AccessRules, InvalidRules, Rules};
pub use topics::broker::{BrokerHealth, BrokerPartition, BrokerProblem, ClusterNode};
pub use topics::config::{GroupOverload, Scope, TopicLimits, TopicRule, Topics};
pub use topics::decided::{DecidedTopics, PublicationRequest};
pub use topics::error::{BrokerUnavailable, ManageError, PublishError};
pub use topics::filter::{Filter, FilterProblem, InvalidFilter};
pub use topics::history::HistoryLimits;
pub use topics::name::InvalidTopic;
pub use topics::new_publication::NewPublication;
pub use topics::publication::Published;
pub use trace::{Span, SpanKind, SpanValue, TEXT_BYTES_MAX, TraceContext, TraceCounts, TraceSink};

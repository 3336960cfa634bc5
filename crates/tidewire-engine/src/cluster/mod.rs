mod broker;
mod calls;
mod commands;
mod convert;
pub(crate) mod exchange;
mod link;
mod mirror;
mod parcel;
mod presence;
mod resolve;
mod search;
mod secrets;

use self::broker::ClusterBroker;
use self::exchange::Exchange;
use self::link::LinkHandler;
use self::resolve::Route;
use self::secrets::Secrets;
use crate::config::broker::BrokerConfig;
use crate::config::{Config, ProducerConfig};
use crate::model::ConnectionKey;
use crate::model::calls::{CallFailure, NewCall};
use crate::model::content::Content;
use crate::topics::broker::{Broker, ClusterNode, Control};
use crate::topics::config::{GroupOverload, TopicLimits};
use crate::topics::hub::Hub;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::io;
use std::sync::{Arc, Weak};
use tidewire_net::tls::TlsError;
use tidewire_net::{Shard, ShardConfig};
use tidewire_redis::{Layout, Lineage, Link, LinkOptions, NodeId};

/// This server's part of a cluster, before its link runs.
pub(crate) struct Cluster {
    broker: Arc<ClusterBroker>,
    link: Shard<LinkHandler>,
}

/// The calls of the link into this server, on behalf of the others. No call blocks.
pub(crate) trait Neighbour: Send {
    /// Executes a command that another server sent to all at this time, in milliseconds since 1970. Returns
    /// false if a shard has no room: then some shards have done it, and the caller has to repeat it.
    fn obey(&self, control: Control, told_unix_ms: Option<u64>) -> bool;

    /// Asks a client of this server. `done` is called with the outcome, once, maybe at once.
    fn call(&self, connection: ConnectionKey, call: NewCall, done: CallDone);

    /// The figures of this server that the others see.
    fn describe(&self) -> ClusterNode;

    /// The limits that this server announces to its clients, as text to be compared.
    fn limits(&self) -> String;
}

/// Limits of the server that hold for the link as well.
pub(crate) struct LinkLimits<'a> {
    pub(crate) topics: &'a TopicLimits,
    pub(crate) producers: &'a ProducerConfig,
}

impl<'a> LinkLimits<'a> {
    pub(crate) fn of(config: &'a Config) -> Self {
        Self {
            topics: &config.topics.limits,
            producers: &config.producers,
        }
    }
}

/// Receives the outcome of a call.
pub(crate) type CallDone = Box<dyn FnOnce(Result<Content, CallFailure>) + Send>;

/// Why a cluster cannot be joined. The caller's fault, but for [`ClusterError::System`].
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClusterError {
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error(transparent)]
    System(#[from] io::Error),
}

impl Cluster {
    pub(crate) fn new(
        config: &BrokerConfig,
        limits: &LinkLimits<'_>,
    ) -> Result<Self, ClusterError> {
        let (broker, exchange) = exchange(config, limits, &mut StdRng::from_os_rng());
        let secrets = Secrets::of(config);
        let route = Route {
            address: config.address.clone(),
            slot: Layout::new(&config.prefix).slot(),
            tls: match config.address.is_tls() {
                true => Some(secrets.tls()?),
                false => None,
            },
            secrets,
        };
        let shard = ShardConfig {
            outbox_bytes_max: OUTBOX_BYTES_MAX,
            ..ShardConfig::default()
        };
        let (mut link, mailbox) = Shard::new(&shard, LinkHandler::new(exchange, route))?;
        link.handler_mut().find_by(&mailbox)?;
        broker.commands.connect(mailbox.waker());
        broker.watch_link(link.heartbeat());
        Ok(Self { broker, link })
    }

    /// The commands of the shards.
    pub(crate) fn broker(&self) -> Arc<dyn Broker> {
        Arc::clone(&self.broker) as Arc<dyn Broker>
    }

    /// The exchange without sockets, for a simulation.
    #[cfg(feature = "simulation")]
    pub(crate) fn simulated(
        config: &BrokerConfig,
        limits: &LinkLimits<'_>,
        seed: u64,
    ) -> (Arc<ClusterBroker>, Exchange) {
        exchange(config, limits, &mut StdRng::seed_from_u64(seed))
    }

    /// The link, to be run on a thread of its own. It delivers to `hub`, and asks `server` for what
    /// other servers want of this one.
    pub(crate) fn into_link(
        mut self,
        hub: Weak<Hub>,
        server: impl Neighbour + 'static,
    ) -> Shard<LinkHandler> {
        let exchange = &mut self.link.handler_mut().exchange;
        exchange.attach(hub, Box::new(server));
        self.link
    }
}

/// Both sides of a server's part of a cluster; `random` draws its name.
fn exchange(
    config: &BrokerConfig,
    LinkLimits { topics, producers }: &LinkLimits<'_>,
    random: &mut StdRng,
) -> (Arc<ClusterBroker>, Exchange) {
    // A connection's key contains this many bits of it.
    let node = NodeId(random.random_range(1..1 << 48));
    let broker = Arc::new(ClusterBroker::new(
        node,
        topics.history_bytes_max,
        topics.history_topics_max,
    ));
    let options = LinkOptions {
        group_waiting_max: topics.group_waiting_max as u64,
        group_waiting_bytes_max: topics.group_waiting_bytes_max as u64,
        group_drops_newest: topics.group_overload == GroupOverload::DropNewest,
        groups_per_topic_max: topics.groups_per_topic_max as u64,
        producer_ttl_ms: producers.producer_ttl_ms,
        prefix: config.prefix.clone(),
        user: config
            .username
            .clone()
            .or_else(|| config.address.user.clone()),
        password: config.address.password.clone(),
        database: config.address.database,
        lineage: match config.is_durable && !config.address.fails_over() {
            true => Lineage::Single,
            false => Lineage::Replaced,
        },
        broker_wait_ms: config.wait_ms,
        linger_ms: LINGER_MS,
        ..LinkOptions::default()
    };
    let link = Link::new(options, node, random.random());
    let exchange = Exchange::new(
        link,
        Arc::clone(&broker),
        config.wait_ms,
        config.lost_close_ms,
    );
    (broker, exchange)
}

/// How long the link stays subscribed to a topic that the exchange has let go, in milliseconds.
const LINGER_MS: u64 = 1_000;

/// The limit of commands that wait to be sent to the broker, in bytes: more than the limit of the link.
const OUTBOX_BYTES_MAX: usize = 128 * 1024 * 1024;

mod blocking;
mod call_messages;
mod commands;
mod convert;
pub(crate) mod exchange;
mod handover;
mod link;
mod mirror;
mod options;
mod parcel;
mod partitions;
mod repartition;
mod resolve;
mod search;
mod secrets;
mod shared_broker;
mod shared_presence;

pub use self::repartition::{RepartitionError, Repartitioned, repartition};

use self::exchange::Exchange;
use self::link::LinkHandler;
use self::options::{link_options, route};
use self::partitions::{Part, PartitionedBroker, Siblings};
use self::shared_broker::{ClusterBroker, WAITING_BYTES_MAX};
use crate::config::broker::BrokerConfig;
use crate::config::{Config, ProducerConfig};
use crate::model::ConnectionKey;
use crate::model::call_types::{CallFailure, NewCall};
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
use tidewire_redis::{Link, LinkOptions, NodeId, Partition};

/// This server's part of a cluster, before its links run.
pub(crate) struct Cluster {
    broker: Arc<dyn Broker>,
    /// One for each partition.
    links: Vec<Shard<LinkHandler>>,
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
    pub(crate) message_bytes_max: usize,
}

impl<'a> LinkLimits<'a> {
    pub(crate) fn of(config: &'a Config) -> Self {
        Self {
            topics: &config.topics.limits,
            producers: &config.producers,
            message_bytes_max: config.limits.message_bytes_max,
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
        let (broker, parts) = parts(config, limits, &mut StdRng::from_os_rng());
        let links = parts
            .into_iter()
            .map(|(part, exchange)| link(config, &part, exchange));
        Ok(Self {
            links: links.collect::<Result<_, _>>()?,
            broker,
        })
    }

    /// The commands of the shards.
    pub(crate) fn broker(&self) -> Arc<dyn Broker> {
        Arc::clone(&self.broker)
    }

    /// The exchange of each partition without sockets, for a simulation.
    #[cfg(feature = "simulation")]
    pub(crate) fn simulated(
        config: &BrokerConfig,
        limits: &LinkLimits<'_>,
        seed: u64,
    ) -> (Arc<dyn Broker>, Vec<Exchange>) {
        let (broker, parts) = parts(config, limits, &mut StdRng::seed_from_u64(seed));
        let exchanges = parts.into_iter().map(|(_, exchange)| exchange);
        (broker, exchanges.collect())
    }

    /// The link of each partition, to be run on a thread of its own. It delivers to `hub`, and asks `server` for
    /// what other servers want of this one.
    pub(crate) fn into_links(
        mut self,
        hub: &Weak<Hub>,
        server: &(impl Neighbour + Clone + 'static),
    ) -> Vec<Shard<LinkHandler>> {
        for link in &mut self.links {
            let exchange = &mut link.handler_mut().exchange;
            exchange.attach(Weak::clone(hub), Box::new(server.clone()));
        }
        self.links
    }
}

/// Both sides of each partition.
type Parts = Vec<(Arc<ClusterBroker>, Exchange)>;

/// The broker of the shards, and each partition with its exchange. `random` draws the name of this server.
fn parts(
    config: &BrokerConfig,
    limits: &LinkLimits<'_>,
    random: &mut StdRng,
) -> (Arc<dyn Broker>, Parts) {
    // A connection's key contains this many bits of it.
    let node = NodeId(random.random_range(1..1 << 48));
    let siblings = Arc::new(Siblings::new(config.partitions()));
    let partitions = Partition::all(config.partitions());
    let parts = partitions.map(|partition| {
        exchange(
            config,
            limits,
            (node, partition),
            &siblings,
            random.random(),
        )
    });
    let parts: Vec<_> = parts.collect();
    let broker: Arc<dyn Broker> = match &*parts {
        [(broker, _)] => Arc::clone(broker) as Arc<dyn Broker>,
        several => {
            let several = several.iter().map(|(broker, exchange)| Part {
                broker: Arc::clone(broker),
                address: config.address_of(exchange.link.partition()).to_string(),
            });
            Arc::new(PartitionedBroker::new(several.collect()))
        }
    };
    (broker, parts)
}

/// The link of a partition with its sockets.
fn link(
    config: &BrokerConfig,
    broker: &ClusterBroker,
    exchange: Exchange,
) -> Result<Shard<LinkHandler>, ClusterError> {
    let route = route(config, exchange.link.partition())?;
    let shard = ShardConfig {
        outbox_bytes_max: OUTBOX_BYTES_MAX,
        ..ShardConfig::default()
    };
    let (mut link, mailbox) = Shard::new(&shard, LinkHandler::new(exchange, route))?;
    link.handler_mut().find_by(&mailbox)?;
    broker.commands.connect(mailbox.waker());
    broker.watch_link(link.heartbeat());
    Ok(link)
}

/// Both sides of a partition.
fn exchange(
    config: &BrokerConfig,
    limits: &LinkLimits<'_>,
    (node, partition): (NodeId, Partition),
    siblings: &Arc<Siblings>,
    seed: u64,
) -> (Arc<ClusterBroker>, Exchange) {
    let LinkLimits {
        topics, producers, ..
    } = limits;
    let parts = usize::from(partition.count());
    // A message of the largest size has room in each.
    let waiting_bytes_max = WAITING_BYTES_MAX
        .div_ceil(parts)
        .max(2 * limits.message_bytes_max);
    let broker = Arc::new(ClusterBroker::new(
        node,
        (topics.history_bytes_max, topics.history_topics_max),
        parts,
        waiting_bytes_max,
    ));
    let options = LinkOptions {
        group_waiting_max: topics.group_waiting_max as u64,
        group_waiting_bytes_max: topics.group_waiting_bytes_max as u64,
        group_drops_newest: topics.group_overload == GroupOverload::DropNewest,
        groups_per_topic_max: topics.groups_per_topic_max as u64,
        producer_ttl_ms: producers.producer_ttl_ms,
        waiting_bytes_max,
        ..link_options(config, partition)
    };
    let link = Link::new(options, node, seed);
    let exchange = Exchange::new(
        link,
        (Arc::clone(&broker), Arc::clone(siblings)),
        config.wait_ms,
        config.lost_close_ms,
    );
    (broker, exchange)
}

/// The limit of commands that wait to be sent to the broker, in bytes: more than the limit of the link.
const OUTBOX_BYTES_MAX: usize = 128 * 1024 * 1024;

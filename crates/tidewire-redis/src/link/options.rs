//! Options and limits of a link.

use crate::partition::Partition;

/// How a link reaches Redis and how much it may keep. Addresses and TLS belong to whoever opens the connections.
#[derive(Debug, Clone)]
pub struct LinkOptions {
    /// The prefix of all keys and channels. Default `tw`.
    pub prefix: String,
    /// The ACL user; `None` is `default`.
    pub user: Option<String>,
    /// The password; `None` sends no `AUTH`.
    pub password: Option<String>,
    /// The database, `SELECT`. Default 0.
    pub database: u32,
    /// The partition that this link has. Default the only one.
    pub partition: Partition,
    /// The addresses of several independent Redis servers in their order, the same at all nodes: the partitions take turns.
    /// Default empty: there is one server, or a Redis Cluster.
    pub servers: Vec<String>,
    /// Whether positions outlive a restart of Redis. Default [`Lineage::Replaced`].
    pub lineage: Lineage,
    /// How long an operation waits for a broker that is away, in milliseconds. Default 5,000.
    pub broker_wait_ms: u64,
    /// The time limit of one command in Redis, in milliseconds. Default 4,000.
    pub command_ms: u64,
    /// Publications that wait or are not answered, in bytes of their records and names. Default 32 MiB.
    pub waiting_bytes_max: usize,
    /// Reads that wait or are not answered. Default 10,000.
    pub reads_max: usize,
    /// Publications of one batch. Default 128, the most 1,000.
    pub batch_publications_max: usize,
    /// Bytes of one batch, but for a single publication that has more. Default 256 KiB.
    pub batch_bytes_max: usize,
    /// How long the topic of the last subscriber stays subscribed, in milliseconds. Default 10,000.
    pub linger_ms: u64,
    /// How long an `id` is remembered, in milliseconds. Default 300,000.
    pub id_memory_ms: u64,
    /// The bytes that one topic may keep of publications that arrive while earlier ones are read. Further
    /// ones are read from the stream. Default 1 MiB.
    pub ahead_bytes_max: usize,
    /// Publications that the slowest queue group of a topic may have to do. Default 100,000.
    pub group_waiting_max: u64,
    /// The same in bytes of their records. Default 16 MiB.
    pub group_waiting_bytes_max: u64,
    /// Beyond them the new publication is dropped, and not the oldest. Default false.
    pub group_drops_newest: bool,
    /// Queue groups of one topic. Default 64.
    pub groups_per_topic_max: u64,
    /// How long a producer is remembered after the last number that was kept, in milliseconds. Default an hour.
    pub producer_ttl_ms: u64,
}

impl Default for LinkOptions {
    fn default() -> Self {
        Self {
            prefix: "tw".to_owned(),
            user: None,
            password: None,
            database: 0,
            partition: Partition::WHOLE,
            servers: Vec::new(),
            lineage: Lineage::Replaced,
            broker_wait_ms: 5_000,
            command_ms: 4_000,
            waiting_bytes_max: 32 * 1024 * 1024,
            reads_max: 10_000,
            batch_publications_max: 128,
            batch_bytes_max: 256 * 1024,
            linger_ms: 10_000,
            id_memory_ms: 300_000,
            ahead_bytes_max: 1024 * 1024,
            group_waiting_max: 100_000,
            group_waiting_bytes_max: 16 * 1024 * 1024,
            group_drops_newest: false,
            groups_per_topic_max: 64,
            producer_ttl_ms: 3_600_000,
        }
    }
}

impl LinkOptions {
    /// What must be the same at all nodes of a cluster: names and values.
    #[must_use]
    pub fn terms(&self) -> Vec<(&'static str, String)> {
        let is_durable = self.lineage == Lineage::Single;
        let protocol = match self.partition.count() {
            1 => PROTOCOL.to_owned(),
            // Servers of earlier versions, which compare nothing but this, do not join.
            count => format!("{PROTOCOL} in {count} partitions"),
        };
        vec![
            ("broker_is_durable", is_durable.to_string()),
            (
                "prefix and database",
                format!("{}/{}", self.prefix, self.database),
            ),
            (PROTOCOL_TERM, protocol),
            (PARTITIONS_TERM, self.partition.count().to_string()),
            (SERVERS_TERM, self.servers.join(" ")),
        ]
    }

    /// Whether the Redis of this link is not the first of several independent ones.
    pub(super) fn is_elsewhere(&self) -> bool {
        let servers = self.servers.len().max(1);
        usize::from(self.partition.index()) % servers != 0
    }
}

/// The operator's statement about the Redis behind the address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Lineage {
    /// Another process with fewer writes may replace it: a replica after a failover, a restored copy, or the
    /// same one after a restart. Every topic then begins a new epoch.
    #[default]
    Replaced,
    /// Always the same data folder. With `appendonly yes` and `appendfsync always`, which the link reads back, epochs
    /// outlive a restart.
    Single,
}

/// Processes of Redis have handed their data over to another one, each all of it to the next, and nothing that they acknowledged
/// was lost on the way. The epochs go on there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handover {
    /// The run ids of the processes that had the data.
    pub from: Vec<String>,
    /// That of the process that has it now.
    pub to: String,
}

/// Names of terms.
pub const PROTOCOL_TERM: &str = "protocol of records";
/// See [`PROTOCOL_TERM`].
pub const PARTITIONS_TERM: &str = "broker_partitions";
/// See [`PROTOCOL_TERM`].
pub const SERVERS_TERM: &str = "the list of brokers";

/// Of the records in streams and channels, of the scripts, and of the messages between nodes.
const PROTOCOL: &str = "1";

/// The three connections of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Slot {
    /// Publications, and the probe.
    Command,
    /// Subscriptions.
    Subscribe,
    /// Reads of streams.
    Read,
}

impl Slot {
    /// All of them, in the order of [`Slot::index`].
    pub const ALL: [Self; 3] = [Self::Command, Self::Subscribe, Self::Read];

    /// 0, 1 or 2.
    #[must_use]
    pub fn index(self) -> usize {
        self as usize
    }

    /// The name of the connection in `CLIENT LIST` and in reasons.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Command => "cmd",
            Self::Subscribe => "sub",
            Self::Read => "read",
        }
    }
}

/// The time, as the caller's clocks give it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Now {
    /// Milliseconds on a clock that never goes back. All deadlines are on it.
    pub ms: u64,
    /// Milliseconds since 1970, at best without the steps of a clock that is corrected: the expiry of publications
    /// depends on it, and a step of it looks as one of Redis.
    pub unix_ms: u64,
}

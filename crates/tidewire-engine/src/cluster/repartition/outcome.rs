//! The outcome of a move.

use std::io;
use tidewire_net::tls::TlsError;

/// What [`repartition`](super::repartition) has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Repartitioned {
    /// The partitions that the cluster had before.
    pub partitions_before: u16,
    /// The topics with a history.
    pub topics: u64,
    /// Those of them that were moved.
    pub topics_moved: u64,
}

/// Why topics cannot be moved. All of them are where they were, unless [`repartition`](super::repartition) says otherwise.
#[derive(Debug, thiserror::Error)]
pub enum RepartitionError {
    /// Servers run. The caller stops them.
    #[error(
        "servers of this cluster run, or ended without a word less than 10 s ago: {0}; stop them all, and try again"
    )]
    Running(u64),
    /// There is no cluster.
    #[error("no server has ever used this prefix here: check broker, database and broker_prefix")]
    NoCluster,
    /// The list of brokers is not the one of the cluster.
    #[error(
        "the cluster has the brokers {known:?}, and not {given:?}: give the list that its servers had"
    )]
    OtherServers {
        /// What the servers of the cluster had.
        known: String,
        /// What was given.
        given: String,
    },
    /// There is something else where the topics are to be moved.
    #[error(
        "{0} has keys of another cluster with this prefix: remove them, or choose another broker"
    )]
    Occupied(String),
    /// An earlier move was interrupted, and this is another one.
    #[error(
        "a move from {from} to {to} has not ended: run that command again, or, if it has not begun to remove what it left, take \
         it back with --to the old number and without --to-broker"
    )]
    Unfinished {
        /// Where the topics were: the number of partitions, and the brokers.
        from: String,
        /// Where they are moved.
        to: String,
    },
    /// The cluster is elsewhere.
    #[error("the topics of this cluster are not here any more: {0}")]
    Elsewhere(String),
    /// Certificates of the broker cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// A broker failed or refused a command.
    #[error("{broker}: {error}; nothing is lost: run the same command again")]
    Broker {
        /// Where it is.
        broker: String,
        /// Its answer, or the fault of the connection.
        error: io::Error,
    },
}

//! The state of an exchange, in parts: requests to the broker, topics, health, other partitions.

use super::away::Away;
use super::complaints::Outage;
use super::filling::Fillings;
use crate::cluster::partitions::Siblings;
use crate::topics::broker::Ticket;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use tidewire_redis::{Allowed, Health};

/// The other partitions of this server, and what they allow this one.
#[derive(Debug)]
pub(super) struct Partition {
    /// The links of the other partitions of this server.
    pub(super) siblings: Arc<Siblings>,
    /// Their permission for this one.
    pub(super) allowed: Allowed,
    /// The time of the last look at them.
    pub(super) looked_ms: u64,
}

/// Requests to the broker that are not answered.
#[derive(Debug)]
pub(super) struct Asked {
    /// Commands of this server that are not acknowledged.
    pub(super) told: HashMap<u64, (Ticket, usize)>,
    /// The number of the last operation.
    pub(super) number: u64,
    pub(super) publications: HashMap<u64, (Ticket, usize)>,
    pub(super) forgotten: HashMap<u64, (Arc<str>, Ticket)>,
    /// Producers that are opened, or whose numbers are remembered.
    pub(super) producers: HashMap<u64, Ticket>,
}

/// The topics that subscribers of this server wait for, and those that nobody needs any more.
#[derive(Debug)]
pub(super) struct Interest {
    pub(super) fillings: Fillings,
    /// The topics that somebody waits for, in the order of their time.
    pub(super) awaited: VecDeque<(u64, Arc<str>)>,
    /// Topics without interest, to be let go.
    pub(super) idle: VecDeque<(u64, Arc<str>)>,
    pub(super) wait_ms: u64,
}

/// The health of the broker as this link sees it, and the end of the link.
#[derive(Debug)]
pub(super) struct Life {
    pub(super) health: Health,
    pub(super) outage: Outage,
    /// When the health was reported last.
    pub(super) told_ms: u64,
    /// When leaving ends, also if the broker does not answer.
    pub(super) leaves_ms: Option<u64>,
    pub(super) away: Away,
}

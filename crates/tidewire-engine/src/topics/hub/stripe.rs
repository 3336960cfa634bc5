//! Topics of the hub that share a lock, and who wants them.

use crate::topics::groups::TopicGroups;
use std::collections::HashMap;
use std::sync::Arc;

/// Some of the topics, under one lock.
#[derive(Debug, Default)]
pub(super) struct Stripe {
    /// Numbers the deliveries of all its topics.
    pub(super) seq: u64,
    pub(super) interest: HashMap<Arc<str>, Interest>,
    /// Topics of which a group has lost its last member.
    pub(super) idle_groups: Vec<Arc<str>>,
    /// The shards with patterns that match a topic, as long as the patterns stay the same.
    pub(super) matching: HashMap<Arc<str>, ShardSet>,
    /// Which patterns `matching` is about.
    pub(super) pattern_changes: u64,
}

/// The interest in a topic.
#[derive(Debug, Default)]
pub(super) struct Interest {
    pub(super) shards: ShardSet,
    pub(super) groups: Option<Box<TopicGroups>>,
}

/// Shards, a bit for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ShardSet(pub(super) u64);

/// Shards that a server may have, so that a set of them is a number.
pub(crate) const SHARDS_MAX: usize = 64;

impl ShardSet {
    pub(super) fn insert(&mut self, shard: u32) {
        self.0 |= 1 << shard;
    }

    pub(super) fn remove(&mut self, shard: u32) {
        self.0 &= !(1 << shard);
    }

    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(super) fn iter(self) -> impl Iterator<Item = usize> {
        (0..SHARDS_MAX).filter(move |shard| self.0 & (1 << shard) != 0)
    }
}

impl Stripe {
    /// Forgets a topic that neither a shard nor a group wants any more; whether it has.
    pub(super) fn forget_unwanted(&mut self, topic: &str) -> bool {
        let Some(interest) = self.interest.get_mut(topic) else {
            return false;
        };
        interest.groups.take_if(|groups| groups.is_empty());
        let is_unwanted = interest.shards.is_empty() && interest.groups.is_none();
        if is_unwanted {
            self.interest.remove(topic);
        }
        is_unwanted
    }
}

//! Names of topics and entries of batches, on one shard.

use super::publication::Publication;
use std::sync::Arc;

/// Names a topic of the shard, as long as it has subscribers.
pub(crate) type Slot = u32;

/// One publication of a batch.
#[derive(Debug, Clone)]
pub(crate) struct Item {
    pub(crate) publication: Arc<Publication>,
    /// Its number in the round if several topics and patterns match it: each connection gets it
    /// once.
    pub(crate) mark: Option<u32>,
}

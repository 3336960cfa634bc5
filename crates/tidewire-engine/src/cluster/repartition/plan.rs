//! The place of everything, and the place where it belongs.

use super::keys::{Key, Shape, shape_of};
use super::lanes::{Lane, Lanes};
use super::outcome::RepartitionError;
use crate::cluster::blocking::Reply;
use crate::cluster::exchange::CONTROL;
use tidewire_redis::Partition;

/// The partitions of a cluster, as they were and as they will be.
pub(super) struct Plan<'a> {
    pub(super) lanes: Lanes,
    pub(super) old: Vec<Lane>,
    pub(super) new: Vec<Lane>,
    /// More lanes to which an interrupted call may have copied something.
    pub(super) others: Vec<Lane>,
    pub(super) looked_at: u64,
    pub(super) progress: &'a mut dyn FnMut(u64),
}

/// A member of a key that has some of each topic, and its value.
pub(super) type Part = (Vec<u8>, Vec<u8>);

impl Plan<'_> {
    /// The members of a key that has some of each topic, and their values.
    pub(super) fn parts(&mut self, lane: Lane, key: &Key) -> Result<Vec<Part>, RepartitionError> {
        let rest = key.rest();
        let name = self.lanes.key(lane, &rest);
        let text = |reply: &Reply| reply.text().unwrap_or_default().to_vec();
        let shape = shape_of(&rest);
        let words: &[&[u8]] = match shape {
            Shape::Hash => &[b"HGETALL", &name],
            Shape::SortedSet => &[b"ZRANGE", &name, b"0", b"-1", b"WITHSCORES"],
            Shape::Set => &[b"SMEMBERS", &name],
        };
        let reply = self.lanes.ask(lane, words)?;
        let items = reply.items();
        Ok(match shape {
            Shape::Set => items.iter().map(|item| (text(item), Vec::new())).collect(),
            _ => items
                .chunks_exact(2)
                .map(|pair| (text(&pair[0]), text(&pair[1])))
                .collect(),
        })
    }

    /// Calls `act` with all keys of a lane, some at a time.
    pub(super) fn walk(
        &mut self,
        lane: Lane,
        mut act: impl FnMut(&mut Self, &[Key]) -> Result<(), RepartitionError>,
    ) -> Result<(), RepartitionError> {
        let mut cursor = b"0".to_vec();
        loop {
            let keys = self.lanes.scan(lane, &mut cursor)?;
            self.looked_at += keys.len() as u64;
            (self.progress)(self.looked_at);
            for some in keys.chunks(KEYS_AT_ONCE) {
                act(self, some)?;
            }
            if cursor == b"0" {
                return Ok(());
            }
        }
    }
}

/// The lane of a topic among those of all partitions.
pub(super) fn lane_of(layout: &[Lane], topic: &[u8]) -> Lane {
    layout[index_of(topic, layout.len())]
}

/// The index of the partition of a topic.
pub(super) fn index_of(topic: &[u8], count: usize) -> usize {
    match std::str::from_utf8(topic) {
        Ok(CONTROL) | Err(_) => 0,
        Ok(topic) => usize::from(Partition::index_of(
            topic,
            u16::try_from(count).unwrap_or(u16::MAX),
        )),
    }
}

/// Keys that are copied or removed at once: each may have the history of a topic.
const KEYS_AT_ONCE: usize = 16;

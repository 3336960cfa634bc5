//! The work of a topic's queue groups: a stream with consumer groups.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use tidewire_redis::layout::Position;
use tidewire_redis::resp::reply;

/// The work of a topic's groups.
#[derive(Debug, Clone, Default)]
pub(super) struct WorkStream {
    pub(super) last: Position,
    pub(super) entries: VecDeque<Entry>,
    pub(super) groups: BTreeMap<Vec<u8>, WorkGroup>,
}

/// A publication.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) id: Position,
    pub(super) place: Vec<u8>,
    /// Bytes of all records before it.
    pub(super) before: u64,
    pub(super) record: Vec<u8>,
}

/// The work of one group, done and not done.
#[derive(Debug, Clone, Default)]
pub(super) struct WorkGroup {
    pub(super) last: Position,
    /// Which node has what; `_` for nobody.
    pub(super) pending: BTreeMap<Position, Vec<u8>>,
    pub(super) nodes: BTreeSet<Vec<u8>>,
}

impl WorkStream {
    pub(super) fn has(&self, id: Position) -> bool {
        self.entries
            .binary_search_by_key(&id, |entry| entry.id)
            .is_ok()
    }

    /// Gives entries to somebody else; how many are no more there.
    pub(super) fn claim(&mut self, group: &[u8], to: &[u8], ids: &[Position]) -> u64 {
        let mut lost = 0;
        for id in ids {
            let is_there = self.has(*id);
            let Some(group) = self.groups.get_mut(group) else {
                continue;
            };
            if is_there {
                group.pending.insert(*id, to.to_vec());
            } else {
                group.pending.remove(id);
                lost += 1;
            }
        }
        lost
    }

    /// Removes the work that every group has done.
    pub(super) fn trim(&mut self) {
        let least = self.groups.values().map(|group| {
            let first = group.pending.first_key_value().map(|(id, _)| *id);
            first.unwrap_or(Position {
                offset: group.last.offset + 1,
                ..group.last
            })
        });
        let Some(least) = least.min() else { return };
        while self.entries.front().is_some_and(|entry| entry.id < least) {
            self.entries.pop_front();
        }
    }

    pub(super) fn write(&self, ids: &[Position], out: &mut Vec<u8>) {
        reply::array(out, 3 * ids.len());
        let is_meant = |entry: &&Entry| ids.contains(&entry.id);
        for entry in self.entries.iter().filter(is_meant) {
            reply::text(out, entry.id.to_string().as_bytes());
            reply::text(out, &entry.place);
            reply::text(out, &entry.record);
        }
    }
}

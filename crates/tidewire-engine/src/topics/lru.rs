//! Entries in a slab, each linked into a list by how recently it was used.
//!
//! The links are indexes inside the slab, so that every step is O(1) and an entry costs eight bytes
//! of links and no allocation of its own. One slab may serve several lists; an entry is in at most
//! one of them, and the caller knows in which.

use std::ops::{Index, IndexMut};

/// A slab of entries. An index stays valid until the entry is removed; then it is given to another.
#[derive(Debug)]
pub(crate) struct Slots<E> {
    slots: Vec<Slot<E>>,
    /// The first vacant slot; vacant slots are chained through `newer`.
    vacant: u32,
    len: usize,
}

/// A list of entries from the least to the most recently used.
#[derive(Debug, Clone, Copy)]
pub(crate) struct List {
    oldest: u32,
    newest: u32,
}

#[derive(Debug)]
struct Slot<E> {
    older: u32,
    newer: u32,
    entry: Option<E>,
}

impl<E> Slots<E> {
    /// An empty slab, which allocates nothing.
    pub(crate) fn new() -> Self {
        Self {
            slots: Vec::new(),
            vacant: NONE,
            len: 0,
        }
    }

    /// Stores an entry, in no list yet, and gives its index.
    ///
    /// The caller keeps the number of entries at [`ENTRIES_MAX`] or less.
    pub(crate) fn insert(&mut self, entry: E) -> u32 {
        self.len += 1;
        let slot = Slot {
            older: NONE,
            newer: NONE,
            entry: Some(entry),
        };
        if self.vacant == NONE {
            let index = u32::try_from(self.slots.len()).unwrap_or(NONE);
            self.slots.push(slot);
            return index;
        }
        let index = self.vacant;
        let place = &mut self.slots[index as usize];
        self.vacant = place.newer;
        *place = slot;
        index
    }

    /// Removes an entry that is in no list; `None` if there is none at this index.
    pub(crate) fn remove(&mut self, index: u32) -> Option<E> {
        let slot = self.slots.get_mut(index as usize)?;
        let entry = slot.entry.take()?;
        slot.newer = self.vacant;
        self.vacant = index;
        self.len -= 1;
        Some(entry)
    }

    /// The entry at an index that may be out of date.
    pub(crate) fn at(&self, index: u32) -> Option<&E> {
        self.slots.get(index as usize)?.entry.as_ref()
    }

    /// The entry at an index that may be out of date, to change it.
    pub(crate) fn at_mut(&mut self, index: u32) -> Option<&mut E> {
        self.slots.get_mut(index as usize)?.entry.as_mut()
    }

    /// How many entries there are.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// One more than the greatest index that was ever given.
    pub(crate) fn index_end(&self) -> u32 {
        u32::try_from(self.slots.len()).unwrap_or(NONE)
    }

    /// Puts an entry that is in no list at the most recently used end of `list`.
    pub(crate) fn link(&mut self, list: &mut List, index: u32) {
        let older = list.newest;
        self.slots[index as usize].older = older;
        self.slots[index as usize].newer = NONE;
        list.newest = index;
        if older == NONE {
            list.oldest = index;
        } else {
            self.slots[older as usize].newer = index;
        }
    }

    /// Removes an entry from the list that it is in.
    pub(crate) fn unlink(&mut self, list: &mut List, index: u32) {
        let Slot { older, newer, .. } = self.slots[index as usize];
        if older == NONE {
            list.oldest = newer;
        } else {
            self.slots[older as usize].newer = newer;
        }
        if newer == NONE {
            list.newest = older;
        } else {
            self.slots[newer as usize].older = older;
        }
    }

    /// The next more recently used entry of the same list.
    pub(crate) fn newer(&self, index: u32) -> Option<u32> {
        some(self.slots[index as usize].newer)
    }
}

impl<E> Index<u32> for Slots<E> {
    type Output = E;

    fn index(&self, index: u32) -> &E {
        self.at(index)
            .expect("only the index of a stored entry is used in this way")
    }
}

impl<E> IndexMut<u32> for Slots<E> {
    fn index_mut(&mut self, index: u32) -> &mut E {
        self.at_mut(index)
            .expect("only the index of a stored entry is used in this way")
    }
}

impl List {
    /// A list without entries.
    pub(crate) const EMPTY: Self = Self {
        oldest: NONE,
        newest: NONE,
    };

    /// The least recently used entry.
    pub(crate) fn oldest(&self) -> Option<u32> {
        some(self.oldest)
    }
}

fn some(index: u32) -> Option<u32> {
    (index != NONE).then_some(index)
}

/// How many entries a slab may have.
pub(crate) const ENTRIES_MAX: usize = (u32::MAX - 1) as usize;

/// The index that stands for no entry.
const NONE: u32 = u32::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(slots: &Slots<char>, list: &List) -> String {
        let mut next = list.oldest();
        let mut text = String::new();
        while let Some(index) = next {
            text.push(slots[index]);
            next = slots.newer(index);
        }
        text
    }

    #[test]
    fn entries_leave_from_either_end_and_from_the_middle() {
        let mut slots = Slots::new();
        let mut list = List::EMPTY;
        let indexes: Vec<u32> = "abcde".chars().map(|entry| slots.insert(entry)).collect();
        for index in &indexes {
            slots.link(&mut list, *index);
        }
        assert_eq!(listed(&slots, &list), "abcde");
        for (index, left) in [(2, "abde"), (0, "bde"), (4, "bd"), (1, "d"), (3, "")] {
            slots.unlink(&mut list, indexes[index]);
            assert_eq!(listed(&slots, &list), left);
        }
        assert_eq!(list.oldest(), None);
        slots.link(&mut list, indexes[3]);
        assert_eq!(listed(&slots, &list), "d");
    }

    #[test]
    fn vacant_slots_are_used_again() {
        let mut slots = Slots::new();
        let first = slots.insert('a');
        let second = slots.insert('b');
        assert_eq!(slots.remove(first), Some('a'));
        assert_eq!(slots.remove(first), None);
        assert_eq!(slots.at(first), None);
        assert_eq!(slots.remove(second), Some('b'));
        assert_eq!(slots.len(), 0);
        let again = [slots.insert('c'), slots.insert('d'), slots.insert('e')];
        assert_eq!(again, [second, first, 2]);
        assert_eq!((slots.len(), slots.index_end()), (3, 3));
    }
}

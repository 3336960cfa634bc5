//! Queues that share one table of entries: an entry leaves from anywhere in constant time.

use slab::Slab;

/// The neighbours of an entry of a queue.
#[derive(Debug, Clone, Copy)]
pub(super) struct Links {
    previous: usize,
    next: usize,
}

/// An entry that can stand in one queue at a time.
pub(super) trait Linked {
    fn links(&mut self) -> &mut Links;
}

/// The first, the last and the number of the entries of one queue.
#[derive(Debug, Clone, Copy)]
pub(super) struct List {
    first: usize,
    last: usize,
    len: usize,
}

impl Links {
    pub(super) const NONE: Self = Self {
        previous: NOWHERE,
        next: NOWHERE,
    };
}

impl List {
    pub(super) const EMPTY: Self = Self {
        first: NOWHERE,
        last: NOWHERE,
        len: 0,
    };

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The entry that has been in it for the longest time.
    pub(super) fn first(&self) -> Option<usize> {
        (self.first != NOWHERE).then_some(self.first)
    }

    pub(super) fn push_back<T: Linked>(&mut self, entries: &mut Slab<T>, key: usize) {
        *entries[key].links() = Links {
            previous: self.last,
            next: NOWHERE,
        };
        match self.last {
            NOWHERE => self.first = key,
            last => entries[last].links().next = key,
        }
        self.last = key;
        self.len += 1;
    }

    /// Removes an entry, which must be in this queue.
    pub(super) fn remove<T: Linked>(&mut self, entries: &mut Slab<T>, key: usize) {
        let Links { previous, next } = std::mem::replace(entries[key].links(), Links::NONE);
        match previous {
            NOWHERE => self.first = next,
            previous => entries[previous].links().next = next,
        }
        match next {
            NOWHERE => self.last = previous,
            next => entries[next].links().previous = previous,
        }
        self.len -= 1;
    }
}

const NOWHERE: usize = usize::MAX;

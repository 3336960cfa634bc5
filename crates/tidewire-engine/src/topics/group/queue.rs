//! Waiting messages of a queue group, in the order of arrival.

use std::collections::{BTreeMap, VecDeque};

/// A message that nobody has finished.
#[derive(Debug)]
pub(super) struct Held<P> {
    pub(super) message: P,
    pub(super) bytes: usize,
    /// Whether a member had it before.
    pub(super) was_delivered: bool,
}

/// Messages in the order of their ids. Those that were given back are kept apart and go first: with
/// messages of this server alone, all of them are older than those that were never delivered.
#[derive(Debug)]
pub(super) struct Waiting<P> {
    given_back: BTreeMap<u64, Held<P>>,
    fresh: VecDeque<(u64, Held<P>)>,
}

impl<P> Held<P> {
    pub(super) fn new(message: P, bytes: usize) -> Self {
        Self {
            message,
            bytes,
            was_delivered: false,
        }
    }
}

impl<P> Waiting<P> {
    pub(super) fn new() -> Self {
        Self {
            given_back: BTreeMap::new(),
            fresh: VecDeque::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.given_back.len() + self.fresh.len()
    }

    /// Appends a message with an id above all before.
    pub(super) fn push(&mut self, id: u64, held: Held<P>) {
        self.fresh.push_back((id, held));
    }

    /// Puts messages back that were removed before.
    pub(super) fn give_back(&mut self, mut messages: BTreeMap<u64, Held<P>>) {
        // The fewer go to the more: `append` would rebuild both.
        if self.given_back.len() < messages.len() {
            std::mem::swap(&mut self.given_back, &mut messages);
        }
        self.given_back.extend(messages);
    }

    /// Removes and returns the first message: the oldest given back, else the oldest of the others.
    pub(super) fn take_first(&mut self) -> Option<(u64, Held<P>)> {
        let first = self.given_back.pop_first();
        first.or_else(|| {
            let first = self.fresh.pop_front();
            // After a rush the places must not be held for ever.
            if self.fresh.capacity() > PLACES_MIN && self.fresh.len() * 4 < self.fresh.capacity() {
                self.fresh.shrink_to(self.fresh.len() * 2);
            }
            first
        })
    }
}

/// A queue of this many places is never made smaller.
const PLACES_MIN: usize = 64;

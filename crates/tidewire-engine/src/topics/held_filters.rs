//! The filters of the subscriptions of a shard, by numbers.

use super::filter::Filter;
use std::collections::HashMap;
use std::sync::Arc;

/// The filters of a shard, each once however many subscriptions have it.
#[derive(Debug, Default)]
pub(super) struct Filters {
    by_source: HashMap<Arc<str>, u32>,
    by_number: HashMap<u32, HeldFilter>,
    last: u32,
}

#[derive(Debug)]
struct HeldFilter {
    filter: Arc<Filter>,
    holders: usize,
}

impl Filters {
    /// The filter with this number, if it is held.
    pub(super) fn by_number(&self, number: u32) -> Option<&Arc<Filter>> {
        self.by_number.get(&number).map(|held| &held.filter)
    }

    /// The number of a filter, held once more.
    pub(super) fn hold(&mut self, filter: &Arc<Filter>) -> u32 {
        if let Some(number) = self.by_source.get(filter.source())
            && let Some(held) = self.by_number.get_mut(number)
        {
            held.holders += 1;
            return *number;
        }
        loop {
            self.last = self.last.wrapping_add(1).max(1);
            if !self.by_number.contains_key(&self.last) {
                break;
            }
        }
        self.by_source.insert(filter.source().into(), self.last);
        let held = HeldFilter {
            filter: Arc::clone(filter),
            holders: 1,
        };
        self.by_number.insert(self.last, held);
        self.last
    }

    /// Gives a number back that was held.
    pub(super) fn release(&mut self, number: u32) {
        let Some(held) = self.by_number.get_mut(&number) else {
            return;
        };
        held.holders -= 1;
        if held.holders == 0 {
            self.by_source.remove(held.filter.source());
            self.by_number.remove(&number);
        }
    }
}

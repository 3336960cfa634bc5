//! A map that is small with few entries and may hold many.

use std::collections::HashMap;
use std::hash::Hash;

/// A map that keeps its entries in one piece of memory, in no order, and an index beside them only
/// when they are many. So one entry costs little, and the operations are O(1) for any number.
#[derive(Debug)]
pub(crate) struct DenseMap<K, V> {
    entries: Vec<(K, V)>,
    /// The place of each key, once there were more than [`SEARCHED_MAX`] entries.
    #[expect(
        clippy::box_collection,
        reason = "eight bytes instead of 48 for the many maps that need no index"
    )]
    places: Option<Box<HashMap<K, usize>>>,
}

impl<K: Clone + Eq + Hash, V> DenseMap<K, V> {
    /// An empty map, which allocates nothing.
    pub(crate) fn new() -> Self {
        Self {
            entries: Vec::new(),
            places: None,
        }
    }

    /// How many entries there are.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no entry.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether the key has an entry.
    pub(crate) fn contains(&self, key: &K) -> bool {
        self.place(key).is_some()
    }

    /// The key's value, to change it.
    pub(crate) fn at(&self, key: &K) -> Option<&V> {
        let place = self.place(key)?;
        Some(&self.entries[place].1)
    }

    pub(crate) fn at_mut(&mut self, key: &K) -> Option<&mut V> {
        let place = self.place(key)?;
        Some(&mut self.entries[place].1)
    }

    /// The entries, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.entries.iter().map(|(key, value)| (key, value))
    }

    /// Adds an entry unless the key has one. Returns whether it was added.
    pub(crate) fn insert(&mut self, key: K, value: V) -> bool {
        if self.contains(&key) {
            return false;
        }
        let place = self.entries.len();
        if let Some(places) = &mut self.places {
            places.insert(key.clone(), place);
        } else if place == SEARCHED_MAX {
            let known = self.entries.iter().map(|(known, _)| known.clone());
            let keys = known.chain([key.clone()]);
            self.places = Some(Box::new(keys.zip(0..).collect()));
        }
        if self.entries.capacity() == 0 {
            self.entries.reserve_exact(1);
        }
        self.entries.push((key, value));
        true
    }

    /// Removes the key's entry and returns its value.
    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        let place = self.place(key)?;
        let (_, value) = self.entries.swap_remove(place);
        if let Some(places) = &mut self.places {
            places.remove(key);
            if let Some((moved, _)) = self.entries.get(place) {
                places.insert(moved.clone(), place);
            }
        }
        self.shrink();
        Some(value)
    }

    /// Gives memory back after many entries have left.
    fn shrink(&mut self) {
        let len = self.entries.len();
        if len * 4 >= self.entries.capacity() {
            return;
        }
        self.entries.shrink_to(len * 2);
        if len * 2 <= SEARCHED_MAX {
            self.places = None;
        } else if let Some(places) = &mut self.places {
            places.shrink_to(len * 2);
        }
    }

    fn place(&self, key: &K) -> Option<usize> {
        match &self.places {
            Some(places) => places.get(key).copied(),
            None => self.entries.iter().position(|(known, _)| known == key),
        }
    }
}

/// This many entries are searched one by one.
const SEARCHED_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// It agrees with a map of the standard library, on both sides of the number that needs an
        /// index.
        #[test]
        fn behaves_like_a_map(steps in prop::collection::vec((0u32..3, 0u32..40), 0..400)) {
            let mut dense = DenseMap::new();
            let mut model = BTreeMap::new();
            for (serial, (kind, key)) in steps.into_iter().enumerate() {
                // Phases of growing and of shrinking, so that both get far.
                let grows = if serial / 80 % 2 == 0 { kind < 2 } else { kind < 1 };
                if grows {
                    let is_new = !model.contains_key(&key);
                    model.entry(key).or_insert(serial);
                    prop_assert_eq!(dense.insert(key, serial), is_new);
                } else {
                    prop_assert_eq!(dense.remove(&key), model.remove(&key));
                }
                let entries: BTreeMap<u32, usize> = dense.iter().map(|(key, value)| (*key, *value)).collect();
                prop_assert_eq!(&entries, &model);
                prop_assert_eq!((dense.len(), dense.is_empty()), (model.len(), model.is_empty()));
                for key in 0..40 {
                    prop_assert_eq!(dense.contains(&key), model.contains_key(&key));
                    prop_assert_eq!(dense.at_mut(&key).copied(), model.get(&key).copied());
                }
            }
        }
    }

    #[test]
    fn gives_memory_back() {
        let mut dense = DenseMap::new();
        for key in 0..10_000 {
            dense.insert(key, ());
        }
        for key in 1..10_000 {
            dense.remove(&key);
        }
        assert!(dense.contains(&0));
        assert!(dense.entries.capacity() <= 8);
        assert!(dense.places.is_none());
    }
}

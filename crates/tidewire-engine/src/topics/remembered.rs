//! Remembered ids, each with a value, so that a repeated message does no harm.

use crate::limits::fair::FairQueue;
use crate::limits::owner::OwnerId;
use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher, RandomState};

/// The newest ids and their values, at most a fixed number.
///
/// For a new one the oldest of the owner with the most is forgotten, so that no owner can drive out
/// the ids of others with fewer; a repetition does not make an id newer. An id needs 16 bytes in a
/// ring, and 17 with its value in a table; both have up to twice as many places as ids. So 50,000
/// ids with values of 16 bytes need between 3 and 6 MB. Nothing is allocated in advance.
#[derive(Debug)]
pub(crate) struct Remembered<V> {
    values: HashMap<IdKey, V, BuildHasherDefault<AlreadyHashed>>,
    order: FairQueue<IdKey>,
}

/// Makes keys of ids. Only keys of the same one can be compared.
///
/// It hashes with SipHash under two secret keys of this process, so that nobody outside can choose
/// two ids with the same key, nor many whose keys share a place in the table.
#[derive(Debug, Clone)]
pub(crate) struct IdKeys {
    first: RandomState,
    second: RandomState,
}

/// An id in a scope as 128 bits. Two ids have the same one with a probability of 2^-128.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IdKey(u64, u64);

impl<V> Remembered<V> {
    /// How many ids are remembered unless something else is configured.
    pub(crate) const IDS_MAX_DEFAULT: usize = 50_000;

    /// Remembers at most `ids_max` ids; with 0 none.
    pub(crate) fn new(ids_max: usize) -> Self {
        Self {
            values: HashMap::default(),
            order: FairQueue::new(ids_max),
        }
    }

    /// The value of an id that is remembered.
    pub(crate) fn value(&self, key: IdKey) -> Option<&V> {
        self.values.get(&key)
    }

    /// Remembers an id of an owner, unless it is remembered already: then its earlier value is
    /// given and stays.
    pub(crate) fn insert(&mut self, owner: OwnerId, key: IdKey, value: V) -> Option<&V> {
        if self.values.contains_key(&key) {
            return self.values.get(&key);
        }
        self.values.insert(key, value);
        if let Some(forgotten) = self.order.push(owner, key) {
            self.values.remove(&forgotten);
        }
        None
    }

    /// How many ids are remembered.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }
}

impl IdKeys {
    /// Keys of a new secret, which the operating system's random source gives.
    pub(crate) fn new() -> Self {
        Self {
            first: RandomState::new(),
            second: RandomState::new(),
        }
    }

    /// The key of an id in a scope, such as a user or a topic.
    pub(crate) fn key(&self, scope: &str, id: &str) -> IdKey {
        // A pair of strings is hashed with a mark behind each, so that no two pairs run together.
        let pair = (scope, id);
        IdKey(self.first.hash_one(pair), self.second.hash_one(pair))
    }
}

impl Hash for IdKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0);
    }
}

/// Passes on the half of a key that is a hash itself.
#[derive(Debug, Default)]
struct AlreadyHashed(u64);

impl Hasher for AlreadyHashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn keys_depend_on_scope_and_id_and_where_they_part() {
        let keys = IdKeys::new();
        let pairs = [
            ("", ""),
            ("a", "bc"),
            ("ab", "c"),
            ("abc", ""),
            ("", "abc"),
            ("bc", "a"),
        ];
        let distinct: BTreeSet<(u64, u64)> = pairs
            .iter()
            .map(|(scope, id)| keys.key(scope, id))
            .map(|IdKey(first, second)| (first, second))
            .collect();
        assert_eq!(distinct.len(), pairs.len());
        assert_eq!(keys.key("a", "bc"), keys.clone().key("a", "bc"));
    }

    #[test]
    fn both_halves_and_every_secret_differ() {
        let keys = IdKeys::new();
        let IdKey(first, second) = keys.key("scope", "id");
        assert_ne!(first, second);
        assert_ne!(IdKeys::new().key("scope", "id"), keys.key("scope", "id"));
    }

    proptest! {
        /// Exactly the newest ids are remembered, with the value of their first time.
        #[test]
        fn agrees_with_a_list(
            ids in prop::collection::vec(0u32..30, 0..200),
            ids_max in 0usize..20,
        ) {
            let keys = IdKeys::new();
            let mut remembered = Remembered::new(ids_max);
            let mut model: Vec<(u32, usize)> = Vec::new();
            for (serial, id) in ids.into_iter().enumerate() {
                let known = model.iter().find(|known| known.0 == id).map(|known| known.1);
                let earlier = remembered.insert(OwnerId::SERVER, keys.key("scope", &id.to_string()), serial);
                prop_assert_eq!(earlier.copied(), known);
                if known.is_none() {
                    model.push((id, serial));
                    model.drain(..model.len().saturating_sub(ids_max));
                }
                prop_assert_eq!(remembered.len(), model.len());
                for id in 0..30 {
                    let known = model.iter().find(|known| known.0 == id).map(|known| known.1);
                    let value = remembered.value(keys.key("scope", &id.to_string()));
                    prop_assert_eq!(value.copied(), known);
                }
            }
            prop_assert_eq!(remembered.values.len(), remembered.len());
        }
    }
}

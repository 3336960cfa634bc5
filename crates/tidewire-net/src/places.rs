//! A table whose entries keep their places, and which gives memory back when most of its places are empty.

use std::ops::{Deref, DerefMut};

use slab::Slab;

/// A slab that shrinks. An entry never moves, so only the empty places behind the last entry can be given back.
#[derive(Debug)]
pub(crate) struct Places<T> {
    slab: Slab<T>,
    /// The capacity after the last attempt to shrink. A larger one is that of a table that has grown since.
    capacity_known: usize,
    /// With fewer entries the next attempt is worth its time.
    shrink_below: usize,
}

/// A smaller table is not worth shrinking.
const PLACES_MIN: usize = 1024;

impl<T> Places<T> {
    pub(crate) fn new() -> Self {
        Self {
            slab: Slab::new(),
            capacity_known: 0,
            shrink_below: 0,
        }
    }

    /// Takes the entry out of its place.
    ///
    /// # Panics
    /// If the place is empty.
    pub(crate) fn remove(&mut self, place: usize) -> T {
        let entry = self.slab.remove(place);
        if self.slab.capacity() > self.capacity_known {
            self.capacity_known = self.slab.capacity();
            self.shrink_below = self.capacity_known / 4;
        }
        if self.slab.len() < self.shrink_below && self.capacity_known > PLACES_MIN {
            self.shrink();
        }
        entry
    }

    /// Each attempt looks at all places. The next one is due when half of the entries are gone, so that all attempts together
    /// cost as much as a few.
    fn shrink(&mut self) {
        self.slab.shrink_to_fit();
        self.capacity_known = self.slab.capacity();
        self.shrink_below = self.slab.len().div_ceil(2);
    }
}

impl<T> Deref for Places<T> {
    type Target = Slab<T>;

    #[inline]
    fn deref(&self) -> &Slab<T> {
        &self.slab
    }
}

impl<T> DerefMut for Places<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Slab<T> {
        &mut self.slab
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(count: usize) -> Places<usize> {
        let mut places = Places::new();
        for number in 0..count {
            assert_eq!(places.insert(number), number);
        }
        places
    }

    #[test]
    fn an_empty_table_gives_its_memory_back_and_grows_again() {
        for order in [true, false] {
            let mut places = filled(100_000);
            for number in 0..100_000 {
                let place = if order { number } else { 99_999 - number };
                assert_eq!(places.remove(place), place);
            }
            assert!(places.capacity() <= PLACES_MIN, "{}", places.capacity());
            let places_again: Vec<usize> = (0..5_000).map(|number| places.insert(number)).collect();
            for place in places_again {
                assert!(places.contains(place));
                places.remove(place);
            }
            assert!(places.capacity() <= PLACES_MIN, "{}", places.capacity());
        }
    }

    #[test]
    fn an_entry_at_the_end_keeps_its_place_and_the_places_before_it() {
        let mut places = filled(10_000);
        for place in 0..9_999 {
            places.remove(place);
        }
        assert_eq!(places[9_999], 9_999);
        assert!(places.capacity() >= 10_000);
        places.remove(9_999);
        assert!(places.capacity() <= PLACES_MIN, "{}", places.capacity());
    }
}

//! The publications that are kept of one topic, oldest first.

use std::collections::VecDeque;

/// Consecutive publications with the memory that they are charged for.
///
/// It knows no offsets: the newest one has the topic's newest offset, and there is never a hole.
#[derive(Debug)]
pub(super) struct Ring<T> {
    kept: VecDeque<Kept<T>>,
    bytes: usize,
}

#[derive(Debug)]
struct Kept<T> {
    publication: T,
    at_ms: u64,
    bytes: usize,
}

impl<T> Ring<T> {
    pub(super) fn new() -> Self {
        Self {
            kept: VecDeque::new(),
            bytes: 0,
        }
    }

    /// The size of a ring with few publications: itself, and the least places that are
    /// allocated.
    pub(super) const BYTES_FIXED: usize = size_of::<Self>() + 4 * size_of::<Kept<T>>();

    /// The charge for a publication of `bytes`: itself and its place in the ring.
    pub(super) fn charge(bytes: usize) -> usize {
        bytes.saturating_add(size_of::<Kept<T>>())
    }

    pub(super) fn len(&self) -> usize {
        self.kept.len()
    }

    /// The sum of the charges.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Appends the newest; `charge` is from [`Ring::charge`].
    pub(super) fn push(&mut self, publication: T, now_ms: u64, charge: usize) {
        self.bytes += charge;
        self.kept.push_back(Kept {
            publication,
            at_ms: now_ms,
            bytes: charge,
        });
    }

    /// Drops the oldest ones that are too old, and gives how many.
    pub(super) fn expire(&mut self, limits: &HistoryLimits, now_ms: u64) -> usize {
        if limits.age_max_ms == 0 {
            return 0;
        }
        let before = self.len();
        while let Some(oldest) = self.kept.front() {
            if now_ms.saturating_sub(oldest.at_ms) < limits.age_max_ms {
                break;
            }
            self.drop_oldest();
        }
        before - self.len()
    }

    /// Drops the oldest ones until the rest is within the limits of number and bytes, and gives how
    /// many.
    pub(super) fn shorten(&mut self, limits: &HistoryLimits) -> usize {
        let before = self.len();
        while self.len() > limits.publications_max || self.bytes > limits.bytes_max {
            self.drop_oldest();
        }
        before - self.len()
    }

    /// Drops all of them and gives how many.
    pub(super) fn clear(&mut self) -> usize {
        let dropped = self.len();
        *self = Self::new();
        dropped
    }

    /// Drops the oldest one and gives how many that were: 0 if there is none.
    pub(super) fn drop_oldest(&mut self) -> usize {
        let Some(oldest) = self.kept.pop_front() else {
            return 0;
        };
        self.bytes -= oldest.bytes;
        // A ring that was long for a while must not hold its places for ever: they are not in the
        // budget.
        if self.kept.capacity() > RING_PLACES_MIN && self.kept.len() * 4 < self.kept.capacity() {
            self.kept.shrink_to(self.kept.len() * 2);
        }
        1
    }
}

impl<T: Clone> Ring<T> {
    pub(super) fn newest(&self) -> Option<T> {
        self.kept.back().map(|kept| kept.publication.clone())
    }

    /// Copies of all publications, each with its time.
    pub(super) fn all(&self) -> Vec<(T, u64)> {
        let all = self.kept.iter();
        all.map(|kept| (kept.publication.clone(), kept.at_ms))
            .collect()
    }

    /// Copies of the publications at these places, 0 being the oldest.
    pub(super) fn copies(&self, places: std::ops::Range<usize>) -> Vec<T> {
        self.kept
            .range(places)
            .map(|kept| kept.publication.clone())
            .collect()
    }
}

/// A ring of this many places is never made smaller.
const RING_PLACES_MIN: usize = 16;

/// How much of one topic is kept. A publication is dropped as soon as one of the limits is exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistoryLimits {
    /// At most N publications; 0 keeps none, but they are counted still.
    pub publications_max: usize,
    /// At most N bytes, including the few for the place of each publication.
    pub bytes_max: usize,
    /// Only publications younger than this, in milliseconds; 0 for no limit of age.
    pub age_max_ms: u64,
}

impl HistoryLimits {
    /// This many publications, of any age, in 4 MiB.
    #[must_use]
    pub fn of(publications_max: usize) -> Self {
        Self {
            publications_max,
            bytes_max: 4 * 1024 * 1024,
            age_max_ms: 0,
        }
    }
}

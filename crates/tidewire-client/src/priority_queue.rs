//! Priority queue: bounded, with five levels.

use std::collections::VecDeque;
pub use tidewire_wire::envelope::Priority;

/// A bounded queue of five levels. The next item is the oldest one of the highest level that is not empty.
///
/// ```
/// use tidewire_client::priority_queue::{Priority, PriorityQueue, QueueLimits};
///
/// let mut queue = PriorityQueue::new(QueueLimits::default());
/// queue.push(Priority::Normal, 3, "one")?;
/// queue.push(Priority::Critical, 3, "two")?;
/// queue.push(Priority::Normal, 5, "three")?;
/// assert_eq!(queue.pop(), Some((Priority::Critical, "two")));
/// assert_eq!(queue.pop(), Some((Priority::Normal, "one")));
/// assert_eq!(queue.bytes(), 5);
/// # Ok::<(), tidewire_client::priority_queue::Full<&str>>(())
/// ```
#[derive(Debug, Clone)]
pub struct PriorityQueue<T> {
    limits: QueueLimits,
    /// The levels from the lowest to the highest, as in [`Priority::ALL`]; each item with its counted bytes.
    levels: [VecDeque<(usize, T)>; 5],
    items: usize,
    bytes: usize,
}

/// The limits of a [`PriorityQueue`], for all levels together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueLimits {
    /// The maximum number of items. Default 10,000.
    pub items_max: usize,
    /// The maximum of the counted bytes. Default 16 MiB.
    pub bytes_max: usize,
}

/// The queue is full; the item is returned. Nobody's fault: retry when an item was removed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the queue is full")]
pub struct Full<T>(pub T);

impl Default for QueueLimits {
    fn default() -> Self {
        Self {
            items_max: 10_000,
            bytes_max: 16 * 1024 * 1024,
        }
    }
}

impl<T> PriorityQueue<T> {
    /// An empty queue.
    #[must_use]
    pub fn new(limits: QueueLimits) -> Self {
        Self {
            limits,
            levels: Default::default(),
            items: 0,
            bytes: 0,
        }
    }

    /// Appends an item to its level; it counts as `bytes` bytes.
    ///
    /// # Errors
    /// [`Full`], with the item; the queue is unchanged.
    pub fn push(&mut self, priority: Priority, bytes: usize, item: T) -> Result<(), Full<T>> {
        if !self.has_room(bytes) {
            return Err(Full(item));
        }
        self.append(priority, bytes, item);
        Ok(())
    }

    /// [`Self::push`] that removes items of lower levels to make room, the newest one of the lowest level first. Returns
    /// them, so that their owners can be notified.
    ///
    /// # Errors
    /// [`Full`] if the lower levels do not have enough items to remove; the queue is unchanged.
    pub fn push_displacing(
        &mut self,
        priority: Priority,
        bytes: usize,
        item: T,
    ) -> Result<Vec<(Priority, T)>, Full<T>> {
        let lower = &self.levels[..priority.lane()];
        let lower_items: usize = lower.iter().map(VecDeque::len).sum();
        let lower_bytes: usize = lower.iter().flatten().map(|(bytes, _)| bytes).sum();
        let items_left = self.items - lower_items;
        let bytes_left = self.bytes - lower_bytes;
        if items_left >= self.limits.items_max
            || bytes_left.saturating_add(bytes) > self.limits.bytes_max
        {
            return Err(Full(item));
        }
        let mut displaced = Vec::new();
        while !self.has_room(bytes) {
            let lowest = self.levels.iter().position(|level| !level.is_empty());
            let Some(level) = lowest else { break };
            if let Some((bytes, item)) = self.levels[level].pop_back() {
                self.items -= 1;
                self.bytes -= bytes;
                displaced.push((Priority::ALL[level], item));
            }
        }
        self.append(priority, bytes, item);
        Ok(displaced)
    }

    /// Removes and returns the next item.
    pub fn pop(&mut self) -> Option<(Priority, T)> {
        let level = self.levels.iter().rposition(|level| !level.is_empty())?;
        let (bytes, item) = self.levels[level].pop_front()?;
        self.items -= 1;
        self.bytes -= bytes;
        Some((Priority::ALL[level], item))
    }

    /// The next item, without removing it.
    #[must_use]
    pub fn peek(&self) -> Option<(Priority, &T)> {
        let level = self.levels.iter().rposition(|level| !level.is_empty())?;
        let (_, item) = self.levels[level].front()?;
        Some((Priority::ALL[level], item))
    }

    /// Removes the items for which `keep` returns false, and returns them, the highest level first.
    pub fn remove_unless(&mut self, mut keep: impl FnMut(&T) -> bool) -> Vec<(Priority, T)> {
        let mut removed = Vec::new();
        for (level, priority) in self.levels.iter_mut().zip(Priority::ALL).rev() {
            for (bytes, item) in std::mem::take(level) {
                if keep(&item) {
                    level.push_back((bytes, item));
                } else {
                    self.items -= 1;
                    self.bytes -= bytes;
                    removed.push((priority, item));
                }
            }
        }
        removed
    }

    /// The number of items.
    #[must_use]
    pub fn len(&self) -> usize {
        self.items
    }

    /// Whether the queue is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.items == 0
    }

    /// The counted bytes of all items.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn has_room(&self, bytes: usize) -> bool {
        self.items < self.limits.items_max
            && self.bytes.saturating_add(bytes) <= self.limits.bytes_max
    }

    fn append(&mut self, priority: Priority, bytes: usize, item: T) {
        self.levels[priority.lane()].push_back((bytes, item));
        self.items += 1;
        self.bytes += bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn queue(items_max: usize, bytes_max: usize) -> PriorityQueue<u32> {
        PriorityQueue::new(QueueLimits {
            items_max,
            bytes_max,
        })
    }

    #[test]
    fn limits_hold_for_items_and_bytes() {
        let mut by_items = queue(2, 1_000);
        assert!(by_items.push(Priority::Low, 1, 1).is_ok());
        assert!(by_items.push(Priority::High, 1, 2).is_ok());
        assert_eq!(by_items.push(Priority::Critical, 1, 3), Err(Full(3)));
        let mut by_bytes = queue(10, 100);
        assert!(by_bytes.push(Priority::Low, 60, 1).is_ok());
        assert_eq!(by_bytes.push(Priority::Low, 41, 2), Err(Full(2)));
        assert!(by_bytes.push(Priority::Low, 40, 2).is_ok());
        assert_eq!(by_bytes.bytes(), 100);
    }

    #[test]
    fn the_newest_of_the_lowest_level_gives_way() {
        let mut queue = queue(3, 1_000);
        for (priority, item) in [
            (Priority::Low, 1),
            (Priority::Low, 2),
            (Priority::Normal, 3),
        ] {
            assert!(queue.push(priority, 10, item).is_ok());
        }
        assert_eq!(queue.push_displacing(Priority::Low, 10, 9), Err(Full(9)));
        let displaced = queue.push_displacing(Priority::High, 10, 4);
        assert_eq!(displaced, Ok(vec![(Priority::Low, 2)]));
        let displaced = queue.push_displacing(Priority::High, 991, 5);
        assert_eq!(
            displaced,
            Err(Full(5)),
            "what is as urgent keeps 10 of 1,000 bytes"
        );
        let displaced = queue.push_displacing(Priority::Critical, 980, 6);
        assert_eq!(displaced, Ok(vec![(Priority::Low, 1)]));
        assert_eq!(queue.pop(), Some((Priority::Critical, 6)));
        assert_eq!(queue.peek(), Some((Priority::High, &4)));
        assert_eq!((queue.len(), queue.bytes()), (2, 20));
    }

    #[test]
    fn what_is_removed_comes_back() {
        let mut queue = queue(10, 100);
        for item in 0..6 {
            let priority = Priority::ALL[item as usize % 5];
            assert!(queue.push(priority, 1, item).is_ok());
        }
        let removed = queue.remove_unless(|item| *item % 2 == 0);
        assert_eq!(
            removed.iter().map(|(_, item)| *item).collect::<Vec<_>>(),
            [3, 1, 5]
        );
        assert_eq!((queue.len(), queue.bytes()), (3, 3));
    }

    proptest! {
        #[test]
        fn comes_out_by_level_and_then_by_age(levels in prop::collection::vec(0usize..5, 0..100)) {
            let mut queue = queue(60, usize::MAX);
            let mut expected: Vec<(usize, u32)> = Vec::new();
            for (index, level) in levels.iter().enumerate() {
                let pushed = queue.push(Priority::ALL[*level], 2, index as u32).is_ok();
                prop_assert_eq!(pushed, index < 60);
                if pushed {
                    expected.push((*level, index as u32));
                }
            }
            prop_assert_eq!(queue.bytes(), 2 * expected.len());
            expected.sort_by_key(|(level, index)| (4 - level, *index));
            let taken: Vec<_> = std::iter::from_fn(|| queue.pop()).map(|(_, item)| item).collect();
            prop_assert_eq!(taken, expected.iter().map(|(_, index)| *index).collect::<Vec<_>>());
            prop_assert!(queue.is_empty() && queue.bytes() == 0);
        }
    }
}

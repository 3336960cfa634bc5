//! An inbox: what other threads answer to a shard, with a bell.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use tidewire_net::Waker;

/// Answers on their way to a shard. Whoever sends the questions bounds their number: there is at
/// most one answer to each.
#[derive(Debug)]
pub(crate) struct Inbox<T> {
    items: Mutex<VecDeque<T>>,
    is_filled: AtomicBool,
    /// Set when the shard has been made.
    waker: OnceLock<Waker>,
}

impl<T> Default for Inbox<T> {
    fn default() -> Self {
        Self {
            items: Mutex::default(),
            is_filled: AtomicBool::new(false),
            waker: OnceLock::new(),
        }
    }
}

impl<T> Inbox<T> {
    /// Lets those who answer wake the shard.
    pub(crate) fn connect(&self, waker: Waker) {
        // A shard has one mailbox.
        let _ = self.waker.set(waker);
    }

    /// Puts an answer in, and wakes the shard if it was empty.
    pub(crate) fn push(&self, item: T) {
        let mut items = self.items.lock().unwrap_or_else(PoisonError::into_inner);
        items.push_back(item);
        let was_filled = self.is_filled.swap(true, Ordering::AcqRel);
        drop(items);
        if !was_filled && let Some(waker) = self.waker.get() {
            waker.wake();
        }
    }

    /// Wakes the shard even if the inbox is empty.
    pub(crate) fn wake(&self) {
        if let Some(waker) = self.waker.get() {
            waker.wake();
        }
    }

    /// Whether the inbox contains an answer.
    pub(crate) fn is_filled(&self) -> bool {
        self.is_filled.load(Ordering::Acquire)
    }

    /// The next `at_most` answers.
    pub(crate) fn take(&self, at_most: usize) -> VecDeque<T> {
        if !self.is_filled() {
            return VecDeque::new();
        }
        let mut items = self.items.lock().unwrap_or_else(PoisonError::into_inner);
        let count = at_most.min(items.len());
        let rest = items.split_off(count);
        self.is_filled.store(!rest.is_empty(), Ordering::Release);
        std::mem::replace(&mut items, rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_come_in_order_and_it_says_whether_more_are_left() {
        let inbox = Inbox::default();
        assert!(inbox.take(2).is_empty());
        (1..=5).for_each(|number| inbox.push(number));
        assert_eq!(inbox.take(2), [1, 2]);
        assert!(inbox.is_filled());
        inbox.push(6);
        assert_eq!(inbox.take(4), [3, 4, 5, 6]);
        assert!(!inbox.is_filled());
        inbox.push(7);
        assert_eq!(inbox.take(4), [7]);
    }
}

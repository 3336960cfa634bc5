//! The memory of all outboxes of a shard: chunks that several share count once.

use std::sync::{Arc, Weak};

/// The bytes in the outboxes of a shard.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// Bytes that belong to one outbox each.
    own_bytes: usize,
    /// Chunks that may still be in an outbox.
    chunks: Vec<Weak<Vec<u8>>>,
    /// Of all of those, including what has left since they were looked through.
    chunk_bytes: usize,
    bytes_max: usize,
}

impl Ledger {
    /// For outboxes that may hold `bytes_max` bytes together.
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            ..Self::default()
        }
    }

    /// A chunk is queued. The same one may be queued for one connection after another, and counts once.
    #[inline]
    pub(crate) fn note_chunk(&mut self, chunk: &Arc<Vec<u8>>) {
        let last = self.chunks.last();
        if last.is_some_and(|last| std::ptr::eq(last.as_ptr(), Arc::as_ptr(chunk))) {
            return;
        }
        if self.chunks.len() >= CHUNKS_MIN && self.chunks.len() == self.chunks.capacity() {
            self.look_through();
        }
        self.chunks.push(Arc::downgrade(chunk));
        self.chunk_bytes += chunk.capacity();
    }

    /// The bytes of one outbox's own have changed.
    #[inline]
    pub(crate) fn change_own(&mut self, before: usize, after: usize) {
        self.own_bytes = (self.own_bytes + after).saturating_sub(before);
    }

    /// Whether the outboxes hold more than they may.
    pub(crate) fn is_over(&mut self) -> bool {
        if self.own_bytes + self.chunk_bytes <= self.bytes_max {
            return false;
        }
        self.look_through();
        self.own_bytes + self.chunk_bytes > self.bytes_max
    }

    /// Forgets chunks that are in no outbox any more.
    fn look_through(&mut self) {
        self.chunk_bytes = 0;
        let chunk_bytes = &mut self.chunk_bytes;
        self.chunks.retain(|chunk| {
            let chunk = chunk.upgrade();
            *chunk_bytes += chunk.as_ref().map_or(0, |chunk| chunk.capacity());
            chunk.is_some()
        });
        if self.chunks.len() < self.chunks.capacity() / 4 {
            self.chunks.shrink_to(2 * self.chunks.len().max(CHUNKS_MIN));
        }
    }
}

/// The list of chunks is not looked through before it is so long.
const CHUNKS_MIN: usize = 1_024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_chunk_counts_once_and_as_long_as_it_lives() {
        let mut ledger = Ledger::new(1_000);
        let chunk = Arc::new(vec![0; 900]);
        for _ in 0..1_000 {
            ledger.note_chunk(&chunk);
        }
        assert!(!ledger.is_over());
        ledger.change_own(0, 200);
        assert!(ledger.is_over());
        ledger.change_own(200, 100);
        assert!(!ledger.is_over());
        let other = Arc::new(vec![0; 100]);
        ledger.note_chunk(&other);
        assert!(ledger.is_over());
        drop(chunk);
        assert!(!ledger.is_over());
        assert_eq!(ledger.chunks.len(), 1);
    }

    #[test]
    fn the_list_of_chunks_stays_short() {
        let mut ledger = Ledger::new(usize::MAX);
        for _ in 0..100_000 {
            ledger.note_chunk(&Arc::new(vec![0; 10]));
        }
        assert!(ledger.chunks.capacity() <= 8 * CHUNKS_MIN);
    }
}

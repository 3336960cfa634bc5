//! A value that can be replaced while other threads read it.

use arc_swap::{ArcSwap, Guard};
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A version of a [`Live`] value, as long as it is read.
pub(crate) type Held<T> = Guard<Arc<T>>;

/// A value that is replaced as a whole. A version that was replaced is freed when nobody reads it any more, so that the
/// number of replacements has no limit.
pub(crate) struct Live<T> {
    current: ArcSwap<T>,
    /// Counts replacements, for [`Reader`].
    version: AtomicU64,
}

impl<T> Live<T> {
    pub(crate) fn new(value: T) -> Self {
        Self {
            current: ArcSwap::from_pointee(value),
            version: AtomicU64::new(0),
        }
    }

    /// The value as it is now. It stays as it is for as long as the guard lives; keep that short.
    #[inline]
    pub(crate) fn get(&self) -> Held<T> {
        self.current.load()
    }

    /// The value as it is now, to be kept.
    pub(crate) fn owned(&self) -> Arc<T> {
        self.current.load_full()
    }

    /// Replaces the value for everybody who reads it from now on. One thread at a time may call it.
    pub(crate) fn replace(&self, value: T) {
        self.current.store(Arc::new(value));
        self.version.fetch_add(1, Ordering::Release);
    }
}

impl<T: fmt::Debug> fmt::Debug for Live<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(formatter)
    }
}

/// One thread's view of a [`Live`] value: it costs nothing to read, and changes only in [`refresh`](Self::refresh).
#[derive(Debug)]
pub(crate) struct Reader<T> {
    held: Arc<T>,
    version: u64,
}

impl<T> Reader<T> {
    pub(crate) fn new(live: &Live<T>) -> Self {
        // The version first: a value that is newer than its version is only read once more.
        let version = live.version.load(Ordering::Acquire);
        Self {
            held: live.owned(),
            version,
        }
    }

    /// Loads the current value if it was replaced. Costs one load if it was not.
    #[inline]
    pub(crate) fn refresh(&mut self, live: &Live<T>) {
        if live.version.load(Ordering::Acquire) != self.version {
            *self = Self::new(live);
        }
    }
}

impl<T> Deref for Reader<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.held
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_keep_what_they_read_and_see_the_new_value_next() {
        let live = Live::new(vec![1]);
        let old = live.get();
        live.replace(vec![2, 3]);
        assert_eq!((&old[..], &live.get()[..]), (&[1][..], &[2, 3][..]));
        assert_eq!(format!("{live:?}"), "[2, 3]");
    }

    #[test]
    fn a_reader_changes_when_it_is_refreshed() {
        let live = Live::new(1);
        let mut reader = Reader::new(&live);
        live.replace(2);
        assert_eq!(*reader, 1);
        reader.refresh(&live);
        assert_eq!(*reader, 2);
    }

    #[test]
    fn versions_that_nobody_reads_are_freed() {
        let first = Arc::new(());
        let live = Live::new(Arc::clone(&first));
        let mut reader = Reader::new(&live);
        for _ in 0..10_000 {
            live.replace(Arc::clone(&first));
        }
        // Those of the last replacement, of the reader and of this test.
        assert_eq!(Arc::strong_count(&first), 3);
        reader.refresh(&live);
        assert_eq!(Arc::strong_count(&first), 2);
    }

    #[test]
    fn threads_see_whole_values() {
        const LAST: u64 = 10_000;
        let live = Live::new((0_u64, 0_u64));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut reader = Reader::new(&live);
                    let mut last = 0;
                    while last < LAST {
                        reader.refresh(&live);
                        let (one, other) = *reader;
                        assert!(one == other && one >= last);
                        last = one;
                    }
                });
            }
            for number in 1..=LAST {
                live.replace((number, number));
            }
        });
    }
}

//! A value that can be replaced while other threads read it.

use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// A value with versions: reading takes two loads and no lock. An old version stays in memory as long as the value,
/// because others may still read it; so there are at most [`VERSIONS_MAX`].
pub(crate) struct Live<T> {
    versions: Box<[OnceLock<Box<T>>]>,
    current: AtomicUsize,
    /// Held while a version is added.
    adding: Mutex<()>,
}

/// There were [`VERSIONS_MAX`] versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooManyVersions;

impl<T> Live<T> {
    pub(crate) fn new(value: T) -> Self {
        let versions: Box<[OnceLock<Box<T>>]> =
            (0..VERSIONS_MAX).map(|_| OnceLock::new()).collect();
        let _ = versions[0].set(Box::new(value));
        Self {
            versions,
            current: AtomicUsize::new(0),
            adding: Mutex::new(()),
        }
    }

    /// Whether [`replace`](Self::replace) has room for another version.
    pub(crate) fn has_room(&self) -> bool {
        self.current.load(Ordering::Acquire) + 1 < self.versions.len()
    }

    /// Replaces the value for everybody who reads it from now on.
    pub(crate) fn replace(&self, value: T) -> Result<(), TooManyVersions> {
        let _adding = self.adding.lock().unwrap_or_else(PoisonError::into_inner);
        let next = self.current.load(Ordering::Acquire) + 1;
        let place = self.versions.get(next).ok_or(TooManyVersions)?;
        place.set(Box::new(value)).map_err(|_| TooManyVersions)?;
        self.current.store(next, Ordering::Release);
        Ok(())
    }
}

impl<T> Deref for Live<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        let version = self.versions[self.current.load(Ordering::Acquire)].get();
        version.expect("a version is written before it is the current one")
    }
}

impl<T: fmt::Debug> fmt::Debug for Live<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(formatter)
    }
}

/// Versions of one value, the first one included.
pub(crate) const VERSIONS_MAX: usize = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_keep_what_they_read_and_see_the_new_value_next() {
        let live = Live::new(vec![1]);
        let old: &Vec<i32> = &live;
        assert_eq!(live.replace(vec![2, 3]), Ok(()));
        assert_eq!((old.as_slice(), live.as_slice()), (&[1][..], &[2, 3][..]));
        assert_eq!(format!("{live:?}"), "[2, 3]");
    }

    #[test]
    fn versions_are_bounded() {
        let live = Live::new(0);
        for number in 1..VERSIONS_MAX {
            assert!(live.has_room());
            assert_eq!(live.replace(number), Ok(()));
        }
        assert!(!live.has_room());
        assert_eq!(live.replace(0), Err(TooManyVersions));
        assert_eq!(*live, VERSIONS_MAX - 1);
    }

    #[test]
    fn threads_see_whole_values() {
        let live = Live::new((0_u64, 0_u64));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut last = 0;
                    while last + 1 < VERSIONS_MAX as u64 {
                        let (one, other) = *live;
                        assert!(one == other && one >= last);
                        last = one;
                    }
                });
            }
            for number in 1..VERSIONS_MAX as u64 {
                live.replace((number, number)).unwrap();
            }
        });
    }
}

//! Number of connections of this process to each address, for the choice of the address with the fewest.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

static COUNTS: Mutex<Option<HashMap<String, usize>>> = Mutex::new(None);

/// A connection that counts until this is dropped.
#[derive(Debug)]
pub(crate) struct Counted(String);

impl Counted {
    pub(crate) fn new(url: &str) -> Self {
        let mut counts = lock();
        *counts
            .get_or_insert_default()
            .entry(url.to_owned())
            .or_default() += 1;
        Self(url.to_owned())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if let Some(counts) = lock().as_mut()
            && let Some(count) = counts.get_mut(&self.0)
        {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.0);
            }
        }
    }
}

/// Connections to each of these addresses.
pub(crate) fn connections<'a>(urls: impl Iterator<Item = &'a str>) -> Vec<usize> {
    let counts = lock();
    let of = |url: &str| counts.as_ref().and_then(|counts| counts.get(url)).copied();
    urls.map(|url| of(url).unwrap_or_default()).collect()
}

fn lock() -> MutexGuard<'static, Option<HashMap<String, usize>>> {
    COUNTS.lock().unwrap_or_else(PoisonError::into_inner)
}

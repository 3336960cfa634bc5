//! Memory that a server keeps for its peers, charged to who causes it: a limit for each owner and
//! for all together.

use crate::limits::owner::OwnerId;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The charges of the owners of a server, in bytes.
#[derive(Debug)]
pub(crate) struct Accounts {
    /// By owner, in stripes with a lock each.
    held: [Mutex<HashMap<OwnerId, usize>>; ACCOUNT_STRIPES],
    total: AtomicUsize,
    owner_bytes_max: usize,
    bytes_max: usize,
}

impl Accounts {
    pub(crate) fn new(owner_bytes_max: usize, bytes_max: usize) -> Self {
        Self {
            held: Default::default(),
            total: AtomicUsize::new(0),
            owner_bytes_max,
            bytes_max,
        }
    }

    /// Charges an owner. The words of an error are for the client; nothing was charged.
    pub(crate) fn charge(&self, owner: OwnerId, bytes: usize) -> Result<(), &'static str> {
        let mut held = self.stripe(owner);
        let before = held.get(&owner).copied().unwrap_or_default();
        if before.saturating_add(bytes) > self.owner_bytes_max {
            return Err("this user or address has as much memory as it may have");
        }
        let add = |total: usize| {
            let after = total.checked_add(bytes)?;
            (after <= self.bytes_max).then_some(after)
        };
        self.total
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, add)
            .map_err(|_| "the server has no memory for more subscriptions")?;
        held.insert(owner, before + bytes);
        Ok(())
    }

    /// Releases charged bytes of an owner.
    pub(crate) fn release(&self, owner: OwnerId, bytes: usize) {
        let mut held = self.stripe(owner);
        if let Some(before) = held.get_mut(&owner) {
            *before = before.saturating_sub(bytes);
            if *before == 0 {
                held.remove(&owner);
            }
        }
        self.total.fetch_sub(bytes, Ordering::AcqRel);
    }

    /// The charges of all owners together.
    pub(crate) fn total(&self) -> usize {
        self.total.load(Ordering::Acquire)
    }

    fn stripe(&self, owner: OwnerId) -> MutexGuard<'_, HashMap<OwnerId, usize>> {
        self.held[owner.0 as usize % ACCOUNT_STRIPES]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Locks that the owners are spread over.
const ACCOUNT_STRIPES: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_and_all_together_have_a_limit() {
        let accounts = Accounts::new(100, 150);
        let (ann, bob) = (OwnerId(1), OwnerId(2));
        assert_eq!(accounts.charge(ann, 100), Ok(()));
        assert!(accounts.charge(ann, 1).is_err());
        assert!(accounts.charge(bob, 51).is_err());
        assert_eq!(accounts.charge(bob, 50), Ok(()));
        accounts.release(ann, 60);
        assert_eq!(accounts.charge(bob, 50), Ok(()));
        assert!(accounts.charge(bob, 1).is_err());
        accounts.release(ann, 40);
        accounts.release(bob, 100);
        assert_eq!(accounts.total(), 0);
        assert!(
            accounts
                .held
                .iter()
                .all(|held| held.lock().unwrap().is_empty())
        );
    }
}

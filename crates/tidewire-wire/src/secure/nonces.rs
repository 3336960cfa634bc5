//! Remembering nonces, so that a signed message counts once.

use std::collections::{HashMap, HashSet, VecDeque};

/// The nonces of signatures that are still fresh, at most a fixed number of them.
///
/// They are kept in groups by the time they were signed at, and a group is forgotten as a whole when its last
/// signature is stale: a nonce stays as long as its signature could be accepted, and at most 100 seconds
/// longer. One nonce needs 17 to 40 bytes, the default number of them some 40 MB.
#[derive(Debug)]
pub struct NonceWindow {
    /// Oldest group first.
    groups: VecDeque<Group>,
    remembered: usize,
    nonces_max: usize,
    /// The limit of one owner; the same as `nonces_max` if owners have no limits of their own.
    owner_max: usize,
    /// The nonces of each owner, if owners have limits of their own.
    owners: HashMap<u64, usize>,
    /// Groups before this one have been forgotten.
    forgotten_before: u64,
}

#[derive(Debug)]
struct Group {
    number: u64,
    nonces: HashSet<[u8; 16]>,
    /// How many are of each owner, if owners have limits of their own.
    owners: HashMap<u64, usize>,
}

/// The reason why a nonce is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NonceError {
    /// The peer's fault: it has been used.
    #[error("the nonce has been used")]
    Replayed,
    /// The peer's fault: the signature is too old, or too far in the future, for its nonce to be known.
    #[error("the signature is stale")]
    Stale,
    /// Ours: the window is full; a new signature may succeed later.
    #[error("too many signatures in a short time")]
    Full,
}

impl NonceWindow {
    /// A window for at most `nonces_max` nonces; [`NONCES_DEFAULT_MAX`] is the default.
    pub fn new(nonces_max: usize) -> Self {
        Self {
            groups: VecDeque::new(),
            remembered: 0,
            nonces_max,
            owner_max: nonces_max,
            owners: HashMap::new(),
            forgotten_before: 0,
        }
    }

    /// The same window with at most `owner_max` nonces of one owner, for [`insert_for`](Self::insert_for). It remembers
    /// besides how many each owner has.
    #[must_use]
    pub fn with_owner_max(mut self, owner_max: usize) -> Self {
        self.owner_max = owner_max.min(self.nonces_max);
        self
    }

    /// Accepts the nonce of a signature of the time `signed_at_unix_s` once. The caller has verified the signature
    /// before, so that only peers with the key fill the window.
    ///
    /// # Errors
    /// [`NonceError`]. A clock that goes back makes signatures stale whose nonces have been forgotten.
    pub fn insert(
        &mut self,
        nonce: [u8; 16],
        signed_at_unix_s: u64,
        now_unix_s: u64,
    ) -> Result<(), NonceError> {
        self.insert_for(0, nonce, signed_at_unix_s, now_unix_s)
    }

    /// [`insert`](Self::insert) for an owner, a number of the caller's choice: one that has as many nonces as it may is
    /// refused as [`NonceError::Full`], and the others are not.
    ///
    /// # Errors
    /// As [`insert`](Self::insert).
    pub fn insert_for(
        &mut self,
        owner: u64,
        nonce: [u8; 16],
        signed_at_unix_s: u64,
        now_unix_s: u64,
    ) -> Result<(), NonceError> {
        self.forget(now_unix_s);
        let number = signed_at_unix_s / GROUP_S;
        let fresh = now_unix_s.abs_diff(signed_at_unix_s) <= SIGNATURE_AGE_S_MAX;
        if !fresh || number < self.forgotten_before {
            return Err(NonceError::Stale);
        }
        if self
            .groups
            .iter()
            .any(|group| group.nonces.contains(&nonce))
        {
            return Err(NonceError::Replayed);
        }
        let is_shared = self.owner_max < self.nonces_max;
        let own = self.owners.get(&owner).copied().unwrap_or_default();
        if self.remembered >= self.nonces_max || is_shared && own >= self.owner_max {
            return Err(NonceError::Full);
        }
        let at = self.groups.partition_point(|group| group.number < number);
        if self
            .groups
            .get(at)
            .is_none_or(|group| group.number != number)
        {
            let group = Group {
                number,
                nonces: HashSet::new(),
                owners: HashMap::new(),
            };
            self.groups.insert(at, group);
        }
        let group = &mut self.groups[at];
        group.nonces.insert(nonce);
        if is_shared {
            *group.owners.entry(owner).or_default() += 1;
            *self.owners.entry(owner).or_default() += 1;
        }
        self.remembered += 1;
        Ok(())
    }

    /// The number of nonces in the window.
    pub fn len(&self) -> usize {
        self.remembered
    }

    /// Whether the window is empty.
    pub fn is_empty(&self) -> bool {
        self.remembered == 0
    }

    fn forget(&mut self, now_unix_s: u64) {
        let oldest = now_unix_s.saturating_sub(SIGNATURE_AGE_S_MAX) / GROUP_S;
        self.forgotten_before = self.forgotten_before.max(oldest);
        while let Some(group) = self.groups.front()
            && group.number < oldest
        {
            self.remembered -= group.nonces.len();
            for (owner, count) in &group.owners {
                if let Some(held) = self.owners.get_mut(owner) {
                    *held -= count;
                    if *held == 0 {
                        self.owners.remove(owner);
                    }
                }
            }
            self.groups.pop_front();
        }
    }
}

impl Default for NonceWindow {
    fn default() -> Self {
        Self::new(NONCES_DEFAULT_MAX)
    }
}

/// The maximum age of a signature, in seconds, into the past and into the future.
pub const SIGNATURE_AGE_S_MAX: u64 = 300;

/// The default number of nonces in a window.
pub const NONCES_DEFAULT_MAX: usize = 1_000_000;

/// The seconds of signatures that are forgotten together.
const GROUP_S: u64 = 100;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: u64 = 1_732_212_345;

    #[test]
    fn once_while_it_is_fresh() {
        let mut window = NonceWindow::new(10);
        assert_eq!(window.insert([1; 16], NOW, NOW), Ok(()));
        for (signed_at, now) in [(NOW, NOW), (NOW + 50, NOW), (NOW, NOW + 300)] {
            let again = window.insert([1; 16], signed_at, now);
            assert_eq!(again, Err(NonceError::Replayed), "{signed_at} {now}");
        }
        let stale = window.insert([1; 16], NOW, NOW + 301);
        assert_eq!(stale, Err(NonceError::Stale));
        assert_eq!(
            window.insert([2; 16], NOW + 602, NOW + 301),
            Err(NonceError::Stale)
        );
    }

    #[test]
    fn one_from_the_future_is_remembered_until_it_is_stale() {
        let mut window = NonceWindow::new(10);
        assert_eq!(window.insert([1; 16], NOW + 300, NOW), Ok(()));
        for now in (NOW..=NOW + 600).step_by(50) {
            let again = window.insert([1; 16], NOW + 300, now);
            assert_eq!(again, Err(NonceError::Replayed), "{now}");
        }
    }

    #[test]
    fn what_is_forgotten_makes_room() {
        let mut window = NonceWindow::new(2);
        assert_eq!(window.insert([1; 16], NOW, NOW), Ok(()));
        assert_eq!(window.insert([2; 16], NOW + 200, NOW), Ok(()));
        assert_eq!(window.insert([3; 16], NOW, NOW), Err(NonceError::Full));
        assert_eq!(window.insert([1; 16], NOW, NOW), Err(NonceError::Replayed));
        assert_eq!(window.len(), 2);
        let later = NOW + 401;
        assert_eq!(window.insert([3; 16], later, later), Ok(()));
        assert_eq!(window.len(), 2);
        assert_eq!(
            window.insert([4; 16], later, later + 10),
            Err(NonceError::Full)
        );
    }

    #[test]
    fn a_clock_that_goes_back_brings_no_nonce_back() {
        let mut window = NonceWindow::new(10);
        assert_eq!(window.insert([1; 16], NOW, NOW), Ok(()));
        assert_eq!(window.insert([2; 16], NOW + 1000, NOW + 1000), Ok(()));
        // The group just before the oldest that is kept, and that one.
        for (time, expected) in [
            (NOW, Err(NonceError::Stale)),
            (NOW + 600, Err(NonceError::Stale)),
            (NOW + 700, Ok(())),
        ] {
            assert_eq!(window.insert([1; 16], time, time), expected);
        }
    }

    #[test]
    fn an_owner_past_its_part_is_refused_and_others_are_not() {
        let mut window = NonceWindow::new(8).with_owner_max(2);
        let mut nonces = (0..).map(|number: u8| [number; 16]);
        let mut insert = |window: &mut NonceWindow, owner, now| {
            let nonce = nonces.next().expect("enough");
            window.insert_for(owner, nonce, now, now)
        };
        for owner in 1..=4 {
            assert_eq!(insert(&mut window, owner, NOW), Ok(()));
            assert_eq!(insert(&mut window, owner, NOW), Ok(()));
            assert_eq!(insert(&mut window, owner, NOW), Err(NonceError::Full));
        }
        assert_eq!(insert(&mut window, 5, NOW), Err(NonceError::Full));
        // None of them is forgotten while it is fresh.
        let again = window.insert_for(5, [0; 16], NOW, NOW + SIGNATURE_AGE_S_MAX);
        assert_eq!(again, Err(NonceError::Replayed));
        let later = NOW + SIGNATURE_AGE_S_MAX + GROUP_S;
        assert_eq!(insert(&mut window, 1, later), Ok(()));
        assert_eq!((window.len(), window.owners.len()), (1, 1));
    }

    proptest! {
        #[test]
        fn nothing_is_accepted_twice(
            steps in prop::collection::vec((0u8..8, 0u64..1000, 0u64..40), 1..100),
        ) {
            let mut window = NonceWindow::new(20);
            let mut accepted = HashSet::new();
            let mut now = NOW;
            for (nonce, ahead, passed) in steps {
                now += passed;
                let signed_at = now - 500 + ahead;
                if window.insert([nonce; 16], signed_at, now).is_ok() {
                    prop_assert!(accepted.insert((nonce, signed_at)));
                    prop_assert!(now.abs_diff(signed_at) <= SIGNATURE_AGE_S_MAX);
                }
                prop_assert!(window.len() <= 20);
            }
        }
    }
}

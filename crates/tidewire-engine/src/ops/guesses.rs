//! Guesses at keys: how often one party may show a wrong key to the operations listener.
//!
//! A party has a bucket of [`GUESSES_BURST`] guesses that refills by one every [`GUESS_INTERVAL`]. A right key costs
//! nothing. While the bucket is empty a key is not even compared, so that nobody learns whether it was the right one.
//!
//! A party is an address, or an IPv6 network of 64 bits. So a stranger cannot lock out anybody who has
//! another address. Behind a proxy a stranger can have the same address as others. They differ from the
//! stranger in one of two ways: a browser that has logged in before shows its device token, which is a party
//! of its own; an address from which a right key has arrived within [`FRIEND_TIME`] may go on to use the API.
//!
//! Memory and the number of guesses of all are bounded by one number: there are [`PARTIES_MAX`] buckets, and further
//! parties share one until a bucket is full again.

use crate::limits::source::Source;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Buckets and friends of one listener.
#[derive(Debug, Default)]
pub(crate) struct Guesses {
    /// When the bucket of a party is full again. A full one has no entry.
    full_at: HashMap<Party, Instant>,
    /// Addresses from which a right key has arrived, and until when that counts, the oldest first.
    friends: Vec<(Source, Instant)>,
}

/// Who shows a key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Party {
    /// All of an address.
    Source(Source),
    /// The browser with this device token.
    Device(String),
    /// All that have no bucket of their own.
    Others,
}

impl Guesses {
    /// Uses up one guess and returns its bucket. A right key [returns](Self::give_back) the guess.
    ///
    /// # Errors
    /// How long the party has to wait.
    pub(crate) fn take(&mut self, party: &Party, now: Instant) -> Result<Party, Duration> {
        let party = self.bucket_of(party, now);
        let interval = party.interval();
        let full_at = self.full_at.get(&party).map_or(now, |at| (*at).max(now));
        let next = full_at + interval;
        let allowed_until = now + interval * GUESSES_BURST;
        if next > allowed_until {
            return Err(next - allowed_until);
        }
        self.full_at.insert(party.clone(), next);
        Ok(party)
    }

    /// Returns the guess that [`Self::take`] subtracted from `bucket`: the key was right.
    pub(crate) fn give_back(&mut self, bucket: &Party, now: Instant) {
        if let Some(full_at) = self.full_at.get_mut(bucket) {
            *full_at -= bucket.interval();
            if *full_at <= now {
                self.full_at.remove(bucket);
            }
        }
    }

    /// True if this address sent a right key a short time ago.
    pub(crate) fn is_friend(&self, source: Source, now: Instant) -> bool {
        let mut friends = self.friends.iter();
        friends.any(|(friend, until)| *friend == source && *until > now)
    }

    /// Notes that a right key has arrived from this address.
    pub(crate) fn befriend(&mut self, source: Source, now: Instant) {
        self.friends.retain(|(friend, _)| *friend != source);
        if self.friends.len() >= FRIENDS_MAX {
            self.friends.remove(0);
        }
        self.friends.push((source, now + FRIEND_TIME));
    }

    /// The bucket that a party uses now.
    fn bucket_of(&mut self, party: &Party, now: Instant) -> Party {
        if !self.full_at.contains_key(party) && self.full_at.len() >= PARTIES_MAX {
            self.full_at.retain(|_, full_at| *full_at > now);
            if self.full_at.len() >= PARTIES_MAX && matches!(party, Party::Source(_)) {
                return Party::Others;
            }
        }
        party.clone()
    }
}

impl Party {
    /// The time in which its bucket gets one guess more.
    fn interval(&self) -> Duration {
        match self {
            Self::Others => OTHERS_INTERVAL,
            Self::Source(_) | Self::Device(_) => GUESS_INTERVAL,
        }
    }
}

/// Wrong keys that a party may show at once.
const GUESSES_BURST: u32 = 10;

/// The time for another one.
const GUESS_INTERVAL: Duration = Duration::from_secs(2);

/// The same for those that share a bucket.
const OTHERS_INTERVAL: Duration = Duration::from_millis(50);

/// Buckets that are not full. Devices do not count as they are fewer than the logins that are remembered.
const PARTIES_MAX: usize = 1_024;

/// Addresses that are remembered for a right key.
const FRIENDS_MAX: usize = 64;

/// How long a right key counts for its address.
const FRIEND_TIME: Duration = Duration::from_secs(60 * 60);

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{IpAddr, Ipv4Addr};

    fn from(number: u32) -> Party {
        Party::Source(Source::of(IpAddr::V4(Ipv4Addr::from_bits(number))))
    }

    /// How many of 1,000 guesses are compared.
    fn guess(guesses: &mut Guesses, party: &Party, now: Instant) -> usize {
        let tries = (0..1_000).filter(|_| guesses.take(party, now).is_ok());
        tries.count()
    }

    #[test]
    fn a_party_guesses_slowly_and_keeps_no_other_out() {
        let (mut guesses, now) = (Guesses::default(), Instant::now());
        let (stranger, operator) = (from(1), from(2));
        assert_eq!(guess(&mut guesses, &stranger, now), 10);
        assert_eq!(guesses.take(&stranger, now), Err(GUESS_INTERVAL));
        assert_eq!(guess(&mut guesses, &stranger, now + GUESS_INTERVAL * 3), 3);
        // Right keys cost nothing.
        for _ in 0..100 {
            let bucket = guesses.take(&operator, now).unwrap();
            guesses.give_back(&bucket, now);
        }
        // A browser that has logged in before is let in from the stranger's address, too.
        let device = Party::Device("token".to_owned());
        assert!(guesses.take(&device, now).is_ok());
        let later = now + Duration::from_secs(3600);
        assert_eq!(guess(&mut guesses, &stranger, later), 10);
    }

    #[test]
    fn many_addresses_have_bounded_memory_and_guesses() {
        let (mut guesses, now) = (Guesses::default(), Instant::now());
        let compared: usize = (0..100_000)
            .map(|number| usize::from(guesses.take(&from(number), now).is_ok()))
            .sum();
        assert_eq!(compared, PARTIES_MAX + 10);
        assert!(guesses.full_at.len() <= PARTIES_MAX + 1);
        // A new client shares the remaining guesses with the strangers, and waits a moment at most.
        let newcomer = from(200_000);
        assert_eq!(guesses.take(&newcomer, now), Err(OTHERS_INTERVAL));
        assert!(guesses.take(&newcomer, now + OTHERS_INTERVAL).is_ok());
        let later = now + GUESS_INTERVAL;
        assert_eq!(guess(&mut guesses, &from(300_000), later), 10);
        assert!(guesses.full_at.len() < 10);
    }

    #[test]
    fn a_right_key_counts_for_its_address() {
        let (mut guesses, now) = (Guesses::default(), Instant::now());
        let source = |number| Source::of(IpAddr::V4(Ipv4Addr::from_bits(number)));
        guesses.befriend(source(1), now);
        assert!(guesses.is_friend(source(1), now) && !guesses.is_friend(source(2), now));
        assert!(!guesses.is_friend(source(1), now + FRIEND_TIME));
        for number in 2..1_000 {
            guesses.befriend(source(number), now);
        }
        assert!(!guesses.is_friend(source(1), now) && guesses.friends.len() == FRIENDS_MAX);
    }
}

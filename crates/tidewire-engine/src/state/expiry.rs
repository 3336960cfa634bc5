//! The end of a session with its token, on the monotonic clock.

use crate::auth::{AuthConfig, KeyMaterial};
use crate::state::core::Core;
use tidewire_wire::session::Now;

/// When a session ends with its token, in milliseconds on the monotonic clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Expiry {
    /// The token's `exp`.
    pub(crate) expires_ms: u64,
    /// When the session ends: some time later.
    pub(crate) ends_ms: u64,
    /// When the client is warned; `u64::MAX` once it has been, or if it is not.
    pub(crate) warns_ms: u64,
}

impl Expiry {
    /// Of a token that expires at `expires_at_s`, in seconds since 1970, and was accepted now.
    pub(crate) fn new(auth: &AuthConfig, expires_at_s: u64, now: Now) -> Self {
        let grace_ms = auth.grace_s.max(auth.leeway_s).saturating_mul(1_000);
        let expires_at_ms = expires_at_s.saturating_mul(1_000);
        let expires_ms = monotonic(expires_at_ms, now);
        let left_ms = expires_ms.saturating_sub(now.monotonic_ms);
        // A client whose tokens are short-lived is not asked for another one as soon as it has
        // given one.
        let lead_ms = auth.warning_s.saturating_mul(1_000).min(left_ms / 2);
        let warns_ms = expires_ms.saturating_sub(lead_ms).max(now.monotonic_ms);
        Self {
            expires_ms,
            ends_ms: monotonic(expires_at_ms.saturating_add(grace_ms), now),
            warns_ms: if auth.warning_s == 0 {
                u64::MAX
            } else {
                warns_ms
            },
        }
    }

    /// When there is something to do.
    pub(crate) fn due_ms(&self) -> u64 {
        self.ends_ms.min(self.warns_ms)
    }

    pub(crate) fn expires_in_ms(&self, now: Now) -> u64 {
        self.expires_ms.saturating_sub(now.monotonic_ms)
    }

    pub(crate) fn ends_in_ms(&self, now: Now) -> u64 {
        self.ends_ms.saturating_sub(now.monotonic_ms)
    }
}

/// A time in milliseconds since 1970 on the monotonic clock.
pub(crate) fn monotonic(unix_ms: u64, now: Now) -> u64 {
    match unix_ms.checked_sub(now.unix_ms) {
        Some(ahead_ms) => now.monotonic_ms.saturating_add(ahead_ms),
        None => now.monotonic_ms.saturating_sub(now.unix_ms - unix_ms),
    }
}

impl Core {
    /// When a session ends whose token expires at this time, in seconds since 1970; `None` if it
    /// does not end with it.
    pub(crate) fn expiry_at(&self, expires_at_s: u64, now: Now) -> Option<Box<Expiry>> {
        let config = &self.setup.config;
        // Without tokens the backend or the application decides when a session ends.
        let without_tokens;
        let auth = match &config.auth {
            Some(auth) => auth,
            None => {
                without_tokens = AuthConfig::new(KeyMaterial::Hs256(Vec::new()));
                &without_tokens
            }
        };
        auth.ends_sessions
            .then(|| Box::new(Expiry::new(auth, expires_at_s, now)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expiry(grace_s: u64, warning_s: u64, expires_at_s: u64, now: Now) -> Expiry {
        let auth = AuthConfig {
            grace_s,
            warning_s,
            ..AuthConfig::new(KeyMaterial::Hs256(vec![7; 32]))
        };
        Expiry::new(&auth, expires_at_s, now)
    }

    /// A moment, with a time of day that has nothing to do with the other clock.
    fn at(monotonic_ms: u64, unix_ms: u64) -> Now {
        Now {
            monotonic_ms,
            unix_ms,
        }
    }

    #[test]
    fn the_time_of_day_counts_when_the_token_is_accepted() {
        let of_day = |unix_ms| expiry(10, 60, 2_000, at(500_000, unix_ms));
        let expected = |expires_ms| Expiry {
            expires_ms,
            ends_ms: expires_ms + 10_000,
            warns_ms: expires_ms - 60_000,
        };
        assert_eq!(of_day(1_000_000), expected(1_500_000));
        // The clock was set, an hour forward and a quarter of one back, before another token arrived.
        assert_eq!(of_day(1_600_000), expected(900_000));
        assert_eq!(of_day(100_000), expected(2_400_000));
        // It is set while a session runs: nothing of the session's times refers to it.
        let expiry = of_day(1_000_000);
        let later = at(600_000, 9_000_000);
        assert_eq!(expiry.expires_in_ms(later), 900_000);
        assert_eq!(expiry.ends_in_ms(later), 910_000);
    }

    #[test]
    fn a_token_that_the_leeway_alone_lets_in_has_its_grace() {
        // It expired two seconds ago, and the clocks may be five apart.
        let now = at(500_000, 1_002_000);
        let expired = expiry(0, 60, 1_000, now);
        assert_eq!((expired.ends_ms, expired.warns_ms), (503_000, 500_000));
        assert_eq!(expired.expires_in_ms(now), 0);
        let expired = expiry(10, 60, 1_000, now);
        assert_eq!(expired.ends_ms, 508_000);
        // The monotonic clock may have started after the token's end.
        let young = expiry(10, 0, 1_000, at(5, 1_002_000));
        assert_eq!((young.expires_ms, young.ends_ms), (0, 8_005));
        assert_eq!(young.due_ms(), 8_005);
    }

    #[test]
    fn the_largest_numbers_are_harmless() {
        let now = at(500_000, 1_002_000);
        let never = expiry(u64::MAX, u64::MAX, u64::MAX, now);
        assert!(never.warns_ms >= now.monotonic_ms && never.warns_ms < never.expires_ms);
        assert!(never.ends_ms >= never.expires_ms);
    }
}

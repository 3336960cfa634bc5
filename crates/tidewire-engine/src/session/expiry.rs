//! The end of a session with its token: the warning before it, another token in time, and the end.
//!
//! `exp` is a time of day, and a session's timer runs on the monotonic clock. A token is converted once, when it is
//! accepted: a clock that is set later moves no session's end, and counts for the next token.

use crate::auth::{AuthConfig, Claims};
use crate::config::Protocol;
use crate::limits::work::cost;
use crate::session::Turn;
use crate::session::application::Application;
use crate::state::connection::{Phase, State};
use crate::state::core::Core;
use crate::topics::access::AccessRules;
use std::borrow::Cow;
use std::sync::Arc;
use tidewire_wire::close::CloseCode;
use tidewire_wire::codes::ErrorCode;
use tidewire_wire::session::{Now, Reply, Token};

/// When a session ends with its token, in milliseconds on the monotonic clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Expiry {
    /// The token's `exp`.
    expires_ms: u64,
    /// When the session ends: some time later.
    ends_ms: u64,
    /// When the client is warned; `u64::MAX` once it has been, or if it is not.
    warns_ms: u64,
}

/// An `auth_refresh`: another token for a session.
#[derive(Debug)]
pub(crate) struct Refresh {
    token: Token,
    correlation_id: Option<String>,
}

impl Expiry {
    /// Of a token that expires at `expires_at_s`, in seconds since 1970, and was accepted now.
    fn new(auth: &AuthConfig, expires_at_s: u64, now: Now) -> Self {
        let grace_ms = auth.grace_s.max(auth.leeway_s).saturating_mul(1_000);
        let expires_at_ms = expires_at_s.saturating_mul(1_000);
        let expires_ms = monotonic(expires_at_ms, now);
        let left_ms = expires_ms.saturating_sub(now.monotonic_ms);
        // A client whose tokens are short-lived is not asked for another one as soon as it has given one.
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

    fn expires_in_ms(&self, now: Now) -> u64 {
        self.expires_ms.saturating_sub(now.monotonic_ms)
    }

    fn ends_in_ms(&self, now: Now) -> u64 {
        self.ends_ms.saturating_sub(now.monotonic_ms)
    }
}

impl Refresh {
    pub(crate) fn new(token: Token, correlation_id: Option<String>) -> Self {
        Self {
            token,
            correlation_id,
        }
    }
}

impl Core {
    /// When a session ends whose token expires at this time, in seconds since 1970; `None` if it does not end with it.
    pub(crate) fn expiry_at(&self, expires_at_s: u64, now: Now) -> Option<Box<Expiry>> {
        let auth = self.shared.config.auth.as_ref()?;
        auth.ends_sessions
            .then(|| Box::new(Expiry::new(auth, expires_at_s, now)))
    }

    /// Checks another token for a session: when it expires, and the rights that go with it.
    fn check_token(
        &mut self,
        state: &State,
        token: &str,
        now: Now,
    ) -> Result<(u64, Arc<AccessRules>), Cow<'static, str>> {
        let Some(verifier) = &self.shared.verifier else {
            return Err("this server checks no tokens".into());
        };
        let claims: Claims = verifier
            .verify(token, now.unix_ms / 1_000)
            .map_err(|error| error.to_string())?;
        if state.user.as_deref() != Some(&*claims.subject) {
            return Err("the token is for another user, who needs a connection of its own".into());
        }
        let rules = self.rules_of(&claims).map_err(|error| error.to_string())?;
        let rules = rules.map_or_else(|| Arc::clone(&self.shared.access), Arc::new);
        Ok((claims.expires_at_s, rules))
    }
}

impl<A: Application> Turn<'_, A> {
    /// Ends a session whose token has expired, and warns one whose token is about to; whether it has ended.
    pub(crate) fn check_expiry(&mut self, state: &mut State) -> bool {
        let (now, is_v1) = (self.now, self.core.shared.config.protocol == Protocol::V1);
        let Some(expiry) = state.expiry.as_deref_mut() else {
            return false;
        };
        if now.monotonic_ms >= expiry.ends_ms {
            self.expire(state);
            return true;
        }
        if now.monotonic_ms < expiry.warns_ms {
            return false;
        }
        if state.unannounced.is_some() {
            // Nothing is said before the session is encrypted.
            expiry.warns_ms = now.monotonic_ms.saturating_add(ENCRYPTION_WAIT_MS);
            return false;
        }
        expiry.warns_ms = u64::MAX;
        let warning = Reply::AuthExpiryWarning {
            expires_in_ms: expiry.expires_in_ms(now),
            ends_in_ms: expiry.ends_in_ms(now),
        };
        if is_v1 {
            self.reply(state, &warning);
        }
        false
    }

    fn expire(&mut self, state: &mut State) {
        const WORDS: &str = "the token has expired";
        self.core.counters.sessions_expired.add(1);
        tracing::info!(
            connection = %state.key,
            user = state.user.as_deref(),
            code = ErrorCode::TokenExpired.as_str(),
            "a session ends because its token has expired",
        );
        if self.core.shared.config.protocol == Protocol::V1 {
            let error = Reply::error(ErrorCode::TokenExpired, WORDS);
            self.core.say(self.io, state, &error);
        }
        // Nothing of the peer's is handled after it, as it would be behind an ordinary close.
        self.end(state, CloseCode::NOT_AUTHENTICATED, WORDS);
    }

    /// Takes another token for a session, or says why not.
    pub(crate) fn refresh(&mut self, state: &mut State, refresh: Refresh) {
        if state.phase != Phase::Open {
            return;
        }
        let Refresh {
            token,
            correlation_id,
        } = refresh;
        let token = &*token.0;
        let keys = self
            .core
            .shared
            .verifier
            .as_ref()
            .map_or(0, |verifier| verifier.keys());
        self.core
            .meter
            .spend(keys as u64 * cost::TOKEN + cost::bytes(token.len()));
        let (expires_at_s, rules) = match self.core.check_token(state, token, self.now) {
            Ok(checked) => checked,
            Err(words) => return self.refuse_token(state, words, correlation_id),
        };
        self.core.counters.tokens_refreshed.add(1);
        let mut expiry = self.core.expiry_at(expires_at_s, self.now);
        if let (Some(new), Some(old)) = (&mut expiry, &state.expiry)
            && new.expires_ms <= old.expires_ms
            && old.warns_ms == u64::MAX
        {
            // The client knows: its token is no better than the one that it was warned of.
            new.warns_ms = u64::MAX;
        }
        let answer = Reply::AuthRefreshResponse {
            expires_in_ms: expires_at_s
                .saturating_mul(1_000)
                .saturating_sub(self.now.unix_ms),
            ends_in_ms: expiry.as_ref().map(|expiry| expiry.ends_in_ms(self.now)),
            correlation_id,
        };
        state.expiry = expiry;
        self.set_timer(state);
        self.reply(state, &answer);
        if !state.access_is_set {
            self.core.set_access(state, &rules);
        }
    }

    fn refuse_token(
        &mut self,
        state: &mut State,
        words: Cow<'static, str>,
        correlation_id: Option<String>,
    ) {
        let has_tokens = self.core.shared.verifier.is_some();
        let code = if has_tokens {
            self.core.counters.tokens_refused.add(1);
            tracing::info!(
                connection = %state.key,
                user = state.user.as_deref(),
                code = ErrorCode::TokenRefused.as_str(),
                error = &*words,
                "another token for a session is not accepted",
            );
            ErrorCode::TokenRefused
        } else {
            ErrorCode::InvalidAction
        };
        let error = Reply::Error {
            code,
            message: words,
            retry_after_s: None,
            refused: None,
            correlation_id,
        };
        self.reply(state, &error);
    }
}

/// How often it is looked whether a session that is to be warned is encrypted by now.
const ENCRYPTION_WAIT_MS: u64 = 1_000;

/// A time in milliseconds since 1970 on the monotonic clock.
fn monotonic(unix_ms: u64, now: Now) -> u64 {
    match unix_ms.checked_sub(now.unix_ms) {
        Some(ahead_ms) => now.monotonic_ms.saturating_add(ahead_ms),
        None => now.monotonic_ms.saturating_sub(now.unix_ms - unix_ms),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::KeyMaterial;

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
        // The clock was set, an hour forward and a quarter of one back, before another token came.
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

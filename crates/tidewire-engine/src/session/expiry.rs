//! The end of a session with its token: the warning before it, another token in time, and the end.
//!
//! `exp` is a time of day, and a session's timer runs on the monotonic clock. A token is converted
//! once, when it is accepted: a clock that is set later moves no session's end, and counts for the
//! next token.

use crate::auth::Claims;
use crate::config::Protocol;
use crate::limits::lines::LineKind;
use crate::limits::work::cost;
use crate::session::Session;
use crate::state::unfinished_jobs::Refresh;
use crate::topics::access::AccessRules;
use std::borrow::Cow;
use std::sync::Arc;
use tidewire_wire::close::CloseCode;
use tidewire_wire::codes::ErrorCode;
use tidewire_wire::session::{Now, Reply};

impl Session<'_> {
    /// Checks another token for a session: when it expires, and the rights that go with it.
    fn check_token(
        &mut self,
        token: &str,
        now: Now,
    ) -> Result<(u64, Arc<AccessRules>), Cow<'static, str>> {
        let Some(verifier) = &self.core.setup.verifier else {
            return Err("this server checks no tokens".into());
        };
        let claims: Claims = verifier
            .verify(token, now.unix_ms / 1_000)
            .map_err(|error| error.to_string())?;
        if self.state.client.user.as_deref() != Some(&*claims.subject) {
            return Err("the token is for another user, who needs a connection of its own".into());
        }
        let rules = self
            .core
            .rules_of(&claims)
            .map_err(|error| error.to_string())?;
        let rules = rules.map_or_else(|| Arc::clone(&self.core.setup.access), Arc::new);
        Ok((claims.expires_at_s, rules))
    }

    /// Ends a session whose token has expired, and warns one whose token is about to; whether it
    /// has ended.
    pub(crate) fn check_expiry(&mut self) -> bool {
        let (now, is_v1) = (self.now(), self.core.setup.config.protocol == Protocol::V1);
        let Some(expiry) = self.state.client.expiry.as_deref_mut() else {
            return false;
        };
        if now.monotonic_ms >= expiry.ends_ms {
            self.expire();
            return true;
        }
        if now.monotonic_ms < expiry.warns_ms {
            return false;
        }
        if self.state.unannounced.is_some() {
            // The warning waits until the session is encrypted.
            expiry.warns_ms = now.monotonic_ms.saturating_add(ENCRYPTION_WAIT_MS);
            return false;
        }
        expiry.warns_ms = u64::MAX;
        let warning = Reply::AuthExpiryWarning {
            expires_in_ms: expiry.expires_in_ms(now),
            ends_in_ms: expiry.ends_in_ms(now),
        };
        if is_v1 {
            self.reply(&warning);
        }
        false
    }

    fn expire(&mut self) {
        const WORDS: &str = "the token has expired";
        self.core.counters.sessions_expired.add(1);
        if self.permits_line(LineKind::TokenExpired) {
            tracing::info!(
                connection = %self.state.key,
                address = self.state.peer_address(self.io).map(tracing::field::display),
                user = self.state.client.user.as_deref(),
                code = ErrorCode::TokenExpired.as_str(),
                "a session ends because its token has expired",
            );
        }
        if self.core.setup.config.protocol == Protocol::V1 {
            let error = Reply::error(ErrorCode::TokenExpired, WORDS);
            self.say(&error);
        }
        // Nothing of the peer's is handled after it, as it would be behind an ordinary close.
        self.end(CloseCode::NOT_AUTHENTICATED, WORDS);
    }

    /// Accepts another token for a session, or reports why not.
    pub(crate) fn refresh(&mut self, refresh: Refresh) {
        if !self.state.is_open() {
            return;
        }
        let Refresh {
            token,
            correlation_id,
        } = refresh;
        let token = &*token.0;
        let keys = self
            .core
            .setup
            .verifier
            .as_ref()
            .map_or(0, |verifier| verifier.keys());
        self.core
            .turn
            .meter
            .spend(keys as u64 * cost::TOKEN + cost::bytes(token.len()));
        let (expires_at_s, rules) = match self.check_token(token, self.now()) {
            Ok(checked) => checked,
            Err(words) => return self.refuse_token(words, correlation_id),
        };
        self.core.counters.tokens_refreshed.add(1);
        let mut expiry = self.core.expiry_at(expires_at_s, self.now());
        if let (Some(new), Some(old)) = (&mut expiry, &self.state.client.expiry)
            && new.expires_ms <= old.expires_ms
            && old.warns_ms == u64::MAX
        {
            // The client knows: its token is no better than the one that it was warned of.
            new.warns_ms = u64::MAX;
        }
        let answer = Reply::AuthRefreshResponse {
            expires_in_ms: expires_at_s
                .saturating_mul(1_000)
                .saturating_sub(self.now().unix_ms),
            ends_in_ms: expiry.as_ref().map(|expiry| expiry.ends_in_ms(self.now())),
            correlation_id,
        };
        self.state.client.expiry = expiry;
        self.set_timer();
        self.reply(&answer);
        if !self.state.client.access_is_set {
            self.set_access(&rules);
        }
    }

    fn refuse_token(&mut self, words: Cow<'static, str>, correlation_id: Option<String>) {
        let has_tokens = self.core.setup.verifier.is_some();
        let code = if has_tokens {
            self.core.counters.tokens_refused.add(1);
            if self.permits_line(LineKind::SessionTokenRefused) {
                tracing::info!(
                    connection = %self.state.key,
                    address = self.state.peer_address(self.io).map(tracing::field::display),
                    user = self.state.client.user.as_deref(),
                    code = ErrorCode::TokenRefused.as_str(),
                    error = &*words,
                    "another token for a session is not accepted",
                );
            }
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
        self.reply(&error);
    }
}

/// How often it is looked whether a session that is to be warned is encrypted by now.
const ENCRYPTION_WAIT_MS: u64 = 1_000;

//! Subscription tokens: a token of the client that allows one topic or pattern, until its `exp`.
//!
//! As with the token of a session, `exp` is compared with the time of day once, and the end is a time on the
//! monotonic clock.

use crate::auth::TokenError;
use crate::limits::lines::LineKind;
use crate::limits::work::cost;
use crate::session::Session;
use crate::state::expiry::monotonic;
use crate::state::rights::{EndedTokens, RightsCheck};
use std::borrow::Cow;
use std::sync::Arc;
use tidewire_wire::codes::ErrorCode;
use tidewire_wire::session::{Action, Reply, Token, TopicFailure};

impl Session<'_> {
    /// Checks the token for a topic: when the subscription ends, on the monotonic clock, if it does.
    pub(crate) fn check_topic_token(
        &mut self,
        topic: &str,
        token: &Token,
    ) -> Result<Option<u64>, (ErrorCode, Cow<'static, str>)> {
        let checked = self.verify_topic_token(topic, &token.0);
        if let Err((code, words)) = &checked {
            self.core.counters.tokens_refused.add(1);
            if self.permits_line(LineKind::TopicTokenRefused) {
                tracing::info!(
                    connection = %self.state.key,
                    address = self.state.peer_address(self.io).map(tracing::field::display),
                    user = self.state.client.user.as_deref(),
                    topic,
                    code = code.as_str(),
                    error = &**words,
                    "a token for a topic is not accepted",
                );
            }
        }
        checked
    }

    fn verify_topic_token(
        &mut self,
        topic: &str,
        token: &str,
    ) -> Result<Option<u64>, (ErrorCode, Cow<'static, str>)> {
        let refuse = |words: &'static str| Err((ErrorCode::TokenRefused, words.into()));
        let Some(verifier) = &self.core.setup.verifier else {
            return refuse("this server checks no tokens");
        };
        let keys = verifier.keys() as u64;
        self.core
            .turn
            .meter
            .spend(keys * cost::TOKEN + cost::bytes(token.len()));
        let now = self.io.now();
        let claims = verifier.verify_subscription(token, now.unix_ms / 1_000);
        let claims = claims.map_err(|error| match error {
            TokenError::Expired => (ErrorCode::TokenExpired, EXPIRED.into()),
            error => (ErrorCode::TokenRefused, error.to_string().into()),
        })?;
        if self.state.client.user.as_deref() != Some(&*claims.subject) {
            return refuse("the token is for another user");
        }
        if claims.topic != topic {
            return refuse("the token is for another topic");
        }
        let ends_ms = |exp_s: u64| {
            let ends_at_s = exp_s.saturating_add(verifier.leeway_s());
            monotonic(ends_at_s.saturating_mul(1_000), self.now())
        };
        Ok(claims.expires_at_s.map(ends_ms))
    }

    /// A session is subscribed to a topic that a token allows, until a time on the monotonic clock.
    pub(crate) fn note_token(&mut self, topic: &Arc<str>, ends_ms: Option<u64>) {
        let topics = self.state.topics.get_or_insert_default();
        topics.by_token.insert(topic, ends_ms);
        if ends_ms.is_some() {
            self.set_timer();
        }
    }

    /// Whether a token still allows a topic that the rights do not.
    pub(crate) fn is_allowed_by_token(&self, topic: &str) -> bool {
        let topics = self.state.topics.as_ref();
        topics.is_some_and(|topics| topics.by_token.contains(topic))
            && !self.state.client.access.denies_subscription(topic)
    }

    /// Ends the subscriptions whose tokens have expired, as a job.
    pub(crate) fn end_token_topics(&mut self) {
        let now_ms = self.now().monotonic_ms;
        let Some(topics) = &mut self.state.topics else {
            return;
        };
        let is_due = |due_ms: u64| due_ms <= now_ms;
        if !topics.by_token.due_ms().is_some_and(is_due) {
            return;
        }
        self.core
            .turn
            .meter
            .spend(topics.by_token.len() as u64 * cost::TOKEN_TOPIC);
        let topics = topics.by_token.take_ended(now_ms).into_iter();
        let ended = Vec::new();
        self.start_check(RightsCheck::TokensEnded(EndedTokens { topics, ended }));
    }

    /// Ends one subscription; returns the rest. At the end the client is notified.
    pub(super) fn check_ended_token(&mut self, mut ends: EndedTokens) -> Option<EndedTokens> {
        let Some(topic) = ends.topics.next() else {
            if !ends.ended.is_empty() {
                let update = expired(ends.ended);
                self.reply(&update);
            }
            return None;
        };
        self.core
            .turn
            .meter
            .spend(cost::CHECK + self.state.client.access.cost());
        // The client may have shown another token meanwhile.
        if !self.may_stay(&topic) {
            self.core.turn.meter.spend(cost::UNSUBSCRIBE);
            if self.leave(&topic) {
                ends.ended.push(topic.to_string());
            }
        }
        Some(ends)
    }
}

/// The message that names the subscriptions that have ended with their tokens.
fn expired(topics: Vec<String>) -> Reply {
    let failure = |topic: &String| TopicFailure {
        topic: topic.clone(),
        code: ErrorCode::TokenExpired.as_str().to_owned(),
        message: EXPIRED.to_owned(),
    };
    Reply::SubscriptionUpdate {
        action: Action::Unsubscribe,
        failures: topics.iter().map(failure).collect(),
        success_topics: topics,
        failed_topics: Vec::new(),
        recovery: Vec::new(),
        correlation_id: None,
    }
}

const EXPIRED: &str = "the token for this topic has expired";

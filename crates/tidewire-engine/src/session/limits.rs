//! The rate limit: which messages come in, and how the peer is told of those that do not.

use crate::config::Protocol;
use crate::limits::rate::Verdict;
use crate::limits::work::cost;
use crate::session::Turn;
use crate::session::application::Application;
use crate::state::connection::{Phase, State};
use tidewire_wire::close::CloseCode;
use tidewire_wire::codes::ErrorCode;
use tidewire_wire::session::Reply;

impl<A: Application> Turn<'_, A> {
    /// Whether the rate limit lets one more message in. The peer is told of refusals at most once a second, because
    /// an answer to each would double the load.
    #[inline]
    pub(crate) fn admit(&mut self, state: &mut State) -> bool {
        match state
            .bucket
            .take(&self.core.shared.rate_limit, self.now.monotonic_ms)
        {
            Verdict::Allowed => true,
            verdict => self.admit_reluctantly(state, verdict),
        }
    }

    #[cold]
    fn admit_reluctantly(&mut self, state: &mut State, verdict: Verdict) -> bool {
        match (verdict, self.core.shared.config.protocol) {
            (Verdict::Allowed, _) | (Verdict::AllowedLow, Protocol::Raw) => true,
            (Verdict::AllowedLow, Protocol::V1) => {
                let warning = self.rate_warning(state);
                self.reply(state, &warning);
                true
            }
            (Verdict::Refused { retry_after_ms }, protocol) => {
                self.core.counters.messages_refused_rate.add(1);
                state.refusals.since_told += 1;
                state.refusals.retry_after_ms = retry_after_ms;
                match protocol {
                    Protocol::V1 => self.tell_refusals(state),
                    // Without messages of ours there is only the close to tell it by.
                    Protocol::Raw => self.end(
                        state,
                        CloseCode::RATE_LIMITED,
                        "more messages than the rate limit",
                    ),
                }
                false
            }
        }
    }

    /// Says how many messages were refused since it was said last; if that was just now, later.
    pub(crate) fn tell_refusals(&mut self, state: &mut State) {
        if state.phase != Phase::Open {
            return;
        }
        let now_ms = self.now.monotonic_ms;
        let Some(due_ms) = state.refusals.due_ms() else {
            return;
        };
        if now_ms < due_ms {
            return self.set_timer(state);
        }
        let refusals = &mut state.refusals;
        let refill_per_s = self.core.shared.config.limits.rate_limit_refill_per_s;
        let message = format!(
            "{} messages were refused: more than {refill_per_s} a second",
            refusals.since_told
        );
        let refused = std::mem::take(&mut refusals.since_told);
        refusals.told_ms = Some(now_ms);
        let error = Reply::Error {
            code: ErrorCode::RateLimited,
            message: message.into(),
            retry_after_s: Some(refusals.retry_after_ms.div_ceil(1000)),
            refused: Some(refused),
            correlation_id: None,
        };
        self.reply(state, &error);
    }

    fn rate_warning(&self, state: &State) -> Reply {
        let limits = &self.core.shared.config.limits;
        Reply::RateLimitWarning {
            current_rate: limits.rate_limit_capacity - state.bucket.remaining(),
            limit: limits.rate_limit_capacity,
            remaining: state.bucket.remaining(),
            retry_after_s: 1,
        }
    }

    /// What a message inflates to counts as well, so that compression is no way around the limit.
    pub(crate) fn charge_inflated(&mut self, state: &mut State, bytes: usize) {
        self.core.meter.spend(cost::inflated(bytes));
        state.bucket.charge(
            &self.core.shared.rate_limit,
            bytes / INFLATED_BYTES_PER_TOKEN,
        );
    }
}

/// So many bytes that a compressed message inflates to count as one message.
const INFLATED_BYTES_PER_TOKEN: usize = 4096;

//! Inbound limits of a session: the rate limit and the error budget.

use crate::config::Protocol;
use crate::limits::errors::{ErrorLimit, ErrorVerdict, counts};
use crate::limits::lines::LineKind;
use crate::limits::rate::RateVerdict;
use crate::limits::work::cost;
use crate::model::Encoding;
use crate::session::Session;
use crate::session::encryption::plain_envelope;
use crate::state::unfinished_jobs::{HeldForm, HeldMessage, Job};
use memchr::memmem;
use tidewire_wire::close::CloseCode;
use tidewire_wire::codes::ErrorCode;
use tidewire_wire::format::Format;
use tidewire_wire::session::Reply;

impl Session<'_> {
    /// True if the rate limit admits one more message. Each refused message must be reported, by
    /// [`Self::refuse_for_rate`] or [`Self::tell_refusals`]. The peer receives refusals at most
    /// once a second, because an answer to each would double the load.
    #[inline]
    pub(crate) fn admit(&mut self) -> bool {
        match self
            .state
            .limits
            .bucket
            .take(&self.core.setup.rate_limit, self.now().monotonic_ms)
        {
            RateVerdict::Allowed => true,
            verdict => self.admit_reluctantly(verdict),
        }
    }

    #[cold]
    fn admit_reluctantly(&mut self, verdict: RateVerdict) -> bool {
        match (verdict, self.core.setup.config.protocol) {
            (RateVerdict::Allowed, _) | (RateVerdict::AllowedLow, Protocol::Raw) => true,
            (RateVerdict::AllowedLow, Protocol::V1) => {
                let warning = self.rate_warning();
                self.reply(&warning);
                true
            }
            (RateVerdict::Refused { retry_after_ms }, protocol) => {
                self.core.counters.messages_refused_rate.add(1);
                let refusals = self.state.limits.refusals.get_or_insert_default();
                refusals.since_told.count += 1;
                refusals.retry_after_ms = retry_after_ms;
                if protocol == Protocol::Raw {
                    // Without messages of the protocol only the close can report it.
                    self.end(CloseCode::RATE_LIMITED, "more messages than the rate limit");
                }
                false
            }
        }
    }

    /// Refuses a message that the rate limit has not admitted: names it, if it is not in a layer, and
    /// notifies the client.
    #[cold]
    pub(crate) fn refuse_for_rate(&mut self, encoding: Encoding, bytes: &[u8]) {
        if self.state.layers.is_some() {
            self.pass_over(encoding, bytes);
        }
        if self.core.setup.config.protocol == Protocol::V1
            && let Some((format, envelope)) = plain_envelope(encoding, bytes)
        {
            self.note_refused(format, envelope);
        }
        self.tell_refusals();
    }

    /// Notes the `cid` of a message that the rate limit has refused, unless there are many already.
    pub(crate) fn note_refused(&mut self, format: Format, bytes: &[u8]) {
        if let Some(refusals) = &mut self.state.limits.refusals {
            refusals.since_told.name(format, bytes);
        }
    }

    /// Reports how many messages were refused since the last report. If that was less than a second ago, it
    /// reports later.
    pub(crate) fn tell_refusals(&mut self) {
        if !self.state.is_open() {
            return;
        }
        let now_ms = self.now().monotonic_ms;
        let Some(refusals) = self.state.limits.refusals.as_deref() else {
            return;
        };
        let (is_first, Some(due_ms)) = (refusals.since_told.count == 1, refusals.due_ms()) else {
            return;
        };
        if now_ms < due_ms {
            // A flood does not set it again for each message.
            if is_first {
                self.set_timer();
            }
            return;
        }
        let refusals = self.state.limits.refusals.get_or_insert_default();
        let refill_per_s = self.core.setup.config.limits.rate_limit_refill_per_s;
        let message = format!(
            "{} messages were refused: more than {refill_per_s} a second",
            refusals.since_told.count
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
        self.reply(&error);
    }

    fn rate_warning(&self) -> Reply {
        let limits = &self.core.setup.config.limits;
        Reply::RateLimitWarning {
            current_rate: limits.rate_limit_capacity - self.state.limits.bucket.remaining(),
            limit: limits.rate_limit_capacity,
            remaining: self.state.limits.bucket.remaining(),
            retry_after_s: 1,
        }
    }

    /// True if a line of this kind about the peer may be logged now; if not, it is counted.
    #[must_use]
    pub(crate) fn permits_line(&self, kind: LineKind) -> bool {
        let address = self.state.peer_address(self.io);
        let lines = &self.core.shared.lines;
        lines.permit(kind, address, self.now().unix_ms)
    }

    /// Whether a message that may need much work may have it in this turn.
    pub(crate) fn has_work_left(&self) -> bool {
        let meter = &self.core.turn.meter;
        !meter.is_spent() && meter.may_work(self.state.limits.owner)
    }

    /// Keeps a message for the next turn. Nothing more is read from the connection until then.
    pub(crate) fn hold(&mut self, form: HeldForm, bytes: &[u8]) {
        let bytes = bytes.to_vec();
        self.state
            .work
            .jobs
            .push(Job::Message(HeldMessage { form, bytes }));
    }

    /// Charges a long message for its check, which reads all of it, or for the search of its type, unless the
    /// type is at its start, as in every message of our clients.
    #[cold]
    pub(crate) fn charge_message(&mut self, format: Format, bytes: &[u8], is_checked: bool) {
        let head = &bytes[..bytes.len().min(TYPE_PLACE_BYTES)];
        let name: &[u8] = match format {
            Format::Json => b"\"t\"",
            Format::MessagePack => b"\xa1t",
        };
        if is_checked || memmem::find(head, name).is_none() {
            self.core
                .turn
                .meter
                .spend(cost::read(format, bytes.len(), true));
        }
    }

    /// The inflated size of a message counts as well, so that compression is no way around the limit.
    pub(crate) fn charge_inflated(&mut self, bytes: usize) {
        self.core.turn.meter.spend(cost::inflated(bytes));
        self.state.limits.bucket.charge(
            &self.core.setup.rate_limit,
            bytes / INFLATED_BYTES_PER_TOKEN,
        );
    }

    /// Counts an error before it is sent to a connection, and returns whether it may be sent. After
    /// [`ErrorVerdict::Exhausted`] the caller sends it and calls [`Self::exhaust_error_budget`].
    #[cold]
    pub(crate) fn count_error(&mut self, code: ErrorCode) -> ErrorVerdict {
        let Some(limit) = self.core.setup.error_limit.filter(|_| counts(code)) else {
            return ErrorVerdict::Report;
        };
        let now_ms = self.now().monotonic_ms;
        let budget = self.state.limits.error_budget.get_or_insert_default();
        let verdict = budget.count(limit, now_ms);
        if verdict == ErrorVerdict::Exhausted {
            self.core.counters.error_budgets_exhausted.add(1);
            if self.permits_line(LineKind::ErrorBudget) {
                tracing::info!(
                    connection = %self.state.key,
                    address = self.state.peer_address(self.io).map(tracing::field::display),
                    user = self.state.client.user.as_deref(),
                    code = code.as_str(),
                    "a connection is closed because too much of it had to be refused",
                );
            }
        }
        verdict
    }

    /// Reports that the error budget is exhausted, and closes the session when the message at hand
    /// is done with.
    #[cold]
    pub(crate) fn exhaust_error_budget(&mut self) {
        debug_assert!(self.state.is_open());
        let retry_after_s = self.core.setup.error_limit.map(ErrorLimit::retry_after_s);
        let error = Reply::Error {
            code: ErrorCode::CircuitBreakerOpen,
            message: "too many messages of this connection had to be refused".into(),
            retry_after_s,
            refused: None,
            correlation_id: None,
        };
        self.say(&error);
        self.state.ending.close = Some(Box::new((
            CloseCode::TOO_MANY_ERRORS,
            "too many messages had to be refused",
        )));
    }
}

/// Where the type is, in the messages that put it first.
const TYPE_PLACE_BYTES: usize = 16;

/// This many bytes that a compressed message inflates to count as one message.
const INFLATED_BYTES_PER_TOKEN: usize = 4096;

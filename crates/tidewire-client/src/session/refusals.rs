//! Refusals of the server, and the rate limit that leads to them.

use super::Session;
use super::pending::{Waiting, queue_row};
use crate::clock::Moment;
use crate::error::Ending;
use crate::error::Error;
use crate::event::{BatchBuilder, Event, RateLimitWarning, ServerError};
use std::borrow::Cow;
use std::time::Duration;
use tidewire_wire::codes::ErrorCode;
use tidewire_wire::envelope::Envelope;
use tidewire_wire::session::ClientEvent;

impl Session {
    pub(super) fn handle_rate_limit_warning(
        &mut self,
        envelope: &Envelope,
        moment: Moment,
        batch: &mut BatchBuilder,
    ) {
        let number = |name: &str| envelope.payload[name].as_u64().unwrap_or_default();
        let warning = RateLimitWarning {
            limit: number("limit"),
            remaining: number("remaining"),
            retry_after: Duration::from_secs(number("retry_after").min(HINT_S_MAX)),
        };
        if self.config.rate_limit {
            self.rate.handle_warning(warning.remaining, moment.ms());
        }
        batch.push(Event::RateLimitWarning(Box::new(warning)));
    }

    pub(super) fn handle_error(
        &mut self,
        event: ClientEvent,
        cid: Option<Cow<'_, str>>,
        moment: Moment,
        batch: &mut BatchBuilder,
    ) -> Result<(), Ending> {
        let ClientEvent::Error {
            code,
            known,
            message,
            recoverable,
            retry_after_s,
            refused,
            refused_ids,
        } = event
        else {
            return Ok(());
        };
        let retry_after = retry_after_s.map(|seconds| Duration::from_secs(seconds.min(HINT_S_MAX)));
        let retry_ms = retry_after.map_or(0, |after| after.as_millis() as u64);
        if let Some(link) = &mut self.link
            && !recoverable
        {
            link.retry_after_ms = retry_after.map(|_| retry_ms);
        }
        let told = Error::Refused {
            code: code.clone(),
            message: message.clone(),
            retry_after,
        };
        match known {
            Some(ErrorCode::RateLimited) => {
                self.rate.handle_refusal(retry_ms, moment.ms());
                self.repeat_all(moment);
                self.refuse_calls(&refused_ids, &told);
            }
            Some(ErrorCode::MessageGap) => {
                self.rewind();
                return Ok(());
            }
            _ => {}
        }
        if let Some(row) = cid.as_deref().and_then(queue_row)
            && let Some(queue) = &self.queue
        {
            queue.store.refused(row, told.clone());
        }
        match cid.as_deref().and_then(|cid| self.pending.refuse(cid)) {
            Some(Waiting::Subscribe {
                topics,
                reply: None,
                ..
            }) => self.lose(topics, batch),
            Some(Waiting::Renew { topics }) => self.lose_granted(topics, batch),
            Some(waiting) => {
                waiting.fail(&told);
                return Ok(());
            }
            None => {}
        }
        batch.push(Event::Error(Box::new(ServerError {
            code,
            message,
            recoverable,
            retry_after,
            refused,
        })));
        Ok(())
    }

    /// Fails calls that the rate limit has refused, because they are not made again. All other requests are.
    fn refuse_calls(&mut self, ids: &[String], refusal: &Error) {
        for call in ids.iter().filter_map(|id| self.pending.refuse_call(id)) {
            call.fail(refusal);
        }
    }

    /// Sends messages that were refused for the rate limit again when it allows that; which they were is not known.
    fn repeat_all(&mut self, moment: Moment) {
        if let Some(link) = &mut self.link {
            link.repeat_at_ms = Some(self.rate.next_at_ms(moment.ms()));
        }
        // The last of the numbered ones makes no gap.
        self.rewind();
    }

    /// Sends numbered messages again from the last acknowledged one.
    fn rewind(&mut self) {
        if let Some(queue) = &mut self.queue
            && queue.is_ready
        {
            queue.is_ready = false;
            queue.resumes += 1;
            queue.store.rewind(queue.last_acknowledged);
        }
    }
}

/// No server can make a client wait for longer by a hint.
const HINT_S_MAX: u64 = 24 * 3600;

//! Acknowledged publishing: each numbered message and each message id is accepted once.

use crate::session::Session;
use crate::session::permit::Decided;
use crate::session::publications::Handled;
use crate::state::connection::ConnectionState;
use crate::state::producers::{OpenProducer, SharedProducer};
use crate::topics::broker::ProducerPlace;
use crate::topics::producer::{OpeningRefused, ProducerHandle, ProducerVerdict};
use std::sync::Arc;
use tidewire_wire::close::CloseCode;
use tidewire_wire::codes::ErrorCode;
use tidewire_wire::envelope::{EnvelopeError, message_id, message_number, readable_correlation_id};
use tidewire_wire::format::Format;
use tidewire_wire::session::{HelloProducer, ProducerState, PublishRequest, Reply};

impl Session<'_> {
    /// True for a message that is not published because of its number: it repeats an accepted one, is out of order, or its
    /// number cannot be read.
    pub(crate) fn is_repeated(&mut self, format: Format, bytes: &[u8]) -> bool {
        let Some(handle) = producer_of(self.state).map(|producer| producer.handle) else {
            return false;
        };
        let number = match message_number(format, bytes) {
            Ok(Some(number)) => number,
            Ok(None) => return false,
            // It is refused.
            Err(_) => return true,
        };
        let producers = self.core.shared.producers.locked();
        producers.verdict(handle, number) != ProducerVerdict::Take
    }

    /// Handles a `publish_request`. The number of a numbered one counts as accepted even if the request was
    /// refused for good: the client sends again only a request for which that helps.
    pub(crate) fn publish_once(&mut self, format: Format, bytes: &[u8], decided: Option<Decided>) {
        let number = match producer_of(self.state) {
            Some(_) => message_number(format, bytes),
            None => Ok(None),
        };
        let (number, handle) = match (number, producer_of(self.state)) {
            (Ok(Some(number)), Some(producer)) => (number, producer.handle),
            (Ok(_), _) => {
                self.handle_publish(format, bytes, None, decided);
                return;
            }
            (Err(error), _) => {
                self.core.counters.publications_refused.add(1);
                let id = readable_correlation_id(format, bytes);
                return self.reply_error(ErrorCode::InvalidMessage, error.to_string(), id);
            }
        };
        let shared = Arc::clone(&self.core.shared);
        // Locked until it is published: no other connection may go on as this producer in between.
        let mut producers = shared.producers.locked();
        let verdict = producers.verdict(handle, number);
        if verdict == ProducerVerdict::Take {
            let numbered = Some((handle, number));
            let handled = self.handle_publish(format, bytes, numbered, decided);
            match handled {
                Handled::Done => {
                    producers.accept(handle, number);
                }
                Handled::Retryable => {}
                // It is acknowledged when the broker has answered.
                Handled::Later => return,
            }
        }
        drop(producers);
        if let Some(producer) = producer_of(self.state) {
            producer.note(verdict, (format, bytes));
        }
        match verdict {
            ProducerVerdict::Take => {}
            ProducerVerdict::Repeat => self.answer_repeated(format, bytes),
            ProducerVerdict::Gap { .. } => self.core.counters.publications_refused.add(1),
            ProducerVerdict::Superseded => {
                self.core.counters.publications_refused.add(1);
                self.end_superseded(readable_correlation_id(format, bytes));
            }
        }
    }

    /// Accepts a numbered publication that the broker has answered. If its producer has gone on with another
    /// connection meanwhile, this connection ends.
    pub(crate) fn accept_numbered(&mut self, handle: ProducerHandle, number: u64) {
        let verdict = self.core.shared.producers.locked().accept(handle, number);
        if let Some(producer) = producer_of(self.state) {
            producer.note_answered(verdict);
        }
        if verdict == ProducerVerdict::Superseded {
            // The message itself was answered.
            self.end_superseded(None);
        } else {
            self.acknowledge_accepted();
        }
    }

    /// Answers a publication that was handled before, and whose answer may have been lost.
    fn answer_repeated(&mut self, format: Format, bytes: &[u8]) {
        self.core.counters.publications_repeated.add(1);
        let mut scratch = Vec::new();
        let reply = match PublishRequest::parse(format, bytes, &mut scratch) {
            Ok((request, Some(correlation_id))) => Reply::PublishResponse {
                topic: request.topic.into_owned(),
                duplicate: true,
                position: None,
                correlation_id: Some(correlation_id.into_owned()),
            },
            // It was refused before, and its client waits for an answer.
            Err(refusal) if refusal.correlation_id.is_some() => refusal.into(),
            Ok(_) | Err(_) => return,
        };
        self.reply(&reply);
    }

    /// Another connection goes on as this one's producer.
    pub(super) fn end_superseded(&mut self, correlation_id: Option<String>) {
        if !self.state.is_open() {
            return;
        }
        self.core.counters.producers_superseded.add(1);
        let words = "another connection goes on as this producer";
        self.reply_error(ErrorCode::ProducerSuperseded, words, correlation_id);
        self.start_close(CloseCode::PRODUCER_SUPERSEDED, words);
    }

    /// The producer's part of `server_hello`, for a client that names its producer. `place` is the
    /// state of a shared producer at the broker.
    pub(crate) fn open_producer(
        &mut self,
        HelloProducer { id, attempt }: HelloProducer,
        place: Option<ProducerPlace>,
        correlation_id: Option<&str>,
    ) -> Option<ProducerState> {
        if !self.state.is_open() {
            return None;
        }
        let shared = &self.core.shared;
        let user = self.state.client.user.clone().unwrap_or_default();
        let opened = {
            let mut producers = shared.producers.locked();
            let opened = producers.open(
                (&user, self.state.limits.owner),
                (&id.as_str().into(), attempt),
                self.steady_now().unix_ms,
                shared.hub.random_epoch(),
            );
            match place {
                Some(place) => opened.map(|opened| producers.adopt(opened, place)),
                None => opened,
            }
        };
        let opened = match opened {
            Ok(opened) => opened,
            Err(OpeningRefused::Superseded) => {
                self.end_superseded(correlation_id.map(str::to_owned));
                return None;
            }
            Err(OpeningRefused::TooMany) => {
                // Without a place it receives no number: its messages are accepted as those of any client.
                self.core.counters.producers_refused.add(1);
                return None;
            }
        };
        self.core.counters.producers_opened.add(1);
        self.state.producer.get_or_insert_default().producer = Some(OpenProducer {
            id: id.clone(),
            epoch: opened.epoch,
            handle: opened.handle,
            shared: place.map(|place| SharedProducer::new(place, self.io.now().steady_unix_ms)),
            owes_ack: false,
            gap: None,
        });
        Some(ProducerState {
            id,
            epoch: opened.epoch,
            last: opened.last,
        })
    }

    /// The producer of this connection, for a hello after the first.
    pub(crate) fn known_producer(&mut self) -> Option<ProducerState> {
        let producer = producer_of(self.state)?;
        let last = self.core.shared.producers.locked().last(producer.handle)?;
        let kept = producer.shared.as_ref().map(|shared| shared.kept);
        Some(ProducerState {
            id: producer.id.clone(),
            epoch: producer.epoch,
            last: kept.map_or(last, |kept| last.min(kept)),
        })
    }

    /// Acknowledges the messages accepted since the last time, and reports gaps: once for all messages of one
    /// read.
    #[inline(never)]
    pub(crate) fn acknowledge_accepted(&mut self) {
        let Some(producer) = producer_of(self.state) else {
            return;
        };
        if producer.shared.as_ref().is_some_and(|it| it.is_keeping) {
            // It goes on with the broker's answer.
            return;
        }
        let gap = producer.gap.take();
        let owes_ack = std::mem::take(&mut producer.owes_ack) || gap.is_some();
        if !owes_ack {
            return;
        }
        let last = self.core.shared.producers.locked().last(producer.handle);
        if let (Some(last), Some(shared)) = (last, &mut producer.shared)
            && last > shared.kept
        {
            producer.gap = gap;
            return self.start_keeping(last);
        }
        if let Some(last) = last {
            self.reply(&Reply::MessageAck { last });
        }
        if let Some((missing, refused)) = gap {
            let correlation_id = match &refused.correlation_ids[..] {
                [id] if refused.count == 1 => Some(id.clone()),
                _ => None,
            };
            let error = Reply::Error {
                code: ErrorCode::MessageGap,
                message: format!("the message with number {missing} is missing").into(),
                retry_after_s: None,
                refused: Some(refused),
                correlation_id,
            };
            self.reply(&error);
        }
    }

    /// True if a message should be accepted; it then counts as accepted.
    fn check_repetition(
        &mut self,
        format: Format,
        bytes: &[u8],
    ) -> Result<ProducerVerdict, EnvelopeError> {
        let shared = &self.core.shared.producers;
        let number = match producer_of(self.state) {
            Some(_) => message_number(format, bytes)?,
            None => None,
        };
        // Read before the number is accepted, since the message may prove to be broken.
        let id = match &shared.seen {
            Some(seen) => message_id(format, bytes)?.map(|id| (seen, id)),
            None => None,
        };
        if let (Some(number), Some(producer)) = (number, producer_of(self.state)) {
            let verdict = shared.locked().accept(producer.handle, number);
            producer.note(verdict, (format, bytes));
            if verdict != ProducerVerdict::Take {
                return Ok(verdict);
            }
        }
        match id {
            Some((seen, id))
                if !id.is_empty()
                    && !seen.is_new(self.state.limits.owner, scope_of(self.state), &id) =>
            {
                Ok(ProducerVerdict::Repeat)
            }
            _ => Ok(ProducerVerdict::Take),
        }
    }

    /// Whether a message for the application is dispatched: neither a repetition nor behind a gap.
    /// A dispatched message counts as accepted.
    #[inline(never)]
    pub(crate) fn accept_once(&mut self, format: Format, bytes: &[u8]) -> bool {
        match self.check_repetition(format, bytes) {
            Ok(ProducerVerdict::Take) => return true,
            Ok(ProducerVerdict::Repeat) => self.core.counters.messages_repeated.add(1),
            Ok(ProducerVerdict::Gap { .. }) => self.core.counters.messages_out_of_turn.add(1),
            Ok(ProducerVerdict::Superseded) => {
                self.core.counters.messages_out_of_turn.add(1);
                self.end_superseded(readable_correlation_id(format, bytes));
            }
            Err(error) => self.refuse(format, bytes, &error.to_string()),
        }
        false
    }
}

fn producer_of(state: &mut ConnectionState) -> Option<&mut OpenProducer> {
    state.producer.as_deref_mut()?.producer.as_mut()
}

/// Its user, or else the connection alone. No user's name begins as that of a connection does.
fn scope_of(state: &mut ConnectionState) -> &str {
    let producer = state.producer.get_or_insert_default();
    let (user, key) = (&state.client.user, state.key);
    producer.scope.get_or_insert_with(|| match user {
        Some(user) => format!("user {user}").into(),
        None => format!("connection {key}").into(),
    })
}

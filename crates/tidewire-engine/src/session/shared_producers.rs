//! Producers that several servers share: opened and remembered by the broker, which answers later.

use crate::session::Session;
use crate::session::application::Application;
use crate::session::inbound::Inbound;
use crate::state::broker_operations::{Greeting, Operation};
use crate::state::producers::{OpenProducer, SharedProducer};
use crate::topics::broker::{Done, ProducerName, ProducerOpening, ProducerPlace, TicketOutcome};
use tidewire_wire::close::CloseCode;
use tidewire_wire::codes::ErrorCode;
use tidewire_wire::session::{HelloProducer, Reply};

impl<A: Application> Inbound<'_, A> {
    /// The broker has opened a producer, or has not.
    pub(crate) fn finish_opening(&mut self, outcome: TicketOutcome) {
        let operations = self.session.state.work.operations.as_deref_mut();
        let greeting = operations.and_then(|operations| operations.greeting.take());
        let Some(mut greeting) = greeting else {
            return;
        };
        match (outcome, greeting.producer.take()) {
            (Ok(Done::ProducerSuperseded), _) => {
                self.session.end_superseded(greeting.correlation_id);
            }
            (Ok(Done::ProducerOpened(place)), Some(named)) => {
                let producer = self.session.open_producer(
                    named,
                    Some(place),
                    greeting.correlation_id.as_deref(),
                );
                match &producer {
                    // An earlier connection to this server has got further than the broker knows.
                    Some(state) if state.last > place.last => {
                        self.session.keep_before_hello(greeting, state.last);
                    }
                    _ => self.answer_hello(*greeting, producer),
                }
            }
            _ => self.session.refuse_hello(greeting.correlation_id),
        }
    }

    /// The broker has remembered a number, or another connection goes on as this producer.
    pub(crate) fn finish_keeping(&mut self, last: u64, outcome: TicketOutcome) {
        let operations = self.session.state.work.operations.as_deref_mut();
        let greeting = operations.and_then(|operations| operations.greeting.take());
        let is_kept = self.session.note_kept(last, outcome);
        match greeting {
            Some(greeting) if is_kept => {
                let producer = self.session.known_producer();
                self.answer_hello(*greeting, producer);
            }
            _ if is_kept => self.session.acknowledge_kept(last),
            _ => {}
        }
    }
}

impl Session<'_> {
    pub(super) fn ask_for_producer(&mut self, greeting: Box<Greeting>) {
        let Some(HelloProducer { id, attempt }) = &greeting.producer else {
            return;
        };
        let opening = ProducerOpening {
            name: self.producer_name(id),
            attempt: *attempt,
            random_epoch: self.core.shared.hub.random_epoch(),
        };
        let ticket = self.core.operations.ticket();
        let operation = Operation::ProducerOpening(self.state.key.id);
        self.core.operations.open(operation);
        self.core.shared.hub.open_producer(opening, ticket);
        // Nothing is read before the answer.
        self.state.work.operations.get_or_insert_default().greeting = Some(greeting);
    }

    /// Without the producer's place its messages could be accepted twice: the client tries again.
    fn refuse_hello(&mut self, correlation_id: Option<String>) {
        let words = "the broker does not answer, so this server does not know which messages of the producer were accepted";
        let error = Reply::Error {
            code: ErrorCode::BrokerUnavailable,
            message: words.into(),
            retry_after_s: None,
            refused: None,
            correlation_id,
        };
        self.reply(&error);
        self.start_close(CloseCode::TRY_AGAIN_LATER, "the broker does not answer");
    }

    fn producer_name(&self, id: &str) -> ProducerName {
        ProducerName {
            user: self.state.client.user.clone().unwrap_or_default(),
            id: id.into(),
        }
    }

    fn place_at(&self, last: u64) -> Option<(ProducerName, ProducerPlace)> {
        let producer = self.state.producer.as_deref()?.producer.as_ref()?;
        let shared = producer.shared.as_ref()?;
        let place = ProducerPlace {
            epoch: producer.epoch,
            last,
            opening: shared.opening,
        };
        Some((self.producer_name(&producer.id), place))
    }

    /// The answer to a hello acknowledges the number in it, so the broker has to remember the number first.
    fn keep_before_hello(&mut self, greeting: Box<Greeting>, last: u64) {
        let operations = self.state.work.operations.get_or_insert_default();
        operations.greeting = Some(greeting);
        self.start_keeping(last);
    }

    /// Has the broker remember the number of the last accepted message. It is acknowledged then.
    pub(super) fn start_keeping(&mut self, last: u64) {
        let Some((name, place)) = self.place_at(last) else {
            return;
        };
        if let Some(shared) = self.shared_producer() {
            shared.is_keeping = true;
        }
        let ticket = self.core.operations.ticket();
        let operation = Operation::ProducerKeeping(self.state.key.id, last);
        self.core.operations.open(operation);
        let hub = &self.core.shared.hub;
        hub.keep_producer(name, place, Some(ticket));
    }

    /// Notes the broker's answer. Gives whether it remembers the number for this connection.
    fn note_kept(&mut self, last: u64, outcome: TicketOutcome) -> bool {
        let now_unix_ms = self.steady_now().unix_ms;
        let Some(shared) = self.shared_producer() else {
            return false;
        };
        shared.is_keeping = false;
        match outcome {
            Ok(Done::ProducerKept(true)) => {
                shared.kept = last;
                shared.kept_unix_ms = now_unix_ms;
                true
            }
            Ok(Done::ProducerKept(false)) => {
                let producer = self.state.producer.as_deref();
                let producers = &self.core.shared.producers;
                producers.close(producer, now_unix_ms);
                self.end_superseded(None);
                false
            }
            // The server stops.
            _ => false,
        }
    }

    /// Acknowledges a number that the broker remembers, and has it remember a newer one if there is.
    fn acknowledge_kept(&mut self, last: u64) {
        self.reply(&Reply::MessageAck { last });
        let Some(producer) = self.open_producer_mut() else {
            return;
        };
        let handle = producer.handle;
        let newest = self.core.shared.producers.locked().last(handle);
        if let Some(producer) = self.open_producer_mut() {
            producer.owes_ack |= newest.is_some_and(|newest| newest > last);
        }
        self.acknowledge_accepted();
    }

    fn open_producer_mut(&mut self) -> Option<&mut OpenProducer> {
        self.state.producer.as_deref_mut()?.producer.as_mut()
    }

    fn shared_producer(&mut self) -> Option<&mut SharedProducer> {
        self.open_producer_mut()?.shared.as_mut()
    }

    /// The connection has ended: its producer may go on with another one, here or elsewhere.
    pub(crate) fn close_producer(&mut self) {
        let now_unix_ms = self.steady_now().unix_ms;
        let producer = self.state.producer.as_deref();
        let handle = producer.and_then(|session| Some(session.producer.as_ref()?.handle));
        let shared = &self.core.shared;
        let last = handle.and_then(|handle| shared.producers.locked().last(handle));
        let unkept = last.filter(|last| self.is_to_be_kept(*last, now_unix_ms));
        if let Some((name, place)) = unkept.and_then(|last| self.place_at(last)) {
            shared.hub.keep_producer(name, place, None);
        }
        shared.producers.close(producer, now_unix_ms);
    }

    fn is_to_be_kept(&self, last: u64, now_unix_ms: u64) -> bool {
        let producer = self.state.producer.as_deref();
        let producer = producer.and_then(|session| session.producer.as_ref());
        let shared = producer.and_then(|producer| producer.shared.as_ref());
        shared.is_some_and(|shared| {
            last > shared.kept || now_unix_ms >= shared.kept_unix_ms + KEPT_AGAIN_MS
        })
    }
}

impl SharedProducer {
    pub(super) fn new(place: ProducerPlace, now_unix_ms: u64) -> Self {
        Self {
            opening: place.opening,
            kept: place.last,
            kept_unix_ms: now_unix_ms,
            is_keeping: false,
        }
    }
}

/// The broker forgets a producer some time after the last report about it. So the server repeats the report
/// at the end of a connection, unless the last one is more recent than this, in milliseconds.
const KEPT_AGAIN_MS: u64 = 10_000;

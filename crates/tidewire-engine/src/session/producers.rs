//! Producers that several servers share: opened and remembered by the broker, which answers later.

use crate::session::Session;
use crate::session::application::Application;
use crate::session::inbound::Inbound;
use crate::state::operations::{Greeting, Operation};
use crate::state::producers::{OpenProducer, SharedProducer};
use crate::topics::broker::{Done, ProducerName, ProducerPlace, TicketOutcome};
use tidewire_wire::close::CloseCode;
use tidewire_wire::codes::ErrorCode;
use tidewire_wire::session::{ProducerState, Reply};

impl<A: Application> Inbound<'_, A> {
    /// Answers a hello: at once, or when the broker has opened its producer.
    pub(crate) fn handle_hello(&mut self, mut greeting: Greeting) {
        let id = greeting.producer.take();
        let Some(id) = id.filter(|_| self.session.may_greet(&greeting)) else {
            return self.answer_hello(greeting, None);
        };
        if !self.session.core.shared.hub.shares_producers() {
            let producer = self.session.open_producer(id, None);
            return self.answer_hello(greeting, producer);
        }
        greeting.producer = Some(id);
        self.session.ask_for_producer(Box::new(greeting));
    }

    /// The broker has opened a producer, or has not.
    pub(crate) fn finish_opening(&mut self, outcome: TicketOutcome) {
        let operations = self.session.state.operations.as_deref_mut();
        let greeting = operations.and_then(|operations| operations.greeting.take());
        let Some(mut greeting) = greeting else {
            return;
        };
        match (outcome, greeting.producer.take()) {
            (Ok(Done::ProducerOpened(place)), Some(id)) => {
                let producer = self.session.open_producer(id, Some(place));
                self.answer_hello(*greeting, producer);
            }
            _ => self.session.refuse_hello(greeting.correlation_id),
        }
    }

    fn answer_hello(&mut self, greeting: Greeting, producer: Option<ProducerState>) {
        let Greeting {
            offer,
            correlation_id,
            ..
        } = greeting;
        let session = &mut self.session;
        let Some(offer) = offer else {
            return session.reply_hello(correlation_id, producer);
        };
        if let Some(waiting) = session.exchange_keys(&offer, correlation_id, producer) {
            self.announce(&waiting.peer);
        }
    }
}

impl Session<'_> {
    fn ask_for_producer(&mut self, greeting: Box<Greeting>) {
        let Some(id) = &greeting.producer else {
            return;
        };
        let name = self.producer_name(id);
        let ticket = self.core.operations.ticket();
        let operation = Operation::ProducerOpening(self.state.key.id);
        self.core.operations.open(operation);
        let hub = &self.core.shared.hub;
        hub.open_producer(name, hub.random_epoch(), ticket);
        // Nothing is read before the answer.
        self.state.operations.get_or_insert_default().greeting = Some(greeting);
    }

    /// Without the producer's place its messages could be accepted twice: the client tries again.
    fn refuse_hello(&mut self, correlation_id: Option<String>) {
        let words = "the broker does not answer, so nobody knows where the producer stands";
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
            user: self.state.user.clone().unwrap_or_default(),
            id: id.into(),
        }
    }

    /// Has the broker remember the number of the last accepted message. It is acknowledged then.
    pub(super) fn keep_number(&mut self, last: u64) {
        let Some((name, place)) = self.place_at(last) else {
            return;
        };
        let ticket = self.core.operations.ticket();
        let operation = Operation::ProducerKeeping(self.state.key.id, last);
        self.core.operations.open(operation);
        let hub = &self.core.shared.hub;
        hub.keep_producer(name, place, Some(ticket));
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

    /// The broker has remembered a number, or another connection goes on as this producer.
    pub(crate) fn finish_keeping(&mut self, last: u64, outcome: TicketOutcome) {
        let Some(producer) = self.open_shared_producer() else {
            return;
        };
        let handle = producer.handle;
        let Some(shared) = &mut producer.shared else {
            return;
        };
        shared.is_keeping = false;
        match outcome {
            Ok(Done::ProducerKept(true)) => {
                shared.kept = last;
                self.reply(&Reply::MessageAck { last });
                let newest = self.core.shared.producers.locked().last(handle);
                if let Some(producer) = self.open_shared_producer() {
                    producer.owes_ack |= newest.is_some_and(|newest| newest > last);
                }
                self.acknowledge_accepted();
            }
            Ok(Done::ProducerKept(false)) => {
                let now_unix_ms = self.now().unix_ms;
                let shared = &self.core.shared;
                shared.producers.locked().close(handle, now_unix_ms);
                self.end_superseded();
            }
            // The server stops.
            _ => {}
        }
    }

    fn open_shared_producer(&mut self) -> Option<&mut OpenProducer> {
        self.state.producer.as_deref_mut()?.producer.as_mut()
    }

    /// The connection has ended: its producer may go on with another one, here or elsewhere.
    pub(crate) fn close_producer(&mut self) {
        let now_unix_ms = self.now().unix_ms;
        let producer = self.state.producer.as_deref();
        let handle = producer.and_then(|session| Some(session.producer.as_ref()?.handle));
        let shared = &self.core.shared;
        let last = handle.and_then(|handle| shared.producers.locked().last(handle));
        if let Some((name, place)) = last.and_then(|last| self.place_at(last)) {
            shared.hub.keep_producer(name, place, None);
        }
        shared.producers.close(producer, now_unix_ms);
    }
}

impl SharedProducer {
    pub(super) fn new(place: ProducerPlace) -> Self {
        Self {
            opening: place.opening,
            kept: place.last,
            is_keeping: false,
        }
    }
}

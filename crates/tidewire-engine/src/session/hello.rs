//! `client_hello` and its answer `server_hello`: keys of an encrypted connection and the producer.

use crate::session::Session;
use crate::session::application::Application;
use crate::session::encryption::NEEDS_KEY;
use crate::session::inbound::Inbound;
use crate::state::broker_operations::Greeting;
use tidewire_wire::session::{ProducerState, Reply};

impl<A: Application> Inbound<'_, A> {
    /// Answers a hello: at once, or when the broker has opened its producer.
    pub(crate) fn handle_hello(&mut self, mut greeting: Greeting) {
        let named = greeting.producer.take();
        let Some(named) = named.filter(|_| self.session.may_greet(&greeting)) else {
            return self.answer_hello(greeting, None);
        };
        if !self.session.core.shared.hub.shares_producers() {
            let producer =
                self.session
                    .open_producer(named, None, greeting.correlation_id.as_deref());
            return self.answer_hello(greeting, producer);
        }
        greeting.producer = Some(named);
        self.session.ask_for_producer(Box::new(greeting));
    }

    pub(super) fn answer_hello(&mut self, greeting: Greeting, producer: Option<ProducerState>) {
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
        self.session.tell_broker_update();
    }
}

impl Session<'_> {
    /// Whether a hello is answered and does not end the session for lack of a key.
    pub(crate) fn may_greet(&mut self, greeting: &Greeting) -> bool {
        let needs_key = self.core.setup.config.encryption.is_required();
        let may = match &greeting.offer {
            Some(offer) => self.is_new_enough(offer),
            None => self.state.encryption().is_some() || !needs_key,
        };
        self.state.is_open() && may
    }

    /// The answer to a hello without a key, or to one after the first.
    pub(crate) fn reply_hello(
        &mut self,
        correlation_id: Option<String>,
        producer: Option<ProducerState>,
    ) {
        let encryption = self.state.encryption().map(|layer| Box::new(layer.hello));
        if encryption.is_none() && self.core.setup.config.encryption.is_required() {
            return self.require_encryption(NEEDS_KEY, correlation_id);
        }
        let producer = producer.or_else(|| self.known_producer());
        let hello = Reply::Hello {
            correlation_id,
            encryption,
            producer,
        };
        self.reply(&hello);
        self.tell_broker_update();
    }
}

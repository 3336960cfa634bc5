//! Open operations of a shard: what its broker has been asked and answers later.

use crate::model::inbox::Inbox;
use crate::topics::broker::{Refusal, Ticket, TicketOutcome};
use crate::topics::producer::ProducerHandle;
use crate::trace::OpenSpan;
use std::collections::HashMap;
use std::sync::Arc;
use tidewire_net::ConnectionId;
use tidewire_wire::session::{HelloProducer, KeyOffer};

/// The open operations of all connections of a shard.
#[derive(Debug, Default)]
pub(crate) struct Operations {
    /// The answers of the broker. It holds at most one answer for each open operation.
    pub(crate) inbox: Arc<Inbox<(u64, TicketOutcome)>>,
    open: HashMap<u64, Operation>,
    /// Of the last operation.
    number: u64,
}

/// An open operation.
#[derive(Debug)]
pub(crate) enum Operation {
    /// A publication of a client.
    Publication(ConnectionId, OpenPublication),
    /// The producer of a connection, which waits for it.
    ProducerOpening(ConnectionId),
    /// The number of the last accepted message of a connection's producer.
    ProducerKeeping(ConnectionId, u64),
    /// A topic that a job of a connection waits for.
    Preparation(ConnectionId, Arc<str>),
    /// A publication of the application on the shard, which nobody waits for.
    Unawaited(Arc<str>),
}

/// A publication of a client that the broker has not answered.
#[derive(Debug)]
pub(crate) struct OpenPublication {
    pub(crate) topic: Arc<str>,
    /// Without one the client receives only errors.
    pub(crate) correlation_id: Option<String>,
    /// Of the payload.
    pub(crate) bytes: usize,
    /// Which of its producer's messages it is, if it is numbered.
    pub(crate) numbered: Option<(ProducerHandle, u64)>,
    /// Its span, if it is traced.
    pub(crate) span: Option<Box<OpenSpan>>,
}

/// What a client's hello asks for.
#[derive(Debug)]
pub(crate) struct Greeting {
    /// Its key, if it offers one.
    pub(crate) offer: Option<Box<KeyOffer>>,
    pub(crate) correlation_id: Option<String>,
    pub(crate) producer: Option<HelloProducer>,
}

/// The open operations of one connection.
#[derive(Debug, Default)]
pub(crate) struct SessionOperations {
    /// How many publications are open.
    pub(crate) publications: usize,
    /// Their payloads, in bytes.
    pub(crate) bytes: usize,
    /// One of them is numbered: nothing is read before it is answered.
    pub(crate) is_numbered: bool,
    /// A hello whose producer the broker opens: nothing is read before it is answered.
    pub(crate) greeting: Option<Box<Greeting>>,
    /// Topics that its job waits for.
    pub(crate) preparing: usize,
    /// Those that the broker did not make ready.
    pub(crate) refused: Vec<(Arc<str>, Refusal)>,
}

impl Operations {
    /// The ticket of the next operation, which has to be [opened](Self::open) in the same turn.
    pub(crate) fn ticket(&mut self) -> Ticket {
        self.number += 1;
        Ticket::of_shard(&self.inbox, self.number)
    }

    /// Notes whose operation the last ticket is.
    pub(crate) fn open(&mut self, operation: Operation) {
        self.open.insert(self.number, operation);
    }

    /// The operation of a ticket that has been settled.
    pub(crate) fn close(&mut self, number: u64) -> Option<Operation> {
        let operation = self.open.remove(&number);
        if self.open.is_empty() {
            self.open = HashMap::new();
        }
        operation
    }
}

impl SessionOperations {
    /// Whether the connection has to wait for answers before more of it is read.
    pub(crate) fn is_full(&self) -> bool {
        self.is_numbered
            || self.greeting.is_some()
            || self.preparing > 0
            || self.publications >= PUBLICATIONS_MAX
            || self.bytes >= BYTES_MAX
    }
}

/// Publications of one connection that may be open. With more it is not read.
const PUBLICATIONS_MAX: usize = 256;

/// The same in bytes of payload.
const BYTES_MAX: usize = 1024 * 1024;

//! State of one connection.

use crate::limits::errors::ErrorBudget;
use crate::limits::owner::OwnerId;
use crate::limits::rate::TokenBucket;
use crate::limits::unfinished::Charge;
use crate::model::adoption::AdoptionTicket;
use crate::model::{CloseReason, ConnectionKey, Peer};
use crate::state::adoption::{Adopted, ConnectDecision, Forwarded};
use crate::state::broker_operations::SessionOperations;
use crate::state::expiry::Expiry;
use crate::state::layers::{EncryptionLayer, Layers};
use crate::state::open_calls::SessionCalls;
use crate::state::pending_questions::{BackendAnswer, Question};
use crate::state::producers::SessionProducer;
use crate::state::session_topics::{Holder, SessionTopics};
use crate::state::unfinished_jobs::Jobs;
use crate::topics::access::Access;
use crate::trace::ConnectionTrace;
use std::net::SocketAddr;
use std::sync::Arc;
use tidewire_net::Io;
use tidewire_wire::close::CloseCode;
use tidewire_wire::connection::{self as websocket, Control};
use tidewire_wire::message::MessageReader;
use tidewire_wire::session::{Refused, ServerProfile, ServerSession};

/// One connection: what reads its messages, and the rest, apart because a message that is being
/// handled borrows its reader.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) reader: MessageReader,
    pub(crate) state: ConnectionState,
}

#[derive(Debug)]
pub(crate) struct ConnectionState {
    pub(crate) key: ConnectionKey,
    /// Answers control frames and closes; `None` until the opening handshake is finished.
    pub(crate) control: Option<Control>,
    /// How it ends.
    pub(crate) ending: Ending,
    /// The protocol's own state; without version 1, only its idle clock is used.
    pub(crate) session: ServerSession,
    /// Its limits, and what it is charged for.
    pub(crate) limits: ConnectionLimits,
    /// The work that its messages have started.
    pub(crate) work: OpenWork,
    /// Its client.
    pub(crate) client: ClientIdentity,
    /// Its source is a trusted proxy, whose header may precede all other data.
    pub(crate) awaits_proxy_header: bool,
    /// When it was accepted, in microseconds of the shard's time, modulo 2^32: some 71 minutes.
    pub(crate) accepted_us: u32,
    /// The client knows that the broker is away.
    pub(crate) is_told_away: bool,
    /// Its topics, once it has some.
    pub(crate) topics: Option<Box<SessionTopics>>,
    /// The trace that its spans belong to, if it is traced.
    pub(crate) trace: Option<Box<ConnectionTrace>>,
    /// The state that distinguishes its repeated messages from new ones, if that is needed.
    pub(crate) producer: Option<Box<SessionProducer>>,
    /// The layers between its messages and its frames, if any.
    pub(crate) layers: Option<Box<Layers>>,
    /// The peer that the application is notified of when the session is encrypted, if it must be.
    pub(crate) unannounced: Option<Box<Unannounced>>,
}

/// How a connection ends.
#[derive(Debug)]
pub(crate) struct Ending {
    /// The code of our close frame, once it was sent.
    pub(crate) close_code: Option<CloseCode>,
    /// Set while a message is handled, if the session is to end after it.
    pub(crate) close: Option<Box<(CloseCode, &'static str)>>,
    /// How the session ended, once it has.
    pub(crate) ended: Option<CloseReason>,
}

/// The limits of a connection, and what it is charged for.
#[derive(Debug)]
pub(crate) struct ConnectionLimits {
    pub(crate) bucket: TokenBucket,
    pub(crate) pauses: Pauses,
    /// The refusals of the rate limit, once there are some.
    pub(crate) refusals: Option<Box<Refusals>>,
    /// The owner that its work and its memory are charged to.
    pub(crate) owner: OwnerId,
    /// Its errors, once there are some.
    pub(crate) error_budget: Option<Box<ErrorBudget>>,
    /// The charge for a message that has begun and not ended.
    pub(crate) unfinished: Option<Box<Charge>>,
}

/// Work that the messages of a connection have started and that is not done.
#[derive(Debug)]
pub(crate) struct OpenWork {
    /// The jobs that its messages have requested and that are not done.
    pub(crate) jobs: Jobs,
    /// Its open calls, once it has had some.
    pub(crate) calls: Option<Box<SessionCalls>>,
    /// The open questions to the broker, once there was one.
    pub(crate) operations: Option<Box<SessionOperations>>,
    /// The question to the backend, until the answer is used.
    pub(crate) question: Option<Box<Question>>,
}

/// The client of a connection: its user, and what it may do.
#[derive(Debug)]
pub(crate) struct ClientIdentity {
    /// The `sub` claim of its token.
    pub(crate) user: Option<Arc<str>>,
    /// When it ends with its token, if it does.
    pub(crate) expiry: Option<Box<Expiry>>,
    /// The client, if a proxy or the application has handed the connection over.
    pub(crate) forwarded: Option<Box<Forwarded>>,
    /// The topics that it may have.
    pub(crate) access: Access,
    /// The application has decided that; a new token changes nothing of it.
    pub(crate) access_is_set: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The opening handshake is not finished.
    Opening,
    /// Messages go both ways.
    Open,
    /// The server has sent a close frame with this code. Messages are received until the peer answers it.
    Closing(CloseCode),
    /// Nothing more is read.
    Over,
}

/// A session that the application does not know yet.
#[derive(Debug)]
pub(crate) struct Unannounced {
    pub(crate) peer: Peer,
    /// When it ends if it is not encrypted by then.
    pub(crate) until_ms: u64,
}

/// Why nothing is read from a connection at the moment.
#[derive(Debug, Default)]
pub(crate) struct Pauses {
    /// The application is not ready.
    pub(crate) application: bool,
    /// Too much waits to be sent.
    pub(crate) outbox: bool,
    /// It has had enough of this turn.
    pub(crate) turn: bool,
    /// It publishes more than the shards deliver.
    pub(crate) backlog: bool,
    /// The broker has to answer first.
    pub(crate) broker: bool,
    /// The bytes that waited to be sent at the last look.
    pub(crate) outbox_bytes_seen: usize,
}

impl Pauses {
    pub(crate) fn are_over(&self) -> bool {
        !(self.application || self.outbox || self.turn || self.backlog || self.broker)
    }
}

/// Messages refused by the rate limit, reported to the peer once in a while and not one by one.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    pub(crate) since_told: Refused,
    pub(crate) told_ms: Option<u64>,
    /// The time until the next message is accepted, as of the last refusal.
    pub(crate) retry_after_ms: u64,
}

impl Refusals {
    /// When the refusals that the peer does not know yet are reported; `None` without any.
    pub(crate) fn due_ms(&self) -> Option<u64> {
        let told_ms = self
            .told_ms
            .map_or(0, |told_ms| told_ms + REFUSAL_INTERVAL_MS);
        (self.since_told.count > 0).then_some(told_ms)
    }
}

impl ConnectionState {
    /// Whether so much of it had to be refused that it is being closed.
    pub(crate) fn is_refused(&self) -> bool {
        self.limits
            .error_budget
            .as_ref()
            .is_some_and(|budget| budget.is_exhausted())
    }

    /// When its timer has something to do next while it is open, on the monotonic clock.
    pub(crate) fn due_ms(&self, profile: &ServerProfile) -> u64 {
        let encryption_ms = self.unannounced.as_ref().map(|session| session.until_ms);
        let expiry_ms = self.client.expiry.as_ref().map(|expiry| expiry.due_ms());
        let topics = self.topics.as_ref();
        let tokens_ms = topics.and_then(|topics| topics.by_token.due_ms());
        let refusals_ms = self.limits.refusals.as_deref().and_then(Refusals::due_ms);
        [encryption_ms, expiry_ms, tokens_ms, refusals_ms]
            .into_iter()
            .flatten()
            .fold(self.session.poll_deadline_ms(profile), u64::min)
    }

    /// The encryption of the connection, once the keys are agreed.
    pub(crate) fn encryption(&mut self) -> Option<&mut EncryptionLayer> {
        self.layers.as_deref_mut()?.encryption.as_mut()
    }

    /// The connection as the holder of its topics.
    pub(crate) fn holder(&self) -> Holder {
        Holder {
            key: self.key,
            owner: self.limits.owner,
        }
    }

    /// How far the connection is.
    #[inline]
    pub(crate) fn phase(&self) -> Phase {
        match self.control.as_ref().map(Control::state) {
            None => Phase::Opening,
            Some(websocket::ConnectionState::Open) => Phase::Open,
            Some(websocket::ConnectionState::Closing) => {
                Phase::Closing(self.ending.close_code.unwrap_or(CloseCode::NORMAL))
            }
            Some(websocket::ConnectionState::Closed) => Phase::Over,
        }
    }

    /// Whether the broker or the backend has to answer before more is read of it.
    #[inline]
    pub(crate) fn awaits_broker(&self) -> bool {
        let operations = self.work.operations.as_ref();
        operations.is_some_and(|operations| operations.is_full()) || self.awaits_backend()
    }

    /// Whether the backend has to answer first.
    #[inline]
    pub(crate) fn awaits_backend(&self) -> bool {
        let question = self.work.question.as_ref();
        question.is_some_and(|question| question.answer.is_none())
    }

    /// The answer to a question, once it is there; the question is over.
    pub(crate) fn take_answer(&mut self, number: u64) -> Option<BackendAnswer> {
        let is_it =
            |question: &mut Box<Question>| question.number == number && question.answer.is_some();
        self.work.question.take_if(is_it)?.answer
    }

    /// Whether messages go both ways.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.control.as_ref().is_some_and(Control::is_open)
    }

    /// Whether messages go to it, and the application knows of it.
    pub(crate) fn can_subscribe(&self) -> bool {
        self.is_open() && self.unannounced.is_none()
    }
}

impl Connection {
    /// The session was announced to the application.
    pub(crate) fn is_session(&self) -> bool {
        self.state.phase() != Phase::Opening
    }
}

/// The size of each open connection in its shard's table, in bytes. A new field makes all of them
/// larger: state that only few connections have goes behind a pointer.
const _: () = assert!(size_of::<Option<Connection>>() <= CONNECTION_BYTES_MAX);
const CONNECTION_BYTES_MAX: usize = 408;

/// The interval at which a peer that sends too fast is warned, in milliseconds.
const REFUSAL_INTERVAL_MS: u64 = 1_000;

impl ConnectionState {
    /// The other end's address: of whom a trusted proxy forwards, if one does; else that of the TCP
    /// connection. `None` if it is gone already.
    pub(crate) fn peer_address(&self, io: &Io) -> Option<SocketAddr> {
        self.forwarded_address()
            .or_else(|| io.peer_address(self.key.id))
    }

    /// The address of the client, if that is not the other end of the TCP connection.
    pub(crate) fn forwarded_address(&self) -> Option<SocketAddr> {
        self.client.forwarded.as_ref()?.address
    }

    /// Notes for whom a trusted proxy has opened the connection.
    pub(crate) fn set_forwarded(&mut self, client: SocketAddr) {
        let forwarded = self.client.forwarded.get_or_insert_default();
        forwarded.address = Some(client);
        forwarded.by_proxy = true;
    }

    /// Notes the decision of the application about a client of the server's own port, as if the connection were handed over.
    pub(crate) fn decide(
        &mut self,
        decision: Option<ConnectDecision>,
        ticket: Option<AdoptionTicket>,
        is_local: bool,
    ) {
        let adopted = Adopted {
            ticket,
            is_local,
            decision,
        };
        self.client.forwarded.get_or_insert_default().adopted = Some(adopted);
    }

    /// The hand-over by the application, if there was one.
    pub(crate) fn adopted(&mut self) -> Option<&mut Adopted> {
        self.client.forwarded.as_mut()?.adopted.as_mut()
    }

    /// The same of a connection that ends, if the operating system still knows it.
    pub(crate) fn last_address(&self, io: &Io) -> Option<SocketAddr> {
        self.forwarded_address()
            .or_else(|| io.last_peer_address(self.key.id))
    }
}

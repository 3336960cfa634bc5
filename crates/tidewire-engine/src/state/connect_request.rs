//! Clients about whom the application decides before they are let in.

use crate::model::ConnectionKey;
use crate::model::adoption::AdoptionTicket;
use crate::state::adoption::ConnectDecision;
use crate::state::pending_questions::{BackendAnswer, QuestionInbox};
use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// A client that wants to connect, and whose request nothing forbids so far. It waits for the [responder](Self::responder), and
/// nothing more is read of it meanwhile.
#[derive(Debug)]
pub struct ConnectRequest {
    /// The client's address, also behind a trusted proxy.
    pub address: Option<SocketAddr>,
    /// Whether the connection is under TLS.
    pub is_tls: bool,
    /// The target of the request as it came: the path and the query, still percent-encoded.
    pub target: String,
    /// The names and values of its headers, as and in which order they came.
    pub headers: Vec<(String, Vec<u8>)>,
    /// How long a decision is waited for, in milliseconds: [`call_timeout_ms`](crate::Limits::call_timeout_ms). The client then
    /// gets HTTP 503 with `Retry-After`.
    pub timeout_ms: u64,
    /// Takes the decision.
    pub responder: ConnectResponder,
}

/// Takes the decision about one client, once, from any thread. When it is dropped without one, the client gets HTTP 503 with
/// `Retry-After`.
#[derive(Debug)]
pub struct ConnectResponder {
    pub(crate) connection: ConnectionKey,
    pub(crate) inbox: Arc<QuestionInbox>,
    pub(crate) number: u64,
    /// The client is there, and its time is not over.
    pub(crate) is_waiting: Arc<AtomicBool>,
    pub(crate) is_answered: bool,
}

impl ConnectResponder {
    /// Decides about the client. Without a decision its token decides, or the backend. The application finds the connection
    /// again by the ticket: [`Peer::adoption`](crate::Peer::adoption).
    pub fn decide(mut self, decision: Option<ConnectDecision>, ticket: Option<AdoptionTicket>) {
        self.send(decision, ticket);
    }

    /// The connection.
    #[must_use]
    pub fn connection(&self) -> ConnectionKey {
        self.connection
    }

    /// Whether the client still waits: it has not left, as far as that is known, and its time is not over.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.is_waiting.load(Ordering::Acquire)
    }

    fn send(&mut self, decision: Option<ConnectDecision>, ticket: Option<AdoptionTicket>) {
        self.is_answered = true;
        let answer = BackendAnswer::Decision(decision, ticket);
        self.inbox.push((self.connection.id, self.number, answer));
    }
}

impl Drop for ConnectResponder {
    fn drop(&mut self) {
        if !self.is_answered && self.is_waiting() {
            self.send(Some(ConnectDecision::unavailable()), None);
        }
    }
}

/// The clients that wait for an application on another thread, in the order in which they came.
#[derive(Default)]
pub struct ConnectRequests {
    is_wanted: AtomicBool,
    waiting: Mutex<VecDeque<ConnectRequest>>,
    wake: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl ConnectRequests {
    /// Has every client wait for a decision from now on. `wake` is called on a shard's thread when there is one to take; it must
    /// not block. Only the first one counts.
    pub fn decide_all(&self, wake: impl Fn() + Send + Sync + 'static) {
        let _ = self.wake.set(Box::new(wake));
        self.is_wanted.store(true, Ordering::Release);
    }

    /// The next client that still waits.
    pub fn take(&self) -> Option<ConnectRequest> {
        let mut waiting = self.waiting();
        loop {
            let request = waiting.pop_front()?;
            if request.responder.is_waiting() {
                return Some(request);
            }
        }
    }

    /// Forgets the clients that wait no more, such as those of a server that has stopped.
    pub fn forget_gone(&self) {
        self.waiting()
            .retain(|request| request.responder.is_waiting());
    }

    /// Whether the application decides about clients.
    pub(crate) fn is_wanted(&self) -> bool {
        self.is_wanted.load(Ordering::Acquire)
    }

    /// Adds a client. If there are too many, it is told to come back.
    pub(crate) fn push(&self, request: ConnectRequest) {
        if self.waiting().len() >= WAITING_MAX {
            self.forget_gone();
        }
        let mut waiting = self.waiting();
        if waiting.len() < WAITING_MAX {
            waiting.push_back(request);
        }
        drop(waiting);
        if let Some(wake) = self.wake.get() {
            wake();
        }
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<ConnectRequest>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for ConnectRequests {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ConnectRequests(..)")
    }
}

/// Clients that wait to be taken, in all shards.
const WAITING_MAX: usize = 1024;

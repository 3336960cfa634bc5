//! Events to a backend by HTTP, and its answers.
//!
//! Shards [submit](Backend::submit) events and never wait. One thread runs the [`link`]: it posts each event over a
//! kept-alive connection and calls what the shard has left with it when the answer is there, or why there is none.
//! The [`exchange`] is everything but the sockets.

mod arrays;
mod breaker;
mod breakers;
pub(crate) mod counts;
pub(crate) mod events;
pub(crate) mod exchange;
pub(crate) mod failure;
mod failure_log;
pub(crate) mod kind;
mod link;
mod now;
mod reach;
mod request;
pub(crate) mod resolve;
mod seen;
mod shares;
mod slot;
mod waiting;

use self::counts::Counts;
use self::exchange::Exchange;
use self::failure::{Failure, KINDS};
use self::link::LinkHandler;
use self::resolve::Route;
use crate::config::backend::{BackendConfig, BackendEvent};
use crate::limits::owner::OwnerId;
use crate::model::inbox::Inbox;
use crate::trace::OpenSpan;
use aws_lc_rs::hmac;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tidewire_net::tls::{self, ClientConfig, ClientIdentity, TlsError, Trust};
use tidewire_net::{Shard, ShardConfig, Waker};

/// The shards' side of the backend.
#[derive(Debug)]
pub(crate) struct Backend {
    pub(crate) config: BackendConfig,
    pub(crate) counts: Counts,
    pub(crate) inbox: Inbox<Submission>,
    /// Of the events that wait for an answer, of messages, and of ends of sessions.
    loads: [Arc<Load>; 3],
    is_stopped: AtomicBool,
    pub(crate) key: Option<hmac::Key>,
}

/// An event on its way to the backend.
#[derive(Debug)]
pub(crate) struct Submission {
    pub(crate) event: BackendEvent,
    /// One JSON object.
    pub(crate) body: Vec<u8>,
    pub(crate) done: Done,
    /// Of the call; its context goes along. Events of an array have none.
    pub(crate) span: Option<Box<OpenSpan>>,
    place: Place,
}

/// The body of a whole answer with status 200, which stands for one with 204 as well, or why there is none.
pub(crate) type BackendOutcome = Result<Vec<u8>, Failure>;

/// Gives back why the body cannot be used, if so.
type DoneFunction = Box<dyn FnOnce(BackendOutcome) -> Option<Failure> + Send>;

/// The receiver of an event's outcome, called exactly once, on the thread of the link; events without an
/// answer have none.
pub(crate) struct Done(Option<DoneFunction>);

/// The events in flight of some kinds.
#[derive(Debug, Default)]
struct Load(Mutex<Usages>);

#[derive(Debug, Default)]
struct Usages {
    all: Usage,
    /// Of those who have something in flight.
    owners: HashMap<OwnerId, Usage>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Usage {
    events: usize,
    bytes: usize,
}

/// The place of one event in a load, given back when it is dropped.
#[derive(Debug)]
struct Place {
    load: Arc<Load>,
    owner: OwnerId,
    bytes: usize,
}

/// Why a backend cannot be used. The caller's fault, but for [`BackendError::System`].
#[derive(Debug, thiserror::Error)]
pub(crate) enum BackendError {
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error(transparent)]
    System(#[from] io::Error),
}

impl Backend {
    pub(crate) fn new(config: BackendConfig) -> Self {
        let key = config.secret.as_ref();
        Self {
            key: key.map(|secret| hmac::Key::new(hmac::HMAC_SHA256, &secret.0)),
            config,
            counts: Counts::default(),
            inbox: Inbox::default(),
            loads: Default::default(),
            is_stopped: AtomicBool::new(false),
        }
    }

    /// Whether an event goes to the backend.
    #[inline]
    pub(crate) fn has(&self, event: BackendEvent) -> bool {
        self.config.events.has(event)
    }

    /// Sends an event of an owner, one JSON object, from any thread without waiting. `done` receives the answer,
    /// unless this fails. The span ends with the event.
    ///
    /// # Errors
    /// [`Failure::Full`], or [`Failure::Stopped`].
    pub(crate) fn submit(
        &self,
        event: BackendEvent,
        owner: OwnerId,
        body: Vec<u8>,
        done: Option<DoneFunction>,
        span: Option<Box<OpenSpan>>,
    ) -> Result<(), Failure> {
        if self.is_stopped() {
            return Err(Failure::Stopped);
        }
        let load = match event {
            BackendEvent::Message => &self.loads[1],
            BackendEvent::Disconnect => &self.loads[2],
            _ => &self.loads[0],
        };
        let Some(place) = load.enter(owner, body.len(), &self.config) else {
            self.counts.fail(event, &Failure::Full);
            if let Some(span) = span {
                span.fail(KINDS[Failure::Full.index()]);
            }
            return Err(Failure::Full);
        };
        self.inbox.push(Submission {
            event,
            body,
            done: Done(done),
            span,
            place,
        });
        Ok(())
    }

    /// Events in flight: those that wait for an answer, and the others.
    pub(crate) fn in_flight(&self) -> [usize; 2] {
        let [answered, messages, ends] = &self.loads;
        let count = |load: &Load| load.locked().all.events;
        [count(answered), count(messages) + count(ends)]
    }

    /// The link ends when it has sent what needs no answer, or cannot in a moment. Shards must have ended before.
    pub(crate) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Release);
        self.inbox.wake();
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Acquire)
    }

    pub(crate) fn connect(&self, waker: Waker) {
        self.inbox.connect(waker);
    }
}

/// The link of a backend, to be run on a thread of its own.
pub(crate) fn link(backend: &Arc<Backend>) -> Result<Shard<LinkHandler>, BackendError> {
    let config = &backend.config;
    let tls = match config.url.is_tls {
        true => Some(tls_config(config)?),
        false => None,
    };
    let route = Route::new(config.url.clone(), tls);
    let exchange = Exchange::new(Arc::clone(backend));
    let shard = ShardConfig {
        // A request waits whole until the backend reads it.
        outbox_bytes_max: config
            .in_flight_bytes_max
            .saturating_mul(2)
            .saturating_add(ShardConfig::default().outbox_bytes_max),
        ..ShardConfig::default()
    };
    let (mut link, mailbox) = Shard::new(&shard, LinkHandler::new(exchange, route))?;
    backend.connect(mailbox.waker());
    link.handler_mut().find_by(mailbox)?;
    Ok(link)
}

/// The certificate of the backend is checked always.
fn tls_config(config: &BackendConfig) -> Result<Arc<ClientConfig>, TlsError> {
    let authorities = config.authorities.as_deref();
    tls::client_config_for(&ClientIdentity {
        trust: authorities.map_or(Trust::WebRoots, Trust::File),
        certificate: None,
    })
}

/// Checks what [`link`] needs, without a thread or a socket.
pub(crate) fn check(config: &BackendConfig) -> Result<(), TlsError> {
    if config.url.is_tls {
        tls_config(config)?;
        tls::server_name(&config.url.host)?;
    }
    Ok(())
}

impl Submission {
    pub(crate) fn owner(&self) -> OwnerId {
        self.place.owner
    }
}

impl Load {
    /// A place, if there is room for all and in the owner's share of it.
    fn enter(
        self: &Arc<Self>,
        owner: OwnerId,
        bytes: usize,
        config: &BackendConfig,
    ) -> Option<Place> {
        let bytes = bytes + EVENT_BYTES;
        let (events_max, bytes_max) = (config.in_flight_max, config.in_flight_bytes_max);
        let mut usages = self.locked();
        if !usages.all.fits(bytes, events_max, bytes_max) {
            return None;
        }
        let own = usages.owners.entry(owner).or_default();
        if !own.fits(
            bytes,
            (events_max / SHARES).max(1),
            (bytes_max / SHARES).max(1),
        ) {
            return None;
        }
        own.add(bytes);
        usages.all.add(bytes);
        Some(Place {
            load: Arc::clone(self),
            owner,
            bytes,
        })
    }

    fn locked(&self) -> MutexGuard<'_, Usages> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Usage {
    /// A first event fits whatever its size is.
    fn fits(self, bytes: usize, events_max: usize, bytes_max: usize) -> bool {
        self.events < events_max
            && (self.events == 0 || self.bytes.saturating_add(bytes) <= bytes_max)
    }

    fn add(&mut self, bytes: usize) {
        self.events += 1;
        self.bytes += bytes;
    }

    fn subtract(&mut self, bytes: usize) {
        self.events -= 1;
        self.bytes -= bytes;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut usages = self.load.locked();
        usages.all.subtract(self.bytes);
        if let Entry::Occupied(mut own) = usages.owners.entry(self.owner) {
            own.get_mut().subtract(self.bytes);
            if own.get().events == 0 {
                own.remove();
            }
        }
    }
}

impl Done {
    /// Why the answer cannot be used, if so.
    pub(crate) fn tell(mut self, outcome: BackendOutcome) -> Option<Failure> {
        self.0.take().and_then(|done| done(outcome))
    }
}

impl Drop for Done {
    fn drop(&mut self) {
        if let Some(done) = self.0.take() {
            done(Err(Failure::Stopped));
        }
    }
}

impl fmt::Debug for Done {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Done(..)")
    }
}

/// One owner has at most this part of what may be in flight.
const SHARES: usize = 4;

/// The approximate overhead of an event besides its body, in bytes.
const EVENT_BYTES: usize = 256;

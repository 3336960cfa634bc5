//! State that the task of a client and the application's handles share.

pub(crate) mod calls;
pub(crate) mod inbox;
pub(crate) mod life;

use crate::clock::Clock;
use crate::clock::Moment;
use crate::command::Command;
use crate::config::Config;
use crate::endpoints::{EndpointHealth, Endpoints};
use crate::error::Error;
use crate::outbox::Outbox;
use crate::payload::{BINARY, Payload};
use crate::quality::{Quality, QualityMeter};
use crate::shared::calls::Calls;
use crate::shared::inbox::Inbox;
use crate::shared::life::{ClientState, Life};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub(crate) struct Shared {
    pub(crate) config: Arc<Config>,
    pub(crate) life: Life,
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) inbox: Inbox,
    pub(crate) calls: Calls,
    quality: Mutex<Quality>,
    endpoints: Mutex<Endpoints>,
    /// The endpoint that is being tried, and since when.
    current: Mutex<Option<(usize, u64)>>,
    clock: Clock,
    /// The beginning of the ids of this client's publications.
    id_prefix: String,
    ids: AtomicU64,
    /// The server of the session has no binary payloads.
    refuses_binary: AtomicBool,
}

impl Shared {
    /// A request has timed out: a dead network is found out soon. Without room for the probe, something else is on its
    /// way. Gives the error for the caller.
    pub(crate) fn handle_request_timeout(&self) -> Error {
        let _ = self.outbox.try_command(Box::new(Command::Probe));
        Error::TimedOut
    }

    pub(crate) fn new(config: Arc<Config>, id_prefix: String) -> Self {
        let breaker = config.effective_breaker();
        let endpoints = Endpoints::new(config.endpoints.clone(), config.choice, &breaker);
        let outbox = Arc::new(Outbox::new(config.outbox_bytes_max));
        Self {
            life: Life::new(),
            inbox: Inbox::new(config.inbox_bytes_max),
            calls: Calls::new(config.requests_max, outbox.clone()),
            outbox,
            quality: Mutex::new(QualityMeter::default().quality(0)),
            endpoints: Mutex::new(endpoints),
            current: Mutex::default(),
            clock: Clock::start(),
            id_prefix,
            ids: AtomicU64::new(0),
            refuses_binary: AtomicBool::new(false),
            config,
        }
    }

    /// Ends the client, for everybody: nothing is sent or received any more, and nothing waits any longer.
    pub(crate) fn end(&self, reason: Error) {
        self.outbox.close(&reason.clone().into_closed());
        self.life.end(reason);
        self.inbox.close();
    }

    /// The error for a call to a client that has ended.
    pub(crate) fn closed_error(&self) -> Error {
        let reason = self.life.reason();
        reason.map_or_else(Error::closed_by_application, Error::into_closed)
    }

    /// An idempotency key that nobody else uses.
    pub(crate) fn next_id(&self) -> String {
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        format!("{}-{id}", self.id_prefix)
    }

    pub(crate) fn moment(&self) -> Moment {
        self.clock.moment()
    }

    /// An endpoint is being tried.
    pub(crate) fn handle_attempt(&self, endpoint: usize) {
        *lock(&self.current) = Some((endpoint, self.moment().ms()));
    }

    /// Checks that the server of the session accepts this payload. Without a session that is not known yet.
    pub(crate) fn check_binary(&self, payload: &Payload<'_>) -> Result<(), Error> {
        let is_refused = payload.is_binary()
            && self.refuses_binary.load(Ordering::Acquire)
            && self.life.is_connected();
        if is_refused {
            return Err(Error::Unsupported(BINARY));
        }
        Ok(())
    }

    /// A server has let this client in.
    pub(crate) fn handle_accepted(&self, takes_binary: bool) {
        self.refuses_binary.store(!takes_binary, Ordering::Release);
        self.life.set_state(ClientState::Connected);
    }

    pub(crate) fn handle_established(&self) {
        if let Some((index, since_ms)) = lock(&self.current).take() {
            let connect_ms = self.moment().ms().saturating_sub(since_ms);
            lock(&self.endpoints).handle_success(index, connect_ms);
        }
    }

    /// Whether the endpoint that is being tried has given a session.
    pub(crate) fn has_succeeded(&self) -> bool {
        lock(&self.current).is_none()
    }

    pub(crate) fn with_endpoints<T>(&self, work: impl FnOnce(&mut Endpoints) -> T) -> T {
        work(&mut lock(&self.endpoints))
    }

    pub(crate) fn set_quality(&self, quality: Quality) {
        *lock(&self.quality) = quality;
    }

    pub(crate) fn quality(&self) -> Quality {
        *lock(&self.quality)
    }

    pub(crate) fn endpoints(&self) -> Vec<EndpointHealth> {
        lock(&self.endpoints).health(self.moment().ms())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic while it was held cannot have left it half changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

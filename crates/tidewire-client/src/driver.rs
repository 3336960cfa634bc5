//! The task of a client: connects, runs the connection, and decides what comes after it.

use crate::Error;
use crate::backoff::{Attempt, Backoff};
use crate::config::{Config, Token};
use crate::connect::{Connector, Opened};
use crate::connection;
use crate::counts::{Counted, connections};
use crate::endpoints::{EndpointHealth, Endpoints};
use crate::error::Ending;
use crate::event::BatchBuilder;
use crate::inbox::Inbox;
use crate::outbox::{Burst, Outbox};
use crate::quality::{Quality, QualityMeter};
use crate::queue::worker::StoreEvent;
use crate::session::{Hints, Moment, Session};
use rand::RngCore as _;
use rand::rngs::StdRng;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tidewire_wire::close::CloseCode;
use tidewire_wire::codes::{Condition, Retry};
use tidewire_wire::session::Now;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until, timeout_at};

/// How a client stands.
#[derive(Debug, Clone, PartialEq)]
pub enum State {
    /// A connection is being opened.
    Connecting,
    /// A server has let this client in.
    Connected,
    /// The connection is gone; the next one is tried later.
    Waiting,
    /// There will be no further connection, for this reason.
    Closed(Error),
}

/// What the driver and the application's handles have in common.
pub(crate) struct Shared {
    pub(crate) config: Arc<Config>,
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) inbox: Inbox,
    pub(crate) close: CloseRequest,
    pub(crate) state: watch::Sender<State>,
    quality: Mutex<Quality>,
    endpoints: Mutex<Endpoints>,
    /// The endpoint that is being tried, and since when.
    current: Mutex<Option<(usize, u64)>>,
    started: Instant,
    /// What the ids of this client's publications begin with.
    id_prefix: String,
    ids: AtomicU64,
}

/// The application's wish to end the connection.
#[derive(Debug, Default)]
pub(crate) struct CloseRequest {
    wanted: Mutex<Option<(CloseCode, String)>>,
    notify: Notify,
}

impl Shared {
    pub(crate) fn new(config: Arc<Config>, id_prefix: String) -> Self {
        let endpoints = Endpoints::new(config.endpoints.clone(), config.choice, &config.breaker);
        Self {
            outbox: Arc::new(Outbox::new(config.outbox_bytes_max)),
            inbox: Inbox::new(config.inbox_bytes_max),
            close: CloseRequest::default(),
            state: watch::Sender::new(State::Connecting),
            quality: Mutex::new(QualityMeter::default().quality(0)),
            endpoints: Mutex::new(endpoints),
            current: Mutex::default(),
            started: Instant::now(),
            id_prefix,
            ids: AtomicU64::new(0),
            config,
        }
    }

    /// An idempotency key that nobody else uses.
    pub(crate) fn next_id(&self) -> String {
        format!(
            "{}-{}",
            self.id_prefix,
            self.ids.fetch_add(1, Ordering::Relaxed)
        )
    }

    pub(crate) fn moment(&self) -> Moment {
        let us = u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX);
        let unix = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Moment {
            now: Now {
                monotonic_ms: us / 1_000,
                unix_ms: unix.as_millis() as u64,
            },
            us,
        }
    }

    /// A server has let this client in.
    pub(crate) fn handle_accepted(&self) {
        self.state.send_replace(State::Connected);
    }

    pub(crate) fn handle_established(&self) {
        if let Some((index, since_ms)) = lock(&self.current).take() {
            let connect_ms = self.moment().ms().saturating_sub(since_ms);
            lock(&self.endpoints).handle_success(index, connect_ms);
        }
    }

    /// Nothing is sent or received any more.
    fn close_for(&self, words: &str, reason: Error) {
        self.outbox.close(words);
        self.state.send_replace(State::Closed(reason));
        self.inbox.close();
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

impl CloseRequest {
    /// Asks for an end; the first request counts.
    pub(crate) fn request(&self, code: CloseCode, reason: &str) {
        lock(&self.wanted).get_or_insert_with(|| (code, reason.to_owned()));
        self.notify.notify_waiters();
    }

    pub(crate) fn is_requested(&self) -> bool {
        lock(&self.wanted).is_some()
    }

    pub(crate) fn code_and_reason(&self) -> (CloseCode, String) {
        lock(&self.wanted)
            .clone()
            .unwrap_or((CloseCode::NORMAL, String::new()))
    }

    /// Returns when an end has been asked for.
    pub(crate) async fn requested(&self) {
        loop {
            let waiting = self.notify.notified();
            tokio::pin!(waiting);
            waiting.as_mut().enable();
            if self.is_requested() {
                return;
            }
            waiting.await;
        }
    }
}

/// The task of one client.
pub(crate) struct Driver {
    pub(crate) shared: Arc<Shared>,
    pub(crate) connector: Connector,
    pub(crate) session: Session,
    pub(crate) store: UnboundedReceiver<StoreEvent>,
    pub(crate) random: StdRng,
    /// How many attempts may fail before the first session; `None` for as many as the policy allows.
    pub(crate) first_attempts: Option<usize>,
}

/// What became of an attempt, and what to do next.
#[derive(Debug)]
struct Outcome {
    ending: Ending,
    next: Next,
    /// The same for those who wait for the first session.
    error: Error,
}

#[derive(Debug, Clone, PartialEq)]
enum Next {
    /// There is no point in another attempt.
    Stop,
    /// After a back-off, and no sooner than the server asked for.
    Retry { hint_ms: Option<u64> },
    /// After exactly so long.
    At(u64),
}

impl Drop for Driver {
    /// A panic, such as one of the application's in its token provider, or the end of the runtime: nobody may wait
    /// for a client without a task.
    fn drop(&mut self) {
        if !matches!(*self.shared.state.borrow(), State::Closed(_)) {
            let words = "its task has ended before it was closed".to_owned();
            self.shared.close_for(&words, Error::Closed(words.clone()));
        }
    }
}

impl Driver {
    /// Runs until the client is closed or gives up.
    pub(crate) async fn run(mut self) {
        let mut burst = Burst::default();
        let reason = self.work(&mut burst).await;
        let words = match &reason {
            Error::Closed(words) => words.clone(),
            other => other.to_string(),
        };
        burst.fail(&Error::Closed(words.clone()));
        self.session.handle_over(&words);
        self.session.close_store().await;
        self.shared.close_for(&words, reason);
    }

    async fn work(&mut self, burst: &mut Burst) -> Error {
        let policy = self.shared.config.reconnect.clone();
        let mut backoff = Backoff::new(policy.clone().unwrap_or_default());
        loop {
            self.shared.state.send_replace(State::Connecting);
            let Outcome {
                ending,
                next,
                error,
            } = self.attempt(burst, &mut backoff).await;
            let now_ms = self.shared.moment().ms();
            let attempt = match next {
                _ if self.shared.close.is_requested() => Attempt::GiveUp,
                _ if self.is_first_over() || policy.is_none() => Attempt::GiveUp,
                Next::Stop => Attempt::GiveUp,
                // A second time in a row it would be a storm that the server's word makes.
                Next::At(after_ms) if backoff.failures() > 0 => {
                    backoff.next(Some(after_ms), now_ms, self.random.next_u64())
                }
                Next::At(after_ms) => backoff.next_at(after_ms, now_ms),
                Next::Retry { hint_ms } => backoff.next(hint_ms, now_ms, self.random.next_u64()),
            };
            let Attempt::After(wait_ms) = attempt else {
                self.tell_end(&ending, None);
                return if self.shared.close.is_requested() {
                    by_application()
                } else {
                    error
                };
            };
            // The first session is waited for: another endpoint is tried at once.
            let wait_ms = if self.first_attempts.is_some() {
                0
            } else {
                wait_ms
            };
            self.tell_end(&ending, Some(Duration::from_millis(wait_ms)));
            self.shared.state.send_replace(State::Waiting);
            self.wait(wait_ms).await;
            if self.shared.close.is_requested() {
                return by_application();
            }
        }
    }

    /// Opens one connection and runs it to its end.
    async fn attempt(&mut self, burst: &mut Burst, backoff: &mut Backoff) -> Outcome {
        let shared = self.shared.clone();
        let (now_ms, random) = (shared.moment().ms(), self.random.next_u64());
        let urls = shared
            .config
            .endpoints
            .iter()
            .map(|endpoint| endpoint.url.as_str());
        let chosen = lock(&shared.endpoints).choose(now_ms, random, &connections(urls));
        let index = match chosen {
            Ok(index) => index,
            Err(wait_ms) => {
                let words = "every endpoint has failed too often";
                return Outcome {
                    ending: Ending::lost(words),
                    next: Next::At(wait_ms),
                    error: Error::connect(words),
                };
            }
        };
        let url = lock(&shared.endpoints).url(index).to_owned();
        *lock(&shared.current) = Some((index, now_ms));
        let deadline = Instant::now() + shared.config.connect_timeout;
        let opened = tokio::select! {
            opened = timeout_at(deadline, self.open(&url)) => {
                opened.unwrap_or_else(|_| Err(Error::connect(format!("{url}: no answer in time"))))
            }
            () = shared.close.requested() => Err(by_application()),
        };
        let opened = opened.and_then(|opened| {
            self.session
                .handle_connected(url.clone(), opened.deflate, shared.moment())?;
            Ok(opened)
        });
        let opened = match opened {
            Ok(opened) => opened,
            Err(error) => {
                lock(&shared.endpoints).handle_failure(index, shared.moment().ms());
                let ending = Ending::lost(error.to_string());
                return Outcome {
                    ending,
                    next: self.after_failure(&error),
                    error,
                };
            }
        };
        let _counted = Counted::new(&url);
        let began_ms = shared.moment().ms();
        let (session, store) = (&mut self.session, &mut self.store);
        let ending = connection::run(opened, deadline, &shared, session, burst, store).await;
        let hints = self.session.handle_disconnected();
        let lasted_ms = shared.moment().ms() - began_ms;
        self.judge(index, &ending, hints, lasted_ms, backoff);
        let next = self.after_ending(&ending, hints);
        let error = Error::connect(format!("{url}: {}", ending.reason));
        Outcome {
            ending,
            next,
            error,
        }
    }

    /// Takes note of how an endpoint did.
    fn judge(
        &mut self,
        index: usize,
        ending: &Ending,
        hints: Hints,
        lasted_ms: u64,
        backoff: &mut Backoff,
    ) {
        let now_ms = self.shared.moment().ms();
        if *self.shared.state.borrow() == State::Connected {
            // Who waited for the first session has been told.
            self.first_attempts = None;
        }
        // A server that takes clients only to lose them at once is no success for the back-off.
        if hints.was_established && lasted_ms >= STEADY_MS {
            backoff.handle_success();
        }
        // One that ended in the moment in which it was established did not count as a success.
        let was_success = hints.was_established && lock(&self.shared.current).is_none();
        let was_lost = !ending.by_server && lasted_ms < STEADY_MS;
        if !was_success || was_lost {
            lock(&self.shared.endpoints).handle_failure(index, now_ms);
        }
    }

    async fn open(&mut self, url: &str) -> Result<Opened, Error> {
        let config = self.shared.config.clone();
        let token = match &config.token {
            Token::None => None,
            Token::Fixed(token) => Some(token.clone()),
            Token::Provider(provider) => {
                let token = provider().await;
                Some(token.map_err(|words| Error::connect(format!("no token: {words}")))?)
            }
        };
        let mut key = [0; 16];
        self.random.fill_bytes(&mut key);
        self.connector
            .open(&config, url, token.as_deref(), &key)
            .await
    }

    /// Until the first session as many attempts may fail as there are endpoints, if somebody waits for it.
    fn is_first_over(&mut self) -> bool {
        let Some(left) = &mut self.first_attempts else {
            return false;
        };
        *left = left.saturating_sub(1);
        *left == 0
    }

    fn after_failure(&self, error: &Error) -> Next {
        match error {
            Error::Invalid(_) | Error::Closed(_) => Next::Stop,
            Error::Unauthorized(_) => self.with_another_token(),
            _ => Next::Retry {
                hint_ms: error.retry_after().map(|after| after.as_millis() as u64),
            },
        }
    }

    /// What the close code, or its range, says (section 16.3 of the protocol).
    fn after_ending(&self, ending: &Ending, hints: Hints) -> Next {
        let retry = match ending.code {
            Some(code) if ending.by_server => code.reconnect(),
            _ => Retry::Yes,
        };
        match (retry, hints.reconnect_after_ms) {
            (Retry::No | Retry::After(Condition::KeyExchange), _) => Next::Stop,
            (Retry::After(Condition::NewToken), _) => self.with_another_token(),
            (_, Some(after_ms)) => Next::At(after_ms),
            (_, None) => Next::Retry {
                hint_ms: hints.retry_after_ms,
            },
        }
    }

    fn with_another_token(&self) -> Next {
        match self.shared.config.token {
            Token::Provider(_) => Next::Retry { hint_ms: None },
            Token::None | Token::Fixed(_) => Next::Stop,
        }
    }

    fn tell_end(&self, ending: &Ending, retry_in: Option<Duration>) {
        let mut batch = BatchBuilder::new(self.session.serial());
        batch.push(Session::disconnected(ending, retry_in));
        self.shared.inbox.push(batch);
    }

    /// Waits for the next attempt, or until the application closes the client. The store goes on meanwhile.
    async fn wait(&mut self, wait_ms: u64) {
        let until = Instant::now() + Duration::from_millis(wait_ms);
        loop {
            tokio::select! {
                () = sleep_until(until) => return,
                () = self.shared.close.requested() => return,
                Some(event) = self.store.recv() => {
                    let mut batch = BatchBuilder::new(self.session.serial());
                    let moment = self.shared.moment();
                    // Without a connection nothing is written, and so nothing fails.
                    let _ = self.session.handle_store(event, moment, &mut Vec::new(), &mut batch);
                    self.shared.inbox.push(batch);
                }
            }
        }
    }
}

fn by_application() -> Error {
    Error::Closed("by the application".to_owned())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic while it was held cannot have left it half changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A session that lasted so long was no failure.
const STEADY_MS: u64 = 5_000;

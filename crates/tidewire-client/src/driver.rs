//! The task of a client: connects, runs the connection, and decides the next step after it.

pub(crate) mod connect;
mod connection;
mod counts;
pub(crate) mod dial;

use crate::backoff::{Attempt, Backoff};
use crate::clock::after;
use crate::config::Token;
use crate::driver::connect::Opened;
use crate::driver::counts::{Counted, connections};
use crate::driver::dial::Dialer;
use crate::error::Ending;
use crate::error::Error;
use crate::event::BatchBuilder;
use crate::outbox::Burst;
use crate::queue::job::StoreEvent;
use crate::session::{Hints, Session};
use crate::shared::Shared;
use crate::shared::life::ClientState;
use rand::RngCore as _;
use rand::rngs::StdRng;
use std::sync::Arc;
use std::time::Duration;
use tidewire_wire::codes::{Condition, Retry};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, sleep_until, timeout_at};

/// The task of one client.
pub(crate) struct Driver {
    pub(crate) shared: Arc<Shared>,
    pub(crate) dialer: Dialer,
    pub(crate) session: Session,
    pub(crate) store: UnboundedReceiver<StoreEvent>,
    pub(crate) random: StdRng,
    /// Before the first session, if somebody waits for it: the endpoints that were tried. Each is tried once.
    pub(crate) first_round: Option<Vec<usize>>,
}

/// The outcome of an attempt, and the next step.
#[derive(Debug)]
struct AttemptOutcome {
    ending: Ending,
    next: Next,
    /// The same as the reason why the client ends, if it does.
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
    /// The end of a client that was not closed: a panic, such as one of the application's in its token provider, or the
    /// end of the runtime. Nobody may wait for a client without a task, and no file be held for it.
    fn drop(&mut self) {
        if self.shared.life.reason().is_none() {
            self.session.abandon_store();
            let words = "its task has ended before it was closed";
            self.shared.end(Error::Closed(words.to_owned()));
        }
    }
}

impl Driver {
    /// Runs until the client is closed or gives up.
    pub(crate) async fn run(mut self) {
        let mut burst = Burst::default();
        let reason = self.work(&mut burst).await;
        let closed = reason.clone().into_closed();
        burst.fail(&closed);
        self.session.handle_over(&closed);
        self.session.close_store().await;
        self.shared.end(reason);
    }

    /// Opens one connection after another; why there is no further one.
    async fn work(&mut self, burst: &mut Burst) -> Error {
        let policy = self.shared.config.reconnect.clone();
        let mut backoff = Backoff::new(policy.clone().unwrap_or_default());
        loop {
            let endpoint = match self.choose() {
                Ok(endpoint) => endpoint,
                // Only if a clock is coarser than it should be: the last wait went on until one may be tried.
                Err(wait_ms) => {
                    self.wait(wait_ms).await;
                    if self.shared.life.is_closing() {
                        return Error::closed_by_application();
                    }
                    continue;
                }
            };
            self.shared.life.set_state(ClientState::Connecting);
            let AttemptOutcome {
                ending,
                next,
                error,
            } = self.attempt(endpoint, burst, &mut backoff).await;
            let now_ms = self.shared.moment().ms();
            let attempt = match next {
                _ if self.shared.life.is_closing() => Attempt::GiveUp,
                _ if self.is_first_round_over() || policy.is_none() => Attempt::GiveUp,
                Next::Stop => Attempt::GiveUp,
                // A second time in a row it would be a storm that the server's word makes.
                Next::At(after_ms) if backoff.failures() > 0 => {
                    backoff.next(Some(after_ms), now_ms, self.random.next_u64())
                }
                Next::At(after_ms) => backoff.next_at(after_ms, now_ms),
                Next::Retry { hint_ms } => backoff.next(hint_ms, now_ms, self.random.next_u64()),
            };
            let Attempt::After(backoff_ms) = attempt else {
                self.report_end(&ending, None);
                return if self.shared.life.is_closing() {
                    Error::closed_by_application()
                } else {
                    error
                };
            };
            let wait_ms = self.wait_ms(backoff_ms);
            self.report_end(&ending, Some(Duration::from_millis(wait_ms)));
            self.shared.life.set_state(ClientState::Waiting);
            self.wait(wait_ms).await;
            if self.shared.life.is_closing() {
                return Error::closed_by_application();
            }
        }
    }

    /// The endpoint for the next attempt, or how long none may be tried.
    fn choose(&mut self) -> Result<usize, u64> {
        let (now_ms, random) = (self.shared.moment().ms(), self.random.next_u64());
        let endpoints = &self.shared.config.endpoints;
        let urls = endpoints.iter().map(|endpoint| endpoint.url.as_str());
        let connections = connections(urls);
        let tried = self.first_round.as_deref().unwrap_or_default();
        let chosen = self
            .shared
            .with_endpoints(|endpoints| endpoints.choose(now_ms, random, &connections, tried))?;
        if let Some(tried) = &mut self.first_round {
            tried.push(chosen);
        }
        Ok(chosen)
    }

    /// The wait before the next attempt: the back-off, or longer until a circuit breaker allows an attempt.
    fn wait_ms(&self, backoff_ms: u64) -> u64 {
        // The first session is waited for: another endpoint is tried at once.
        if self.first_round.is_some() {
            return 0;
        }
        let now_ms = self.shared.moment().ms();
        let breaker_ms = self
            .shared
            .with_endpoints(|endpoints| endpoints.wait_ms(now_ms));
        backoff_ms.max(breaker_ms)
    }

    /// Opens one connection and runs it to its end.
    async fn attempt(
        &mut self,
        endpoint: usize,
        burst: &mut Burst,
        backoff: &mut Backoff,
    ) -> AttemptOutcome {
        let shared = self.shared.clone();
        let url = shared.config.endpoints[endpoint].url.clone();
        shared.handle_attempt(endpoint);
        let deadline = after(shared.config.connect_timeout);
        let opened = self.open(&url, deadline).await.and_then(|opened| {
            self.session
                .handle_connected(url.clone(), opened.deflate, shared.moment())?;
            Ok(opened)
        });
        let opened = match opened {
            Ok(opened) => opened,
            Err(error) => {
                let now_ms = shared.moment().ms();
                shared.with_endpoints(|endpoints| endpoints.handle_failure(endpoint, now_ms));
                return AttemptOutcome {
                    ending: Ending::lost(error.to_string()),
                    next: self.after_failure(&error),
                    error,
                };
            }
        };
        let _counted = Counted::new(&url);
        let began_ms = shared.moment().ms();
        let (session, store) = (&mut self.session, &mut self.store);
        let dialer = &mut self.dialer;
        let ending =
            connection::run(opened, deadline, &shared, session, burst, dialer, store).await;
        let hints = self.session.handle_disconnected();
        let lasted_ms = shared.moment().ms() - began_ms;
        self.judge(endpoint, &ending, hints, lasted_ms, backoff);
        AttemptOutcome {
            next: self.after_ending(&ending, hints),
            error: reason_of_end(&url, &ending, shared.life.is_connected()),
            ending,
        }
    }

    /// Opens a connection in time, unless the application closes the client. The store goes on meanwhile.
    async fn open(&mut self, url: &str, deadline: Instant) -> Result<Opened, Error> {
        let shared = self.shared.clone();
        let dial = timeout_at(deadline, self.dialer.dial(url));
        tokio::pin!(dial);
        loop {
            tokio::select! {
                opened = &mut dial => {
                    let late = || Error::connect(format!("{url}: no answer in time"));
                    return opened.unwrap_or_else(|_| Err(late()));
                }
                () = shared.life.closing() => return Err(Error::closed_by_application()),
                Some(event) = self.store.recv() => handle_store(&shared, &mut self.session, event),
            }
        }
    }

    /// Records the result of an attempt at an endpoint.
    fn judge(
        &mut self,
        endpoint: usize,
        ending: &Ending,
        hints: Hints,
        lasted_ms: u64,
        backoff: &mut Backoff,
    ) {
        let shared = &self.shared;
        if shared.life.is_connected() {
            // The callers that waited for the first session have their answer.
            self.first_round = None;
        }
        // If the server accepts the client and ends the connection at once, the back-off counts no success.
        if hints.was_established && lasted_ms >= STEADY_MS {
            backoff.handle_success();
        }
        // One that ended in the moment in which it was established did not count as a success.
        let was_success = hints.was_established && shared.has_succeeded();
        let was_lost = !ending.by_server && lasted_ms < STEADY_MS;
        if !was_success || was_lost {
            let now_ms = shared.moment().ms();
            shared.with_endpoints(|endpoints| endpoints.handle_failure(endpoint, now_ms));
        }
    }

    /// Whether somebody waits for the first session, and every endpoint has been tried for it.
    fn is_first_round_over(&self) -> bool {
        let count = self.shared.config.endpoints.len();
        self.first_round
            .as_ref()
            .is_some_and(|tried| tried.len() >= count)
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

    /// The reconnect policy of the close code, or of its range (section 16.3 of the protocol).
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

    fn report_end(&self, ending: &Ending, retry_in: Option<Duration>) {
        let mut batch = BatchBuilder::new(self.session.serial());
        batch.push(Session::disconnected(ending, retry_in));
        self.shared.inbox.push(batch);
    }

    /// Waits for the next attempt, or until the application closes the client. The store goes on meanwhile.
    async fn wait(&mut self, wait_ms: u64) {
        let until = after(Duration::from_millis(wait_ms));
        loop {
            tokio::select! {
                () = sleep_until(until) => return,
                () = self.shared.life.closing() => return,
                Some(event) = self.store.recv() => {
                    handle_store(&self.shared, &mut self.session, event);
                }
            }
        }
    }
}

/// Handles the events of the store while there is no connection.
fn handle_store(shared: &Shared, session: &mut Session, event: StoreEvent) {
    let mut batch = BatchBuilder::new(session.serial());
    // Without a connection nothing is written, and so nothing fails.
    let _ = session.handle_store(event, shared.moment(), &mut Vec::new(), &mut batch);
    shared.inbox.push(batch);
}

/// Why a client ends with this connection, if it does. One that nobody has seen connected was not.
fn reason_of_end(url: &str, ending: &Ending, was_connected: bool) -> Error {
    if !was_connected {
        return Error::connect(format!("{url}: {}", ending.reason));
    }
    let code = ending.code.map(|code| code.value());
    let reason = match code {
        Some(code) => format!("{} ({code})", ending.reason),
        None => ending.reason.clone(),
    };
    Error::Ended { code, reason }
}

/// A session that lasted so long was no failure.
const STEADY_MS: u64 = 5_000;

//! The fetching of a set of keys without sockets: when, with which request, and what becomes of the answer. Bytes and
//! the time in; connections to open, bytes and a deadline out.

use crate::auth::jwks::SET_BYTES_MAX;
use crate::auth::key_set::{KeySet, KeySetUrl, Wish};
use crate::model::url::HttpUrl;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tidewire_http::response::{self, Event, Expected};
use tidewire_http::{BodyLength, RequestHead, ResponseHeads, ResponseReader};
use tidewire_net::Now;

/// A request to the sockets.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Open,
    Send(Vec<u8>),
    Close,
}

/// The fetches of one set, one at a time, each over a connection of its own.
#[derive(Debug)]
pub(crate) struct Fetch {
    set: Arc<KeySet>,
    url: HttpUrl,
    refresh_ms: u64,
    stage: Stage,
    /// When the next fetch begins.
    next_ms: u64,
    /// When the last one began.
    begun_ms: Option<u64>,
    /// Failures since the last set.
    failures: u32,
    /// When a failure was logged last.
    warned_ms: Option<u64>,
    /// The last set as text. The same again changes nothing.
    text: Vec<u8>,
    heads: ResponseHeads,
}

#[derive(Debug)]
enum Stage {
    Idle,
    /// The connection is being opened, until a time at most.
    Opening {
        due_ms: u64,
    },
    /// The request is sent.
    Reading {
        due_ms: u64,
        reader: Box<ResponseReader>,
        body: Vec<u8>,
    },
}

impl Fetch {
    pub(crate) fn new(set: Arc<KeySet>, source: &KeySetUrl) -> Self {
        let limits = response::Limits {
            head_bytes_max: HEAD_BYTES_MAX,
            ..response::Limits::default()
        };
        Self {
            set,
            url: source.url.clone(),
            refresh_ms: source.refresh_s.clamp(1, REFRESH_S_MAX) * 1_000,
            stage: Stage::Idle,
            next_ms: 0,
            begun_ms: None,
            failures: 0,
            warned_ms: None,
            text: Vec::new(),
            heads: ResponseHeads::new(limits),
        }
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.set.is_stopped()
    }

    /// Whether a connection is to be opened or is being opened.
    pub(crate) fn is_opening(&self) -> bool {
        matches!(self.stage, Stage::Opening { .. })
    }

    /// When the next turn is due.
    pub(crate) fn deadline_ms(&self) -> u64 {
        match self.stage {
            Stage::Idle => self.next_ms,
            Stage::Opening { due_ms } | Stage::Reading { due_ms, .. } => due_ms,
        }
    }

    /// Begins a fetch that is due, and ends one that is overdue.
    pub(crate) fn turn(&mut self, now: Now) -> Option<Action> {
        match self.set.take_wish() {
            Wish::None => {}
            Wish::Early => {
                let soonest_ms = self.begun_ms.map_or(0, |begun| begun + EARLY_MS);
                self.next_ms = self.next_ms.min(soonest_ms);
            }
            Wish::Now => self.next_ms = now.monotonic_ms,
        }
        match self.stage {
            Stage::Idle if self.next_ms <= now.monotonic_ms => {
                self.begun_ms = Some(now.monotonic_ms);
                self.next_ms = u64::MAX;
                let due_ms = now.monotonic_ms + PATIENCE_MS;
                self.stage = Stage::Opening { due_ms };
                Some(Action::Open)
            }
            Stage::Opening { due_ms } if due_ms <= now.monotonic_ms => {
                self.fail("no connection in time", now);
                Some(Action::Close)
            }
            Stage::Reading { due_ms, .. } if due_ms <= now.monotonic_ms => {
                self.fail("no whole answer in time", now);
                Some(Action::Close)
            }
            _ => None,
        }
    }

    pub(crate) fn connected(&mut self) -> Option<Action> {
        let Stage::Opening { due_ms } = self.stage else {
            return None;
        };
        self.stage = Stage::Reading {
            due_ms,
            reader: Box::new(ResponseReader::new()),
            body: Vec::new(),
        };
        Some(Action::Send(self.request()))
    }

    fn request(&self) -> Vec<u8> {
        let head = RequestHead {
            method: "GET",
            target: &self.url.target,
            host: &self.url.host_value(),
            headers: &[
                ("Accept", "application/json, application/jwk-set+json"),
                ("User-Agent", USER_AGENT),
                ("Connection", "close"),
            ],
            body: BodyLength::None,
        };
        let mut bytes = Vec::new();
        head.write(&mut bytes)
            .expect("the URL was checked, and the other fields are made here");
        bytes
    }

    /// Reads bytes of the answer. Returns how many of them are consumed; the caller passes the others again.
    pub(crate) fn received(&mut self, data: &[u8], now: Now) -> (usize, Option<Action>) {
        let close = (data.len(), Some(Action::Close));
        let Stage::Reading { reader, body, .. } = &mut self.stage else {
            return close;
        };
        let mut used = 0;
        let failure = loop {
            let rest = &data[used..];
            let step = match reader.read(&mut self.heads, rest, Expected::Ordinary) {
                Ok(step) => step,
                Err(error) => break error.to_string(),
            };
            used += step.consumed;
            match step.event {
                Event::More if step.consumed == 0 || used == data.len() => return (used, None),
                Event::More | Event::Interim { .. } | Event::Head(_) => {}
                Event::Body(bytes) if body.len() + bytes.len() > SET_BYTES_MAX => {
                    break format!("the answer has more than {SET_BYTES_MAX} bytes");
                }
                Event::Body(bytes) => body.extend_from_slice(bytes),
                Event::Done(response) => {
                    let body = std::mem::take(body);
                    self.answered(response.status, body, now);
                    return close;
                }
            }
        };
        self.fail(&failure, now);
        close
    }

    /// The connection has ended, or could not be opened.
    pub(crate) fn closed(&mut self, reason: &str, is_clean: bool, now: Now) {
        match &mut self.stage {
            Stage::Idle => {}
            Stage::Opening { .. } => self.fail(reason, now),
            Stage::Reading { reader, body, .. } => match reader.finish(is_clean) {
                Ok(Some(response)) => {
                    let body = std::mem::take(body);
                    self.answered(response.status, body, now);
                }
                _ => self.fail(&format!("no whole answer: {reason}"), now),
            },
        }
    }

    /// A whole answer.
    fn answered(&mut self, status: u16, body: Vec<u8>, now: Now) {
        match status {
            200 => {}
            300..=399 => {
                let reason =
                    format!("status {status}; redirects are not followed, give the final URL");
                return self.fail(&reason, now);
            }
            status => return self.fail(&format!("status {status}"), now),
        }
        if body != self.text {
            match self.set.accept(&body) {
                Ok(problems) => self.report(&problems),
                Err(reason) => return self.fail(&reason, now),
            }
            self.text = body;
        }
        if self.failures > 0 {
            tracing::info!(url = %self.url.without_query(), "the keys of tokens can be fetched again");
        }
        let counts = &self.set.counts;
        counts.fetched.fetch_add(1, Ordering::Relaxed);
        counts.fetched_unix_ms.store(now.unix_ms, Ordering::Relaxed);
        self.failures = 0;
        self.rest(self.refresh_ms, now);
    }

    fn report(&self, problems: &[String]) {
        let keys = self.set.keys().len();
        tracing::info!(url = %self.url.without_query(), keys, "the keys of tokens are those of the set");
        for problem in problems {
            tracing::warn!(url = %self.url.without_query(), "a key of the set is left out: {problem}");
        }
    }

    /// This fetch brings no set: the keys stay. Logged at most once a minute.
    fn fail(&mut self, reason: &str, now: Now) {
        self.set.counts.failed.fetch_add(1, Ordering::Relaxed);
        let is_silent = self
            .warned_ms
            .is_some_and(|last| now.monotonic_ms < last + WARN_MS);
        if !is_silent {
            self.warned_ms = Some(now.monotonic_ms);
            let words = match self.set.is_loaded() {
                true => "those from before stay in force",
                false => "the server accepts nobody until it has some",
            };
            tracing::warn!(
                url = %self.url.without_query(),
                "the keys of tokens cannot be fetched, {words}: {reason}",
            );
        }
        let wait_ms = FETCH_RETRY_MS << self.failures.min(RETRY_DOUBLINGS);
        self.failures = self.failures.saturating_add(1);
        self.rest(wait_ms.min(self.refresh_ms), now);
    }

    /// Waits for the next fetch, unless an earlier one was asked for meanwhile.
    fn rest(&mut self, wait_ms: u64, now: Now) {
        self.stage = Stage::Idle;
        self.next_ms = self.next_ms.min(now.monotonic_ms.saturating_add(wait_ms));
    }
}

/// The longest time between two fetches, in seconds: a year.
const REFRESH_S_MAX: u64 = 365 * 24 * 60 * 60;

/// The head of an answer, in bytes.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// The time for a connection with TLS and a whole answer, in milliseconds.
const PATIENCE_MS: u64 = 10_000;

/// A token with an unknown `kid` makes a fetch at most once in this time, in milliseconds.
const EARLY_MS: u64 = 30_000;

/// The time from the first failure to the next attempt, in milliseconds. It doubles with each further one.
const FETCH_RETRY_MS: u64 = 1_000;

/// How often it doubles: up to 32 seconds.
const RETRY_DOUBLINGS: u32 = 5;

/// A failure is logged at most once in this time, in milliseconds.
const WARN_MS: u64 = 60_000;

const USER_AGENT: &str = concat!("tidewire/", env!("CARGO_PKG_VERSION"));

#[cfg(test)]
mod tests;

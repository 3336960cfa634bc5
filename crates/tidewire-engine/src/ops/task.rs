//! Tasks of the operations listener: requests that ask the shards or carry a body.

use crate::auth::api_key::NamedApiKey;
use crate::handle::Handle;
use crate::limits::source::Source;
use crate::model::ConnectionKey;
use crate::model::content::Content;
use crate::model::queries::{ConnectionInfo, ListedEverywhere};
use crate::ops::error::{ApiError, ApiResult};
use crate::ops::guesses::{Guesses, Party};
use crate::ops::logins::Logins;
use crate::ops::request::{Request, Response, percent_decoded};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tidewire_wire::format::NOT_BASE64;

/// A request that was read whole and that may be answered.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) answer: TaskAnswer,
    /// The name of the key that permits it, for logs.
    pub(crate) who: String,
    /// The sender's address, for logs.
    pub(crate) peer: Option<SocketAddr>,
    /// The parameter in the path, decoded.
    pub(crate) name: String,
    pub(crate) query: String,
    pub(crate) body: Vec<u8>,
}

/// How a task is answered.
#[derive(Debug, Clone, Copy)]
pub(crate) enum TaskAnswer {
    /// By the worker.
    Now(fn(&TaskContext, &Task) -> ApiResult),
    /// Later and from any thread, so that the worker does not wait for a client.
    Later(fn(&TaskContext, &Task, Respond)),
}

/// Sends the answer to a task.
pub(crate) type Respond = Box<dyn FnOnce(ApiResult) + Send>;

/// The shared parts that tasks use.
pub(crate) struct TaskContext {
    pub(crate) handle: Handle,
    pub(crate) logins: Logins,
    /// Requests to clients without an answer so far.
    pub(crate) requests: Arc<AtomicUsize>,
    guesses: Mutex<Guesses>,
}

impl TaskContext {
    pub(crate) fn new(handle: Handle) -> Self {
        Self {
            handle,
            logins: Logins::default(),
            requests: Arc::default(),
            guesses: Mutex::default(),
        }
    }

    /// Whether the API has keys; without one it is off.
    pub(crate) fn has_keys(&self) -> bool {
        !self
            .handle
            .shared
            .setup
            .get()
            .config
            .ops_api_keys
            .is_empty()
    }

    /// The key of the API for which `is_it` is true. All are compared, so that the time does not reveal which
    /// one was almost right.
    pub(crate) fn find_key(&self, is_it: impl Fn(&NamedApiKey) -> bool) -> Option<NamedApiKey> {
        let setup = self.handle.shared.setup.get();
        let keys = setup.config.ops_api_keys.iter();
        keys.fold(
            None,
            |found, key| if is_it(key) { Some(key) } else { found },
        )
        .cloned()
    }

    /// Notes who has sent a request, with the proxies that are trusted now.
    pub(crate) fn note_peer(&self, request: &mut Request<'_>, peer: Option<SocketAddr>) {
        let setup = self.handle.shared.setup.get();
        request.set_peer(peer, &setup.config.proxies);
    }

    /// The key that a sender shows to log in, from an address or a browser that logged in before.
    ///
    /// # Errors
    /// The key is wrong, or too many wrong keys have arrived.
    pub(crate) fn key_of_login(
        &self,
        shown: &str,
        device: Option<&str>,
        peer: Option<SocketAddr>,
    ) -> Result<NamedApiKey, ApiError> {
        let party = match device {
            Some(device) => Party::Device(device.to_owned()),
            None => Party::Source(source_of(peer)),
        };
        self.guess(&party, shown.as_bytes())
    }

    /// The key that a sender shows with a request to the API.
    ///
    /// # Errors
    /// The same.
    pub(crate) fn key_of_request(
        &self,
        shown: &[u8],
        peer: Option<SocketAddr>,
    ) -> Result<NamedApiKey, ApiError> {
        let source = source_of(peer);
        if self.guesses().is_friend(source, Instant::now()) {
            return self.find_key(|key| key.key.is(shown)).ok_or_else(wrong_key);
        }
        let known = self.guess(&Party::Source(source), shown)?;
        self.guesses().befriend(source, Instant::now());
        Ok(known)
    }

    fn guess(&self, party: &Party, shown: &[u8]) -> Result<NamedApiKey, ApiError> {
        let now = Instant::now();
        let bucket = self.guesses().take(party, now);
        let bucket = bucket.map_err(ApiError::too_many_guesses)?;
        let known = self.find_key(|key| key.key.is(shown));
        let known = known.ok_or_else(wrong_key)?;
        self.guesses().give_back(&bucket, now);
        Ok(known)
    }

    fn guesses(&self) -> MutexGuard<'_, Guesses> {
        self.guesses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The key of a login that has not ended, if it is still one of the API's.
    pub(crate) fn known_login(&self, token: &str, now: Instant) -> Option<NamedApiKey> {
        let key = self.logins.find(token, now)?;
        self.find_key(|known| *known == key)
    }

    pub(crate) fn slowest_connections(&self, limit: usize) -> Vec<ConnectionInfo> {
        self.handle.slowest_connections(limit).unwrap_or_default()
    }
}

impl fmt::Debug for TaskContext {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("TaskContext")
            .finish_non_exhaustive()
    }
}

fn source_of(peer: Option<SocketAddr>) -> Source {
    peer.map_or(Source::Unknown, |peer| Source::of(peer.ip()))
}

fn wrong_key() -> ApiError {
    ApiError::new(401, "wrong_key", "this is not a key of the API")
}

/// The parameters behind the question mark.
pub(crate) struct Parameters(Vec<(String, String)>);

impl Parameters {
    /// Reads the parameters of a query. One that is not `known`, or that appears twice, is an error.
    pub(crate) fn parse(query: &str, known: &[&str]) -> Result<Self, ApiError> {
        let mut found: Vec<(String, String)> = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let decoded = percent_decoded(name, true).zip(percent_decoded(value, true));
            let (name, value) = decoded.ok_or_else(|| {
                ApiError::bad("the query has a percent sign that stands for nothing")
            })?;
            if !known.contains(&name.as_str()) {
                let known = known.join(", ");
                return Err(ApiError::bad(format!(
                    "the parameter {name} is not one of: {known}"
                )));
            }
            if found.iter().any(|(other, _)| *other == name) {
                return Err(ApiError::bad(format!(
                    "the parameter {name} is given twice"
                )));
            }
            found.push((name, value));
        }
        Ok(Self(found))
    }

    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        let pair = self.0.iter().find(|(known, _)| known == name)?;
        Some(&pair.1)
    }

    /// A number up to `max`, `default` if it is missing.
    pub(crate) fn number(&self, name: &str, default: usize, max: usize) -> Result<usize, ApiError> {
        match self.text(name).map(str::parse) {
            None => Ok(default),
            Some(Ok(number)) if number <= max => Ok(number),
            Some(_) => Err(ApiError::bad(format!(
                "{name} has to be a number up to {max}"
            ))),
        }
    }

    /// How many items are wanted: 1 to 1,000, by default 100.
    pub(crate) fn limit(&self) -> Result<usize, ApiError> {
        match self.number("limit", LIMIT, LIMIT_MAX)? {
            0 => Err(ApiError::bad("limit has to be at least 1")),
            limit => Ok(limit),
        }
    }
}

/// An answer with status 200.
pub(crate) fn ok(value: &impl Serialize) -> ApiResult {
    match serde_json::to_string(value) {
        Ok(mut json) => {
            json.push('\n');
            Ok(Response::json(200, json))
        }
        Err(error) => Err(ApiError::new(500, "internal", error.to_string())),
    }
}

/// A page of a list over all servers, and the `after` of the next one.
pub(crate) fn page<T: Serialize>(
    name: &str,
    listed: ListedEverywhere<T>,
    next: impl FnOnce(&T) -> Value,
) -> Value {
    let last = listed.items.last().filter(|_| listed.more);
    let next = last.map_or(Value::Null, |last| next(&last.item));
    let mut page = json!({ name: listed.items, "next": next });
    if !listed.silent.is_empty() {
        page["silent"] = json!(listed.silent);
    }
    page
}

/// The server that a request asks for, if it asks for one.
pub(crate) fn node_of<'a>(
    context: &TaskContext,
    parameters: &'a Parameters,
) -> Result<Option<&'a str>, ApiError> {
    match parameters.text("node") {
        Some(name) if !context.handle.has_server(name) => {
            let message = format!("there is no server {name}");
            Err(ApiError::new(404, "unknown_node", message))
        }
        node => Ok(node),
    }
}

/// Reads the body of a request.
pub(crate) fn body_of<T: DeserializeOwned>(task: &Task) -> Result<T, ApiError> {
    serde_json::from_slice(&task.body).map_err(|error| {
        let code = match error.classify() {
            serde_json::error::Category::Data => "invalid_request",
            _ => "invalid_json",
        };
        ApiError::new(400, code, format!("the body: {error}"))
    })
}

/// The connection of a text: its key, or the UUID that its client knows.
pub(crate) fn connection_of(context: &TaskContext, text: &str) -> Result<ConnectionKey, ApiError> {
    if let Ok(key) = text.parse() {
        return Ok(key);
    }
    context
        .handle
        .find_connection(text)?
        .ok_or_else(|| ApiError::unknown_connection(text))
}

/// The payload of a request: JSON text, which is base64 if it is marked as binary.
pub(crate) fn content_of(json: &str, binary: Option<bool>) -> Result<Content, ApiError> {
    Content::read(json, binary.unwrap_or_default())
        .ok_or_else(|| ApiError::new(400, "invalid_payload", NOT_BASE64))
}

/// Items of a list, unless more or fewer are asked for.
pub(crate) const LIMIT: usize = 100;

/// The most items of a list, of topics in one request and of publications in a batch.
pub(crate) const LIMIT_MAX: usize = 1_000;

/// The treatment of a request.
pub(crate) enum Plan {
    /// It is answered at once.
    Answer(Response),
    /// It is answered by a worker.
    Ask(Task),
    /// It is answered by a worker once its body, of at most this many bytes, has been received.
    Read(Task, usize),
    /// It opens a WebSocket of the feed, for the login with this token.
    Feed(String),
}

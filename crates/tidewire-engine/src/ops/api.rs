//! The HTTP API: what a backend asks of the server without being a client of it.

mod publish;
mod sessions;
mod topics;

use super::office::{Office, Task};
use super::pages::{Plan, stats_with_topics};
use super::request::{Body, Request, Response, percent_decoded};
use crate::handle::SendError;
use crate::handle::topics::ManageError;
use crate::session::application::ConnectionKey;
use crate::topics::hub::PublishError;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

/// Why a request was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ApiError {
    status: u16,
    code: &'static str,
    message: String,
    /// Methods that the path takes, with status 405.
    allow: Option<String>,
}

/// How an office answers.
pub(crate) type Answer = Result<Response, ApiError>;

/// What can be asked.
struct Route {
    method: &'static str,
    /// With `{topic}` in the place of one segment.
    path: &'static str,
    answer: fn(&Office, &Task) -> Answer,
}

const fn route(
    method: &'static str,
    path: &'static str,
    answer: fn(&Office, &Task) -> Answer,
) -> Route {
    Route {
        method,
        path,
        answer,
    }
}

/// Every route but that of the description, which needs no key.
const ROUTES: &[Route] = &[
    route("POST", "/api/v1/publish", publish::publish),
    route("POST", "/api/v1/publish/batch", publish::publish_batch),
    route("POST", "/api/v1/subscribe", sessions::subscribe),
    route("POST", "/api/v1/unsubscribe", sessions::unsubscribe),
    route("POST", "/api/v1/disconnect", sessions::disconnect),
    route("GET", "/api/v1/connections", sessions::list),
    route("GET", "/api/v1/topics", topics::list),
    route("GET", "/api/v1/topics/{topic}/history", topics::history),
    route("DELETE", "/api/v1/topics/{topic}/history", topics::forget),
    route("GET", "/api/v1/topics/{topic}/presence", topics::presence),
    route("GET", "/api/v1/stats", stats_with_topics),
];

/// Paths of the API start so.
pub(crate) const PREFIX: &str = "/api/";

const DESCRIPTION_PATH: &str = "/api/v1/openapi.json";

/// The API in the words of OpenAPI 3.1.
const DESCRIPTION: &str = include_str!("api/openapi.json");

/// What is to be done about a request to the API, by its head.
pub(crate) fn plan(request: &Request<'_>, office: Option<&Office>) -> Result<Plan, ApiError> {
    if request.path == DESCRIPTION_PATH {
        return match request.method {
            "GET" | "HEAD" => Ok(Plan::Answer(Response::json(200, DESCRIPTION))),
            _ => Err(ApiError::method("GET, HEAD".to_owned())),
        };
    }
    let key = office.and_then(|office| office.key.as_ref());
    let key = key.ok_or_else(|| ApiError::new(403, "api_disabled", DISABLED))?;
    match request.key {
        Some(shown) if key.is(shown) => {}
        Some(_) => {
            return Err(ApiError::new(
                401,
                "wrong_key",
                "this is not the key of the API",
            ));
        }
        None => return Err(ApiError::new(401, "no_key", NO_KEY)),
    }
    let (route, name) = find(request.method, request.path)?;
    let task = Task {
        answer: route.answer,
        name,
        query: request.query.to_owned(),
        body: Vec::new(),
    };
    if route.method != "POST" {
        return Ok(Plan::Ask(task));
    }
    match request.body {
        Body::Bytes(bytes) if bytes <= BODY_BYTES_MAX as u64 => {
            Ok(Plan::Read(task, bytes as usize))
        }
        Body::Bytes(_) => Err(ApiError::too_large()),
        Body::Coded => Err(ApiError::new(411, "length_required", NO_LENGTH)),
    }
}

/// The route of a request, and the name in its path.
fn find(method: &str, path: &str) -> Result<(&'static Route, String), ApiError> {
    let mut methods = Vec::new();
    for route in ROUTES {
        let Some(name) = name_in(route.path, path) else {
            continue;
        };
        if route.method != method {
            methods.push(route.method);
            continue;
        }
        let name = percent_decoded(name, false)
            .ok_or_else(|| ApiError::bad("the path has a percent sign that stands for nothing"))?;
        return Ok((route, name));
    }
    if methods.is_empty() {
        return Err(ApiError::new(404, "not_found", UNKNOWN));
    }
    Err(ApiError::method(methods.join(", ")))
}

/// What `path` has in the place of `{topic}`, if it is of this form; empty if the form has no such place.
fn name_in<'a>(form: &str, path: &'a str) -> Option<&'a str> {
    let Some((before, after)) = form.split_once("{topic}") else {
        return (form == path).then_some("");
    };
    let name = path.strip_prefix(before)?.strip_suffix(after)?;
    (!name.is_empty() && !name.contains('/')).then_some(name)
}

/// An answer with status 200.
fn ok(value: &impl Serialize) -> Answer {
    match serde_json::to_string(value) {
        Ok(mut json) => {
            json.push('\n');
            Ok(Response::json(200, json))
        }
        Err(error) => Err(ApiError::new(500, "internal", error.to_string())),
    }
}

/// Reads the body of a request.
fn body_of<T: DeserializeOwned>(task: &Task) -> Result<T, ApiError> {
    serde_json::from_slice(&task.body).map_err(|error| {
        let code = match error.classify() {
            serde_json::error::Category::Data => "invalid_request",
            _ => "invalid_json",
        };
        ApiError::new(400, code, format!("the body: {error}"))
    })
}

/// The parameters behind the question mark.
pub(crate) struct Parameters(Vec<(String, String)>);

impl Parameters {
    /// Reads them; those that are not `known`, or come twice, are a mistake.
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

    fn text(&self, name: &str) -> Option<&str> {
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
    fn limit(&self) -> Result<usize, ApiError> {
        match self.number("limit", LIMIT, LIMIT_MAX)? {
            0 => Err(ApiError::bad("limit has to be at least 1")),
            limit => Ok(limit),
        }
    }
}

/// The connection of a text: its key, or the UUID that its client knows.
fn connection_of(office: &Office, text: &str) -> Result<ConnectionKey, ApiError> {
    if let Ok(key) = text.parse() {
        return Ok(key);
    }
    office
        .handle
        .find_connection(text)?
        .ok_or_else(|| ApiError::unknown_connection(text))
}

impl ApiError {
    fn new(status: u16, code: &'static str, message: impl Into<String>) -> Self {
        Self {
            status,
            code,
            message: message.into(),
            allow: None,
        }
    }

    /// The request does not say what it should.
    fn bad(message: impl Into<String>) -> Self {
        Self::new(400, "invalid_request", message)
    }

    fn method(allow: String) -> Self {
        Self {
            allow: Some(allow),
            ..Self::new(
                405,
                "method_not_allowed",
                "this path does not take this method",
            )
        }
    }

    fn too_large() -> Self {
        let message = format!("the body is longer than {BODY_BYTES_MAX} bytes");
        Self::new(413, "too_large", message)
    }

    fn unknown_connection(text: &str) -> Self {
        Self::new(
            404,
            "unknown_connection",
            format!("there is no connection {text}"),
        )
    }

    /// As one of several results.
    fn to_json(&self) -> serde_json::Value {
        json!({ "code": self.code, "message": self.message })
    }

    pub(crate) fn response(&self) -> Response {
        let body = format!("{}\n", json!({ "error": self.to_json() }));
        let response = Response::json(self.status, body);
        match (self.status, &self.allow) {
            (401, _) => response.with("WWW-Authenticate", "Bearer"),
            (405, Some(allow)) => response.with("Allow", allow.clone()),
            (503, _) => response.with("Retry-After", "1"),
            _ => response,
        }
    }
}

impl From<SendError> for ApiError {
    fn from(error: SendError) -> Self {
        let code = match error {
            SendError::Busy => "busy",
            SendError::Stopped => "stopped",
        };
        Self::new(503, code, error.to_string())
    }
}

impl From<PublishError> for ApiError {
    fn from(error: PublishError) -> Self {
        let (status, code) = match error {
            PublishError::Topic(_) => (400, "invalid_topic"),
            PublishError::Type => (400, "invalid_type"),
            PublishError::Payload => (400, "invalid_payload"),
            PublishError::TooLarge { .. } => (413, "too_large"),
            PublishError::Busy => (503, "busy"),
            PublishError::Stopped => (503, "stopped"),
        };
        Self::new(status, code, error.to_string())
    }
}

impl From<ManageError> for ApiError {
    fn from(error: ManageError) -> Self {
        match error {
            ManageError::Topic(problem) => Self::new(400, "invalid_topic", problem.to_string()),
            ManageError::Access(problem) => Self::new(400, "invalid_rules", problem.to_string()),
            ManageError::Limit(words) => Self::new(409, "limit", words),
            ManageError::Send(error) => error.into(),
        }
    }
}

/// The longest body, in bytes.
pub(crate) const BODY_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Items of a list, unless more or fewer are asked for.
const LIMIT: usize = 100;

/// The most items of a list, of topics in one request and of publications in a batch.
const LIMIT_MAX: usize = 1_000;

const DISABLED: &str = "the HTTP API is off: start the server with a key for it";

const NO_KEY: &str = "show the key of the API: Authorization: Bearer KEY, or X-API-Key: KEY";

const NO_LENGTH: &str = "a body needs a Content-Length; other codings are not read";

const UNKNOWN: &str = "there is nothing at this path; /api/v1/openapi.json says what there is";

#[cfg(test)]
mod tests;

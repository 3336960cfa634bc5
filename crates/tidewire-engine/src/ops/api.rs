//! Routes of the HTTP API, which serves backends that are no clients of the server.

use crate::auth::api_key::{ApiRight, NamedApiKey};
use crate::ops::error::{ApiError, ApiResult, BODY_BYTES_MAX};
use crate::ops::pages::stats_with_topics;
use crate::ops::request::{Request, Response, percent_decoded};
use crate::ops::task::{Plan, Task, TaskAnswer, TaskContext, ok};

mod publish;
mod requests;
mod sessions;
mod settings;
mod topics;

/// The paths of the API.
struct Route {
    method: &'static str,
    /// With a name in braces in the place of one segment.
    path: &'static str,
    right: ApiRight,
    answer: TaskAnswer,
}

const fn route(
    method: &'static str,
    path: &'static str,
    right: ApiRight,
    answer: fn(&TaskContext, &Task) -> ApiResult,
) -> Route {
    Route {
        method,
        path,
        right,
        answer: TaskAnswer::Now(answer),
    }
}

/// Every route but that of the description, which needs no key.
const ROUTES: &[Route] = &[
    route(
        "POST",
        "/api/v1/publish",
        ApiRight::Publish,
        publish::publish,
    ),
    route(
        "POST",
        "/api/v1/publish/batch",
        ApiRight::Publish,
        publish::publish_batch,
    ),
    Route {
        method: "POST",
        path: "/api/v1/request",
        right: ApiRight::Publish,
        answer: TaskAnswer::Later(requests::request),
    },
    route(
        "POST",
        "/api/v1/subscribe",
        ApiRight::Admin,
        sessions::subscribe,
    ),
    route(
        "POST",
        "/api/v1/unsubscribe",
        ApiRight::Admin,
        sessions::unsubscribe,
    ),
    route(
        "POST",
        "/api/v1/disconnect",
        ApiRight::Admin,
        sessions::disconnect,
    ),
    route("GET", "/api/v1/connections", ApiRight::Read, sessions::list),
    route(
        "GET",
        "/api/v1/connections/{connection}",
        ApiRight::Read,
        sessions::describe,
    ),
    route("GET", "/api/v1/topics", ApiRight::Read, topics::list),
    route(
        "GET",
        "/api/v1/topics/{topic}/history",
        ApiRight::Read,
        topics::history,
    ),
    route(
        "DELETE",
        "/api/v1/topics/{topic}/history",
        ApiRight::Admin,
        topics::forget,
    ),
    route(
        "GET",
        "/api/v1/topics/{topic}/presence",
        ApiRight::Read,
        topics::presence,
    ),
    route("POST", "/api/v1/reload", ApiRight::Admin, reload),
    route("GET", "/api/v1/settings", ApiRight::Read, settings::list),
    route("GET", "/api/v1/stats", ApiRight::Read, stats_with_topics),
];

/// Paths of the API start so.
pub(crate) const PREFIX: &str = "/api/";

const DESCRIPTION_PATH: &str = "/api/v1/openapi.json";

/// The API in the words of OpenAPI 3.1.
const DESCRIPTION: &str = include_str!("api/openapi.json");

/// The plan for a request to the API, by its head.
pub(crate) fn plan(request: &Request<'_>, context: Option<&TaskContext>) -> Result<Plan, ApiError> {
    if request.path == DESCRIPTION_PATH {
        return match request.method {
            "GET" | "HEAD" => Ok(Plan::Answer(Response::json(200, DESCRIPTION))),
            _ => Err(ApiError::method("GET, HEAD".to_owned())),
        };
    }
    let Some(context) = context.filter(|context| context.has_keys()) else {
        return Err(ApiError::new(403, "api_disabled", DISABLED));
    };
    let shown = request
        .key
        .ok_or_else(|| ApiError::new(401, "no_key", NO_KEY))?;
    let known = context.key_of_request(shown, request.peer)?;
    plan_for(request, request.path, &known)
}

/// The same for a path of the API and the key that the sender has shown.
pub(crate) fn plan_for(
    request: &Request<'_>,
    path: &str,
    known: &NamedApiKey,
) -> Result<Plan, ApiError> {
    let (route, name) = find(request.method, path)?;
    check_right(known, route.right)?;
    let task = Task {
        answer: route.answer,
        who: known.name.clone(),
        peer: request.peer,
        name,
        query: request.query.to_owned(),
        body: Vec::new(),
    };
    if route.method != "POST" {
        return Ok(Plan::Ask(task));
    }
    if request.body_bytes > Some(BODY_BYTES_MAX as u64) {
        return Err(ApiError::too_large(BODY_BYTES_MAX));
    }
    Ok(Plan::Read(task, BODY_BYTES_MAX))
}

/// Checks that a key has a right.
pub(crate) fn check_right(known: &NamedApiKey, right: ApiRight) -> Result<(), ApiError> {
    if known.rights.permit(right) {
        return Ok(());
    }
    let (name, right) = (&known.name, right.as_str());
    let message = format!("the key {name} does not have the right {right}, which this needs");
    Err(ApiError::new(403, "not_permitted", message))
}

/// `POST /api/v1/reload`: the program reads its configuration again.
fn reload(context: &TaskContext, task: &Task) -> ApiResult {
    let reload = context.handle.shared.functions.reload.get();
    let reload = reload.ok_or_else(|| ApiError::new(501, "not_supported", NO_RELOAD))?;
    tracing::info!(who = task.who, what = "reload");
    match (reload.0)() {
        Ok(reloaded) => ok(&reloaded),
        Err(problem) => Err(ApiError::new(
            409,
            "not_reloaded",
            format!("{problem}; nothing has changed"),
        )),
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

/// The part of `path` in the place of the braces, if it is of this form; empty if the form has no such
/// place.
fn name_in<'a>(form: &str, path: &'a str) -> Option<&'a str> {
    let Some((before, (_, after))) = form
        .split_once('{')
        .and_then(|(before, rest)| Some((before, rest.split_once('}')?)))
    else {
        return (form == path).then_some("");
    };
    let name = path.strip_prefix(before)?.strip_suffix(after)?;
    (!name.is_empty() && !name.contains('/')).then_some(name)
}

pub(crate) const DISABLED: &str = "the HTTP API is off: start the server with a key for it";

const NO_KEY: &str = "show the key of the API: Authorization: Bearer KEY, or X-API-Key: KEY";

const NO_RELOAD: &str = "this program does not read its configuration again: restart it";

const UNKNOWN: &str = "there is nothing at this path; /api/v1/openapi.json says what there is";

#[cfg(test)]
mod tests;

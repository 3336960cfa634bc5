//! The HTTP API: what a backend asks of the server without being a client of it.

use crate::ops::error::{ApiError, ApiResult, BODY_BYTES_MAX};
use crate::ops::pages::stats_with_topics;
use crate::ops::request::{Body, Request, Response, percent_decoded};
use crate::ops::task::{Plan, Task, TaskContext};

mod publish;
mod sessions;
mod topics;

/// What can be asked.
struct Route {
    method: &'static str,
    /// With `{topic}` in the place of one segment.
    path: &'static str,
    answer: fn(&TaskContext, &Task) -> ApiResult,
}

const fn route(
    method: &'static str,
    path: &'static str,
    answer: fn(&TaskContext, &Task) -> ApiResult,
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
pub(crate) fn plan(request: &Request<'_>, context: Option<&TaskContext>) -> Result<Plan, ApiError> {
    if request.path == DESCRIPTION_PATH {
        return match request.method {
            "GET" | "HEAD" => Ok(Plan::Answer(Response::json(200, DESCRIPTION))),
            _ => Err(ApiError::method("GET, HEAD".to_owned())),
        };
    }
    let key = context.and_then(|context| context.key.as_ref());
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

const DISABLED: &str = "the HTTP API is off: start the server with a key for it";

const NO_KEY: &str = "show the key of the API: Authorization: Bearer KEY, or X-API-Key: KEY";

const NO_LENGTH: &str = "a body needs a Content-Length; other codings are not read";

const UNKNOWN: &str = "there is nothing at this path; /api/v1/openapi.json says what there is";

#[cfg(test)]
mod tests;

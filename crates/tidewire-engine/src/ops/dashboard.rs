//! The dashboard: its page, its login, and the HTTP API for a browser that has logged in.
//!
//! The key of the API is posted once. The answer sets a cookie with a random token, which the
//! page's scripts cannot read and which no other site's request carries. Every request that changes
//! something, and the WebSocket of the [feed](crate::ops::feed), has to name the dashboard's own origin. `packages/dashboard` has the sources of the
//! page; `scripts/build.js` writes the files that are embedded here.

use crate::auth::api_key::{ApiRight, NamedApiKey};
use crate::ops::api;
use crate::ops::api::check_right;
use crate::ops::error::{ApiError, ApiResult};
use crate::ops::logins::DEVICE_TIME_S;
use crate::ops::request::{Request, Response};
use crate::ops::task::{Plan, Task, TaskAnswer, TaskContext, body_of};
use serde::Deserialize;
use serde_json::json;
use std::time::Instant;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LoggingIn {
    key: String,
}

/// Whether a path belongs to the dashboard.
pub(crate) fn has(path: &str) -> bool {
    path.strip_prefix(PATH)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The plan for a request to the dashboard, by its head.
pub(crate) fn plan(request: &Request<'_>, context: Option<&TaskContext>) -> Result<Plan, ApiError> {
    let Some(path) = request.path.strip_prefix(PATH) else {
        return Err(ApiError::new(404, "not_found", UNKNOWN));
    };
    if let Some(page) = page(path) {
        return match request.method {
            "GET" | "HEAD" => Ok(Plan::Answer(page)),
            _ => Err(ApiError::method("GET, HEAD".to_owned())),
        };
    }
    let Some(context) = context.filter(|context| context.has_keys()) else {
        return Err(ApiError::new(403, "api_disabled", api::DISABLED));
    };
    if request.method != "GET" || path == FEED {
        check_origin(request)?;
    }
    let answer: fn(&TaskContext, &Task) -> ApiResult = match path {
        "/login" => log_in,
        "/logout" => log_out,
        FEED => {
            check_right(&user(request, context)?, ApiRight::Read)?;
            let cookies = cookies(request);
            let token = cookie(cookies, COOKIE).unwrap_or_default();
            return Ok(Plan::Feed(token.to_owned()));
        }
        "/session" => return session(request, context),
        _ if path.starts_with(api::PREFIX) => {
            let known = user(request, context)?;
            return api::plan_for(request, path, &known);
        }
        _ => return Err(ApiError::new(404, "not_found", UNKNOWN)),
    };
    if request.method != "POST" {
        return Err(ApiError::method("POST".to_owned()));
    }
    if request.body_bytes > Some(LOGIN_BYTES_MAX as u64) {
        return Err(ApiError::too_large(LOGIN_BYTES_MAX));
    }
    let task = Task {
        answer: TaskAnswer::Now(answer),
        who: String::new(),
        peer: request.peer,
        name: cookies(request).to_owned(),
        query: cookie_rules(request).to_owned(),
        body: Vec::new(),
    };
    Ok(Plan::Read(task, LOGIN_BYTES_MAX))
}

/// A file of the page.
fn page(path: &str) -> Option<Response> {
    let (kind, text) = match path {
        "" | "/" => ("text/html; charset=utf-8", HTML),
        "/app.js" => ("text/javascript; charset=utf-8", SCRIPT),
        "/app.css" => ("text/css; charset=utf-8", STYLE),
        _ => return None,
    };
    let response = Response::new(200, kind, text)
        .with("Content-Security-Policy", POLICY)
        .with("X-Content-Type-Options", "nosniff")
        .with("Referrer-Policy", "no-referrer");
    Some(response)
}

/// `POST /dashboard/login`: a token for a key.
fn log_in(context: &TaskContext, task: &Task) -> ApiResult {
    let LoggingIn { key } = body_of(task)?;
    let now = Instant::now();
    let device = cookie(&task.name, DEVICE_COOKIE);
    let device = device.filter(|device| context.logins.has_device(device, now));
    let address = task.peer.map(tracing::field::display);
    let known = context
        .key_of_login(&key, device, task.peer)
        .inspect_err(|error| {
            if context.logins.may_warn(now) {
                let status = error.status;
                tracing::warn!(address, status, "{WRONG_LOGIN}");
            }
        })?;
    tracing::info!(who = known.name, address, what = "log_in");
    // Whoever logs in again has one login, which a logout ends.
    context
        .logins
        .remove(cookie(&task.name, COOKIE).unwrap_or_default());
    let token = context.logins.add(&known, now);
    let device = context.logins.add_device(device, now);
    let rules = task.query.replacen("/dashboard", DEVICE_PATH, 1);
    let device = format!("{DEVICE_COOKIE}={device}; {rules}; Max-Age={DEVICE_TIME_S}");
    let cookie = format!("{COOKIE}={token}; {}", task.query);
    let answer = Response::json(200, "{}\n").with("Set-Cookie", cookie);
    Ok(answer.with("Set-Cookie", device))
}

/// `POST /dashboard/logout`: the token is worth nothing any more.
fn log_out(context: &TaskContext, task: &Task) -> ApiResult {
    context
        .logins
        .remove(cookie(&task.name, COOKIE).unwrap_or_default());
    let cookie = format!("{COOKIE}=; {}; Max-Age=0", task.query);
    Ok(Response::json(200, "{}\n").with("Set-Cookie", cookie))
}

/// `GET /dashboard/session`: the name and the rights of the key that the browser has logged in with.
fn session(request: &Request<'_>, context: &TaskContext) -> Result<Plan, ApiError> {
    if !matches!(request.method, "GET" | "HEAD") {
        return Err(ApiError::method("GET, HEAD".to_owned()));
    }
    let known = user(request, context)?;
    let all = [ApiRight::Read, ApiRight::Publish, ApiRight::Admin];
    let rights = all.into_iter().filter(|right| known.rights.permit(*right));
    let rights: Vec<_> = rights.map(ApiRight::as_str).collect();
    let body = json!({ "name": known.name, "rights": rights });
    Ok(Plan::Answer(Response::json(200, format!("{body}\n"))))
}

/// The key with which the browser has logged in, if it is still one of the API's.
fn user(request: &Request<'_>, context: &TaskContext) -> Result<NamedApiKey, ApiError> {
    cookie(cookies(request), COOKIE)
        .and_then(|token| context.known_login(token, Instant::now()))
        .ok_or_else(|| ApiError::new(401, "not_logged_in", "log in at /dashboard"))
}

/// Checks that a page of this listener sent the request. Every browser names the origin of a POST (RFC 6454,
/// section 7.3, and Fetch).
fn check_origin(request: &Request<'_>) -> Result<(), ApiError> {
    let origin = request.origin.unwrap_or_default();
    let host = ["http://", "https://"]
        .iter()
        .find_map(|scheme| origin.strip_prefix(scheme.as_bytes()));
    let own = request.host.filter(|host| !host.is_empty());
    match (host, own) {
        (Some(host), Some(own)) if host.eq_ignore_ascii_case(own) => Ok(()),
        _ => Err(ApiError::new(403, "wrong_origin", WRONG_ORIGIN)),
    }
}

/// The attributes of the cookie. The listener speaks plain HTTP; a proxy with TLS before it shows in the
/// origin, and then the cookie never leaves without TLS.
fn cookie_rules(request: &Request<'_>) -> &'static str {
    match request.origin.unwrap_or_default().starts_with(b"https://") {
        true => SECURE_COOKIE_RULES,
        false => COOKIE_RULES,
    }
}

/// The cookies of a request, none if they are no text.
fn cookies<'a>(request: &Request<'a>) -> &'a str {
    std::str::from_utf8(request.cookie.unwrap_or_default()).unwrap_or_default()
}

/// The value of a cookie.
fn cookie<'a>(cookies: &'a str, wanted: &str) -> Option<&'a str> {
    let mut pairs = cookies
        .split(';')
        .filter_map(|pair| pair.trim().split_once('='));
    pairs.find_map(|(name, value)| (name == wanted).then_some(value))
}

/// The WebSocket, below the dashboard's path.
const FEED: &str = "/ws";

/// The dashboard's paths start so.
const PATH: &str = "/dashboard";

const COOKIE: &str = "tidewire_dashboard";

/// A browser that has logged in before keeps this one, and shows it with a login only.
const DEVICE_COOKIE: &str = "tidewire_dashboard_device";

const DEVICE_PATH: &str = "/dashboard/login";

/// A browser forgets it when it is closed.
const COOKIE_RULES: &str = "Path=/dashboard; HttpOnly; SameSite=Strict";

const SECURE_COOKIE_RULES: &str = "Path=/dashboard; HttpOnly; SameSite=Strict; Secure";

/// The longest body of a login, in bytes.
const LOGIN_BYTES_MAX: usize = 4096;

const HTML: &str = include_str!("dashboard/index.html");
const SCRIPT: &str = include_str!("dashboard/app.js");
const STYLE: &str = include_str!("dashboard/app.css");

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; \
     connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const WRONG_LOGIN: &str = "a login to the dashboard with a wrong key, or after too many of them; at most one line a minute";

const UNKNOWN: &str = "there is nothing at this path; the dashboard is at /dashboard";

const WRONG_ORIGIN: &str = "this request does not come from the dashboard of this server";

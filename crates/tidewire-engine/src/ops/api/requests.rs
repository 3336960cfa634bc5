//! Requests to clients over HTTP.

use crate::model::ConnectionKey;
use crate::model::call_types::NewCall;
use crate::model::queries::ConnectionQuery;
use crate::model::{payload_text, present};
use crate::ops::error::ApiError;
use crate::ops::task::{
    LIMIT_MAX, Respond, Task, TaskContext, body_of, connection_of, content_of, ok,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// One request, and who is asked.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asking {
    connection: Option<String>,
    user: Option<String>,
    #[serde(rename = "type")]
    t: String,
    #[serde(default, deserialize_with = "present")]
    payload: Option<Box<RawValue>>,
    binary: Option<bool>,
    timeout_ms: Option<u64>,
}

#[derive(Serialize)]
struct ClientAnswer {
    connection: ConnectionKey,
    #[serde(skip_serializing_if = "Option::is_none")]
    binary: Option<bool>,
    payload: Box<RawValue>,
}

/// A place among the requests without an answer. Dropping it frees the place.
struct Place(Arc<AtomicUsize>);

/// `POST /api/v1/request`: the answer of a client.
pub(crate) fn request(context: &TaskContext, task: &Task, respond: Respond) {
    let prepared = Place::take(&context.requests).and_then(|place| {
        let (connection, call) = prepare(context, task)?;
        Ok((place, connection, call))
    });
    let (place, connection, call) = match prepared {
        Ok(prepared) => prepared,
        Err(error) => return respond(Err(error)),
    };
    context.handle.call(connection, call, move |answer| {
        drop(place);
        let answer = answer.map_err(ApiError::from);
        respond(answer.and_then(|content| {
            let binary = content.is_binary().then_some(true);
            let payload = RawValue::from_string(content.into_json())
                .map_err(|error| ApiError::new(500, "internal", error.to_string()))?;
            ok(&ClientAnswer {
                connection,
                binary,
                payload,
            })
        }));
    });
}

fn prepare(context: &TaskContext, task: &Task) -> Result<(ConnectionKey, NewCall), ApiError> {
    let body: Asking = body_of(task)?;
    let timeout_ms = body.timeout_ms.unwrap_or(TIMEOUT_MS);
    if !(1..=TIMEOUT_MS_MAX).contains(&timeout_ms) {
        let message = format!("timeout_ms is 1 to {TIMEOUT_MS_MAX}");
        return Err(ApiError::bad(message));
    }
    let connection = match (&body.connection, &body.user) {
        (Some(text), None) => connection_of(context, text)?,
        (None, Some(user)) => newest_of(context, user)?,
        _ => return Err(ApiError::bad("give one of connection and user")),
    };
    let payload = content_of(payload_text(body.payload.as_deref()), body.binary)?;
    let call = NewCall::new(body.t, payload).with_timeout(Duration::from_millis(timeout_ms));
    let who = &task.who;
    tracing::debug!(who, what = "request", %connection);
    Ok((connection, call))
}

/// The session of a user, on any server, that was opened last.
fn newest_of(context: &TaskContext, user: &str) -> Result<ConnectionKey, ApiError> {
    let query = ConnectionQuery {
        user: Some(user.to_owned()),
        limit: LIMIT_MAX,
        ..ConnectionQuery::default()
    };
    let sessions = context.handle.list_connections_everywhere(&query, None)?;
    let opened = sessions.items.iter().map(|session| &session.item);
    if let Some(newest) = opened.max_by_key(|info| info.connected_unix_ms) {
        return Ok(newest.connection);
    }
    if let [silent, ..] = sessions.silent.as_slice() {
        let message =
            format!("the user {user} has no session here, and the server {silent} does not answer");
        return Err(ApiError::new(503, "busy", message));
    }
    Err(ApiError::new(
        404,
        "unknown_user",
        format!("the user {user} has no session"),
    ))
}

impl Place {
    fn take(places: &Arc<AtomicUsize>) -> Result<Self, ApiError> {
        let place = Self(Arc::clone(places));
        if places.fetch_add(1, Ordering::Relaxed) < REQUESTS_MAX {
            return Ok(place);
        }
        let message = "too many requests to clients wait for an answer";
        Err(ApiError::new(503, "busy", message))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How long to wait for a client unless the request sets another time, in milliseconds.
const TIMEOUT_MS: u64 = 10_000;

/// The longest time that a request may give a client, in milliseconds: less than the listener waits for any answer.
const TIMEOUT_MS_MAX: u64 = 25_000;

/// Requests to clients that may wait for an answer at once. Each has a connection of the listener.
const REQUESTS_MAX: usize = 32;

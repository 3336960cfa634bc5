//! Sessions over HTTP: lists, subscriptions and disconnection.

use crate::model::ConnectionKey;
use crate::model::queries::{ConnectionInfo, ConnectionQuery};
use crate::ops::error::{ApiError, ApiResult};
use crate::ops::task::{
    LIMIT, LIMIT_MAX, Parameters, Task, TaskContext, body_of, connection_of, node_of, ok, page,
};
use serde::Deserialize;
use serde_json::json;
use tidewire_wire::close::{CLOSE_CODES, CloseCode, REASON_BYTES_MAX};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Subscribing {
    connection: Option<String>,
    user: Option<String>,
    topics: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Disconnecting {
    connection: Option<String>,
    user: Option<String>,
    #[serde(default = "normal_closure")]
    code: u16,
    #[serde(default)]
    reason: String,
}

/// The sessions that a request selects.
enum TargetSessions {
    Connection(ConnectionKey),
    User(String),
}

/// `POST /api/v1/subscribe`
pub(crate) fn subscribe(context: &TaskContext, task: &Task) -> ApiResult {
    change(context, task, true)
}

/// `POST /api/v1/unsubscribe`
pub(crate) fn unsubscribe(context: &TaskContext, task: &Task) -> ApiResult {
    change(context, task, false)
}

fn change(context: &TaskContext, task: &Task, enters: bool) -> ApiResult {
    let body: Subscribing = body_of(task)?;
    if body.topics.is_empty() || body.topics.len() > LIMIT_MAX {
        let message = format!("topics has to have 1 to {LIMIT_MAX} names");
        return Err(ApiError::bad(message));
    }
    let whose = TargetSessions::read(context, body.connection, body.user)?;
    let what = if enters { "subscribe" } else { "unsubscribe" };
    let (name, count) = (whose.name(), body.topics.len());
    tracing::info!(who = task.who, what, whose = name, topics = count);
    let handle = &context.handle;
    let results = body.topics.iter().map(|topic| {
        let result = match (&whose, enters) {
            (TargetSessions::Connection(key), true) => handle.subscribe(*key, topic),
            (TargetSessions::Connection(key), false) => handle.unsubscribe(*key, topic),
            (TargetSessions::User(user), true) => handle.subscribe_user(user, topic),
            (TargetSessions::User(user), false) => handle.unsubscribe_user(user, topic),
        };
        match result {
            Ok(()) => json!({ "topic": topic }),
            Err(error) => json!({ "topic": topic, "error": ApiError::from(error).to_json() }),
        }
    });
    ok(&json!({ "results": results.collect::<Vec<_>>() }))
}

/// `POST /api/v1/disconnect`
pub(crate) fn disconnect(context: &TaskContext, task: &Task) -> ApiResult {
    let body: Disconnecting = body_of(task)?;
    let code = CloseCode::from_wire(body.code);
    let code = code.ok_or_else(|| ApiError::bad(CLOSE_CODES))?;
    let reason = body.reason.as_str();
    if reason.len() > REASON_BYTES_MAX {
        let message = format!("reason is longer than {REASON_BYTES_MAX} bytes");
        return Err(ApiError::bad(message));
    }
    let whose = TargetSessions::read(context, body.connection, body.user)?;
    tracing::info!(who = task.who, what = "disconnect", whose = whose.name(), %code, reason);
    match &whose {
        TargetSessions::Connection(key) => context.handle.close_with(*key, code, reason)?,
        TargetSessions::User(user) => context.handle.close_user(user, code, reason)?,
    }
    ok(&match whose {
        TargetSessions::Connection(key) => json!({ "connection": key }),
        TargetSessions::User(user) => json!({ "user": user }),
    })
}

/// `GET /api/v1/connections`
pub(crate) fn list(context: &TaskContext, task: &Task) -> ApiResult {
    let known = ["user", "topic", "address", "limit", "after", "node"];
    let parameters = Parameters::parse(&task.query, &known)?;
    let after = match parameters.text("after").map(str::parse) {
        None => None,
        Some(Ok(key)) => Some(key),
        Some(Err(error)) => return Err(ApiError::bad(format!("after: {error}"))),
    };
    let query = ConnectionQuery {
        user: parameters.text("user").map(str::to_owned),
        topic: parameters.text("topic").map(str::to_owned),
        address: parameters.text("address").map(str::to_owned),
        after,
        limit: parameters.limit()?,
    };
    let node = node_of(context, &parameters)?;
    let listed = context.handle.list_connections_everywhere(&query, node)?;
    let next = |last: &ConnectionInfo| json!(last.connection);
    ok(&page("connections", listed, next))
}

/// `GET /api/v1/connections/{connection}`
pub(crate) fn describe(context: &TaskContext, task: &Task) -> ApiResult {
    let parameters = Parameters::parse(&task.query, &["limit"])?;
    let limit = parameters.number("limit", LIMIT, LIMIT_MAX)?;
    let key = connection_of(context, &task.name)?;
    let details = context.handle.describe_connection(key, limit)?;
    ok(&details.ok_or_else(|| ApiError::unknown_connection(&task.name))?)
}

impl TargetSessions {
    /// One of both has to be given, and the connection has to exist.
    fn read(
        context: &TaskContext,
        connection: Option<String>,
        user: Option<String>,
    ) -> Result<Self, ApiError> {
        match (connection, user) {
            (None, Some(user)) => Ok(Self::User(user)),
            (Some(text), None) => {
                let key = connection_of(context, &text)?;
                if context.handle.has_connection(key)? {
                    Ok(Self::Connection(key))
                } else {
                    Err(ApiError::unknown_connection(&text))
                }
            }
            _ => Err(ApiError::bad("give one of connection and user")),
        }
    }

    fn name(&self) -> String {
        match self {
            Self::Connection(key) => key.to_string(),
            Self::User(user) => user.clone(),
        }
    }
}

fn normal_closure() -> u16 {
    1000
}

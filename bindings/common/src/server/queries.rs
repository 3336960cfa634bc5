//! Queries to a running server. Answers are JSON values whose names are in snake_case.

use crate::failure::Failure;
use serde::Serialize;
use serde_json::{Value, json};
use tidewire_engine::{ConnectionQuery, Handle, HistoryQuery, TopicQuery};

/// The counters of the server, by name.
///
/// # Errors
/// None that can be expected: the counters have no form in JSON.
pub fn statistics(handle: &Handle) -> Result<Value, Failure> {
    written(handle.counters())
}

/// Connections, in the order of their ids: all of a user, or all of a topic, or all. `after` is the id of the last one of
/// the page before.
///
/// # Errors
/// `after` is no id, or the server has stopped or has not caught up.
pub fn list_connections(
    handle: &Handle,
    user: Option<String>,
    topic: Option<String>,
    after: Option<&str>,
    limit: usize,
) -> Result<Value, Failure> {
    let after = after.map(str::parse).transpose();
    let query = ConnectionQuery {
        user,
        topic,
        after: after.map_err(Failure::argument)?,
        limit,
        ..ConnectionQuery::default()
    };
    written(handle.list_connections(&query)?.items)
}

/// Topics and patterns that have subscribers, in the order of their names.
///
/// # Errors
/// The server has stopped or has not caught up.
pub fn list_topics(handle: &Handle, query: &TopicQuery) -> Result<Value, Failure> {
    written(handle.list_topics(query)?.items)
}

/// The history of a topic: its position, and publications as clients receive them. Without a history the position is 0
/// and there are none.
///
/// # Errors
/// A publication is no JSON.
pub fn history(handle: &Handle, topic: &str, query: HistoryQuery) -> Result<Value, Failure> {
    let Some(page) = handle.history(topic, query)? else {
        return Ok(json!({
            "epoch": null, "offset": 0, "oldest": null, "publications": [], "more": false,
        }));
    };
    let publications = page.publications.iter();
    let publications: Result<Vec<Value>, _> = publications
        .map(|kept| serde_json::from_str(&kept.json))
        .collect();
    let position = page.position;
    Ok(json!({
        "epoch": position.map(|position| position.epoch_hex()),
        "offset": position.map_or(0, |position| position.offset),
        "oldest": page.oldest,
        "publications": publications.map_err(Failure::argument)?,
        "more": page.more,
    }))
}

/// The presence of a topic: the number of users and of connections, and at most `limit` members.
///
/// # Errors
/// The broker that servers share does not answer.
pub fn presence(handle: &Handle, topic: &str, limit: usize) -> Result<Value, Failure> {
    let present = handle.presence(topic, limit)?;
    let members = present.members.iter().map(|member| {
        let data = member.data.as_deref().map(serde_json::from_str::<Value>);
        json!({
            "user": member.user,
            "connections": member.connections,
            "data": data.and_then(Result::ok),
        })
    });
    Ok(json!({
        "users": present.users,
        "connections": present.connections,
        "members": members.collect::<Vec<_>>(),
    }))
}

fn written(found: impl Serialize) -> Result<Value, Failure> {
    serde_json::to_value(found).map_err(Failure::argument)
}

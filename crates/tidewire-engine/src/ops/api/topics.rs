//! Topics over HTTP: lists, histories and presence.

use crate::model::queries::{HistoryQuery, Kept, TopicInfo, TopicQuery};
use crate::ops::error::{ApiError, ApiResult};
use crate::ops::task::{LIMIT, LIMIT_MAX, Parameters, Task, TaskContext, node_of, ok, page};
use crate::topics::name::check_topic;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

#[derive(Serialize)]
struct History<'a> {
    topic: &'a str,
    /// Absent if nothing is known of the topic.
    #[serde(skip_serializing_if = "Option::is_none")]
    epoch: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<u64>,
    oldest: u64,
    /// The envelopes as subscribers got them.
    publications: Vec<Box<RawValue>>,
    more: bool,
}

/// `GET /api/v1/topics`
pub(crate) fn list(context: &TaskContext, task: &Task) -> ApiResult {
    let known = ["prefix", "limit", "after", "with_history", "node"];
    let parameters = Parameters::parse(&task.query, &known)?;
    let query = TopicQuery {
        prefix: parameters.text("prefix").unwrap_or_default().to_owned(),
        after: parameters.text("after").map(str::to_owned),
        limit: parameters.limit()?,
    };
    let with_history = match parameters.text("with_history") {
        None | Some("false") => false,
        Some("true") => true,
        Some(_) => return Err(ApiError::bad("with_history is true or false")),
    };
    let node = node_of(context, &parameters)?;
    let handle = &context.handle;
    let listed = handle.list_topics_everywhere(&query, with_history, node)?;
    let next = |last: &TopicInfo| json!(last.topic);
    ok(&page("topics", listed, next))
}

/// `GET /api/v1/topics/{topic}/history`
pub(crate) fn history(context: &TaskContext, task: &Task) -> ApiResult {
    let topic = topic_of(task)?;
    let parameters = Parameters::parse(&task.query, &["since", "limit", "order"])?;
    let newest_first = match parameters.text("order") {
        None | Some("oldest") => false,
        Some("newest") => true,
        Some(_) => return Err(ApiError::bad("order is oldest or newest")),
    };
    let since = match parameters.text("since").map(str::parse) {
        None => None,
        Some(Ok(offset)) => Some(offset),
        Some(Err(_)) => return Err(ApiError::bad("since has to be an offset")),
    };
    let limit = parameters.limit()?;
    let mut query = HistoryQuery {
        since,
        limit: limit.min(KEPT_AT_A_TIME),
        newest_first,
    };
    let mut answer = History {
        topic,
        epoch: None,
        offset: None,
        oldest: 0,
        publications: Vec::new(),
        more: true,
    };
    let mut bytes = 0;
    // Some at a time, so that a topic of large publications does not fill the memory.
    while answer.more && answer.publications.len() < limit && bytes < HISTORY_BYTES {
        let page = context
            .handle
            .history(topic, query)?
            .ok_or_else(|| ApiError::new(404, "no_history", format!("{topic} keeps no history")))?;
        let epoch = page.position.map(|position| position.epoch_hex());
        if !answer.publications.is_empty() && answer.epoch != epoch {
            // The topic was forgotten in between: the answer so far is of its earlier epoch.
            answer.more = false;
            break;
        }
        answer.epoch = epoch;
        answer.offset = page.position.map(|position| position.offset);
        answer.oldest = page.oldest;
        answer.more = page.more;
        let Some(last) = page.publications.last() else {
            break;
        };
        query.since = Some(last.position.offset);
        bytes += page
            .publications
            .iter()
            .map(|kept| kept.json.len())
            .sum::<usize>();
        for kept in page.publications {
            answer.publications.push(envelope(kept)?);
        }
        query.limit = (limit - answer.publications.len()).min(KEPT_AT_A_TIME);
    }
    ok(&answer)
}

/// `DELETE /api/v1/topics/{topic}/history`
pub(crate) fn forget(context: &TaskContext, task: &Task) -> ApiResult {
    let topic = topic_of(task)?;
    Parameters::parse(&task.query, &[])?;
    tracing::info!(who = task.who, what = "forget_history", topic);
    let forgotten = context.handle.forget_history(topic)?;
    ok(&json!({ "topic": topic, "forgotten": forgotten }))
}

/// `GET /api/v1/topics/{topic}/presence`
pub(crate) fn presence(context: &TaskContext, task: &Task) -> ApiResult {
    let topic = topic_of(task)?;
    let parameters = Parameters::parse(&task.query, &["limit"])?;
    let limit = parameters.number("limit", LIMIT, LIMIT_MAX)?;
    let presence = context.handle.presence(topic, limit)?;
    let members = presence.members.into_iter().map(|member| {
        let mut told = json!({ "user": member.user, "connections": member.connections });
        if let Some(data) = member.data {
            told["data"] = serde_json::from_str(&data).unwrap_or(Value::String(data));
        }
        told
    });
    ok(&json!({
        "topic": topic,
        "users": presence.users,
        "connections": presence.connections,
        "members": members.collect::<Vec<_>>(),
    }))
}

fn topic_of(task: &Task) -> Result<&str, ApiError> {
    check_topic(&task.name)
        .map_err(|error| ApiError::new(400, "invalid_topic", error.to_string()))?;
    Ok(&task.name)
}

fn envelope(kept: Kept) -> Result<Box<RawValue>, ApiError> {
    RawValue::from_string(kept.json)
        .map_err(|error| ApiError::new(500, "internal", error.to_string()))
}

/// Publications that are copied out of a history at once.
const KEPT_AT_A_TIME: usize = 16;

/// Past this many bytes no more of a history follows in one answer.
const HISTORY_BYTES: usize = 4 * 1024 * 1024;

//! Publishing over HTTP.

use crate::model::{ConnectionKey, payload_text, present};
use crate::ops::error::{ApiError, ApiResult};
use crate::ops::task::{LIMIT_MAX, Task, TaskContext, body_of, connection_of, content_of, ok};
use crate::topics::error::PublishError;
use crate::topics::excluded::EXCLUDED_MAX;
use crate::topics::new_publication::NewPublication;
use crate::topics::publication::Published;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tidewire_wire::envelope::Priority;
use tidewire_wire::uuid::Uuid;

/// One publication, and where it goes.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Publishing {
    topic: Option<String>,
    topics: Option<Vec<String>>,
    user: Option<String>,
    connection: Option<String>,
    #[serde(default)]
    everyone: bool,
    #[serde(rename = "type")]
    t: String,
    /// Null is a payload; a missing one is `{}`.
    #[serde(default, deserialize_with = "present")]
    payload: Option<Box<RawValue>>,
    binary: Option<bool>,
    category: Option<Category>,
    priority: Option<u64>,
    id: Option<String>,
    key: Option<String>,
    ttl_ms: Option<u64>,
    #[serde(default)]
    volatile: bool,
    exclude: Option<Names>,
}

/// A name or a list of names.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a text or a list of texts")]
enum Names {
    One(String),
    Several(Vec<String>),
}

impl Names {
    /// The connections with these names. Of a list, those that are gone are left out.
    fn connections(&self, context: &TaskContext) -> Result<Vec<ConnectionKey>, ApiError> {
        let texts = match self {
            Self::One(text) => return Ok(vec![connection_of(context, text)?]),
            Self::Several(texts) => texts,
        };
        if texts.len() > EXCLUDED_MAX {
            return Err(PublishError::Excluded.into());
        }
        let (keys, ids): (Vec<_>, Vec<_>) = texts
            .iter()
            .partition(|text| text.parse::<ConnectionKey>().is_ok());
        if ids.len() > IDS_MAX {
            let words = format!(
                "exclude has at most {IDS_MAX} ids of clients, each of which is looked up; name connections \
                 as the list of connections does"
            );
            return Err(ApiError::bad(words));
        }
        let mut found: Vec<_> = keys.iter().filter_map(|text| text.parse().ok()).collect();
        for id in ids {
            if Uuid::parse(id).is_none() {
                return Err(ApiError::unknown_connection(id));
            }
            found.extend(context.handle.find_connection(id)?);
        }
        Ok(found)
    }
}

/// The most UUIDs of clients in a list.
const IDS_MAX: usize = 16;

#[derive(Deserialize)]
enum Category {
    S,
    U,
}

/// Where a publication goes.
enum To {
    Topic(String),
    Topics(Vec<String>),
    User(String),
    Connection(String),
    Everyone,
}

/// `POST /api/v1/publish`
pub(crate) fn publish(context: &TaskContext, task: &Task) -> ApiResult {
    ok(&publish_one(context, &task.who, body_of(task)?)?)
}

/// `POST /api/v1/publish/batch`: each by itself, in order.
pub(crate) fn publish_batch(context: &TaskContext, task: &Task) -> ApiResult {
    let batch: Vec<Publishing> = body_of(task)?;
    if batch.len() > LIMIT_MAX {
        let message = format!("a batch has at most {LIMIT_MAX} publications");
        return Err(ApiError::bad(message));
    }
    let results = batch.into_iter().map(|publishing| {
        let result = publish_one(context, &task.who, publishing);
        result.unwrap_or_else(|error| json!({ "error": error.to_json() }))
    });
    ok(&json!({ "results": results.collect::<Vec<_>>() }))
}

fn publish_one(
    context: &TaskContext,
    who: &str,
    publishing: Publishing,
) -> Result<Value, ApiError> {
    let (to, publication) = publishing.read(context)?;
    let handle = &context.handle;
    let t = publication.t.as_str();
    match to {
        To::Topic(topic) => {
            tracing::debug!(who, what = "publish", topic, t);
            let published = handle.publish(&topic, &publication)?;
            Ok(told(&topic, published))
        }
        To::Topics(topics) => {
            tracing::debug!(who, what = "publish", topics = topics.len(), t);
            let results = topics.iter().map(|topic| {
                let published = handle.publish(topic, &publication);
                published.map_or_else(
                    |error| json!({ "topic": topic, "error": ApiError::from(error).to_json() }),
                    |published| told(topic, published),
                )
            });
            Ok(json!({ "results": results.collect::<Vec<_>>() }))
        }
        To::User(user) => {
            tracing::debug!(who, what = "publish", user, t);
            handle.publish_to_user(&user, &publication)?;
            Ok(json!({ "user": user }))
        }
        To::Connection(text) => {
            let connection = connection_of(context, &text)?;
            tracing::debug!(who, what = "publish", %connection, t);
            handle.publish_to_connection(connection, &publication)?;
            Ok(json!({ "connection": connection }))
        }
        To::Everyone => {
            tracing::debug!(who, what = "publish", everyone = true, t);
            handle.publish_to_everyone(&publication)?;
            Ok(json!({ "everyone": true }))
        }
    }
}

impl Publishing {
    /// Checks what can be checked without publishing.
    fn read(self, context: &TaskContext) -> Result<(To, NewPublication), ApiError> {
        let payload = content_of(payload_text(self.payload.as_deref()), self.binary)?;
        let mut publication = NewPublication::new(self.t, payload);
        if let Some(Category::S) = self.category {
            publication = publication.as_snapshot();
        }
        if let Some(number) = self.priority {
            let priority = Priority::from_number(number)
                .ok_or_else(|| ApiError::bad("priority is 1, 3, 5, 8 or 10"))?;
            publication = publication.with_priority(priority);
        }
        if let Some(id) = self.id {
            publication = publication.with_id(id);
        }
        if let Some(key) = self.key {
            publication = publication.with_key(key);
        }
        if let Some(ttl_ms) = self.ttl_ms {
            publication = publication.with_ttl_ms(ttl_ms);
        }
        if self.volatile {
            publication = publication.as_volatile();
        }
        if let Some(names) = self.exclude {
            publication = publication.without_all(names.connections(context)?);
        }
        let ways = [
            self.topic.map(To::Topic),
            self.topics.map(To::Topics),
            self.user.map(To::User),
            self.connection.map(To::Connection),
            self.everyone.then_some(To::Everyone),
        ];
        let mut ways = ways.into_iter().flatten();
        let (Some(to), None) = (ways.next(), ways.next()) else {
            return Err(ApiError::bad(
                "give one of topic, topics, user, connection and everyone",
            ));
        };
        match &to {
            To::Topics(topics) if topics.is_empty() || topics.len() > LIMIT_MAX => {
                let message = format!("topics has to have 1 to {LIMIT_MAX} names");
                Err(ApiError::bad(message))
            }
            _ => Ok((to, publication)),
        }
    }
}

/// The answer to a publication to a topic.
fn told(topic: &str, published: Published) -> Value {
    let mut told = json!({ "topic": topic, "duplicate": published.is_duplicate });
    if let Some(position) = published.position {
        told["epoch"] = position.epoch_hex().into();
        told["offset"] = position.offset.into();
    }
    told
}

//! Queries to the running server. Structured answers are JSON text.

use super::NativeServer;
use crate::errors::{Failure, argument};
use napi_derive::napi;
use serde_json::{Map, Value, json};
use tidewire_engine::{ConnectionKey, ConnectionQuery, HistoryQuery, TopicQuery};

#[napi]
impl NativeServer {
    /// How many connections there are.
    #[napi(getter)]
    pub fn connections(&self) -> napi::Result<u32> {
        Ok(self.handle()?.connections() as u32)
    }

    /// The counters of the server, by name.
    #[napi]
    pub fn statistics(&self) -> napi::Result<String> {
        let counters = self.handle()?.counters();
        written(&serde_json::to_value(counters).map_err(argument)?)
    }

    /// Some connections, in the order of their ids: all of a user, or all of a topic, or all.
    #[napi]
    pub fn list_connections(
        &self,
        user: Option<String>,
        topic: Option<String>,
        after: Option<String>,
        limit: u32,
    ) -> napi::Result<String> {
        let after: Option<ConnectionKey> = after
            .as_deref()
            .map(str::parse)
            .transpose()
            .map_err(argument)?;
        let query = ConnectionQuery {
            user,
            topic,
            after,
            limit: limit as usize,
        };
        let listed = self.handle()?.list_connections(&query);
        let items = listed.map_err(Failure::from)?.items;
        written(&serde_json::to_value(items).map_err(argument)?)
    }

    /// Some topics and patterns that have subscribers, in the order of their names.
    #[napi]
    pub fn list_topics(
        &self,
        prefix: String,
        after: Option<String>,
        limit: u32,
    ) -> napi::Result<String> {
        let query = TopicQuery {
            prefix,
            after,
            limit: limit as usize,
        };
        let listed = self.handle()?.list_topics(&query);
        let items = listed.map_err(Failure::from)?.items;
        written(&serde_json::to_value(items).map_err(argument)?)
    }

    /// History of a topic: its position, and some of its publications.
    #[napi]
    pub fn history(
        &self,
        topic: String,
        since: Option<f64>,
        limit: u32,
        newest_first: bool,
    ) -> napi::Result<String> {
        let query = HistoryQuery {
            since: since.map(|since| since as u64),
            limit: limit as usize,
            newest_first,
        };
        let Some(page) = self
            .handle()?
            .history(&topic, query)
            .map_err(Failure::from)?
        else {
            let nothing = json!({"epoch": null, "offset": 0, "oldest": null, "publications": [], "more": false});
            return Ok(nothing.to_string());
        };
        let publications = page.publications.iter();
        let publications: Result<Vec<Value>, _> = publications
            .map(|kept| serde_json::from_str(&kept.json))
            .collect();
        let position = page.position;
        let found = json!({
            "epoch": position.map(|position| position.epoch_hex()),
            "offset": position.map_or(0, |position| position.offset),
            "oldest": page.oldest,
            "publications": publications.map_err(argument)?,
            "more": page.more,
        });
        Ok(found.to_string())
    }

    /// Forgets what a topic keeps; false if there was nothing.
    #[napi]
    pub fn forget_history(&self, topic: String) -> napi::Result<bool> {
        let forgotten = self.handle()?.forget_history(&topic);
        Ok(forgotten.map_err(Failure::from)?)
    }

    /// Presence of a topic: the number of users, and some of them.
    #[napi]
    pub fn presence(&self, topic: String, limit: u32) -> napi::Result<String> {
        let present = self.handle()?.presence(&topic, limit as usize);
        let members = present.members.iter().map(|member| {
            let data = member.data.as_deref().map(serde_json::from_str::<Value>);
            json!({
                "user": member.user,
                "connections": member.connections,
                "data": data.and_then(Result::ok),
            })
        });
        let found = json!({
            "users": present.users,
            "connections": present.connections,
            "members": members.collect::<Vec<_>>(),
        });
        Ok(found.to_string())
    }
}

/// JSON text whose names of fields are in camelCase.
fn written(value: &Value) -> napi::Result<String> {
    Ok(renamed(value).to_string())
}

fn renamed(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(renamed).collect(),
        Value::Object(fields) => {
            let fields = fields.iter();
            let fields: Map<String, Value> = fields
                .map(|(name, value)| (crate::options::camel_case(name), renamed(value)))
                .collect();
            Value::Object(fields)
        }
        _ => value.clone(),
    }
}

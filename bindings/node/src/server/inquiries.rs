//! Queries to the running server. Structured answers are JSON text.

use super::NativeServer;
use crate::errors::Failure;
use napi_derive::napi;
use serde_json::{Map, Value};
use tidewire_bindings::server::queries;
use tidewire_engine::{HistoryQuery, TopicQuery};

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
        let counters = queries::statistics(self.handle()?);
        Ok(written(&counters.map_err(Failure::from)?))
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
        let (handle, limit) = (self.handle()?, limit as usize);
        let items = queries::list_connections(handle, user, topic, after.as_deref(), limit);
        Ok(written(&items.map_err(Failure::from)?))
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
        let items = queries::list_topics(self.handle()?, &query);
        Ok(written(&items.map_err(Failure::from)?))
    }

    /// History of a topic: its position, and some of its publications, which keep their names.
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
        let page = queries::history(self.handle()?, &topic, query);
        Ok(page.map_err(Failure::from)?.to_string())
    }

    /// Forgets what a topic keeps; false if there was nothing.
    #[napi]
    pub fn forget_history(&self, topic: String) -> napi::Result<bool> {
        let forgotten = self.handle()?.forget_history(&topic);
        Ok(forgotten.map_err(Failure::from)?)
    }

    /// Presence of a topic: the number of users, and some of them, whose data keep their names.
    #[napi]
    pub fn presence(&self, topic: String, limit: u32) -> napi::Result<String> {
        let present = queries::presence(self.handle()?, &topic, limit as usize);
        Ok(present.map_err(Failure::from)?.to_string())
    }
}

/// JSON text whose names of fields are in camelCase.
pub(super) fn written(value: &Value) -> String {
    renamed(value).to_string()
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

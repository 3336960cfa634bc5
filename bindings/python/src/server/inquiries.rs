//! What the application asks of the running server.

use super::ServerCore;
use crate::arguments::{Flag, Str, Whole, Word};
use crate::errors::{Failure, argument};
use crate::json;
use pyo3::prelude::*;
use serde_json::{Value, json};
use tidewire_engine::{ConnectionKey, ConnectionQuery, HistoryQuery, TopicQuery};

#[pymethods]
impl ServerCore {
    /// How many connections there are.
    #[getter]
    fn connections(&self) -> PyResult<usize> {
        Ok(self.0.handle()?.connections())
    }

    /// The counters of the server, by name.
    fn statistics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let counters = self.0.handle()?.counters();
        python(py, &serde_json::to_value(counters).map_err(argument)?)
    }

    /// Some connections, in the order of their ids: all of a user, or all of a topic, or all.
    #[pyo3(signature = (*, user = None, topic = None, after = None, limit = Whole(1000)), text_signature = "($self, *, user=None, topic=None, after=None, limit=1000)")]
    fn list_connections<'py>(
        &self,
        py: Python<'py>,
        user: Option<Str>,
        topic: Option<Str>,
        after: Option<Str>,
        limit: Whole,
    ) -> PyResult<Bound<'py, PyAny>> {
        let after: Option<ConnectionKey> = after
            .as_deref()
            .map(str::parse)
            .transpose()
            .map_err(argument)?;
        let query = ConnectionQuery {
            user: user.map(Str::into_string),
            topic: topic.map(Str::into_string),
            after,
            limit: limit.size(),
        };
        let handle = self.0.handle()?;
        let listed = py.detach(|| handle.list_connections(&query));
        let items = listed.map_err(Failure::from)?.items;
        python(py, &serde_json::to_value(items).map_err(argument)?)
    }

    /// Some topics and patterns that have subscribers, in the order of their names.
    #[pyo3(signature = (*, prefix = Word::Default(""), after = None, limit = Whole(1000)), text_signature = "($self, *, prefix=\"\", after=None, limit=1000)")]
    fn list_topics<'py>(
        &self,
        py: Python<'py>,
        prefix: Word,
        after: Option<Str>,
        limit: Whole,
    ) -> PyResult<Bound<'py, PyAny>> {
        let query = TopicQuery {
            prefix: prefix.to_string(),
            after: after.map(Str::into_string),
            limit: limit.size(),
        };
        let handle = self.0.handle()?;
        let listed = py.detach(|| handle.list_topics(&query));
        let items = listed.map_err(Failure::from)?.items;
        python(py, &serde_json::to_value(items).map_err(argument)?)
    }

    /// What a topic keeps: where it stands, and some of its publications.
    #[pyo3(signature = (topic, *, since = None, limit = Whole(100), newest_first = Flag(false)), text_signature = "($self, topic, *, since=None, limit=100, newest_first=False)")]
    fn history<'py>(
        &self,
        py: Python<'py>,
        topic: Str,
        since: Option<Whole>,
        limit: Whole,
        newest_first: Flag,
    ) -> PyResult<Bound<'py, PyAny>> {
        let query = HistoryQuery {
            since: since.map(|since| since.0),
            limit: limit.size(),
            newest_first: newest_first.0,
        };
        let handle = self.0.handle()?;
        let page = py
            .detach(|| handle.history(&topic, query))
            .map_err(Failure::from)?;
        let Some(page) = page else {
            return python(
                py,
                &json!({"epoch": null, "offset": 0, "publications": [], "more": false}),
            );
        };
        let publications: Result<Vec<Value>, _> = page
            .publications
            .iter()
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
        python(py, &found)
    }

    /// Forgets what a topic keeps; false if there was nothing.
    fn forget_history(&self, py: Python<'_>, topic: Str) -> PyResult<bool> {
        let handle = self.0.handle()?;
        let forgotten = py.detach(|| handle.forget_history(&topic));
        Ok(forgotten.map_err(Failure::from)?)
    }

    /// Who is on a topic: how many, and some of them.
    #[pyo3(signature = (topic, *, limit = Whole(1000)), text_signature = "($self, topic, *, limit=1000)")]
    fn presence<'py>(
        &self,
        py: Python<'py>,
        topic: Str,
        limit: Whole,
    ) -> PyResult<Bound<'py, PyAny>> {
        let handle = self.0.handle()?;
        let present = py.detach(|| handle.presence(&topic, limit.size()));
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
        python(py, &found)
    }
}

fn python<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    json::loads(py, value.to_string().as_bytes())
}

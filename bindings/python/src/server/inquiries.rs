//! Queries of the application to the running server.

use super::ServerCore;
use crate::arguments::{Flag, Str, Whole, Word};
use crate::errors::Failure;
use crate::json;
use pyo3::prelude::*;
use serde_json::Value;
use tidewire_bindings::server::queries;
use tidewire_engine::{HistoryQuery, TopicQuery};

#[pymethods]
impl ServerCore {
    /// The number of connections.
    #[getter]
    fn connections(&self) -> PyResult<usize> {
        Ok(self.core().handle()?.connections())
    }

    /// The counters of the server, by name.
    fn statistics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let counters = queries::statistics(self.core().handle()?);
        python(py, &counters.map_err(Failure::from)?)
    }

    /// Some connections, in the order of their ids: all of a user, or all of a topic, or all.
    #[pyo3(name = "_list_connections", signature = (*, user = None, topic = None, after = None, limit = Whole(1000)), text_signature = "($self, *, user=None, topic=None, after=None, limit=1000)")]
    fn list_connections<'py>(
        &self,
        py: Python<'py>,
        user: Option<Str>,
        topic: Option<Str>,
        after: Option<Str>,
        limit: Whole,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (user, topic) = (user.map(Str::into_string), topic.map(Str::into_string));
        let (after, limit) = (after.map(Str::into_string), limit.size());
        let core = self.core();
        let handle = core.handle()?;
        let listed =
            py.detach(|| queries::list_connections(handle, user, topic, after.as_deref(), limit));
        python(py, &listed.map_err(Failure::from)?)
    }

    /// Some topics and patterns that have subscribers, in the order of their names.
    #[pyo3(name = "_list_topics", signature = (*, prefix = Word::Default(""), after = None, limit = Whole(1000)), text_signature = "($self, *, prefix=\"\", after=None, limit=1000)")]
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
        let core = self.core();
        let handle = core.handle()?;
        let listed = py.detach(|| queries::list_topics(handle, &query));
        python(py, &listed.map_err(Failure::from)?)
    }

    /// The history of a topic: its position, and some of its publications.
    #[pyo3(name = "_history", signature = (topic, *, since = None, limit = Whole(100), newest_first = Flag(false)), text_signature = "($self, topic, *, since=None, limit=100, newest_first=False)")]
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
        let core = self.core();
        let handle = core.handle()?;
        let page = py.detach(|| queries::history(handle, &topic, query));
        python(py, &page.map_err(Failure::from)?)
    }

    /// Forgets what a topic keeps; false if there was nothing.
    fn forget_history(&self, py: Python<'_>, topic: Str) -> PyResult<bool> {
        let core = self.core();
        let handle = core.handle()?;
        let forgotten = py.detach(|| handle.forget_history(&topic));
        Ok(forgotten.map_err(Failure::from)?)
    }

    /// The presence of a topic: the counts, and some of its users.
    #[pyo3(name = "_presence", signature = (topic, *, limit = Whole(1000)), text_signature = "($self, topic, *, limit=1000)")]
    fn presence<'py>(
        &self,
        py: Python<'py>,
        topic: Str,
        limit: Whole,
    ) -> PyResult<Bound<'py, PyAny>> {
        let core = self.core();
        let handle = core.handle()?;
        let present = py.detach(|| queries::presence(handle, &topic, limit.size()));
        python(py, &present.map_err(Failure::from)?)
    }
}

fn python<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    json::loads(py, value.to_string().as_bytes())
}

//! A connection as the application sees it.

use super::core::Core;
use super::message::Message;
use super::publishing::{as_volatile, publication};
use super::waiting::retry;
use crate::arguments::{Flag, Names, Str, Whole, Word};
use crate::errors::{Failure, argument};
use crate::json;
use pyo3::prelude::*;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use tidewire_engine::{AccessRules, NewCall, Outgoing, Peer, Rules};
use tidewire_wire::close::CloseCode;

/// A client's connection. Two that are the same are equal, and it can be a key of a dict.
#[pyclass(frozen, module = "tidewire")]
pub(crate) struct Connection {
    peer: Arc<Peer>,
    core: Arc<Core>,
}

impl Connection {
    pub(super) fn new(peer: &Arc<Peer>, core: &Arc<Core>) -> Self {
        Self {
            peer: Arc::clone(peer),
            core: Arc::clone(core),
        }
    }

    pub(super) fn peer(&self) -> &Peer {
        &self.peer
    }
}

#[pymethods]
impl Connection {
    /// Its id, valid while the server runs.
    #[getter]
    fn id(&self) -> String {
        self.peer.connection.to_string()
    }

    /// The user that its token names.
    #[getter]
    fn user(&self) -> Option<&str> {
        self.peer.user.as_deref()
    }

    /// The other end, as `(host, port)`.
    #[getter]
    fn address(&self) -> Option<(String, u16)> {
        let address = self.peer.address?;
        Some((address.ip().to_string(), address.port()))
    }

    /// The `attachment` that the `authorize` of a `WebSocketEndpoint` has returned, or `None`.
    #[getter]
    fn attachment(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.core.adoptions.attached(py, &self.peer)
    }

    /// Sends a message. If the connection is gone, it goes nowhere, without an error.
    #[pyo3(signature = (payload, *, r#type = Word::Default("message"), priority = None, volatile = Flag(false), wait_ms = Whole(1000)), text_signature = "($self, payload, *, type=\"message\", priority=None, volatile=False, wait_ms=1000)")]
    fn send(
        &self,
        py: Python<'_>,
        payload: &Bound<'_, PyAny>,
        r#type: Word,
        priority: Option<Whole>,
        volatile: Flag,
        wait_ms: Whole,
    ) -> PyResult<()> {
        let publication = as_volatile(publication(&r#type, payload, priority)?, volatile);
        let handle = self.core.handle()?;
        retry(py, wait_ms, || {
            Ok(handle.publish_to_connection(self.peer.connection, &publication))
        })
    }

    /// Sends `str` as a text message, bytes as a binary one, and a received message, all of them unchanged.
    #[pyo3(signature = (data, *, wait_ms = Whole(1000)), text_signature = "($self, data, *, wait_ms=1000)")]
    fn send_raw(&self, py: Python<'_>, data: &Bound<'_, PyAny>, wait_ms: Whole) -> PyResult<()> {
        let message = outgoing(data)?;
        let handle = self.core.handle()?;
        retry(py, wait_ms, || {
            Ok(handle.send(self.peer.connection, message.clone()))
        })
    }

    /// Ends the connection with a code and a reason.
    #[pyo3(signature = (code = Whole(1000), reason = Word::Default("")), text_signature = "($self, code=1000, reason=\"\")")]
    fn close(&self, code: Whole, reason: Word) -> PyResult<()> {
        let handle = self.core.handle()?;
        let closed = handle.close_with(self.peer.connection, close_code(code)?, &reason);
        closed.map_err(|error| Failure::from(error).into())
    }

    /// Subscribes it to a topic or pattern, regardless of its access rules.
    fn subscribe(&self, topic: Str) -> PyResult<()> {
        let changed = self.core.handle()?.subscribe(self.peer.connection, &topic);
        changed.map_err(|error| Failure::from(error).into())
    }

    /// Ends a subscription.
    fn unsubscribe(&self, topic: Str) -> PyResult<()> {
        let changed = self
            .core
            .handle()?
            .unsubscribe(self.peer.connection, &topic);
        changed.map_err(|error| Failure::from(error).into())
    }

    /// Gives it access rules of its own, in place of those of the server and of its token. Everything that
    /// the rules do not allow is forbidden, and subscriptions of its client that are no longer allowed end;
    /// presence follows the rules of subscriptions if it has none.
    #[pyo3(signature = (
        *, subscribe_allow = None, subscribe_deny = None, publish_allow = None, publish_deny = None,
        presence_allow = None, presence_deny = None, queue_group_allow = None, queue_group_deny = None,
    ))]
    #[expect(clippy::too_many_arguments, reason = "they are keyword arguments")]
    fn set_access(
        &self,
        subscribe_allow: Option<Names>,
        subscribe_deny: Option<Names>,
        publish_allow: Option<Names>,
        publish_deny: Option<Names>,
        presence_allow: Option<Names>,
        presence_deny: Option<Names>,
        queue_group_allow: Option<Names>,
        queue_group_deny: Option<Names>,
    ) -> PyResult<()> {
        let names = |names: Option<Names>| names.map(Names::into_strings).unwrap_or_default();
        let rules = |allow: Option<Names>, deny: Option<Names>| Rules {
            allow: names(allow),
            deny: names(deny),
        };
        let names_presence = presence_allow.is_some() || presence_deny.is_some();
        let presence = rules(presence_allow, presence_deny);
        let rules = AccessRules {
            subscribe: rules(subscribe_allow, subscribe_deny),
            publish: rules(publish_allow, publish_deny),
            presence: names_presence.then_some(presence),
            queue_group: rules(queue_group_allow, queue_group_deny),
        };
        let changed = self.core.handle()?.set_access(self.peer.connection, rules);
        changed.map_err(|error| Failure::from(error).into())
    }

    /// Asks its client something and waits for the answer.
    #[pyo3(signature = (payload, *, r#type, timeout_ms = Whole(10_000)), text_signature = "($self, payload, *, type, timeout_ms=10000)")]
    fn request<'py>(
        &self,
        py: Python<'py>,
        payload: &Bound<'py, PyAny>,
        r#type: Str,
        timeout_ms: Whole,
    ) -> PyResult<Bound<'py, PyAny>> {
        let call = NewCall::new(&*r#type, json::content(payload)?).with_timeout(timeout_ms.ms());
        let handle = self.core.handle()?;
        let answer = py.detach(|| handle.call_wait(self.peer.connection, call));
        let answer = answer.map_err(Failure::from)?;
        json::loads_content(py, answer.as_json(), answer.to_bytes())
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<Self>().is_ok_and(|other| {
            let other = other.get();
            other.peer.connection == self.peer.connection && Arc::ptr_eq(&other.core, &self.core)
        })
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.peer.connection.hash(&mut hasher);
        hasher.finish()
    }

    fn __repr__(&self) -> String {
        let user = self
            .user()
            .map_or_else(String::new, |user| format!(" user={user:?}"));
        format!("<tidewire.Connection {}{user}>", self.peer.connection)
    }
}

/// `str` is text, a message what it was, anything else bytes.
pub(super) fn outgoing(data: &Bound<'_, PyAny>) -> PyResult<Outgoing> {
    if let Ok(message) = data.cast::<Message>() {
        return message.get().outgoing();
    }
    let (bytes, is_text) = json::bytes_of(data)?;
    Ok(match is_text {
        true => Outgoing::Text(String::from_utf8(bytes).map_err(argument)?.into()),
        false => Outgoing::Binary(bytes.into()),
    })
}

pub(super) fn close_code(Whole(code): Whole) -> PyResult<CloseCode> {
    let code = tidewire_bindings::server::close_code(code);
    code.map_err(|failure| Failure::from(failure).into())
}

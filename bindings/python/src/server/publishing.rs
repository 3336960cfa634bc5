//! Messages and publications of the application to clients.

use super::ServerCore;
use super::connection::{Connection, close_code, outgoing};
use super::message::Message;
use super::waiting::{PendingPublish, Published, retry, settled};
use crate::arguments::{Flag, Str, Whole, Word};
use crate::errors::{Failure, argument, wrong_type};
use crate::json;
use crate::signal::ClientSignal;
use pyo3::prelude::*;
use tidewire_bindings::server::publishing::{PublishStart, publish};
use tidewire_engine::{ConnectionKey, Handle, NewPublication, Priority, PublishError};

#[pymethods]
impl ServerCore {
    /// Publishes to a topic: every subscriber gets it.
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    #[pyo3(signature = (
        topic, payload, *, r#type = Word::Default("message"), priority = None, id = None, key = None, ttl_ms = None,
        exclude = None, snapshot = Flag(false), volatile = Flag(false), wait_ms = Whole(1000),
    ), text_signature = "($self, topic, payload, *, type=\"message\", priority=None, id=None, key=None, ttl_ms=None, exclude=None, snapshot=False, volatile=False, wait_ms=1000)")]
    fn publish(
        &self,
        py: Python<'_>,
        topic: Str,
        payload: &Bound<'_, PyAny>,
        r#type: Word,
        priority: Option<Whole>,
        id: Option<Str>,
        key: Option<Str>,
        ttl_ms: Option<Whole>,
        exclude: Option<Bound<'_, PyAny>>,
        snapshot: Flag,
        volatile: Flag,
        wait_ms: Whole,
    ) -> PyResult<Published> {
        let new = publication(&r#type, payload, priority)?;
        let options = Options {
            id,
            key,
            ttl_ms,
            exclude,
            snapshot,
            volatile,
        };
        let new = options.apply(new)?;
        let core = self.core();
        let handle = core.handle()?;
        let place = retry(py, wait_ms, || settled(py, publish(handle, &topic, &new)))?;
        Ok(place.into())
    }

    /// Publishes to a topic, and gives the result or, if the broker answers later, what `signal` is given for then.
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    #[pyo3(signature = (signal, topic, payload, *, r#type = Word::Default("message"), priority = None, id = None, key = None, ttl_ms = None, exclude = None, snapshot = Flag(false), volatile = Flag(false)), text_signature = "($self, signal, topic, payload, *, type=\"message\", priority=None, id=None, key=None, ttl_ms=None, exclude=None, snapshot=False, volatile=False)")]
    fn _publish_start<'py>(
        &self,
        py: Python<'py>,
        signal: PyRef<'_, ClientSignal>,
        topic: Str,
        payload: &Bound<'_, PyAny>,
        r#type: Word,
        priority: Option<Whole>,
        id: Option<Str>,
        key: Option<Str>,
        ttl_ms: Option<Whole>,
        exclude: Option<Bound<'_, PyAny>>,
        snapshot: Flag,
        volatile: Flag,
    ) -> PyResult<Bound<'py, PyAny>> {
        let new = publication(&r#type, payload, priority)?;
        let options = Options {
            id,
            key,
            ttl_ms,
            exclude,
            snapshot,
            volatile,
        };
        let new = options.apply(new)?;
        match publish(self.core().handle()?, &topic, &new) {
            PublishStart::Done(result) => {
                let place = Published::from(result.map_err(Failure::from)?);
                Ok(Bound::new(py, place)?.into_any())
            }
            PublishStart::Pending(pending) => {
                let pending = PendingPublish::start(pending, signal.signal());
                Ok(Bound::new(py, pending)?.into_any())
            }
        }
    }

    /// Publishes several payloads to one topic, in their order; how many were new.
    #[pyo3(signature = (topic, payloads, *, r#type = Word::Default("message"), priority = None, wait_ms = Whole(1000)), text_signature = "($self, topic, payloads, *, type=\"message\", priority=None, wait_ms=1000)")]
    fn publish_many(
        &self,
        py: Python<'_>,
        topic: Str,
        payloads: &Bound<'_, PyAny>,
        r#type: Word,
        priority: Option<Whole>,
        wait_ms: Whole,
    ) -> PyResult<usize> {
        let mut new = Vec::with_capacity(payloads.len().unwrap_or(0));
        let each = payloads.try_iter();
        for payload in each.map_err(|_| wrong_type("a list of payloads is needed"))? {
            new.push(publication(&r#type, &payload?, priority)?);
        }
        let core = self.core();
        let handle = core.handle()?;
        let mut published = 0;
        let mut left = new.as_slice();
        // When there is no room for the rest, only the rest is tried again.
        retry(py, wait_ms, || {
            publish_in_turn(py, handle, &topic, &mut left, &mut published)
        })?;
        Ok(published)
    }

    /// Sends to every connection of a user, but for those that `exclude` names.
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    #[pyo3(signature = (user, payload, *, r#type = Word::Default("message"), priority = None, exclude = None, volatile = Flag(false), wait_ms = Whole(1000)), text_signature = "($self, user, payload, *, type=\"message\", priority=None, exclude=None, volatile=False, wait_ms=1000)")]
    fn send_to_user(
        &self,
        py: Python<'_>,
        user: Str,
        payload: &Bound<'_, PyAny>,
        r#type: Word,
        priority: Option<Whole>,
        exclude: Option<Bound<'_, PyAny>>,
        volatile: Flag,
        wait_ms: Whole,
    ) -> PyResult<()> {
        let new = publication(&r#type, payload, priority)?;
        let new = without(as_volatile(new, volatile), exclude)?;
        let core = self.core();
        let handle = core.handle()?;
        retry(py, wait_ms, || Ok(handle.publish_to_user(&user, &new)))
    }

    /// Sends to every connection, but for those that `exclude` names.
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    #[pyo3(signature = (payload, *, r#type = Word::Default("message"), priority = None, exclude = None, volatile = Flag(false), wait_ms = Whole(1000)), text_signature = "($self, payload, *, type=\"message\", priority=None, exclude=None, volatile=False, wait_ms=1000)")]
    fn broadcast(
        &self,
        py: Python<'_>,
        payload: &Bound<'_, PyAny>,
        r#type: Word,
        priority: Option<Whole>,
        exclude: Option<Bound<'_, PyAny>>,
        volatile: Flag,
        wait_ms: Whole,
    ) -> PyResult<()> {
        let new = publication(&r#type, payload, priority)?;
        let new = without(as_volatile(new, volatile), exclude)?;
        let core = self.core();
        let handle = core.handle()?;
        retry(py, wait_ms, || Ok(handle.publish_to_everyone(&new)))
    }

    /// Sends to every connection as it is: `str` as text, bytes as binary.
    #[pyo3(signature = (data, *, wait_ms = Whole(1000)), text_signature = "($self, data, *, wait_ms=1000)")]
    fn broadcast_raw(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        wait_ms: Whole,
    ) -> PyResult<()> {
        let message = outgoing(data)?;
        let core = self.core();
        let handle = core.handle()?;
        retry(py, wait_ms, || Ok(handle.broadcast(message.clone())))
    }

    /// Sends pairs of a connection and data, unchanged and in their order. A received message may replace the
    /// connection; it means the connection that sent the message.
    #[pyo3(signature = (pairs, *, wait_ms = Whole(1000)), text_signature = "($self, pairs, *, wait_ms=1000)")]
    fn send_raw_many(
        &self,
        py: Python<'_>,
        pairs: &Bound<'_, PyAny>,
        wait_ms: Whole,
    ) -> PyResult<()> {
        let mut messages = Vec::with_capacity(pairs.len().unwrap_or(0));
        for pair in pairs.try_iter().map_err(|_| wrong_type(PAIRS))? {
            let pair = pair?.extract();
            let (to, data): (Bound<'_, PyAny>, Bound<'_, PyAny>) =
                pair.map_err(|_: PyErr| wrong_type(PAIRS))?;
            messages.push((receiver(&to)?, outgoing(&data)?));
        }
        let core = self.core();
        let handle = core.handle()?;
        let mut messages = messages.into_iter().peekable();
        retry(py, wait_ms, || {
            while let Some((connection, message)) = messages.peek() {
                if let Err(error) = handle.send(*connection, message.clone()) {
                    return Ok(Err(error));
                }
                messages.next();
            }
            Ok(Ok(()))
        })
    }

    /// Subscribes every connection that a user has now to a topic or pattern.
    fn subscribe_user(&self, py: Python<'_>, user: Str, topic: Str) -> PyResult<()> {
        let core = self.core();
        let handle = core.handle()?;
        let changed = py.detach(|| handle.subscribe_user(&user, &topic));
        changed.map_err(|error| Failure::from(error).into())
    }

    /// Ends a subscription of every connection of a user.
    fn unsubscribe_user(&self, py: Python<'_>, user: Str, topic: Str) -> PyResult<()> {
        let core = self.core();
        let handle = core.handle()?;
        let changed = py.detach(|| handle.unsubscribe_user(&user, &topic));
        changed.map_err(|error| Failure::from(error).into())
    }

    /// Ends every connection of a user.
    #[pyo3(signature = (user, code = Whole(1000), reason = Word::Default("")), text_signature = "($self, user, code=1000, reason=\"\")")]
    fn disconnect_user(
        &self,
        py: Python<'_>,
        user: Str,
        code: Whole,
        reason: Word,
    ) -> PyResult<()> {
        let core = self.core();
        let (handle, code) = (core.handle()?, close_code(code)?);
        let closed = py.detach(|| handle.close_user(&user, code, &reason));
        closed.map_err(|error| Failure::from(error).into())
    }

    /// Ends the connection with this id.
    #[pyo3(signature = (id, code = Whole(1000), reason = Word::Default("")), text_signature = "($self, id, code=1000, reason=\"\")")]
    fn disconnect(&self, py: Python<'_>, id: Str, code: Whole, reason: Word) -> PyResult<()> {
        let key: ConnectionKey = id.parse().map_err(argument)?;
        let core = self.core();
        let (handle, code) = (core.handle()?, close_code(code)?);
        // It waits for the broker if the connection is one of another server.
        let closed = py.detach(|| handle.close_with(key, code, &reason));
        closed.map_err(|error| Failure::from(error).into())
    }
}

/// A publication of a type.
pub(super) fn publication(
    r#type: &str,
    payload: &Bound<'_, PyAny>,
    priority: Option<Whole>,
) -> PyResult<NewPublication> {
    let new = NewPublication::new(r#type, json::content(payload)?);
    let Some(number) = priority else {
        return Ok(new);
    };
    let priority = Priority::from_number(number.0)
        .ok_or_else(|| argument("a priority is 1, 3, 5, 8 or 10"))?;
    Ok(new.with_priority(priority))
}

/// A connection, or that of a message.
fn receiver(to: &Bound<'_, PyAny>) -> PyResult<ConnectionKey> {
    if let Ok(message) = to.cast::<Message>() {
        return Ok(message.get().connection_key());
    }
    match to.cast::<Connection>() {
        Ok(connection) => Ok(connection.get().peer().connection),
        Err(_) => Err(wrong_type(PAIRS).into()),
    }
}

fn publish_in_turn(
    py: Python<'_>,
    handle: &Handle,
    topic: &str,
    left: &mut &[NewPublication],
    published: &mut usize,
) -> PyResult<Result<(), PublishError>> {
    while let Some((first, rest)) = left.split_first() {
        match settled(py, publish(handle, topic, first))? {
            Ok(place) => *published += usize::from(!place.is_duplicate),
            Err(error) => return Ok(Err(error)),
        }
        *left = rest;
    }
    Ok(Ok(()))
}

/// The options of a publication besides its type, payload and priority.
struct Options<'py> {
    id: Option<Str>,
    key: Option<Str>,
    ttl_ms: Option<Whole>,
    exclude: Option<Bound<'py, PyAny>>,
    snapshot: Flag,
    volatile: Flag,
}

impl Options<'_> {
    fn apply(self, mut new: NewPublication) -> PyResult<NewPublication> {
        if let Some(id) = self.id {
            new = new.with_id(id.into_string());
        }
        if let Some(key) = self.key {
            new = new.with_key(key.into_string());
        }
        if let Some(ttl_ms) = self.ttl_ms {
            new = new.with_ttl_ms(ttl_ms.0);
        }
        if self.snapshot.0 {
            new = new.as_snapshot();
        }
        without(as_volatile(new, self.volatile), self.exclude)
    }
}

/// The same, which a connection that lags does not get if it is volatile.
pub(super) fn as_volatile(new: NewPublication, volatile: Flag) -> NewPublication {
    match volatile.0 {
        true => new.as_volatile(),
        false => new,
    }
}

/// The same for everybody but a connection, or several.
fn without(new: NewPublication, exclude: Option<Bound<'_, PyAny>>) -> PyResult<NewPublication> {
    let Some(exclude) = exclude else {
        return Ok(new);
    };
    let key = |connection: &Bound<'_, PyAny>| {
        let connection = connection.cast::<Connection>().ok();
        connection.map(|connection| connection.get().peer().connection)
    };
    if let Some(one) = key(&exclude) {
        return Ok(new.without(one));
    }
    let several = exclude.try_iter().map_err(|_| wrong_type(EXCLUDE))?;
    let several =
        several.map(|connection| key(&connection?).ok_or_else(|| wrong_type(EXCLUDE).into()));
    Ok(new.without_all(several.collect::<PyResult<Vec<_>>>()?))
}

const EXCLUDE: &str = "exclude is a connection, or several connections";

const PAIRS: &str = "pairs of a connection or a message, and data, are needed";

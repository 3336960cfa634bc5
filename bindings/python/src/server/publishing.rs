//! Messages and publications of the application to clients.

use super::ServerCore;
use super::connection::{Connection, close_code, outgoing};
use super::message::Message;
use crate::arguments::{Flag, Str, Whole, Word};
use crate::errors::{Failure, argument, wrong_type};
use crate::json;
use pyo3::prelude::*;
use std::thread;
use std::time::{Duration, Instant};
use tidewire_engine::{
    ConnectionKey, Handle, NewPublication, Priority, PublishError, Published as Place, SendError,
};

/// The result of a publication.
#[pyclass(frozen, get_all, module = "tidewire")]
pub(crate) struct Published {
    /// Its number in its topic, from 1; `None` if the topic keeps no history.
    offset: Option<u64>,
    /// The life of the topic that the number is of; `None` if the topic keeps no history.
    epoch: Option<String>,
    /// Whether it repeats the `id` of one that was published before, and went to nobody.
    duplicate: bool,
}

#[pymethods]
impl ServerCore {
    /// Publishes to a topic: every subscriber gets it.
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    #[pyo3(signature = (
        topic, payload, *, r#type = Word::Default("message"), priority = None, id = None, key = None, ttl_ms = None,
        exclude = None, snapshot = Flag(false), wait_ms = Whole(1000),
    ), text_signature = "($self, topic, payload, *, type=\"message\", priority=None, id=None, key=None, ttl_ms=None, exclude=None, snapshot=False, wait_ms=1000)")]
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
        wait_ms: Whole,
    ) -> PyResult<Published> {
        let mut new = publication(&r#type, payload, priority)?;
        if let Some(id) = id {
            new = new.with_id(id.into_string());
        }
        if let Some(key) = key {
            new = new.with_key(key.into_string());
        }
        if let Some(ttl_ms) = ttl_ms {
            new = new.with_ttl_ms(ttl_ms.0);
        }
        if let Some(connection) = exclude {
            let connection = connection.cast::<Connection>();
            let connection = connection.map_err(|_| wrong_type("exclude is a connection"))?;
            new = new.without(connection.get().peer().connection);
        }
        if snapshot.0 {
            new = new.as_snapshot();
        }
        let handle = self.0.handle()?;
        let place = retry(py, wait_ms, || handle.publish(&topic, &new))?;
        Ok(place.into())
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
        let handle = self.0.handle()?;
        let mut published = 0;
        let mut left = new.as_slice();
        // What was published is not published again when there is no room for the rest.
        retry(py, wait_ms, || {
            publish_in_turn(handle, &topic, &mut left, &mut published)
        })?;
        Ok(published)
    }

    /// Sends to every connection of a user.
    #[pyo3(signature = (user, payload, *, r#type = Word::Default("message"), priority = None, wait_ms = Whole(1000)), text_signature = "($self, user, payload, *, type=\"message\", priority=None, wait_ms=1000)")]
    fn send_to_user(
        &self,
        py: Python<'_>,
        user: Str,
        payload: &Bound<'_, PyAny>,
        r#type: Word,
        priority: Option<Whole>,
        wait_ms: Whole,
    ) -> PyResult<()> {
        let new = publication(&r#type, payload, priority)?;
        let handle = self.0.handle()?;
        retry(py, wait_ms, || handle.publish_to_user(&user, &new))
    }

    /// Sends to every connection.
    #[pyo3(signature = (payload, *, r#type = Word::Default("message"), priority = None, wait_ms = Whole(1000)), text_signature = "($self, payload, *, type=\"message\", priority=None, wait_ms=1000)")]
    fn broadcast(
        &self,
        py: Python<'_>,
        payload: &Bound<'_, PyAny>,
        r#type: Word,
        priority: Option<Whole>,
        wait_ms: Whole,
    ) -> PyResult<()> {
        let new = publication(&r#type, payload, priority)?;
        let handle = self.0.handle()?;
        retry(py, wait_ms, || handle.publish_to_everyone(&new))
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
        let handle = self.0.handle()?;
        retry(py, wait_ms, || handle.broadcast(message.clone()))
    }

    /// Sends pairs of a connection, or a message for the connection it came from, and data, as they are, in their
    /// order.
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
        let handle = self.0.handle()?;
        let mut messages = messages.into_iter().peekable();
        retry(py, wait_ms, || {
            while let Some((connection, message)) = messages.peek() {
                handle.send(*connection, message.clone())?;
                messages.next();
            }
            Ok::<_, SendError>(())
        })
    }

    /// Subscribes every connection that a user has now to a topic or pattern.
    fn subscribe_user(&self, user: Str, topic: Str) -> PyResult<()> {
        let changed = self.0.handle()?.subscribe_user(&user, &topic);
        changed.map_err(|error| Failure::from(error).into())
    }

    /// Ends a subscription of every connection of a user.
    fn unsubscribe_user(&self, user: Str, topic: Str) -> PyResult<()> {
        let changed = self.0.handle()?.unsubscribe_user(&user, &topic);
        changed.map_err(|error| Failure::from(error).into())
    }

    /// Ends every connection of a user.
    #[pyo3(signature = (user, code = Whole(1000), reason = Word::Default("")), text_signature = "($self, user, code=1000, reason=\"\")")]
    fn disconnect_user(&self, user: Str, code: Whole, reason: Word) -> PyResult<()> {
        let closed = self
            .0
            .handle()?
            .close_user(&user, close_code(code)?, &reason);
        closed.map_err(|error| Failure::from(error).into())
    }

    /// Ends the connection with this id.
    #[pyo3(signature = (id, code = Whole(1000), reason = Word::Default("")), text_signature = "($self, id, code=1000, reason=\"\")")]
    fn disconnect(&self, id: Str, code: Whole, reason: Word) -> PyResult<()> {
        let key: ConnectionKey = id.parse().map_err(argument)?;
        let closed = self.0.handle()?.close_with(key, close_code(code)?, &reason);
        closed.map_err(|error| Failure::from(error).into())
    }
}

#[pymethods]
impl Published {
    fn __repr__(&self) -> String {
        let place = match (&self.epoch, self.offset) {
            (Some(epoch), Some(offset)) => format!(" offset={offset} epoch={epoch}"),
            _ => String::new(),
        };
        let duplicate = if self.duplicate { " duplicate" } else { "" };
        format!("<tidewire.Published{place}{duplicate}>")
    }
}

impl From<Place> for Published {
    fn from(place: Place) -> Self {
        Self {
            offset: place.position.map(|position| position.offset),
            epoch: place.position.map(|position| position.epoch_hex()),
            duplicate: place.is_duplicate,
        }
    }
}

/// A publication of a type.
pub(super) fn publication(
    r#type: &str,
    payload: &Bound<'_, PyAny>,
    priority: Option<Whole>,
) -> PyResult<NewPublication> {
    let new = NewPublication::new(r#type, json::dumps(payload)?);
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
    handle: &Handle,
    topic: &str,
    left: &mut &[NewPublication],
    published: &mut usize,
) -> Result<(), PublishError> {
    while let Some((first, rest)) = left.split_first() {
        let place = handle.publish(topic, first)?;
        *published += usize::from(!place.is_duplicate);
        *left = rest;
    }
    Ok(())
}

/// The reason why a call can be retried.
pub(super) trait MayBeBusy: Into<Failure> {
    fn is_busy(&self) -> bool;
}

impl MayBeBusy for PublishError {
    fn is_busy(&self) -> bool {
        *self == Self::Busy
    }
}

impl MayBeBusy for SendError {
    fn is_busy(&self) -> bool {
        *self == Self::Busy
    }
}

/// Tries again while the server has not caught up, for so long. The first try is made with the interpreter locked, as
/// most end at once; while it waits others can run.
pub(super) fn retry<T: Send, E: MayBeBusy + Send>(
    py: Python<'_>,
    wait_ms: Whole,
    mut attempt: impl FnMut() -> Result<T, E> + Send,
) -> PyResult<T> {
    let wait = wait_ms.ms();
    match attempt() {
        Err(error) if error.is_busy() && !wait.is_zero() => {}
        outcome => return outcome.map_err(|error| error.into().into()),
    }
    let started = Instant::now();
    let mut pause = PAUSE_MIN;
    loop {
        let outcome = py.detach(|| {
            thread::sleep(pause);
            attempt()
        });
        match outcome {
            Err(error) if error.is_busy() && started.elapsed() < wait => {}
            outcome => return outcome.map_err(|error| error.into().into()),
        }
        py.check_signals()?;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

const PAIRS: &str = "pairs of a connection or a message, and data, are needed";

const PAUSE_MIN: Duration = Duration::from_micros(50);
const PAUSE_MAX: Duration = Duration::from_millis(2);

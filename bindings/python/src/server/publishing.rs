//! What goes from the application to clients.

use super::ServerCore;
use super::connection::{Connection, close_code, outgoing};
use super::message::Message;
use crate::errors::{Failure, argument, wrong_type};
use crate::json;
use pyo3::prelude::*;
use std::thread;
use std::time::{Duration, Instant};
use tidewire_engine::{
    ConnectionKey, Handle, NewPublication, Priority, PublishError, Published as Place, SendError,
};

/// What became of a publication.
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
        topic, payload, *, r#type = "message", priority = None, id = None, key = None, ttl_ms = None,
        exclude = None, snapshot = false, wait_ms = 1000,
    ))]
    fn publish(
        &self,
        py: Python<'_>,
        topic: &str,
        payload: &Bound<'_, PyAny>,
        r#type: &str,
        priority: Option<u8>,
        id: Option<String>,
        key: Option<String>,
        ttl_ms: Option<u64>,
        exclude: Option<PyRef<'_, Connection>>,
        snapshot: bool,
        wait_ms: u64,
    ) -> PyResult<Published> {
        let mut new = publication(r#type, payload, priority)?;
        if let Some(id) = id {
            new = new.with_id(id);
        }
        if let Some(key) = key {
            new = new.with_key(key);
        }
        if let Some(ttl_ms) = ttl_ms {
            new = new.with_ttl_ms(ttl_ms);
        }
        if let Some(connection) = exclude {
            new = new.without(connection.peer().connection);
        }
        if snapshot {
            new = new.as_snapshot();
        }
        let handle = self.0.handle()?;
        let place = retry(py, wait_ms, || handle.publish(topic, &new))?;
        Ok(place.into())
    }

    /// Publishes several payloads to one topic, in their order; how many were new.
    #[pyo3(signature = (topic, payloads, *, r#type = "message", priority = None, wait_ms = 1000))]
    fn publish_many(
        &self,
        py: Python<'_>,
        topic: &str,
        payloads: &Bound<'_, PyAny>,
        r#type: &str,
        priority: Option<u8>,
        wait_ms: u64,
    ) -> PyResult<usize> {
        let mut new = Vec::with_capacity(payloads.len().unwrap_or(0));
        for payload in payloads.try_iter()? {
            new.push(publication(r#type, &payload?, priority)?);
        }
        let handle = self.0.handle()?;
        let mut published = 0;
        let mut left = new.as_slice();
        // What was published is not published again when there is no room for the rest.
        retry(py, wait_ms, || {
            publish_in_turn(handle, topic, &mut left, &mut published)
        })?;
        Ok(published)
    }

    /// Sends to every connection of a user.
    #[pyo3(signature = (user, payload, *, r#type = "message", priority = None, wait_ms = 1000))]
    fn send_to_user(
        &self,
        py: Python<'_>,
        user: &str,
        payload: &Bound<'_, PyAny>,
        r#type: &str,
        priority: Option<u8>,
        wait_ms: u64,
    ) -> PyResult<()> {
        let new = publication(r#type, payload, priority)?;
        let handle = self.0.handle()?;
        retry(py, wait_ms, || handle.publish_to_user(user, &new))
    }

    /// Sends to every connection.
    #[pyo3(signature = (payload, *, r#type = "message", priority = None, wait_ms = 1000))]
    fn broadcast(
        &self,
        py: Python<'_>,
        payload: &Bound<'_, PyAny>,
        r#type: &str,
        priority: Option<u8>,
        wait_ms: u64,
    ) -> PyResult<()> {
        let new = publication(r#type, payload, priority)?;
        let handle = self.0.handle()?;
        retry(py, wait_ms, || handle.publish_to_everyone(&new))
    }

    /// Sends to every connection as it is: `str` as text, bytes as binary.
    #[pyo3(signature = (data, *, wait_ms = 1000))]
    fn broadcast_raw(&self, py: Python<'_>, data: &Bound<'_, PyAny>, wait_ms: u64) -> PyResult<()> {
        let message = outgoing(data)?;
        let handle = self.0.handle()?;
        retry(py, wait_ms, || handle.broadcast(message.clone()))
    }

    /// Sends pairs of a connection, or a message for the connection it came from, and data, as they are, in their
    /// order.
    #[pyo3(signature = (pairs, *, wait_ms = 1000))]
    fn send_raw_many(
        &self,
        py: Python<'_>,
        pairs: &Bound<'_, PyAny>,
        wait_ms: u64,
    ) -> PyResult<()> {
        let mut messages = Vec::with_capacity(pairs.len().unwrap_or(0));
        for pair in pairs.try_iter()? {
            let (to, data): (Bound<'_, PyAny>, Bound<'_, PyAny>) = pair?.extract()?;
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
    fn subscribe_user(&self, user: &str, topic: &str) -> PyResult<()> {
        let changed = self.0.handle()?.subscribe_user(user, topic);
        changed.map_err(|error| Failure::from(error).into())
    }

    /// Ends a subscription of every connection of a user.
    fn unsubscribe_user(&self, user: &str, topic: &str) -> PyResult<()> {
        let changed = self.0.handle()?.unsubscribe_user(user, topic);
        changed.map_err(|error| Failure::from(error).into())
    }

    /// Ends every connection of a user.
    #[pyo3(signature = (user, code = 1000, reason = ""))]
    fn disconnect_user(&self, user: &str, code: u16, reason: &str) -> PyResult<()> {
        let closed = self.0.handle()?.close_user(user, close_code(code)?, reason);
        closed.map_err(|error| Failure::from(error).into())
    }

    /// Ends the connection with this id.
    #[pyo3(signature = (id, code = 1000, reason = ""))]
    fn disconnect(&self, id: &str, code: u16, reason: &str) -> PyResult<()> {
        let key: ConnectionKey = id.parse().map_err(argument)?;
        let closed = self.0.handle()?.close_with(key, close_code(code)?, reason);
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
    priority: Option<u8>,
) -> PyResult<NewPublication> {
    let new = NewPublication::new(r#type, json::dumps(payload)?);
    let Some(number) = priority else {
        return Ok(new);
    };
    let priority = Priority::from_number(number.into())
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
        Err(_) => Err(wrong_type("expected pairs of a connection or message, and data").into()),
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

/// Why something can be tried again.
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
    wait_ms: u64,
    mut attempt: impl FnMut() -> Result<T, E> + Send,
) -> PyResult<T> {
    let wait = Duration::from_millis(wait_ms);
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

const PAUSE_MIN: Duration = Duration::from_micros(50);
const PAUSE_MAX: Duration = Duration::from_millis(2);

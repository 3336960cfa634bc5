//! One thing that happened to a client, decoded as far as it is looked at.

use super::position::position;
use crate::arguments::Str;
use crate::decoded::Decoded;
use crate::errors::{Failure, argument, invalid_message};
use crate::json;
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tidewire_client::event::Call;
use tidewire_client::sequencer::Position;
use tidewire_client::{Batch, Event, Format, Message, QueuedMessage, Responder};
use tidewire_wire::envelope::{Outline, message_topic, message_type};
use tidewire_wire::format::binary_bytes;

/// Messages in the order of their arrival: `for message in batch`.
#[pyclass(frozen, module = "tidewire")]
pub(crate) struct ClientBatch(Arc<[MessageContent]>);

/// Walks through a [`ClientBatch`].
#[pyclass(module = "tidewire._native")]
pub(crate) struct ClientBatchIterator {
    contents: Arc<[MessageContent]>,
    next: usize,
}

/// An event that a client received; `kind` names its type.
#[pyclass(frozen, freelist = 256, module = "tidewire")]
pub(crate) struct ClientMessage {
    content: MessageContent,
    decoded: Decoded,
}

#[derive(Clone)]
enum MessageContent {
    Message(Message),
    Call(Arc<PendingCall>),
    /// Anything else, by its name.
    Other(&'static str, Arc<Event>),
}

struct PendingCall {
    t: String,
    payload: String,
    is_binary: bool,
    timeout: Option<Duration>,
    responder: Mutex<Option<Responder>>,
}

impl PendingCall {
    fn value<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let payload = self
            .is_binary
            .then(|| binary_bytes(self.payload.as_bytes()));
        json::loads_content(py, &self.payload, payload.flatten())
    }
}

impl ClientBatch {
    pub(super) fn new(batch: Option<Batch>) -> Self {
        Self(
            batch
                .into_iter()
                .flatten()
                .map(MessageContent::from)
                .collect(),
        )
    }

    /// A batch of these messages, which were part of an answer.
    pub(super) fn of(messages: Vec<Message>) -> Self {
        Self(messages.into_iter().map(MessageContent::Message).collect())
    }
}

#[pymethods]
impl ClientBatch {
    fn __len__(&self) -> usize {
        self.0.len()
    }

    fn __iter__(&self) -> ClientBatchIterator {
        ClientBatchIterator {
            contents: Arc::clone(&self.0),
            next: 0,
        }
    }

    fn __getitem__(&self, index: isize) -> PyResult<ClientMessage> {
        let from_start = match index {
            0.. => index,
            _ => index + self.0.len() as isize,
        };
        let content = usize::try_from(from_start)
            .ok()
            .and_then(|at| self.0.get(at));
        content
            .map(ClientMessage::new)
            .ok_or_else(|| PyIndexError::new_err(index))
    }

    fn __repr__(&self) -> String {
        let length = self.0.len();
        let plural = if length == 1 { "" } else { "s" };
        format!("<tidewire.ClientBatch of {length} message{plural}>")
    }
}

#[pymethods]
impl ClientBatchIterator {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__(&mut self) -> Option<ClientMessage> {
        let content = self.contents.get(self.next)?;
        self.next += 1;
        Some(ClientMessage::new(content))
    }
}

impl From<Event> for MessageContent {
    fn from(event: Event) -> Self {
        match event {
            Event::Message(message) => Self::Message(message),
            Event::Call(call) => {
                let Call {
                    t,
                    payload,
                    is_binary,
                    timeout,
                    responder,
                } = *call;
                Self::Call(Arc::new(PendingCall {
                    t,
                    payload,
                    is_binary,
                    timeout,
                    responder: Mutex::new(Some(responder)),
                }))
            }
            other => {
                if let Event::Uncertain(uncertain) = &other {
                    // It is taken when the application gets it out of the batch.
                    uncertain.set_taken(false);
                }
                Self::Other(other.kind(), Arc::new(other))
            }
        }
    }
}

impl ClientMessage {
    fn new(content: &MessageContent) -> Self {
        if let MessageContent::Other(_, event) = content
            && let Event::Uncertain(uncertain) = &**event
        {
            uncertain.set_taken(true);
        }
        Self {
            content: content.clone(),
            decoded: Decoded::default(),
        }
    }

    pub(super) fn message(&self) -> Option<&Message> {
        match &self.content {
            MessageContent::Message(message) => Some(message),
            _ => None,
        }
    }

    fn outline(&self) -> Result<Option<Outline<'_>>, Failure> {
        let outline = self.message().map(Message::outline);
        outline.transpose().map_err(invalid_message)
    }

    fn question(&self) -> Result<&PendingCall, Failure> {
        match &self.content {
            MessageContent::Call(question) => Ok(question),
            _ => Err(argument("only a message of the kind request is replied to")),
        }
    }

    /// Removes the responder; `None` if the request was answered before.
    fn responder(&self) -> Result<Option<Responder>, Failure> {
        let responder = &self.question()?.responder;
        Ok(responder
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take())
    }

    fn decode<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let fields = PyDict::new(py);
        match &self.content {
            MessageContent::Message(message) => {
                return json::loads(py, &message.json().map_err(invalid_message)?);
            }
            MessageContent::Call(question) => {
                fields.set_item("t", &question.t)?;
                fields.set_item("p", question.value(py)?)?;
            }
            MessageContent::Other(name, event) => {
                fields.set_item("t", name)?;
                fields.set_item("p", describe(py, event)?)?;
            }
        }
        Ok(fields.into_any())
    }
}

#[pymethods]
impl ClientMessage {
    /// `message` or `request`; or what happened to the client, such as `connected`.
    #[getter]
    fn kind(&self) -> &'static str {
        match &self.content {
            MessageContent::Message(_) => "message",
            MessageContent::Call(_) => "request",
            MessageContent::Other(name, _) => name,
        }
    }

    /// The bytes of the received message. Empty for every kind but `message`.
    #[getter]
    fn data<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.message().map_or(b"", Message::as_bytes))
    }

    fn __len__(&self) -> usize {
        self.message().map_or(0, |message| message.as_bytes().len())
    }

    /// The whole message, decoded once.
    fn json<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.decoded.whole(py, || self.decode(py))
    }

    /// The payload (`p`, or `payload`), `{}` if there is none; a binary one is `bytes`. Of an event of the client, its fields.
    #[getter]
    fn payload<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let decode_payload = || {
            let Some(message) = self.message() else {
                return Ok(None);
            };
            if let Some(bytes) = message.bytes().map_err(invalid_message)? {
                return Ok(Some(PyBytes::new(py, &bytes).into_any()));
            }
            let text = message.payload().ok();
            text.map(|text| json::loads_received(py, &text)).transpose()
        };
        self.decoded.payload(py, decode_payload, || self.decode(py))
    }

    /// The type of a message or a request, such as `chat`.
    #[getter]
    fn r#type(&self) -> PyResult<Option<Cow<'_, str>>> {
        match &self.content {
            MessageContent::Message(message) => {
                let found = message_type(message.encoding(), message.as_bytes());
                Ok(found.map_err(invalid_message)?)
            }
            MessageContent::Call(question) => Ok(Some(Cow::Borrowed(&question.t))),
            MessageContent::Other(..) => Ok(None),
        }
    }

    /// The topic of a publication, or that something happened to.
    #[getter]
    fn topic(&self) -> PyResult<Option<Cow<'_, str>>> {
        match &self.content {
            MessageContent::Message(message) => {
                let found = message_topic(message.encoding(), message.as_bytes());
                Ok(found.map_err(invalid_message)?)
            }
            MessageContent::Call(_) => Ok(None),
            MessageContent::Other(_, event) => Ok(match &**event {
                Event::Gap(gap) => Some(Cow::Borrowed(&gap.topic)),
                Event::Unrecovered(unrecovered) => Some(Cow::Borrowed(&unrecovered.topic)),
                Event::Presence(presence) => Some(Cow::Borrowed(&presence.topic)),
                _ => None,
            }),
        }
    }

    /// The place of a publication in its topic's history, a pair of epoch and offset.
    #[getter]
    fn position(&self) -> PyResult<Option<(String, u64)>> {
        let outline = self.outline()?;
        let found = outline.and_then(|outline| outline.position);
        Ok(found.map(|(epoch, offset)| position(Position { epoch, offset })))
    }

    /// The id that the publisher gave.
    #[getter]
    fn id(&self) -> PyResult<Option<Cow<'_, str>>> {
        Ok(self.outline()?.and_then(|outline| outline.id))
    }

    /// 1, 3, 5, 8 or 10.
    #[getter]
    fn priority(&self) -> PyResult<u64> {
        Ok(self
            .outline()?
            .and_then(|outline| outline.priority)
            .unwrap_or(NORMAL))
    }

    /// Whether a member of a queue group may have worked on it before.
    #[getter]
    fn redelivered(&self) -> PyResult<bool> {
        Ok(self.outline()?.is_some_and(|outline| outline.redelivered))
    }

    /// `text` (JSON) or `msgpack`.
    #[getter]
    fn encoding(&self) -> &'static str {
        match self.message().map(Message::encoding) {
            Some(Format::MessagePack) => "msgpack",
            _ => "text",
        }
    }

    /// The time for which the server waits for the answer to a `request`, in milliseconds.
    #[getter]
    fn timeout_ms(&self) -> Option<u64> {
        match &self.content {
            MessageContent::Call(question) => u64::try_from(question.timeout?.as_millis()).ok(),
            _ => None,
        }
    }

    /// Answers a `request`; false if it was answered before.
    fn reply(&self, payload: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.question()?;
        let payload = json::content(payload)?;
        match self.responder()? {
            None => Ok(false),
            Some(responder) => {
                responder.respond(payload).map_err(Failure::from)?;
                Ok(true)
            }
        }
    }

    /// Answers a `request` with an error; false if it was answered before.
    fn fail(&self, code: Str, message: Str) -> PyResult<bool> {
        match self.responder()? {
            None => Ok(false),
            Some(responder) => {
                responder.fail(&code, &message).map_err(Failure::from)?;
                Ok(true)
            }
        }
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let kind = self.kind();
        let about = match &self.content {
            MessageContent::Other(_, event) => format!(" {}", describe(py, event)?.repr()?),
            _ => {
                let t = self.r#type().ok().flatten().unwrap_or_default();
                let topic = self.topic().ok().flatten();
                let topic = topic
                    .map(|topic| format!(" topic={topic:?}"))
                    .unwrap_or_default();
                format!(" type={t:?}{topic} bytes={}", self.__len__())
            }
        };
        Ok(format!("<tidewire.ClientMessage {kind}{about}>"))
    }
}

/// The fields of what happened to the client.
fn describe<'py>(py: Python<'py>, event: &Event) -> PyResult<Bound<'py, PyDict>> {
    let fields = PyDict::new(py);
    let seconds = |duration: Option<Duration>| duration.as_ref().map(Duration::as_secs_f64);
    match event {
        Event::Connected(connected) => {
            fields.set_item("url", &connected.url)?;
            fields.set_item("connection_id", &connected.connection_id)?;
            fields.set_item("user", &connected.user)?;
            fields.set_item("server_version", &connected.server_version)?;
            fields.set_item("session", connected.session)?;
            fields.set_item("encrypted", connected.is_encrypted)?;
            fields.set_item("deflate", connected.has_deflate)?;
        }
        Event::Disconnected(ended) => {
            fields.set_item("code", ended.code)?;
            fields.set_item("reason", &ended.reason)?;
            fields.set_item("retry_in", seconds(ended.retry_in))?;
        }
        Event::Gap(gap) => {
            fields.set_item("topic", &gap.topic)?;
            fields.set_item(
                "reason",
                gap.reason.map_or("missing", |reason| reason.as_str()),
            )?;
            fields.set_item("count", gap.count)?;
            let range = gap
                .range
                .map(|(epoch, from, to)| (format!("{epoch:08x}"), from, to));
            fields.set_item("range", range)?;
        }
        Event::Unrecovered(unrecovered) => {
            fields.set_item("topic", &unrecovered.topic)?;
            fields.set_item("last", position(unrecovered.last))?;
            fields.set_item("now", position(unrecovered.now))?;
        }
        Event::SubscriptionLost(topics) => fields.set_item("topics", topics)?,
        Event::Presence(presence) => {
            fields.set_item("topic", &presence.topic)?;
            fields.set_item("user", &presence.user)?;
            let data = presence
                .data
                .as_ref()
                .map(|data| json::loads(py, data.as_bytes()));
            fields.set_item("data", data.transpose()?)?;
        }
        Event::RateLimitWarning(warning) => {
            fields.set_item("limit", warning.limit)?;
            fields.set_item("remaining", warning.remaining)?;
            fields.set_item("retry_after", warning.retry_after.as_secs_f64())?;
        }
        Event::BrokerUpdate { is_away } => fields.set_item("away", is_away)?,
        Event::Error(error) => {
            fields.set_item("code", &error.code)?;
            fields.set_item("message", &error.message)?;
            fields.set_item("recoverable", error.recoverable)?;
            fields.set_item("retry_after", seconds(error.retry_after))?;
            fields.set_item("refused", error.refused)?;
        }
        Event::Uncertain(uncertain) => {
            let messages = &uncertain.messages;
            let each = messages.iter().map(|message| queued(py, message));
            fields.set_item("messages", messages.len())?;
            fields.set_item("which", each.collect::<PyResult<Vec<_>>>()?)?;
            fields.set_item("resent", uncertain.is_resent)?;
        }
        Event::Expired(messages) => fields.set_item("messages", messages)?,
        Event::QueueFailed(words) => fields.set_item("message", words)?,
        _ => {}
    }
    Ok(fields)
}

fn queued<'py>(py: Python<'py>, message: &QueuedMessage) -> PyResult<Bound<'py, PyDict>> {
    let fields = PyDict::new(py);
    fields.set_item("topic", &message.topic)?;
    fields.set_item("type", &message.t)?;
    fields.set_item(
        "payload",
        json::loads_content(py, &message.payload, message.bytes())?,
    )?;
    fields.set_item("priority", message.priority.number())?;
    fields.set_item("key", &message.key)?;
    Ok(fields)
}

/// The priority of a message without one.
const NORMAL: u64 = 5;

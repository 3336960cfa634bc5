//! One thing that happened, decoded as far as it is looked at.

use super::ServerResult;
use super::batch::Stored;
use super::connection::Connection;
use crate::arguments::{Str, Word};
use crate::decoded::Decoded;
use crate::errors::{argument, invalid_message};
use crate::json;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString};
use std::borrow::Cow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tidewire_engine::queue::Event;
use tidewire_engine::{
    CallError, CloseReason, ConnectionKey, Content, Encoding, Outgoing, Peer, Responder,
};
use tidewire_wire::close::CloseCode;
use tidewire_wire::envelope::{message_topic, message_type};
use tidewire_wire::format::{Format, MESSAGEPACK_PREFIX};
use tidewire_wire::session::TYPE_BYTES_MAX;

/// An event on a connection; `kind` names its type.
#[pyclass(frozen, freelist = 256, module = "tidewire")]
pub(crate) struct Message {
    stored: Arc<Stored>,
    index: usize,
    decoded: Decoded,
    /// The state of a publication between its handler and its end.
    publication: Mutex<Handled>,
}

/// The state of a publication.
#[derive(Default)]
struct Handled {
    /// Its handler was called, if middleware is around it.
    is_seen: bool,
    /// The payload that replaces its own.
    replacement: Option<Box<Content>>,
}

impl Message {
    pub(super) fn new(stored: &Arc<Stored>, index: usize) -> Self {
        Self {
            stored: Arc::clone(stored),
            index,
            decoded: Decoded::default(),
            publication: Mutex::default(),
        }
    }

    fn event(&self) -> Event<'_> {
        let event = self.stored.batch.get(self.index);
        event.expect("a message is made of an event of its batch")
    }

    fn peer(&self) -> &Arc<Peer> {
        match self.event() {
            Event::Connect(peer)
            | Event::Message(peer, _)
            | Event::Call(peer, _, _)
            | Event::Publication(peer, _, _)
            | Event::Sync(peer, _)
            | Event::Close(peer, _) => peer,
        }
    }

    pub(super) fn connection_key(&self) -> ConnectionKey {
        self.peer().connection
    }

    /// The same message, to be sent on unchanged.
    pub(super) fn outgoing(&self) -> PyResult<Outgoing> {
        let Event::Message(_, message) = self.event() else {
            return Err(argument("only a message of the kind message can be sent on").into());
        };
        Ok(match message.encoding {
            Encoding::Text => {
                let text = std::str::from_utf8(message.bytes).map_err(invalid_message)?;
                Outgoing::Text(text.into())
            }
            Encoding::Binary => Outgoing::Binary(message.bytes.into()),
            Encoding::MessagePack => {
                Outgoing::Binary([MESSAGEPACK_PREFIX, message.bytes].concat().into())
            }
        })
    }

    fn responder(&self) -> ServerResult<&Responder> {
        match self.event() {
            Event::Call(_, _, responder) => Ok(responder),
            _ => Err(argument("only a message of the kind request is replied to")),
        }
    }

    /// That of a request or of a publication.
    fn any_responder(&self) -> ServerResult<&Responder> {
        match self.event() {
            Event::Call(_, _, responder) | Event::Publication(_, _, responder) => Ok(responder),
            _ => {
                let problem = "only a message of the kind request or publication fails";
                Err(argument(problem))
            }
        }
    }

    fn publication(&self) -> MutexGuard<'_, Handled> {
        self.publication
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The JSON text of the message; `None` for an event that is no message.
    fn text(&self) -> ServerResult<Option<Cow<'_, [u8]>>> {
        let Event::Message(_, message) = self.event() else {
            return Ok(None);
        };
        match format_of(message.encoding) {
            Some(format) => format
                .json_of(message.bytes)
                .map(Some)
                .map_err(invalid_message),
            None => Err(invalid_message("the message is binary, not JSON")),
        }
    }

    /// The payload by itself; `None` if it is not to be found without decoding the rest.
    fn decode_payload<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Event::Message(_, message) = self.event() else {
            return Ok(None);
        };
        match format_of(message.encoding) {
            Some(format) => json::loads_payload(py, format, message.bytes),
            None => Ok(None),
        }
    }

    fn decode<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        if let Some(text) = self.text()? {
            return json::loads(py, &text);
        }
        let fields = PyDict::new(py);
        match self.event() {
            Event::Call(_, call, _) => {
                fields.set_item("t", call.t)?;
                fields.set_item("p", json::loads_content(py, call.payload, call.bytes())?)?;
            }
            Event::Publication(_, publication, _) => {
                fields.set_item("t", publication.t)?;
                fields.set_item("tp", publication.topic)?;
                let payload = json::loads_content(py, publication.payload, publication.bytes())?;
                fields.set_item("p", payload)?;
            }
            Event::Sync(_, request) => {
                fields.set_item("t", "sync_request")?;
                let payload = PyDict::new(py);
                payload.set_item("topics", request.topics)?;
                payload.set_item("include_snapshots", request.include_snapshots)?;
                payload.set_item("last_sequence", request.last_sequence)?;
                fields.set_item("p", payload)?;
            }
            Event::Connect(_) | Event::Message(..) | Event::Close(..) => {}
        }
        Ok(fields.into_any())
    }
}

#[pymethods]
impl Message {
    /// `connect`, `message`, `request`, `publication`, `snapshot_request` or `disconnect`.
    #[getter]
    fn kind<'py>(&self, py: Python<'py>) -> &Bound<'py, PyString> {
        if self.stored.batch.message_range(self.index).is_some() {
            return intern!(py, "message");
        }
        match self.event() {
            Event::Message(..) => intern!(py, "message"),
            Event::Connect(_) => intern!(py, "connect"),
            Event::Call(..) => intern!(py, "request"),
            Event::Publication(..) => intern!(py, "publication"),
            Event::Sync(..) => intern!(py, "snapshot_request"),
            Event::Close(..) => intern!(py, "disconnect"),
        }
    }

    /// The received bytes; empty for other kinds than `message`. Each access copies them: a view of the batch costs more
    /// for small messages, and would keep the whole batch.
    #[getter]
    fn data<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let range = self.stored.batch.message_range(self.index).unwrap_or(0..0);
        PyBytes::new(py, &self.stored.batch.message_bytes()[range])
    }

    fn __len__(&self) -> usize {
        let range = self.stored.batch.message_range(self.index);
        range.map_or(0, |range| range.len())
    }

    /// The whole message, decoded once.
    fn json<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.decoded.whole(py, || self.decode(py))
    }

    /// The payload (`p`, or `payload`); `None` if there is none. A binary one is `bytes`.
    #[getter]
    fn payload<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.decoded
            .payload(py, || self.decode_payload(py), || self.decode(py))
    }

    /// The type, such as `chat`; `None` for the start and the end of a connection.
    #[getter]
    fn r#type(&self) -> PyResult<Option<String>> {
        Ok(match self.event() {
            Event::Message(_, message) => {
                let Some(format) = format_of(message.encoding) else {
                    return Ok(None);
                };
                let found = message_type(format, message.bytes).map_err(invalid_message)?;
                found.map(Cow::into_owned)
            }
            Event::Call(_, call, _) => Some(call.t.to_owned()),
            Event::Publication(_, publication, _) => Some(publication.t.to_owned()),
            _ => None,
        })
    }

    /// The topic that it names, if it names one.
    #[getter]
    fn topic(&self) -> PyResult<Option<String>> {
        let message = match self.event() {
            Event::Message(_, message) => message,
            Event::Publication(_, publication, _) => return Ok(Some(publication.topic.to_owned())),
            _ => return Ok(None),
        };
        let Some(format) = format_of(message.encoding) else {
            return Ok(None);
        };
        let found = message_topic(format, message.bytes).map_err(invalid_message)?;
        Ok(found.map(Cow::into_owned))
    }

    /// The topics that a `snapshot_request` asks for.
    #[getter]
    fn topics(&self) -> Vec<String> {
        match self.event() {
            Event::Sync(_, request) => request.topics.to_vec(),
            _ => Vec::new(),
        }
    }

    #[getter]
    fn connection(&self) -> Connection {
        Connection::new(self.peer(), &self.stored.core)
    }

    /// The user that the connection's token names.
    #[getter]
    fn user(&self) -> Option<&str> {
        self.peer().user.as_deref()
    }

    /// Whether `data` is text (JSON), or `binary`, or `msgpack`.
    #[getter]
    fn encoding<'py>(&self, py: Python<'py>) -> &Bound<'py, PyString> {
        match self.event() {
            Event::Message(_, message) if message.encoding == Encoding::Binary => {
                intern!(py, "binary")
            }
            Event::Message(_, message) if message.encoding == Encoding::MessagePack => {
                intern!(py, "msgpack")
            }
            _ => intern!(py, "text"),
        }
    }

    /// The reason for the end of a connection: `peer`, `server` or `lost`; `None` for other kinds.
    #[getter]
    fn reason(&self) -> Option<&'static str> {
        match self.event() {
            Event::Close(_, CloseReason::ByPeer(_)) => Some("peer"),
            Event::Close(_, CloseReason::ByUs(_)) => Some("server"),
            Event::Close(_, CloseReason::Lost) => Some("lost"),
            _ => None,
        }
    }

    /// The code with which a connection ended, if there was one.
    #[getter]
    fn close_code(&self) -> Option<u16> {
        match self.event() {
            Event::Close(_, CloseReason::ByPeer(code)) => code.map(CloseCode::value),
            Event::Close(_, CloseReason::ByUs(code)) => Some(code.value()),
            _ => None,
        }
    }

    /// The time for which the client waits for the answer to a `request`, in milliseconds.
    #[getter]
    fn timeout_ms(&self) -> Option<u64> {
        match self.event() {
            Event::Call(_, call, _) => Some(call.timeout_ms),
            _ => None,
        }
    }

    /// Answers a `request`; false if it was answered before.
    fn reply(&self, payload: &Bound<'_, PyAny>) -> PyResult<bool> {
        let responder = self.responder()?;
        Ok(responder.respond_with(Ok(json::content(payload)?.into())))
    }

    /// Answers a `request` with an error, or refuses a `publication`; false if it was answered before.
    fn fail(&self, code: Str, message: Str) -> PyResult<bool> {
        let responder = self.any_responder()?;
        if code.is_empty() || code.len() > TYPE_BYTES_MAX {
            return Err(argument(format!("a code has 1 to {TYPE_BYTES_MAX} bytes")).into());
        }
        Ok(responder.respond(Err(CallError {
            code: code.into_string(),
            message: message.into_string(),
        })))
    }

    /// Replaces the payload of a `publication`: subscribers get this one.
    fn replace(&self, payload: &Bound<'_, PyAny>) -> PyResult<()> {
        let Event::Publication(..) = self.event() else {
            let problem = "only the payload of a message of the kind publication is replaced";
            return Err(argument(problem).into());
        };
        let content = json::content(payload)?.into();
        self.publication().replacement = Some(Box::new(content));
        Ok(())
    }

    /// Lets a `publication` go on, with the payload that has replaced its own, if one has.
    #[pyo3(name = "_accept")]
    fn accept(&self) -> PyResult<bool> {
        let responder = self.any_responder()?;
        let replacement = self.publication().replacement.take();
        Ok(match replacement {
            Some(content) => responder.respond_with(Ok(*content)),
            None => responder.accept(),
        })
    }

    /// Notes that the handler of a publication was called.
    #[pyo3(name = "_note_seen")]
    fn note_seen(&self) {
        self.publication().is_seen = true;
    }

    #[getter]
    #[pyo3(name = "_is_seen")]
    fn is_seen(&self) -> bool {
        self.publication().is_seen
    }

    /// The place of the topic or pattern by which a `publication` is decided.
    #[getter]
    #[pyo3(name = "_place")]
    fn place(&self) -> Option<usize> {
        match self.event() {
            Event::Publication(_, publication, _) => Some(publication.place),
            _ => None,
        }
    }

    /// Answers a `snapshot_request` for one of its topics.
    #[pyo3(signature = (topic, payload, *, r#type = Word::Default("snapshot")), text_signature = "($self, topic, payload, *, type=\"snapshot\")")]
    fn reply_snapshot(&self, topic: Str, payload: &Bound<'_, PyAny>, r#type: Word) -> PyResult<()> {
        let Event::Sync(peer, request) = self.event() else {
            let problem = "only a message of the kind snapshot_request is answered with snapshots";
            return Err(argument(problem).into());
        };
        let payload: tidewire_engine::Content = json::content(payload)?.into();
        let id = request.correlation_id;
        let handle = self.stored.core.handle()?;
        handle
            .send_snapshot(peer.connection, &topic, &r#type, payload, id)
            .map_err(|error| crate::errors::Failure::from(error).into())
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let user = self
            .user()
            .map_or_else(String::new, |user| format!(" user={user:?}"));
        let about = match self.event() {
            Event::Message(_, message) => format!(" {} bytes", message.bytes.len()),
            Event::Call(_, call, _) => format!(" type={:?}", call.t),
            Event::Publication(_, publication, _) => format!(" topic={:?}", publication.topic),
            Event::Sync(_, request) => format!(" topics={:?}", request.topics),
            Event::Connect(_) | Event::Close(..) => String::new(),
        };
        let kind = self.kind(py);
        let connection = self.peer().connection;
        format!("<tidewire.Message {kind}{about} connection={connection}{user}>")
    }
}

fn format_of(encoding: Encoding) -> Option<Format> {
    match encoding {
        Encoding::Text => Some(Format::Json),
        Encoding::MessagePack => Some(Format::MessagePack),
        Encoding::Binary => None,
    }
}

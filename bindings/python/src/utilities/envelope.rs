//! The envelope around a message's payload: building and reading.

use crate::arguments::{Number, Place, Str, Text, Whole};
use crate::errors::{Failure, argument};
use crate::json;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDateTime, PyDelta, PyTzInfo};
use std::borrow::Cow;
use tidewire_bindings::utilities::envelope::{self, EnvelopeFields};
use tidewire_engine::Content;

/// A message, read: its fields at once, its payload when it is asked for.
#[pyclass(frozen, module = "tidewire")]
pub(crate) struct Envelope {
    envelope: envelope::Envelope<Text>,
    value: PyOnceLock<Py<PyAny>>,
}

/// Reads a message: JSON, or MessagePack behind `M:`.
#[pyfunction]
pub(crate) fn parse_envelope(message: Text) -> PyResult<Envelope> {
    Ok(Envelope {
        envelope: envelope::Envelope::parse(message).map_err(Failure::from)?,
        value: PyOnceLock::new(),
    })
}

#[pymethods]
impl Envelope {
    /// `update`, `snapshot` or `system`; `None` if the message names none.
    #[getter]
    fn category(&self) -> Option<&'static str> {
        self.envelope.category()
    }

    /// The type of the message, such as `order_created`.
    #[getter]
    fn r#type(&self) -> &str {
        &self.envelope.head().t
    }

    /// The message's id.
    #[getter]
    fn id(&self) -> Option<&str> {
        self.envelope.head().id.as_deref()
    }

    /// The time of the message, in UTC.
    #[getter]
    fn time<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let unix_ms = self.envelope.unix_ms().map_err(Failure::from)?;
        unix_ms.map(|unix_ms| datetime(py, unix_ms)).transpose()
    }

    /// The sender's count of its messages.
    #[getter]
    fn sequence(&self) -> Option<u64> {
        self.envelope.head().seq
    }

    /// 1 (background), 3, 5 (normal), 8 or 10 (critical).
    #[getter]
    fn priority(&self) -> u64 {
        self.envelope.priority()
    }

    /// The correlation id, which an answer shares with its request.
    #[getter]
    fn correlation_id(&self) -> Option<&str> {
        self.envelope.head().correlation_id.as_deref()
    }

    /// The sender's signature.
    #[getter]
    fn signature(&self) -> Option<&str> {
        self.envelope.head().signature.as_deref()
    }

    /// The topic that the message was published to.
    #[getter]
    fn topic(&self) -> Option<&str> {
        self.envelope.head().topic.as_deref()
    }

    /// The position of the message in the history of its topic: epoch and offset.
    #[getter]
    fn position(&self) -> Option<(&str, u64)> {
        self.envelope.position()
    }

    /// The producer's number of the message.
    #[getter]
    fn number(&self) -> Option<u64> {
        self.envelope.head().number
    }

    /// The number by which a member of a queue group acknowledges the message.
    #[getter]
    fn delivery(&self) -> Option<u64> {
        self.envelope.head().delivery
    }

    /// Whether the message was delivered to another member before.
    #[getter]
    fn redelivered(&self) -> bool {
        self.envelope.head().redelivered.unwrap_or_default()
    }

    /// The payload; decoded when it is first asked for.
    #[getter]
    fn payload<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        if let Some(bytes) = self.envelope.payload_bytes() {
            return Ok(PyBytes::new(py, &bytes).into_any());
        }
        let read = || match self.envelope.payload_text() {
            Some(text) => json::loads(py, text).map(Bound::unbind),
            None => Ok(py.None()),
        };
        Ok(self.value.get_or_try_init(py, read)?.bind(py).clone())
    }

    /// The payload as JSON text, as it stands in the message.
    #[getter]
    fn payload_json<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.envelope.payload_text().unwrap_or(b"null"))
    }

    fn __repr__(&self) -> String {
        let head = self.envelope.head();
        let topic = head.topic.as_ref();
        let topic = topic.map_or_else(String::new, |topic| format!(", topic={topic:?}"));
        let bytes = self.envelope.payload_text().map_or(0, <[u8]>::len);
        format!(
            "Envelope(type={:?}{topic}, payload of {bytes} bytes)",
            head.t
        )
    }
}

/// A message with this type and payload.
#[expect(clippy::too_many_arguments, reason = "each is a field of the message")]
#[pyfunction]
#[pyo3(signature = (
    r#type, payload = None, *, category = None, id = None, time = None, sequence = None, correlation_id = None,
    signature = None, number = None, topic = None, position = None, priority = None, format = None,
))]
pub(crate) fn encode_envelope<'py>(
    py: Python<'py>,
    r#type: Str,
    payload: Option<&Bound<'py, PyAny>>,
    category: Option<Str>,
    id: Option<Str>,
    time: Option<Number>,
    sequence: Option<Whole>,
    correlation_id: Option<Str>,
    signature: Option<Str>,
    number: Option<Whole>,
    topic: Option<Str>,
    position: Option<Place>,
    priority: Option<Whole>,
    format: Option<Str>,
) -> PyResult<Bound<'py, PyBytes>> {
    let payload = match payload {
        Some(payload) => json::content(payload)?.into(),
        None => Content::from("null"),
    };
    let unix_ms = match time {
        Some(Number(seconds)) if seconds >= 0.0 => Some((seconds * 1000.0).round() as u64),
        Some(_) => return Err(argument("time has to be seconds since 1970").into()),
        None => None,
    };
    let fields = EnvelopeFields {
        category: text(category.as_ref()),
        id: text(id.as_ref()),
        unix_ms,
        sequence: sequence.map(|sequence| sequence.0),
        correlation_id: text(correlation_id.as_ref()),
        signature: text(signature.as_ref()),
        number: number.map(|number| number.0),
        topic: text(topic.as_ref()),
        position: position.map(|place| (place.epoch.0, place.offset)),
        priority: priority.map(|priority| priority.0),
        format: text(format.as_ref()),
        binary: payload.is_binary(),
    };
    let message = fields.encode(&r#type, payload.as_json().as_bytes());
    Ok(PyBytes::new(py, &message.map_err(Failure::from)?))
}

fn text(given: Option<&Str>) -> Option<Cow<'_, str>> {
    given.map(|given| (&**given).into())
}

/// A time in UTC, from milliseconds since 1970.
fn datetime(py: Python<'_>, unix_ms: u64) -> PyResult<Bound<'_, PyAny>> {
    let (days, ms) = (unix_ms / DAY_MS, unix_ms % DAY_MS);
    let utc = PyTzInfo::utc(py)?;
    let epoch = PyDateTime::new(py, 1970, 1, 1, 0, 0, 0, 0, Some(&utc))?;
    // A parsed time has a year of four digits, so its days fit in 32 bits.
    let elapsed = PyDelta::new(
        py,
        days as i32,
        (ms / 1000) as i32,
        (ms % 1000) as i32 * 1000,
        false,
    )?;
    epoch.add(elapsed)
}

const DAY_MS: u64 = 24 * 60 * 60 * 1000;

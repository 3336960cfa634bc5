//! The envelope around a message's payload: building and reading.

use crate::arguments::{Number, Place, Str, Text, Whole, unix_ms};
use crate::errors::{Failure, argument, invalid_message};
use crate::json;
use crate::utilities::random::random;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDateTime, PyDelta, PyTzInfo};
use std::ops::Range;
use tidewire_wire::envelope::{
    Category, EnvelopeHeader, Priority, PublicationHeader, parse_json_head,
};
use tidewire_wire::format::{Format, Framing, identify, json_to_msgpack, msgpack_to_json};
use tidewire_wire::timestamp::parse_rfc3339_ms;
use tidewire_wire::uuid::{Uuid, uuid_v7};

/// A message, read: its fields at once, its payload when it is asked for.
#[pyclass(frozen, module = "tidewire")]
pub(crate) struct Envelope {
    fields: tidewire_wire::envelope::Envelope,
    text: Message,
    payload: Option<Range<usize>>,
    value: PyOnceLock<Py<PyAny>>,
}

/// What was read: as it was given, or as JSON that was made of it.
enum Message {
    Given(Text),
    Made(Vec<u8>),
}

impl Message {
    fn as_slice(&self) -> &[u8] {
        match self {
            Self::Given(text) => text,
            Self::Made(text) => text,
        }
    }
}

/// Reads a message: JSON, or MessagePack behind `M:`.
#[pyfunction]
pub(crate) fn parse_envelope(message: Text) -> PyResult<Envelope> {
    let message = match identify(&message) {
        framing @ Framing::MessagePack => {
            let mut text = Vec::with_capacity(message.len() * 2);
            msgpack_to_json(&message[framing.prefix_bytes()..], &mut text)
                .map_err(Failure::from)?;
            Message::Made(text)
        }
        Framing::Json => Message::Given(message),
        Framing::Encrypted => return Err(invalid_message(ENCRYPTED).into()),
        Framing::Zlib { .. } => return Err(invalid_message(COMPRESSED).into()),
    };
    let text = message.as_slice();
    let (fields, payload) = parse_json_head(text).map_err(Failure::from)?;
    let payload = payload.map(|payload| {
        let start = payload.as_ptr().addr() - text.as_ptr().addr();
        start..start + payload.len()
    });
    Ok(Envelope {
        fields,
        text: message,
        payload,
        value: PyOnceLock::new(),
    })
}

#[pymethods]
impl Envelope {
    /// `update`, `snapshot` or `system`; `None` if the message does not say.
    #[getter]
    fn category(&self) -> Option<&'static str> {
        self.fields.category.map(|category| match category {
            Category::System => "system",
            Category::Snapshot => "snapshot",
            Category::Update => "update",
        })
    }

    /// What the message is, such as `order_created`.
    #[getter]
    fn r#type(&self) -> &str {
        &self.fields.t
    }

    /// The message's id.
    #[getter]
    fn id(&self) -> Option<&str> {
        self.fields.id.as_deref()
    }

    /// When the message was made, in UTC.
    #[getter]
    fn time<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some(text) = &self.fields.ts else {
            return Ok(None);
        };
        let unix_ms = parse_rfc3339_ms(text)
            .ok_or_else(|| invalid_message(format!("the message's time is no time: {text}")))?;
        datetime(py, unix_ms).map(Some)
    }

    /// The sender's count of its messages.
    #[getter]
    fn sequence(&self) -> Option<u64> {
        self.fields.seq
    }

    /// 1 (background), 3, 5 (normal), 8 or 10 (critical).
    #[getter]
    fn priority(&self) -> u64 {
        let normal = Priority::Normal.number();
        self.fields.priority.unwrap_or(normal.into())
    }

    /// What an answer has in common with its request.
    #[getter]
    fn correlation_id(&self) -> Option<&str> {
        self.fields.correlation_id.as_deref()
    }

    /// The sender's signature.
    #[getter]
    fn signature(&self) -> Option<&str> {
        self.fields.signature.as_deref()
    }

    /// The topic that the message was published to.
    #[getter]
    fn topic(&self) -> Option<&str> {
        self.fields.topic.as_deref()
    }

    /// Where the message stands in its topic's history: epoch and offset.
    #[getter]
    fn position(&self) -> Option<(&str, u64)> {
        Some((self.fields.epoch.as_deref()?, self.fields.offset?))
    }

    /// The producer's number of the message.
    #[getter]
    fn number(&self) -> Option<u64> {
        self.fields.number
    }

    /// The number by which a member of a queue group acknowledges the message.
    #[getter]
    fn delivery(&self) -> Option<u64> {
        self.fields.delivery
    }

    /// Whether the message was delivered to another member before.
    #[getter]
    fn redelivered(&self) -> bool {
        self.fields.redelivered.unwrap_or_default()
    }

    /// The payload; decoded when it is first asked for.
    #[getter]
    fn payload<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let read = || match self.payload_text() {
            Some(text) => json::loads(py, text).map(Bound::unbind),
            None => Ok(py.None()),
        };
        Ok(self.value.get_or_try_init(py, read)?.bind(py).clone())
    }

    /// The payload as JSON text, as it stands in the message.
    #[getter]
    fn payload_json<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.payload_text().unwrap_or(b"null"))
    }

    fn __repr__(&self) -> String {
        let topic = self.fields.topic.as_ref();
        let topic = topic.map_or_else(String::new, |topic| format!(", topic={topic:?}"));
        let bytes = self.payload.as_ref().map_or(0, ExactSizeIterator::len);
        format!(
            "Envelope(type={:?}{topic}, payload of {bytes} bytes)",
            self.fields.t
        )
    }
}

impl Envelope {
    fn payload_text(&self) -> Option<&[u8]> {
        Some(&self.text.as_slice()[self.payload.clone()?])
    }
}

/// The fields that a message can have beside its type and payload.
#[derive(Default)]
struct Fields {
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
        Some(payload) => json::dumps(payload)?,
        None => "null".to_owned(),
    };
    let fields = Fields {
        category,
        id,
        time,
        sequence,
        correlation_id,
        signature,
        number,
        topic,
        position,
        priority,
    };
    if r#type.is_empty() {
        return Err(argument("a type is needed: it is what receivers choose handlers by").into());
    }
    let mut out = Vec::with_capacity(payload.len() + HEADER_BYTES);
    let format = message_format(format)?;
    if fields.is_publication() {
        fields.write_publication(&r#type, format, payload.as_bytes(), &mut out)?;
    } else {
        fields.write_message(&r#type, format, payload.as_bytes(), &mut out)?;
    }
    Ok(PyBytes::new(py, &out))
}

impl Fields {
    fn is_publication(&self) -> bool {
        self.topic.is_some() || self.position.is_some() || self.priority.is_some()
    }

    fn write_message(
        &self,
        t: &str,
        format: Format,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        let unix_ms = match self.time {
            Some(Number(seconds)) if seconds >= 0.0 => (seconds * 1000.0).round() as u64,
            Some(_) => return Err(argument("time has to be seconds since 1970")),
            None => unix_ms(),
        };
        let id = match &self.id {
            Some(id) => Uuid::parse(id)
                .ok_or_else(|| argument("id has to be the 36 characters of a UUID"))?,
            None => uuid_v7(unix_ms, *random()?),
        };
        let header = EnvelopeHeader {
            category: category(self.category.as_deref())?,
            t,
            id,
            unix_ms,
            seq: self.sequence.map_or(0, |sequence| sequence.0),
            correlation_id: self.correlation_id.as_deref(),
            signature: self.signature.as_deref(),
            number: self.number.map(|number| number.0),
        };
        Ok(header.write(format, payload, out)?)
    }

    fn write_publication(
        &self,
        t: &str,
        format: Format,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        if self.time.is_some()
            || self.sequence.is_some()
            || self.signature.is_some()
            || self.number.is_some()
        {
            return Err(argument(MIXED));
        }
        let priority = self.priority.map_or(Ok(Priority::Normal), |number| {
            Priority::from_number(number.0)
                .ok_or_else(|| argument("priority has to be 1, 3, 5, 8 or 10"))
        })?;
        let header = PublicationHeader {
            category: category(self.category.as_deref())?,
            t,
            topic: self.topic.as_deref(),
            position: self.position.map(|place| (place.epoch.0, place.offset)),
            id: self.id.as_deref(),
            priority,
            delivery: None,
            correlation_id: self.correlation_id.as_deref(),
        };
        match format {
            Format::Json => header.write_json(payload, out),
            Format::MessagePack => {
                let mut packed = Vec::with_capacity(payload.len());
                json_to_msgpack(payload, &mut packed)?;
                header.write_msgpack(&packed, out);
            }
        }
        Ok(())
    }
}

fn message_format(format: Option<Str>) -> Result<Format, Failure> {
    match format.as_deref() {
        None | Some("json") => Ok(Format::Json),
        Some("msgpack") => Ok(Format::MessagePack),
        Some(other) => Err(argument(format!(
            "format has to be json or msgpack, not {other:?}"
        ))),
    }
}

fn category(name: Option<&str>) -> Result<Category, Failure> {
    match name {
        None | Some("update") => Ok(Category::Update),
        Some("snapshot") => Ok(Category::Snapshot),
        Some("system") => Ok(Category::System),
        Some(other) => Err(argument(format!(
            "category has to be update, snapshot or system, not {other:?}"
        ))),
    }
}

/// A time in UTC, from milliseconds since 1970.
fn datetime(py: Python<'_>, unix_ms: u64) -> PyResult<Bound<'_, PyAny>> {
    let (days, ms) = (unix_ms / DAY_MS, unix_ms % DAY_MS);
    let utc = PyTzInfo::utc(py)?;
    let epoch = PyDateTime::new(py, 1970, 1, 1, 0, 0, 0, 0, Some(&utc))?;
    // What was parsed has a year of four digits, and so few days.
    let elapsed = PyDelta::new(
        py,
        days as i32,
        (ms / 1000) as i32,
        (ms % 1000) as i32 * 1000,
        false,
    )?;
    epoch.add(elapsed)
}

const COMPRESSED: &str = "the message is compressed; give what decompress() makes of it";
const ENCRYPTED: &str = "the message is encrypted; give what SessionCipher.open() makes of it";
const MIXED: &str = "a message with a topic, a position or a priority goes to many, and so has no time, sequence, \
                     signature or number of its own";

const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// Room for everything but the payload, if texts are short.
const HEADER_BYTES: usize = 192;

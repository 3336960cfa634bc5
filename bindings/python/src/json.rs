//! Python values and JSON text, by `tidewire/_json.py`.

use crate::arguments::LONE_SURROGATE;
use crate::errors::{argument, invalid_message, wrong_type};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PyMemoryView, PyString};
use tidewire_wire::envelope::{EnvelopeError, message_content, payload_bytes};
use tidewire_wire::format::Format;

/// A value as JSON text.
pub(crate) fn dumps(value: &Bound<'_, PyAny>) -> PyResult<String> {
    let py = value.py();
    static DUMPS: PyOnceLock<(Py<PyAny>, Py<PyAny>, Py<PyAny>)> = PyOnceLock::new();
    let (dumps, default, option) = DUMPS.get_or_try_init(py, || {
        let module = py.import("tidewire._json")?;
        let get = |name| module.getattr(name).map(Bound::unbind);
        Ok::<_, PyErr>((get("encode")?, get("default")?, get("OPTION")?))
    })?;
    let text = dumps
        .call1(py, (value, default, option))
        .map_err(|error| unwritable(py, &error))?;
    let bytes = text.bind(py).cast::<PyBytes>()?.as_bytes();
    // JSON is UTF-8 by definition; an encoder that returns anything else is not ours to trust.
    String::from_utf8(bytes.to_vec()).map_err(|error| wrong_type(error).into())
}

/// A payload: bytes, or JSON text.
pub(crate) enum Content {
    Json(String),
    Binary(Vec<u8>),
}

/// A value as a payload: `bytes`, `bytearray` and `memoryview` are bytes, anything else is JSON.
pub(crate) fn content(value: &Bound<'_, PyAny>) -> PyResult<Content> {
    let is_bytes = value.is_instance_of::<PyBytes>()
        || value.is_instance_of::<PyByteArray>()
        || value.is_instance_of::<PyMemoryView>();
    if is_bytes {
        return bytes_of(value).map(|(bytes, _)| Content::Binary(bytes));
    }
    dumps(value).map(Content::Json)
}

impl From<Content> for tidewire_engine::Content {
    fn from(content: Content) -> Self {
        match content {
            Content::Json(text) => Self::json(text),
            Content::Binary(bytes) => Self::binary(bytes),
        }
    }
}

impl From<Content> for tidewire_client::Payload<'static> {
    fn from(content: Content) -> Self {
        match content {
            Content::Json(text) => Self::json(text),
            Content::Binary(bytes) => Self::binary(bytes),
        }
    }
}

/// The value of a payload: `bytes` if it is binary, or else what its JSON text means.
pub(crate) fn loads_content<'py>(
    py: Python<'py>,
    text: &str,
    bytes: Option<Vec<u8>>,
) -> PyResult<Bound<'py, PyAny>> {
    match bytes {
        Some(bytes) => Ok(PyBytes::new(py, &bytes).into_any()),
        None => loads_received(py, text.as_bytes()),
    }
}

/// The value that JSON text means. The text is a peer's.
pub(crate) fn loads<'py>(py: Python<'py>, text: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    static LOADS: PyOnceLock<[Py<PyAny>; 2]> = PyOnceLock::new();
    let loads = LOADS.get_or_try_init(py, || {
        let module = py.import("tidewire._json")?;
        let get = |name| module.getattr(name).map(Bound::unbind);
        Ok::<_, PyErr>([get("decode")?, get("decode_exact")?])
    })?;
    // The fast decoder rounds integers beyond 64 bits.
    loads[usize::from(has_long_number(text))]
        .bind(py)
        .call1((PyBytes::new(py, text),))
        .map_err(|error| {
            if error.is_instance_of::<PyValueError>(py) {
                let message = format!("the message is not JSON: {}", error.value(py));
                invalid_message(message).into()
            } else {
                error
            }
        })
}

/// The value of a payload that a peer has sent. A payload that is not JSON, as an old server may have kept it, does not
/// raise: who loops over messages goes on.
pub(crate) fn loads_received<'py>(py: Python<'py>, text: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    loads(py, text).or_else(|_| {
        let decode = py.import("tidewire._json")?.getattr("decode_lenient")?;
        decode.call1((PyBytes::new(py, text),))
    })
}

/// True if the text has 19 digits in a row. Each integer beyond 64 bits has.
fn has_long_number(text: &[u8]) -> bool {
    let mut at = LONG_DIGITS - 1;
    while let Some(window) = text.get(at + 1 - LONG_DIGITS..=at) {
        match window.iter().rposition(|byte| !byte.is_ascii_digit()) {
            None => return true,
            // No run over this place is long enough.
            Some(other) => at += other + 1,
        }
    }
    false
}

const LONG_DIGITS: usize = 19;

/// The payload of an envelope by itself, the others of its fields left alone; `None` if it is no envelope, and Python's
/// `None` if there is no payload.
pub(crate) fn loads_payload<'py>(
    py: Python<'py>,
    format: Format,
    envelope: &[u8],
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let (payload, is_binary) = match message_content(format, envelope) {
        Ok(found) => found,
        Err(error @ EnvelopeError::InvalidField(_)) => return Err(invalid_message(error).into()),
        Err(_) => return Ok(None),
    };
    let Some(payload) = payload else {
        return Ok(Some(PyDict::new(py).into_any()));
    };
    if is_binary && let Some(bytes) = payload_bytes(format, payload) {
        return Ok(Some(PyBytes::new(py, &bytes).into_any()));
    }
    match format.json_of(payload) {
        Ok(text) => loads_received(py, &text).map(Some),
        Err(_) => loads_received(py, payload).map(Some),
    }
}

/// The bytes of `bytes`, `bytearray`, `memoryview` or `str`, and whether they are text.
pub(crate) fn bytes_of(data: &Bound<'_, PyAny>) -> PyResult<(Vec<u8>, bool)> {
    if let Ok(text) = data.cast::<PyString>() {
        let text = text.to_str().map_err(|_| argument(LONE_SURROGATE))?;
        return Ok((text.as_bytes().to_vec(), true));
    }
    if let Ok(bytes) = data.cast::<PyBytes>() {
        return Ok((bytes.as_bytes().to_vec(), false));
    }
    if let Ok(bytes) = data.cast::<PyByteArray>() {
        return Ok((bytes.to_vec(), false));
    }
    let view = PyMemoryView::from(data).map_err(|_| {
        let name = data.get_type().name().map(|name| name.to_string());
        let name = name.unwrap_or_default();
        wrong_type(format!(
            "expected str, bytes or another bytes-like object, not {name}"
        ))
    })?;
    let bytes = view.call_method0("tobytes")?;
    Ok((bytes.cast::<PyBytes>()?.as_bytes().to_vec(), false))
}

fn unwritable(py: Python<'_>, error: &PyErr) -> PyErr {
    wrong_type(format!(
        "this value has no form in JSON: {}",
        error.value(py)
    ))
    .into()
}

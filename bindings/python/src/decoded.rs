//! The content of a message as Python values, decoded once on first use.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::OnceLock;

/// The decoded parts of one message. No lock is held while anything is decoded: where two threads do it at the same
/// time, what the first has stored counts.
#[derive(Default)]
pub(crate) struct Decoded {
    whole: OnceLock<Py<PyAny>>,
    payload: OnceLock<Py<PyAny>>,
}

impl Decoded {
    /// The whole message.
    pub(crate) fn whole<'py>(
        &self,
        py: Python<'py>,
        decode: impl FnOnce() -> PyResult<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        once(&self.whole, py, decode)
    }

    /// Its payload. `decode_part` returns the payload alone, or `None` where it cannot be separated; then the
    /// payload is read from the whole message.
    pub(crate) fn payload<'py>(
        &self,
        py: Python<'py>,
        decode_part: impl FnOnce() -> PyResult<Option<Bound<'py, PyAny>>>,
        decode: impl FnOnce() -> PyResult<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        once(&self.payload, py, || {
            if let Some(part) = decode_part()? {
                return Ok(part);
            }
            let whole = self.whole(py, decode)?;
            let Ok(fields) = whole.cast::<PyDict>() else {
                return Ok(py.None().into_bound(py));
            };
            let found = match fields.get_item(intern!(py, "p"))? {
                None => fields.get_item(intern!(py, "payload"))?,
                found => found,
            };
            Ok(found.unwrap_or_else(|| py.None().into_bound(py)))
        })
    }
}

fn once<'py>(
    cell: &OnceLock<Py<PyAny>>,
    py: Python<'py>,
    decode: impl FnOnce() -> PyResult<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    if let Some(known) = cell.get() {
        return Ok(known.bind(py).clone());
    }
    let value = decode()?.unbind();
    Ok(cell.get_or_init(|| value).bind(py).clone())
}

//! zlib, and MessagePack from and to JSON.

use crate::arguments::{Bytes, Text, Whole, unlocked};
use crate::errors::Failure;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use tidewire_bindings::utilities::compression::{
    INFLATED_BYTES_DEFAULT_MAX, Scratch, with_scratch,
};

/// Makes bytes of what `work` has made of N bytes.
fn built<'py>(
    py: Python<'py>,
    input_bytes: usize,
    work: impl FnOnce(&mut Scratch) -> Result<(), tidewire_bindings::Failure> + Send,
) -> PyResult<Bound<'py, PyBytes>> {
    with_scratch(|scratch| {
        unlocked(py, input_bytes, || work(scratch)).map_err(Failure::from)?;
        Ok(PyBytes::new(py, scratch.output()))
    })
}

/// The zlib stream of `data`; `level` is 0 (stored) to 9 (smallest). With `prefix` it begins with `C:`.
#[pyfunction]
#[pyo3(signature = (data, level = Whole(6), *, prefix = false), text_signature = "(data, level=6, *, prefix=False)")]
pub(crate) fn compress<'py>(
    py: Python<'py>,
    data: Bytes,
    level: Whole,
    prefix: bool,
) -> PyResult<Bound<'py, PyBytes>> {
    built(py, data.len(), |scratch| {
        scratch.compress(&data, level.0, prefix)
    })
}

/// The decompressed data of a zlib stream, with or without `C:` before it, at most `bytes_max` bytes.
#[pyfunction]
#[pyo3(signature = (data, *, bytes_max = Whole(INFLATED_BYTES_DEFAULT_MAX)), text_signature = "(data, *, bytes_max=16777216)")]
pub(crate) fn decompress<'py>(
    py: Python<'py>,
    data: Bytes,
    bytes_max: Whole,
) -> PyResult<Bound<'py, PyBytes>> {
    built(py, INFLATED_PER_BYTE * data.len(), |scratch| {
        scratch.decompress(&data, bytes_max.size())
    })
}

/// The MessagePack of JSON text. With `prefix` it begins with `M:`.
#[pyfunction]
#[pyo3(signature = (json, *, prefix = false))]
pub(crate) fn json_to_msgpack<'py>(
    py: Python<'py>,
    json: Text,
    prefix: bool,
) -> PyResult<Bound<'py, PyBytes>> {
    built(py, json.len(), |scratch| {
        scratch.json_to_msgpack(&json, prefix)
    })
}

/// The JSON text of MessagePack, with or without `M:` before it.
#[pyfunction]
pub(crate) fn msgpack_to_json<'py>(py: Python<'py>, data: Bytes) -> PyResult<Bound<'py, PyBytes>> {
    built(py, data.len(), |scratch| scratch.msgpack_to_json(&data))
}

/// The typical size of decompressed data for each byte of a stream.
const INFLATED_PER_BYTE: usize = 4;

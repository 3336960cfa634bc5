//! zlib, and MessagePack from and to JSON.

use crate::arguments::{Bytes, Text, Whole, unlocked};
use crate::errors::{Failure, argument};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::cell::RefCell;
use tidewire_wire::format::{
    Deflater, FormatError, Inflater, MESSAGEPACK_PREFIX, ZLIB_PREFIX,
    json_to_msgpack as to_msgpack, msgpack_to_json as to_json,
};

/// What a thread keeps between calls, some 420 KiB, because making it takes longer than most messages.
#[derive(Default)]
struct Scratch {
    deflater: Option<(u32, Deflater)>,
    inflater: Inflater,
    out: Vec<u8>,
}

impl Scratch {
    fn deflater(&mut self, level: u32) -> &mut Deflater {
        let kept = self.deflater.take().filter(|(of, _)| *of == level);
        let kept = kept.unwrap_or_else(|| (level, Deflater::new(level)));
        &mut self.deflater.insert(kept).1
    }
}

thread_local! {
    static SCRATCH: RefCell<Option<Scratch>> = const { RefCell::new(None) };
}

/// Fills this thread's buffer by `work` and makes bytes of it.
fn built<'py>(
    py: Python<'py>,
    input_bytes: usize,
    work: impl FnOnce(&mut Scratch) -> Result<(), FormatError> + Send,
) -> PyResult<Bound<'py, PyBytes>> {
    // Taken out and put back, so that nothing is borrowed while another thread has the interpreter.
    let mut scratch = SCRATCH.take().unwrap_or_default();
    scratch.out.clear();
    let result = unlocked(py, input_bytes, || work(&mut scratch));
    let bytes = result.map(|()| PyBytes::new(py, &scratch.out));
    scratch.out.truncate(KEPT_BYTES_MAX);
    scratch.out.shrink_to(KEPT_BYTES_MAX);
    SCRATCH.replace(Some(scratch));
    Ok(bytes.map_err(Failure::from)?)
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
    let level = match level.0 {
        level @ 0..=9 => level as u32,
        other => return Err(argument(format!("level has to be 0 to 9, not {other}")).into()),
    };
    built(py, data.len(), |scratch| {
        let mut out = std::mem::take(&mut scratch.out);
        if prefix {
            out.extend_from_slice(ZLIB_PREFIX);
        }
        scratch.deflater(level).deflate(&data, &mut out);
        scratch.out = out;
        Ok(())
    })
}

/// What a zlib stream holds, with or without `C:` before it, up to `bytes_max` bytes.
#[pyfunction]
#[pyo3(signature = (data, *, bytes_max = Whole(INFLATED_BYTES_DEFAULT_MAX)), text_signature = "(data, *, bytes_max=16777216)")]
pub(crate) fn decompress<'py>(
    py: Python<'py>,
    data: Bytes,
    bytes_max: Whole,
) -> PyResult<Bound<'py, PyBytes>> {
    // No zlib stream begins with these two bytes: they would name a method that there is not.
    let stream = data.strip_prefix(ZLIB_PREFIX).unwrap_or(&data);
    let bytes_max = usize::try_from(bytes_max.0).unwrap_or(usize::MAX);
    built(py, INFLATED_PER_BYTE * stream.len(), |scratch| {
        scratch
            .inflater
            .inflate(stream, &mut scratch.out, bytes_max)
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
        if prefix {
            scratch.out.extend_from_slice(MESSAGEPACK_PREFIX);
        }
        to_msgpack(&json, &mut scratch.out)
    })
}

/// The JSON text of MessagePack, with or without `M:` before it.
#[pyfunction]
pub(crate) fn msgpack_to_json<'py>(py: Python<'py>, data: Bytes) -> PyResult<Bound<'py, PyBytes>> {
    built(py, data.len(), |scratch| {
        to_json(unprefixed(&data), &mut scratch.out)
    })
}

/// MessagePack after `M:`. Nothing without the prefix begins so: it would be a number with something after it.
fn unprefixed(data: &[u8]) -> &[u8] {
    data.strip_prefix(MESSAGEPACK_PREFIX).unwrap_or(data)
}

/// What a stream may hold if the caller does not say.
const INFLATED_BYTES_DEFAULT_MAX: u64 = 16 * 1024 * 1024;

/// What a byte of a stream makes, roughly.
const INFLATED_PER_BYTE: usize = 4;

/// A buffer that grew larger is not kept.
const KEPT_BYTES_MAX: usize = 256 * 1024;

//! Arguments: bytes of any kind, text, numbers. A wrong type raises an exception of the package.

use crate::errors::{Failure, argument, wrong_type};
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use pyo3::types::{PyBool, PyByteArray, PyBytes, PyMemoryView, PyString, PyTuple, PyType};
use std::ops::Deref;
use std::time::{Duration, Instant};
use tidewire_bindings::utilities::unix_ms;
use tidewire_wire::envelope::parse_epoch;

/// A bytes-like object: `bytes` without a copy, any other copied, since its owner may change it meanwhile.
pub(crate) struct Bytes(PyBackedBytes);

/// A `str`.
pub(crate) struct Str(PyBackedStr);

/// A `str` that has a default.
pub(crate) enum Word {
    Given(Str),
    Default(&'static str),
}

/// A bytes-like object, or a `str`, which counts as its UTF-8.
pub(crate) enum Text {
    Bytes(Bytes),
    Str(Str),
}

/// Several `str`.
pub(crate) struct Names(pub(crate) Vec<Str>);

/// An `int` from 0 to 2^64 - 1.
#[derive(Clone, Copy)]
pub(crate) struct Whole(pub(crate) u64);

/// A `bool`.
#[derive(Clone, Copy)]
pub(crate) struct Flag(pub(crate) bool);

/// A finite `float` or an `int`.
#[derive(Clone, Copy)]
pub(crate) struct Number(pub(crate) f64);

/// The epoch of a history, as messages have it or as a number.
#[derive(Clone, Copy)]
pub(crate) struct Epoch(pub(crate) u32);

/// A place in a history: a tuple of epoch and offset.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) epoch: Epoch,
    pub(crate) offset: u64,
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl Deref for Str {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl Deref for Word {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Self::Given(text) => text,
            Self::Default(text) => text,
        }
    }
}

impl Deref for Text {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Str(text) => text.as_bytes(),
        }
    }
}

impl AsRef<[u8]> for Text {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl FromPyObject<'_, '_> for Bytes {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        bytes(object).unwrap_or_else(|| Err(not_a("a bytes-like object", object)))
    }
}

impl FromPyObject<'_, '_> for Str {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let Ok(text) = object.cast::<PyString>() else {
            return Err(not_a("a str", object));
        };
        PyBackedStr::try_from(text.to_owned())
            .map(Self)
            .map_err(|_| argument(LONE_SURROGATE).into())
    }
}

impl FromPyObject<'_, '_> for Word {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        object.extract().map(Self::Given)
    }
}

impl FromPyObject<'_, '_> for Text {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        if object.is_instance_of::<PyString>() {
            return object.extract().map(Self::Str);
        }
        let bytes =
            bytes(object).unwrap_or_else(|| Err(not_a("a str or a bytes-like object", object)));
        bytes.map(Self::Bytes)
    }
}

impl FromPyObject<'_, '_> for Names {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        const WANTED: &str = "a list of str";
        if is_text(&object) {
            return Err(not_a(WANTED, object));
        }
        let each = object.try_iter().map_err(|_| not_a(WANTED, object))?;
        each.map(|name| name?.extract())
            .collect::<PyResult<_>>()
            .map(Self)
    }
}

impl FromPyObject<'_, '_> for Whole {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        const WANTED: &str = "an int from 0 to 18446744073709551615";
        match object.extract::<u64>() {
            Ok(number) => Ok(Self(number)),
            Err(error)
                if error.is_instance_of::<pyo3::exceptions::PyOverflowError>(object.py()) =>
            {
                Err(argument(format!("{WANTED} is needed, not {}", shown(&object))).into())
            }
            Err(_) => Err(not_a(WANTED, object)),
        }
    }
}

impl FromPyObject<'_, '_> for Flag {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let flag = object.cast::<PyBool>();
        flag.map(|flag| Self(flag.is_true()))
            .map_err(|_| not_a("True or False", object))
    }
}

impl Whole {
    pub(crate) fn ms(self) -> Duration {
        Duration::from_millis(self.0)
    }

    /// A number larger than any size of this machine counts as the largest size.
    pub(crate) fn size(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl Str {
    pub(crate) fn into_string(self) -> String {
        self.0.to_string()
    }
}

impl Names {
    pub(crate) fn into_strings(self) -> Vec<String> {
        self.0.into_iter().map(Str::into_string).collect()
    }
}

impl FromPyObject<'_, '_> for Number {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        match object.extract::<f64>() {
            Ok(number) if number.is_finite() => Ok(Self(number)),
            Ok(number) => Err(argument(format!("a finite number is needed, not {number}")).into()),
            Err(_) => Err(not_a("a number", object)),
        }
    }
}

impl FromPyObject<'_, '_> for Epoch {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let number = if object.is_instance_of::<PyString>() {
            parse_epoch(&object.extract::<Str>()?)
        } else {
            object.extract().ok()
        };
        let wanted = "an epoch is 8 hexadecimal digits, or an int of 32 bits";
        number.map(Self).ok_or_else(|| argument(wanted).into())
    }
}

impl FromPyObject<'_, '_> for Place {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        const WANTED: &str = "a tuple of an epoch and an offset, such as ('6f0d2c1a', 4711)";
        let pair = object
            .cast::<PyTuple>()
            .map_err(|_| not_a(WANTED, object))?;
        if pair.len() != 2 {
            return Err(argument(format!("{WANTED} is needed")).into());
        }
        let Whole(offset) = pair.get_item(1)?.extract()?;
        let epoch = pair.get_item(0)?.extract()?;
        Ok(Self { epoch, offset })
    }
}

/// `None` if it is not bytes-like.
fn bytes(object: Borrowed<'_, '_, PyAny>) -> Option<PyResult<Bytes>> {
    if let Ok(bytes) = object.cast::<PyBytes>() {
        return Some(Ok(Bytes(bytes.to_owned().into())));
    }
    if let Ok(bytes) = object.cast::<PyByteArray>() {
        return Some(Ok(Bytes(bytes.to_owned().into())));
    }
    let view = PyMemoryView::from(&object).ok()?;
    let copy = view.call_method0("tobytes").and_then(|copy| {
        let bytes = copy.cast_into::<PyBytes>()?;
        Ok(Bytes(bytes.into()))
    });
    Some(copy)
}

/// An int as a message shows it; Python refuses to write those of thousands of digits.
fn shown(object: &Bound<'_, PyAny>) -> String {
    let text = object.str().map(|text| text.to_string());
    let text = text.unwrap_or_else(|_| "one of thousands of digits".to_owned());
    match text.char_indices().nth(SHOWN_CHARACTERS_MAX) {
        None => text,
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

/// Whether an object is text or bytes-like, without looking at what only might be.
pub(crate) fn is_text(object: &Bound<'_, PyAny>) -> bool {
    object.is_instance_of::<PyBytes>()
        || object.is_instance_of::<PyString>()
        || object.is_instance_of::<PyByteArray>()
        || object.is_instance_of::<PyMemoryView>()
}

pub(crate) fn not_a(wanted: &str, object: Borrowed<'_, '_, PyAny>) -> PyErr {
    let name = object.get_type().name();
    let name = name.map_or_else(|_| "another type".to_owned(), |name| name.to_string());
    wrong_type(format!("{wanted} is needed, not {name}")).into()
}

/// The value of `Class[item]`, for annotations.
pub(crate) fn generic<'py>(
    class: &Bound<'py, PyType>,
    item: Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let alias = class.py().import("types")?.getattr("GenericAlias")?;
    alias.call1((class, item))
}

/// Seconds since 1970, UTC: those given, or the clock's.
pub(crate) fn unix_s(now: Option<Number>) -> Result<u64, Failure> {
    match now {
        Some(Number(now)) if now >= 0.0 => Ok(now as u64),
        Some(Number(now)) => Err(argument(format!(
            "now has to be seconds since 1970, not {now}"
        ))),
        None => Ok(unix_ms() / 1000),
    }
}

/// Milliseconds on a clock of the caller's choice, or since `started`.
pub(crate) fn now_ms(now: Option<Number>, started: Instant) -> Result<u64, Failure> {
    match now {
        None => Ok(started.elapsed().as_millis() as u64),
        Some(now) => ms_of(now),
    }
}

/// Milliseconds on a clock of the caller's choice.
pub(crate) fn ms_of(Number(now): Number) -> Result<u64, Failure> {
    if now >= 0.0 {
        return Ok((now * 1000.0) as u64);
    }
    Err(argument("now has to be a number of seconds from 0 on"))
}

/// Runs `work` over N bytes, without the lock of the interpreter if there are enough for another thread to
/// gain from it.
pub(crate) fn unlocked<T: Send>(
    py: Python<'_>,
    bytes: usize,
    work: impl FnOnce() -> T + Send,
) -> T {
    if bytes < UNLOCKED_BYTES_MIN {
        work()
    } else {
        py.detach(work)
    }
}

pub(crate) const LONE_SURROGATE: &str =
    "the str has a lone surrogate, which has no UTF-8; mend it where it comes from";

const SHOWN_CHARACTERS_MAX: usize = 40;

/// Handing the lock over and back costs as much as some thousand bytes.
const UNLOCKED_BYTES_MIN: usize = 8 * 1024;

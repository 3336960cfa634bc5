//! Filters of documents.

use crate::arguments::{Text, is_text, unlocked};
use crate::errors::{Failure, argument, wrong_type};
use crate::json;
use pyo3::prelude::*;
use pyo3::types::PyList;

/// A compiled filter.
#[pyclass(frozen, module = "tidewire")]
pub(crate) struct Filter {
    filter: tidewire_engine::Filter,
}

#[pymethods]
impl Filter {
    #[new]
    fn new(document: &Bound<'_, PyAny>) -> PyResult<Self> {
        let text = Payload::of(document)?;
        let document = serde_json::from_slice(text.as_slice())
            .map_err(|error| argument(format!("the filter is not JSON: {error}")))?;
        let filter = tidewire_engine::Filter::compile(&document).map_err(Failure::from)?;
        Ok(Self { filter })
    }

    /// True if a payload, given as a value or its JSON text, passes the filter.
    fn matches(&self, payload: &Bound<'_, PyAny>) -> PyResult<bool> {
        let text = Payload::of(payload)?;
        let text = text.as_slice();
        Ok(unlocked(payload.py(), text.len(), || {
            self.filter.matches(text)
        }))
    }

    /// Those of `payloads` that match, in their order.
    fn select<'py>(
        &self,
        py: Python<'py>,
        payloads: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyList>> {
        let selected = PyList::empty(py);
        let each = payloads.try_iter();
        let each = each.map_err(|_| wrong_type("something to iterate over is needed"))?;
        for payload in each {
            let payload = payload?;
            if self.filter.matches(Payload::of(&payload)?.as_slice()) {
                selected.append(payload)?;
            }
        }
        Ok(selected)
    }

    /// The filter's document as JSON text, the same for equal documents.
    #[getter]
    fn document(&self) -> &str {
        self.filter.source()
    }

    fn __repr__(&self) -> String {
        format!("Filter({})", self.filter.source())
    }

    fn __eq__(&self, other: &Self) -> bool {
        self.filter.source() == other.filter.source()
    }

    fn __hash__(&self) -> u64 {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hasher = DefaultHasher::new();
        self.filter.source().hash(&mut hasher);
        hasher.finish()
    }
}

/// JSON text that was given, or that of a value that was given.
enum Payload {
    Text(Text),
    Value(String),
}

impl Payload {
    fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        if is_text(object) {
            return object.extract().map(Self::Text);
        }
        json::dumps(object).map(Self::Value)
    }

    fn as_slice(&self) -> &[u8] {
        match self {
            Self::Text(text) => text,
            Self::Value(text) => text.as_bytes(),
        }
    }
}

//! The one place where the failures of the shared crate become Python exceptions: those of `tidewire/errors.py`.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyType};
use std::borrow::Cow;
use std::time::Duration;
pub(crate) use tidewire_bindings::Fault;

/// An exception to be raised.
pub(crate) struct Failure(tidewire_bindings::Failure);

/// Any error that the shared crate has a class for.
impl<E> From<E> for Failure
where
    tidewire_bindings::Failure: From<E>,
{
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl Failure {
    pub(crate) fn new(
        class: &'static str,
        code: impl Into<Cow<'static, str>>,
        fault: Fault,
        message: impl ToString,
    ) -> Self {
        Self(tidewire_bindings::Failure::new(class, code, fault, message))
    }
}

pub(crate) fn argument(message: impl ToString) -> Failure {
    Failure(tidewire_bindings::Failure::argument(message))
}

pub(crate) fn wrong_type(message: impl ToString) -> Failure {
    Failure(tidewire_bindings::Failure::wrong_type(message))
}

pub(crate) fn stopped(message: impl ToString) -> Failure {
    Failure(tidewire_bindings::Failure::stopped(message))
}

pub(crate) fn invalid_message(message: impl ToString) -> Failure {
    Failure(tidewire_bindings::Failure::invalid_message(message))
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        Python::attach(|py| failure.raise(py).unwrap_or_else(|error| error))
    }
}

impl Failure {
    fn raise(&self, py: Python<'_>) -> PyResult<PyErr> {
        static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
        let import = || Ok::<_, PyErr>(py.import("tidewire.errors")?.unbind());
        let module = MODULE.get_or_try_init(py, import)?.bind(py);
        let Self(failure) = self;
        let class = module.getattr(failure.class)?.cast_into::<PyType>()?;
        let retry_after = failure.retry_after.as_ref().map(Duration::as_secs_f64);
        let fields = PyDict::new(py);
        fields.set_item("code", &*failure.code)?;
        fields.set_item("fault", failure.fault.name())?;
        fields.set_item("retry_after", retry_after)?;
        Ok(PyErr::from_value(
            class.call((&failure.message,), Some(&fields))?,
        ))
    }
}

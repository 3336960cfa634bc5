//! The one place where Rust errors become Python exceptions: those of `tidewire/errors.py`.

mod client;
pub(crate) mod utilities;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyType};
use std::borrow::Cow;
use tidewire_engine::settings::SettingError;
use tidewire_engine::{
    BrokerUnavailable, CallFailure, ManageError, PublishError, SendError, StartError,
};

/// Whose fault it is, as `errors.py` spells it.
#[derive(Clone, Copy)]
pub(crate) enum Fault {
    Caller,
    Peer,
    Nobody,
}

/// An exception to be raised.
pub(crate) struct Failure {
    class: &'static str,
    code: Cow<'static, str>,
    fault: Fault,
    message: String,
    retry_after: Option<f64>,
}

impl Failure {
    pub(crate) fn new(
        class: &'static str,
        code: impl Into<Cow<'static, str>>,
        fault: Fault,
        message: impl ToString,
    ) -> Self {
        Self {
            class,
            code: code.into(),
            fault,
            message: message.to_string(),
            retry_after: None,
        }
    }

    fn after(mut self, seconds: f64) -> Self {
        self.retry_after = Some(seconds);
        self
    }
}

pub(crate) fn argument(message: impl ToString) -> Failure {
    Failure::new(
        "InvalidArgumentError",
        "INVALID_ARGUMENT",
        Fault::Caller,
        message,
    )
}

pub(crate) fn wrong_type(message: impl ToString) -> Failure {
    Failure::new("WrongTypeError", "WRONG_TYPE", Fault::Caller, message)
}

pub(crate) fn stopped(message: impl ToString) -> Failure {
    Failure::new("StoppedError", "STOPPED", Fault::Caller, message)
}

pub(crate) fn invalid_message(message: impl ToString) -> Failure {
    Failure::new(
        "InvalidMessageError",
        "INVALID_MESSAGE",
        Fault::Peer,
        message,
    )
}

fn busy(message: impl ToString) -> Failure {
    Failure::new("BusyError", "BUSY", Fault::Nobody, message).after(BUSY_RETRY_S)
}

impl From<SettingError> for Failure {
    fn from(error: SettingError) -> Self {
        Self::new("ConfigurationError", "CONFIGURATION", Fault::Caller, error)
    }
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        let (class, code) = match &error {
            StartError::Listen { .. } => ("AddressError", "ADDRESS"),
            _ => ("ConfigurationError", "CONFIGURATION"),
        };
        Self::new(class, code, Fault::Caller, error)
    }
}

impl From<SendError> for Failure {
    fn from(error: SendError) -> Self {
        match error {
            SendError::Busy => busy(error),
            SendError::Stopped => stopped(error),
        }
    }
}

/// The broker behind several servers does not answer.
fn broker_unavailable(message: impl ToString) -> Failure {
    Failure {
        code: "BROKER_UNAVAILABLE".into(),
        ..busy(message)
    }
}

impl From<BrokerUnavailable> for Failure {
    fn from(error: BrokerUnavailable) -> Self {
        broker_unavailable(error)
    }
}

impl From<PublishError> for Failure {
    fn from(error: PublishError) -> Self {
        match error {
            PublishError::Busy => busy(error),
            PublishError::Unavailable => broker_unavailable(error),
            PublishError::Unknown => {
                Self::new("BusyError", "PUBLISH_UNKNOWN", Fault::Nobody, error)
            }
            PublishError::Stopped => stopped(error),
            _ => argument(error),
        }
    }
}

impl From<ManageError> for Failure {
    fn from(error: ManageError) -> Self {
        match error {
            ManageError::Send(error) => error.into(),
            ManageError::Topic(_) | ManageError::Access(_) | ManageError::Limit(_) => {
                argument(error)
            }
        }
    }
}

impl From<CallFailure> for Failure {
    fn from(failure: CallFailure) -> Self {
        let call = |class, code, fault| Self::new(class, code, fault, &failure);
        match &failure {
            CallFailure::Closed => call("ConnectionClosedError", "CONNECTION_CLOSED", Fault::Peer),
            CallFailure::TimedOut => call("CallTimeoutError", "TIMEOUT", Fault::Peer),
            CallFailure::Refused(_) => call("CallError", "REFUSED", Fault::Peer),
            CallFailure::Unsupported => call("CallError", "UNSUPPORTED", Fault::Peer),
            CallFailure::Busy => busy(&failure),
            CallFailure::Stopped => stopped(&failure),
            CallFailure::Invalid(problem) => argument(problem),
        }
    }
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
        let class = module.getattr(self.class)?.cast_into::<PyType>()?;
        let fault = match self.fault {
            Fault::Caller => "caller",
            Fault::Peer => "peer",
            Fault::Nobody => "nobody",
        };
        let fields = PyDict::new(py);
        fields.set_item("code", &*self.code)?;
        fields.set_item("fault", fault)?;
        fields.set_item("retry_after", self.retry_after)?;
        Ok(PyErr::from_value(
            class.call((&self.message,), Some(&fields))?,
        ))
    }
}

/// When to try again what found the server busy, in seconds.
const BUSY_RETRY_S: f64 = 0.1;

//! Clients of the server's own port about whom Python decides.

use super::core::Core;
use crate::arguments::Str;
use crate::errors::Failure;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::{Arc, Mutex, PoisonError};
use tidewire_bindings::server::connect_requests::WaitingClient as Waiting;

/// A client that waits for a decision.
#[pyclass(frozen, module = "tidewire._native")]
pub(crate) struct WaitingClient {
    core: Arc<Core>,
    client: Mutex<Waiting>,
    /// The target of the request: the path and the query, still percent-encoded.
    #[pyo3(get)]
    target: String,
    /// Its host and port, if they are known.
    #[pyo3(get)]
    address: Option<(String, u16)>,
    /// Whether its connection is under TLS.
    #[pyo3(get)]
    is_tls: bool,
}

impl WaitingClient {
    pub(super) fn new(core: Arc<Core>, client: Waiting) -> Self {
        let address = client.address;
        Self {
            core,
            target: client.target.clone(),
            address: address.map(|address| (address.ip().to_string(), address.port())),
            is_tls: client.is_tls,
            client: Mutex::new(client),
        }
    }
}

#[pymethods]
impl WaitingClient {
    /// The names, in small letters, and the values of the headers.
    #[getter]
    fn headers<'py>(&self, py: Python<'py>) -> Vec<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
        let client = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        let headers = client.headers.iter();
        headers
            .map(|(name, value)| {
                let name = name.to_ascii_lowercase();
                (PyBytes::new(py, name.as_bytes()), PyBytes::new(py, value))
            })
            .collect()
    }

    /// Decides: in JSON, `null` if there was no decision in time, `None` if the token decides.
    #[pyo3(signature = (decision, attachment))]
    fn decide(&self, decision: Option<Str>, attachment: Option<Py<PyAny>>) -> PyResult<()> {
        let adoptions = &self.core.adoptions;
        let number = adoptions.begin(attachment);
        let mut client = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        let decided = client.decide(decision.as_deref(), number, adoptions.ended());
        Ok(decided.map_err(Failure::from)?)
    }
}

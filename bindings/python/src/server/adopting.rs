//! Connections that an ASGI server has accepted, and what the application has attached to them.

use super::ServerCore;
use crate::arguments::{Bytes, Flag, Str};
use crate::errors::{Failure, stopped};
use pyo3::prelude::*;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use tidewire_bindings::server::adopting::{self, EndedAdoptions, Newcomer};
use tidewire_engine::Peer;

/// The connections that were handed over to a server.
#[derive(Default)]
pub(super) struct Adoptions {
    number: AtomicU64,
    attached: Mutex<HashMap<u64, Py<PyAny>>>,
    ended: EndedAdoptions,
}

impl Adoptions {
    /// What was attached to a connection.
    pub(super) fn attached(&self, py: Python<'_>, peer: &Peer) -> Option<Py<PyAny>> {
        let number = peer.adoption.as_ref()?.number();
        let attached = self.attached.lock().unwrap_or_else(PoisonError::into_inner);
        attached.get(&number).map(|object| object.clone_ref(py))
    }

    /// A number for a new connection. What was attached to those that have ended is dropped.
    fn begin(&self, attachment: Option<Py<PyAny>>) -> u64 {
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        let mut dropped = Vec::new();
        let mut attached = self.attached.lock().unwrap_or_else(PoisonError::into_inner);
        for ended in self.ended.take() {
            dropped.extend(attached.remove(&ended));
        }
        if let Some(attachment) = attachment {
            attached.insert(number, attachment);
        }
        drop(attached);
        // The end of an object may run code of the application, which may come back here.
        drop(dropped);
        number
    }
}

#[pymethods]
impl ServerCore {
    /// Makes a connection whose other end the caller relays to a client: the descriptor of that end. `decision` is JSON; null if the
    /// application could not decide, and `None` if the token decides.
    #[pyo3(name = "_adopt_relayed", signature = (request, address, is_local, decision, attachment))]
    fn adopt_relayed(
        &self,
        request: Bytes,
        address: Option<(Str, u16)>,
        is_local: Flag,
        decision: Option<Str>,
        attachment: Option<Py<PyAny>>,
    ) -> PyResult<i32> {
        let core = self.core();
        let handle = core.handle()?;
        let address = address.and_then(|(host, port)| {
            let host = host.parse::<IpAddr>().ok()?;
            Some(SocketAddr::new(host, port))
        });
        let (stream, other) = adopting::pair().map_err(|error| stopped(error.to_string()))?;
        let newcomer = Newcomer {
            received: request.to_vec(),
            address,
            is_local: is_local.0,
            decision: decision.map(|decision| decision.to_string()),
            number: core.adoptions.begin(attachment),
        };
        let adopted = adopting::adopt(handle, stream, newcomer, &core.adoptions.ended);
        adopted.map_err(Failure::from)?;
        Ok(other)
    }
}

//! Connections that an ASGI server has accepted, and what the application has attached to them.

use crate::errors::Failure;
use pyo3::prelude::*;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use tidewire_bindings::server::adopting::{self, EndedAdoptions, Newcomer};
use tidewire_engine::{Handle, Peer};

/// The connections that were handed over to a server.
#[derive(Default)]
pub(super) struct Adoptions {
    number: AtomicU64,
    attached: Mutex<HashMap<u64, Py<PyAny>>>,
    ended: EndedAdoptions,
}

impl Adoptions {
    /// The object that was attached to a connection.
    pub(super) fn attached(&self, py: Python<'_>, peer: &Peer) -> Option<Py<PyAny>> {
        let number = peer.adoption.as_ref()?.number();
        let attached = self.attached.lock().unwrap_or_else(PoisonError::into_inner);
        attached.get(&number).map(|object| object.clone_ref(py))
    }

    /// A number for a new connection. What was attached to those that have ended is dropped.
    pub(super) fn begin(&self, attachment: Option<Py<PyAny>>) -> u64 {
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

impl Adoptions {
    pub(super) fn ended(&self) -> &EndedAdoptions {
        &self.ended
    }

    /// Makes a connection whose other end the caller relays to a client: the descriptor of that end.
    pub(super) fn relay(
        &self,
        handle: &Handle,
        newcomer: Newcomer,
        attachment: Option<Py<PyAny>>,
    ) -> Result<i32, Failure> {
        let number = self.begin(attachment);
        let other = adopting::adopt_relayed(handle, newcomer, number, &self.ended)?;
        Ok(other)
    }
}

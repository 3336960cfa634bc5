//! Clients about whom the application decides in its language before they are let in.

use super::adopting::{EndedAdoptions, decision_of};
use crate::failure::Failure;
use std::net::SocketAddr;
use tidewire_engine::{ConnectRequest, ConnectResponder};

/// A client that waits for a decision.
pub struct WaitingClient {
    /// Its address, also behind a trusted proxy.
    pub address: Option<SocketAddr>,
    /// Whether its connection is under TLS.
    pub is_tls: bool,
    /// The target of the request: the path and the query, still percent-encoded.
    pub target: String,
    /// The names and values of its headers.
    pub headers: Vec<(String, Vec<u8>)>,
    responder: Option<ConnectResponder>,
}

impl WaitingClient {
    /// Decides: in JSON, `null` if there was no decision in time, `None` if the token decides. `number` is that of what the
    /// application has attached to the connection, which `ended` repeats at its end. A second decision does nothing.
    ///
    /// # Errors
    /// The decision cannot be used; the client is told to come back.
    pub fn decide(
        &mut self,
        decision: Option<&str>,
        number: u64,
        ended: &EndedAdoptions,
    ) -> Result<(), Failure> {
        let ticket = ended.ticket(number);
        let Some(responder) = self.responder.take() else {
            return Ok(());
        };
        // Without a decision the responder is dropped.
        let decision = decision_of(decision)?;
        responder.decide(decision, Some(ticket));
        Ok(())
    }
}

impl From<ConnectRequest> for WaitingClient {
    fn from(request: ConnectRequest) -> Self {
        Self {
            address: request.address,
            is_tls: request.is_tls,
            target: request.target,
            headers: request.headers,
            responder: Some(request.responder),
        }
    }
}

//! Clients of the server's own port about whom JavaScript decides.

use super::{NativeServer, Waker};
use crate::errors::Failure;
use napi::bindgen_prelude::Function;
use napi::threadsafe_function::ThreadsafeFunctionCallMode;
use napi_derive::napi;
use tidewire_bindings::server::adopting::EndedAdoptions;
use tidewire_bindings::server::connect_requests::WaitingClient;

/// A client that waits for a decision.
#[napi]
pub struct NativeWaitingClient {
    client: WaitingClient,
    ended: EndedAdoptions,
}

#[napi]
impl NativeServer {
    /// Has every client of the own port wait for a decision. `wake` is called when one waits.
    #[napi]
    pub fn decide_connections(&self, wake: Function<'_, (), ()>) -> napi::Result<()> {
        let waker: Waker = wake
            .build_threadsafe_function()
            .weak::<true>()
            .callee_handled::<false>()
            .build()?;
        self.core.decide_connections(move || {
            waker.call((), ThreadsafeFunctionCallMode::NonBlocking);
        });
        Ok(())
    }

    /// The next client that waits.
    #[napi]
    pub fn take_waiting_client(&self) -> Option<NativeWaitingClient> {
        let client = self.core.take_waiting_client()?;
        let ended = self.ended_adoptions.clone();
        Some(NativeWaitingClient { client, ended })
    }
}

#[napi]
impl NativeWaitingClient {
    /// The target of the request.
    #[napi(getter)]
    pub fn target(&self) -> String {
        self.client.target.clone()
    }

    /// The names and values of the headers, in turn. Each byte of a value is one letter, as Node has them.
    #[napi(getter)]
    pub fn headers(&self) -> Vec<String> {
        let headers = self.client.headers.iter();
        let headers = headers.flat_map(|(name, value)| {
            [
                name.clone(),
                value.iter().copied().map(char::from).collect(),
            ]
        });
        headers.collect()
    }

    /// The host of its address, if that is known.
    #[napi(getter)]
    pub fn host(&self) -> Option<String> {
        self.client.address.map(|address| address.ip().to_string())
    }

    /// The port of its address.
    #[napi(getter)]
    pub fn port(&self) -> Option<u16> {
        self.client.address.map(|address| address.port())
    }

    /// Whether its connection is under TLS.
    #[napi(getter)]
    pub fn is_tls(&self) -> bool {
        self.client.is_tls
    }

    /// Decides: in JSON, `null` if there was no decision in time, nothing if the token decides.
    #[napi]
    pub fn decide(&mut self, decision: Option<String>, number: u32) -> napi::Result<()> {
        let decided = self
            .client
            .decide(decision.as_deref(), number.into(), &self.ended);
        Ok(decided.map_err(Failure::from)?)
    }
}

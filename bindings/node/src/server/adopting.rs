//! Connections that an HTTP server of Node has accepted.

use super::NativeServer;
use crate::errors::Failure;
use napi::bindgen_prelude::Buffer;
use napi_derive::napi;
use tidewire_bindings::server::adopting::{self, Newcomer};
use tidewire_engine::ADOPTED_BYTES_MAX;

/// A client of an HTTP server, as `lib/attachments.js` describes it.
#[napi(object)]
pub struct NativeNewcomer {
    pub host: Option<String>,
    pub port: Option<u16>,
    pub listens_at: Option<String>,
    /// In JSON; null if there is no decision in time.
    pub decision: Option<String>,
}

#[napi]
impl NativeServer {
    /// Adopts a TCP connection by its descriptor, of which the engine makes a copy. `received` has been read from it.
    #[napi]
    pub fn adopt(
        &self,
        descriptor: i32,
        received: Buffer,
        newcomer: NativeNewcomer,
        number: u32,
    ) -> napi::Result<()> {
        let handle = self.handle()?;
        let stream = adopting::copy_of(descriptor).map_err(Failure::from)?;
        let (newcomer, ended) = (newcomer.into(), &self.ended_adoptions);
        let number = number.into();
        let adopted = adopting::adopt(handle, stream, received.to_vec(), newcomer, number, ended);
        Ok(adopted.map_err(Failure::from)?)
    }

    /// Makes a connection that the caller relays to a client: its descriptor. The caller writes the request.
    #[napi]
    pub fn adopt_relayed(&self, newcomer: NativeNewcomer, number: u32) -> napi::Result<i32> {
        let handle = self.handle()?;
        let (newcomer, ended) = (newcomer.into(), &self.ended_adoptions);
        let other = adopting::adopt_relayed(handle, newcomer, number.into(), ended);
        Ok(other.map_err(Failure::from)?)
    }

    /// The bytes that may have been read from a connection that is adopted by its descriptor, at most.
    #[napi]
    pub fn adopted_bytes_max() -> u32 {
        ADOPTED_BYTES_MAX as u32
    }

    /// The numbers of the adopted connections that have ended since the last call.
    #[napi]
    pub fn ended_adoptions(&self) -> Vec<u32> {
        let ended = self.ended_adoptions.take().into_iter();
        ended.map(|number| number as u32).collect()
    }

    /// The time after which a silent client is disconnected.
    #[napi(getter)]
    pub fn idle_timeout_ms(&self) -> f64 {
        self.core.options().config.limits.idle_timeout_ms as f64
    }

    /// The paths at which WebSockets are served.
    #[napi(getter)]
    pub fn paths(&self) -> Vec<String> {
        self.core.options().config.paths.clone()
    }
}

impl From<NativeNewcomer> for Newcomer {
    fn from(newcomer: NativeNewcomer) -> Self {
        Self {
            host: newcomer.host,
            port: newcomer.port,
            listens_at: newcomer.listens_at,
            decision: newcomer.decision,
        }
    }
}

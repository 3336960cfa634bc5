//! Connections that an HTTP server of Node has accepted.

use super::NativeServer;
use crate::errors::Failure;
use napi::bindgen_prelude::Buffer;
use napi_derive::napi;
use std::net::{IpAddr, SocketAddr};
use tidewire_bindings::server::adopting::{self, Newcomer};

/// A client of an HTTP server, as `lib/attachments.js` describes it.
#[napi(object)]
pub struct NativeNewcomer {
    /// The request, and the bytes behind it.
    pub received: Buffer,
    pub host: Option<String>,
    pub port: Option<u16>,
    pub is_local: bool,
    /// In JSON; null if there is no decision in time.
    pub decision: Option<String>,
    pub number: u32,
}

#[napi]
impl NativeServer {
    /// Adopts a TCP connection by its descriptor, of which the engine makes a copy.
    #[napi]
    pub fn adopt(&self, descriptor: i32, newcomer: NativeNewcomer) -> napi::Result<()> {
        let handle = self.handle()?;
        let stream = adopting::copy_of(descriptor).map_err(Failure::from)?;
        let adopted = adopting::adopt(handle, stream, newcomer.into(), &self.ended_adoptions);
        Ok(adopted.map_err(Failure::from)?)
    }

    /// Makes a connection that the caller relays to a client: its descriptor.
    #[napi]
    pub fn adopt_relayed(&self, newcomer: NativeNewcomer) -> napi::Result<i32> {
        let handle = self.handle()?;
        let (stream, other) = adopting::pair().map_err(Failure::from)?;
        let adopted = adopting::adopt(handle, stream, newcomer.into(), &self.ended_adoptions);
        adopted.map_err(Failure::from)?;
        Ok(other)
    }

    /// The numbers of the adopted connections that have ended since the last call.
    #[napi]
    pub fn ended_adoptions(&self) -> Vec<u32> {
        let ended = self.ended_adoptions.take().into_iter();
        ended.map(|number| number as u32).collect()
    }

    /// After how long a silent client is gone.
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
        let host = newcomer.host.and_then(|host| host.parse::<IpAddr>().ok());
        Self {
            received: newcomer.received.to_vec(),
            address: host.map(|host| SocketAddr::new(host, newcomer.port.unwrap_or(0))),
            is_local: newcomer.is_local,
            decision: newcomer.decision,
            number: newcomer.number.into(),
        }
    }
}

//! Host names that the operations listener accepts.

use crate::auth::hosts::{HostCaller, HostGuard, HostPolicy};
use crate::clock::unix_ms;
use crate::limits::lines::{LineKind, LineLimits};
use crate::model::spelling::OptionSpelling;
use crate::ops::request::{Request, Response};
use std::net::SocketAddr;
use std::sync::Arc;

/// The policy of hosts on this listener. Its answers are meant for machines. So on a loopback
/// address every request has to name this machine, not only the requests of pages that name their
/// origin.
#[derive(Debug)]
pub(crate) struct OpsHosts {
    guard: HostGuard,
    is_guarded: bool,
}

impl OpsHosts {
    pub(crate) fn new(
        policy: HostPolicy,
        spelling: OptionSpelling,
        lines: Arc<LineLimits>,
        address: SocketAddr,
    ) -> Self {
        let kind = LineKind::OperationsHostRefused;
        Self {
            guard: HostGuard::new(policy, spelling, kind, lines),
            is_guarded: address.ip().is_loopback(),
        }
    }

    /// Whether a request may be answered; if not, the refusal.
    pub(crate) fn check(&self, request: &Request<'_>) -> Result<(), Response> {
        // Only HTTP/1.0 has none, which no browser speaks.
        let Some(host) = request.host else {
            return Ok(());
        };
        let host = String::from_utf8_lossy(host);
        let caller = HostCaller {
            connection: None,
            address: request.peer,
            unix_ms: unix_ms(),
        };
        self.guard
            .check(&host, self.is_guarded, caller)
            .map_err(|words| Response::new(421, "text/plain; charset=utf-8", format!("{words}\n")))
    }

    pub(crate) fn refused(&self) -> u64 {
        self.guard.refused()
    }
}

//! The connections of a load, and how they ended.

use serde::{Deserialize, Serialize};

use super::Latency;
use crate::report::number;

/// Connections over the whole load.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Connecting {
    /// Connections that became ready, including those that replaced others.
    pub opened: u64,
    /// Attempts that failed.
    pub failed: u64,
    /// The largest number that was open at once.
    pub peak: u64,
    /// Connections that became ready and ended before the plan ended them. HTTP connections that end
    /// between two requests are replaced and do not count.
    #[serde(default)]
    pub ended: u64,
    /// How connections ended, also those that were not ready yet and closed with a code; the most
    /// frequent first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ended_by: Vec<EndedConnections>,
    /// Connections that replaced one that had ended, with `--reconnect`.
    #[serde(default)]
    pub reconnected: u64,
    /// From the start of a connection until it was ready, TLS and the opening handshake included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_us: Option<Latency>,
    /// The time that the resolver needed for the address, once for the load, in microseconds; absent if
    /// nothing had to be resolved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dns_us: Option<f64>,
    /// From the start of a connection until TCP, or the Unix socket, was established.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp_us: Option<Latency>,
    /// From then until the proxy had opened a tunnel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_us: Option<Latency>,
    /// The handshake of TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_us: Option<Latency>,
    /// The opening handshake of a WebSocket, and that of its protocol.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upgrade_us: Option<Latency>,
}

impl Connecting {
    /// The names and the times of the parts of connecting that were measured, in their order.
    pub fn parts(&self) -> impl Iterator<Item = (&'static str, &Latency)> {
        let all = [
            ("TCP", &self.tcp_us),
            ("proxy", &self.proxy_us),
            ("TLS", &self.tls_us),
            ("upgrade", &self.upgrade_us),
        ];
        all.into_iter()
            .filter_map(|(name, latency)| Some((name, latency.as_ref()?)))
    }
}

/// Connections that ended in the same way before the plan ended them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EndedConnections {
    /// The name of the error, such as `closed-by-server`.
    pub how: String,
    /// The code of a close frame.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<u16>,
    /// The reason of a close frame.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Whether they were ready before they ended.
    pub was_ready: bool,
    /// Their number.
    pub count: u64,
}

impl EndedConnections {
    /// `10 closed by the server with code 4000 ("bye")`.
    #[must_use]
    pub fn in_words(&self) -> String {
        let how = match (self.how.as_str(), self.code) {
            ("closed-by-server", Some(code)) => format!("closed by the server with code {code}"),
            ("closed-by-server", None) => "closed by the server without a code".to_owned(),
            ("closed-without-close-frame", _) => {
                "ended by the server without a close frame".to_owned()
            }
            (how, _) => how.replace('-', " "),
        };
        let reason = self.reason.as_ref();
        let reason = reason.map(|reason| format!(" (\"{reason}\")"));
        let when = if self.was_ready {
            ""
        } else {
            " before it was ready"
        };
        let count = number::grouped(self.count);
        format!("{count} {how}{}{when}", reason.unwrap_or_default())
    }
}

/// All ends in one text: `10 closed by the server with code 4000, 2 reset`.
#[must_use]
pub fn ended_in_words(all: &[EndedConnections]) -> String {
    let parts: Vec<String> = all.iter().map(EndedConnections::in_words).collect();
    parts.join(", ")
}

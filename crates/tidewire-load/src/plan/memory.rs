//! Memory of both sides: with all connections open, per connection, and after they are closed.

use std::time::Duration;

use crate::accounting::resources;
use crate::accounting::server::ServerWatch;
use crate::report::{Memory, ResourceSample};

/// Resident memory before the first connection.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct EmptyMemory {
    pub(super) server: Option<u64>,
    client: Option<u64>,
}

impl EmptyMemory {
    /// That of this moment.
    pub(super) fn of(server: &ServerWatch) -> Self {
        Self {
            server: server.rss_bytes(),
            client: resources::own_rss_bytes(),
        }
    }

    /// The memory of both sides with N connections open, and the server's extremes among the
    /// samples; `None` if the server's memory is not known.
    pub(super) fn with_open(
        &self,
        server: &ServerWatch,
        samples: &[ResourceSample],
        connections: u64,
    ) -> Option<Memory> {
        let now = server.rss_bytes()?;
        let client = resources::own_rss_bytes();
        let all = || {
            let seen = samples.iter().filter_map(|sample| sample.server_rss_bytes);
            seen.chain([now])
        };
        Some(Memory {
            server_rss_bytes: now,
            server_rss_peak_bytes: all().max(),
            server_rss_min_bytes: all().min(),
            per_connection_bytes: each(Some(now), self.server, connections),
            client_rss_bytes: client,
            client_per_connection_bytes: each(client, self.client, connections),
            ..Memory::default()
        })
    }
}

/// The growth per connection; `None` without a growth, which says only that the connections fit into
/// memory that the process had before.
pub(super) fn each(now: Option<u64>, empty: Option<u64>, connections: u64) -> Option<f64> {
    let growth = now?.checked_sub(empty?)?;
    (connections > 0 && growth > 0).then(|| growth as f64 / connections as f64)
}

/// The same with the server's memory a moment after the connections were closed.
pub(super) fn after_closing(open: Memory, server: &ServerWatch) -> Memory {
    std::thread::sleep(CLOSED_FOR);
    Memory {
        server_rss_closed_bytes: server.rss_bytes(),
        ..open
    }
}

/// The note of a result whose server is not visible.
pub(super) const NOT_KNOWN: &str = "The server's memory is not known: no visible process of this machine serves the \
    URL. Name the process with --server-pid.";

/// The time that the server has to release its memory.
const CLOSED_FOR: Duration = Duration::from_millis(500);

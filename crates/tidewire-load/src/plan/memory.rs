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

    /// Adds workers that are processes of their own, before their first connection.
    pub(super) fn add_workers(&mut self, rss_bytes: u64) {
        self.client = self.client.map(|own| own + rss_bytes);
    }

    /// The memory of both sides with N connections open, and their extremes among the samples; that of
    /// workers that are processes of their own is added to this process's;
    /// `None` if the server's memory is not known.
    pub(super) fn with_open(
        &self,
        server: &ServerWatch,
        samples: &[ResourceSample],
        connections: u64,
        workers_rss_bytes: u64,
    ) -> Option<Memory> {
        let now = server.rss_bytes()?;
        let client = client_rss_bytes(workers_rss_bytes);
        let all = || {
            let seen = samples.iter().filter_map(|sample| sample.server_rss_bytes);
            seen.chain([now])
        };
        let own = || {
            let seen = samples.iter().filter_map(|sample| sample.client_rss_bytes);
            seen.chain(client)
        };
        Some(Memory {
            server_rss_bytes: now,
            server_rss_peak_bytes: all().max(),
            server_rss_min_bytes: all().min(),
            per_connection_bytes: each(Some(now), self.server, connections),
            client_rss_bytes: client,
            client_per_connection_bytes: each(client, self.client, connections),
            client_rss_peak_bytes: own().max(),
            client_rss_min_bytes: own().min(),
            ..Memory::default()
        })
    }
}

/// The growth per connection; `None` without a growth, which only means that the connections fit into memory
/// that the process had before.
pub(super) fn each(now: Option<u64>, empty: Option<u64>, connections: u64) -> Option<f64> {
    let growth = now?.checked_sub(empty?)?;
    (connections > 0 && growth > 0).then(|| growth as f64 / connections as f64)
}

/// The same with the memory of both sides a moment after the connections were closed.
pub(super) fn after_closing(
    open: Memory,
    server: &ServerWatch,
    workers_rss_bytes: impl Fn() -> u64,
) -> Memory {
    std::thread::sleep(CLOSED_FOR);
    Memory {
        server_rss_closed_bytes: server.rss_bytes(),
        client_rss_closed_bytes: client_rss_bytes(workers_rss_bytes()),
        ..open
    }
}

fn client_rss_bytes(workers_rss_bytes: u64) -> Option<u64> {
    resources::own_rss_bytes().map(|own| own + workers_rss_bytes)
}

/// The note of a result whose server is not visible.
pub(super) const NOT_KNOWN: &str = "The server's memory is not known: no visible process of this machine serves the \
    URL. Name the process with --server-pid.";

/// The time that the server has to release its memory.
const CLOSED_FOR: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_extremes_of_the_generator_are_among_the_samples_and_the_end() {
        let server = ServerWatch::named(std::process::id());
        if !cfg!(target_os = "linux") {
            return;
        }
        let server = server.unwrap();
        let sample = |client| ResourceSample {
            client_rss_bytes: Some(client),
            ..ResourceSample::default()
        };
        let samples = [sample(5), sample(u64::MAX / 2)];
        let empty = EmptyMemory::of(&server);
        let memory = empty.with_open(&server, &samples, 1, 0).unwrap();
        assert_eq!(memory.client_rss_min_bytes, Some(5));
        assert_eq!(memory.client_rss_peak_bytes, Some(u64::MAX / 2));
        let closed = after_closing(memory, &server, || 0);
        assert!(
            closed
                .client_rss_closed_bytes
                .is_some_and(|bytes| bytes > 5)
        );
        assert_eq!(closed.client_rss_bytes, memory.client_rss_bytes);
    }
}

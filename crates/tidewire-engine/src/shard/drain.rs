//! Drain of a shard: sessions are closed at a rate, and each client receives a time to reconnect.

use crate::config::Protocol;
use crate::limits::drain::{DrainProgress, Pace, spread_ms};
use crate::session::Session;
use crate::session::application::Application;
use crate::shard::EngineShard;
use crate::state::connection::ConnectionState;
use rand::Rng;
use std::sync::atomic::Ordering;
use std::time::Instant;
use tidewire_net::Io;
use tidewire_wire::close::CloseCode;
use tidewire_wire::session::Reply;

impl<A: Application> EngineShard<A> {
    /// Sends away those whose time has come, if the server is draining.
    pub(crate) fn drain(&mut self, io: &mut Io) {
        if !self.core.shared.is_draining() {
            return;
        }
        self.core.draining = true;
        let mut drain = match self.drain.take() {
            Some(drain) => drain,
            None => self.new_drain(io),
        };
        let now_ms = io.now().monotonic_ms;
        let span_ms = self.core.shared.drain_span_ms.load(Ordering::Acquire);
        let due = drain.pace.due(span_ms, now_ms);
        while drain.left < due
            && let Some(connection) = self.connections.get(drain.index)
        {
            drain.index += 1;
            let Some(connection) = connection else {
                continue;
            };
            let id = connection.state.key.id;
            if connection.state.is_open() {
                drain.left += 1;
                let spread_ms = drain.spread_ms;
                self.with_session(io, id, |session| close_for_drain(session, spread_ms));
            }
        }
        let is_over = drain.index >= self.connections.len();
        drain.wake = (!is_over).then(|| {
            let next_ms = drain.pace.next_ms(span_ms, drain.left);
            io.instant_at(next_ms.max(now_ms + 1))
        });
        self.drain = Some(drain);
    }

    /// When the next session is to be sent away, if any is.
    pub(crate) fn next_drain_close(&self) -> Option<Instant> {
        self.drain.as_ref()?.wake
    }

    fn new_drain(&self, io: &Io) -> DrainProgress {
        let is_session = |state: &ConnectionState| state.is_open();
        let connections = self.connections.iter().flatten();
        let sessions = connections.filter(|connection| is_session(&connection.state));
        let drain = &self.core.setup.config.drain;
        let all = self.core.shared.sessions.load(Ordering::Acquire) as u64;
        DrainProgress {
            pace: Pace {
                sessions: sessions.count() as u64,
                started_ms: io.now().monotonic_ms,
                rate_per_s: drain.rate_per_s,
            },
            spread_ms: spread_ms(drain.reconnect_spread_ms, all),
            left: 0,
            index: 0,
            wake: None,
        }
    }
}

/// Closes a session of a draining server and tells its client when to return.
fn close_for_drain(session: &mut Session<'_>, spread_ms: u64) {
    session.core.counters.drained_connections.add(1);
    if session.core.setup.config.protocol == Protocol::V1 && spread_ms > 0 {
        let after_ms = session.core.rng.random_range(0..=spread_ms);
        let reconnect = Reply::Reconnect {
            after_ms,
            reason: "the server is draining".into(),
        };
        session.reply(&reconnect);
    }
    session.start_close(CloseCode::DRAINING, "the server is draining");
}

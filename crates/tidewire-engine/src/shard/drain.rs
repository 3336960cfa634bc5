//! Drain of a shard: sessions are closed at a rate, and each client receives a time to reconnect.

use crate::config::Protocol;
use crate::limits::pace::{DrainProgress, Pace, spread_ms};
use crate::session::Session;
use crate::session::application::Application;
use crate::shard::EngineShard;
use crate::state::connection::ConnectionState;
use rand::Rng;
use std::sync::atomic::Ordering;
use std::time::Instant;
use tidewire_net::{ConnectionId, Io};
use tidewire_wire::close::CloseCode;
use tidewire_wire::session::Reply;

impl<A: Application> EngineShard<A> {
    /// Closes the sessions that are due, if the server is draining.
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
        let span_ms = self.core.shared.life.drain_span_ms.load(Ordering::Acquire);
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
        DrainProgress {
            pace: Pace {
                sessions: sessions.count() as u64,
                started_ms: io.now().monotonic_ms,
                rate_per_s: self.core.setup.config.drain.rate_per_s,
            },
            spread_ms: self.reconnect_spread_ms(),
            left: 0,
            index: 0,
            wake: None,
        }
    }

    /// The time over which all clients of the server reconnect, in milliseconds.
    pub(super) fn reconnect_spread_ms(&self) -> u64 {
        let all = self.core.shared.sessions.load(Ordering::Acquire) as u64;
        spread_ms(self.core.setup.config.drain.reconnect_spread_ms, all)
    }

    /// The open sessions.
    pub(super) fn sessions(&self) -> Vec<ConnectionId> {
        let states = self.connections.iter().flatten().map(|it| &it.state);
        let open = states.filter(|state| state.is_open());
        open.map(|state| state.key.id).collect()
    }
}

/// Closes a session of a draining server and sends its client the time to return.
fn close_for_drain(session: &mut Session<'_>, spread_ms: u64) {
    session.core.counters.drained_connections.add(1);
    tell_when_to_return(session, spread_ms, "the server is draining");
    session.start_close(CloseCode::DRAINING, "the server is draining");
}

/// Gives the client of a session that ends a random time to reconnect, of at most `spread_ms`; none with 0.
pub(super) fn tell_when_to_return(session: &mut Session<'_>, spread_ms: u64, reason: &str) {
    if session.core.setup.config.protocol == Protocol::V1 && spread_ms > 0 {
        let after_ms = session.core.rng.random_range(0..=spread_ms);
        let reconnect = Reply::Reconnect {
            after_ms,
            reason: reason.to_owned().into(),
        };
        session.reply(&reconnect);
    }
}

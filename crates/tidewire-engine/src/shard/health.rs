//! Whether the shards of a server live.

use crate::session::application::Application;
use crate::shard::EngineShard;
use serde::Serialize;
use std::time::Duration;
use tidewire_net::{Heartbeat, Io, Pulse};
use tidewire_wire::close::CloseCode;

/// How a shard is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum ShardHealth {
    /// It waits for something to do, or has not been in one turn of its loop for too long.
    Healthy,
    /// It has been in one turn of its loop for longer than
    /// [`shard_stall_ms`](crate::Limits::shard_stall_ms): the application blocks it, most likely.
    Stuck {
        /// For how long, in milliseconds.
        turn_ms: u64,
    },
    /// Its loop has ended, because the server stops or has failed.
    Ended,
}

impl ShardHealth {
    pub(crate) fn of(heartbeat: &Heartbeat, stall_ms: u64) -> Self {
        match heartbeat.pulse() {
            Pulse::InTurn(long) if long > Duration::from_millis(stall_ms) => Self::Stuck {
                turn_ms: long.as_millis() as u64,
            },
            Pulse::Waiting | Pulse::InTurn(_) => Self::Healthy,
            Pulse::Ended => Self::Ended,
        }
    }
}

impl<A: Application> EngineShard<A> {
    /// Ends all sessions if the others have not waited for this shard: what was dropped meanwhile may have been for any of
    /// them.
    pub(crate) fn return_from_stall(&mut self, io: &mut Io) {
        if !self.core.shared.hub.outlets[self.core.index as usize].reattach() {
            return;
        }
        self.core.counters.shard_stalls.add(1);
        tracing::error!(
            shard = self.core.index,
            "a shard was stuck and goes on; its sessions end with close code 1011",
        );
        for index in 0..self.connections.len() {
            let connection = self.connections[index].as_ref();
            if let Some(id) = connection.map(|connection| connection.state.key.id) {
                self.with_turn(io, id, |turn, state| {
                    let reason = "the server was stuck; messages may be missing";
                    turn.start_close(state, CloseCode::INTERNAL_ERROR, reason);
                });
            }
        }
    }
}

/// Why a server has ended by itself: a fault of the engine or of the operating system.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("shard {shard} has failed: {reason}")]
pub struct ServerFailure {
    /// The shard, from 0.
    pub shard: usize,
    /// What the panic or the operating system says.
    pub reason: String,
}

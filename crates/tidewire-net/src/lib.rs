//! Sockets for Tidewire: one event loop per thread, nothing shared between threads.
//!
//! A [`Shard`] owns its listeners, its connections, one large read buffer, one write buffer and its
//! timers, and calls a [`Handler`] with the bytes that arrive. The handler answers through [`Io`]. Other
//! threads reach a shard through its bounded [`Mailbox`]. The same loop serves and connects, so the
//! load lab runs on what it measures.
//!
//! Plain TCP and TLS look alike to the handler.

mod alarm;
mod closed;
mod config;
mod handler;
mod heartbeat;
mod id;
mod io;
mod ledger;
mod listener;
mod mailbox;
mod outbox;
mod places;
mod readiness;
mod receiving;
mod shard;
#[cfg(feature = "simulation")]
mod simulated;
#[cfg(feature = "simulation")]
pub mod simulation;
mod socket;
mod stream;
mod timer;
pub mod tls;

pub use alarm::SPIN;
pub use closed::{Closed, io_words};
pub use config::ShardConfig;
pub use handler::Handler;
pub use heartbeat::{Heartbeat, Pulse};
pub use id::{ConnectionId, ListenerId};
pub use io::{
    ADOPTED_BYTES_MAX, Address, Connect, Io, LINGER_MS, LINGER_MS_MAX, Now, OUTBOX_SHARE_BYTES,
    Usage, When, steady_unix_ms,
};
pub use listener::{bind, bind_shared, deal};
pub use mailbox::{Mailbox, MailboxError, Waker};
pub use shard::Shard;

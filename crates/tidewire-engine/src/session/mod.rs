//! One connection: everything that a message of its peer can cause.
//!
//! [`receive`] is the way of a message from the socket to the application, [`send`] the way back. A
//! [`Session`] has what a step needs, and is made for one call.

pub(crate) mod access;
pub(crate) mod acknowledge;
pub(crate) mod admission;
pub(crate) mod application;
pub(crate) mod backend_events;
pub(crate) mod binary;
pub(crate) mod catch_up;
pub(crate) mod close;
pub(crate) mod compression;
pub(crate) mod context;
pub(crate) mod deliver;
pub(crate) mod encryption;
pub(crate) mod expiry;
pub(crate) mod group_membership;
pub(crate) mod hello;
pub(crate) mod history_requests;
pub(crate) mod inbound;
pub(crate) mod leave;
pub(crate) mod liveness;
pub(crate) mod membership;
pub(crate) mod message_jobs;
mod message_spans;
pub(crate) mod permit;
mod prepare;
pub(crate) mod presence_messages;
pub(crate) mod publications;
pub(crate) mod receive;
pub(crate) mod reply;
pub(crate) mod request_reply;
pub(crate) mod requests;
mod rights;
pub(crate) mod send;
pub(crate) mod server_requests;
pub(crate) mod shared_producers;
pub(crate) mod signing;
pub(crate) mod snapshots;
pub(crate) mod subscribe;
mod topic_tokens;

use crate::clock::{steady_now, wire_now};
use crate::state::connection::ConnectionState;
use crate::state::core::Core;
use std::sync::Arc;
use tidewire_net::Io;
use tidewire_wire::session::Now;

/// One connection for the length of one call: its state, its socket and what the shard shares among
/// its connections.
#[derive(Debug)]
pub(crate) struct Session<'a> {
    pub(crate) io: &'a mut Io,
    pub(crate) core: &'a mut Core,
    pub(crate) state: &'a mut ConnectionState,
}

impl Session<'_> {
    /// The time of the turn at hand.
    #[inline]
    pub(crate) fn now(&self) -> Now {
        wire_now(self.io)
    }

    /// The same without the steps of the clock, for expiry and for data that is remembered for a time.
    #[inline]
    pub(crate) fn steady_now(&self) -> Now {
        steady_now(self.io)
    }

    /// The same session for a shorter call.
    #[inline]
    pub(crate) fn reborrow(&mut self) -> Session<'_> {
        Session {
            io: self.io,
            core: self.core,
            state: self.state,
        }
    }

    /// The name under which the session is present on topics: its user or, without authentication,
    /// its connection id.
    pub(crate) fn presence_name(&self) -> Arc<str> {
        match &self.state.client.user {
            Some(user) => Arc::clone(user),
            None => self.state.session.connection_id().to_string().into(),
        }
    }
}

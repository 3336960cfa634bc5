//! Mail of a shard: what other threads ask of it.

use crate::model::Outgoing;
use crate::shard::view::Question;
use crate::state::adoption::Adoption;
use crate::state::open_calls::PostedCall;
use crate::topics::access::AccessRules;
use std::sync::Arc;
use tidewire_net::ConnectionId;
use tidewire_wire::close::CloseCode;
use tidewire_wire::session::Action;

/// A request of other threads to a shard.
#[derive(Debug)]
pub(crate) enum Mail {
    Send(ConnectionId, Outgoing),
    Close(ConnectionId, CloseCode, &'static str),
    Change(SessionChange),
    Question(Question),
    Call(ConnectionId, Box<PostedCall>),
    Adopt(Box<Adoption>),
    /// Another process accepts from now on.
    StopListening,
}

/// A change that another thread asks for.
#[derive(Debug, Clone)]
pub(crate) struct SessionChange {
    /// Those that began later than this are not changed, in milliseconds since 1970.
    pub(crate) until_unix_ms: Option<u64>,
    pub(crate) whose: ChangedSessions,
    pub(crate) what: ChangeKind,
}

#[derive(Debug, Clone)]
pub(crate) enum ChangedSessions {
    Connection(ConnectionId),
    User(Arc<str>),
    All,
}

#[derive(Debug, Clone)]
pub(crate) enum ChangeKind {
    Subscription(Action, Arc<str>),
    Access(Arc<AccessRules>),
    End(CloseCode, Arc<str>),
    /// The broker has gone away or is back.
    BrokerUpdate,
}

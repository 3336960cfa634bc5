//! Queries about connections, topics, histories and presence, and their results.

use crate::model::{ConnectionKey, Position};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Which sessions to list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionQuery {
    /// Only those of this user.
    pub user: Option<String>,
    /// Only those that subscribe to this topic or pattern, by its own name.
    pub topic: Option<String>,
    /// Only those whose address, as `address:port`, starts so.
    pub address: Option<String>,
    /// Only those behind this one in the order of the list.
    pub after: Option<ConnectionKey>,
    /// At most N.
    pub limit: usize,
}

/// One session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionInfo {
    /// Names it in calls.
    pub connection: ConnectionKey,
    /// The UUID that the client received in `server_ready`; `None` without protocol version 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The `sub` of its token, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The other end, as `address:port`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// `json` or `msgpack`.
    pub format: Cow<'static, str>,
    /// Topics and patterns that it subscribes to.
    pub topics: usize,
    /// The bytes that wait to be sent to it.
    pub queued_bytes: usize,
    /// When it connected, in milliseconds since 1970; `None` without protocol version 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connected_unix_ms: Option<u64>,
}

/// One session and its topics.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionDetails {
    /// The session.
    pub connection: ConnectionInfo,
    /// Some of the topics and patterns that it subscribes to, by name.
    pub subscriptions: Vec<String>,
    /// Whether there are more.
    pub more: bool,
}

/// Which topics to list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopicQuery {
    /// Only names that start so.
    pub prefix: String,
    /// Only names that sort behind this one.
    pub after: Option<String>,
    /// At most N.
    pub limit: usize,
}

/// A topic or pattern that has subscribers or, where these are asked for, a topic that keeps publications.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TopicInfo {
    /// Its name.
    pub topic: String,
    /// Whether it is a pattern.
    pub pattern: bool,
    /// Its subscribers, on all shards.
    pub subscribers: u64,
    /// Publications since it has had subscribers without a break; without subscribers, since its
    /// history began.
    pub publications: u64,
    /// Publications a second since somebody looked last, at least a second ago; at first since the
    /// server's start.
    pub per_s: f64,
    /// Publications that are kept; `None` if none are, or if topics with history were not asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept: Option<u64>,
}

/// A part of a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Listed<T> {
    /// The items, in order.
    pub items: Vec<T>,
    /// Whether more follow.
    pub more: bool,
}

/// A part of a list over all servers that share a broker.
#[derive(Debug, Clone, PartialEq)]
pub struct ListedEverywhere<T> {
    /// The items, in order.
    pub items: Vec<OnServers<T>>,
    /// Whether more follow.
    pub more: bool,
    /// Servers that did not answer in time, so that what they have is missing.
    pub silent: Vec<String>,
}

impl<T> Default for ListedEverywhere<T> {
    fn default() -> Self {
        Self {
            items: Vec::new(),
            more: false,
            silent: Vec::new(),
        }
    }
}

/// An item of such a list.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OnServers<T> {
    /// The servers that have it, as [`ClusterNode`](crate::ClusterNode) names them; none without a broker.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<String>,
    /// The item. Of one that several servers have, their subscribers are added up.
    #[serde(flatten)]
    pub item: T,
}

/// Which part of a topic's history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistoryQuery {
    /// Only publications after this offset or, with the newest first, before it.
    pub since: Option<u64>,
    /// At most N.
    pub limit: usize,
    /// From the newest backwards, instead of from the oldest on.
    pub newest_first: bool,
}

/// A part of a topic's history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryPage {
    /// Where the topic stands; `None` if nothing is known of it.
    pub position: Option<Position>,
    /// The offset of the oldest publication that is kept.
    pub oldest: u64,
    /// The publications.
    pub publications: Vec<Kept>,
    /// Whether there are more in this direction.
    pub more: bool,
}

/// One publication of a history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// Its place.
    pub position: Position,
    /// The envelope as subscribers got it, JSON.
    pub json: String,
}

/// The users on a topic.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TopicPresence {
    /// How many users.
    pub users: usize,
    /// On how many connections.
    pub connections: usize,
    /// Some of them.
    pub members: Vec<PresentMember>,
}

/// A user on a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PresentMember {
    /// The `sub` of its token or, without authentication, the connection's id.
    pub user: String,
    /// Its presence data, JSON.
    pub data: Option<String>,
    /// On how many connections.
    pub connections: usize,
}

/// A client asks for the state of topics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SyncRequest<'a> {
    /// The topics and patterns that it names and may subscribe to, or those it is subscribed to if
    /// it names none; at least one.
    pub topics: &'a [String],
    /// Whether snapshots are wanted.
    pub include_snapshots: bool,
    /// The last `seq` that the client has seen.
    pub last_sequence: Option<u64>,
    /// The mark that snapshots sent later have to carry; those of
    /// [`Context::send_snapshot`](crate::Context::send_snapshot) do.
    pub correlation_id: Option<&'a str>,
}

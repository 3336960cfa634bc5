//! The agreement: what all nodes of a cluster must have in common.

use crate::layout::{NodeId, number};
use crate::resp::{Value, argument, number_argument};
use crate::script::{Hashes, Script, UnknownReply, text, unsigned};

/// Joins a node to the agreement of its cluster.
#[derive(Debug)]
pub struct AgreeCall<'a> {
    /// The key of the agreement.
    pub agreement_key: &'a [u8],
    /// The key of the list of nodes.
    pub nodes_key: &'a [u8],
    /// The key of the fence.
    pub fence_key: &'a [u8],
    /// The node.
    pub node: NodeId,
    /// Since when it belongs to the cluster, in milliseconds of Redis; `None` if it is new.
    pub joined_ms: Option<u64>,
    /// Its rules of topics.
    pub rules: &'a str,
    /// The limits that its clients receive.
    pub limits: &'a str,
    /// How long its lease holds.
    pub lease_ms: u64,
    /// What the names of the database's own channels begin with; `None` in database 0.
    pub own_channels: Option<&'a str>,
    /// When the node asked last, the names were shared with other databases.
    pub were_shared: bool,
    /// It may begin the cluster if Redis knows none.
    pub may_begin: bool,
    /// The addresses of several independent Redis servers; empty if there is one.
    pub servers: &'a str,
    /// The key of the agreement of the first partition, at one of several independent servers that does not have it.
    pub first_agreement_key: Option<&'a [u8]>,
    /// What must be the same everywhere: names and values.
    pub terms: &'a [(&'static str, String)],
}

/// The result of joining.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgreeReply {
    /// Whether the node belongs to the cluster.
    pub state: Agreed,
    /// Changes whenever a node changes its part of the agreement.
    pub stamp: Vec<u8>,
    /// The time of Redis, in milliseconds since 1970.
    pub redis_ms: u64,
    /// What differs: the name, and the value of the cluster.
    pub differing: Vec<(String, String)>,
    /// The other nodes whose rules or limits differ.
    pub others: Vec<OtherNode>,
    /// The names of channels.
    pub channels: Channels,
}

/// The names of the channels of a database other than 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Channels {
    /// Those of keys, as servers of an earlier version need it: other databases have the same.
    Shared,
    /// Those of this database alone, for this time.
    Own {
        /// In milliseconds.
        for_ms: u64,
    },
}

/// Whether a node belongs to the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Agreed {
    /// It does.
    Joined,
    /// It does not: something differs.
    Differs,
    /// There is no cluster yet, and it may not begin one.
    Unbegun,
    /// It does, but an operator has changed the agreement since it joined.
    Changed,
}

/// Another node, with other rules or limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherNode {
    /// The node.
    pub node: NodeId,
    /// Its rules of topics.
    pub rules: String,
    /// The limits that its clients receive.
    pub limits: String,
    /// The stamp that it has seen.
    pub seen: Vec<u8>,
}

impl AgreeCall<'_> {
    /// Appends the command.
    pub fn write(&self, hashes: &Hashes, out: &mut Vec<u8>) {
        let keys = [self.agreement_key, self.nodes_key, self.fence_key];
        let keys = keys.into_iter().chain(self.first_agreement_key);
        let arguments = 10 + 2 * self.terms.len();
        hashes.begin(Script::Agree, keys.clone().count(), arguments, out);
        keys.for_each(|key| argument(out, key));
        argument(out, self.node.to_string().as_bytes());
        argument(out, if self.joined_ms.is_some() { b"1" } else { b"0" });
        number_argument(out, self.joined_ms.unwrap_or(0));
        argument(out, self.rules.as_bytes());
        argument(out, self.limits.as_bytes());
        number_argument(out, self.lease_ms);
        argument(out, self.own_channels.unwrap_or_default().as_bytes());
        argument(out, if self.were_shared { b"1" } else { b"0" });
        argument(out, if self.may_begin { b"1" } else { b"0" });
        argument(out, self.servers.as_bytes());
        for (name, value) in self.terms {
            argument(out, name.as_bytes());
            argument(out, value.as_bytes());
        }
    }
}

impl AgreeReply {
    /// Reads the reply.
    pub fn read(value: Value<'_>) -> Result<Self, UnknownReply> {
        let mut items = value.items();
        let state = match text(items.next())? {
            b"joined" => Agreed::Joined,
            b"differs" => Agreed::Differs,
            b"unbegun" => Agreed::Unbegun,
            b"changed" => Agreed::Changed,
            _ => return Err(UnknownReply),
        };
        let stamp = text(items.next())?.to_vec();
        let redis_ms = unsigned(items.next())?;
        let words = |value: Option<Value<'_>>| {
            Ok::<_, UnknownReply>(String::from_utf8_lossy(text(value)?).into_owned())
        };
        let mut pairs = items.next().ok_or(UnknownReply)?.items();
        let mut differing = Vec::new();
        while let Some(name) = pairs.next() {
            differing.push((words(Some(name))?, words(pairs.next())?));
        }
        let mut parts = items.next().ok_or(UnknownReply)?.items();
        let mut others = Vec::new();
        while let Some(node) = parts.next() {
            others.push(OtherNode {
                node: NodeId::read(text(Some(node))?).ok_or(UnknownReply)?,
                rules: words(parts.next())?,
                limits: words(parts.next())?,
                seen: text(parts.next())?.to_vec(),
            });
        }
        let channels = match text(items.next())? {
            b"" => Channels::Shared,
            for_ms => Channels::Own {
                for_ms: number(for_ms).ok_or(UnknownReply)?,
            },
        };
        Ok(Self {
            state,
            channels,
            stamp,
            redis_ms,
            differing,
            others,
        })
    }
}

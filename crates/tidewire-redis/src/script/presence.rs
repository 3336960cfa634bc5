//! Presence: what nodes have of users on topics, and the nodes themselves.

use crate::layout::{NodeId, number};
use crate::resp::{Value, argument, number_argument};
use crate::script::{Hashes, Script, UnknownReply, text};
use std::sync::Arc;

/// The presence of one user on a topic at one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The node.
    pub node: NodeId,
    /// The user.
    pub user: Arc<str>,
    /// The user's connections to the node; with 0 the node has the user no more.
    pub connections: u64,
    /// When the data changed last: of data from several nodes, that with the greatest version counts.
    pub data_version: u64,
    /// The presence data of the user there: JSON text.
    pub data: Option<Arc<str>>,
}

/// The part of a change that users see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// The user is on the topic, and was not.
    Joined,
    /// The user is on the topic no more.
    Left,
    /// A node has other data of the user.
    Data,
    /// Nothing.
    Nothing,
}

/// A change as it arrives through the channel of its topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Greater than all before.
    pub version: u64,
    /// The version of the change before it; 0 if nobody was there for a minute.
    pub before: u64,
    /// The part of it that users see.
    pub seen: Seen,
    /// The presence of the user at the node now.
    pub member: Member,
}

impl Member {
    /// Reads the field and the value of a hash; a value without bytes is that of a node that has the user no more.
    fn read(field: &[u8], value: &[u8]) -> Option<Self> {
        let (node, user) = field.split_at_checked(16)?;
        let mut member = Self {
            node: NodeId::read(node)?,
            user: std::str::from_utf8(user).ok()?.into(),
            connections: 0,
            data_version: 0,
            data: None,
        };
        if value.is_empty() {
            return Some(member);
        }
        let mut parts = value.splitn(3, |byte| *byte == b' ');
        member.connections = number(parts.next()?).filter(|count| *count > 0)?;
        member.data_version = number(parts.next()?)?;
        let data = std::str::from_utf8(parts.next()?).ok()?;
        member.data = (!data.is_empty()).then(|| data.into());
        Some(member)
    }
}

impl Change {
    /// Whether a message of a topic's channel is about presence.
    #[must_use]
    pub fn is_one(message: &[u8]) -> bool {
        message.first() == Some(&b'u')
    }

    /// Reads a message; `None` if it is something else.
    #[must_use]
    pub fn read(message: &[u8]) -> Option<Self> {
        let mut parts = message.strip_prefix(b"u")?.splitn(5, |byte| *byte == b' ');
        let (version, before) = (number(parts.next()?)?, number(parts.next()?)?);
        let seen = match parts.next()? {
            b"j" => Seen::Joined,
            b"l" => Seen::Left,
            b"d" => Seen::Data,
            b"c" => Seen::Nothing,
            _ => return None,
        };
        let length = usize::try_from(number(parts.next()?)?).ok()?;
        let (field, value) = parts.next()?.split_at_checked(length)?;
        Some(Self {
            version,
            before,
            seen,
            member: Member::read(field, value)?,
        })
    }
}

/// Sets what a node has of some users.
#[derive(Debug)]
pub struct PresenceCall<'a> {
    /// The key of the lease.
    pub lease_key: &'a [u8],
    /// The key of the writer.
    pub writer_key: &'a [u8],
    /// The key of the node's topics and users.
    pub own_key: &'a [u8],
    /// The node.
    pub node: NodeId,
    /// The number of the connection among those of the node.
    pub generation: u64,
    /// The beginning of the keys.
    pub prefixes: &'a [Vec<u8>; 3],
    /// Topic, user, connections and data of each change. At most [`PRESENCE_MAX`].
    pub changes: &'a [(&'a str, &'a str, u64, Option<&'a str>)],
}

/// The result of the changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PresenceReply {
    /// They are done.
    Done,
    /// They are done but for those of topics whose keys have another type.
    WrongType,
    /// Nothing was done: the lease of the node has ended.
    Lost,
    /// Nothing was done: the node has a later connection.
    Stale,
}

impl PresenceCall<'_> {
    /// Appends the command.
    pub fn write(&self, hashes: &Hashes, out: &mut Vec<u8>) {
        hashes.begin(Script::Presence, 3, 5 + 4 * self.changes.len(), out);
        for key in [self.lease_key, self.writer_key, self.own_key] {
            argument(out, key);
        }
        argument(out, self.node.to_string().as_bytes());
        number_argument(out, self.generation);
        for prefix in self.prefixes {
            argument(out, prefix);
        }
        for (topic, user, connections, data) in self.changes {
            argument(out, topic.as_bytes());
            argument(out, user.as_bytes());
            number_argument(out, *connections);
            argument(out, data.unwrap_or_default().as_bytes());
        }
    }
}

impl PresenceReply {
    /// Reads the reply.
    pub fn read(value: Value<'_>) -> Result<Self, UnknownReply> {
        match value.text() {
            Some(b"ok") => Ok(Self::Done),
            Some(b"wrong") => Ok(Self::WrongType),
            Some(b"lost") => Ok(Self::Lost),
            Some(b"stale") => Ok(Self::Stale),
            _ => Err(UnknownReply),
        }
    }
}

/// Reads some of those who are on a topic.
#[derive(Debug)]
pub struct RosterCall<'a> {
    /// The key of its members.
    pub members_key: &'a [u8],
    /// Where to go on; 0 at first.
    pub cursor: u64,
    /// About how many.
    pub count: u64,
}

/// Some of those who are on a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RosterReply {
    /// `members` includes all changes up to this version, and maybe later ones.
    pub version: u64,
    /// Where to go on; 0 at the end.
    pub cursor: u64,
    /// The members that were read. A member may occur twice.
    pub members: Vec<Member>,
}

impl RosterCall<'_> {
    /// Appends the command.
    pub fn write(&self, hashes: &Hashes, out: &mut Vec<u8>) {
        hashes.begin(Script::Roster, 1, 2, out);
        argument(out, self.members_key);
        number_argument(out, self.cursor);
        number_argument(out, self.count);
    }
}

impl RosterReply {
    /// Reads the reply.
    pub fn read(value: Value<'_>) -> Result<Self, UnknownReply> {
        let mut items = value.items();
        let version = number(text(items.next())?).ok_or(UnknownReply)?;
        let cursor = number(text(items.next())?).ok_or(UnknownReply)?;
        let mut fields = items.next().ok_or(UnknownReply)?.items();
        let mut members = Vec::with_capacity(fields.remaining() / 2);
        while let Some(field) = fields.next() {
            let (field, value) = (text(Some(field))?, text(fields.next())?);
            if field != b"v" {
                members.push(Member::read(field, value).ok_or(UnknownReply)?);
            }
        }
        Ok(Self {
            version,
            cursor,
            members,
        })
    }
}

/// Removes a node whose lease has ended.
#[derive(Debug)]
pub struct SweepCall<'a> {
    /// The key of the list of nodes.
    pub nodes_key: &'a [u8],
    /// The key of its lease.
    pub lease_key: &'a [u8],
    /// The key of its topics and users.
    pub own_key: &'a [u8],
    /// The key of its queue groups.
    pub own_groups_key: &'a [u8],
    /// The key of the queue groups.
    pub groups_key: &'a [u8],
    /// The key of those without nodes.
    pub idle_groups_key: &'a [u8],
    /// The node.
    pub node: NodeId,
    /// Users that one call removes.
    pub count: u64,
    /// The beginning of the keys.
    pub prefixes: &'a [Vec<u8>; 3],
    /// Ends the lease before.
    pub ends_lease: bool,
}

/// The progress of the removal of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SweepReply {
    /// It is removed.
    Swept,
    /// Some are left.
    More,
    /// Nothing was done: its lease holds.
    Alive,
    /// Nothing was done: there is no such node.
    Gone,
}

impl SweepCall<'_> {
    /// Appends the command.
    pub fn write(&self, hashes: &Hashes, out: &mut Vec<u8>) {
        hashes.begin(Script::Sweep, 6, 6, out);
        for key in [self.nodes_key, self.lease_key, self.own_key] {
            argument(out, key);
        }
        for key in [self.own_groups_key, self.groups_key, self.idle_groups_key] {
            argument(out, key);
        }
        argument(out, self.node.to_string().as_bytes());
        number_argument(out, self.count);
        for prefix in self.prefixes {
            argument(out, prefix);
        }
        argument(out, if self.ends_lease { b"1" } else { b"0" });
    }
}

impl SweepReply {
    /// Reads the reply.
    pub fn read(value: Value<'_>) -> Result<Self, UnknownReply> {
        match value.text() {
            Some(b"swept") => Ok(Self::Swept),
            Some(b"more") => Ok(Self::More),
            Some(b"alive") => Ok(Self::Alive),
            Some(b"gone") => Ok(Self::Gone),
            _ => Err(UnknownReply),
        }
    }
}

/// Lists the nodes whose lease holds.
#[derive(Debug)]
pub struct NodesCall<'a> {
    /// The key of the list of nodes.
    pub nodes_key: &'a [u8],
    /// The beginning of the keys of leases.
    pub leases: &'a [u8],
    /// At most N.
    pub count: u64,
}

/// The nodes, each with the data that it shows to the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodesReply(pub Vec<(NodeId, Box<[u8]>)>);

impl NodesCall<'_> {
    /// Appends the command.
    pub fn write(&self, hashes: &Hashes, out: &mut Vec<u8>) {
        hashes.begin(Script::Nodes, 1, 2, out);
        argument(out, self.nodes_key);
        argument(out, self.leases);
        number_argument(out, self.count);
    }
}

impl NodesReply {
    /// Reads the reply.
    pub fn read(value: Value<'_>) -> Result<Self, UnknownReply> {
        let Value::Array(mut items) = value else {
            return Err(UnknownReply);
        };
        let mut nodes = Vec::new();
        while let Some(node) = items.next() {
            let node = NodeId::read(text(Some(node))?).ok_or(UnknownReply)?;
            nodes.push((node, text(items.next())?.into()));
        }
        Ok(Self(nodes))
    }
}

/// Changes of one call.
pub const PRESENCE_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_read_and_garbage_is_not() {
        let message = b"u12 11 j 22 000000000000000aann bo3 12 {\"a\": 1}";
        let change = Change::read(message).expect("a change");
        assert_eq!((change.version, change.before), (12, 11));
        assert_eq!(change.seen, Seen::Joined);
        let member = change.member;
        assert_eq!((member.node, &*member.user), (NodeId(10), "ann bo"));
        assert_eq!((member.connections, member.data_version), (3, 12));
        assert_eq!(member.data.as_deref(), Some("{\"a\": 1}"));
        let left = Change::read(b"u12 11 l 17 000000000000000ab").expect("a change");
        assert_eq!((left.seen, left.member.connections), (Seen::Left, 0));
        for garbage in [
            &b"u"[..],
            b"u12 11 x 17 000000000000000ab",
            b"u12 11 l 18 000000000000000ab",
            b"u12 11 l 3 abc",
            b"u12 11 j 17 000000000000000ab0 1 ",
            b"u12 11 j 17 000000000000000ab1 1",
            b"u12 11 j 17 000000000000000a\xff1 1 ",
            b"u-1 11 l 17 000000000000000ab",
        ] {
            assert_eq!(Change::read(garbage), None, "{garbage:?}");
        }
    }
}

//! Names in Redis: the keys and channels, the positions in a stream, the nodes.
//!
//! All names begin with the prefix (`tw`) and the tag of a [partition](Partition) in braces, `{0}` for the first one, so
//! that a cluster keeps what one script touches in one slot. Prefix and tag are the lane of the partition.
//!
//! Redis keeps keys apart by database, but not channels. Therefore the channels of a database other than 0 carry its
//! number: `tw:{0}:@5:t:news` beside the key `tw:{0}:t:news`. Servers of an earlier version use the name of the key; while
//! one of them runs, the others share these names with it and listen to both.

use crate::partition::{Partition, slot_of};
use std::fmt;
use std::str::FromStr;

/// The place of a publication in its topic; in a stream it is the id `<epoch>-<offset>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Position {
    /// Which life of the topic: offsets of different epochs cannot be compared. Later epochs are greater.
    pub epoch: u32,
    /// The number of the publication in this epoch, from 1. 0 as the position of a topic means that nothing was
    /// published in this epoch.
    pub offset: u64,
}

impl Position {
    /// Reads `<epoch>-<offset>`; `None` if the bytes are something else or an epoch has more than 32 bits.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let dash = memchr::memchr(b'-', bytes)?;
        Some(Self {
            epoch: number(&bytes[..dash])?.try_into().ok()?,
            offset: number(&bytes[dash + 1..])?,
        })
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.epoch, self.offset)
    }
}

/// A decimal number without sign, of at most 20 digits.
pub fn number(bytes: &[u8]) -> Option<u64> {
    if bytes.is_empty() || bytes.len() > 20 {
        return None;
    }
    bytes.iter().try_fold(0_u64, |sum, byte| {
        let digit = byte.wrapping_sub(b'0');
        (digit < 10).then_some(())?;
        sum.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

/// Names one run of one Tidewire process: a random number, drawn when the process starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u64);

impl NodeId {
    /// Reads the 16 hexadecimal digits; `None` if the bytes are something else.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        let is_hex = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_hex.then(|| text.parse().ok())?
    }
}

impl fmt::Display for NodeId {
    /// 16 hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl FromStr for NodeId {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        u64::from_str_radix(text, 16).map(Self)
    }
}

/// A text as a glob that matches it alone.
fn escaped(text: &[u8]) -> Vec<u8> {
    let escape = |byte: &u8| match byte {
        b'[' | b']' | b'?' | b'*' | b'\\' => vec![b'\\', *byte],
        byte => vec![*byte],
    };
    text.iter().flat_map(escape).collect()
}

/// The names of the keys and channels that begin with one prefix.
#[derive(Debug, Clone)]
pub struct Layout {
    prefix: Vec<u8>,
    /// The prefix and the tag of the partition: `tw:{0}:`.
    lane: String,
    /// The beginning of every stream's key: `tw:{0}:t:`.
    streams: Vec<u8>,
    /// The beginning of the names of channels that belong to the database: `tw:{0}:@5:`. `None` in database 0, whose
    /// channels have the names of keys.
    own: Option<String>,
    sharing: Sharing,
}

/// Whether the names of channels are shared with other databases, as servers of an earlier version need it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sharing {
    /// They are the database's own.
    #[default]
    Own,
    /// They are the database's own; messages under the shared ones are received still.
    Leaving,
    /// Messages are sent under the shared ones and received under both.
    Shared,
}

impl Layout {
    /// The names below a prefix, such as `tw`, in database 0 without partitions.
    #[must_use]
    pub fn new(prefix: &str) -> Self {
        Self::of(prefix, 0, Partition::WHOLE)
    }

    /// The names below a prefix in a database, of what belongs to a partition.
    #[must_use]
    pub fn of(prefix: &str, database: u32, partition: Partition) -> Self {
        let lane = format!("{prefix}:{{{}}}:", partition.tag());
        let streams = format!("{lane}t:").into_bytes();
        Self {
            prefix: prefix.as_bytes().to_vec(),
            own: (database != 0).then(|| format!("{lane}@{database}:")),
            sharing: Sharing::default(),
            lane,
            streams,
        }
    }

    /// Sets which names of channels are used from now on. Without effect in database 0.
    pub fn share(&mut self, sharing: Sharing) {
        self.sharing = sharing;
    }

    /// The names of channels that are used now.
    #[must_use]
    pub fn sharing(&self) -> Sharing {
        self.sharing
    }

    /// The beginning of the names of the database's own channels; `None` in database 0.
    #[must_use]
    pub fn own_channels(&self) -> Option<&str> {
        self.own.as_deref()
    }

    /// The beginning of the names of channels that messages are sent under, if it is not that of keys.
    #[must_use]
    pub fn moved_channels(&self) -> Option<&str> {
        self.own_channels()
            .filter(|_| self.sharing != Sharing::Shared)
    }

    /// The channel under which a message is sent that has the name of a key.
    #[must_use]
    pub fn sent(&self, name: &[u8]) -> Vec<u8> {
        match (self.moved_channels(), self.rest(name)) {
            (Some(own), Some(rest)) => [own.as_bytes(), rest].concat(),
            _ => name.to_vec(),
        }
    }

    /// The channels under which messages are received that have the name of a key.
    #[must_use]
    pub fn received(&self, name: &[u8]) -> Vec<Vec<u8>> {
        let mut channels = self.all(name);
        if self.sharing == Sharing::Own {
            channels.truncate(1);
        }
        channels
    }

    /// All channels that a name ever has: the database's own, and behind it the shared one.
    #[must_use]
    pub fn all(&self, name: &[u8]) -> Vec<Vec<u8>> {
        let own = self.own.as_ref().zip(self.rest(name));
        let own = own.map(|(own, rest)| [own.as_bytes(), rest].concat());
        own.into_iter().chain([name.to_vec()]).collect()
    }

    /// What all keys of the partition begin with: `tw:{0}:`.
    #[must_use]
    pub fn lane(&self) -> &str {
        &self.lane
    }

    /// The glob that matches all keys of the partition.
    #[must_use]
    pub fn glob_of_lane(&self) -> Vec<u8> {
        [escaped(self.lane.as_bytes()), b"*".to_vec()].concat()
    }

    fn rest<'a>(&self, name: &'a [u8]) -> Option<&'a [u8]> {
        name.strip_prefix(self.lane.as_bytes())
    }

    /// The name of a channel without the lane or the database's own beginning; `None` if the channel belongs
    /// to something else, such as another database.
    fn rest_of_channel<'a>(&self, channel: &'a [u8]) -> Option<&'a [u8]> {
        let Some(own) = &self.own else {
            return self.rest(channel);
        };
        let own = channel.strip_prefix(own.as_bytes());
        own.or_else(|| self.rest(channel).filter(|_| self.sharing != Sharing::Own))
    }

    /// The slot in which a Redis Cluster has all keys.
    #[must_use]
    pub fn slot(&self) -> u16 {
        slot_of(self.lane.as_bytes())
    }

    /// The stream of a topic, and the channel of the same name.
    #[must_use]
    pub fn stream(&self, topic: &str) -> Vec<u8> {
        [&self.streams, topic.as_bytes()].concat()
    }

    /// The globs that match the channels of a pattern's topics, and maybe of others.
    #[must_use]
    pub fn globs(&self, pattern: &str) -> Vec<Vec<u8>> {
        let segments = pattern.split('.').map(|segment| match segment {
            "*" | ">" => b"*".to_vec(),
            segment => escaped(segment.as_bytes()),
        });
        let segments = segments.collect::<Vec<_>>().join(&b'.');
        self.globs_behind(&segments)
    }

    /// The globs that match the channels of all topics that begin with a text.
    #[must_use]
    pub fn globs_of_all(&self, beginning: &str) -> Vec<Vec<u8>> {
        let text = escaped(beginning.as_bytes());
        self.globs_behind(&[text, b"*".to_vec()].concat())
    }

    fn globs_behind(&self, end: &[u8]) -> Vec<Vec<u8>> {
        let beginnings = self.received(&self.streams);
        let globs = beginnings.iter().map(|it| [&escaped(it), end].concat());
        globs.collect()
    }

    /// The glob that an ACL rule of the prefix allows: everything below the prefix.
    #[must_use]
    pub fn glob_of_prefix(&self) -> Vec<u8> {
        [&self.prefix, b":*".as_slice()].concat()
    }

    /// The topic of a stream's key or a channel; `None` if it is the name of something else.
    #[must_use]
    pub fn topic_of<'a>(&self, channel: &'a [u8]) -> Option<&'a str> {
        std::str::from_utf8(self.rest_of_channel(channel)?.strip_prefix(b"t:")?).ok()
    }

    /// The hash that holds the run id of the Redis process and the least epoch that may be used.
    #[must_use]
    pub fn fence(&self) -> Vec<u8> {
        format!("{}f", self.lane).into_bytes()
    }

    /// The hash of what all nodes of the cluster have agreed on.
    #[must_use]
    pub fn agreement(&self) -> Vec<u8> {
        format!("{}agreed", self.lane).into_bytes()
    }

    /// The same of the first partition. In a Redis that has other partitions only, it says so.
    #[must_use]
    pub fn first_agreement(&self) -> Vec<u8> {
        [&self.prefix, b":{0}:agreed".as_slice()].concat()
    }

    /// The hash that holds the number of a node's last batch and its last replies.
    #[must_use]
    pub fn writer(&self, node: NodeId) -> Vec<u8> {
        format!("{}w:{node}", self.lane).into_bytes()
    }

    /// The key that remembers where the publication with this `id` was placed.
    #[must_use]
    pub fn id(&self, topic: &str, id: &str) -> Vec<u8> {
        let mut hash = sha1_smol::Sha1::new();
        hash.update(id.as_bytes());
        let digest = hash.digest().bytes();
        let short = digest
            .first_chunk::<16>()
            .map_or(0, |bytes| u128::from_be_bytes(*bytes));
        format!("{}i:{topic}:{short:032x}", self.lane).into_bytes()
    }

    /// The key that exists as long as a node renews it.
    #[must_use]
    pub fn lease(&self, node: NodeId) -> Vec<u8> {
        format!("{}n:{node}", self.lane).into_bytes()
    }

    /// The beginning of the key of every lease.
    #[must_use]
    pub fn leases(&self) -> Vec<u8> {
        format!("{}n:", self.lane).into_bytes()
    }

    /// The nodes, with the time when the lease of each ends.
    #[must_use]
    pub fn nodes(&self) -> Vec<u8> {
        format!("{}nodes", self.lane).into_bytes()
    }

    /// The topics and users of which a node has connections.
    #[must_use]
    pub fn node_members(&self, node: NodeId) -> Vec<u8> {
        format!("{}np:{node}", self.lane).into_bytes()
    }

    /// The members of a topic, from each node.
    #[must_use]
    pub fn members(&self, topic: &str) -> Vec<u8> {
        format!("{}p:{topic}", self.lane).into_bytes()
    }

    /// The beginning of the names of a topic: its members, the number of nodes of each user, and the channel under which
    /// messages are sent.
    #[must_use]
    pub fn presence_prefixes(&self) -> [Vec<u8>; 3] {
        let name = |kind: &str| format!("{}{kind}:", self.lane).into_bytes();
        [name("p"), name("u"), self.sent(&self.streams)]
    }

    /// The hash of queue groups; `:<topic>` behind it makes the stream of their work.
    #[must_use]
    pub fn groups(&self) -> Vec<u8> {
        format!("{}q", self.lane).into_bytes()
    }

    /// The queue groups that no node has members of, with the time when each ends.
    #[must_use]
    pub fn idle_groups(&self) -> Vec<u8> {
        format!("{}qi", self.lane).into_bytes()
    }

    /// The queue groups that a node has members of.
    #[must_use]
    pub fn node_groups(&self, node: NodeId) -> Vec<u8> {
        format!("{}ng:{node}", self.lane).into_bytes()
    }

    /// The hash of a user's producer.
    #[must_use]
    pub fn producer(&self, user: &str, producer: &str) -> Vec<u8> {
        let mut hash = sha1_smol::Sha1::new();
        hash.update(user.as_bytes());
        hash.update(&[0]);
        hash.update(producer.as_bytes());
        format!("{}a:{}", self.lane, hash.digest()).into_bytes()
    }

    /// The channel of a user.
    #[must_use]
    pub fn user(&self, user: &str) -> Vec<u8> {
        format!("{}v:{user}", self.lane).into_bytes()
    }

    /// The user of a channel; `None` if it is the name of something else.
    #[must_use]
    pub fn user_of<'a>(&self, channel: &'a [u8]) -> Option<&'a str> {
        std::str::from_utf8(self.rest_of_channel(channel)?.strip_prefix(b"v:")?).ok()
    }

    /// Whether a channel is that of all nodes.
    #[must_use]
    pub fn is_everyone(&self, channel: &[u8]) -> bool {
        self.rest_of_channel(channel) == Some(b"all")
    }

    /// The channel of all nodes.
    #[must_use]
    pub fn everyone(&self) -> Vec<u8> {
        format!("{}all", self.lane).into_bytes()
    }

    /// The channel of a node. It has the same name in each database, as no two nodes have the same id.
    #[must_use]
    pub fn inbox(&self, node: NodeId) -> Vec<u8> {
        format!("{}in:{node}", self.lane).into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_reads_what_it_writes_and_nothing_else() {
        let position = Position {
            epoch: u32::MAX,
            offset: u64::MAX,
        };
        assert_eq!(
            Position::parse(position.to_string().as_bytes()),
            Some(position)
        );
        for text in [
            "",
            "-",
            "1-",
            "-1",
            "1",
            "4294967296-1",
            "1-18446744073709551616",
            "+1-1",
            "1-1 ",
        ] {
            assert_eq!(Position::parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn names_are_those_of_the_documentation() {
        let layout = Layout::new("tw");
        let node = NodeId(0x9f3c);
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        assert_eq!(text(layout.stream("a.b")), "tw:{0}:t:a.b");
        assert_eq!(layout.topic_of(b"tw:{0}:t:a.b"), Some("a.b"));
        assert_eq!(layout.topic_of(b"tw:{0}:f"), None);
        assert_eq!(text(layout.fence()), "tw:{0}:f");
        assert_eq!(text(layout.writer(node)), "tw:{0}:w:0000000000009f3c");
        assert_eq!(
            text(layout.id("a", "x")),
            "tw:{0}:i:a:11f6ad8ec52a2984abaafd7c3b516503"
        );
        assert_eq!("0000000000009f3c".parse(), Ok(node));
        assert_eq!(NodeId::read(b"0000000000009f3c"), Some(node));
        for garbage in ["", "9f3c", "+000000000009f3c", "000000000000zz3c"] {
            assert_eq!(NodeId::read(garbage.as_bytes()), None, "{garbage}");
        }
        assert_eq!(
            text(layout.producer("ann", "x")),
            "tw:{0}:a:d35d237c20cc29c79a9079410445d95fbf0c8147"
        );
        assert_ne!(layout.producer("a", "nn"), layout.producer("an", "n"));
        assert_eq!(text(layout.members("a")), "tw:{0}:p:a");
        assert_eq!(
            text(layout.node_members(node)),
            "tw:{0}:np:0000000000009f3c"
        );
        assert_eq!(text(layout.agreement()), "tw:{0}:agreed");
        assert_eq!(text(layout.groups()), "tw:{0}:q");
        assert_eq!(text(layout.idle_groups()), "tw:{0}:qi");
        assert_eq!(text(layout.node_groups(node)), "tw:{0}:ng:0000000000009f3c");
        let prefixes = layout.presence_prefixes().map(text);
        assert_eq!(prefixes, ["tw:{0}:p:", "tw:{0}:u:", "tw:{0}:t:"]);
        assert_eq!(layout.globs("a.*.b?.>"), [b"tw:{0}:t:a.*.b\\?.*"]);
        assert_eq!(layout.globs_of_all("a.b*"), [b"tw:{0}:t:a.b\\**"]);
    }

    #[test]
    fn channels_carry_a_database_other_than_0_and_keys_do_not() {
        let mut layout = Layout::of("tw", 5, Partition::WHOLE);
        let texts = |all: Vec<Vec<u8>>| all.into_iter().map(|it| String::from_utf8(it).unwrap());
        let own = "tw:{0}:@5:t:a";
        let shared = layout.stream("a");
        assert_eq!(shared, b"tw:{0}:t:a");
        for (sharing, sent, received) in [
            (Sharing::Own, own, vec![own]),
            (Sharing::Leaving, own, vec![own, "tw:{0}:t:a"]),
            (Sharing::Shared, "tw:{0}:t:a", vec![own, "tw:{0}:t:a"]),
        ] {
            layout.share(sharing);
            assert_eq!(layout.sent(&shared), sent.as_bytes());
            assert_eq!(
                texts(layout.received(&shared)).collect::<Vec<_>>(),
                received
            );
            assert_eq!(layout.topic_of(own.as_bytes()), Some("a"));
            let is_received = received.contains(&"tw:{0}:t:a");
            assert_eq!(layout.topic_of(&shared).is_some(), is_received);
            assert_eq!(layout.is_everyone(b"tw:{0}:all"), is_received);
            assert!(layout.is_everyone(b"tw:{0}:@5:all"));
            assert_eq!(layout.user_of(b"tw:{0}:@5:v:ann"), Some("ann"));
            assert_eq!(layout.topic_of(b"tw:{0}:@4:t:a"), None);
        }
        let globs = texts(layout.globs("a.*")).collect::<Vec<_>>();
        assert_eq!(globs, ["tw:{0}:@5:t:a.*", "tw:{0}:t:a.*"]);
        let zero = Layout::new("tw");
        assert_eq!(zero.topic_of(own.as_bytes()), None);
        assert_eq!(zero.sent(&shared), shared);
        assert_eq!(zero.all(&shared), vec![shared]);
    }
}

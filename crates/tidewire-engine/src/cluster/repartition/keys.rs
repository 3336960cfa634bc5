//! The keys of a partition, by what they hold.

/// A key of a partition, without the beginning that all keys of the partition have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Key {
    /// The history of a topic.
    Stream(Vec<u8>),
    /// Where a publication with an id was placed: the topic, and the hash of the id.
    Id(Vec<u8>, Vec<u8>),
    /// The work of a topic's queue groups.
    Work(Vec<u8>),
    /// A producer.
    Producer(Vec<u8>),
    /// One with some of each topic: see [`owner_of`].
    Parts(Vec<u8>),
    /// One that servers write anew: presence, leases, writers, the fence, the agreement.
    Other(Vec<u8>),
}

/// The type of a key with some of each topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    Hash,
    SortedSet,
    Set,
}

impl Key {
    pub(super) fn of(rest: &[u8]) -> Self {
        let colon = memchr::memchr(b':', rest);
        let (kind, name) = match colon {
            Some(at) => (&rest[..at], &rest[at + 1..]),
            None => (rest, [].as_slice()),
        };
        match (kind, colon) {
            (b"t", Some(_)) => Self::Stream(name.to_vec()),
            (b"i", Some(_)) => match memchr::memrchr(b':', name) {
                Some(at) => Self::Id(name[..at].to_vec(), name[at + 1..].to_vec()),
                None => Self::Other(rest.to_vec()),
            },
            (b"q", Some(_)) => Self::Work(name.to_vec()),
            (b"a", Some(_)) => Self::Producer(name.to_vec()),
            (b"q" | b"qi", None) | (b"ng", Some(_)) => Self::Parts(rest.to_vec()),
            _ => Self::Other(rest.to_vec()),
        }
    }

    /// The key without the beginning.
    pub(super) fn rest(&self) -> Vec<u8> {
        match self {
            Self::Stream(topic) => [b"t:", topic.as_slice()].concat(),
            Self::Id(topic, id) => [b"i:", topic.as_slice(), b":", id].concat(),
            Self::Work(topic) => [b"q:", topic.as_slice()].concat(),
            Self::Producer(name) => [b"a:", name.as_slice()].concat(),
            Self::Parts(rest) | Self::Other(rest) => rest.clone(),
        }
    }

    /// The topic that the whole key belongs to.
    pub(super) fn topic(&self) -> Option<&[u8]> {
        match self {
            Self::Stream(topic) | Self::Id(topic, _) | Self::Work(topic) => Some(topic),
            Self::Producer(_) | Self::Parts(_) | Self::Other(_) => None,
        }
    }
}

/// The type of a key with some of each topic, without the beginning.
pub(super) fn shape_of(rest: &[u8]) -> Shape {
    match rest {
        b"q" => Shape::Hash,
        b"qi" => Shape::SortedSet,
        _ => Shape::Set,
    }
}

/// The topic of a member of such a key: in the hash of groups `t<topic>` or `l<own>`, elsewhere `<own>`, where `<own>` is
/// `<length of the topic>:<topic><group>`.
pub(super) fn owner_of<'a>(rest: &[u8], member: &'a [u8]) -> Option<&'a [u8]> {
    let own = match (shape_of(rest), member.first()?) {
        (Shape::Hash, b't') => return Some(&member[1..]),
        (Shape::Hash, _) => &member[1..],
        _ => member,
    };
    let colon = memchr::memchr(b':', own)?;
    let length: usize = std::str::from_utf8(&own[..colon]).ok()?.parse().ok()?;
    own[colon + 1..].get(..length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_as_they_are_written() {
        for (rest, key) in [
            ("t:a.b", Key::Stream(b"a.b".to_vec())),
            ("t:a:b", Key::Stream(b"a:b".to_vec())),
            ("i:a:b:00ff", Key::Id(b"a:b".to_vec(), b"00ff".to_vec())),
            ("q:a", Key::Work(b"a".to_vec())),
            ("a:00ff", Key::Producer(b"00ff".to_vec())),
            ("q", Key::Parts(b"q".to_vec())),
            ("qi", Key::Parts(b"qi".to_vec())),
            (
                "ng:0000000000009f3c",
                Key::Parts(b"ng:0000000000009f3c".to_vec()),
            ),
            ("agreed", Key::Other(b"agreed".to_vec())),
            ("p:a", Key::Other(b"p:a".to_vec())),
        ] {
            assert_eq!(Key::of(rest.as_bytes()), key);
            assert_eq!(key.rest(), rest.as_bytes());
        }
    }

    #[test]
    fn members_have_a_topic() {
        for (rest, member, topic) in [
            ("q", "ta.b", Some("a.b")),
            ("q", "l3:a:bworkers", Some("a:b")),
            ("qi", "1:aworkers", Some("a")),
            ("ng:9f3c", "1:aworkers", Some("a")),
            ("qi", "9:a", None),
            ("qi", "x", None),
        ] {
            let found = owner_of(rest.as_bytes(), member.as_bytes());
            assert_eq!(found, topic.map(str::as_bytes), "{rest} {member}");
        }
    }
}

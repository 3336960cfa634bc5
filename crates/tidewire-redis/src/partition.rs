//! Partitions: the parts into which the topics of a cluster are divided, so that several processes of Redis share the
//! load. All keys of a partition are in one slot, and the slots of the partitions are spread evenly.

use std::fmt;

/// One of the partitions of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Partition {
    index: u16,
    count: u16,
}

impl Partition {
    /// The only one.
    pub const WHOLE: Self = Self { index: 0, count: 1 };

    /// The most that a cluster can have.
    pub const COUNT_MAX: u16 = 64;

    /// All partitions of a cluster that has this many; at least one, and at most [`Partition::COUNT_MAX`].
    pub fn all(count: u16) -> impl DoubleEndedIterator<Item = Self> + ExactSizeIterator {
        let count = count.clamp(1, Self::COUNT_MAX);
        (0..count).map(move |index| Self { index, count })
    }

    /// The index of a topic's partition among `count`. It is the same in all servers of all versions.
    #[must_use]
    pub fn index_of(topic: &str, count: u16) -> u16 {
        crc16(topic.as_bytes()) % count.max(1)
    }

    /// From 0.
    #[must_use]
    pub fn index(self) -> u16 {
        self.index
    }

    /// How many the cluster has.
    #[must_use]
    pub fn count(self) -> u16 {
        self.count
    }

    /// Whether it also has everything that is of no topic: servers, users, producers, commands.
    #[must_use]
    pub fn is_first(self) -> bool {
        self.index == 0
    }

    /// The text between braces in the names of its keys. For the first one it is 0, as in a cluster without
    /// partitions; for the others the smallest number whose slot is in a part of the slots that no other has.
    pub(crate) fn tag(self) -> u16 {
        if self.is_first() {
            return 0;
        }
        let part_of = |tag: u16| {
            let slot = slot_of(tag.to_string().as_bytes());
            u32::from(slot) * u32::from(self.count) / u32::from(SLOTS)
        };
        // The parts in their order, without that of the first partition.
        let first = part_of(0);
        let part = match u32::from(self.index) {
            index if index <= first => index - 1,
            index => index,
        };
        (1..u16::MAX).find(|tag| part_of(*tag) == part).unwrap_or(0)
    }
}

impl fmt::Display for Partition {
    /// `partition 2 of 4`, counted from 0.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "partition {} of {}", self.index, self.count)
    }
}

/// The slot of a key, by the specification of Redis Cluster: the slot of the text between the first brace and
/// the next closing one, if there is any text; else of the whole key.
pub(crate) fn slot_of(key: &[u8]) -> u16 {
    let tag = memchr::memchr(b'{', key).and_then(|open| {
        let rest = &key[open + 1..];
        let tag = &rest[..memchr::memchr(b'}', rest)?];
        (!tag.is_empty()).then_some(tag)
    });
    crc16(tag.unwrap_or(key)) % SLOTS
}

/// CRC-16/XMODEM.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (crc << 8) ^ CRC_OF_BYTE[usize::from((crc >> 8) as u8 ^ byte)]
    })
}

/// The CRC of each byte.
const CRC_OF_BYTE: [u16; 256] = {
    let (mut table, mut byte) = ([0; 256], 0);
    while byte < 256 {
        let (mut crc, mut bit) = ((byte as u16) << 8, 0);
        while bit < 8 {
            crc = (crc << 1) ^ if crc & 0x8000 == 0 { 0 } else { 0x1021 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

/// The slots of a Redis Cluster.
const SLOTS: u16 = 16_384;

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(slot_of(b"123456789"), 12_739);
        assert_eq!(slot_of(b"foo"), 12_182);
        assert_eq!(slot_of(b"{user1000}.following"), slot_of(b"user1000"));
        assert_eq!(slot_of(b"foo{{bar}}zap"), slot_of(b"{bar"));
        assert_ne!(slot_of(b"foo{}{bar}"), slot_of(b"bar"));
    }

    #[test]
    fn each_partition_has_a_part_of_the_slots() {
        for count in 1..=Partition::COUNT_MAX {
            let part = |partition: Partition| {
                let slot = slot_of(partition.tag().to_string().as_bytes());
                u32::from(slot) * u32::from(count) / u32::from(SLOTS)
            };
            let parts: BTreeSet<_> = Partition::all(count).map(part).collect();
            assert_eq!(parts.len(), usize::from(count));
        }
    }

    #[test]
    fn names_and_places_never_change() {
        let tags = |count| {
            Partition::all(count)
                .map(Partition::tag)
                .collect::<Vec<_>>()
        };
        assert_eq!(tags(1), [0]);
        assert_eq!(tags(4), [0, 3, 2, 1]);
        assert_eq!(tags(8), [0, 3, 43, 2, 42, 1, 41, 40]);
        let places = ["a", "prices.tide", "chat.room.7", "ü"];
        let places = places.map(|topic| Partition::index_of(topic, 8));
        assert_eq!(places, [7, 3, 2, 0]);
    }

    #[test]
    fn topics_are_spread_evenly() {
        let mut topics = [0; 8];
        for number in 0..8_000 {
            topics[usize::from(Partition::index_of(&format!("room.{number}"), 8))] += 1;
        }
        assert!(
            topics.iter().all(|count| (900..1_100).contains(count)),
            "{topics:?}"
        );
    }
}

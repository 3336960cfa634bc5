//! The bytes of a publication in a stream and in a channel.
//!
//! ```text
//! version 1 | mark 16 | flags 1 | priority 1 | [published 8] | [expiry 8] | [excluded 20] | [count 2, also excluded]
//!     | t | [id] | [key] | payload
//! ```
//!
//! Numbers are big-endian. `t`, `id` and `key` have their length in two bytes before them; the payload is the rest.
//! The mark and the time of publication are at a fixed place, so that a script can read the one and the writer can fill
//! in both last.
//!
//! The highest bit of the excluded shard means that the payload is binary. A server that does not know binary
//! payloads reads such a record and compares the excluded connection with those of its own process, of which
//! none is this one: it delivers the base64 as a text. A record of a binary payload that excludes nobody has
//! an excluded connection that does not exist.
//!
//! Further excluded connections have 20 bytes each. A server that does not know them refuses such a record.

#[cfg(test)]
mod tests;

use crate::layout::NodeId;

/// The parts of a publication, as slices of its record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// Which publication of which node it is; no two records have the same one.
    pub mark: Mark,
    /// Snapshot or update.
    pub category: Category,
    /// The overload policy of lagging subscribers.
    pub priority: Priority,
    /// When it was published, in milliseconds since 1970 by the clock of Redis, if anybody needs to know.
    pub published_redis_ms: Option<u64>,
    /// Nobody receives it after this time, in milliseconds since 1970 by the clock of Redis.
    pub expires_redis_ms: Option<u64>,
    /// The connection that does not receive it.
    pub excluded: Option<Excluded>,
    /// Further ones, as [`Excluded::write`] makes them; only with a first.
    pub also_excluded: &'a [u8],
    /// The type of the message.
    pub t: &'a str,
    /// The idempotency key.
    pub id: Option<&'a str>,
    /// The conflation key.
    pub key: Option<&'a str>,
    /// A connection that lags does not receive it.
    pub volatile: bool,
    /// Whether the payload is binary: the base64 of the bytes in quotes.
    pub binary: bool,
    /// One JSON value. The record does not check it.
    pub payload: &'a [u8],
}

/// Which publication of which node a record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Mark {
    /// The run of the process that published it.
    pub node: NodeId,
    /// The number of its batch, of at most 48 bits.
    pub batch: u64,
    /// Its place in the batch, from 0.
    pub index: u16,
}

/// Whether a publication is a state or a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Category {
    /// `U`.
    #[default]
    Update,
    /// `S`.
    Snapshot,
}

/// The five priorities, as in the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, PartialOrd, Ord)]
pub enum Priority {
    /// 1.
    Background,
    /// 3.
    Low,
    /// 5.
    #[default]
    Normal,
    /// 8.
    High,
    /// 10.
    Critical,
}

/// A connection of some node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Excluded {
    /// The node.
    pub node: NodeId,
    /// The shard of the node, below 2^31.
    pub shard: u32,
    /// The connection of the shard.
    pub number: u64,
}

impl Excluded {
    /// Appends it in the form of a record.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.node.0.to_be_bytes());
        out.extend_from_slice(&self.shard.to_be_bytes());
        out.extend_from_slice(&self.number.to_be_bytes());
    }

    fn read(rest: &mut &[u8]) -> Result<Self, RecordError> {
        Ok(Self {
            node: NodeId(u64::from_be_bytes(take(rest)?)),
            shard: u32::from_be_bytes(take(rest)?),
            number: u64::from_be_bytes(take(rest)?),
        })
    }
}

/// Why bytes are no record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// A newer server wrote it.
    #[error("a record of version {0}; this server reads version 1, update it")]
    Version(u8),
    /// It ends too early.
    #[error("a record that ends too early")]
    Short,
    /// A flag or a number that version 1 does not have.
    #[error("a record with an unknown flag or priority")]
    Unknown,
    /// A name that is no text.
    #[error("a record with a name that is not UTF-8")]
    NotText,
    /// More bytes than a record may have.
    #[error("a record of {0} bytes; the most is {RECORD_BYTES_MAX}")]
    Long(usize),
    /// A name with more than 65,535 bytes.
    #[error("a name of a publication has more than 65,535 bytes")]
    LongName,
}

impl Mark {
    /// The 16 bytes of a mark in a record.
    #[must_use]
    pub fn to_bytes(self) -> [u8; MARK_BYTES] {
        let mut bytes = [0; MARK_BYTES];
        bytes[..8].copy_from_slice(&self.node.0.to_be_bytes());
        bytes[8..14].copy_from_slice(&self.batch.to_be_bytes()[2..]);
        bytes[14..].copy_from_slice(&self.index.to_be_bytes());
        bytes
    }

    /// The mark with these bytes.
    #[must_use]
    pub fn from_bytes(bytes: [u8; MARK_BYTES]) -> Self {
        let all = u128::from_be_bytes(bytes);
        Self {
            node: NodeId((all >> 64) as u64),
            batch: (all as u64) >> 16,
            index: all as u16,
        }
    }

    /// The mark of a record, without a look at the rest.
    #[must_use]
    pub fn of(record: &[u8]) -> Option<Self> {
        let bytes = record.get(1..)?.first_chunk::<MARK_BYTES>()?;
        (record[0] == VERSION).then(|| Self::from_bytes(*bytes))
    }

    /// Writes it into an encoded record.
    pub(crate) fn write(self, record: &mut [u8]) {
        if let Some(place) = record.get_mut(1..=MARK_BYTES) {
            place.copy_from_slice(&self.to_bytes());
        }
    }
}

impl<'a> Record<'a> {
    /// Appends the record. Errors if it or one of its names is too long; `out` is then as before.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), RecordError> {
        let names = [Some(self.t), self.id, self.key];
        let too_long = |name: &&str| u16::try_from(name.len()).is_err();
        if names.iter().flatten().any(too_long) {
            return Err(RecordError::LongName);
        }
        if self.also_excluded.len() > EXCLUDED_BYTES * usize::from(u16::MAX) {
            return Err(RecordError::Long(self.also_excluded.len()));
        }
        let start = out.len();
        out.push(VERSION);
        out.extend_from_slice(&self.mark.to_bytes());
        out.push(self.flags());
        out.push(self.priority as u8 | if self.volatile { VOLATILE } else { 0 });
        if let Some(at) = self.published_redis_ms {
            out.extend_from_slice(&at.to_be_bytes());
        }
        if let Some(at) = self.expires_redis_ms {
            out.extend_from_slice(&at.to_be_bytes());
        }
        if let Some(excluded) = self.excluded.or(self.binary.then_some(NOBODY)) {
            let shard = excluded.shard & !BINARY | if self.binary { BINARY } else { 0 };
            Excluded { shard, ..excluded }.write(out);
        }
        if !self.also_excluded.is_empty() {
            // Checked above.
            let count = self.also_excluded.len() / EXCLUDED_BYTES;
            out.extend_from_slice(&(count as u16).to_be_bytes());
            out.extend_from_slice(self.also_excluded);
        }
        for name in names.into_iter().flatten() {
            // Checked above.
            out.extend_from_slice(&(name.len() as u16).to_be_bytes());
            out.extend_from_slice(name.as_bytes());
        }
        out.extend_from_slice(self.payload);
        let bytes = out.len() - start;
        if bytes > RECORD_BYTES_MAX {
            out.truncate(start);
            return Err(RecordError::Long(bytes));
        }
        Ok(())
    }

    /// Reads a record.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, RecordError> {
        if bytes.len() > RECORD_BYTES_MAX {
            return Err(RecordError::Long(bytes.len()));
        }
        let mut rest = bytes;
        let [version] = take(&mut rest)?;
        if version != VERSION {
            return Err(RecordError::Version(version));
        }
        let mark = Mark::from_bytes(take(&mut rest)?);
        let [flags, priority] = take(&mut rest)?;
        if flags & !KNOWN_FLAGS != 0 {
            return Err(RecordError::Unknown);
        }
        let has = |flag| flags & flag != 0;
        let published_redis_ms = if has(PUBLISHED) {
            Some(u64::from_be_bytes(take(&mut rest)?))
        } else {
            None
        };
        let expires_redis_ms = if has(EXPIRES) {
            Some(u64::from_be_bytes(take(&mut rest)?))
        } else {
            None
        };
        let (excluded, binary) = if has(EXCLUDES) {
            excluded(&mut rest)?
        } else {
            (None, false)
        };
        let also_excluded = match (has(EXCLUDES), has(EXCLUDES_MORE)) {
            (_, false) => &[][..],
            (true, true) => also_excluded(&mut rest)?,
            (false, true) => return Err(RecordError::Unknown),
        };
        Ok(Self {
            mark,
            category: if has(SNAPSHOT) {
                Category::Snapshot
            } else {
                Category::Update
            },
            priority: *PRIORITIES
                .get(usize::from(priority & !VOLATILE))
                .ok_or(RecordError::Unknown)?,
            published_redis_ms,
            expires_redis_ms,
            excluded,
            also_excluded,
            t: name(&mut rest)?,
            id: if has(HAS_ID) {
                Some(name(&mut rest)?)
            } else {
                None
            },
            key: if has(HAS_KEY) {
                Some(name(&mut rest)?)
            } else {
                None
            },
            volatile: priority & VOLATILE != 0,
            binary,
            payload: rest,
        })
    }

    fn flags(&self) -> u8 {
        let flag = |flag, is_set| if is_set { flag } else { 0 };
        flag(SNAPSHOT, self.category == Category::Snapshot)
            | flag(EXPIRES, self.expires_redis_ms.is_some())
            | flag(EXCLUDES, self.excluded.is_some() || self.binary)
            | flag(HAS_ID, self.id.is_some())
            | flag(HAS_KEY, self.key.is_some())
            | flag(PUBLISHED, self.published_redis_ms.is_some())
            | flag(EXCLUDES_MORE, !self.also_excluded.is_empty())
    }

    /// All connections that do not receive it.
    pub fn all_excluded(&self) -> impl Iterator<Item = Excluded> {
        let more = self.also_excluded.chunks_exact(EXCLUDED_BYTES);
        let more = more.filter_map(|mut bytes| Excluded::read(&mut bytes).ok());
        self.excluded.into_iter().chain(more)
    }

    /// The time of publication of a record, without a look at the rest.
    #[must_use]
    pub fn published_redis_ms_of(record: &[u8]) -> Option<u64> {
        Mark::of(record)?;
        let has_time = record.get(FLAGS_AT)? & PUBLISHED != 0;
        let time = record.get(PUBLISHED_AT..)?.first_chunk::<8>()?;
        has_time.then(|| u64::from_be_bytes(*time))
    }

    /// Writes the time of publication into an encoded record that has one.
    pub(crate) fn write_published(record: &mut [u8], redis_ms: u64) {
        let has_time = record
            .get(FLAGS_AT)
            .is_some_and(|flags| flags & PUBLISHED != 0);
        if let (true, Some(time)) = (has_time, record.get_mut(PUBLISHED_AT..PUBLISHED_AT + 8)) {
            time.copy_from_slice(&redis_ms.to_be_bytes());
        }
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], RecordError> {
    let (first, others) = rest.split_first_chunk::<N>().ok_or(RecordError::Short)?;
    *rest = others;
    Ok(*first)
}

/// The excluded connection, if it is one, and whether the payload is binary.
fn excluded(rest: &mut &[u8]) -> Result<(Option<Excluded>, bool), RecordError> {
    let read = Excluded::read(rest)?;
    let binary = read.shard & BINARY != 0;
    let excluded = Excluded {
        shard: read.shard & !BINARY,
        ..read
    };
    Ok(((!binary || excluded != NOBODY).then_some(excluded), binary))
}

/// Further excluded connections, at least one.
fn also_excluded<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], RecordError> {
    let count = u16::from_be_bytes(take(rest)?);
    if count == 0 {
        return Err(RecordError::Unknown);
    }
    let (list, others) = rest
        .split_at_checked(usize::from(count) * EXCLUDED_BYTES)
        .ok_or(RecordError::Short)?;
    *rest = others;
    Ok(list)
}

fn name<'a>(rest: &mut &'a [u8]) -> Result<&'a str, RecordError> {
    let length = u16::from_be_bytes(take(rest)?);
    let (name, others) = rest
        .split_at_checked(usize::from(length))
        .ok_or(RecordError::Short)?;
    *rest = others;
    std::str::from_utf8(name).map_err(|_| RecordError::NotText)
}

/// The limit of a record, in bytes: a publication of 16 MiB with its names.
pub const RECORD_BYTES_MAX: usize = 17 * 1024 * 1024;

/// The size of a mark, in bytes.
pub const MARK_BYTES: usize = 16;

const VERSION: u8 = 1;

const SNAPSHOT: u8 = 1;
const EXPIRES: u8 = 2;
const EXCLUDES: u8 = 4;
const HAS_ID: u8 = 8;
const HAS_KEY: u8 = 16;
const PUBLISHED: u8 = 32;
const EXCLUDES_MORE: u8 = 64;
const KNOWN_FLAGS: u8 = 127;
/// In the byte of the priority. An older server refuses the record.
const VOLATILE: u8 = 128;

/// The size of an excluded connection.
const EXCLUDED_BYTES: usize = 20;

/// In the shard of the excluded connection: the payload is binary.
const BINARY: u32 = 1 << 31;

/// The excluded connection of a record that excludes nobody and has a binary payload.
const NOBODY: Excluded = Excluded {
    node: NodeId(0),
    shard: u32::MAX >> 1,
    number: 0,
};

/// The place of the flags.
const FLAGS_AT: usize = 1 + MARK_BYTES;

/// The place of the time of publication.
const PUBLISHED_AT: usize = FLAGS_AT + 2;

const PRIORITIES: [Priority; 5] = [
    Priority::Background,
    Priority::Low,
    Priority::Normal,
    Priority::High,
    Priority::Critical,
];

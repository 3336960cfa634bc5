//! A batch of publications.

use crate::layout::Position;
use crate::resp::{Value, argument, number_argument};
use crate::script::{Fence, Hashes, Script, UnknownReply};

/// The arguments of a batch.
#[derive(Debug)]
pub struct PublishCall<'a> {
    /// The keys of the fence and of the writer.
    pub fence_key: &'a [u8],
    /// The key of the writer.
    pub writer_key: &'a [u8],
    /// The result of the fence.
    pub fence: &'a Fence,
    /// The number of this connection among those of the node.
    pub generation: u64,
    /// The number of the batch.
    pub batch: u64,
    /// The last batch of the writer must have at least this number.
    pub after: u64,
    /// The writer may be unknown to Redis.
    pub may_begin: bool,
    /// How long ids are remembered.
    pub id_memory_ms: u64,
    /// The key of the queue groups.
    pub groups_key: &'a [u8],
    /// Publications that the work of a topic's queue groups may have.
    pub work_max: u64,
    /// The same in bytes of their records.
    pub work_bytes_max: u64,
    /// Full work drops the new publication, and not the oldest.
    pub work_drops_newest: bool,
    /// How long a stream is kept whose epoch is another than expected, in milliseconds; 0 is for ever.
    pub begun_ms: u64,
    /// What the names of channels begin with in place of those of keys, if it is something else.
    pub channels: &'a str,
    /// The publications.
    pub items: &'a [PublishItem<'a>],
}

/// One publication of a batch.
#[derive(Debug, Clone, Copy)]
pub struct PublishItem<'a> {
    /// The stream and channel of its topic.
    pub stream: &'a [u8],
    /// The key of its id.
    pub id_key: Option<&'a [u8]>,
    /// The epoch that the topic probably has, 0 if it is not known; `None` without history.
    pub expected_epoch: Option<u32>,
    /// How many publications the topic keeps.
    pub publications_max: u64,
    /// The record.
    pub record: &'a [u8],
    /// How long the stream is kept from now on, if that is to be set again.
    pub keep_ms: Option<u64>,
}

/// The result of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PublishReply {
    /// It was done, now or before; one place for each publication.
    Places(Vec<PlaceReply>),
    /// The node has a newer connection: nothing was done.
    Stale,
    /// It was done or given up before, and what became of it is no longer known.
    Forgotten,
    /// An earlier batch is missing: nothing was done.
    Gap,
    /// Redis does not know the writer: nothing was done that Redis knows of.
    Begin,
    /// Another process, or another least epoch: nothing was done.
    Fenced,
}

/// The result of a publication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlaceReply {
    /// Its place, `None` without history; and whether it is a duplicate of the one with this place.
    Placed(Option<Position>, bool),
    /// The key of its stream holds something else.
    Unusable,
}

impl PublishCall<'_> {
    /// Appends the command.
    pub fn write(&self, hashes: &Hashes, out: &mut Vec<u8>) {
        let stride = if self.items.iter().any(|item| item.id_key.is_some()) {
            2
        } else {
            1
        };
        let kept = self
            .items
            .iter()
            .filter(|item| item.keep_ms.is_some())
            .count();
        let keys = 3 + stride * self.items.len();
        let arguments = FIXED_ARGUMENTS + 3 * self.items.len() + 2 * kept;
        hashes.begin(Script::Publish, keys, arguments, out);
        argument(out, self.fence_key);
        argument(out, self.writer_key);
        argument(out, self.groups_key);
        for item in self.items {
            argument(out, item.stream);
            if stride == 2 {
                argument(out, item.id_key.unwrap_or(item.stream));
            }
        }
        self.fence.write(out);
        number_argument(out, self.generation);
        number_argument(out, self.batch);
        number_argument(out, self.after);
        argument(out, if self.may_begin { b"1" } else { b"0" });
        number_argument(out, self.items.len() as u64);
        number_argument(out, stride as u64);
        number_argument(out, self.id_memory_ms);
        number_argument(out, kept as u64);
        number_argument(out, self.work_max);
        number_argument(out, self.work_bytes_max);
        number_argument(out, self.begun_ms);
        number_argument(out, u64::from(self.work_drops_newest));
        argument(out, self.channels.as_bytes());
        for item in self.items {
            match item.expected_epoch {
                Some(epoch) => {
                    let mut room = itoa::Buffer::new();
                    let epoch = room.format(epoch);
                    let id = [epoch.as_bytes(), b"-*"].concat();
                    argument(out, &id);
                }
                None => argument(out, b""),
            }
            number_argument(out, item.publications_max);
            argument(out, item.record);
        }
        for (index, item) in self.items.iter().enumerate() {
            if let Some(keep_ms) = item.keep_ms {
                // Indexes of Lua begin with 1.
                number_argument(out, (4 + stride * index) as u64);
                number_argument(out, keep_ms);
            }
        }
    }
}

impl PublishReply {
    /// Reads the reply to a batch of `items` publications.
    pub fn read(value: Value<'_>, items: usize) -> Result<Self, UnknownReply> {
        Ok(match value.text().ok_or(UnknownReply)? {
            b"stale" => Self::Stale,
            b"forgotten" => Self::Forgotten,
            b"gap" => Self::Gap,
            b"begin" => Self::Begin,
            b"fenced" => Self::Fenced,
            places => {
                let places = places.split(|byte| *byte == b' ').map(place);
                let places = places.collect::<Result<Vec<_>, _>>()?;
                if places.len() != items {
                    return Err(UnknownReply);
                }
                Self::Places(places)
            }
        })
    }
}

fn place(text: &[u8]) -> Result<PlaceReply, UnknownReply> {
    if text == b"!" {
        return Ok(PlaceReply::Unusable);
    }
    let (is_duplicate, text) = match text {
        [b'=', text @ ..] => (true, text),
        text => (false, text),
    };
    let position = match text {
        b"-" => None,
        text => Some(Position::parse(text).ok_or(UnknownReply)?),
    };
    Ok(PlaceReply::Placed(position, is_duplicate))
}

/// The greatest number that a batch may have: what the mark of a record holds.
pub const BATCH_MAX: u64 = (1 << 48) - 1;

const FIXED_ARGUMENTS: usize = 15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_read_and_others_refused() {
        let read = |text: &str, items| PublishReply::read(Value::Text(text.as_bytes()), items);
        let position = |offset| Some(Position { epoch: 5, offset });
        assert_eq!(
            read("5-1 =5-2 - =- !", 5),
            Ok(PublishReply::Places(vec![
                PlaceReply::Placed(position(1), false),
                PlaceReply::Placed(position(2), true),
                PlaceReply::Placed(None, false),
                PlaceReply::Placed(None, true),
                PlaceReply::Unusable,
            ]))
        );
        assert_eq!(read("gap", 1), Ok(PublishReply::Gap));
        for (text, items) in [("5-1", 2), ("", 1), ("5-1 ", 1), ("5", 1), ("x-1", 1)] {
            assert_eq!(read(text, items), Err(UnknownReply), "{text}");
        }
        assert_eq!(PublishReply::read(Value::Null, 1), Err(UnknownReply));
    }
}

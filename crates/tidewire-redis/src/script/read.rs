//! Scripts that read the heads and the histories of topics.

use crate::layout::Position;
use crate::record::{MARK_BYTES, Mark};
use crate::resp::{Value, argument, number_argument};
use crate::script::{Fence, Fenced, Hashes, Script, UnknownReply, is_fenced, text};

/// Asks where topics stand.
#[derive(Debug)]
pub struct TailsCall<'a> {
    /// The key of the fence.
    pub fence_key: &'a [u8],
    /// The result of the fence.
    pub fence: &'a Fence,
    /// Streams, and for how long each is kept from now on; 0 is for ever. At most [`TAILS_MAX`].
    pub streams: &'a [(&'a [u8], u64)],
}

/// Where a topic stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TailReply {
    /// Its newest position, and the mark of its newest record if that is still kept.
    Stands(Position, Option<Mark>),
    /// The key of its stream holds something else.
    Unusable,
}

impl TailsCall<'_> {
    /// Appends the command.
    pub fn write(&self, hashes: &Hashes, out: &mut Vec<u8>) {
        hashes.begin(
            Script::Tails,
            1 + self.streams.len(),
            2 + self.streams.len(),
            out,
        );
        argument(out, self.fence_key);
        for (stream, _) in self.streams {
            argument(out, stream);
        }
        self.fence.write(out);
        for (_, keep_ms) in self.streams {
            number_argument(out, *keep_ms);
        }
    }
}

impl TailReply {
    /// Reads the reply for `topics` topics.
    pub fn read(value: Value<'_>, topics: usize) -> Result<Fenced<Vec<Self>>, UnknownReply> {
        if is_fenced(value) {
            return Ok(Fenced::Fenced);
        }
        let mut items = value.items();
        if items.remaining() != 2 * topics {
            return Err(UnknownReply);
        }
        let mut tails = Vec::with_capacity(topics);
        for _ in 0..topics {
            let (id, mark) = (text(items.next())?, text(items.next())?);
            let mark = <[u8; MARK_BYTES]>::try_from(mark)
                .ok()
                .map(Mark::from_bytes);
            tails.push(match id {
                b"!" => Self::Unusable,
                id => Self::Stands(Position::parse(id).ok_or(UnknownReply)?, mark),
            });
        }
        Ok(Fenced::Done(tails))
    }
}

/// Reads a part of a topic.
#[derive(Debug)]
pub struct PageCall<'a> {
    /// The key of the fence.
    pub fence_key: &'a [u8],
    /// The result of the fence.
    pub fence: &'a Fence,
    /// The stream of the topic.
    pub stream: &'a [u8],
    /// The part that is read.
    pub range: PageRange,
    /// At most N.
    pub limit: usize,
    /// Begins an epoch if there is none, and keeps the stream for N milliseconds; 0 is for ever.
    pub creates_ms: Option<u64>,
}

/// Which part of a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageRange {
    /// From this position, itself included, to the end of its epoch.
    From(Position),
    /// After this position, to the end of its epoch.
    After(Position),
    /// From the oldest.
    All,
    /// From the newest back to this position, itself not included; or to the oldest.
    Newest(Option<Position>),
}

/// The content that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PageReply<'a> {
    /// Where the topic stands, `None` if there is no such topic; positions and records.
    Entries(Option<Position>, Vec<(Position, &'a [u8])>),
    /// The key of its stream holds something else.
    Unusable,
}

impl PageCall<'_> {
    /// Appends the command.
    pub fn write(&self, hashes: &Hashes, out: &mut Vec<u8>) {
        hashes.begin(Script::Page, 2, 8, out);
        argument(out, self.fence_key);
        argument(out, self.stream);
        self.fence.write(out);
        let end = |position: Position| format!("{}-{}", position.epoch, u64::MAX);
        let (command, first, last) = match self.range {
            PageRange::From(position) => ("XRANGE", position.to_string(), end(position)),
            PageRange::After(position) => ("XRANGE", format!("({position}"), end(position)),
            PageRange::All => ("XRANGE", "-".to_owned(), "+".to_owned()),
            PageRange::Newest(None) => ("XREVRANGE", "+".to_owned(), "-".to_owned()),
            PageRange::Newest(Some(position)) => {
                ("XREVRANGE", "+".to_owned(), format!("({position}"))
            }
        };
        for text in [command, &first, &last] {
            argument(out, text.as_bytes());
        }
        number_argument(out, self.limit as u64);
        argument(
            out,
            if self.creates_ms.is_some() {
                b"1"
            } else {
                b"0"
            },
        );
        number_argument(out, self.creates_ms.unwrap_or(0));
    }
}

impl<'a> PageReply<'a> {
    /// Reads the reply.
    pub fn read(value: Value<'a>) -> Result<Fenced<Self>, UnknownReply> {
        if is_fenced(value) {
            return Ok(Fenced::Fenced);
        }
        let mut items = value.items();
        let head = match text(items.next())? {
            b"!" => return Ok(Fenced::Done(Self::Unusable)),
            b"" => None,
            id => Some(Position::parse(id).ok_or(UnknownReply)?),
        };
        let entries = items.next().ok_or(UnknownReply)?.items().map(entry);
        let entries = entries.collect::<Result<Vec<_>, _>>()?;
        Ok(Fenced::Done(Self::Entries(head, entries)))
    }
}

/// `[id, [d, record]]`.
fn entry(value: Value<'_>) -> Result<(Position, &[u8]), UnknownReply> {
    let mut parts = value.items();
    let position = Position::parse(text(parts.next())?).ok_or(UnknownReply)?;
    let record = parts.next().and_then(|fields| fields.items().nth(1));
    Ok((position, text(record)?))
}

/// Streams of one [`TailsCall`].
pub const TAILS_MAX: usize = 512;

//! The scripts but for `publish`, as their Lua texts do them.

use crate::redis_model::Redis;
use crate::redis_model::store::Stream;
use tidewire_redis::layout::{Position, number};
use tidewire_redis::resp::reply;
use tidewire_redis::script::Script;

impl Redis {
    /// Does a script and writes its reply; `None` if its arguments are not those of the script.
    pub(super) fn run(
        &mut self,
        script: Script,
        keys: &[&[u8]],
        arguments: &[&[u8]],
        out: &mut Vec<u8>,
    ) -> Option<()> {
        match script {
            Script::Publish => {
                let text = self.publish(keys, arguments)?;
                reply::text(out, text.as_bytes());
                Some(())
            }
            Script::Fence => self.fence(keys, arguments, out),
            Script::Tails => self.tails(keys, arguments, out),
            Script::Page => self.page(keys, arguments, out),
            Script::Renew => self.renew(keys, arguments, out),
            Script::Lease => self.lease(keys, arguments, out),
            Script::Presence => self.presence(keys, arguments, out),
            Script::Roster => self.roster(keys, out),
            Script::Sweep => self.sweep(keys, arguments, out),
            Script::Nodes => self.nodes(keys, arguments, out),
            Script::Join => self.join(keys, arguments, out),
            Script::Work => self.work(keys, arguments, out),
            Script::Leave => self.leave(keys, arguments, out),
            Script::Open => self.open_producer(keys, arguments, out),
            Script::Keep => self.keep_producers(keys, arguments, out),
            Script::Agree => self.agree(keys, arguments, out),
        }
    }

    pub(super) fn is_fenced(&self, key: &[u8], run: &[u8], least: &[u8]) -> bool {
        self.store.field(key, "run") == Some(run) && self.store.field(key, "least") == Some(least)
    }

    /// Begins an epoch; the position of its beginning.
    pub(super) fn begin_epoch(&mut self, key: &[u8], least: u32, greater_than: u32) -> Position {
        let epoch = least
            .max(self.store.epoch())
            .max(greater_than.saturating_add(1));
        self.store.append(key, epoch, 0, None)
    }

    /// The newest position of a stream, which is new if the stream is missing or from before the fence.
    pub(super) fn valid_position(
        &mut self,
        key: &[u8],
        least: u32,
        greater_than: u32,
    ) -> Result<Position, ()> {
        let last = self.store.stream(key)?.map(|stream| stream.last);
        match last {
            Some(last) if last.epoch >= least => Ok(last),
            last => {
                let before = last.map_or(0, |last| last.epoch).max(greater_than);
                Ok(self.begin_epoch(key, least, before))
            }
        }
    }

    /// Has a stream end; one that nobody has published to ends sooner.
    fn keep_for(&mut self, key: &[u8], keep_ms: u64, is_unused: bool) {
        let keep_ms = if is_unused {
            keep_ms.min(UNUSED_MS)
        } else {
            keep_ms
        };
        if keep_ms != 0 {
            self.store.keep(key, keep_ms);
        }
    }

    pub(super) fn time(&self, out: &mut Vec<u8>) {
        let unix_ms = self.store.unix_ms;
        reply::text(out, (unix_ms / 1_000).to_string().as_bytes());
        reply::text(out, (unix_ms % 1_000 * 1_000).to_string().as_bytes());
    }

    fn fence(&mut self, keys: &[&[u8]], arguments: &[&[u8]], out: &mut Vec<u8>) -> Option<()> {
        let ([fence, writer], [run, durable, known, generation, from @ ..]) = (keys, arguments)
        else {
            return None;
        };
        let stored = self.store.field(fence, "run");
        let was_durable = self.store.field(fence, "durable").map(<[u8]>::to_vec);
        let is_same = stored == Some(*run);
        let is_kept = was_durable.as_deref() == Some(b"1") && **durable == *b"1";
        let is_handed_over = stored.is_some_and(|run| from.contains(&run));
        let stays = is_same || is_handed_over || (stored.is_some() && is_kept);
        let least = self
            .store
            .field(fence, "least")
            .and_then(number)
            .unwrap_or(0);
        let least = if stays {
            least
        } else {
            (u64::from(self.store.epoch()) + 1)
                .max(number(known)? + 1)
                .max(least + 1)
        };
        let text = least.to_string();
        let durable: &[u8] = if is_same && was_durable.as_deref() == Some(b"0") {
            b"0"
        } else {
            durable
        };
        if !is_same || was_durable.as_deref() != Some(durable) {
            self.store.set_field(fence, "run", run);
            self.store.set_field(fence, "durable", durable);
            self.store.set_field(fence, "least", text.as_bytes());
        }
        self.store.set_field(writer, "c", generation);
        self.store.keep(writer, WRITER_MS);
        reply::array(out, 4);
        reply::text(out, text.as_bytes());
        reply::integer(out, i64::from(stays));
        self.time(out);
        Some(())
    }

    fn tails(&mut self, keys: &[&[u8]], arguments: &[&[u8]], out: &mut Vec<u8>) -> Option<()> {
        let ([fence, streams @ ..], [run, least, keeps @ ..]) = (keys, arguments) else {
            return None;
        };
        if !self.is_fenced(fence, run, least) {
            reply::text(out, b"fenced");
            return Some(());
        }
        let least = u32::try_from(number(least)?).ok()?;
        reply::array(out, 2 * streams.len());
        for (key, keep) in streams.iter().zip(keeps) {
            let stream = self.store.stream(key);
            let newest =
                stream.map(|stream| stream.and_then(|stream| stream.entries.back().cloned()));
            let (id, mark) = match newest {
                Err(()) => ("!".to_owned(), Vec::new()),
                Ok(Some((position, record))) if position.epoch >= least => {
                    let end = record.len().min(17);
                    (
                        position.to_string(),
                        record.get(1..end).unwrap_or_default().to_vec(),
                    )
                }
                Ok(_) => (
                    self.valid_position(key, least, 0).ok()?.to_string(),
                    Vec::new(),
                ),
            };
            if id != "!" {
                self.keep_for(key, number(keep)?, mark.is_empty() && id.ends_with("-0"));
            }
            reply::text(out, id.as_bytes());
            reply::text(out, &mark);
        }
        Some(())
    }

    fn page(&mut self, keys: &[&[u8]], arguments: &[&[u8]], out: &mut Vec<u8>) -> Option<()> {
        let ([fence, key], [run, least, command, first, last, count, creates, keep]) =
            (keys, arguments)
        else {
            return None;
        };
        if !self.is_fenced(fence, run, least) {
            reply::text(out, b"fenced");
            return Some(());
        }
        let least = u32::try_from(number(least)?).ok()?;
        reply::array(out, 2);
        let stream = match self.store.stream(key) {
            Err(()) => {
                reply::text(out, b"!");
                reply::array(out, 0);
                return Some(());
            }
            Ok(stream) => stream.cloned(),
        };
        match stream {
            Some(stream) if stream.last.epoch >= least => {
                reply::text(out, stream.last.to_string().as_bytes());
                let is_reversed = **command == *b"XREVRANGE";
                let (from, to) = if is_reversed {
                    (last, first)
                } else {
                    (first, last)
                };
                let count = usize::try_from(number(count)?).ok()?;
                write_entries(&stream, (from, to), is_reversed, count, out);
            }
            stream => {
                let place = if **creates == *b"1" {
                    let before = stream.map_or(0, |stream| stream.last.epoch);
                    let place = self.begin_epoch(key, least, before);
                    self.keep_for(key, number(keep)?, true);
                    place.to_string()
                } else {
                    String::new()
                };
                reply::text(out, place.as_bytes());
                reply::array(out, 0);
            }
        }
        Some(())
    }

    fn renew(&mut self, keys: &[&[u8]], arguments: &[&[u8]], out: &mut Vec<u8>) -> Option<()> {
        let ([fence, key], [run, least, only, greater_than, channel]) = (keys, arguments) else {
            return None;
        };
        if !self.is_fenced(fence, run, least) {
            reply::text(out, b"fenced");
            return Some(());
        }
        let least = u32::try_from(number(least)?).ok()?;
        let present = self
            .store
            .stream(key)
            .ok()
            .flatten()
            .map(|stream| stream.last);
        reply::array(out, 2);
        let Some(present) = present else {
            reply::text(out, b"");
            reply::integer(out, 0);
            return Some(());
        };
        let is_other = match only.is_empty() {
            true => present.offset == 0,
            false => number(only)? != u64::from(present.epoch),
        };
        if is_other {
            reply::text(out, present.to_string().as_bytes());
            reply::integer(out, 0);
            return Some(());
        }
        let greater_than = u32::try_from(number(greater_than)?)
            .ok()?
            .max(present.epoch);
        let place = self.begin_epoch(key, least, greater_than).to_string();
        self.tell(channel, place.as_bytes());
        reply::text(out, place.as_bytes());
        reply::integer(out, 1);
        Some(())
    }
}

fn write_entries(
    stream: &Stream,
    (from, to): (&[u8], &[u8]),
    is_reversed: bool,
    count: usize,
    out: &mut Vec<u8>,
) {
    let position = |text: &[u8]| Position::parse(text.strip_prefix(b"(").unwrap_or(text));
    let is_after = |at: Position| match from {
        b"-" => true,
        [b'(', ..] => position(from).is_some_and(|from| at > from),
        _ => position(from).is_some_and(|from| at >= from),
    };
    let is_before = |at: Position| to == b"+" || position(to).is_some_and(|to| at <= to);
    let mut entries: Vec<_> = stream
        .entries
        .iter()
        .filter(|(at, _)| is_after(*at) && is_before(*at))
        .collect();
    if is_reversed {
        entries.reverse();
    }
    // As the script does it: by sixteens, until there are 4 MiB.
    let (mut given, mut bytes) = (0, 0);
    while given < entries.len().min(count) && bytes < PAGE_BYTES_MAX {
        let end = (given + 16).min(entries.len()).min(count);
        bytes += entries[given..end]
            .iter()
            .map(|(_, record)| record.len())
            .sum::<usize>();
        given = end;
    }
    reply::array(out, given);
    for (at, record) in &entries[..given] {
        reply::array(out, 2);
        reply::text(out, at.to_string().as_bytes());
        reply::array(out, 2);
        reply::text(out, b"d");
        reply::text(out, record);
    }
}

/// How long Redis remembers a writer.
pub(super) const WRITER_MS: u64 = 3_600_000;

/// How long a stream is kept that nobody has published to in its epoch.
const UNUSED_MS: u64 = 600_000;

const PAGE_BYTES_MAX: usize = 4 * 1024 * 1024;

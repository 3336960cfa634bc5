//! The script `publish`.

use crate::redis_model::Redis;
use crate::redis_model::groups::WorkLimits;
use crate::redis_model::scripts::WRITER_MS;
use crate::redis_model::store::Stored;
use tidewire_redis::layout::number;

/// The head of the arguments.
struct Head<'a> {
    run: &'a [u8],
    least: &'a [u8],
    generation: &'a [u8],
    batch: &'a [u8],
    after: u64,
    may_begin: bool,
    count: usize,
    stride: usize,
    id_ms: u64,
    kept: usize,
    groups: &'a [u8],
    work_max: u64,
    work_bytes_max: u64,
    begun_ms: u64,
    drops_newest: bool,
    /// What the names of channels begin with in place of the lane.
    channels: &'a [u8],
}

impl<'a> Head<'a> {
    fn of(arguments: &[&'a [u8]], groups: &'a [u8]) -> Option<Self> {
        let [
            run,
            least,
            generation,
            batch,
            after,
            may_begin,
            count,
            stride,
            id_ms,
            kept,
            work_max,
            work_bytes_max,
            begun_ms,
            drops_newest,
            channels,
        ] = *arguments
        else {
            return None;
        };
        let size = |text| usize::try_from(number(text)?).ok();
        Some(Self {
            run,
            least,
            generation,
            batch,
            after: number(after)?,
            may_begin: may_begin == b"1",
            count: size(count)?,
            stride: size(stride)?,
            id_ms: number(id_ms)?,
            kept: size(kept)?,
            groups,
            work_max: number(work_max)?,
            work_bytes_max: number(work_bytes_max)?,
            begun_ms: number(begun_ms)?,
            drops_newest: drops_newest == b"1",
            channels,
        })
    }

    /// Where the last four replies are.
    fn slot(&self) -> Option<String> {
        Some(format!("r{}", number(self.batch)? % 4))
    }
}

impl Redis {
    pub(super) fn publish(&mut self, keys: &[&[u8]], arguments: &[&[u8]]) -> Option<String> {
        let (head, items) = arguments.split_at_checked(15)?;
        let ([fence, writer, groups], streams) = keys.split_at_checked(3)? else {
            return None;
        };
        let head = Head::of(head, groups)?;
        if let Some(answer) = self.writer_objects(writer, &head)? {
            return Some(answer);
        }
        if !self.is_fenced(fence, head.run, head.least) {
            return Some("fenced".to_owned());
        }
        self.store.set_field(writer, "n", head.batch);
        self.store.set_field(writer, "c", head.generation);
        let mut places = Vec::new();
        for index in 0..head.count {
            let stream = *streams.get(index * head.stride)?;
            let id_key = streams
                .get(index * head.stride + 1)
                .filter(|_| head.stride == 2);
            let id_key = id_key.copied().filter(|key| *key != stream);
            let item = items.get(3 * index..3 * index + 3)?;
            places.push(self.publish_one(stream, id_key, item, &head)?);
        }
        for index in 0..head.kept {
            let at = 3 * head.count + 2 * index;
            // Indexes of Lua begin with 1, and the first three keys are others.
            let key = usize::try_from(number(items.get(at)?)?)
                .ok()?
                .checked_sub(4)?;
            self.store
                .keep(streams.get(key)?, number(items.get(at + 1)?)?);
        }
        let reply = places.join(" ");
        let stored = [head.batch, b" ", reply.as_bytes()].concat();
        self.store.set_field(writer, &head.slot()?, &stored);
        self.store.keep(writer, WRITER_MS);
        Some(reply)
    }

    /// The answer of the writer's memory in place of the script.
    fn writer_objects(&self, writer: &[u8], head: &Head<'_>) -> Option<Option<String>> {
        let field = |name: &str| self.store.field(writer, name);
        if field("c").and_then(number).unwrap_or(0) > number(head.generation)? {
            return Some(Some("stale".to_owned()));
        }
        let Some(last) = field("n").and_then(number) else {
            return Some((!head.may_begin).then(|| "begin".to_owned()));
        };
        if last >= number(head.batch)? {
            let stored = field(&head.slot()?).and_then(|stored| {
                let text = stored.strip_prefix(head.batch)?.strip_prefix(b" ")?;
                Some(String::from_utf8_lossy(text).into_owned())
            });
            return Some(Some(stored.unwrap_or_else(|| "forgotten".to_owned())));
        }
        Some((last < head.after).then(|| "gap".to_owned()))
    }

    fn publish_one(
        &mut self,
        stream: &[u8],
        id_key: Option<&[u8]>,
        item: &[&[u8]],
        head: &Head<'_>,
    ) -> Option<String> {
        let [id, most, record] = *item else {
            return None;
        };
        if let Some(place) = id_key.and_then(|key| self.store.text(key)) {
            return Some(format!("={}", String::from_utf8_lossy(place)));
        }
        let place = if id.is_empty() {
            "-".to_owned()
        } else {
            let expected = u32::try_from(number(id.strip_suffix(b"-*")?)?).ok()?;
            let least = u32::try_from(number(head.least)?).ok()?;
            let most = usize::try_from(number(most)?).ok()?;
            let last = self
                .store
                .stream(stream)
                .ok()
                .flatten()
                .map(|stream| stream.last);
            let epoch = match last {
                Some(last) if expected >= last.epoch => Ok(expected),
                _ => self
                    .valid_position(stream, least, expected)
                    .map(|position| position.epoch),
            };
            let Ok(epoch) = epoch else {
                return Some("!".to_owned());
            };
            let place = self.store.append(stream, epoch, most, Some(record));
            if head.begun_ms != 0 && last.is_none_or(|last| expected < last.epoch) {
                self.store.keep(stream, head.begun_ms);
            }
            place.to_string()
        };
        if let Some(topic) = stream.get(head.groups.len() + 1..) {
            let least = u32::try_from(number(head.least)?).ok()?;
            let limits = WorkLimits {
                most: head.work_max,
                bytes_max: head.work_bytes_max,
                drops_newest: head.drops_newest,
            };
            self.add_work(head.groups, topic, (least, &place), record, limits);
        }
        let message = [place.as_bytes(), b" ", record].concat();
        if head.channels.is_empty() {
            self.tell(stream, &message);
        } else {
            let rest = stream.get(head.groups.len() - 1..)?;
            self.tell(&[head.channels, rest].concat(), &message);
        }
        if let Some(key) = id_key {
            let until_ms = self.store.unix_ms + head.id_ms;
            self.store.set(
                key,
                Stored::Text(place.clone().into_bytes()),
                Some(until_ms),
            );
        }
        Some(place)
    }
}

//! The scripts about queue groups.

use crate::redis_model::Redis;
use crate::redis_model::store::Stored;
use crate::redis_model::work::{Entry, WorkGroup, WorkStream};
use tidewire_redis::layout::{Position, number};
use tidewire_redis::resp::reply;

fn stream_key(groups: &[u8], topic: &[u8]) -> Vec<u8> {
    [groups, b":", topic].concat()
}

fn own_name(topic: &[u8], group: &[u8]) -> Vec<u8> {
    let length = topic.len().to_string();
    [length.as_bytes(), b":", topic, group].concat()
}

fn split_own(own: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let colon = own.iter().position(|byte| *byte == b':')?;
    let length = usize::try_from(number(&own[..colon])?).ok()?;
    let (topic, group) = own[colon + 1..].split_at_checked(length)?;
    Some((topic.to_vec(), group.to_vec()))
}

fn total_field(topic: &[u8]) -> Vec<u8> {
    [b"t", topic].concat()
}

fn lost_field(topic: &[u8], group: &[u8]) -> Vec<u8> {
    [b"l".as_slice(), &own_name(topic, group)].concat()
}

/// What the work of a topic may have.
#[derive(Debug, Clone, Copy)]
pub(super) struct WorkLimits {
    pub(super) most: u64,
    pub(super) bytes_max: u64,
    pub(super) drops_newest: bool,
}

impl Redis {
    fn work_stream(&mut self, key: &[u8]) -> Option<&mut WorkStream> {
        self.store.get(key)?;
        match self
            .store
            .entry(key, || Stored::Work(WorkStream::default()))
        {
            Stored::Work(stream) => Some(stream),
            _ => None,
        }
    }

    /// The effect of `add_work`.
    pub(super) fn add_work(
        &mut self,
        groups: &[u8],
        topic: &[u8],
        (least, place): (u32, &str),
        record: &[u8],
        limits: WorkLimits,
    ) {
        let field = total_field(topic);
        let Some(before) = self.store.value(groups, &field).and_then(number) else {
            return;
        };
        let total = before + record.len() as u64;
        let Some(stream) = self.work_stream(&stream_key(groups, topic)) else {
            return;
        };
        let least = least.max(stream.last.epoch);
        let is_next = stream.last.epoch == least;
        stream.last = Position {
            epoch: least,
            offset: if is_next { stream.last.offset + 1 } else { 0 },
        };
        let first = stream.entries.front();
        let is_full = first.is_some_and(|first| {
            stream.entries.len() as u64 >= limits.most || total - first.before > limits.bytes_max
        });
        if limits.drops_newest && is_full {
            return;
        }
        stream.entries.push_back(Entry {
            id: stream.last,
            place: place.as_bytes().to_vec(),
            before,
            record: record.to_vec(),
        });
        while stream.entries.len() as u64 > limits.most {
            stream.entries.pop_front();
        }
        let bytes_max = limits.bytes_max;
        let step = (bytes_max / 16).max(1);
        if total / step != before / step {
            while stream.entries.len() > 1
                && stream
                    .entries
                    .front()
                    .is_some_and(|entry| total - entry.before > bytes_max)
            {
                stream.entries.pop_front();
            }
        }
        self.store
            .put(groups, &field, Some(total.to_string().as_bytes()));
    }

    pub(super) fn join(
        &mut self,
        keys: &[&[u8]],
        arguments: &[&[u8]],
        out: &mut Vec<u8>,
    ) -> Option<()> {
        let (
            [lease, writer, fence, groups, idle, own],
            [node, generation, run, least, topic, group, most],
        ) = (keys, arguments)
        else {
            return None;
        };
        let stream = stream_key(groups, topic);
        let is_stale = self.is_stale(writer, generation)?;
        let refusal: Option<&[u8]> = if self.store.text(lease).is_none() {
            Some(b"lost")
        } else if is_stale {
            Some(b"stale")
        } else if !self.is_fenced(fence, run, least) {
            Some(b"fenced")
        } else if !matches!(self.store.get(&stream), None | Some(Stored::Work(_))) {
            Some(b"wrong")
        } else {
            None
        };
        if let Some(refusal) = refusal {
            reply::text(out, refusal);
            return Some(());
        }
        let least = u32::try_from(number(least)?).ok()?;
        let begin = || {
            let last = Position {
                epoch: least,
                offset: 0,
            };
            Stored::Work(WorkStream {
                last,
                ..WorkStream::default()
            })
        };
        let Stored::Work(work) = self.store.entry(&stream, begin) else {
            return None;
        };
        let (is_known, count) = (work.groups.contains_key(*group), work.groups.len() as u64);
        if !is_known && count >= number(most)? {
            reply::text(out, b"full");
            return Some(());
        }
        let last = work.last;
        let begin = || WorkGroup {
            last,
            ..WorkGroup::default()
        };
        let state = work.groups.entry(group.to_vec()).or_insert_with(begin);
        state.nodes.insert(node.to_vec());
        if !is_known {
            self.store.put(groups, &lost_field(topic, group), None);
        }
        let field = total_field(topic);
        if self.store.value(groups, &field).is_none() {
            self.store.put(groups, &field, Some(b"0"));
        }
        let name = own_name(topic, group);
        self.store.put(own, &name, Some(b""));
        self.store.put(idle, &name, None);
        reply::text(out, if is_known { b"joined" } else { b"new" });
        Some(())
    }

    fn is_stale(&self, writer: &[u8], generation: &[u8]) -> Option<bool> {
        let known = self.store.field(writer, "c").and_then(number);
        Some(known.unwrap_or(0) > number(generation)?)
    }

    /// The effect of `hand_back`.
    fn hand_back(&mut self, groups: &[u8], topic: &[u8], group: &[u8], ids: &[Position]) {
        let Some(stream) = self.work_stream(&stream_key(groups, topic)) else {
            return;
        };
        let lost = stream.claim(group, b"_", ids);
        if lost > 0 {
            let field = lost_field(topic, group);
            let before = self.store.value(groups, &field).and_then(number);
            let total = before.unwrap_or(0) + lost;
            self.store
                .put(groups, &field, Some(total.to_string().as_bytes()));
        }
    }

    /// The effect of `leave_group`.
    pub(super) fn leave_group(
        &mut self,
        (groups, idle, own): (&[u8], &[u8], &[u8]),
        channel: &[u8],
        node: &[u8],
        name: &[u8],
    ) -> Option<bool> {
        let (topic, group) = split_own(name)?;
        let key = stream_key(groups, &topic);
        let found = self
            .work_stream(&key)
            .and_then(|stream| stream.groups.get(&group));
        if let Some(state) = found {
            let of_node = state.pending.iter().filter(|(_, who)| **who == *node);
            let ids: Vec<_> = of_node.map(|(id, _)| *id).take(100).collect();
            self.hand_back(groups, &topic, &group, &ids);
            if !ids.is_empty() {
                self.tell(channel, b"g");
            }
            if ids.len() == 100 {
                return Some(false);
            }
            let stream = self.work_stream(&key)?;
            let state = stream.groups.get_mut(&group)?;
            state.nodes.remove(node);
            if state.nodes.is_empty() {
                let end_ms = self.store.unix_ms / 1_000 * 1_000 + 60_000;
                self.store
                    .put(idle, name, Some(end_ms.to_string().as_bytes()));
            }
        }
        self.store.put(own, name, None);
        Some(true)
    }

    pub(super) fn leave(
        &mut self,
        keys: &[&[u8]],
        arguments: &[&[u8]],
        out: &mut Vec<u8>,
    ) -> Option<()> {
        let ([writer, groups, idle, own, channel], [node, generation, topic, group]) =
            (keys, arguments)
        else {
            return None;
        };
        if self.is_stale(writer, generation)? {
            reply::text(out, b"stale");
            return Some(());
        }
        let name = own_name(topic, group);
        let is_out = self.leave_group((groups, idle, own), channel, node, &name)?;
        reply::text(out, if is_out { b"left" } else { b"more" });
        Some(())
    }

    pub(super) fn work(
        &mut self,
        keys: &[&[u8]],
        arguments: &[&[u8]],
        out: &mut Vec<u8>,
    ) -> Option<()> {
        let (
            [writer, groups, own, channel],
            [node, generation, topic, group, count, done, ids @ ..],
        ) = (keys, arguments)
        else {
            return None;
        };
        if self.is_stale(writer, generation)? {
            reply::text(out, b"stale");
            return Some(());
        }
        let key = stream_key(groups, topic);
        let is_in = self.store.value(own, &own_name(topic, group)).is_some();
        let stream = self.work_stream(&key);
        let state = stream.and_then(|stream| stream.groups.get_mut(*group));
        let Some(state) = state.filter(|_| is_in) else {
            reply::text(out, b"lost");
            return Some(());
        };
        let size = |text| usize::try_from(number(text)?).ok();
        let (done, back) = ids.split_at_checked(size(done)?)?;
        let parse = |ids: &[&[u8]]| {
            ids.iter()
                .map(|id| Position::parse(id))
                .collect::<Option<Vec<_>>>()
        };
        let (done, mut back) = (parse(done)?, parse(back)?);
        for id in &done {
            state.pending.remove(id);
        }
        back.retain(|id| state.pending.get(id).is_some_and(|who| **who == **node));
        if !done.is_empty() {
            self.work_stream(&key)?.trim();
        }
        self.hand_back(groups, topic, group, &back);
        if !back.is_empty() {
            self.tell(channel, b"g");
        }
        self.take(groups, (topic, group), node, size(count)?, out)
    }

    /// Assigns to a node the entries that no node has, and then new entries.
    fn take(
        &mut self,
        groups: &[u8],
        (topic, group): (&[u8], &[u8]),
        node: &[u8],
        count: usize,
        out: &mut Vec<u8>,
    ) -> Option<()> {
        let field = lost_field(topic, group);
        let mut lost = 0;
        if count > 0 {
            lost = self
                .store
                .value(groups, &field)
                .and_then(number)
                .unwrap_or(0);
            self.store.put(groups, &field, None);
        }
        let stream = self.work_stream(&stream_key(groups, topic))?;
        let (mut left, mut bytes, mut is_unknown) = (count, 0, false);
        let (mut again, mut fresh) = (Vec::new(), Vec::new());
        while left > 0 && bytes < WORK_BYTES_MAX {
            let pending = &stream.groups.get(group)?.pending;
            let free = pending.iter().filter(|(_, who)| **who == *b"_");
            let free: Vec<_> = free.map(|(id, _)| *id).take(left.min(16)).collect();
            if free.is_empty() {
                break;
            }
            lost += stream.claim(group, node, &free);
            for entry in stream
                .entries
                .iter()
                .filter(|entry| free.contains(&entry.id))
            {
                again.push(entry.id);
                bytes += entry.record.len();
                left -= 1;
            }
        }
        while left > 0 && bytes < WORK_BYTES_MAX {
            let state = stream.groups.get_mut(group)?;
            let new = stream.entries.iter().filter(|entry| entry.id > state.last);
            let new: Vec<_> = new.take(left.min(16)).collect();
            let is_last = new.len() < left.min(16);
            for entry in new {
                if entry.id.epoch == state.last.epoch {
                    lost += entry.id.offset - state.last.offset - 1;
                } else {
                    is_unknown = true;
                }
                state.last = entry.id;
                state.pending.insert(entry.id, node.to_vec());
                state.nodes.insert(node.to_vec());
                fresh.push(entry.id);
                bytes += entry.record.len();
                left -= 1;
            }
            if is_last {
                break;
            }
        }
        let has_more = left == 0 || bytes >= WORK_BYTES_MAX;
        reply::array(out, 4);
        reply::integer(out, if is_unknown { -1 } else { lost.cast_signed() });
        reply::integer(out, i64::from(has_more));
        stream.write(&again, out);
        stream.write(&fresh, out);
        Some(())
    }

    /// `XPENDING` of a consumer, from behind an id on.
    pub(super) fn pending(&mut self, arguments: &[&[u8]], out: &mut Vec<u8>) {
        let state = self
            .work_stream(arguments[0])
            .and_then(|stream| stream.groups.get(arguments[1]));
        let from = arguments[2].strip_prefix(b"(").and_then(Position::parse);
        let (Some(state), Some(from)) = (state, from) else {
            return reply::error(out, "NOGROUP No such key or consumer group");
        };
        let count = number(arguments[4]).unwrap_or(0) as usize;
        let of_node = state.pending.iter();
        let of_node = of_node.filter(|(id, who)| **id > from && **who == *arguments[5]);
        let entries: Vec<_> = of_node.take(count).collect();
        reply::array(out, entries.len());
        for (id, who) in entries {
            reply::array(out, 4);
            reply::text(out, id.to_string().as_bytes());
            reply::text(out, who);
            reply::integer(out, 0);
            reply::integer(out, 1);
        }
    }

    /// The effect of `lease` on groups that no node has rejoined in time: it ends up to 16 of them.
    pub(super) fn end_idle_groups(&mut self, groups: &[u8], idle: &[u8]) -> Option<()> {
        let mut over = self.store.fields(idle);
        let now_ms = self.store.unix_ms;
        over.retain(|(_, at)| number(at).is_some_and(|at| at <= now_ms));
        over.sort_by_key(|(name, at)| (number(at), name.clone()));
        for (name, _) in over.into_iter().take(16) {
            let (topic, group) = split_own(&name)?;
            self.store.put(idle, &name, None);
            self.store.put(groups, &lost_field(&topic, &group), None);
            let key = stream_key(groups, &topic);
            let is_empty = self.work_stream(&key).is_none_or(|stream| {
                stream.groups.remove(&group);
                stream.groups.is_empty()
            });
            if is_empty {
                self.store.put(groups, &total_field(&topic), None);
                self.store.remove(&key);
            }
        }
        Some(())
    }
}

const WORK_BYTES_MAX: usize = 1024 * 1024;

//! Copies of everything where it belongs. What is there already is written over.

use super::keys::{Key, Shape, owner_of, shape_of};
use super::lanes::Lane;
use super::outcome::{RepartitionError, Repartitioned};
use super::plan::{Plan, index_of, lane_of};
use crate::cluster::blocking::{Commands, Reply};

impl Plan<'_> {
    /// Copies everything to where it belongs.
    pub(super) fn copy(&mut self, done: &mut Repartitioned) -> Result<(), RepartitionError> {
        let fences = self.fences()?;
        for (index, lane) in self.old.clone().into_iter().enumerate() {
            let least = fences.each[index].least;
            self.walk(lane, |plan, keys| {
                plan.copy_some((index, lane, least), keys, done)
            })?;
        }
        self.write_fences(&fences)
    }

    fn copy_some(
        &mut self,
        (index, lane, least): (usize, Lane, u64),
        keys: &[Key],
        done: &mut Repartitioned,
    ) -> Result<(), RepartitionError> {
        let count = self.old.len();
        // An interrupted attempt with another aim may have left others.
        let belongs = |key: &&Key| match key.topic() {
            Some(topic) => index_of(topic, count) == index,
            None => true,
        };
        let keys: Vec<&Key> = keys.iter().filter(belongs).collect();
        let stale = self.drop_stale(lane, &keys, least)?;
        let mut whole: Vec<(&Key, Lane)> = Vec::new();
        for key in keys.into_iter().filter(|key| !stale.contains(key)) {
            let to = match key {
                Key::Stream(topic) => {
                    let to = lane_of(&self.new, topic);
                    done.topics += 1;
                    done.topics_moved += u64::from(!self.lanes.is_same(lane, to));
                    to
                }
                Key::Id(topic, _) | Key::Work(topic) => lane_of(&self.new, topic),
                Key::Producer(_) => self.new[0],
                Key::Parts(_) => {
                    self.copy_parts(lane, index, key)?;
                    continue;
                }
                Key::Other(_) => continue,
            };
            if !self.lanes.is_same(lane, to) {
                whole.push((key, to));
            }
        }
        self.copy_whole(lane, &whole)
    }

    /// Copies keys as they are.
    fn copy_whole(&mut self, lane: Lane, keys: &[(&Key, Lane)]) -> Result<(), RepartitionError> {
        let mut questions = Commands::default();
        for (key, _) in keys {
            let name = self.lanes.key(lane, key.rest());
            questions.push(&[b"DUMP", &name]);
            questions.push(&[b"PTTL", &name]);
        }
        let replies = self.lanes.ask_all(lane, questions)?;
        let mut orders: Vec<(Lane, Commands)> = Vec::new();
        for ((key, to), reply) in keys.iter().zip(replies.chunks_exact(2)) {
            // It may have ended meanwhile.
            let (Some(dump), Some(left_ms)) = (reply[0].text(), reply[1].number()) else {
                continue;
            };
            let name = self.lanes.key(*to, key.rest());
            // PTTL answers -1 if the key has no expiry, and -2 if it has expired.
            let left_ms = match left_ms {
                -1 => 0,
                ..=-2 => continue,
                left_ms => left_ms.max(1),
            };
            let left_ms = left_ms.to_string();
            let words: [&[u8]; 5] = [b"RESTORE", &name, left_ms.as_bytes(), dump, b"REPLACE"];
            match orders.iter_mut().find(|(lane, _)| lane == to) {
                Some((_, commands)) => commands.push(&words),
                None => {
                    let mut commands = Commands::default();
                    commands.push(&words);
                    orders.push((*to, commands));
                }
            }
        }
        for (to, commands) in orders {
            self.lanes.ask_all(to, commands)?;
        }
        Ok(())
    }

    /// Removes the streams from before their fence, which no server would use any more: the fences of all partitions become
    /// one. Returns them.
    fn drop_stale<'k>(
        &mut self,
        lane: Lane,
        keys: &[&'k Key],
        least: u64,
    ) -> Result<Vec<&'k Key>, RepartitionError> {
        let streams = keys.iter().copied();
        let streams: Vec<&Key> = streams
            .filter(|key| matches!(key, Key::Stream(_)))
            .collect();
        let mut questions = Commands::default();
        for key in &streams {
            questions.push(&[b"XINFO", b"STREAM", &self.lanes.key(lane, key.rest())]);
        }
        // Another program may have put something else in the place of a stream.
        let infos = self.lanes.ask_each(lane, questions)?;
        let is_stale = |info: &Reply| epoch_of(info).is_some_and(|epoch| epoch < least);
        let stale = streams
            .into_iter()
            .zip(&infos)
            .filter(|(_, info)| is_stale(info));
        let stale: Vec<&Key> = stale.map(|(key, _)| key).collect();
        let mut orders = Commands::default();
        for key in &stale {
            orders.push(&[b"UNLINK", &self.lanes.key(lane, key.rest())]);
        }
        self.lanes.ask_all(lane, orders)?;
        Ok(stale)
    }

    /// Copies the parts of a key that has some of each topic: those that belong elsewhere.
    fn copy_parts(&mut self, lane: Lane, index: usize, key: &Key) -> Result<(), RepartitionError> {
        let rest = key.rest();
        let count = self.old.len();
        for (member, value) in self.parts(lane, key)? {
            let Some(topic) =
                owner_of(&rest, &member).filter(|topic| index_of(topic, count) == index)
            else {
                continue;
            };
            let to = lane_of(&self.new, topic);
            if self.lanes.is_same(lane, to) {
                continue;
            }
            let name = self.lanes.key(to, &rest);
            let mut commands = Commands::default();
            match (shape_of(&rest), rest.strip_prefix(b"ng:".as_slice())) {
                (Shape::Hash, _) => commands.push(&[b"HSET", &name, &member, &value]),
                (Shape::SortedSet, _) => commands.push(&[b"ZADD", &name, &value, &member]),
                (Shape::Set, node) => {
                    commands.push(&[b"SADD", &name, &member]);
                    // Its lease has ended: the first server hands its work to others.
                    let nodes = self.lanes.key(to, "nodes");
                    commands.push(&[b"ZADD", &nodes, b"NX", b"0", node.unwrap_or_default()]);
                }
            }
            self.lanes.ask_all(to, commands)?;
        }
        Ok(())
    }
}

/// The epoch of the newest id that a stream has had, by `XINFO STREAM`.
fn epoch_of(info: &Reply) -> Option<u64> {
    let mut words = info.items().iter();
    words.find(|word| word.text() == Some(b"last-generated-id"))?;
    let last = words.next()?.text()?;
    let epoch = last.split(|byte| *byte == b'-').next()?;
    std::str::from_utf8(epoch).ok()?.parse().ok()
}

//! The removal of what does not belong where it is.

use super::keys::{Key, Shape, owner_of, shape_of};
use super::lanes::Lane;
use super::outcome::RepartitionError;
use super::plan::{KEYS_AT_ONCE, Plan};
use crate::cluster::blocking::Commands;

impl Plan<'_> {
    /// Removes what does not belong where it is.
    pub(super) fn clean(&mut self, others: &[Lane]) -> Result<(), RepartitionError> {
        for lane in self.old.clone() {
            // The list of brokers, at one that is no longer in it.
            let is_at_its_broker = |new: &Lane| self.lanes.is_one_server(*new, lane);
            if !self.new.iter().any(is_at_its_broker) {
                let first = self.lanes.first_agreement(lane);
                self.lanes.ask(lane, &[b"UNLINK", &first])?;
            }
        }
        let mut all: Vec<Lane> = Vec::new();
        for lane in self.old.iter().chain(&self.new).chain(others) {
            if !all.iter().any(|known| self.lanes.is_same(*known, *lane)) {
                all.push(*lane);
            }
        }
        for lane in all {
            let mut cursor = b"0".to_vec();
            loop {
                let keys = self.scan(lane, &mut cursor)?;
                for some in keys.chunks(KEYS_AT_ONCE) {
                    self.clean_some(lane, some)?;
                }
                if cursor == b"0" {
                    break;
                }
            }
        }
        Ok(())
    }

    fn clean_some(&mut self, lane: Lane, keys: &[Key]) -> Result<(), RepartitionError> {
        let is_used = self.new.iter().any(|new| self.lanes.is_same(*new, lane));
        let is_elsewhere = !self.lanes.is_one_server(lane, self.new[0]);
        let mut commands = Commands::default();
        for key in keys {
            let name = self.lanes.key(lane, key.rest());
            let belongs = match key {
                Key::Stream(topic) | Key::Id(topic, _) | Key::Work(topic) => {
                    self.lanes.is_same(lane, self.lane_of(topic))
                }
                Key::Producer(_) => self.lanes.is_same(lane, self.new[0]),
                Key::Parts(_) if is_used => {
                    self.clean_parts(lane, key)?;
                    true
                }
                // The list of brokers, at those that do not have the first partition.
                Key::Other(rest) if rest == b"agreed" && is_elsewhere => {
                    is_used || self.is_marked(lane)
                }
                Key::Parts(_) | Key::Other(_) => is_used,
            };
            if !belongs {
                commands.push(&[b"UNLINK", &name]);
            }
        }
        self.lanes.ask_all(lane, commands)?;
        Ok(())
    }

    /// Whether the broker of a lane has other partitions of the cluster, so that it keeps the list of brokers in the place
    /// of the first one.
    fn is_marked(&self, lane: Lane) -> bool {
        self.lanes.is_lane_of_first(lane)
            && self
                .new
                .iter()
                .any(|new| self.lanes.is_one_server(*new, lane))
    }

    fn clean_parts(&mut self, lane: Lane, key: &Key) -> Result<(), RepartitionError> {
        let rest = key.rest();
        let name = self.lanes.key(lane, &rest);
        let remove: &[u8] = match shape_of(&rest) {
            Shape::Hash => b"HDEL",
            Shape::SortedSet => b"ZREM",
            Shape::Set => b"SREM",
        };
        let mut commands = Commands::default();
        for (member, _) in self.parts(lane, key)? {
            let topic = owner_of(&rest, &member);
            if topic.is_some_and(|topic| !self.lanes.is_same(lane, self.lane_of(topic))) {
                commands.push(&[remove, &name, &member]);
            }
        }
        self.lanes.ask_all(lane, commands)?;
        Ok(())
    }
}

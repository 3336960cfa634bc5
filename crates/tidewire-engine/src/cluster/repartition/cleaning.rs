//! The removal of what does not belong where it is.

use super::keys::{Key, Shape, owner_of, shape_of};
use super::lanes::Lane;
use super::outcome::RepartitionError;
use super::plan::{Plan, lane_of};
use crate::cluster::blocking::Commands;

impl Plan<'_> {
    /// Removes what interrupted calls have copied: everything of a topic that is not where the cluster has it now.
    pub(super) fn remove_leftovers(&mut self) -> Result<(), RepartitionError> {
        let (mut lanes, layout) = (self.new.clone(), self.old.clone());
        lanes.extend(&self.others);
        self.clean_lanes(lanes, &layout, false)
    }

    /// Removes everything that is not where the cluster has it from now on.
    pub(super) fn clean(&mut self) -> Result<(), RepartitionError> {
        let (mut lanes, layout) = (self.old.clone(), self.new.clone());
        lanes.extend(&layout);
        lanes.extend(&self.others);
        self.clean_lanes(lanes, &layout, true)
    }

    /// Removes from some lanes what does not belong there by a layout; with `all` also what is of no topic.
    fn clean_lanes(
        &mut self,
        lanes: Vec<Lane>,
        layout: &[Lane],
        all: bool,
    ) -> Result<(), RepartitionError> {
        let mut done: Vec<Lane> = Vec::new();
        for lane in lanes {
            if self.lanes.is_among(lane, &done) {
                continue;
            }
            done.push(lane);
            self.walk(lane, |plan, keys| plan.clean_some(lane, keys, layout, all))?;
        }
        Ok(())
    }

    fn clean_some(
        &mut self,
        lane: Lane,
        keys: &[Key],
        layout: &[Lane],
        all: bool,
    ) -> Result<(), RepartitionError> {
        let is_used = self.lanes.is_among(lane, layout);
        let was_used = self.lanes.is_among(lane, &self.old);
        let is_other = !was_used && !self.lanes.is_lane_of_first(lane);
        let mut commands = Commands::default();
        for key in keys {
            let name = self.lanes.key(lane, key.rest());
            let belongs = match key {
                Key::Stream(topic) | Key::Id(topic, _) | Key::Work(topic) => {
                    self.lanes.is_same(lane, lane_of(layout, topic))
                }
                Key::Producer(_) => self.lanes.is_same(lane, layout[0]),
                Key::Parts(_) if is_used => {
                    self.clean_parts(lane, key, layout)?;
                    true
                }
                Key::Parts(_) => false,
                Key::Other(_) if !all => true,
                // At a partition that was used it has the note where the topics are. Others are of interrupted calls.
                Key::Other(rest) if rest == b"agreed" => is_used || !is_other,
                Key::Other(_) => is_used,
            };
            if !belongs {
                commands.push(&[b"UNLINK", &name]);
            }
        }
        self.lanes.ask_all(lane, commands)?;
        Ok(())
    }

    fn clean_parts(
        &mut self,
        lane: Lane,
        key: &Key,
        layout: &[Lane],
    ) -> Result<(), RepartitionError> {
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
            if topic.is_some_and(|topic| !self.lanes.is_same(lane, lane_of(layout, topic))) {
                commands.push(&[remove, &name, &member]);
            }
        }
        self.lanes.ask_all(lane, commands)?;
        Ok(())
    }
}

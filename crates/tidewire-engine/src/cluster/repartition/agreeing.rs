//! The agreements of the partitions: they are closed, written anew at the new place, and replaced by a note at the old one.

use super::lanes::Lane;
use super::outcome::RepartitionError;
use super::plan::Plan;
use super::standing::{MOVE, Move, field, moved};
use crate::cluster::blocking::{Commands, Reply};
use crate::cluster::options::link_options;
use crate::config::broker::{BrokerAddress, BrokerConfig};
use tidewire_redis::Partition;
use tidewire_redis::link::{PARTITIONS_TERM, PROTOCOL_TERM};

impl Plan<'_> {
    /// Nobody else has keys where the topics are to be moved.
    pub(super) fn expect_room(
        &mut self,
        (from, to): (&BrokerConfig, &BrokerConfig),
    ) -> Result<(), RepartitionError> {
        let lists = [from, to].map(|config| config.servers().join(" "));
        for lane in self.new.clone() {
            if self.lanes.is_among(lane, &self.old) || moved(&mut self.lanes, lane)?.is_some() {
                continue;
            }
            let mut keys = vec![self.lanes.key(lane, "agreed")];
            let has_broker = |old: &Lane| self.lanes.is_one_server(*old, lane);
            if !self.lanes.is_of_cluster(lane) && !self.old.iter().any(has_broker) {
                keys.push(self.lanes.first_agreement(lane));
            }
            for key in keys {
                let words: [&[u8]; 5] = [b"HMGET", &key, b"at", b"elsewhere", MOVE.as_bytes()];
                let known = self.lanes.ask(lane, &words)?;
                let text = |index: usize| known.items().get(index).and_then(Reply::text);
                let is_of_others = text(1).is_some_and(|place| {
                    let is_list = lists.iter().any(|list| place == list.as_bytes());
                    !is_list && !place.starts_with(MOVED_TO.as_bytes())
                });
                if text(2).is_none() && (text(0).is_some() || is_of_others) {
                    let name = self.lanes.name(lane).to_owned();
                    return Err(RepartitionError::Occupied(name));
                }
            }
        }
        Ok(())
    }

    /// Keeps servers from joining any partition.
    pub(super) fn close(&mut self, this: &Move) -> Result<(), RepartitionError> {
        let text = this.text();
        let terms = [PARTITIONS_TERM, PROTOCOL_TERM].map(|term| format!("s:{term}"));
        let durable = field(&mut self.lanes, self.old[0], DURABLE)?;
        let mut lanes = self.old.clone();
        lanes.extend(&self.new);
        for lane in lanes {
            let key = self.lanes.key(lane, "agreed");
            let at = self.lanes.now_ms(lane)?.to_string();
            let mut commands = Commands::default();
            commands.push(&[b"MULTI"]);
            commands.push(&[b"HSETNX", &key, b"at", at.as_bytes()]);
            // Servers of earlier versions compare the last one only. What an operator has set would let servers stay.
            commands.push(&[
                b"HSET",
                &key,
                MOVE.as_bytes(),
                text.as_bytes(),
                terms[0].as_bytes(),
                CLOSED.as_bytes(),
                terms[1].as_bytes(),
                CLOSED.as_bytes(),
            ]);
            if let Some(durable) = &durable {
                commands.push(&[b"HSETNX", &key, DURABLE.as_bytes(), durable.as_bytes()]);
            }
            commands.push(&[b"HDEL", &key, b"set"]);
            commands.push(&[b"EXEC"]);
            self.lanes.ask_all(lane, commands)?;
        }
        Ok(())
    }

    pub(super) fn expect_no_server(&mut self) -> Result<(), RepartitionError> {
        let mut running = 0;
        let mut lanes = self.old.clone();
        lanes.extend(&self.new);
        for lane in lanes {
            let now_ms = self.lanes.now_ms(lane)?.to_string();
            let nodes = self.lanes.key(lane, "nodes");
            let words: [&[u8]; 4] = [b"ZCOUNT", &nodes, now_ms.as_bytes(), b"+inf"];
            let count = self.lanes.ask(lane, &words)?;
            running = running.max(count.number().unwrap_or(0));
        }
        match u64::try_from(running) {
            Ok(0) | Err(_) => Ok(()),
            Ok(running) => Err(RepartitionError::Running(running)),
        }
    }

    /// Opens the cluster as it was: a server has joined before it was closed.
    pub(super) fn open_as_before(&mut self, from: &BrokerConfig) -> Result<(), RepartitionError> {
        for lane in self.new.clone() {
            if !self.lanes.is_among(lane, &self.old) {
                let key = self.lanes.key(lane, "agreed");
                self.lanes.ask(lane, &[b"UNLINK", &key])?;
            }
        }
        let count = u16::try_from(self.old.len()).unwrap_or(1);
        let old = self.old.clone().into_iter().zip(Partition::all(count));
        for (lane, partition) in old {
            self.write_terms(lane, (from, partition), None)?;
        }
        Ok(())
    }

    /// Writes the terms of the cluster. First each old place gets a note of the new ones. The first partition comes last:
    /// then servers may join.
    pub(super) fn agree(&mut self, to: &BrokerConfig, this: &Move) -> Result<(), RepartitionError> {
        let places = to.addresses.iter().map(BrokerAddress::place_and_database);
        let note = format!("{MOVED_TO}{}", places.collect::<Vec<_>>().join(" "));
        let servers = to.servers().join(" ");
        let home = self.new[0];
        for (index, lane) in self.old.clone().into_iter().enumerate() {
            if self.lanes.is_among(lane, &self.new) {
                continue;
            }
            let has_broker = |new: &Lane| self.lanes.is_one_server(*new, lane);
            let stays = self.new.iter().any(has_broker);
            let is_list = stays && self.lanes.is_lane_of_first(lane) && !servers.is_empty();
            let key = self.lanes.key(lane, "agreed");
            let elsewhere = if is_list { &servers } else { &note };
            self.say_elsewhere(lane, &key, elsewhere, (index == 0).then_some(this))?;
            if !stays && !self.lanes.is_of_cluster(lane) {
                let first = self.lanes.first_agreement(lane);
                self.say_elsewhere(lane, &first, &note, (index == 0).then_some(this))?;
            }
        }
        let count = to.partitions();
        let new = self.new.clone().into_iter().zip(Partition::all(count));
        for (lane, partition) in new.rev() {
            if !self.lanes.is_one_server(lane, home) {
                let first = self.lanes.first_agreement(lane);
                self.say_elsewhere(lane, &first, &servers, None)?;
            }
            self.write_terms(lane, (to, partition), Some(this))?;
        }
        Ok(())
    }

    /// Replaces an agreement by a note of where the topics are. The record of the move stays, if `this` is given.
    fn say_elsewhere(
        &mut self,
        lane: Lane,
        key: &[u8],
        elsewhere: &str,
        this: Option<&Move>,
    ) -> Result<(), RepartitionError> {
        let known = self.lanes.ask(lane, &[b"HGET", key, MOVE.as_bytes()])?;
        let mut commands = Commands::default();
        commands.push(&[b"MULTI"]);
        commands.push(&[b"UNLINK", key]);
        commands.push(&[b"HSET", key, b"elsewhere", elsewhere.as_bytes()]);
        if let Some(text) = this.map(Move::text).filter(|_| known != Reply::Nothing) {
            commands.push(&[b"HSET", key, MOVE.as_bytes(), text.as_bytes()]);
        }
        commands.push(&[b"EXEC"]);
        self.lanes.ask_all(lane, commands)?;
        Ok(())
    }

    /// Writes what servers have in common at a partition, at once, and lets them join. The cluster stays as old as it is,
    /// and as durable.
    fn write_terms(
        &mut self,
        lane: Lane,
        (config, partition): (&BrokerConfig, Partition),
        this: Option<&Move>,
    ) -> Result<(), RepartitionError> {
        let key = self.lanes.key(lane, "agreed");
        let durable = field(&mut self.lanes, lane, DURABLE)?;
        let at = self.lanes.now_ms(lane)?.to_string();
        let mut commands = Commands::default();
        commands.push(&[b"MULTI"]);
        commands.push(&[b"HSETNX", &key, b"at", at.as_bytes()]);
        for (name, value) in link_options(config, partition).terms() {
            let name = format!("s:{name}");
            let value = match (&durable, name.as_str()) {
                (Some(durable), DURABLE) => durable,
                _ => &value,
            };
            commands.push(&[b"HSET", &key, name.as_bytes(), value.as_bytes()]);
        }
        let move_text = this.map(Move::text).unwrap_or_default();
        match this {
            Some(_) => commands.push(&[b"HSET", &key, MOVE.as_bytes(), move_text.as_bytes()]),
            None => commands.push(&[b"HDEL", &key, MOVE.as_bytes()]),
        }
        commands.push(&[b"HDEL", &key, b"elsewhere", b"set"]);
        commands.push(&[b"EXEC"]);
        self.lanes.ask_all(lane, commands)?;
        Ok(())
    }

    /// The move has ended. The first partition is last, so that an interrupted call goes on.
    pub(super) fn forget_move(&mut self) -> Result<(), RepartitionError> {
        let mut lanes = self.new.clone();
        lanes.extend(&self.old);
        for lane in lanes.into_iter().rev() {
            let key = self.lanes.key(lane, "agreed");
            self.lanes.ask(lane, &[b"HDEL", &key, MOVE.as_bytes()])?;
        }
        Ok(())
    }
}

/// The value of some terms of a closed cluster. A server that wants to join shows it to its operator.
const CLOSED: &str = "being changed by `tidewire partition`";

/// The beginning of the note at a broker that the cluster has left.
const MOVED_TO: &str = "moved to ";

/// The field of a term.
const DURABLE: &str = "s:broker_is_durable";

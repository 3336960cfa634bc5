//! Moves the topics of a cluster into another number of partitions, or to other brokers, while no server runs.
//!
//! What earlier attempts have left is removed first. Then the cluster is closed: no server joins it. Then every topic with its history, its ids and its work is copied to
//! where it belongs. Only when everything is there, the agreement of the cluster is written anew, and servers may join. What
//! does not belong where it is goes last. Whoever is interrupted runs it again: each step can be repeated.

mod cleaning;
mod copying;
mod fences;
mod keys;
mod lanes;
mod outcome;
mod plan;

pub use self::outcome::{RepartitionError, Repartitioned};

use self::lanes::{Lane, Lanes};
use self::plan::Plan;
use crate::cluster::blocking::{Commands, Reply};
use crate::cluster::options::link_options;
use crate::config::broker::{BrokerAddress, BrokerConfig};
use tidewire_redis::Partition;
use tidewire_redis::link::{PARTITIONS_TERM, PROTOCOL_TERM, SERVERS_TERM};

/// Moves the topics of the cluster of `from`, whose number of partitions is read from the broker, to the partitions and
/// the brokers of `to`. Both have the same prefix. `progress` is called with the number of keys that were looked at so
/// far. It blocks until all is done.
///
/// # Errors
/// [`RepartitionError`]. After an interruption or a fault the cluster stays closed, nothing is lost, and the next call
/// with the same two configurations goes on.
pub fn repartition(
    from: &BrokerConfig,
    to: &BrokerConfig,
    progress: &mut dyn FnMut(u64),
) -> Result<Repartitioned, RepartitionError> {
    let mut lanes = Lanes::default();
    let homes = [
        lanes.open(from, Partition::WHOLE)?,
        lanes.open(to, Partition::WHOLE)?,
    ];
    let standing = Standing::read(&mut lanes, homes, from)?;
    let mut open = |config: &BrokerConfig, count| {
        let partitions = Partition::all(count).map(|partition| lanes.open(config, partition));
        partitions.collect::<Result<Vec<Lane>, _>>()
    };
    let (old, new) = (open(from, standing.partitions)?, open(to, to.partitions())?);
    let aim = Aim {
        partitions: to.partitions(),
        servers: to.servers().join(" "),
    };
    // Of an attempt with another aim, which was interrupted.
    let others = open(to, standing.aim.as_ref().map_or(1, |aim| aim.partitions))?;
    let mut done = Repartitioned {
        partitions_before: standing.partitions,
        ..Repartitioned::default()
    };
    let mut plan = Plan {
        lanes,
        old,
        new,
        others,
        looked_at: 0,
        progress,
    };
    match &standing {
        // Servers may run on what was moved: nothing else may be removed.
        Standing {
            phase: Phase::Cleaning,
            aim: Some(before),
            ..
        } if *before != aim => {
            return Err(RepartitionError::Unfinished {
                partitions: before.partitions,
                servers: before.servers.clone(),
            });
        }
        Standing {
            phase: Phase::Cleaning,
            ..
        } => {}
        _ => {
            plan.expect_room(&standing)?;
            plan.expect_no_server()?;
            plan.remove_leftovers()?;
            plan.close(&standing, &aim)?;
            if let Err(joined) = plan.expect_no_server() {
                plan.take_back(from, &standing)?;
                return Err(joined);
            }
            plan.copy(&mut done)?;
            plan.agree(to)?;
        }
    }
    plan.clean()?;
    plan.leave_word(to)?;
    let home = plan.new[0];
    plan.forget_move(home)?;
    Ok(done)
}

/// Where topics are moved.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Aim {
    partitions: u16,
    /// The list of independent brokers; empty for one.
    servers: String,
}

/// How far an earlier call has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Copying,
    Cleaning,
}

/// What the cluster knows of itself.
struct Standing {
    /// Where the topics are.
    partitions: u16,
    /// Where an interrupted call moves them.
    aim: Option<Aim>,
    phase: Phase,
}

impl Standing {
    /// What the first partition says: at its old place, or, if it has left that, at its new one.
    fn read(
        lanes: &mut Lanes,
        homes: [Lane; 2],
        from: &BrokerConfig,
    ) -> Result<Self, RepartitionError> {
        for home in homes {
            let agreed = lanes.key(home, "agreed");
            let mut field = |name: &str| {
                let value = lanes.ask(home, &[b"HGET", &agreed, name.as_bytes()])?;
                let text = value.text().map(String::from_utf8_lossy);
                Ok::<_, RepartitionError>(text.map(|text| text.into_owned()))
            };
            let is_begun = field("at")?.is_some();
            let servers = match field("moved from servers")? {
                None => field(&format!("s:{SERVERS_TERM}"))?,
                servers => servers,
            };
            let number = |text: Option<String>| text.and_then(|text| text.parse::<u16>().ok());
            let agreed = number(field(&format!("s:{PARTITIONS_TERM}"))?);
            let (before, aim) = (number(field("moved from")?), number(field("moved to")?));
            let aim_servers = field("moved to servers")?.unwrap_or_default();
            let is_closed = field("closed")?.is_some();
            if !is_begun {
                continue;
            }
            let (known, given) = (servers.unwrap_or_default(), from.servers().join(" "));
            if known != given {
                return Err(RepartitionError::OtherServers { known, given });
            }
            return Ok(Self {
                partitions: before.or(agreed).unwrap_or(1),
                aim: aim.map(|partitions| Aim {
                    partitions,
                    servers: aim_servers,
                }),
                phase: match (is_closed, before) {
                    (false, Some(_)) => Phase::Cleaning,
                    _ => Phase::Copying,
                },
            });
        }
        Err(RepartitionError::NoCluster)
    }
}

impl Plan<'_> {
    /// Nobody else has keys where the topics are to be moved.
    fn expect_room(&mut self, standing: &Standing) -> Result<(), RepartitionError> {
        // What an interrupted call has left there is its own.
        if standing.aim.is_some() {
            return Ok(());
        }
        for lane in self.new.clone() {
            if self.old.iter().any(|old| self.lanes.is_same(*old, lane)) {
                continue;
            }
            let key = self.lanes.key(lane, "agreed");
            let known = self.lanes.ask(lane, &[b"HMGET", &key, b"at", b"closed"])?;
            if let [Reply::Text(_), Reply::Nothing] = known.items() {
                return Err(RepartitionError::Occupied(self.lanes.name(lane).to_owned()));
            }
        }
        Ok(())
    }

    /// Keeps servers from joining.
    fn close(&mut self, standing: &Standing, aim: &Aim) -> Result<(), RepartitionError> {
        let servers = self.lanes.servers(self.old[0]).to_owned();
        let (before, to) = (standing.partitions.to_string(), aim.partitions.to_string());
        for home in [self.new[0], self.old[0]] {
            let key = self.lanes.key(home, "agreed");
            let at = self.lanes.now_ms(home)?.to_string();
            let mut commands = Commands::default();
            commands.push(&[b"HSETNX", &key, b"at", at.as_bytes()]);
            for (field, value) in [
                ("moved from", before.as_str()),
                ("moved from servers", &servers),
                ("moved to", &to),
                ("moved to servers", &aim.servers),
                ("closed", "1"),
                // Servers of earlier versions compare the second one only.
                (&format!("s:{PARTITIONS_TERM}"), CLOSED),
                (&format!("s:{PROTOCOL_TERM}"), CLOSED),
            ] {
                commands.push(&[b"HSET", &key, field.as_bytes(), value.as_bytes()]);
            }
            self.lanes.ask_all(home, commands)?;
        }
        Ok(())
    }

    /// Opens the cluster as it was: a server has joined before it was closed.
    fn take_back(
        &mut self,
        from: &BrokerConfig,
        standing: &Standing,
    ) -> Result<(), RepartitionError> {
        let (old, new) = (self.old[0], self.new[0]);
        if !self.lanes.is_same(old, new) {
            let key = self.lanes.key(new, "agreed");
            self.lanes.ask(new, &[b"UNLINK", &key])?;
        }
        let first = Partition::all(standing.partitions).next();
        let terms = link_options(from, first.unwrap_or(Partition::WHOLE)).terms();
        let terms = terms.into_iter();
        let terms = terms.filter(|(name, _)| [PARTITIONS_TERM, PROTOCOL_TERM].contains(name));
        self.write_terms(old, terms)?;
        self.forget_move(old)
    }

    fn expect_no_server(&mut self) -> Result<(), RepartitionError> {
        let mut running = 0;
        for lane in self.old.clone() {
            let now_ms = self.lanes.now_ms(lane)?.to_string();
            let nodes = self.lanes.key(lane, "nodes");
            let count = self
                .lanes
                .ask(lane, &[b"ZCOUNT", &nodes, now_ms.as_bytes(), b"+inf"])?;
            running = running.max(count.number().unwrap_or(0));
        }
        match u64::try_from(running) {
            Ok(0) | Err(_) => Ok(()),
            Ok(running) => Err(RepartitionError::Running(running)),
        }
    }

    /// Writes what the servers of the cluster have in common from now on. With the first partition, at the end, they may
    /// join.
    fn agree(&mut self, to: &BrokerConfig) -> Result<(), RepartitionError> {
        let servers = to.servers().join(" ");
        for (lane, partition) in self
            .new
            .clone()
            .into_iter()
            .zip(Partition::all(to.partitions()))
            .rev()
        {
            if !self.lanes.is_one_server(lane, self.new[0]) {
                let first = self.lanes.first_agreement(lane);
                let mut commands = Commands::default();
                commands.push(&[b"MULTI"]);
                commands.push(&[b"UNLINK", &first]);
                commands.push(&[b"HSET", &first, b"elsewhere", servers.as_bytes()]);
                commands.push(&[b"EXEC"]);
                self.lanes.ask_all(lane, commands)?;
            }
            let terms = link_options(to, partition).terms();
            self.write_terms(lane, terms.into_iter())?;
        }
        Ok(())
    }

    /// Writes what servers have in common, at once, and lets them join.
    fn write_terms(
        &mut self,
        lane: Lane,
        terms: impl Iterator<Item = (&'static str, String)>,
    ) -> Result<(), RepartitionError> {
        let key = self.lanes.key(lane, "agreed");
        let at = self.lanes.now_ms(lane)?.to_string();
        let mut commands = Commands::default();
        commands.push(&[b"MULTI"]);
        commands.push(&[b"HSET", &key, b"at", at.as_bytes()]);
        for (name, value) in terms {
            let field = format!("s:{name}");
            commands.push(&[b"HSET", &key, field.as_bytes(), value.as_bytes()]);
        }
        commands.push(&[b"HDEL", &key, b"closed", b"elsewhere"]);
        commands.push(&[b"EXEC"]);
        self.lanes.ask_all(lane, commands)?;
        Ok(())
    }

    /// Says at the brokers that have no part of the cluster any more where it is, so that no server begins another there.
    fn leave_word(&mut self, to: &BrokerConfig) -> Result<(), RepartitionError> {
        let places = to.addresses.iter().map(BrokerAddress::place_and_database);
        let word = format!("moved to {}", places.collect::<Vec<_>>().join(" "));
        for lane in self.old.clone() {
            let is_at_its_broker = |new: &Lane| self.lanes.is_one_server(*new, lane);
            if !self.new.iter().any(is_at_its_broker) {
                let first = self.lanes.first_agreement(lane);
                let words: [&[u8]; 4] = [b"HSET", &first, b"elsewhere", word.as_bytes()];
                self.lanes.ask(lane, &words)?;
            }
        }
        Ok(())
    }

    fn forget_move(&mut self, home: Lane) -> Result<(), RepartitionError> {
        let key = self.lanes.key(home, "agreed");
        let words: [&[u8]; 6] = [
            b"HDEL",
            &key,
            b"moved from",
            b"moved from servers",
            b"moved to",
            b"moved to servers",
        ];
        self.lanes.ask(home, &words)?;
        Ok(())
    }
}

/// What a closed cluster has in common, as a server that wants to join reports it.
const CLOSED: &str = "being changed by `tidewire partition`";

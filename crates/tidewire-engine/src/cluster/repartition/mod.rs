//! Moves the topics of a cluster into another number of partitions, or to other brokers, while no server runs.
//!
//! First the cluster is closed: no server joins it. Then every topic with its history, its ids and its work is copied to
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
use crate::cluster::blocking::Commands;
use crate::cluster::options::link_options;
use crate::config::broker::BrokerConfig;
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
    // Of an attempt with another aim, which was interrupted.
    let others = open(to, standing.aim.unwrap_or(1))?;
    let mut done = Repartitioned {
        partitions_before: standing.partitions,
        ..Repartitioned::default()
    };
    let mut plan = Plan {
        lanes,
        old,
        new,
        looked_at: 0,
        progress,
    };
    if standing.phase == Phase::Copying {
        plan.close(&standing)?;
        plan.copy(&mut done)?;
        plan.agree(to)?;
    }
    plan.clean(&others)?;
    plan.open_again()?;
    Ok(done)
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
    aim: Option<u16>,
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
                aim,
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
    /// Keeps servers from joining, and looks for those that have joined before.
    fn close(&mut self, standing: &Standing) -> Result<(), RepartitionError> {
        self.expect_no_server()?;
        let servers = self.lanes.servers(self.old[0]).to_owned();
        for home in [self.new[0], self.old[0]] {
            let key = self.lanes.key(home, "agreed");
            let at = self.lanes.now_ms(home)?.to_string();
            let mut commands = Commands::default();
            commands.push(&[b"HSETNX", &key, b"at", at.as_bytes()]);
            let (before, aim) = (standing.partitions.to_string(), self.new.len().to_string());
            commands.push(&[
                b"HSET",
                &key,
                b"moved from",
                before.as_bytes(),
                b"moved to",
                aim.as_bytes(),
                b"moved from servers",
                servers.as_bytes(),
                b"closed",
                b"1",
            ]);
            // Servers of earlier versions compare the second one only.
            for term in [PARTITIONS_TERM, PROTOCOL_TERM] {
                commands.push(&[
                    b"HSET",
                    &key,
                    format!("s:{term}").as_bytes(),
                    CLOSED.as_bytes(),
                ]);
            }
            self.lanes.ask_all(home, commands)?;
        }
        // One may have joined in between.
        self.expect_no_server()
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
            let key = self.lanes.key(lane, "agreed");
            let at = self.lanes.now_ms(lane)?.to_string();
            let mut commands = Commands::default();
            commands.push(&[b"HSET", &key, b"at", at.as_bytes()]);
            for (name, value) in link_options(to, partition).terms() {
                commands.push(&[
                    b"HSET",
                    &key,
                    format!("s:{name}").as_bytes(),
                    value.as_bytes(),
                ]);
            }
            commands.push(&[b"HDEL", &key, b"closed", b"elsewhere"]);
            let first = self.lanes.first_agreement(lane);
            if !self.lanes.is_one_server(lane, self.new[0]) {
                commands.push(&[b"UNLINK", &first]);
                commands.push(&[b"HSET", &first, b"elsewhere", servers.as_bytes()]);
            }
            self.lanes.ask_all(lane, commands)?;
        }
        Ok(())
    }

    fn open_again(&mut self) -> Result<(), RepartitionError> {
        let home = self.new[0];
        let key = self.lanes.key(home, "agreed");
        let words: [&[u8]; 5] = [
            b"HDEL",
            &key,
            b"moved from",
            b"moved to",
            b"moved from servers",
        ];
        self.lanes.ask(home, &words)?;
        Ok(())
    }
}

/// What a closed cluster has in common, as a server that wants to join reports it.
const CLOSED: &str = "being changed by `tidewire partition`";

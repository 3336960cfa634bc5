//! Moves the topics of a cluster into another number of partitions, or to other brokers, while no server runs.
//!
//! What earlier attempts have left is removed first. Then the cluster is closed: no server joins it. Then every topic with its
//! history, its ids and its work is copied to where it belongs. Only when everything is there, each old place gets a note of
//! where it is, the agreement of the cluster is written anew, and servers may join. What does not belong where it is goes last. Whoever
//! is interrupted runs it again: each step can be repeated.

mod agreeing;
mod cleaning;
mod copying;
mod fences;
mod keys;
mod lanes;
mod outcome;
mod plan;
mod standing;

pub use self::outcome::{RepartitionError, Repartitioned};

use self::lanes::{Lane, Lanes};
use self::plan::Plan;
use self::standing::{Division, Move, Phase, Standing};
use crate::config::broker::BrokerConfig;
use tidewire_redis::Partition;

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
    let standing = Standing::read(&mut lanes, homes, (from, to))?;
    let mut open = |config: &BrokerConfig, count| {
        let partitions = Partition::all(count).map(|partition| lanes.open(config, partition));
        partitions.collect::<Result<Vec<Lane>, _>>()
    };
    let (old, new) = (open(from, standing.partitions)?, open(to, to.partitions())?);
    // Of a move that is taken back.
    let begun = standing.begun.as_ref();
    let others = open(to, begun.map_or(1, |begun| begun.to.partitions))?;
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
    let mut this = Move {
        phase: Phase::Copying,
        from: Division::of(from, standing.partitions),
        to: Division::of(to, to.partitions()),
    };
    if begun.is_none_or(|begun| begun.phase == Phase::Copying) {
        plan.expect_room((from, to))?;
        plan.expect_no_server()?;
        plan.remove_leftovers()?;
        plan.close(&this)?;
        if let Err(joined) = plan.expect_no_server() {
            if begun.is_none() {
                plan.open_as_before(from)?;
            }
            return Err(joined);
        }
        plan.copy(&mut done)?;
    }
    this.phase = Phase::Cleaning;
    plan.agree(to, &this)?;
    plan.clean()?;
    plan.forget_move()?;
    Ok(done)
}

//! The fences of the partitions: which processes of Redis their epochs belong to.

use super::keys::Key;
use super::outcome::RepartitionError;
use super::plan::Plan;
use crate::cluster::blocking::Reply;

/// Which processes of Redis the epochs of a partition belong to.
pub(super) struct Fence {
    /// The Redis that runs is the one that it names.
    is_current: bool,
    is_durable: bool,
    /// The least epoch that may be used.
    pub(super) least: u64,
    is_known: bool,
}

/// Of the partitions as they were.
pub(super) struct Fences {
    pub(super) each: Vec<Fence>,
}

impl Plan<'_> {
    pub(super) fn fences(&mut self) -> Result<Fences, RepartitionError> {
        let mut each = Vec::new();
        for lane in self.old.clone() {
            let key = self.lanes.key(lane, "f");
            let fence = self
                .lanes
                .ask(lane, &[b"HMGET", &key, b"run", b"durable", b"least"])?;
            let field = |index: usize| fence.items().get(index).and_then(Reply::text);
            let least = field(2).and_then(|least| std::str::from_utf8(least).ok()?.parse().ok());
            each.push(Fence {
                is_current: field(0).is_none_or(|run| run == self.lanes.run_id(lane).as_bytes()),
                is_durable: field(1).is_none_or(|durable| durable == b"1"),
                least: least.unwrap_or(0),
                is_known: least.is_some(),
            });
        }
        Ok(Fences { each })
    }

    /// Gives every partition a fence that holds for what was moved into it.
    pub(super) fn write_fences(&mut self, fences: &Fences) -> Result<(), RepartitionError> {
        let known = || fences.each.iter().filter(|fence| fence.is_known);
        let Some(least) = known().map(|fence| fence.least).min() else {
            return Ok(());
        };
        let (is_current, is_durable) = (
            known().all(|it| it.is_current),
            known().all(|it| it.is_durable),
        );
        let least = least.to_string();
        // Before the fences: an interrupted call compares them again.
        self.renew_producers(fences.each[0].least, &least)?;
        for lane in self.new.clone() {
            let key = self.lanes.key(lane, "f");
            // Where a Redis has begun anew since, the first server decides as after any restart.
            let run = match is_current {
                true => self.lanes.run_id(lane).to_owned(),
                false => String::new(),
            };
            let durable: &[u8] = if is_durable { b"1" } else { b"0" };
            let words: [&[u8]; 8] = [
                b"HSET",
                &key,
                b"run",
                run.as_bytes(),
                b"durable",
                durable,
                b"least",
                least.as_bytes(),
            ];
            self.lanes.ask(lane, &words)?;
        }
        Ok(())
    }

    /// A producer is known as long as the fence is that under which it was kept.
    fn renew_producers(&mut self, before: u64, least: &str) -> Result<(), RepartitionError> {
        let (home, before) = (self.new[0], before.to_string());
        if before == least {
            return Ok(());
        }
        self.walk(home, |plan, keys| {
            for key in keys.iter().filter(|key| matches!(key, Key::Producer(_))) {
                let name = plan.lanes.key(home, key.rest());
                let fence = plan.lanes.ask(home, &[b"HGET", &name, b"f"])?;
                if fence.text() == Some(before.as_bytes()) {
                    let words: [&[u8]; 4] = [b"HSET", &name, b"f", least.as_bytes()];
                    plan.lanes.ask(home, &words)?;
                }
            }
            Ok(())
        })
    }
}

//! Filters during delivery: who pays for them, and what happens to those who cannot.
//!
//! A filter is evaluated once for all subscribers of a topic that have it. One of them pays, each
//! time another one, so that everybody pays in proportion. While a shard delivers everything in
//! time, an owner that has used its part of the second is served nevertheless. When the shard falls
//! behind, the filters of such an owner are skipped until the next second, and the publications are
//! reported as a gap: a costly filter delays its owner and nobody else.

use crate::limits::owner::OwnerId;
use crate::limits::work::cost;
use crate::session::application::Application;
use crate::shard::EngineShard;
use crate::shard::delivery_budget::Budget;
use crate::topics::filter::Filter;
use crate::topics::local::{Item, Slot};
use crate::topics::skipped::{Missed, SkippedReport};
use std::sync::Arc;
use tidewire_net::{ConnectionId, Io};
use tidewire_wire::session::Reply;

/// What a filter has done with some publications.
#[derive(Debug, Default)]
pub(crate) struct Filtered {
    /// Those that pass it.
    pub(crate) passed: Vec<Item>,
    /// Those that it has yet to look at.
    pub(crate) rest: Vec<Item>,
}

impl<A: Application> EngineShard<A> {
    /// Asks a filter, as far as the budget goes.
    pub(crate) fn filter(
        &mut self,
        slot: Slot,
        filter: &Filter,
        members: &[ConnectionId],
        items: &[Item],
        budget: &mut Budget,
    ) -> Filtered {
        let Some(payer) = self.payer(members, budget) else {
            // No filter looks at events.
            let is_event = |item: &Item| item.publication.content().is_empty();
            let (passed, skipped): (Vec<_>, Vec<_>) = items.iter().cloned().partition(is_event);
            self.skip(slot, members, &skipped, budget);
            return Filtered {
                passed,
                rest: Vec::new(),
            };
        };
        let mut filtered = Filtered::default();
        let before = budget.spent();
        for (index, item) in items.iter().enumerate() {
            if budget.is_spent() {
                filtered.rest = items[index..].to_vec();
                break;
            }
            if budget.passes(filter, item) {
                filtered.passed.push(item.clone());
            }
        }
        self.core.turn.meter.charge(payer, budget.spent() - before);
        filtered
    }

    /// Which of the members pays; nobody if none of them can.
    fn payer(&self, members: &[ConnectionId], budget: &mut Budget) -> Option<OwnerId> {
        let turn = self.core.topics.round.number as usize;
        let (before, from) = members.split_at(turn.checked_rem(members.len())?);
        let is_behind = self.core.topics.is_behind;
        from.iter().chain(before).find_map(|id| {
            let connection = self.connections.get(id.index())?.as_ref()?;
            let owner = connection.state.limits.owner;
            budget.spend(cost::OWNER);
            let may_pay = !(is_behind && self.core.turn.meter.waits_for_second(owner));
            (connection.state.key.id == *id && may_pay).then_some(owner)
        })
    }

    /// Notes that the members miss publications. They are notified when the next second begins.
    fn skip(&mut self, slot: Slot, members: &[ConnectionId], items: &[Item], budget: &mut Budget) {
        let Some(topic) = self.core.topics.topic(slot) else {
            return;
        };
        let topic = Arc::clone(&topic.name);
        let Some(missed) = Missed::of(items, &topic) else {
            return;
        };
        let second = self.core.turn.meter.second();
        budget.spend(members.len() as u64 * cost::SKIP);
        for id in members {
            let skipped = &mut self.core.topics.skipped;
            skipped.add((*id, slot), &topic, missed, second);
        }
        let lost = members.len() as u64 * items.len() as u64;
        self.core.counters.publications_unfiltered.add(lost);
    }

    /// Reports the gaps of the second before; whether all of them are reported, so that what
    /// follows them may be delivered.
    pub(crate) fn report_skipped(&mut self, io: &mut Io, budget: &mut Budget) -> bool {
        if !self
            .core
            .topics
            .skipped
            .is_due(self.core.turn.meter.second())
        {
            return true;
        }
        while !budget.is_spent() {
            let Some(SkippedReport { id, slot, gap }) = self.core.topics.skipped.pop() else {
                return true;
            };
            budget.spend(cost::SEND + cost::WRITE);
            let topic = self.core.topics.topic(slot);
            let is_same = topic.is_some_and(|topic| *topic.name == gap.topic);
            if is_same
                && self.core.topics.is_member(slot, id)
                && let Some(mut session) = self.session(io, id)
            {
                session.core.counters.gaps_reported.add(1);
                session.reply(&Reply::PublicationGap(gap));
            }
        }
        self.core.topics.skipped.is_empty()
    }
}

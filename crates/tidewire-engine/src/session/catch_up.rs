//! Recovery: a new subscriber receives missed publications before the live ones, page by page, so
//! that a long history and a costly filter delay nobody else. The subscriber joins the topic when
//! it has caught up.

use crate::limits::work::cost;
use crate::model::Position;
use crate::session::Session;
use crate::session::access::ended;
use crate::state::session_topics::subscription_bytes;
use crate::state::unfinished_jobs::{Announcement, CatchUp, Job};
use crate::topics::broker::{Missed, Prepare};
use crate::topics::error::PublishError;
use crate::topics::hub::NotReady;
use crate::topics::name::is_pattern;
use crate::topics::publication::Publication;
use std::sync::Arc;
use tidewire_wire::codes::ErrorCode;
use tidewire_wire::session::{GapRange, GapReason, PublicationGap, Reply};

impl Session<'_> {
    /// Sends a page of missed publications; returns the rest of the catch-up. `None` means that the
    /// session has joined the topic, or that the catch-up has failed.
    pub(crate) fn step_catch_up(&mut self, mut catch_up: Box<CatchUp>) -> Option<Box<CatchUp>> {
        if !self.state.can_subscribe() {
            return None;
        }
        self.core
            .turn
            .meter
            .spend(cost::CHECK + self.state.client.access.cost());
        if !self.may_stay(&catch_up.name) {
            self.reply(&ended(vec![catch_up.name.to_string()]));
            return None;
        }
        if let Some(first) = catch_up.first.take() {
            self.replay(&catch_up, &first);
            return Some(catch_up);
        }
        self.core.turn.meter.spend(cost::SUBSCRIBE);
        let name = Arc::clone(&catch_up.name);
        // While somebody here wants the topic no publication passes by between the page and the
        // joining.
        let (slot, is_new) = self.core.topics.enter(&name, is_pattern(&name));
        if is_new {
            self.core.add_interest(&name, false);
        }
        let is_member = self.core.topics.is_member(slot, self.state.key.id);
        let has_joined = is_member || self.send_page(&mut catch_up);
        self.core.drop_unused(slot);
        (!has_joined).then_some(catch_up)
    }

    /// Sends a page and, if it was the last one, joins the topic. Returns whether the catch-up is
    /// over.
    fn send_page(&mut self, catch_up: &mut CatchUp) -> bool {
        let missed = Missed {
            since: Some(catch_up.at),
            or_newest: false,
            limit: PAGE,
        };
        let moment = self.core.moment(self.steady_now(), self.state.limits.owner);
        let hub = &self.core.shared.hub;
        let (page, seq) = match hub.recover(&catch_up.name, missed, moment) {
            Ok(Some(page)) => page,
            Ok(None) => return self.finish_catch_up(catch_up, 0),
            Err(NotReady) => return self.await_catch_up(catch_up),
        };
        if !page.complete {
            self.tell_lost(catch_up, page.position);
            return self.finish_catch_up(catch_up, seq);
        }
        for publication in &page.publications {
            if self.core.turn.meter.is_spent() {
                return false;
            }
            self.replay(catch_up, publication);
            catch_up.at.offset += 1;
        }
        catch_up.at == page.position && self.finish_catch_up(catch_up, seq)
    }

    /// Has the broker make the topic ready again; whether the subscriber is done with, because the
    /// broker does not.
    fn await_catch_up(&mut self, catch_up: &CatchUp) -> bool {
        let wanted = Prepare {
            since: Some(catch_up.at),
            newest: 0,
        };
        let Err(refusal) = self.is_ready(&catch_up.name, wanted) else {
            return false;
        };
        let error = PublishError::from(refusal);
        self.reply(&ended(vec![catch_up.name.to_string()]));
        self.reply(&Reply::error(
            error.code(),
            format!("{}: {error}", catch_up.name),
        ));
        true
    }

    /// Sends one publication, if it passes the subscriber's filter.
    fn replay(&mut self, catch_up: &CatchUp, publication: &Publication) {
        let content = publication.content();
        self.core.turn.meter.spend(cost::ENTRY);
        if let Some(filter) = &catch_up.wanted.filter {
            self.core.turn.meter.spend(filter.match_cost(content.len()));
            if !filter.matches(content) {
                return;
            }
        }
        self.core
            .turn
            .meter
            .spend(cost::SEND + cost::bytes(publication.cost()));
        self.core.counters.publications_replayed.add(1);
        self.deliver(publication);
    }

    /// The history no longer has the next publication: the gap is reported, and the rest is live.
    fn tell_lost(&mut self, catch_up: &CatchUp, position: Position) {
        let is_same_epoch = position.epoch == catch_up.at.epoch;
        let range = is_same_epoch.then_some(GapRange {
            epoch: position.epoch,
            from: catch_up.at.offset + 1,
            to: position.offset,
        });
        let count = range.map_or(0, |range| range.to.saturating_sub(range.from) + 1);
        self.core.counters.gaps_reported.add(1);
        self.core.counters.publications_dropped.add(count);
        let gap = PublicationGap {
            topic: catch_up.name.to_string(),
            reason: GapReason::Dropped,
            count,
            range,
        };
        self.reply(&Reply::PublicationGap(gap));
    }

    /// Joins the topic; deliveries up to `seq` are not for the subscriber. Always true.
    fn finish_catch_up(&mut self, catch_up: &CatchUp, seq: u64) -> bool {
        let name = &catch_up.name;
        let (slot, _) = self.core.topics.enter(name, false);
        let bytes = subscription_bytes(name, catch_up.wanted.filter.as_deref());
        let limits = self.check_limits(slot, false);
        if let Err(words) = limits.and_then(|()| self.reserve(bytes)) {
            // Other subscriptions were made in between.
            self.reply(&ended(vec![name.to_string()]));
            let words = format!("{name}: {words}");
            self.reply(&Reply::error(ErrorCode::LimitExceeded, words));
            return true;
        }
        self.join(slot, name, &catch_up.wanted, (seq, None));
        let timings = &self.core.counters.timings;
        timings.recovery_duration.record(catch_up.started.elapsed());
        if self.core.shared.hub.rules.get().shows_presence(name) {
            let topics = vec![Arc::clone(name)];
            let data = catch_up.wanted.presence.clone();
            let announcement = Announcement::new(topics, data, None);
            self.state.work.jobs.push(Job::Announcement(announcement));
        }
        true
    }
}

/// Publications that are read from a history at a time.
const PAGE: usize = 64;

//! What a new subscriber gets before the live publications of a topic: what it has missed, page by page, so that a long
//! history and a costly filter keep nobody else waiting. The subscriber joins the topic when it has caught up.

use crate::limits::work::cost;
use crate::model::Position;
use crate::session::access::ended;
use crate::state::connection::ConnectionState;
use crate::state::core::Core;
use crate::state::jobs::{Announcement, CatchUp, Job};
use crate::state::topics::subscription_bytes;
use crate::topics::broker::Missed;
use crate::topics::name::is_pattern;
use crate::topics::publication::Publication;
use std::sync::Arc;
use tidewire_net::Io;
use tidewire_wire::codes::ErrorCode;
use tidewire_wire::session::{GapRange, GapReason, PublicationGap, Reply};

impl Core {
    /// Sends a page of what was missed; what is left. With nothing left the session has joined the topic.
    pub(crate) fn step_catch_up(
        &mut self,
        io: &mut Io,
        state: &mut ConnectionState,
        mut catch_up: Box<CatchUp>,
    ) -> Option<Box<CatchUp>> {
        if !state.can_subscribe() {
            return None;
        }
        if let Some(first) = catch_up.first.take() {
            self.replay(io, state, &catch_up, &first);
            return Some(catch_up);
        }
        self.meter.spend(cost::SUBSCRIBE);
        let name = Arc::clone(&catch_up.name);
        // While somebody here wants the topic no publication passes by between the page and the joining.
        let (slot, is_new) = self.topics.enter(&name, is_pattern(&name));
        if is_new {
            self.add_interest(&name, false);
        }
        let is_member = self.topics.is_member(slot, state.key.id);
        let has_joined = is_member || self.send_page(io, state, &mut catch_up);
        self.drop_unused(slot);
        (!has_joined).then_some(catch_up)
    }

    /// Sends a page and, if nothing comes behind it, joins the topic; whether it has.
    fn send_page(
        &mut self,
        io: &mut Io,
        state: &mut ConnectionState,
        catch_up: &mut CatchUp,
    ) -> bool {
        let missed = Missed {
            since: Some(catch_up.at),
            or_newest: false,
            limit: PAGE,
        };
        let moment = self.moment(io, state.owner);
        let Some((page, seq)) = self.shared.hub.recover(&catch_up.name, missed, moment) else {
            return self.finish_catch_up(io, state, catch_up, 0);
        };
        if !page.complete {
            self.tell_lost(io, state, catch_up, page.position);
            return self.finish_catch_up(io, state, catch_up, seq);
        }
        for publication in &page.publications {
            if self.meter.is_spent() {
                return false;
            }
            self.replay(io, state, catch_up, publication);
            catch_up.at.offset += 1;
        }
        catch_up.at == page.position && self.finish_catch_up(io, state, catch_up, seq)
    }

    /// Sends one publication, if the subscriber's filter takes it.
    fn replay(
        &mut self,
        io: &mut Io,
        state: &mut ConnectionState,
        catch_up: &CatchUp,
        publication: &Publication,
    ) {
        let content = publication.content();
        self.meter.spend(cost::ENTRY);
        if let Some(filter) = &catch_up.wanted.filter {
            self.meter.spend(filter.match_cost(content.len()));
            if !filter.matches(content) {
                return;
            }
        }
        self.meter
            .spend(cost::SEND + cost::bytes(publication.cost()));
        self.counters.publications_replayed.add(1);
        self.publish_to(io, state, publication);
    }

    /// The history no longer has what comes next: the gap is told, and the rest is live.
    fn tell_lost(
        &mut self,
        io: &mut Io,
        state: &mut ConnectionState,
        catch_up: &CatchUp,
        position: Position,
    ) {
        let is_same_epoch = position.epoch == catch_up.at.epoch;
        let range = is_same_epoch.then_some(GapRange {
            epoch: position.epoch,
            from: catch_up.at.offset + 1,
            to: position.offset,
        });
        let count = range.map_or(0, |range| range.to.saturating_sub(range.from) + 1);
        self.counters.gaps_told.add(1);
        self.counters.publications_dropped.add(count);
        let gap = PublicationGap {
            topic: catch_up.name.to_string(),
            reason: GapReason::Dropped,
            count,
            range,
        };
        self.reply(io, state, &Reply::PublicationGap(gap));
    }

    /// Joins the topic; deliveries up to `seq` are not for the subscriber. Always true.
    fn finish_catch_up(
        &mut self,
        io: &mut Io,
        state: &mut ConnectionState,
        catch_up: &CatchUp,
        seq: u64,
    ) -> bool {
        let name = &catch_up.name;
        let (slot, _) = self.topics.enter(name, false);
        let bytes = subscription_bytes(name, catch_up.wanted.filter.as_deref());
        let limits = self.check_limits(state, slot, false);
        if let Err(words) = limits.and_then(|()| self.reserve(state, bytes)) {
            // Other subscriptions have come in between.
            self.reply(io, state, &ended(vec![name.to_string()]));
            let words = format!("{name}: {words}");
            self.reply(io, state, &Reply::error(ErrorCode::LimitExceeded, words));
            return true;
        }
        self.join(state, slot, name, &catch_up.wanted, (seq, None));
        if self.shared.hub.rules.of(name).presence {
            let topics = vec![Arc::clone(name)];
            let data = catch_up.wanted.presence.clone();
            let announcement = Announcement::new(topics, data);
            state.jobs.push(Job::Announcement(announcement));
        }
        true
    }
}

/// Publications that are taken out of a history at a time.
const PAGE: usize = 64;

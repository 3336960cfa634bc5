//! Delivery of publications from the shard's outlet to its connections, once per turn.

use crate::clock::steady_now;
use crate::limits::work::{CONNECTION_WORK_PER_TURN, cost};
use crate::session::application::Application;
use crate::session::deliver::lags;
use crate::shard::EngineShard;
use crate::shard::delivery_budget::{Budget, DELIVERY_BYTES_PER_TURN, GATHERING_WORK_PER_ROUND};
use crate::shard::filtering::Filtered;
use crate::state::connection::Connection;
use crate::state::publishing::conflate_presence;
use crate::state::session_topics::SessionTopics;
use crate::topics::config::TopicLimits;
use crate::topics::form::Form;
use crate::topics::lag::{LagLimits, Next};
use crate::topics::local::{Gathered, Groups, Item, Pending, Slot};
use crate::topics::outlet::{Delivery, Target};
use crate::topics::publication::Publication;
use crate::topics::run::Run;
use std::sync::Arc;
use tidewire_net::{ConnectionId, Io, When};
use tidewire_wire::session::Reply;

impl<A: Application> EngineShard<A> {
    /// Delivers what has been published, but no more in one turn than the connections can wait for.
    pub(crate) fn deliver(&mut self, io: &mut Io) {
        let outlet = &self.core.shared.hub.outlets[self.core.index as usize];
        let known = self.core.topics.queue.len();
        if let Some(since) = outlet.take(&mut self.core.topics.queue) {
            let publications = self.core.topics.queue.len() - known;
            self.core.delivery_times.add(since, publications);
        }
        self.core.turn.published.start_turn();
        let mut budget = Budget::default();
        while self.report_skipped(io, &mut budget) && self.flush_pending(io, &mut budget) {
            let outlet = &self.core.shared.hub.outlets[self.core.index as usize];
            outlet.settle(std::mem::take(&mut self.core.topics.unsettled_bytes));
            if budget.is_over() || self.core.topics.queue.is_empty() {
                break;
            }
            self.gather_round(io, &mut budget);
            self.flush_all(io, &mut budget);
        }
        self.core.topics.is_behind = budget.is_spent();
        let peak = &self.core.counters.delivery_peak_us;
        peak.set(peak.load().max(budget.spent / 1_000));
    }

    /// Whether more deliveries wait than one turn has done.
    pub(crate) fn has_deliveries(&self) -> bool {
        self.core.shared.hub.outlets[self.core.index as usize].bytes() > 0
    }

    /// Puts publications into the batches of their topics: as many as the budget has room for, or
    /// up to one that some of its subscribers get by one subscription and some by another.
    fn gather_round(&mut self, io: &mut Io, budget: &mut Budget) {
        self.core.topics.round.start();
        // From here on, so that every round gathers something.
        let spent_max = budget.spent + GATHERING_WORK_PER_ROUND;
        while budget.bytes < DELIVERY_BYTES_PER_TURN
            && budget.spent < spent_max
            && !self.core.topics.round.is_over
            && let Some(delivery) = self.core.topics.queue.pop_front()
        {
            let cost = delivery.publication.cost();
            self.core.topics.unsettled_bytes += cost;
            budget.bytes += cost * self.deliver_one(io, delivery, budget);
        }
    }

    /// Delivers one publication, or puts it into the batches of its topics; to how many connections
    /// it goes.
    fn deliver_one(&mut self, io: &mut Io, delivery: Delivery, budget: &mut Budget) -> usize {
        let Delivery {
            seq,
            target,
            publication,
        } = delivery;
        match target {
            Target::Topic | Target::Patterns | Target::Pattern => {
                self.gather(io, seq, publication, budget, &target)
            }
            Target::Everyone => {
                for index in 0..self.connections.len() {
                    let session = self.connections[index].as_ref();
                    if let Some(id) = session.map(|session| session.state.key.id) {
                        self.send_to(io, id, &publication);
                    }
                }
                self.connections.len()
            }
            Target::User(user) => {
                let sessions = self.core.users.of(&user);
                for id in &sessions {
                    self.send_to(io, *id, &publication);
                }
                sessions.len()
            }
            Target::Connection(id) => {
                self.send_to(io, id, &publication);
                1
            }
            Target::Member(id, tag) => {
                // A member that has left gave its publications back when it left.
                if self.is_group_member(id, tag) {
                    self.send_to(io, id, &publication);
                }
                1
            }
        }
    }

    /// Puts a publication into the batches of those who subscribe to its topic: by name, by pattern,
    /// or both.
    fn gather(
        &mut self,
        io: &mut Io,
        seq: u64,
        publication: Arc<Publication>,
        budget: &mut Budget,
        target: &Target,
    ) -> usize {
        let Some(topic) = &publication.topic else {
            return 0;
        };
        let mut slots = std::mem::take(&mut self.slots);
        slots.clear();
        match target {
            Target::Pattern => slots.extend(self.core.topics.slot(topic)),
            target => {
                let by_name = matches!(target, Target::Topic);
                self.core.topics.find(topic, by_name, &mut slots);
            }
        }
        slots.retain(|slot| self.core.topics.is_due(*slot, seq));
        budget.spend(slots.len() as u64 * cost::MATCH);
        let mark = (slots.len() > 1).then(|| self.core.topics.mark(&slots));
        let item = Item { publication, mark };
        let mut receivers = 0;
        for slot in &slots {
            let mut gathered = self.core.topics.gather(*slot, seq, &item);
            if gathered == Gathered::AdmitFirst {
                self.flush(io, *slot, When::EndOfTurn, budget);
                // What the budget did not cover is for those who were there before.
                self.core.topics.admit(*slot, seq);
                gathered = self.core.topics.gather(*slot, seq, &item);
            }
            if let Gathered::Taken { subscribers } = gathered {
                receivers += subscribers as usize;
            }
        }
        self.slots = slots;
        receivers
    }

    fn is_group_member(&self, id: ConnectionId, tag: u32) -> bool {
        let session = self.connections.get(id.index()).and_then(Option::as_ref);
        session.is_some_and(|session| {
            let topics = session.state.topics.as_ref();
            session.state.key.id == id
                && topics.is_some_and(|topics| topics.groups.contains_key(&tag))
        })
    }

    /// Sends one publication to one session.
    fn send_to(&mut self, io: &mut Io, id: ConnectionId, publication: &Publication) {
        if let Some(mut session) = self.session(io, id)
            && session.state.unannounced.is_none()
        {
            session.deliver(publication);
        }
    }

    fn flush_all(&mut self, io: &mut Io, budget: &mut Budget) {
        let mut touched = std::mem::take(&mut self.core.topics.touched);
        // With one topic no connection gets anything else this turn that it could leave together
        // with.
        let when = if touched.len() == 1 {
            When::Now
        } else {
            When::EndOfTurn
        };
        for slot in &touched {
            self.flush(io, *slot, when, budget);
        }
        touched.clear();
        self.core.topics.touched = touched;
    }

    /// Sends the batch of a topic to its subscribers; for those that the budget does not cover it
    /// waits for the next turn.
    fn flush(&mut self, io: &mut Io, slot: Slot, when: When, budget: &mut Budget) {
        let Some(topic) = self.core.topics.topic_mut(slot) else {
            return;
        };
        let mut batch = std::mem::take(&mut topic.batch);
        if batch.is_empty() {
            return;
        }
        // Moved out of the topic while no session joins or leaves.
        let groups = std::mem::replace(&mut topic.groups, Groups::Empty);
        conflate_presence(&mut batch);
        self.core.replace_expired(steady_now(io), &mut batch);
        for (key, members) in groups.iter() {
            let filter = self.core.topics.filter(key.filter).cloned();
            let group = Pending {
                slot,
                form: key.form,
                filter,
                items: Vec::new(),
                members: Vec::new(),
            };
            let [first, then] = self.send_to_group(io, group, (&batch, members), when, budget);
            self.core.topics.pending.extend(first);
            self.core.topics.pending.extend(then);
        }
        if let Some(topic) = self.core.topics.topic_mut(slot) {
            topic.groups = groups;
        }
    }

    /// Goes on with what the turn before had no time for; whether all of it is done.
    fn flush_pending(&mut self, io: &mut Io, budget: &mut Budget) -> bool {
        while let Some(mut pending) = self.core.topics.pending.pop_front() {
            let mut members = std::mem::take(&mut pending.members);
            members.retain(|id| !self.core.topics.has_left(pending.slot, *id));
            let items = std::mem::take(&mut pending.items);
            let what = (&items[..], &members[..]);
            let [first, then] = self.send_to_group(io, pending, what, When::EndOfTurn, budget);
            for rest in then.into_iter().chain(first) {
                self.core.topics.pending.push_front(rest);
            }
            if budget.is_spent() && !self.core.topics.pending.is_empty() {
                return false;
            }
        }
        self.core.topics.left.clear();
        true
    }

    /// Sends what of `items` passes the group's filter to its members. What the budget does not
    /// cover is returned in its order: the rest of the members for what has passed, and all members
    /// for what the filter has yet to look at.
    fn send_to_group(
        &mut self,
        io: &mut Io,
        group: Pending,
        (items, members): (&[Item], &[ConnectionId]),
        when: When,
        budget: &mut Budget,
    ) -> [Option<Pending>; 2] {
        let (slot, form) = (group.slot, group.form);
        let left = |filter, items: &[Item], members: &[ConnectionId]| {
            let is_done = items.is_empty() || members.is_empty();
            (!is_done).then(|| Pending {
                slot,
                form,
                filter,
                items: items.to_vec(),
                members: members.to_vec(),
            })
        };
        if budget.is_spent() {
            return [left(group.filter, items, members), None];
        }
        let Some(filter) = group.filter else {
            let sent = self.send_group(io, (slot, form), members, items, when, budget);
            return [left(None, items, &members[sent..]), None];
        };
        let Filtered { passed, rest } = self.filter(slot, &filter, members, items, budget);
        let sent = self.send_group(io, (slot, form), members, &passed, when, budget);
        [
            left(None, &passed, &members[sent..]),
            left(Some(filter), &rest, members),
        ]
    }

    /// Sends publications to members of a group; to how many, which are all unless the budget ends
    /// before.
    fn send_group(
        &mut self,
        io: &mut Io,
        (slot, form): (Slot, Form),
        members: &[ConnectionId],
        items: &[Item],
        when: When,
        budget: &mut Budget,
    ) -> usize {
        if items.is_empty() {
            return members.len();
        }
        let Form::Shared { format, batches } = form else {
            for (index, id) in members.iter().enumerate() {
                if budget.is_spent() {
                    return index;
                } else if self.core.leaving.ended_sessions.contain(*id) {
                    continue;
                }
                budget.spend(cost::WRITE);
                match form {
                    Form::Lossy => self.send_lossy(io, slot, *id, items, budget),
                    _ => self.send_individually(io, *id, items, budget),
                }
            }
            return members.len();
        };
        let runs = if batches && items.len() > 1 {
            let unix_ms = io.now().unix_ms;
            Run::batched(items, format, unix_ms, || self.core.new_id(unix_ms))
        } else {
            Run::of(items, format)
        };
        let is_one_piece = runs.len() == 1;
        let when = if is_one_piece { when } else { When::EndOfTurn };
        let bytes: usize = runs.iter().map(|run| run.chunk.len()).sum();
        let each = cost::WRITE
            + match when {
                When::Now => cost::written(bytes),
                When::EndOfTurn => cost::bytes(bytes),
            };
        for (index, id) in members.iter().enumerate() {
            if budget.is_spent() {
                return index;
            }
            budget.spend(each);
            if self.core.leaving.ended_sessions.contain(*id) {
                continue;
            }
            let is_for_all = runs.iter().all(|run| run.is_for_all);
            if is_for_all || self.gets_all(io, *id, items) {
                self.send_runs(io, *id, &runs, when);
            } else {
                self.send_individually(io, *id, items, budget);
            }
        }
        members.len()
    }

    /// Whether a connection gets all of these publications in the form that it shares with others,
    /// and by this subscription.
    fn gets_all(&mut self, io: &mut Io, id: ConnectionId, items: &[Item]) -> bool {
        let Some(Some(Connection { state, .. })) = self.connections.get_mut(id.index()) else {
            return false;
        };
        let mut is_passed_over = |Item { publication, .. }: &Item| {
            publication.exclude.contains(state.key) || publication.is_volatile && lags(io, id)
        };
        if state.layers.is_some() || items.iter().any(&mut is_passed_over) {
            return false;
        }
        let round = self.core.topics.round.number;
        let topics = state.topics.as_mut();
        topics.is_some_and(|topics| {
            topics.slots.len() == 1
                || topics
                    .received
                    .take_all(round, items.iter().map(|item| item.mark))
        })
    }

    /// Sends chunks to a member of a group.
    fn send_runs(&mut self, io: &mut Io, id: ConnectionId, runs: &[Run], when: When) {
        for run in runs {
            if io.send_shared(id, &run.chunk, run.priority, when) {
                self.core.counters.deliveries.add(run.messages);
                self.core.counters.messages_sent.add(run.messages);
                self.core.counters.bytes_sent.add(run.payload_bytes);
            }
        }
    }

    /// Sends each publication to one connection by itself.
    fn send_individually(
        &mut self,
        io: &mut Io,
        id: ConnectionId,
        items: &[Item],
        budget: &mut Budget,
    ) {
        let Some(mut session) = self.session(io, id) else {
            return;
        };
        for item in items {
            if session.is_first_way(item) {
                budget.spend(cost::SEND + cost::bytes(item.publication.cost()));
                session.deliver(&item.publication);
            }
        }
    }

    /// Sends to a connection whose subscription has a policy for the time when it lags.
    fn send_lossy(
        &mut self,
        io: &mut Io,
        slot: Slot,
        id: ConnectionId,
        items: &[Item],
        budget: &mut Budget,
    ) {
        let limits = LagLimits::of(&self.core.setup.config.topics.limits);
        let Some(mut session) = self.session(io, id) else {
            return;
        };
        for item in items {
            if !session.is_first_way(item) || item.publication.exclude.contains(session.state.key) {
                continue;
            }
            budget.spend(cost::SEND + cost::bytes(item.publication.cost()));
            let lags = lags(session.io, id);
            let Some(topics) = &mut session.state.topics else {
                break;
            };
            let Some(lossy) = topics.lossy.get_mut(&slot) else {
                break;
            };
            if !lags && lossy.is_empty() {
                session.deliver(&item.publication);
            } else if item.publication.is_volatile {
                session.core.counters.deliveries_skipped.add(1);
            } else {
                if lossy.is_empty() {
                    topics.lagging.push_back(slot);
                }
                let others = topics.lagging_bytes - lossy.bytes();
                let room = LAG_SHARES * limits.bytes_max;
                let limits = LagLimits {
                    bytes_max: limits.bytes_max.min(room.saturating_sub(others)),
                    ..limits
                };
                budget.spend(cost::LAG);
                let dropped = lossy.push(Arc::clone(&item.publication), limits);
                topics.lagging_bytes = others + lossy.bytes();
                session.core.counters.publications_dropped.add(dropped);
            }
        }
    }

    /// Sends the publications that waited because a connection lagged, as far as it accepts them and the turn
    /// has time.
    pub(crate) fn send_waiting(&mut self, io: &mut Io, id: ConnectionId) {
        let Some(mut session) = self.session(io, id) else {
            return;
        };
        if !session.state.is_open() {
            return;
        }
        if session.core.topics.drained_work >= DRAINED_WORK_PER_TURN {
            return session.core.topics.drained.push(id);
        }
        let Some(mut topics) = session.state.topics.take() else {
            return;
        };
        let mut budget = Budget::default();
        while let Some(slot) = topics.lagging.front().copied() {
            if lags(session.io, id) {
                break;
            }
            let Some(next) = topics.next_waiting(slot) else {
                topics.lagging.pop_front();
                continue;
            };
            budget.spend(cost::LAG);
            match next {
                Next::Gap(gap) => {
                    budget.spend(cost::ANSWER);
                    session.core.counters.gaps_reported.add(1);
                    session.reply(&Reply::PublicationGap(gap));
                }
                Next::Publication(publication) => {
                    budget.spend(cost::SEND + cost::written(publication.cost()));
                    session.deliver(&publication);
                }
            }
            if budget.spent >= CONNECTION_WORK_PER_TURN {
                // The others are served first; the rest follows in the next turn.
                session.core.topics.drained.push(id);
                break;
            }
        }
        session.core.topics.drained_work += budget.spent;
        session.state.topics = Some(topics);
    }

    /// Goes on with those that had more waiting than a turn had time for.
    pub(crate) fn send_waiting_on(&mut self, io: &mut Io) {
        self.core.topics.drained_work = 0;
        let mut ids = std::mem::take(&mut self.core.topics.drained).into_iter();
        while self.core.topics.drained_work < DRAINED_WORK_PER_TURN
            && let Some(id) = ids.next()
        {
            self.send_waiting(io, id);
        }
        // Those that had no part of this turn are served before those that need another.
        let unfinished = std::mem::take(&mut self.core.topics.drained);
        self.core.topics.drained = ids.chain(unfinished).collect();
    }
}

impl SessionTopics {
    /// The next publication of a lagging subscription.
    fn next_waiting(&mut self, slot: Slot) -> Option<Next> {
        let lossy = self.lossy.get_mut(&slot)?;
        let others = self.lagging_bytes - lossy.bytes();
        let next = lossy.pop();
        self.lagging_bytes = others + lossy.bytes();
        next
    }
}

impl LagLimits {
    fn of(limits: &TopicLimits) -> Self {
        Self {
            publications_max: limits.lag_publications_max,
            bytes_max: limits.lag_bytes_max,
        }
    }
}

/// The work of a turn for all connections that lagged: 4 ms, and one connection's part.
const DRAINED_WORK_PER_TURN: u64 = 2 * CONNECTION_WORK_PER_TURN;

/// How many times what one lagging subscription may have waiting all of a connection may.
const LAG_SHARES: usize = 16;

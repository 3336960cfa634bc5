//! Queue groups: the work that this node requests for its members, in one call at a time for each group.
//!
//! Redis has the work of a topic's groups in a stream, and knows which node has which work. A node requests
//! as much as its members have room for, when a publication rings in the channel of the topic or a member has
//! room again. The node remembers its work until Redis has confirmed that it is done or handed back. After a
//! lost connection the node compares its work with the list in Redis, and hands back the work that it never
//! received.

use crate::connection::{ErrorKind, ServerError};
use crate::layout::{NodeId, Position};
use crate::link::Link;
use crate::link::event::Event;
use crate::link::options::{Now, Slot};
use crate::link::state::Tag;
use crate::resp::{Value, command};
use crate::script::{
    JoinCall, JoinReply, LeaveCall, LeaveReply, UnknownReply, WorkCall, WorkReply,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// A topic and the name of a group.
pub(super) type GroupKey = (Arc<str>, Arc<str>);

/// The groups that this node has members of.
#[derive(Debug, Default)]
pub(super) struct Groups {
    all: BTreeMap<GroupKey, Group>,
    /// Those that may have something to ask of Redis.
    due: VecDeque<GroupKey>,
    /// Calls that are not answered.
    flights: usize,
    hold_until_ms: u64,
}

#[derive(Debug, Default)]
struct Group {
    /// This node has members.
    is_wanted: bool,
    /// Redis has this node in the group.
    is_in: bool,
    /// Redis may have this node in the group: a join was sent, and no leave was confirmed.
    may_be_in: bool,
    /// This node had joined, and has not left since.
    was_in: bool,
    /// The next reply confirms that this node is in.
    owes_joined: bool,
    is_due: bool,
    /// The request that is not answered.
    call: Option<Call>,
    /// The room of the members.
    room: usize,
    /// There may be work.
    is_rung: bool,
    done: Vec<Position>,
    handed_back: Vec<Position>,
    /// The work of the node as far as Redis knows.
    held: BTreeSet<Position>,
    /// Where to continue the comparison with the work that Redis lists for this node.
    compare: Option<Position>,
}

#[derive(Debug)]
pub(super) enum Call {
    Join,
    Leave,
    Compare,
    Work {
        done: Vec<Position>,
        handed_back: Vec<Position>,
        count: usize,
    },
}

impl Group {
    /// The next request, if any.
    fn next_call(&mut self) -> Option<Call> {
        if self.call.is_some() {
            return None;
        }
        match (self.is_wanted, self.is_in) {
            (true, false) => return Some(Call::Join),
            (false, false) => return self.may_be_in.then_some(Call::Leave),
            (_, true) => {}
        }
        let can_take = self.is_wanted && self.is_rung && self.room > 0;
        if !self.done.is_empty() || !self.handed_back.is_empty() || can_take {
            let some = |ids: &mut Vec<Position>| {
                let rest = ids.split_off(ids.len().min(IDS_AT_A_TIME));
                std::mem::replace(ids, rest)
            };
            self.is_rung &= !can_take;
            return Some(Call::Work {
                done: some(&mut self.done),
                handed_back: some(&mut self.handed_back),
                count: if can_take {
                    self.room.min(WORK_AT_A_TIME)
                } else {
                    0
                },
            });
        }
        match self.is_wanted {
            false => Some(Call::Leave),
            true => self.compare.map(|_| Call::Compare),
        }
    }

    /// The request may be done or not: it is sent again.
    fn retry(&mut self, call: Call) {
        if let Call::Work {
            done, handed_back, ..
        } = call
        {
            self.done.extend(done);
            self.handed_back.extend(handed_back);
            self.is_rung = true;
        }
    }

    /// Redis may know something else of the group than this node.
    fn doubt(&mut self) {
        self.compare = Some(Position::default());
        self.is_rung = true;
    }
}

impl Link {
    pub(super) fn want_group(&mut self, topic: &Arc<str>, group: &Arc<str>) {
        let key = (Arc::clone(topic), Arc::clone(group));
        let group = self.groups.all.entry(key.clone()).or_default();
        group.is_wanted = true;
        if group.is_in && !matches!(group.call, Some(Call::Leave)) {
            self.events.push_back(Event::GroupJoined {
                topic: key.0,
                group: key.1,
                can_join: true,
            });
            return;
        }
        group.owes_joined = true;
        self.make_due(key);
    }

    pub(super) fn unwant_group(&mut self, topic: &Arc<str>, group: &Arc<str>) {
        let key = (Arc::clone(topic), Arc::clone(group));
        if let Some(group) = self.groups.all.get_mut(&key)
            && std::mem::take(&mut group.is_wanted)
        {
            self.make_due(key);
        }
    }

    pub(super) fn set_room(&mut self, topic: &Arc<str>, group: &Arc<str>, room: usize) {
        let key = (Arc::clone(topic), Arc::clone(group));
        if let Some(group) = self.groups.all.get_mut(&key) {
            group.room = room;
            if room > 0 && group.is_rung {
                self.make_due(key);
            }
        }
    }

    pub(super) fn end_work(
        &mut self,
        topic: &Arc<str>,
        group: &Arc<str>,
        done: &[Position],
        handed_back: &[Position],
    ) {
        let key = (Arc::clone(topic), Arc::clone(group));
        if let Some(group) = self.groups.all.get_mut(&key) {
            let is_held = |id: &&Position| group.held.contains(id);
            group.done.extend(done.iter().filter(is_held));
            group.handed_back.extend(handed_back.iter().filter(is_held));
            self.make_due(key);
        }
    }

    /// There may be work for the groups of a topic.
    pub(super) fn ring_groups(&mut self, topic: &str) {
        if self.groups.all.is_empty() {
            return;
        }
        let from: GroupKey = (topic.into(), "".into());
        let groups = self.groups.all.range_mut(from..);
        let groups = groups.take_while(|((name, _), _)| **name == *topic);
        let mut rung = Vec::new();
        for (key, group) in groups {
            group.is_rung = true;
            if group.room > 0 && group.call.is_none() {
                rung.push(key.clone());
            }
        }
        for key in rung {
            self.make_due(key);
        }
    }

    fn make_due(&mut self, key: GroupKey) {
        if let Some(group) = self.groups.all.get_mut(&key)
            && !std::mem::replace(&mut group.is_due, true)
        {
            self.groups.due.push_back(key);
        }
    }

    /// The lease had ended, or Redis has lost its memory: the node may be in no group any more.
    pub(super) fn register_groups(&mut self) {
        for group in self.groups.all.values_mut() {
            group.is_in = false;
            group.doubt();
        }
        self.make_all_due();
    }

    /// The connection for commands is gone: the calls sent on it may be done or not.
    pub(super) fn lose_groups(&mut self) {
        self.groups.flights = 0;
        self.groups.hold_until_ms = 0;
        for group in self.groups.all.values_mut() {
            if let Some(call) = group.call.take() {
                group.retry(call);
            }
            group.doubt();
        }
        self.make_all_due();
    }

    fn make_all_due(&mut self) {
        let keys: Vec<_> = self.groups.all.keys().cloned().collect();
        for key in keys {
            self.make_due(key);
        }
    }

    pub(super) fn tick_groups(&mut self, now: Now) {
        if self.groups.hold_until_ms <= now.ms {
            self.groups.hold_until_ms = 0;
        }
        let is_held = self.lease.is_held && !self.lease.is_leaving;
        while is_held
            && self.fencing.is_fenced
            && self.groups.hold_until_ms == 0
            && self.groups.flights < CALLS_IN_FLIGHT
            && self.slots.is_ready(Slot::Command)
            && let Some(key) = self.groups.due.pop_front()
        {
            let Some(group) = self.groups.all.get_mut(&key) else {
                continue;
            };
            group.is_due = false;
            match group.next_call() {
                Some(call) => self.send_call(key, call, now),
                None if !group.is_wanted && !group.may_be_in && group.call.is_none() => {
                    self.groups.all.remove(&key);
                }
                None => {}
            }
        }
    }

    fn send_call(&mut self, key: GroupKey, call: Call, now: Now) {
        let deadline_ms = now.ms + self.options.command_ms;
        let layout = &self.names.layout;
        let own_key = layout.node_groups(self.node);
        let (groups_key, idle_key) = (layout.groups(), layout.idle_groups());
        let channel = layout.sent(&layout.stream(&key.0));
        let fence = self.fencing.fence.clone().unwrap_or_default();
        let (node, generation) = (self.node, self.fencing.generation);
        let from = self.groups.all.get(&key).and_then(|group| group.compare);
        let tag = Tag::Group(key.clone());
        let Some(connection) = self.slots.ready(Slot::Command) else {
            return;
        };
        let (topic, group) = (&*key.0, &*key.1);
        let (names, hashes) = (&self.names, &self.hashes);
        let group_keys = [groups_key.as_slice(), &idle_key, &own_key];
        connection.send(tag, deadline_ms, |out| match &call {
            Call::Join => JoinCall {
                node_keys: [&names.lease, &names.writer, &names.fence],
                group_keys,
                node,
                generation,
                fence: &fence,
                topic,
                group,
                groups_max: self.options.groups_per_topic_max,
            }
            .write(hashes, out),
            Call::Leave => LeaveCall {
                writer_key: &names.writer,
                group_keys,
                channel: &channel,
                node,
                generation,
                topic,
                group,
            }
            .write(hashes, out),
            Call::Compare => {
                let stream = [&*groups_key, b":", topic.as_bytes()].concat();
                write_compare(&stream, group, node, from.unwrap_or_default(), out);
            }
            Call::Work {
                done,
                handed_back,
                count,
            } => WorkCall {
                writer_key: &names.writer,
                groups_key: &groups_key,
                own_key: &own_key,
                channel: &channel,
                node,
                generation,
                topic,
                group,
                count: *count as u64,
                done,
                handed_back,
            }
            .write(hashes, out),
        });
        self.counters.group_calls += 1;
        self.groups.flights += 1;
        if let Some(group) = self.groups.all.get_mut(&key) {
            group.may_be_in |= matches!(call, Call::Join);
            group.call = Some(call);
        }
    }

    pub(super) fn handle_group(
        &mut self,
        key: GroupKey,
        result: Result<Value<'_>, ServerError>,
        now: Now,
    ) {
        self.groups.flights = self.groups.flights.saturating_sub(1);
        let Some(group) = self.groups.all.get_mut(&key) else {
            return;
        };
        let Some(call) = group.call.take() else {
            return;
        };
        self.make_due(key.clone());
        let value = match result {
            Ok(value) => value,
            Err(error) => return self.handle_refused_group(&key, call, &error, now),
        };
        let read = match &call {
            Call::Join => JoinReply::read(value).map(|reply| self.handle_joined(&key, reply)),
            Call::Leave => LeaveReply::read(value).map(|reply| self.handle_left(&key, reply)),
            Call::Compare => self.handle_compared(&key, value),
            Call::Work { .. } => {
                WorkReply::read(value).map(|reply| self.handle_work(&key, &call, reply))
            }
        };
        match read {
            Ok(true) => {}
            Ok(false) => {
                self.groups.hold_until_ms = now.ms + HOLD_MS;
                self.retry_group(&key, call);
            }
            Err(error) => {
                self.counters.malformed += 1;
                self.health.reason = Some(error.to_string());
                self.groups.hold_until_ms = now.ms + HOLD_MS;
                if let Some(group) = self.groups.all.get_mut(&key) {
                    group.doubt();
                }
                self.retry_group(&key, call);
            }
        }
    }

    fn retry_group(&mut self, key: &GroupKey, call: Call) {
        if let Some(group) = self.groups.all.get_mut(key) {
            group.retry(call);
        }
    }

    fn handle_refused_group(&mut self, key: &GroupKey, call: Call, error: &ServerError, now: Now) {
        if let Some(group) = self.groups.all.get_mut(key) {
            if error.kind == ErrorKind::NoGroup {
                group.compare = None;
            } else if !error.is_refusal() {
                group.doubt();
            }
            group.retry(call);
        }
        match error.kind {
            // The next call for work finds that the group is gone.
            ErrorKind::NoGroup => {}
            ErrorKind::NoScript => self.load_scripts(Slot::Command, now),
            _ if error.is_wrong_server() => self.give_up_all(&error.to_string(), now),
            _ => {
                self.health.reason = Some(error.to_string());
                self.groups.hold_until_ms = now.ms + HOLD_MS;
            }
        }
    }

    /// False if it is to be asked again.
    fn handle_joined(&mut self, key: &GroupKey, reply: JoinReply) -> bool {
        let can_join = match reply {
            JoinReply::Joined | JoinReply::New => true,
            JoinReply::Full => false,
            JoinReply::WrongType => {
                self.health.reason = Some(WRONG_TYPE.to_owned());
                false
            }
            JoinReply::Lost => {
                // The next probe gets a lease, and finds that this one was lost.
                self.lease.is_held = false;
                self.clock.next_probe_ms = 0;
                return false;
            }
            JoinReply::Stale => return false,
            JoinReply::Fenced => {
                self.lose_fence();
                return false;
            }
        };
        let Some(group) = self.groups.all.get_mut(key) else {
            return true;
        };
        group.is_in = can_join;
        group.may_be_in = can_join;
        group.is_rung |= can_join;
        group.is_wanted &= can_join;
        let (topic, name) = key.clone();
        if std::mem::replace(&mut group.was_in, can_join) && reply != JoinReply::Joined {
            self.events.push_back(Event::Work {
                topic: Arc::clone(&topic),
                group: Arc::clone(&name),
                lost: None,
                works: Vec::new(),
            });
        }
        if std::mem::take(&mut group.owes_joined) || !can_join {
            self.events.push_back(Event::GroupJoined {
                topic,
                group: name,
                can_join,
            });
        }
        true
    }

    fn handle_left(&mut self, key: &GroupKey, reply: LeaveReply) -> bool {
        if reply == LeaveReply::Left
            && let Some(group) = self.groups.all.get_mut(key)
        {
            group.is_in = false;
            group.may_be_in = false;
            group.was_in = false;
            group.held.clear();
            group.compare = None;
        }
        reply != LeaveReply::Stale
    }

    /// Compares some of the work that Redis lists for this node: work that the node never received goes to
    /// others.
    fn handle_compared(&mut self, key: &GroupKey, value: Value<'_>) -> Result<bool, UnknownReply> {
        let Some(group) = self.groups.all.get_mut(key) else {
            return Ok(true);
        };
        let entries = value.items();
        group.compare = None;
        let (mut count, mut last) = (0, Position::default());
        for entry in entries {
            let id = entry.items().next().and_then(Value::text);
            last = id.and_then(Position::parse).ok_or(UnknownReply)?;
            count += 1;
            if !group.held.contains(&last) {
                group.held.insert(last);
                group.handed_back.push(last);
            }
        }
        if count >= IDS_AT_A_TIME {
            group.compare = Some(last);
        }
        Ok(true)
    }

    fn handle_work(&mut self, key: &GroupKey, call: &Call, reply: WorkReply) -> bool {
        let (
            Some(group),
            Call::Work {
                done,
                handed_back,
                count,
            },
        ) = (self.groups.all.get_mut(key), call)
        else {
            return true;
        };
        let (lost, has_more, mut works) = match reply {
            WorkReply::Done {
                lost,
                has_more,
                works,
            } => (lost, has_more, works),
            WorkReply::Lost => {
                group.is_in = false;
                group.may_be_in = false;
                group.doubt();
                return false;
            }
            WorkReply::Stale => return false,
        };
        for id in done.iter().chain(handed_back) {
            group.held.remove(id);
        }
        group.is_rung |= has_more && *count > 0;
        // Work may return before this node knows that it was given to others: a member here still has it.
        works.retain(|work| group.held.insert(work.id));
        // Redis may have lost which node had the work that is older than the last fence: it calls such work new.
        let fence = self.fencing.fence.as_ref();
        let least_epoch = fence.map_or(0, |fence| fence.least_epoch);
        for work in &mut works {
            work.is_again |= work.id.epoch < least_epoch;
        }
        group.room = group.room.saturating_sub(works.len());
        self.counters.works += works.len() as u64;
        if works.is_empty() && lost == Some(0) {
            return true;
        }
        let (topic, name) = key.clone();
        self.events.push_back(Event::Work {
            topic,
            group: name,
            lost,
            works,
        });
        true
    }

    pub(super) fn groups_deadline_ms(&self) -> Option<u64> {
        let hold = Some(self.groups.hold_until_ms).filter(|at| *at != 0);
        hold.filter(|_| !self.groups.due.is_empty() && self.lease.is_held)
    }
}

/// Asks which entries a node has, from behind an id on.
fn write_compare(stream: &[u8], group: &str, node: NodeId, from: Position, out: &mut Vec<u8>) {
    let (from, count) = (format!("({from}"), IDS_AT_A_TIME.to_string());
    let (group, from, count) = (group.as_bytes(), from.as_bytes(), count.as_bytes());
    let node = node.to_string();
    let arguments = [stream, group, from, b"+", count, node.as_bytes()];
    let mut all: Vec<&[u8]> = vec![b"XPENDING"];
    all.extend(arguments);
    command(out, &all);
}

/// Ids of one call.
const IDS_AT_A_TIME: usize = 500;

/// Publications that one call requests.
const WORK_AT_A_TIME: usize = 256;

/// Calls that are not answered.
const CALLS_IN_FLIGHT: usize = 32;

/// How long the link waits after Redis refused a call.
const HOLD_MS: u64 = 100;

const WRONG_TYPE: &str =
    "a key of queue groups in Redis has another type; something else writes below the prefix";

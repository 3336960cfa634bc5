//! Presence: the users of this node as Redis has them, and the users on the topics that this node follows.
//!
//! Redis stores for each topic the presence of each user at every node. A node sends a change as the state
//! that is true now, so that a repeated change does no harm. Nothing is refreshed, because the data of a node
//! lives as long as its lease. A change reaches all nodes through the channel of its topic, with the version
//! before it. A node that follows a topic reads once who is there, and reads again where a version is missing
//! or the connection was new.

use crate::connection::{ErrorKind, ServerError};
use crate::layout::NodeId;
use crate::link::Link;
use crate::link::event::{Event, Present};
use crate::link::options::{Now, Slot};
use crate::link::state::{Progress, Tag};
use crate::resp::{Value, command};
use crate::script::{
    Change, Member, PRESENCE_MAX, PresenceCall, PresenceReply, RosterCall, RosterReply,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// The presence of this node's users, and the topics that it follows.
#[derive(Debug, Default)]
pub(super) struct Presence {
    own: BTreeMap<OwnKey, Own>,
    /// To be sent to Redis.
    changed: BTreeSet<OwnKey>,
    /// Those of which only the number of connections is another. They are sent together.
    counted: BTreeSet<OwnKey>,
    counted_due_ms: Option<u64>,
    /// Sent and not answered.
    flight: BTreeMap<u64, Vec<OwnKey>>,
    calls: u64,
    hold_until_ms: u64,
    followed: BTreeMap<Arc<str>, Followed>,
    /// Topics to be read, and in which round.
    to_read: VecDeque<(Arc<str>, u64)>,
    /// The same for topics that were read before. They wait when Redis may have lost its memory, until the
    /// other nodes have sent their data again.
    to_read_again: VecDeque<(Arc<str>, u64)>,
    read_again_ms: u64,
    /// Where to go on reading what Redis has of this node.
    scan: Option<Vec<u8>>,
    rounds: u64,
    /// The change that was reported last because it may match a pattern.
    last_matched: Option<(Arc<str>, u64)>,
}

/// A topic and a user.
type OwnKey = (Arc<str>, Arc<str>);

#[derive(Debug, Default)]
struct Own {
    /// `None`: the user is gone, and Redis does not know it yet.
    present: Option<Present>,
    /// Calls that are not answered.
    calls: u64,
}

#[derive(Debug, Default)]
struct Followed {
    /// Changes whenever the answers to earlier requests have no meaning any more.
    round: u64,
    /// The last change that was reported; `None` while the members are read.
    version: Option<u64>,
    /// It was read once.
    was_live: bool,
    /// The members that were read so far, and the version at the beginning.
    cursor: u64,
    read: Option<(u64, BTreeMap<MemberKey, Member>)>,
    /// Changes that arrived meanwhile.
    ahead: Vec<Change>,
    ahead_bytes: usize,
    has_overflowed: bool,
}

type MemberKey = (Arc<str>, NodeId);

impl Presence {
    /// The connection for reads is gone with this question.
    pub(super) fn ask_again(&mut self, topic: Arc<str>, round: u64) {
        self.to_read.push_back((topic, round));
    }
}

impl Link {
    pub(super) fn set_own(
        &mut self,
        topic: &Arc<str>,
        user: &Arc<str>,
        present: Option<Present>,
        now: Now,
    ) {
        let key = (Arc::clone(topic), Arc::clone(user));
        let presence = &mut self.presence;
        let own = presence.own.entry(key.clone()).or_default();
        if own.present == present {
            if present.is_none() {
                presence.changed.insert(key);
            }
            return;
        }
        let is_count = match (&own.present, &present) {
            (Some(before), Some(after)) => before.data == after.data,
            _ => false,
        };
        own.present = present;
        if is_count && !presence.changed.contains(&key) {
            presence.counted.insert(key);
            presence
                .counted_due_ms
                .get_or_insert(now.ms + COUNTED_EVERY_MS);
        } else {
            presence.counted.remove(&key);
            presence.changed.insert(key);
        }
    }

    /// Sends everything to Redis again, and looks for entries there that this node does not have.
    pub(super) fn register_presence(&mut self, now: Now) {
        self.presence.read_again_ms = now.ms + OTHERS_MS;
        let presence = &mut self.presence;
        presence.changed.extend(presence.own.keys().cloned());
        presence.counted.clear();
        presence.scan = Some(b"0".to_vec());
        self.read_presence_again();
    }

    pub(super) fn tick_presence(&mut self, now: Now) {
        let presence = &mut self.presence;
        if presence.counted_due_ms.is_some_and(|at| at <= now.ms) {
            presence.counted_due_ms = None;
            presence.changed.append(&mut presence.counted);
        }
        if presence.hold_until_ms <= now.ms {
            presence.hold_until_ms = 0;
        }
        if self.lease.is_held && !self.lease.is_leaving && presence.hold_until_ms == 0 {
            self.tell_changes(now);
        }
        // Whether Redis has lost its memory is known when the lease was renewed.
        if self.reading.hold_until_ms <= now.ms && self.lease.is_held {
            self.send_rosters(now);
            self.send_scan(now);
        }
    }

    fn tell_changes(&mut self, now: Now) {
        let deadline_ms = now.ms + self.options.command_ms;
        let presence = &mut self.presence;
        while self.fencing.is_fenced
            && !presence.changed.is_empty()
            && presence.flight.len() < PRESENCE_CALLS_IN_FLIGHT
            && let Some(connection) = self.slots.ready(Slot::Command)
        {
            let mut keys = Vec::new();
            while keys.len() < PRESENCE_MAX
                && let Some(key) = presence.changed.pop_first()
            {
                if let Some(own) = presence.own.get_mut(&key) {
                    own.calls += 1;
                    keys.push(key);
                }
            }
            let changes = keys.iter().map(|key| {
                let present = presence.own.get(key).and_then(|own| own.present.as_ref());
                let connections = present.map_or(0, |present| present.connections);
                let data = present.and_then(|present| present.data.as_deref());
                (&*key.0, &*key.1, connections, data)
            });
            let call = PresenceCall {
                lease_key: &self.names.lease,
                writer_key: &self.names.writer,
                own_key: &self.names.layout.node_members(self.node),
                node: self.node,
                generation: self.fencing.generation,
                prefixes: &self.names.layout.presence_prefixes(),
                changes: &changes.collect::<Vec<_>>(),
            };
            presence.calls += 1;
            let tag = Tag::Presence(presence.calls);
            connection.send(tag, deadline_ms, |out| call.write(&self.hashes, out));
            self.counters.presence_calls += 1;
            presence.flight.insert(presence.calls, keys);
        }
    }

    pub(super) fn handle_presence(
        &mut self,
        number: u64,
        result: Result<Value<'_>, ServerError>,
        now: Now,
    ) {
        let keys = self.presence.flight.remove(&number).unwrap_or_default();
        let is_done = match result.map(PresenceReply::read) {
            Ok(Ok(PresenceReply::Done)) => true,
            Ok(Ok(PresenceReply::Lost)) => {
                // The next probe gets a lease, and finds that this one was lost.
                self.lease.is_held = false;
                self.clock.next_probe_ms = 0;
                false
            }
            Ok(Ok(PresenceReply::Stale)) => false,
            Ok(Ok(PresenceReply::WrongType)) => {
                self.health.reason = Some(WRONG_TYPE.to_owned());
                true
            }
            Ok(Err(_)) => {
                self.counters.malformed += 1;
                true
            }
            Err(error) if error.kind == ErrorKind::NoScript => {
                self.load_scripts(Slot::Command, now);
                false
            }
            Err(error) if error.is_wrong_server() => {
                self.give_up_all(&error.to_string(), now);
                false
            }
            Err(error) => {
                self.health.reason = Some(error.to_string());
                self.presence.hold_until_ms = now.ms + HOLD_MS;
                false
            }
        };
        self.end_call(keys, is_done);
    }

    fn end_call(&mut self, keys: Vec<OwnKey>, is_done: bool) {
        let presence = &mut self.presence;
        for key in keys {
            let Some(own) = presence.own.get_mut(&key) else {
                continue;
            };
            own.calls = own.calls.saturating_sub(1);
            if !is_done {
                presence.changed.insert(key);
            } else if own.present.is_none() && own.calls == 0 && !presence.changed.contains(&key) {
                presence.own.remove(&key);
            }
        }
    }

    /// The connection for commands is gone: the changes sent on it may be done or not.
    pub(super) fn lose_presence_calls(&mut self) {
        for keys in std::mem::take(&mut self.presence.flight).into_values() {
            self.end_call(keys, false);
        }
    }

    /// Looks what Redis has of this node, after it may have got its memory from elsewhere.
    fn send_scan(&mut self, now: Now) {
        let deadline_ms = now.ms + self.options.command_ms;
        let key = self.names.layout.node_members(self.node);
        if self.presence.scan.is_some()
            && let Some(connection) = self.slots.ready(Slot::Read)
            && let Some(cursor) = self.presence.scan.take()
        {
            connection.send(Tag::OwnScan, deadline_ms, |out| {
                command(out, &[b"SSCAN", &key, &cursor, b"COUNT", b"1000"]);
            });
        }
    }

    pub(super) fn handle_scan(&mut self, result: Result<Value<'_>, ServerError>, now: Now) {
        let value = match result {
            Ok(value) => value,
            Err(error) => {
                self.presence.scan = Some(b"0".to_vec());
                return self.handle_refused_read(&error, now);
            }
        };
        let mut items = value.items();
        let cursor = items.next().and_then(Value::text).unwrap_or(b"0");
        for item in items.next().into_iter().flat_map(Value::items) {
            let Some(key) = item.text().and_then(own_key) else {
                self.counters.malformed += 1;
                continue;
            };
            if !self.presence.own.contains_key(&key) {
                self.presence.own.insert(key.clone(), Own::default());
                self.presence.changed.insert(key);
            }
        }
        if cursor != b"0" {
            self.presence.scan = Some(cursor.to_vec());
        }
    }

    /// The connection for reads is gone.
    pub(super) fn lose_scan(&mut self) {
        self.presence.scan = Some(b"0".to_vec());
    }

    pub(super) fn follow(&mut self, topic: &Arc<str>) {
        if self.presence.followed.contains_key(topic) {
            return;
        }
        let followed = Followed::default();
        self.presence.followed.insert(Arc::clone(topic), followed);
        let id = self.topics.ids.get(topic);
        let topic_state = id.and_then(|id| self.topics.all.get(id));
        if topic_state.is_some_and(|state| state.progress != Progress::Subscribing) {
            self.begin_roster(topic);
        }
    }

    pub(super) fn unfollow(&mut self, topic: &str) {
        self.presence.followed.remove(topic);
    }

    /// The channel of a topic is subscribed to from here on: who is there is read, if it is followed.
    pub(super) fn begin_roster(&mut self, topic: &str) {
        let presence = &mut self.presence;
        let Some((name, _)) = presence.followed.get_key_value(topic) else {
            return;
        };
        let name = Arc::clone(name);
        presence.rounds += 1;
        let round = presence.rounds;
        let Some(followed) = presence.followed.get_mut(topic) else {
            return;
        };
        let was_live = followed.was_live;
        *followed = Followed {
            round,
            was_live,
            ..Followed::default()
        };
        match was_live {
            true => presence.to_read_again.push_back((name, round)),
            false => presence.to_read.push_back((name, round)),
        }
    }

    /// Redis may have lost who is there.
    fn read_presence_again(&mut self) {
        let names: Vec<_> = self.presence.followed.keys().cloned().collect();
        for name in names {
            let id = self.topics.ids.get(&name);
            let topic = id.and_then(|id| self.topics.all.get(id));
            if topic.is_some_and(|topic| topic.progress != Progress::Subscribing) {
                self.begin_roster(&name);
            }
        }
    }

    /// The connection for subscriptions is gone: all is read again when there is another.
    pub(super) fn lose_rosters(&mut self) {
        self.presence.to_read.clear();
        self.presence.to_read_again.clear();
        for followed in self.presence.followed.values_mut() {
            *followed = Followed {
                was_live: followed.was_live,
                ..Followed::default()
            };
        }
    }

    fn send_rosters(&mut self, now: Now) {
        let deadline_ms = now.ms + self.options.command_ms;
        if self.presence.read_again_ms <= now.ms {
            self.presence.read_again_ms = 0;
            let presence = &mut self.presence;
            presence.to_read.append(&mut presence.to_read_again);
        }
        while self.has_read_room()
            && let Some((topic, round)) = self.presence.to_read.pop_front()
        {
            let Some(followed) = self.presence.followed.get(&topic) else {
                continue;
            };
            if followed.round != round {
                continue;
            }
            let call = RosterCall {
                members_key: &self.names.layout.members(&topic),
                cursor: followed.cursor,
                count: ROSTER_COUNT,
            };
            self.counters.presence_reads += 1;
            if let Some(connection) = self.slots.ready(Slot::Read) {
                let tag = Tag::Roster(topic, round);
                connection.send(tag, deadline_ms, |out| call.write(&self.hashes, out));
            }
        }
    }

    pub(super) fn handle_roster(
        &mut self,
        topic: Arc<str>,
        round: u64,
        result: Result<Value<'_>, ServerError>,
        now: Now,
    ) {
        let followed = self.presence.followed.get_mut(&topic);
        let Some(followed) = followed.filter(|followed| followed.round == round) else {
            return;
        };
        let reply = match result.map(RosterReply::read) {
            Ok(Ok(reply)) => reply,
            Ok(Err(_)) => {
                self.counters.malformed += 1;
                self.presence.to_read.push_back((topic, round));
                self.reading.hold_until_ms = now.ms + HOLD_MS;
                return;
            }
            Err(error) => {
                self.presence.to_read.push_back((topic, round));
                return self.handle_refused_read(&error, now);
            }
        };
        let (_, members) = followed
            .read
            .get_or_insert_with(|| (reply.version, BTreeMap::new()));
        for member in reply.members {
            members.insert((Arc::clone(&member.user), member.node), member);
        }
        followed.cursor = reply.cursor;
        if reply.cursor != 0 {
            self.presence.to_read.push_front((topic, round));
        } else if !self.end_roster(&topic) {
            self.begin_roster(&topic);
        }
    }

    /// All members are read; the changes that arrived meanwhile follow. False if one of them is missing.
    fn end_roster(&mut self, topic: &Arc<str>) -> bool {
        let Some(followed) = self.presence.followed.get_mut(topic) else {
            return true;
        };
        let Some((mut version, mut members)) = followed.read.take() else {
            return false;
        };
        for change in std::mem::take(&mut followed.ahead) {
            if change.version <= version {
                continue;
            }
            match change.before {
                0 => members.clear(),
                before if before == version => {}
                _ => return false,
            }
            version = change.version;
            let member = change.member;
            let key = (Arc::clone(&member.user), member.node);
            match member.connections {
                0 => members.remove(&key),
                _ => members.insert(key, member),
            };
        }
        if followed.has_overflowed {
            return false;
        }
        followed.ahead_bytes = 0;
        followed.version = Some(version);
        followed.was_live = true;
        let members = members.into_values().collect();
        let topic = Arc::clone(topic);
        self.events
            .push_back(Event::PresenceRead { topic, members });
        true
    }

    /// A change of a topic that is subscribed to.
    pub(super) fn handle_change(&mut self, topic: &str, message: &[u8]) {
        let bytes_max = self.options.ahead_bytes_max;
        let Some((name, _)) = self.presence.followed.get_key_value(topic) else {
            return;
        };
        let name = Arc::clone(name);
        let Some(change) = Change::read(message) else {
            self.counters.malformed += 1;
            return self.begin_roster(topic);
        };
        let Some(followed) = self.presence.followed.get_mut(topic) else {
            return;
        };
        let Some(version) = followed.version else {
            followed.ahead_bytes += message.len() + size_of::<Change>();
            if followed.ahead_bytes > bytes_max {
                followed.has_overflowed = true;
            } else {
                followed.ahead.push(change);
            }
            return;
        };
        if change.version <= version {
            self.counters.stale += 1;
            if change.before == 0 {
                // It is old, or Redis has lost the topic and its clock was set back.
                self.begin_roster(topic);
            }
            return;
        }
        if change.before == version {
            followed.version = Some(change.version);
            let member = change.member;
            let event = Event::PresenceChanged {
                topic: name,
                member,
            };
            self.events.push_back(event);
        } else if change.before == 0 {
            // Nobody was there before, whatever was reported.
            followed.version = Some(change.version);
            let members = vec![change.member];
            let event = Event::PresenceRead {
                topic: name,
                members,
            };
            self.events.push_back(event);
        } else {
            self.begin_roster(topic);
        }
    }

    /// A change that matches a pattern; whether it was one. It is reported if nothing else brings it.
    pub(super) fn handle_matched_change(&mut self, topic: &str, message: &[u8]) -> bool {
        if !Change::is_one(message) {
            return false;
        }
        let followed = self.presence.followed.get(topic);
        if followed.is_some_and(|followed| followed.was_live) {
            return true;
        }
        let Some(change) = Change::read(message) else {
            self.counters.malformed += 1;
            return true;
        };
        // While the globs change, two of them may match; the two copies arrive one behind the other.
        let last = (Arc::from(topic), change.version);
        if self.presence.last_matched.as_ref() != Some(&last) {
            self.presence.last_matched = Some(last.clone());
            self.events.push_back(Event::PresenceMatched {
                topic: last.0,
                seen: change.seen,
                member: change.member,
            });
        }
        true
    }

    pub(super) fn presence_deadline_ms(&self) -> Option<u64> {
        let hold = Some(self.presence.hold_until_ms).filter(|at| *at != 0);
        let hold = hold.filter(|_| !self.presence.changed.is_empty() && self.lease.is_held);
        let again = Some(self.presence.read_again_ms).filter(|at| *at != 0 && self.lease.is_held);
        // A refused read holds all reads; the deadline of reads has that.
        let again = again.filter(|_| self.reading.hold_until_ms == 0);
        [self.presence.counted_due_ms, hold, again]
            .into_iter()
            .flatten()
            .min()
    }
}

/// Reads `<length of the topic>:<topic><user>`.
fn own_key(name: &[u8]) -> Option<OwnKey> {
    let name = std::str::from_utf8(name).ok()?;
    let (length, rest) = name.split_once(':')?;
    let (topic, user) = rest.split_at_checked(length.parse().ok()?)?;
    Some((topic.into(), user.into()))
}

/// The interval at which changes of only the number of connections are sent.
const COUNTED_EVERY_MS: u64 = 1_000;

/// Calls that are not answered.
const PRESENCE_CALLS_IN_FLIGHT: usize = 8;

/// How long the other nodes need until they have sent their data again.
const OTHERS_MS: u64 = 2_000;

const WRONG_TYPE: &str =
    "a key of presence in Redis has another type; something else writes below the prefix";

/// How long the link waits after Redis refused a change.
const HOLD_MS: u64 = 100;

/// Members that are read at a time.
const ROSTER_COUNT: u64 = 1_000;

//! The three connections: opened with a growing pause, given up when a reply is late, replaced together when they
//! reach different processes.

use crate::connection::{Connection, Incoming, Login, Scripts, ServerError};
use crate::link::Link;
use crate::link::event::{Action, Event};
use crate::link::options::{Now, Slot};
use crate::link::state::{Phase, Tag};
use crate::resp::{Frames, Limits, Value};
use crate::script::{Hashes, sources};
use std::ops::ControlFlow;

impl Link {
    pub(super) fn handle_connected(&mut self, slot: Slot, now: Now) {
        if !matches!(self.slots.each[slot.index()].phase, Phase::Opening { .. }) {
            return;
        }
        let login = Login {
            user: self.options.user.clone(),
            password: self.options.password.clone(),
            database: self.options.database,
            name: self.connection_name(slot),
        };
        let scripts: Scripts = if slot == Slot::Subscribe {
            |_| &[]
        } else {
            sources
        };
        let connection = Connection::open(&login, scripts, now.ms + self.options.command_ms);
        let state = &mut self.slots.each[slot.index()];
        state.phase = Phase::Up(Box::new(connection));
        state.frames = Frames::new(Limits::default());
    }

    /// In `CLIENT LIST`: the node, the connection, and the partition if there are several.
    fn connection_name(&self, slot: Slot) -> String {
        let name = format!("tidewire-{}-{}", self.node, slot.name());
        let partition = self.options.partition;
        match partition.count() {
            1 => name,
            _ => format!("{name}-{}", partition.index()),
        }
    }

    pub(super) fn handle_bytes(&mut self, slot: Slot, bytes: &[u8], now: Now) {
        if self.slots.get(slot).is_none() {
            return;
        }
        let nothing = Frames::new(Limits::default());
        let mut frames = std::mem::replace(&mut self.slots.each[slot.index()].frames, nothing);
        let read = frames.read(bytes, |value| self.handle_value(slot, value, now));
        if self.slots.get(slot).is_none() {
            return;
        }
        match read {
            Ok(()) => self.slots.each[slot.index()].frames = frames,
            Err(error) => {
                self.counters.malformed += 1;
                self.give_up(slot, &error.to_string(), now);
            }
        }
    }

    /// Breaks if the connection is not used any more.
    fn handle_value(&mut self, slot: Slot, value: Value<'_>, now: Now) -> ControlFlow<()> {
        let deadline_ms = now.ms + self.options.command_ms;
        let Some(connection) = self.slots.get_mut(slot) else {
            return ControlFlow::Break(());
        };
        match connection.handle_value(value, deadline_ms) {
            Ok(Incoming::Setup) => {}
            Ok(Incoming::Ready) => self.handle_ready(slot, now),
            Ok(Incoming::Push(value)) => self.handle_push(value, now),
            Ok(Incoming::Reply(tag, result)) => self.handle_reply(slot, tag, result, now),
            Err(error) => self.give_up(slot, &error.to_string(), now),
        }
        match self.slots.get(slot) {
            Some(_) => ControlFlow::Continue(()),
            None => ControlFlow::Break(()),
        }
    }

    fn handle_reply(
        &mut self,
        slot: Slot,
        tag: Tag,
        result: Result<Value<'_>, ServerError>,
        now: Now,
    ) {
        match tag {
            Tag::Agree => self.handle_agreed(result, now),
            Tag::Fence => self.handle_fence(result, now),
            Tag::Send(number) => self.handle_sent(number, result),
            Tag::Publish(number) => self.handle_published(number, result, now),
            Tag::Lease {
                sent_unix_ms,
                sent_ms,
            } => {
                self.handle_lease((sent_unix_ms, sent_ms), result, now);
            }
            Tag::Ping => {
                if let Err(error) = result {
                    self.give_up(slot, &error.to_string(), now);
                }
            }
            Tag::Subscribe(ids) => {
                if let Err(error) = result {
                    self.handle_refused_topics(ids, &error, now);
                }
            }
            Tag::Listen(channels) => {
                if let Err(error) = result {
                    self.handle_refused_channels(&channels, &error, now);
                }
            }
            Tag::Watch => {
                if let Err(error) = result {
                    self.handle_refused_globs(&error, now);
                }
            }
            Tag::Tails(rounds) => self.handle_tails(&rounds, result, now),
            Tag::CatchUp(round) => self.handle_catch_up(round, result, now),
            Tag::Renew(round) => self.handle_renewed(round, result, now),
            Tag::Presence(number) => self.handle_presence(number, result, now),
            Tag::Roster(topic, round) => self.handle_roster(topic, round, result, now),
            Tag::Group(key) => self.handle_group(key, result, now),
            Tag::OpenProducer(opening) => self.handle_opened(opening, result, now),
            Tag::KeepProducers(keeps) => self.handle_kept(keeps, result, now),
            Tag::OwnScan => self.handle_scan(result, now),
            Tag::Sweep(node) => self.handle_swept(node, result, now),
            Tag::Nodes => self.handle_nodes(result, now),
            Tag::Page(topic, reads) => self.handle_page(&topic, reads, result, now),
            Tag::Forget(forget) => self.handle_forgotten(forget, result, now),
        }
    }

    fn handle_ready(&mut self, slot: Slot, now: Now) {
        let run_id = |slot| {
            self.slots
                .get(slot)
                .map(|connection| connection.server().run_id.as_str())
        };
        let own = run_id(slot);
        let differs = |other: &Slot| self.slots.is_ready(*other) && run_id(*other) != own;
        if Slot::ALL.iter().any(differs) {
            self.give_up_all("the connections reach different processes of Redis", now);
            return;
        }
        if let Some(connection) = self.slots.get(slot) {
            let form = connection.server().pub_sub();
            if form != self.pub_sub {
                self.pub_sub = form;
                self.hashes = Hashes::new(form);
            }
        }
        match slot {
            Slot::Command => self.describe_server(),
            Slot::Subscribe => self.begin_listening(now),
            Slot::Read => {}
        }
    }

    fn describe_server(&mut self) {
        let Some(connection) = self.slots.get(Slot::Command) else {
            return;
        };
        let server = connection.server();
        let policy = server.eviction_policy.as_deref();
        let warning = match policy {
            Some("noeviction") | None => None,
            Some(policy) => Some(format!(
                "maxmemory-policy is {policy}: Redis may evict topics; set it to noeviction"
            )),
        };
        self.health.version = Some(server.version.clone());
        self.health.is_durable = self.is_durable(server);
        self.health.warning = warning;
    }

    /// The owner reports that a connection is gone.
    pub(super) fn handle_closed(&mut self, slot: Slot, reason: &str, now: Now) {
        if !matches!(self.slots.each[slot.index()].phase, Phase::Waiting { .. }) {
            self.lose(slot, reason, now);
        }
    }

    /// The link closes a connection itself.
    pub(super) fn give_up(&mut self, slot: Slot, reason: &str, now: Now) {
        if !matches!(self.slots.each[slot.index()].phase, Phase::Waiting { .. }) {
            self.slots.actions.push_back(Action::Close(slot));
            self.lose(slot, reason, now);
        }
    }

    pub(super) fn give_up_all(&mut self, reason: &str, now: Now) {
        for slot in Slot::ALL {
            self.give_up(slot, reason, now);
        }
    }

    fn lose(&mut self, slot: Slot, reason: &str, now: Now) {
        self.counters.disconnects += 1;
        let state = &mut self.slots.each[slot.index()];
        self.health.reason = Some(match state.phase {
            // It is the same for all connections.
            Phase::Opening { .. } => reason.to_owned(),
            _ => format!("connection {}: {reason}", slot.name()),
        });
        let pause_ms = (PAUSE_MIN_MS << state.failures.min(10)).min(PAUSE_MAX_MS);
        state.failures += 1;
        let until_ms = now.ms + pause_ms / 2 + self.random.below(pause_ms / 2 + 1);
        let before = std::mem::replace(&mut state.phase, Phase::Waiting { until_ms });
        let tags = match before {
            Phase::Up(connection) => connection.into_pending().collect(),
            _ => Vec::new(),
        };
        match slot {
            Slot::Command => {
                self.lose_sends(&tags);
                self.lose_commands();
                self.lose_presence_calls();
                self.lose_groups();
                self.lose_lease();
                self.lose_producers(tags);
            }
            Slot::Subscribe => self.lose_subscriptions(),
            Slot::Read => self.lose_reads(tags),
        }
    }

    /// The connections work: the next failure waits for a short time only.
    pub(super) fn forgive_failures(&mut self) {
        for state in &mut self.slots.each {
            state.failures = 0;
        }
    }

    pub(super) fn tick_slots(&mut self, now: Now) {
        for slot in Slot::ALL {
            match &self.slots.each[slot.index()].phase {
                Phase::Waiting { until_ms } if *until_ms <= now.ms => {
                    let deadline_ms = now.ms + self.options.command_ms;
                    self.slots.each[slot.index()].phase = Phase::Opening { deadline_ms };
                    self.slots.actions.push_back(Action::Open(slot));
                }
                Phase::Opening { deadline_ms } if *deadline_ms <= now.ms => {
                    self.give_up(
                        slot,
                        "the address does not answer; is Redis running there?",
                        now,
                    );
                }
                Phase::Up(_) if self.up_deadline_ms(slot).is_some_and(|at| at <= now.ms) => {
                    let waited_ms = self.options.command_ms;
                    let reason = format!("Redis has not answered a command for {waited_ms} ms");
                    self.give_up(slot, &reason, now);
                }
                _ => {}
            }
        }
        self.ask_fence(now);
    }

    /// When a reply is late. On a connection that the owner does not read none is: it may have arrived.
    fn up_deadline_ms(&self, slot: Slot) -> Option<u64> {
        let is_paused = slot == Slot::Subscribe && self.clock.is_paused;
        self.slots.get(slot).filter(|_| !is_paused)?.deadline_ms()
    }

    pub(super) fn slots_deadline_ms(&self) -> Option<u64> {
        let deadline = |slot: &Slot| match &self.slots.each[slot.index()].phase {
            Phase::Waiting { until_ms } => Some(*until_ms),
            Phase::Opening { deadline_ms } => Some(*deadline_ms),
            Phase::Up(_) => self.up_deadline_ms(*slot),
        };
        let deadlines = Slot::ALL.iter().filter_map(deadline);
        deadlines.chain(self.fencing.begins_ms).min()
    }

    pub(super) fn tick_health(&mut self) {
        let is_ready = Slot::ALL.iter().all(|slot| self.slots.is_ready(*slot));
        let is_connected = is_ready && self.fencing.is_fenced && self.clock.is_proven;
        if is_connected != self.health.is_connected {
            self.health.is_connected = is_connected;
            if is_connected {
                self.health.reason = None;
                self.forgive_failures();
            }
        }
        if self.health != self.told_health {
            self.told_health = self.health.clone();
            self.events.push_back(Event::Health(self.health.clone()));
        }
    }
}

/// The pause before the second attempt to connect.
const PAUSE_MIN_MS: u64 = 50;

/// The longest pause between two attempts.
const PAUSE_MAX_MS: u64 = 2_000;

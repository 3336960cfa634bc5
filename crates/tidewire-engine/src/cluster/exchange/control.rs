//! Commands to all servers: sent, executed in their order, and executed from the log after a time without the
//! broker.
//!
//! They are publications of a topic with history. A server that was cut off reads the commands that it has
//! missed, and one that has just begun reads those that were sent since its beginning: it may have accepted a
//! user before it reached the broker.

use super::{Exchange, TOPIC_IDLE_MS};
use crate::cluster::commands::COMMAND_BYTES;
use crate::topics::broker::{Control, Ticket};
use std::collections::VecDeque;
use tidewire_redis as redis;
use tidewire_redis::{Draft, Keep, Now, PageQuery, Position};
use tidewire_wire::close::CloseCode;

/// The commands of the other servers.
#[derive(Debug, Default)]
pub(super) struct Orders {
    /// The topic of commands is subscribed to.
    is_wanted: bool,
    /// When this server began, in milliseconds since 1970.
    began_unix_ms: u64,
    /// The position of the last delivered command.
    head: Option<Position>,
    past: Past,
    /// The commands that are not done yet, in their order, each with its time, in milliseconds since 1970.
    waiting: VecDeque<(Control, Option<u64>)>,
    /// A shard had no room for the first of them; it is tried again then.
    retry_ms: Option<u64>,
    /// How often commands were lost.
    pub(super) losses: u64,
}

/// The commands from before this server followed the log.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Past {
    /// The end of the log is not known.
    #[default]
    Unknown,
    /// They are to be read up to this position, at this time.
    Due(Position, u64),
    /// They are being read up to this position, by the read of this number.
    Reading(Position, u64),
    /// They have been read.
    Known,
}

impl Orders {
    pub(super) fn deadline_ms(&self) -> Option<u64> {
        let due_ms = match self.past {
            Past::Due(_, at_ms) => Some(at_ms),
            _ => None,
        };
        due_ms.into_iter().chain(self.retry_ms).min()
    }
}

impl Exchange {
    /// Follows the log, and does what waits.
    pub(super) fn tick_orders(&mut self, now: Now) {
        if !self.link.partition().is_first() {
            return;
        }
        if !std::mem::replace(&mut self.orders.is_wanted, true) {
            self.orders.began_unix_ms = now.unix_ms;
            self.link.want(&CONTROL.into(), CONTROL_HISTORY, now);
        }
        if let Past::Due(head, at_ms) = self.orders.past
            && at_ms <= now.ms
        {
            let number = self.next_number();
            self.orders.past = Past::Reading(head, number);
            let query = PageQuery {
                since: None,
                limit: PAST_MAX,
                newest_first: true,
                creates: None,
            };
            self.link.read(number, &CONTROL.into(), query, now);
        }
        if self.orders.retry_ms.is_some_and(|at_ms| at_ms <= now.ms) {
            self.obey_waiting(now);
        }
    }

    /// Sends a command to the other servers.
    pub(super) fn tell(&mut self, json: &[u8], ticket: Ticket, now: Now) {
        let number = self.next_number();
        self.asked
            .told
            .insert(number, (ticket, json.len() + COMMAND_BYTES));
        let draft = Draft {
            category: redis::Category::Update,
            priority: redis::Priority::Normal,
            ttl_ms: None,
            excluded: None,
            also_excluded: &[],
            t: "control",
            id: None,
            key: None,
            volatile: false,
            binary: false,
            payload: json,
        };
        self.link
            .publish(number, &CONTROL.into(), CONTROL_HISTORY, &draft, now);
    }

    /// The log is followed from here on.
    pub(super) fn begin_orders(&mut self, head: Option<Position>, now: Now) {
        self.orders.head = head;
        if let (Past::Unknown, Some(head)) = (self.orders.past, head) {
            self.orders.past = Past::Due(head, now.ms);
        }
    }

    /// Receives the commands from before this server followed the log. Returns false for the answer to another read.
    pub(super) fn take_past(
        &mut self,
        number: u64,
        outcome: &Result<redis::Entries, redis::Refusal>,
        now: Now,
    ) -> bool {
        let Past::Reading(head, reading) = self.orders.past else {
            return false;
        };
        if reading != number {
            return false;
        }
        let Ok(entries) = outcome else {
            self.orders.past = Past::Due(head, now.ms + READ_AGAIN_MS);
            return true;
        };
        let since_ms = self.orders.began_unix_ms.saturating_sub(MARGIN_MS);
        let mut past = VecDeque::new();
        // To the first one of all, or to one from before the beginning of this server.
        let oldest = entries.entries.last();
        let mut has_end = oldest.is_none_or(|(oldest, _)| oldest.offset <= 1);
        for (position, record) in &entries.entries {
            let Some((control, told_ms)) = self.read_order(record) else {
                continue;
            };
            if told_ms.is_some_and(|told_ms| told_ms < since_ms) {
                has_end = true;
                break;
            }
            // Later commands were delivered.
            if let (true, Some(control)) = (*position <= head, control) {
                past.push_front((control, told_ms));
            }
        }
        self.orders.past = Past::Known;
        past.append(&mut self.orders.waiting);
        self.orders.waiting = past;
        if !has_end {
            self.lose_orders("too many were told before the broker was reached", now);
        }
        self.obey_waiting(now);
        true
    }

    /// Executes a command that another server sent to all servers.
    pub(super) fn take_order(&mut self, position: Option<Position>, record: &[u8], now: Now) {
        self.orders.head = position.or(self.orders.head);
        let Some((Some(control), told_ms)) = self.read_order(record) else {
            return;
        };
        if self.orders.waiting.len() >= WAITING_MAX {
            self.orders.waiting.clear();
            self.lose_orders("a shard has had no room for them", now);
        }
        self.orders.waiting.push_back((control, told_ms));
        self.obey_waiting(now);
    }

    /// Publications of the log are missing.
    pub(super) fn note_lost_orders(&mut self, head: Option<Position>, now: Now) {
        let epoch = |position: Option<Position>| position.map(|position| position.epoch);
        let before = std::mem::replace(&mut self.orders.head, head);
        if epoch(before) == epoch(head) {
            self.lose_orders("the broker keeps no more of them", now);
            self.obey_waiting(now);
        } else {
            self.orders.losses += 1;
            tracing::warn!("commands of other servers may be lost: the broker lost its data");
        }
    }

    /// Revocations of rights may be lost: all sessions end, and their clients return with their tokens.
    fn lose_orders(&mut self, reason: &str, now: Now) {
        self.orders.losses += 1;
        tracing::warn!(
            reason,
            "commands of other servers are lost: all sessions end"
        );
        let control = Control::CloseAll {
            code: CloseCode::SERVICE_RESTART.value(),
            reason: "the server has missed commands".to_owned(),
        };
        let waiting = &mut self.orders.waiting;
        waiting.push_back((control, Some(now.unix_ms)));
    }

    /// Does what waits, until a shard has no room.
    pub(super) fn obey_waiting(&mut self, now: Now) {
        self.orders.retry_ms = None;
        // In their order: the past first.
        if self.orders.past != Past::Known {
            return;
        }
        let Some(server) = &self.server else {
            return;
        };
        while let Some((control, told_ms)) = self.orders.waiting.front() {
            if !server.0.obey(control.clone(), *told_ms) {
                self.orders.retry_ms = Some(now.ms + RETRY_MS);
                return;
            }
            self.orders.waiting.pop_front();
        }
    }

    /// A command and the time when it was sent, in milliseconds since 1970; without the command if it is this
    /// server's own or cannot be read.
    fn read_order(&self, record: &[u8]) -> Option<(Option<Control>, Option<u64>)> {
        let Ok(record) = redis::Record::decode(record) else {
            tracing::error!("a command of another server cannot be read");
            return None;
        };
        let told_redis_ms = record.published_redis_ms;
        let told_ms = told_redis_ms.map(|at_ms| self.link.to_unix_ms(at_ms));
        if record.mark.node == self.link.node() {
            return Some((None, told_ms));
        }
        let control = serde_json::from_slice(record.payload);
        let control = control.inspect_err(
            |error| tracing::error!(%error, "a command of another server cannot be read"),
        );
        Some((control.ok(), told_ms))
    }
}

/// The topic of commands to all servers; no client's topic has such a name.
pub(crate) const CONTROL: &str = "\u{1}control";

/// The kept history of commands: it covers what a server has missed while its link was down.
pub(super) const CONTROL_HISTORY: redis::History = Some(Keep {
    publications_max: 10_000,
    idle_ms: TOPIC_IDLE_MS,
});

/// Commands that are read from before the log was followed.
const PAST_MAX: usize = 1_000;

/// Commands that wait for a shard.
const WAITING_MAX: usize = 10_000;

/// How long before the beginning of this server a command may have been sent and still count, in
/// milliseconds: the comparison of the clocks is not exact.
const MARGIN_MS: u64 = 2_000;

/// How long the exchange waits after a read of the log that was refused, in milliseconds.
const READ_AGAIN_MS: u64 = 1_000;

/// How long the exchange waits for room in a shard, in milliseconds.
const RETRY_MS: u64 = 5;

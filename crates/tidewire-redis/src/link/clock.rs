//! The probe: each second a number goes through Redis from one connection to the other.
//!
//! It finds what an idle connection hides: a subscription that is dead although its socket is not, a process that was
//! emptied, a lease that was lost. Its reply also has the time of Redis.

use crate::connection::{ErrorKind, ServerError};
use crate::layout::number;
use crate::link::Link;
use crate::link::event::Event;
use crate::link::options::{Now, Slot};
use crate::link::state::{Clock, Tag};
use crate::resp::Value;
use crate::script::{LeaseCall, LeaseReply};

impl Clock {
    pub(super) fn set_redis_ms(&mut self, redis_ms: u64, now: Now) {
        self.ahead_ms = redis_ms
            .cast_signed()
            .wrapping_sub(now.unix_ms.cast_signed());
    }
}

impl Link {
    pub(super) fn tick_clock(&mut self, now: Now) {
        if self.clock.expected_ms.is_some_and(|at| at <= now.ms) && !self.clock.is_paused {
            let reason =
                "a probe did not come back through the subscription; both connections are renewed";
            self.give_up(Slot::Command, reason, now);
            self.give_up(Slot::Subscribe, reason, now);
            return;
        }
        if !self.can_probe() || self.clock.next_probe_ms > now.ms {
            return;
        }
        self.clock.next_probe_ms = now.ms + PROBE_EVERY_MS;
        self.clock.probe += 1;
        if self.clock.expected_ms.is_none() {
            self.clock.expected_ms = Some(now.ms + PROBE_MS);
        }
        let call = LeaseCall {
            lease_key: &self.names.lease,
            fence_key: &self.names.fence,
            inbox: &self.names.inbox,
            lease_ms: LEASE_MS,
            probe: self.clock.probe,
            nodes_key: &self.names.layout.nodes(),
            groups_key: &self.names.layout.groups(),
            idle_groups_key: &self.names.layout.idle_groups(),
            node: self.node,
            info: &self.lease.info,
        };
        let tag = Tag::Lease {
            sent_unix_ms: now.unix_ms,
            sent_ms: now.ms,
        };
        let deadline_ms = now.ms + self.options.command_ms;
        if let Some(connection) = self.slots.ready(Slot::Command) {
            connection.send(tag, deadline_ms, |out| call.write(&self.hashes, out));
        }
    }

    pub(super) fn clock_deadline_ms(&self) -> Option<u64> {
        let expected = self.clock.expected_ms.filter(|_| !self.clock.is_paused);
        let next = self.can_probe().then_some(self.clock.next_probe_ms);
        expected.into_iter().chain(next).min()
    }

    pub(super) fn handle_lease(
        &mut self,
        (sent_unix_ms, sent_ms): (u64, u64),
        result: Result<Value<'_>, ServerError>,
        now: Now,
    ) {
        let reply = match result {
            Ok(value) => LeaseReply::read(value),
            Err(error) => {
                match error.kind {
                    ErrorKind::NoScript => self.load_scripts(Slot::Command, now),
                    _ if error.is_wrong_server() => self.give_up_all(&error.to_string(), now),
                    _ => {
                        self.note_refused_write(&error);
                        self.health.reason = Some(error.to_string());
                    }
                }
                return;
            }
        };
        let Ok(reply) = reply else {
            self.counters.malformed += 1;
            return;
        };
        // Redis answered half a round trip after the probe was sent.
        let half_ms = (now.ms - sent_ms) / 2;
        let before_ms = self.clock.ahead_ms;
        self.clock.set_redis_ms(
            reply.redis_ms,
            Now {
                ms: 0,
                unix_ms: sent_unix_ms + half_ms,
            },
        );
        self.note_step(before_ms, half_ms);
        self.end_refused_writes();
        self.agreement.note_stamp(&reply.agreed);
        if reply.fence != self.fencing.fence {
            self.lose_fence();
        }
        self.note_lease(reply.held, reply.ended, now);
    }

    /// Reports a step of the clock of Redis, which was `before_ms` ahead until now. The answer with its new
    /// time had a round trip of twice `half_ms`.
    pub(super) fn note_step(&mut self, before_ms: i64, half_ms: u64) {
        let step_ms = self.clock.ahead_ms.wrapping_sub(before_ms);
        if step_ms.unsigned_abs() > STEP_MS_MIN.max(2 * half_ms) {
            self.counters.clock_steps += 1;
            self.events.push_back(Event::ClockStepped(step_ms));
        }
    }

    fn can_probe(&self) -> bool {
        self.fencing.is_fenced && self.clock.has_inbox && !self.lease.is_leaving
    }

    /// A message on the channel of this node.
    pub(super) fn handle_inbox(&mut self, message: &[u8], now: Now) {
        let Some(probe) = message.strip_prefix(b"p").and_then(number) else {
            self.counters.malformed += 1;
            return;
        };
        self.counters.probes += 1;
        if probe == self.clock.probe {
            self.clock.expected_ms = None;
            self.clock.is_proven = true;
        } else if self.clock.expected_ms.is_some() {
            // An earlier one: the way is open, and the latest is on it.
            self.clock.expected_ms = Some(now.ms + PROBE_MS);
        }
    }

    pub(super) fn resume_reading(&mut self, now: Now) {
        self.clock.is_paused = false;
        if self.clock.expected_ms.is_some() {
            self.clock.expected_ms = Some(now.ms + PROBE_MS);
        }
        if let Some(connection) = self.slots.get_mut(Slot::Subscribe) {
            connection.extend(now.ms + self.options.command_ms);
        }
    }

    pub(super) fn lose_probe(&mut self) {
        self.clock.expected_ms = None;
        self.clock.is_proven = false;
        self.clock.next_probe_ms = 0;
    }
}

/// Less than that is no step of a clock but the time of an answer.
const STEP_MS_MIN: u64 = 1_000;

const PROBE_EVERY_MS: u64 = 1_000;

/// The time limit of a probe.
const PROBE_MS: u64 = 3_000;

/// How long the lease of a node holds without a probe.
pub(super) const LEASE_MS: u64 = 10_000;

//! The fence: which process of Redis the epochs belong to.
//!
//! The first script of each connection that publishes is the fence. Until it is answered nothing is published and
//! nothing is read, so that a process with other data is noticed before it is used.
//!
//! A new least epoch is the next quarter of a second, and is used when that time is reached. So no epoch is
//! ever greater than the time of its use, and a process that has lost everything, even the list of its
//! epochs, begins another one.

use crate::connection::{ErrorKind, ServerError, ServerInfo};
use crate::link::Link;
use crate::link::agreement::{Allowed, NOT_BY_FIRST};
use crate::link::options::{Lineage, Now, Slot};
use crate::link::state::Tag;
use crate::resp::Value;
use crate::script::{Fence, FenceCall, FenceReply};

impl Link {
    pub(super) fn is_durable(&self, server: &ServerInfo) -> bool {
        self.options.lineage == Lineage::Single && server.syncs_always && server.replicas == 0
    }

    /// Sends the fence if the connection is new or another fence was found.
    pub(super) fn ask_fence(&mut self, now: Now) {
        if let Some(begins_ms) = self.fencing.begins_ms {
            if begins_ms <= now.ms {
                self.fencing.begins_ms = None;
                self.fencing.is_fenced = true;
            }
            return;
        }
        // Before the fence, which uses the durability of the least confident node.
        let is_joined = self.slots.is_ready(Slot::Command) && self.ask_agreement(now);
        if self.fencing.is_fenced || self.fencing.is_asking || !is_joined {
            return;
        }
        if self.agreement.allowed != Allowed::Use && !self.options.partition.is_first() {
            self.health.reason = Some(NOT_BY_FIRST.to_owned());
            return;
        }
        let Some(server) = self.slots.get(Slot::Command).map(|it| it.server().clone()) else {
            return;
        };
        let handover = self.fencing.handover.as_ref();
        let handover = handover.filter(|handover| handover.to == server.run_id);
        self.fencing.is_asking = true;
        self.fencing.generation += 1;
        let call = FenceCall {
            fence_key: &self.names.fence,
            writer_key: &self.names.writer,
            run_id: &server.run_id,
            is_durable: self.is_durable(&server),
            known_epoch: self.fencing.known_epoch,
            generation: self.fencing.generation,
            handed_over_by: handover.map_or(&[], |handover| &handover.from),
        };
        let deadline_ms = now.ms + self.options.command_ms;
        if let Some(connection) = self.slots.get_mut(Slot::Command) {
            connection.send(Tag::Fence, deadline_ms, |out| call.write(&self.hashes, out));
        }
    }

    /// A script found another fence: ask again.
    pub(super) fn lose_fence(&mut self) {
        self.fencing.is_fenced = false;
        self.agreement.doubt();
    }

    pub(super) fn handle_fence(&mut self, result: Result<Value<'_>, ServerError>, now: Now) {
        self.fencing.is_asking = false;
        let reply = match result {
            Ok(value) => FenceReply::read(value).map_err(|error| error.to_string()),
            Err(error) => {
                if error.kind == ErrorKind::NoScript {
                    self.load_scripts(Slot::Command, now);
                    return;
                }
                Err(error.to_string())
            }
        };
        let reply = match reply {
            Ok(reply) => reply,
            Err(reason) => {
                self.give_up_all(&reason, now);
                return;
            }
        };
        let Some(connection) = self.slots.get(Slot::Command) else {
            return;
        };
        let fence = Fence {
            run_id: connection.server().run_id.clone(),
            least_epoch: reply.least_epoch,
        };
        let before_ms = self.clock.ahead_ms;
        self.clock.set_redis_ms(reply.redis_ms, now);
        if self.fencing.fence.is_some() {
            self.note_step(before_ms, 0);
        }
        match reply.early_ms() {
            0 => self.fencing.is_fenced = true,
            early_ms => self.fencing.begins_ms = Some(now.ms + early_ms),
        }
        self.saw_epoch(fence.least_epoch);
        let before = self.fencing.fence.replace(fence);
        if before.is_some_and(|before| before.least_epoch != reply.least_epoch) {
            self.counters.lineages += 1;
            self.begin_lineage();
        }
        self.reading.hold_until_ms = 0;
    }

    /// The earlier data of Redis may be lost.
    fn begin_lineage(&mut self) {
        self.publishing.settled = 0;
        self.publishing.epochs.clear();
        self.sync_all();
        self.doubt_lease();
    }

    pub(super) fn saw_epoch(&mut self, epoch: u32) {
        self.fencing.known_epoch = self.fencing.known_epoch.max(epoch);
    }

    pub(super) fn load_scripts(&mut self, slot: Slot, now: Now) {
        let deadline_ms = now.ms + self.options.command_ms;
        if let Some(connection) = self.slots.ready(slot) {
            connection.load_scripts(deadline_ms);
        }
    }
}

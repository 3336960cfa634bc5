//! Messages and commands between this server and the others, in both directions.

use super::{CONTROL, CONTROL_HISTORY, Exchange};
use crate::cluster::commands::{COMMAND_BYTES, Receiver};
use crate::cluster::parcel::{self, Arrived};
use crate::topics::broker::Ticket;
use crate::topics::outlet::{Origin, Target};
use std::sync::Arc;
use tidewire_redis as redis;
use tidewire_redis::{Draft, Now};

impl Exchange {
    /// Sends a parcel, at most once.
    pub(super) fn send(&mut self, receiver: &Receiver, parcel: &[u8], now: Now) {
        self.broker.commands.settle(parcel.len() + COMMAND_BYTES);
        let address = match receiver {
            Receiver::User(user) => redis::Address::User(user),
            Receiver::Everyone => redis::Address::Everyone,
            Receiver::Node(node) => redis::Address::Node(*node),
        };
        let number = self.next_number();
        self.link.send(number, address, parcel, now);
    }

    /// Tells the other servers what to do.
    pub(super) fn tell(&mut self, json: &[u8], ticket: Ticket, now: Now) {
        let number = self.next_number();
        self.told
            .insert(number, (ticket, json.len() + COMMAND_BYTES));
        let draft = Draft {
            category: redis::Category::Update,
            priority: redis::Priority::Normal,
            // What is read of it is when it was told, by the clock of Redis.
            ttl_ms: Some(TOLD_TTL_MS),
            excluded: None,
            t: "control",
            id: None,
            key: None,
            payload: json,
        };
        self.link
            .publish(number, &CONTROL.into(), CONTROL_HISTORY, &draft, now);
    }

    /// Does what another server tells all to do.
    pub(super) fn obey_control(&self, record: &[u8]) {
        let Ok(record) = redis::Record::decode(record) else {
            return tracing::error!("a command of another server cannot be read");
        };
        if record.mark.node == self.link.node() {
            return;
        }
        let told_redis_ms = record
            .expires_redis_ms
            .map(|at| at.saturating_sub(TOLD_TTL_MS));
        let told_unix_ms = told_redis_ms.map(|at| self.link.to_unix_ms(at));
        match (serde_json::from_slice(record.payload), &self.server) {
            (Ok(control), Some(server)) => server.0.obey(control, told_unix_ms),
            (Ok(_), None) => {}
            (Err(error), _) => {
                tracing::error!(%error, "a command of another server cannot be read");
            }
        }
    }

    /// Hands what another server has sent to the sessions it is for.
    pub(super) fn hand_out(&mut self, addressee: &redis::Addressee, parcel: &[u8]) {
        let target = match addressee {
            redis::Addressee::User(user) => Some(Target::User(Arc::clone(user))),
            redis::Addressee::Everyone => Some(Target::Everyone),
            redis::Addressee::Node => None,
        };
        match (parcel::read(self.link.node(), parcel), target) {
            (Some(Arrived::Publication(publication, None)), Some(target)) => {
                if let Some(hub) = self.hub.upgrade() {
                    hub.post(&target, None, &publication, Origin::Outside);
                }
            }
            (Some(Arrived::Publication(publication, Some(connection))), None) => {
                if let Some(hub) = self.hub.upgrade() {
                    let target = Target::Connection(connection.id);
                    let shard = Some(connection.shard());
                    hub.post(&target, shard, &publication, Origin::Outside);
                }
            }
            (Some(Arrived::Call(node, question)), None) => self.take_question(node, &question),
            (Some(Arrived::Answer(reply)), None) => self.take_reply(&reply),
            // It was for this server and came for others, or the other way round.
            (Some(_), _) => tracing::error!("a parcel of another server came to the wrong place"),
            (None, _) => {}
        }
    }
}

/// The time to live of a command to all servers, in milliseconds, which nobody heeds.
const TOLD_TTL_MS: u64 = 1;

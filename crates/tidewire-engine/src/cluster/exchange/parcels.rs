//! Messages between this server and the others, in both directions.

use super::Exchange;
use crate::cluster::commands::{COMMAND_BYTES, Receiver};
use crate::cluster::parcel::{self, Arrived};
use crate::topics::outlet::{Origin, Target};
use std::sync::Arc;
use tidewire_redis as redis;
use tidewire_redis::Now;

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

    /// Hands what another server has sent to the sessions it is for.
    pub(super) fn hand_out(&mut self, addressee: &redis::Addressee, parcel: &[u8]) {
        let target = match addressee {
            redis::Addressee::User(user) => Some(Target::User(Arc::clone(user))),
            redis::Addressee::Everyone => Some(Target::Everyone),
            redis::Addressee::Node => None,
        };
        let to_unix_ms = |ms| self.link.to_unix_ms(ms);
        match (parcel::read(self.link.node(), parcel, to_unix_ms), target) {
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
            // The parcel was for this server but sent to others, or the other way round.
            (Some(_), _) => tracing::error!("a parcel of another server came to the wrong place"),
            (None, _) => {}
        }
    }
}

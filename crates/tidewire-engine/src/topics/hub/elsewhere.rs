//! The hub's calls for other servers: messages, commands and the broker between them.

use super::Hub;
use crate::model::ConnectionKey;
use crate::model::call_types::{CallFailure, CallOutcome, NewCall};
use crate::topics::broker::{
    Audience, BrokerAnswer, BrokerHealth, Control, ProducerName, ProducerOpening, ProducerPlace,
    Refusal, Sending, Ticket, Tickets,
};
use crate::topics::error::PublishError;
use crate::topics::outlet::{Delivery, Origin, Target};
use crate::topics::publication::{Draft, Publication};
use std::collections::BTreeSet;
use std::sync::Arc;

impl Hub {
    /// Sends to the sessions of a user, or to everybody, on the other servers.
    pub(crate) fn post_elsewhere(&self, target: &Target, sending: &Sending<'_>) {
        let Some(cluster) = &self.cluster else { return };
        match target {
            Target::User(user) => cluster.send(Audience::User(user), sending),
            Target::Everyone => cluster.send(Audience::Everyone, sending),
            Target::Topic | Target::Patterns | Target::Pattern => {}
            Target::Connection(_) | Target::Member(..) => {}
        }
    }

    /// Whether a connection is, or was, one of this server.
    pub(crate) fn is_here(&self, connection: ConnectionKey) -> bool {
        connection.server() == 0 || connection.server() == self.server
    }

    /// Whether a server is among those that share the broker.
    pub(crate) fn has_server(&self, server: u64) -> bool {
        self.servers().contains(&server)
    }

    /// The servers that share the broker, this one included. Without a broker it is 0.
    pub(crate) fn servers(&self) -> BTreeSet<u64> {
        let nodes = self.broker_health().map(|health| health.nodes);
        let named = nodes.into_iter().flatten();
        let numbers = named.filter_map(|node| u64::from_str_radix(&node.node, 16).ok());
        numbers.chain([self.server]).collect()
    }

    /// Publishes to a connection of another server.
    pub(crate) fn send_to(
        &self,
        connection: ConnectionKey,
        draft: &Draft<'_>,
        now_unix_ms: u64,
    ) -> Result<(), PublishError> {
        self.check(draft, Origin::Outside)?;
        if self.is_cluster_busy() {
            return Err(PublishError::Busy);
        }
        self.post_to(connection, &Sending::Publication(draft, now_unix_ms));
        Ok(())
    }

    /// Sends to a connection of another server.
    pub(crate) fn post_to(&self, connection: ConnectionKey, sending: &Sending<'_>) {
        if let Some(cluster) = &self.cluster {
            cluster.send(Audience::Connection(connection), sending);
        }
    }

    /// Asks a client of another server.
    pub(crate) fn call(&self, connection: ConnectionKey, call: NewCall, outcome: CallOutcome) {
        match &self.cluster {
            Some(cluster) => cluster.call(connection, call, outcome),
            None => outcome.end(Err(CallFailure::Closed)),
        }
    }

    /// Sends a command to the other servers.
    pub(crate) fn tell(
        &self,
        control: &Control,
        tickets: Tickets<'_>,
    ) -> BrokerAnswer<Result<(), Refusal>> {
        match &self.cluster {
            Some(cluster) => cluster.tell(control, tickets),
            None => BrokerAnswer::Now(Ok(())),
        }
    }

    /// A session of a user has begun.
    pub(crate) fn add_user(&self, user: &Arc<str>) {
        if let Some(cluster) = &self.cluster {
            cluster.add_user(user);
        }
    }

    /// A session of a user has ended.
    pub(crate) fn remove_user(&self, user: &Arc<str>) {
        if let Some(cluster) = &self.cluster {
            cluster.remove_user(user);
        }
    }

    /// Whether producers are those of several servers.
    pub(crate) fn shares_producers(&self) -> bool {
        let cluster = self.cluster.as_ref();
        cluster.is_some_and(|cluster| cluster.shares_producers())
    }

    /// Opens a producer of all servers for a connection.
    pub(crate) fn open_producer(&self, opening: ProducerOpening, ticket: Ticket) {
        if let Some(cluster) = &self.cluster {
            cluster.open_producer(opening, ticket);
        }
    }

    /// Has the broker remember the number of a producer's last accepted message.
    pub(crate) fn keep_producer(
        &self,
        name: ProducerName,
        place: ProducerPlace,
        ticket: Option<Ticket>,
    ) {
        if let Some(cluster) = &self.cluster {
            cluster.keep_producer(name, place, ticket);
        }
    }

    /// Hands an event to the subscribers of one pattern, and to no others: its text may match other patterns, too.
    pub(crate) fn announce_to_pattern(&self, pattern: &Arc<str>, event: &Arc<Publication>) {
        let mut stripe = self.stripe(pattern);
        stripe.seq += 1;
        for outlet in &self.outlets {
            let delivery = Delivery {
                seq: stripe.seq,
                target: Target::Pattern,
                publication: Arc::clone(event),
            };
            outlet.push(delivery, false);
        }
    }

    /// Has the broker answer all open questions with an error, because the server stops.
    pub(crate) fn stop_broker(&self) {
        if let Some(cluster) = &self.cluster {
            cluster.stop();
        }
    }

    /// Whether the broker that is shared with other servers answers; `None` without one.
    pub(crate) fn broker_health(&self) -> Option<BrokerHealth> {
        self.cluster
            .as_ref()
            .map(|cluster| cluster.health(self.stall_ms))
    }
}

/// The name of a server, as [`ClusterNode`](crate::ClusterNode) has it.
pub(crate) fn server_name(server: u64) -> String {
    format!("{server:016x}")
}

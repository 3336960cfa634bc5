//! Members of queue groups that join, leave and acknowledge.

use super::Hub;
use crate::topics::broker::{Broker, BrokerAnswer, Refusal, Tickets};
use crate::topics::groups::{EndedWork, NamedGroup, SessionGroup, SharedWork};
use crate::topics::outlet::Origin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Hub {
    /// Has the broker add this server to a group, if several servers share the topic.
    pub(crate) fn prepare_group(
        &self,
        topic: &Arc<str>,
        group: &Arc<str>,
        tickets: Tickets<'_>,
    ) -> BrokerAnswer<Result<(), Refusal>> {
        match self.group_broker(topic) {
            Some(broker) => broker.prepare_group(topic, group, tickets),
            None => BrokerAnswer::Now(Ok(())),
        }
    }

    /// A session joins a group; whether it could.
    pub(crate) fn join_group(&self, seat: &SessionGroup, window: usize, origin: Origin) -> bool {
        let broker = self.group_broker(&seat.topic);
        if broker.is_some_and(|broker| !broker.may_join_group(&seat.topic, &seat.group)) {
            return false;
        }
        self.with_groups(&seat.topic, |groups| {
            groups.is_shared = broker.is_some();
            let server = &self.group_server();
            let Some(group) = groups.find_or_make(&seat.group, server) else {
                return false;
            };
            let acknowledges = seat.seat.acknowledges;
            group.queue.join(seat.seat, window, acknowledges);
            group.idle_since_ms = None;
            group.deliver_waiting(server, origin);
            self.tell_ended(&seat.topic, group);
            true
        })
    }

    /// A session leaves a group; what it had not acknowledged goes to the others.
    pub(crate) fn leave_group(&self, seat: &SessionGroup, origin: Origin, now_ms: u64) {
        self.with_groups(&seat.topic, |groups| {
            let server = &self.group_server();
            let is_shared = groups.is_shared;
            if let Some(group) = groups.find(&seat.group) {
                group.queue.leave(seat.seat);
                group.deliver_waiting(server, origin);
                if is_shared {
                    group.hand_back_waiting();
                }
                if group.queue.counts().members == 0 {
                    group.idle_since_ms = Some(now_ms);
                }
                self.tell_ended(&seat.topic, group);
            }
            groups.sweep(server, now_ms);
        });
    }

    /// A member has done its work on some deliveries.
    pub(crate) fn acknowledge(
        &self,
        seat: &SessionGroup,
        ids: impl IntoIterator<Item = u64>,
        origin: Origin,
    ) -> usize {
        self.with_groups(&seat.topic, |groups| {
            let server = &self.group_server();
            let Some(group) = groups.find(&seat.group) else {
                return 0;
            };
            let done = group.acknowledge(seat.seat, ids);
            self.groups
                .acknowledged
                .fetch_add(done as u64, Ordering::Relaxed);
            group.deliver_waiting(server, origin);
            self.tell_ended(&seat.topic, group);
            done
        })
    }

    /// Gives members the shared work that this server has received, behind `lost` others that
    /// nobody gets. Returns how much more room the members have, `None` without members, and the
    /// work that this server has finished or hands back.
    pub(crate) fn take_work(
        &self,
        topic: &Arc<str>,
        group: &str,
        works: Vec<SharedWork>,
        lost: Option<u64>,
    ) -> (Option<usize>, EndedWork) {
        let mut stripe = self.stripe(topic);
        let interest = stripe.interest.get_mut(topic);
        let groups = interest.and_then(|interest| interest.groups.as_mut());
        let found = groups.and_then(|groups| groups.find(group));
        let Some(group) = found.filter(|group| group.queue.counts().members > 0) else {
            let ended = EndedWork {
                done: Vec::new(),
                handed_back: works.into_iter().map(|work| work.id).collect(),
            };
            return (None, ended);
        };
        let server = &self.group_server();
        group.take_shared(server, works, lost);
        group.deliver_waiting(server, Origin::Outside);
        group.hand_back_waiting();
        let room = group.queue.room();
        (Some(room), std::mem::take(&mut group.ended))
    }

    /// The broker that has the work of a topic's groups, if several servers share it.
    fn group_broker(&self, topic: &str) -> Option<&Arc<dyn Broker>> {
        self.cluster_of(self.rules.get().of(topic))
    }

    /// Reports to the broker the work that members have ended; it learns thereby that their room has changed.
    fn tell_ended(&self, topic: &Arc<str>, group: &mut NamedGroup) {
        if let Some(broker) = self.group_broker(topic) {
            let ended = std::mem::take(&mut group.ended);
            broker.change_group(topic, group.name(), ended);
        }
    }
}

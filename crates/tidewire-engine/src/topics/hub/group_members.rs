//! Members of queue groups that join, leave and acknowledge.

use super::Hub;
use crate::topics::groups::SessionGroup;
use crate::topics::outlet::Origin;
use std::sync::atomic::Ordering;

impl Hub {
    /// A session joins a group; whether it could.
    pub(crate) fn join_group(&self, seat: &SessionGroup, window: usize, origin: Origin) -> bool {
        self.with_groups(&seat.topic, |groups| {
            let server = &self.group_server();
            let Some(group) = groups.find_or_make(&seat.group, server) else {
                return false;
            };
            let acknowledges = seat.seat.acknowledges;
            group.queue.join(seat.seat, window, acknowledges);
            group.idle_since_ms = None;
            group.deliver_waiting(server, origin);
            true
        })
    }

    /// A session leaves a group; what it had not acknowledged goes to the others.
    pub(crate) fn leave_group(&self, seat: &SessionGroup, origin: Origin, now_ms: u64) {
        self.with_groups(&seat.topic, |groups| {
            let server = &self.group_server();
            if let Some(group) = groups.find(&seat.group) {
                group.queue.leave(seat.seat);
                group.deliver_waiting(server, origin);
                if group.queue.counts().members == 0 {
                    group.idle_since_ms = Some(now_ms);
                }
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
            let done = group.queue.acknowledge(seat.seat, ids);
            self.groups
                .acknowledged
                .fetch_add(done as u64, Ordering::Relaxed);
            group.deliver_waiting(server, origin);
            done
        })
    }
}

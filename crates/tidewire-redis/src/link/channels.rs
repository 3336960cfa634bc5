//! The names of channels: whether they are those of the database alone, or shared with other databases for as long as
//! servers of an earlier version need it. Redis keeps the decision in the [agreement](super::agreement).
//!
//! While the names are shared, a node listens to both and sends under the shared ones. When the last server of an earlier
//! version is gone, all send under their own; they listen to both for some time more, in which each of them notices. So
//! each message has one name, and everybody listens to it.

use crate::layout::Sharing;
use crate::link::Link;
use crate::link::options::{Now, Slot};
use crate::script::Channels as Agreed;

impl Link {
    /// A connection for subscriptions is new.
    pub(super) fn begin_listening(&mut self, now: Now) {
        self.channels.waits = !self.channels.is_known();
        if self.channels.is_known() {
            self.begin_subscriptions(now);
        }
    }

    /// The known names of channels may be outdated when Redis is reached again.
    pub(super) fn doubt_channels(&mut self) {
        let channels = &mut self.channels;
        channels.is_unknown |= self.names.layout.own_channels().is_some();
        channels.leaves_ms = None;
    }

    /// Redis has reported which names of channels are used.
    pub(super) fn take_channels(&mut self, agreed: Agreed, now: Now) {
        let sharing = match agreed {
            Agreed::Shared => Sharing::Shared,
            Agreed::Own { for_ms } if for_ms < LEAVE_MS => {
                let leaves_ms = now.ms + LEAVE_MS - for_ms;
                self.channels.leaves_ms = Some(leaves_ms);
                Sharing::Leaving
            }
            Agreed::Own { .. } => Sharing::Own,
        };
        self.share(sharing);
        self.channels.were_shared = sharing == Sharing::Shared;
        self.channels.is_unknown = false;
        if std::mem::take(&mut self.channels.waits) && self.slots.is_ready(Slot::Subscribe) {
            self.begin_subscriptions(now);
        }
    }

    pub(super) fn tick_channels(&mut self, now: Now) {
        if self
            .channels
            .leaves_ms
            .take_if(|at| *at <= now.ms)
            .is_some()
        {
            self.share(Sharing::Own);
        }
    }

    /// Listens under the names that are new, and no longer under those that are left.
    fn share(&mut self, sharing: Sharing) {
        let before = self.names.layout.sharing();
        self.names.layout.share(sharing);
        let is_subscribed = self.slots.is_ready(Slot::Subscribe) && !self.channels.waits;
        if !is_subscribed || (before == Sharing::Own) == (sharing == Sharing::Own) {
            return;
        }
        if sharing == Sharing::Own {
            let shared = self.topics.all.values().map(|topic| topic.stream.clone());
            self.topics.to_unsubscribe.extend(shared);
            self.leave_shared_users();
        } else {
            self.topics.to_subscribe = self.topics.all.keys().copied().collect();
            self.begin_users();
        }
        self.patterns.has_changed = !self.patterns.all.is_empty();
    }

    pub(super) fn channels_deadline_ms(&self) -> Option<u64> {
        self.channels.leaves_ms
    }
}

/// How long the shared names are listened to when nobody needs them any more. Nodes notice within seconds: each asks
/// Redis once a second, and gives up a connection that does not answer within four.
const LEAVE_MS: u64 = 15_000;

//! Parcels: messages to a node, to the sessions of a user, or to everyone, at most once.
//!
//! A parcel is published to a channel. One that was sent and not answered is not sent again.

use crate::connection::ServerError;
use crate::link::Link;
use crate::link::event::{Address, Addressee, Event, Refusal};
use crate::link::options::{Now, Slot};
use crate::link::state::{Parcel, Tag};
use crate::resp::{Value, argument, command, command_head};
use std::sync::Arc;

impl Link {
    pub(super) fn enqueue_parcel(
        &mut self,
        number: u64,
        address: Address<'_>,
        message: &[u8],
        now: Now,
    ) {
        let layout = &self.names.layout;
        let channel = match address {
            Address::Node(node) => layout.inbox(node),
            Address::User(user) => layout.user(user),
            Address::Everyone => layout.everyone(),
        };
        let parcel = Parcel {
            number,
            channel,
            message: [&[PARCEL], message].concat(),
            give_up_ms: now.ms + self.options.broker_wait_ms,
        };
        if self.sends.bytes + parcel.bytes() > self.options.waiting_bytes_max {
            self.events.push_back(Event::Sent {
                number,
                outcome: Err(Refusal::Busy),
            });
            return;
        }
        self.sends.bytes += parcel.bytes();
        self.sends.waiting.push_back(parcel);
    }

    pub(super) fn tick_sends(&mut self, now: Now) {
        while let Some(parcel) = self.sends.waiting.pop_front() {
            let is_over = parcel.give_up_ms <= now.ms;
            let connection = self.slots.ready(Slot::Command);
            let connection = connection.filter(|it| it.pending() < PENDING_MAX);
            let (false, Some(connection)) = (is_over, connection) else {
                if !is_over {
                    self.sends.waiting.push_front(parcel);
                    break;
                }
                self.sends.bytes -= parcel.bytes();
                let outcome = Err(Refusal::Unavailable);
                self.events.push_back(Event::Sent {
                    number: parcel.number,
                    outcome,
                });
                continue;
            };
            self.sends.bytes -= parcel.bytes();
            let deadline_ms = now.ms + self.options.command_ms;
            let publish = self.pub_sub.publish();
            let channel = match parcel.channel == self.names.inbox {
                true => parcel.channel,
                false => self.names.layout.sent(&parcel.channel),
            };
            connection.send(Tag::Send(parcel.number), deadline_ms, |out| {
                command(out, &[publish, &channel, &parcel.message]);
            });
        }
        self.subscribe_users(now);
    }

    fn subscribe_users(&mut self, now: Now) {
        if !self.channels.is_known() {
            return;
        }
        let (form, deadline_ms) = (self.pub_sub, now.ms + self.options.command_ms);
        let Some(connection) = self.slots.ready(Slot::Subscribe) else {
            self.sends.changes.clear();
            self.sends.alone.clear();
            return;
        };
        // In their order: a user may arrive and leave in one turn.
        let changes = std::mem::take(&mut self.sends.changes);
        let alone = std::mem::take(&mut self.sends.alone);
        let users = &self.sends.users;
        // Those who are gone meanwhile are not subscribed to again.
        let layout = &self.names.layout;
        let is_wanted = |channel: &[u8]| {
            let user = layout.user_of(channel);
            user.is_none_or(|user| users.contains(user))
        };
        let alone = alone.chunks(1).filter(|it| is_wanted(&it[0].1));
        let groups = changes.chunk_by(|(before, _), (after, _)| before == after);
        let groups = groups.flat_map(|group| group.chunks(CHANNELS_MAX));
        for channels in groups.chain(alone) {
            let begins = channels[0].0;
            let name = match begins {
                true => form.subscribe(),
                false => form.unsubscribe(),
            };
            let write = |out: &mut Vec<u8>| {
                command_head(out, 1 + channels.len());
                argument(out, name);
                channels
                    .iter()
                    .for_each(|(_, channel)| argument(out, channel));
            };
            if begins {
                let names = channels.iter().map(|(_, channel)| channel.clone());
                let tag = Tag::Listen(names.collect());
                connection.send_silent(tag, deadline_ms, write);
            } else {
                connection.send_unanswered(write);
            }
            connection.send(Tag::Ping, deadline_ms, |out| command(out, &[b"PING"]));
        }
    }

    /// A connection for subscriptions is new.
    pub(super) fn begin_users(&mut self) {
        self.sends.is_refused = false;
        let layout = &self.names.layout;
        let users = self.sends.users.iter().map(|user| layout.user(user));
        let names = users.chain([layout.everyone()]);
        let channels = names.flat_map(|name| layout.received(&name));
        self.sends.changes = channels.map(|channel| (true, channel)).collect();
    }

    /// What other databases send to users is received no more.
    pub(super) fn leave_shared_users(&mut self) {
        let layout = &self.names.layout;
        let users = self.sends.users.iter().map(|user| layout.user(user));
        let shared = users.chain([layout.everyone()]);
        self.sends.changes.extend(shared.map(|name| (false, name)));
    }

    pub(super) fn add_user(&mut self, user: &Arc<str>) {
        if self.sends.users.insert(Arc::clone(user)) {
            let layout = &self.names.layout;
            let channels = layout.received(&layout.user(user)).into_iter();
            self.sends
                .changes
                .extend(channels.map(|channel| (true, channel)));
        }
    }

    pub(super) fn remove_user(&mut self, user: &str) {
        if self.sends.users.remove(user) {
            let layout = &self.names.layout;
            let channels = layout.received(&layout.user(user)).into_iter();
            self.sends
                .changes
                .extend(channels.map(|channel| (false, channel)));
        }
    }

    pub(super) fn handle_sent(&mut self, number: u64, result: Result<Value<'_>, ServerError>) {
        let outcome = match result {
            Ok(value) => value.unsigned().ok_or(Refusal::Unknown),
            Err(error) => {
                self.health.reason = Some(error.to_string());
                Err(Refusal::Unavailable)
            }
        };
        self.events.push_back(Event::Sent { number, outcome });
    }

    /// The connection for commands is gone with these replies.
    pub(super) fn lose_sends(&mut self, tags: &[Tag]) {
        for tag in tags {
            if let Tag::Send(number) = *tag {
                let outcome = Err(Refusal::Unknown);
                self.events.push_back(Event::Sent { number, outcome });
            }
        }
    }

    /// A message on a channel that belongs to no topic; whether it was a parcel.
    pub(super) fn handle_parcel(&mut self, channel: &[u8], message: &[u8]) -> bool {
        let Some((&PARCEL, parcel)) = message.split_first() else {
            return false;
        };
        let layout = &self.names.layout;
        let addressee = if channel == self.names.inbox {
            Addressee::Node
        } else if layout.is_everyone(channel) {
            Addressee::Everyone
        } else {
            let user = layout
                .user_of(channel)
                .and_then(|user| self.sends.users.get(user));
            match user {
                Some(user) => Addressee::User(Arc::clone(user)),
                None => return false,
            }
        };
        self.events.push_back(Event::Parcel {
            addressee,
            parcel: parcel.into(),
        });
        true
    }

    pub(super) fn sends_deadline_ms(&self) -> Option<u64> {
        self.sends.waiting.front().map(|parcel| parcel.give_up_ms)
    }
}

/// The beginning of a message that is a parcel and not a probe.
const PARCEL: u8 = b'm';

/// Commands without a reply on the connection for commands, so that parcels leave room for batches.
const PENDING_MAX: usize = 1_024;

/// Channels of one `SUBSCRIBE`.
const CHANNELS_MAX: usize = 512;

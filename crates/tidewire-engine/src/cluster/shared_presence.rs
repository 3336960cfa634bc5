//! Presence on topics that several servers share: the connections of this server, and what all
//! servers have.
//!
//! The broker knows what each server has of each user. This server reports its changes to the broker, and
//! follows the topics that it has subscribers of. Its subscribers receive the differences between the known
//! states, so that a user's joins and leaves alternate.

use crate::model::ConnectionKey;
use crate::topics::broker::PresenceView;
use crate::topics::presence::{MemberView, Presence, PresenceChange};
use std::collections::HashMap;
use std::sync::Arc;
use tidewire_redis::{Member, NodeId, Present};

/// Presence of all shared topics.
#[derive(Debug, Default)]
pub(crate) struct SharedPresence {
    /// The connections of this server.
    own: HashMap<Arc<str>, Presence<ConnectionKey>>,
    /// The presence at all servers, of topics that this server follows.
    rosters: HashMap<Arc<str>, Roster>,
}

/// The users on one topic.
#[derive(Debug, Default)]
struct Roster {
    users: HashMap<Arc<str>, User>,
    connections: u64,
}

/// The presence of a user at the servers.
#[derive(Debug, Default)]
struct User(Vec<OnNode>);

#[derive(Debug)]
struct OnNode {
    node: NodeId,
    connections: u64,
    data_version: u64,
    data: Option<Arc<str>>,
}

/// A presence event for subscribers.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) change: PresenceChange,
    pub(crate) user: Arc<str>,
    /// The data of the user, unless it has left.
    pub(crate) data: Option<Arc<str>>,
}

impl SharedPresence {
    /// A connection of this server joins or changes its data. Returns what the server has of the user.
    pub(crate) fn join(
        &mut self,
        topic: &Arc<str>,
        who: &Arc<str>,
        connection: ConnectionKey,
        data: Option<Arc<str>>,
    ) -> Option<Present> {
        let own = self.own.entry(Arc::clone(topic));
        let own = own.or_insert_with(Presence::new);
        own.join(who, connection, data);
        own.member(who).map(present)
    }

    /// A connection of this server leaves; what the server has of the user.
    pub(crate) fn leave(
        &mut self,
        topic: &Arc<str>,
        who: &Arc<str>,
        connection: ConnectionKey,
    ) -> Option<Present> {
        let own = self.own.get_mut(topic)?;
        own.leave(who, connection);
        let left = own.member(who).map(present);
        if own.is_empty() {
            self.own.remove(topic);
        }
        left
    }

    /// Replaces the list of all users on a topic. Returns the differences to the old list, none if there was
    /// no list.
    pub(crate) fn replace(&mut self, topic: &Arc<str>, members: Vec<Member>) -> Vec<Told> {
        let mut roster = Roster::default();
        for member in members {
            roster.set(member);
        }
        let Some(before) = self.rosters.get_mut(topic) else {
            self.rosters.insert(Arc::clone(topic), roster);
            return Vec::new();
        };
        let before = std::mem::replace(before, roster);
        let mut told = Vec::new();
        let roster = &self.rosters[topic];
        for user in before.users.keys() {
            let after = roster.users.get(user);
            told.extend(difference(user, before.users.get(user), after));
        }
        for (user, after) in &roster.users {
            if !before.users.contains_key(user) {
                told.extend(difference(user, None, Some(after)));
            }
        }
        // In an order that does not depend on chance.
        told.sort_by(|one, other| one.user.cmp(&other.user));
        told
    }

    /// Applies a change of a user at a server.
    pub(crate) fn apply(&mut self, topic: &str, member: Member) -> Option<Told> {
        let roster = self.rosters.get_mut(topic)?;
        let user = Arc::clone(&member.user);
        let before = roster.users.get(&user).map(User::data);
        roster.set(member);
        let after = roster.users.get(&user).map(User::data);
        change_of(before.as_ref(), after.as_ref()).map(|change| Told {
            change,
            user,
            data: after.flatten(),
        })
    }

    /// Nobody here needs to know who is on a topic.
    pub(crate) fn forget(&mut self, topic: &str) {
        self.rosters.remove(topic);
    }

    pub(crate) fn present(&self, topic: &str, limit: usize) -> PresenceView {
        let Some(roster) = self.rosters.get(topic) else {
            return PresenceView::default();
        };
        let members = roster.users.iter().take(limit);
        let members = members.map(|(name, user)| MemberView {
            user: Arc::clone(name),
            data: user.data(),
            connections: count(user.0.iter().map(|on| on.connections).sum()),
        });
        PresenceView {
            users: roster.users.len(),
            connections: count(roster.connections),
            members: members.collect(),
        }
    }

    /// Topics with somebody, or that are followed.
    pub(crate) fn topics(&self) -> usize {
        self.rosters.len().max(self.own.len())
    }
}

impl Roster {
    fn set(&mut self, member: Member) {
        let user = self.users.entry(Arc::clone(&member.user)).or_default();
        if let Some(at) = user.0.iter().position(|on| on.node == member.node) {
            let before = user.0.swap_remove(at);
            self.connections = self.connections.saturating_sub(before.connections);
        }
        if member.connections > 0 {
            self.connections = self.connections.saturating_add(member.connections);
            user.0.push(OnNode {
                node: member.node,
                connections: member.connections,
                data_version: member.data_version,
                data: member.data,
            });
        } else if user.0.is_empty() {
            self.users.remove(&member.user);
        }
    }
}

impl User {
    /// The newest data of the user, from a server that still has it.
    fn data(&self) -> Option<Arc<str>> {
        let said = self.0.iter().filter(|on| on.data.is_some());
        said.max_by_key(|on| on.data_version)?.data.clone()
    }
}

fn difference(user: &Arc<str>, before: Option<&User>, after: Option<&User>) -> Option<Told> {
    let (before, after) = (before.map(User::data), after.map(User::data));
    change_of(before.as_ref(), after.as_ref()).map(|change| Told {
        change,
        user: Arc::clone(user),
        data: after.flatten(),
    })
}

type Data = Option<Arc<str>>;

fn change_of(before: Option<&Data>, after: Option<&Data>) -> Option<PresenceChange> {
    match (before, after) {
        (None, Some(_)) => Some(PresenceChange::Joined),
        (Some(_), None) => Some(PresenceChange::Left),
        (Some(before), Some(after)) if before != after => Some(PresenceChange::Updated),
        _ => None,
    }
}

fn present(view: MemberView) -> Present {
    Present {
        connections: view.connections as u64,
        data: view.data,
    }
}

fn count(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(node: u64, user: &str, connections: u64, data: Option<(u64, &str)>) -> Member {
        Member {
            node: NodeId(node),
            user: user.into(),
            connections,
            data_version: data.map_or(0, |(version, _)| version),
            data: data.map(|(_, text)| text.into()),
        }
    }

    fn told(change: PresenceChange, user: &str, data: Option<&str>) -> Told {
        Told {
            change,
            user: user.into(),
            data: data.map(Arc::from),
        }
    }

    #[test]
    fn a_user_of_several_servers_is_one_member() {
        use PresenceChange::{Joined, Left, Updated};
        let topic: Arc<str> = "a".into();
        let mut presence = SharedPresence::default();
        assert_eq!(presence.apply(&topic, member(1, "ann", 1, None)), None);
        let first = vec![member(1, "ann", 1, None), member(2, "bob", 2, None)];
        assert_eq!(
            presence.replace(&topic, first),
            [],
            "they were there before"
        );
        let mut apply = |member| presence.apply("a", member);
        let joined = told(Joined, "eve", Some("5"));
        assert_eq!(apply(member(1, "eve", 1, Some((5, "5")))), Some(joined));
        assert_eq!(apply(member(2, "eve", 1, None)), None);
        assert_eq!(
            apply(member(2, "eve", 1, Some((7, "7")))),
            Some(told(Updated, "eve", Some("7")))
        );
        assert_eq!(apply(member(1, "eve", 4, Some((5, "5")))), None);
        // What a server knew goes with it.
        assert_eq!(
            apply(member(2, "eve", 0, None)),
            Some(told(Updated, "eve", Some("5")))
        );
        assert_eq!(apply(member(2, "eve", 0, None)), None);
        let view = presence.present("a", 10);
        assert_eq!((view.users, view.connections), (3, 7));
        let after = vec![member(2, "ann", 1, None), member(2, "sue", 1, None)];
        let expected = [
            told(Left, "bob", None),
            told(Left, "eve", None),
            told(Joined, "sue", None),
        ];
        assert_eq!(presence.replace(&topic, after), expected);
        assert_eq!(
            presence.apply("a", member(2, "ann", 0, None)),
            Some(told(Left, "ann", None))
        );
        let view = presence.present("a", 0);
        assert_eq!((view.users, view.connections), (1, 1));
        presence.forget("a");
        assert_eq!(presence.present("a", 10), PresenceView::default());
    }
}

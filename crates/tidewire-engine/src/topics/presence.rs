//! Presence on topics.

use super::dense::DenseMap;
use std::hash::Hash;
use std::sync::Arc;

/// The members of one topic. A member is a user, with however many connections.
///
/// `C` names a connection. A step is O(1) for any number of members and connections, except for the
/// memory that is given back after many have left. One member with one connection uses about 100
/// bytes. The number of members is bounded by the connections that join, the size of their data by
/// the caller.
#[derive(Debug)]
pub(crate) struct Presence<C> {
    members: DenseMap<Arc<str>, Member<C>>,
    connections: usize,
}

/// The effect of a step on the members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PresenceChange {
    /// The user is a member now and was none.
    Joined,
    /// The member has other data now.
    Updated,
    /// The user is a member no more.
    Left,
    /// Nothing that other members would see.
    Unchanged,
}

/// A member as others see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MemberView {
    /// The user's name.
    pub(crate) user: Arc<str>,
    /// The data of the newest connection that gave some: JSON text.
    pub(crate) data: Option<Arc<str>>,
    /// How many connections the member has, at least one.
    pub(crate) connections: usize,
}

#[derive(Debug)]
struct Member<C> {
    data: Option<Arc<str>>,
    connections: DenseMap<C, ()>,
}

impl<C: Copy + Eq + Hash> Presence<C> {
    /// No members; it uses no memory of its own.
    pub(crate) fn new() -> Self {
        Self {
            members: DenseMap::new(),
            connections: 0,
        }
    }

    /// A connection of a user joins, or gives other data if it has joined before.
    ///
    /// Data replaces what the member had; without data the member keeps what it had. Data that a
    /// connection gave stays when the connection leaves, as long as the user has another one here.
    pub(crate) fn join(
        &mut self,
        user: &Arc<str>,
        connection: C,
        data: Option<Arc<str>>,
    ) -> PresenceChange {
        if let Some(member) = self.members.at_mut(user) {
            if member.connections.insert(connection, ()) {
                self.connections += 1;
            }
            if data.is_none() || data == member.data {
                return PresenceChange::Unchanged;
            }
            member.data = data;
            return PresenceChange::Updated;
        }
        let mut connections = DenseMap::new();
        connections.insert(connection, ());
        self.connections += 1;
        self.members
            .insert(Arc::clone(user), Member { data, connections });
        PresenceChange::Joined
    }

    /// A connection leaves; unknown ones are ignored. Gives [`PresenceChange::Left`] with the
    /// user's last one.
    pub(crate) fn leave(&mut self, user: &Arc<str>, connection: C) -> PresenceChange {
        let Some(member) = self.members.at_mut(user) else {
            return PresenceChange::Unchanged;
        };
        if member.connections.remove(&connection).is_none() {
            return PresenceChange::Unchanged;
        }
        self.connections -= 1;
        if !member.connections.is_empty() {
            return PresenceChange::Unchanged;
        }
        self.members.remove(user);
        PresenceChange::Left
    }

    /// How many users are here, and with how many connections.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.members.len(), self.connections)
    }

    /// At most `limit` of the members, in no order.
    pub(crate) fn members(&self, limit: usize) -> Vec<MemberView> {
        let views = self.members.iter().map(|(user, member)| MemberView {
            user: Arc::clone(user),
            data: member.data.clone(),
            connections: member.connections.len(),
        });
        views.take(limit).collect()
    }

    /// A user as others see it, if it is here.
    pub(crate) fn member(&self, user: &Arc<str>) -> Option<MemberView> {
        let member = self.members.at(user)?;
        Some(MemberView {
            user: Arc::clone(user),
            data: member.data.clone(),
            connections: member.connections.len(),
        })
    }

    /// Whether nobody is here.
    pub(crate) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    fn text(text: &str) -> Arc<str> {
        Arc::from(text)
    }

    #[test]
    fn connections_of_a_user_are_one_member() {
        let mut presence = Presence::new();
        let ann = text("ann");
        assert_eq!(presence.join(&ann, 1, None), PresenceChange::Joined);
        assert_eq!(
            presence.join(&ann, 2, Some(text("{}"))),
            PresenceChange::Updated
        );
        assert_eq!(
            presence.join(&ann, 3, Some(text("{}"))),
            PresenceChange::Unchanged
        );
        assert_eq!(presence.join(&ann, 3, None), PresenceChange::Unchanged);
        assert_eq!(presence.counts(), (1, 3));
        assert_eq!(presence.leave(&ann, 2), PresenceChange::Unchanged);
        assert_eq!(presence.leave(&ann, 2), PresenceChange::Unchanged);
        assert_eq!(presence.leave(&text("bob"), 1), PresenceChange::Unchanged);
        let view = MemberView {
            user: text("ann"),
            data: Some(text("{}")),
            connections: 2,
        };
        assert_eq!(presence.members(10), [view]);
        assert_eq!(presence.leave(&ann, 1), PresenceChange::Unchanged);
        assert_eq!(presence.leave(&ann, 3), PresenceChange::Left);
        assert!(presence.is_empty());
        assert_eq!(presence.join(&ann, 1, None), PresenceChange::Joined);
        assert_eq!(presence.members(10)[0].data, None);
    }

    type Model = BTreeMap<u32, (Option<u32>, BTreeSet<u32>)>;

    fn model_join(
        model: &mut Model,
        user: u32,
        connection: u32,
        data: Option<u32>,
    ) -> PresenceChange {
        let known = model.get(&user).map(|(data, _)| *data);
        let member = model.entry(user).or_default();
        member.1.insert(connection);
        member.0 = data.or(member.0);
        match known {
            None => PresenceChange::Joined,
            Some(before) if before == member.0 => PresenceChange::Unchanged,
            Some(_) => PresenceChange::Updated,
        }
    }

    fn model_leave(model: &mut Model, user: u32, connection: u32) -> PresenceChange {
        let Some((_, connections)) = model.get_mut(&user) else {
            return PresenceChange::Unchanged;
        };
        if connections.remove(&connection) && connections.is_empty() {
            model.remove(&user);
            return PresenceChange::Left;
        }
        PresenceChange::Unchanged
    }

    proptest! {
        /// It agrees with a map of sets in every change and in what it shows.
        #[test]
        fn agrees_with_a_model(
            steps in prop::collection::vec(
                (any::<bool>(), 0u32..12, 0u32..12, prop::option::of(0u32..3)),
                0..300,
            ),
            limit in 0usize..20,
        ) {
            let mut presence = Presence::new();
            let mut model = Model::new();
            for (joins, user, connection, data) in steps {
                let name = text(&user.to_string());
                let (change, expected) = if joins {
                    let json = data.map(|data| text(&data.to_string()));
                    (
                        presence.join(&name, connection, json),
                        model_join(&mut model, user, connection, data),
                    )
                } else {
                    (presence.leave(&name, connection), model_leave(&mut model, user, connection))
                };
                prop_assert_eq!(change, expected);
                let connections = model.values().map(|(_, connections)| connections.len()).sum();
                prop_assert_eq!(presence.counts(), (model.len(), connections));
                prop_assert_eq!(presence.is_empty(), model.is_empty());
            }
            prop_assert_eq!(presence.members(limit).len(), limit.min(model.len()));
            let mut shown = presence.members(usize::MAX);
            shown.sort_by_key(|view| view.user.parse::<u32>().unwrap());
            let expected: Vec<MemberView> = model
                .into_iter()
                .map(|(user, (data, connections))| MemberView {
                    user: text(&user.to_string()),
                    data: data.map(|data| text(&data.to_string())),
                    connections: connections.len(),
                })
                .collect();
            prop_assert_eq!(shown, expected);
        }
    }
}

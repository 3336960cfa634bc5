//! The sessions of each user on one shard.

use std::collections::HashMap;
use std::sync::Arc;
use tidewire_net::ConnectionId;

/// Which connections belong to whom.
#[derive(Debug, Default)]
pub(crate) struct Users(HashMap<Arc<str>, Sessions>);

/// A smaller table keeps its memory.
const USERS_MIN: usize = 1024;

/// Most users have one connection.
#[derive(Debug)]
enum Sessions {
    One(ConnectionId),
    Many(Vec<ConnectionId>),
}

impl Users {
    pub(crate) fn add(&mut self, user: &Arc<str>, id: ConnectionId) {
        match self.0.get_mut(user) {
            None => {
                self.0.insert(Arc::clone(user), Sessions::One(id));
            }
            Some(Sessions::Many(ids)) => ids.push(id),
            Some(sessions @ Sessions::One(_)) => {
                let ids = [sessions.ids(), &[id]].concat();
                *sessions = Sessions::Many(ids);
            }
        }
    }

    pub(crate) fn remove(&mut self, user: &Arc<str>, id: ConnectionId) {
        let Some(sessions) = self.0.get_mut(user) else {
            return;
        };
        if let Sessions::Many(ids) = sessions {
            ids.retain(|other| *other != id);
            if !ids.is_empty() {
                return;
            }
        } else if sessions.ids() != [id] {
            return;
        }
        self.0.remove(user);
        // After many users have left.
        if self.0.capacity() > USERS_MIN && self.0.len() < self.0.capacity() / 4 {
            self.0.shrink_to(2 * self.0.len());
        }
    }

    /// The connections of a user, as they are now.
    pub(crate) fn of(&self, user: &str) -> Vec<ConnectionId> {
        self.0
            .get(user)
            .map_or(Vec::new(), |sessions| sessions.ids().to_vec())
    }
}

impl Sessions {
    fn ids(&self) -> &[ConnectionId] {
        match self {
            Self::One(id) => std::slice::from_ref(id),
            Self::Many(ids) => ids,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_connection_is_there_until_it_goes() {
        let user: Arc<str> = "ada".into();
        let ids: Vec<_> = (0..3).map(ConnectionId::from_u64).collect();
        let mut users = Users::default();
        for id in &ids {
            users.add(&user, *id);
        }
        assert_eq!(users.of("ada"), ids);
        users.remove(&user, ids[1]);
        assert_eq!(users.of("ada"), [ids[0], ids[2]]);
        users.remove(&user, ids[1]);
        users.remove(&user, ids[0]);
        users.remove(&user, ids[2]);
        assert!(users.of("ada").is_empty() && users.0.is_empty());
    }
}

//! Owners: who shares a budget. A user or, without authentication, the address of the peer.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;

/// Names an owner in the tables of one server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct OwnerId(pub(crate) u64);

/// Makes the ids of one server. Nobody outside can choose a name with the id of another: ids are hashes under a
/// secret key of the process.
#[derive(Debug)]
pub(crate) struct Owners(RandomState);

impl OwnerId {
    /// The application and the operators, who publish without a connection.
    pub(crate) const SERVER: Self = Self(0);
}

impl Owners {
    pub(crate) fn new() -> Self {
        Self(RandomState::new())
    }

    /// The owner of a connection: its user or, without one, its address. Of IPv6 the first 64 bits count, which
    /// one subscriber line has as a rule.
    pub(crate) fn of(&self, user: Option<&str>, address: Option<IpAddr>) -> OwnerId {
        let hash = match (user, address.map(|address| address.to_canonical())) {
            (Some(user), _) => self.0.hash_one(("user", user)),
            (None, Some(IpAddr::V4(address))) => self.0.hash_one(("v4", address.octets())),
            (None, Some(IpAddr::V6(address))) => self.0.hash_one(("v6", &address.segments()[..4])),
            (None, None) => 1,
        };
        // 0 is the server's own.
        OwnerId(hash.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_and_addresses_are_owners() {
        let owners = Owners::new();
        let of = |user, address: &str| owners.of(user, address.parse().ok());
        assert_eq!(of(Some("ann"), "127.0.0.1"), of(Some("ann"), "127.0.0.2"));
        assert_ne!(of(Some("ann"), "127.0.0.1"), of(Some("bob"), "127.0.0.1"));
        assert_ne!(of(None, "127.0.0.1"), of(None, "127.0.0.2"));
        assert_eq!(of(None, "127.0.0.1"), of(None, "::ffff:127.0.0.1"));
        assert_eq!(
            of(None, "2001:db8:1:2:3::4"),
            of(None, "2001:db8:1:2:ffff::1")
        );
        assert_ne!(of(None, "2001:db8:1:2::1"), of(None, "2001:db8:1:3::1"));
        assert_ne!(of(None, "::1"), OwnerId::SERVER);
    }
}

//! The connections that do not receive a publication.

use crate::model::ConnectionKey;
use std::sync::Arc;

/// The excluded connections of a publication.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Excluded {
    #[default]
    Nobody,
    One(ConnectionKey),
    /// Two or more, in order, each once.
    Several(Arc<[ConnectionKey]>),
}

impl Excluded {
    /// Excludes others as well.
    pub(crate) fn add(&mut self, connections: impl IntoIterator<Item = ConnectionKey>) {
        let mut all = self.connections().to_vec();
        all.extend(connections);
        *self = all.into_iter().collect();
    }

    #[inline]
    pub(crate) fn contains(&self, connection: ConnectionKey) -> bool {
        match self {
            Self::Nobody => false,
            Self::One(one) => *one == connection,
            Self::Several(several) => several.binary_search(&connection).is_ok(),
        }
    }

    #[inline]
    pub(crate) fn is_nobody(&self) -> bool {
        *self == Self::Nobody
    }

    pub(crate) fn connections(&self) -> &[ConnectionKey] {
        match self {
            Self::Nobody => &[],
            Self::One(one) => std::slice::from_ref(one),
            Self::Several(several) => several,
        }
    }
}

impl FromIterator<ConnectionKey> for Excluded {
    fn from_iter<I: IntoIterator<Item = ConnectionKey>>(connections: I) -> Self {
        let mut all: Vec<_> = connections.into_iter().collect();
        all.sort_unstable();
        all.dedup();
        match *all {
            [] => Self::Nobody,
            [one] => Self::One(one),
            _ => Self::Several(all.into()),
        }
    }
}

/// The most connections that a publication excludes.
pub(crate) const EXCLUDED_MAX: usize = 1_000;

#[cfg(test)]
mod tests {
    use super::*;
    use tidewire_net::ConnectionId;

    #[test]
    fn connections_are_excluded_once_each() {
        let key = |number| ConnectionKey::new(0, 1, ConnectionId::from_u64(number));
        let mut excluded = Excluded::Nobody;
        assert!(excluded.is_nobody() && !excluded.contains(key(1)));
        excluded.add([key(3)]);
        excluded.add([key(3)]);
        assert_eq!(excluded, Excluded::One(key(3)));
        excluded.add([key(2), key(5), key(3)]);
        assert_eq!(excluded.connections(), [2, 3, 5].map(key));
        let found = [1, 2, 3, 4, 5].map(|number| excluded.contains(key(number)));
        assert_eq!(found, [false, true, true, false, true]);
    }
}

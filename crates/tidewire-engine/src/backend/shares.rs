//! Seats: which requests may be under way at the same time, so that no kind of event and no owner uses up the connections.

use crate::backend::kind::{KINDS, RequestKind};
use crate::config::backend::{BackendConfig, BackendEvent};
use crate::limits::owner::OwnerId;
use std::collections::{HashMap, HashSet};

/// How the connections are divided. Each kind has an eighth of them, and arrays one; the rest is for all kinds. With too
/// few connections for that nothing is reserved.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shares {
    reserved: [usize; KINDS],
    rest: usize,
}

/// The right of a request to a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seat {
    /// One that is reserved for its kind.
    Reserved,
    /// One of the rest.
    Shared,
}

/// The seats in use.
#[derive(Debug)]
pub(crate) struct Seats {
    shares: Shares,
    reserved: [usize; KINDS],
    rest: usize,
    rest_of: HashMap<OwnerId, usize>,
    /// Who has a request of which kind under way.
    busy: HashSet<(OwnerId, RequestKind)>,
}

impl Shares {
    pub(crate) fn new(config: &BackendConfig) -> Self {
        let events = BackendEvent::ALL.into_iter();
        let mut wanted = [0; KINDS];
        for event in events.filter(|event| config.events.has(*event)) {
            let kind = RequestKind::of(event);
            wanted[kind as usize] = match kind {
                // One array is on its way at a time.
                RequestKind::Array => 1,
                _ => (config.connections_max / 8).max(1),
            };
        }
        let all: usize = wanted.iter().sum();
        let reserved = match all < config.connections_max {
            true => wanted,
            false => [0; KINDS],
        };
        let rest = config.connections_max - reserved.iter().sum::<usize>();
        Self { reserved, rest }
    }
}

impl Seats {
    /// These seats.
    pub(crate) fn of(
        shares: Shares,
        taken: impl Iterator<Item = (RequestKind, OwnerId, Seat)>,
    ) -> Self {
        let mut seats = Self {
            shares,
            reserved: [0; KINDS],
            rest: 0,
            rest_of: HashMap::new(),
            busy: HashSet::new(),
        };
        for (kind, owner, seat) in taken {
            seats.enter(kind, owner, seat);
        }
        seats
    }

    /// A seat for a request of an owner, if one is free for it. `is_only`: nobody else has used the backend
    /// lately. `is_only_of`: nobody else has used it for this kind.
    ///
    /// An owner leaves at least as many of the other seats free as it uses: a single owner uses at most one half,
    /// each of two busy owners a third, and so on. So one owner more always finds a seat. Seats that are reserved for a kind go to
    /// owners with no request of this kind under way.
    pub(crate) fn take(
        &mut self,
        kind: RequestKind,
        owner: OwnerId,
        is_only: impl FnOnce() -> bool,
        is_only_of: impl FnOnce() -> bool,
    ) -> Option<Seat> {
        let free = self.shares.rest - self.rest;
        let has_reserve = self.reserved[kind as usize] < self.shares.reserved[kind as usize];
        if free == 0 && !has_reserve {
            return None;
        }
        let own = self.rest_of.get(&owner).copied().unwrap_or_default();
        // Arrays use nothing of the rest that others could use.
        let is_reserved_first = kind == RequestKind::Array && has_reserve;
        let is_shared = !is_reserved_first && free > 0 && (own < free || is_only());
        let is_new = || !self.busy.contains(&(owner, kind));
        let seat = match is_shared {
            true => Seat::Shared,
            false if has_reserve && (is_new() || is_only_of()) => Seat::Reserved,
            false => return None,
        };
        self.enter(kind, owner, seat);
        Some(seat)
    }

    fn enter(&mut self, kind: RequestKind, owner: OwnerId, seat: Seat) {
        match seat {
            Seat::Reserved => self.reserved[kind as usize] += 1,
            Seat::Shared => {
                self.rest += 1;
                *self.rest_of.entry(owner).or_default() += 1;
            }
        }
        self.busy.insert((owner, kind));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::backend::{BackendEvents, BackendUrl};

    fn shares(connections_max: usize, events: &[BackendEvent]) -> Shares {
        let url = BackendUrl::parse("http://a.example/").unwrap();
        let mut config = BackendConfig::new(url);
        config.events = events.iter().copied().collect::<BackendEvents>();
        config.connections_max = connections_max;
        Shares::new(&config)
    }

    fn empty(shares: Shares) -> Seats {
        Seats::of(shares, std::iter::empty())
    }

    impl Seats {
        /// Uses all seats that are free for an owner among others. Returns their number.
        fn fill(&mut self, kind: RequestKind, owner: u64) -> usize {
            let seats = std::iter::from_fn(|| self.take(kind, OwnerId(owner), || false, || false));
            seats.count()
        }
    }

    #[test]
    fn each_kind_has_its_own_and_there_is_a_rest_or_nothing_is_reserved() {
        let all = BackendEvent::ALL;
        for (connections_max, events, reserved, rest) in [
            (16, &all[..], [2, 2, 2, 2, 1], 7),
            (16, &all[..2], [2, 2, 0, 0, 0], 12),
            (16, &all[4..], [0, 0, 0, 0, 1], 15),
            (6, &all[..], [1, 1, 1, 1, 1], 1),
            (5, &all[..], [0; 5], 5),
            (1, &all[..1], [0; 5], 1),
            (64, &all[..], [8, 8, 8, 8, 1], 31),
        ] {
            let shares = shares(connections_max, events);
            assert_eq!((shares.reserved, shares.rest), (reserved, rest));
        }
    }

    #[test]
    fn one_owner_leaves_as_much_as_it_uses() {
        let mut seats = empty(shares(16, &BackendEvent::ALL[..4]));
        // Of the eight that are not reserved.
        assert_eq!(seats.fill(RequestKind::Request, 1), 4);
        assert_eq!(seats.fill(RequestKind::Request, 2), 2);
        assert_eq!(seats.fill(RequestKind::Request, 3), 1);
        assert_eq!(seats.fill(RequestKind::Request, 4), 1);
        // Two more of those that are reserved, and none for those who have others.
        assert_eq!(seats.fill(RequestKind::Request, 1), 0);
        assert_eq!(seats.fill(RequestKind::Request, 5), 1);
        assert_eq!(seats.fill(RequestKind::Request, 6), 1);
        assert_eq!(seats.fill(RequestKind::Request, 7), 0);
        for owner in [1, 8] {
            assert_eq!(seats.fill(RequestKind::Connect, owner), 1, "another kind");
        }
    }

    #[test]
    fn who_is_alone_uses_all_but_what_is_reserved_for_other_kinds() {
        let mut seats = empty(shares(16, &BackendEvent::ALL[..4]));
        let ann = OwnerId(1);
        let mut take = |is_only| {
            let kind = RequestKind::Request;
            let taken = std::iter::from_fn(|| seats.take(kind, ann, || is_only, || true));
            taken.count()
        };
        assert_eq!(take(false), 6, "half of the rest, and those of the kind");
        assert_eq!(take(true), 4);
    }
}

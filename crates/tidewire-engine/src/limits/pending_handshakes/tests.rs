use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

const LIMITS: PendingLimits = PendingLimits {
    admitted_max: 6,
    admitted_per_source_max: 4,
    parked_max: 10,
};

fn source(number: u8) -> Source {
    Source::V4(Ipv4Addr::new(127, 0, 0, number))
}

fn id(number: u64) -> ConnectionId {
    // The index alone distinguishes connections here.
    ConnectionId::from_u64(number)
}

/// The state of every connection after the decisions so far.
struct Model {
    pending: PendingHandshakes,
    limits: PendingLimits,
    now_ms: u64,
    next: u64,
    /// For each connection its source, whether it is admitted, and since when it is so.
    alive: BTreeMap<ConnectionId, (u8, bool, u64)>,
    evicted: Vec<ConnectionId>,
}

impl Model {
    fn new(limits: PendingLimits) -> Self {
        Self {
            pending: PendingHandshakes::new(limits),
            limits,
            now_ms: 1_000,
            next: 0,
            alive: BTreeMap::new(),
            evicted: Vec::new(),
        }
    }

    fn enter(&mut self, number: u8) -> ConnectionId {
        let id = id(self.next);
        self.next += 1;
        let is_admitted = self.pending.handle_source(id, source(number), self.now_ms);
        self.alive.insert(id, (number, is_admitted, self.now_ms));
        self.apply();
        id
    }

    fn end(&mut self, id: ConnectionId) {
        self.alive.remove(&id);
        self.pending.handle_end(id, self.now_ms);
        self.apply();
    }

    fn pass(&mut self, ms: u64) {
        self.now_ms += ms;
        self.pending.handle_timeout(self.now_ms);
        self.apply();
    }

    fn apply(&mut self) {
        while let Some(decision) = self.pending.poll_decision() {
            match decision {
                Decision::Admit(id) => {
                    let (number, is_admitted, _) = self.alive[&id];
                    assert!(!is_admitted, "admitted twice");
                    let parked = |other: &u8, is_admitted: bool| *other == number && !is_admitted;
                    let mut of_source = self.alive.iter();
                    let first =
                        of_source.find(|(_, (other, admitted, _))| parked(other, *admitted));
                    assert_eq!(first.map(|(id, _)| *id), Some(id), "out of order");
                    self.alive.insert(id, (number, true, self.now_ms));
                }
                Decision::Evict(id) => {
                    let (number, is_admitted, since_ms) = self.alive[&id];
                    if is_admitted && self.now_ms - since_ms < FAIR_TIME_MS {
                        let share = self.limits.admitted_max / self.sources().count().max(1);
                        let own = self.admitted(number);
                        assert!(own > share, "{own} of a share of {share}");
                    }
                    self.alive.remove(&id);
                    self.evicted.push(id);
                    // As a shard does when the connection is gone.
                    self.pending.handle_end(id, self.now_ms);
                }
            }
        }
        self.check();
    }

    fn sources(&self) -> impl Iterator<Item = u8> {
        let mut numbers: Vec<u8> = self.alive.values().map(|(number, ..)| *number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers.into_iter()
    }

    fn admitted(&self, number: u8) -> usize {
        let mine = |(other, is_admitted, _): &&(u8, bool, u64)| *other == number && *is_admitted;
        self.alive.values().filter(mine).count()
    }

    fn parked(&self, number: u8) -> usize {
        let mine = |(other, is_admitted, _): &&(u8, bool, u64)| *other == number && !*is_admitted;
        self.alive.values().filter(mine).count()
    }

    fn check(&self) {
        let admitted: usize = self.sources().map(|number| self.admitted(number)).sum();
        let parked: usize = self.sources().map(|number| self.parked(number)).sum();
        assert_eq!(
            (self.pending.admitted(), self.pending.parked()),
            (admitted, parked)
        );
        assert!(admitted <= self.limits.admitted_max && parked <= self.limits.parked_max);
        assert_eq!(self.pending.sources.len(), self.sources().count());
        assert_eq!(self.pending.source_keys.len(), self.sources().count());
        let most = self.sources().map(|number| self.admitted(number)).max();
        for number in self.sources() {
            let own = self.admitted(number);
            assert!(own <= self.limits.admitted_per_source_max);
            if self.parked(number) > 0 && own < self.limits.admitted_per_source_max {
                assert_eq!(admitted, self.limits.admitted_max, "room is left unused");
                assert!(most.unwrap_or(0) <= own + 1, "another source has more");
            }
        }
    }
}

#[test]
fn a_source_past_its_limit_waits_alone() {
    let mut model = Model::new(LIMITS);
    let first: Vec<_> = (0..8).map(|_| model.enter(2)).collect();
    assert_eq!((model.admitted(2), model.parked(2)), (4, 4));
    let other = model.enter(1);
    assert!(model.alive[&other].1);
    // One that ends makes room for the next of its source.
    model.end(first[1]);
    assert!(model.alive[&first[4]].1);
    // Those who wait get a place when the others have had their fair time.
    model.pass(FAIR_TIME_MS - 1);
    assert!(model.evicted.is_empty());
    model.pass(SWEEP_INTERVAL_MS);
    assert_eq!(model.evicted, [first[0], first[2], first[3]]);
    assert_eq!((model.admitted(2), model.parked(2)), (4, 0));
    // Without anybody who waits, nobody goes.
    model.pass(100 * FAIR_TIME_MS);
    assert_eq!(model.evicted.len(), 3);
}

#[test]
fn whoever_has_the_most_gives_way_at_once() {
    let mut model = Model::new(LIMITS);
    let greedy: Vec<_> = (0..4).map(|_| model.enter(2)).collect();
    for _ in 0..2 {
        model.enter(3);
    }
    let newcomer = model.enter(1);
    assert!(model.alive[&newcomer].1);
    assert_eq!(model.evicted, [greedy[0]]);
    // Two each now: a further one of a source that has its share waits.
    model.enter(1);
    assert_eq!(model.evicted, greedy[..2]);
    let third = model.enter(1);
    assert!(!model.alive[&third].1);
    // One with less than the others does not.
    let fourth = model.enter(4);
    assert!(model.alive[&fourth].1);
}

#[test]
fn many_sources_take_turns() {
    let mut model = Model::new(LIMITS);
    let all: Vec<_> = (0..16).map(|number| model.enter(number)).collect();
    assert_eq!((model.pending.admitted(), model.pending.parked()), (6, 10));
    model.pass(FAIR_TIME_MS);
    assert_eq!(model.evicted, all[..6]);
    model.pass(FAIR_TIME_MS);
    assert_eq!(model.evicted, all[..10]);
    assert_eq!((model.pending.admitted(), model.pending.parked()), (6, 0));
}

#[test]
fn past_the_limit_of_parked_ones_the_oldest_of_the_largest_source_goes() {
    let mut model = Model::new(LIMITS);
    let greedy: Vec<_> = (0..14).map(|_| model.enter(2)).collect();
    assert_eq!(model.pending.parked(), 10);
    // Not before it has had its fair time: until then the new connection waits in the system's queue.
    assert!(!model.pending.may_accept());
    model.now_ms += FAIR_TIME_MS;
    model.pending.now_ms = model.now_ms;
    assert!(model.pending.may_accept());
    model.enter(2);
    assert_eq!(model.evicted, [greedy[4]]);
    assert!(model.pending.drop_parked());
    model.apply();
    assert_eq!(model.evicted, [greedy[4], greedy[5]]);
}

#[test]
fn a_proxy_is_not_limited_and_whom_it_forwards_is() {
    let mut pending = PendingHandshakes::new(LIMITS);
    let proxy = Source::Proxy(Ipv4Addr::new(10, 0, 0, 1).into());
    for number in 0..6 {
        assert!(pending.handle_source(id(number), proxy, 0));
    }
    for number in 0..6 {
        let is_admitted = pending.handle_source(id(number), source(1), 0);
        assert_eq!(is_admitted, number < 4, "{number}");
    }
    assert_eq!((pending.admitted(), pending.parked()), (4, 2));
    assert_eq!(pending.poll_decision(), None);
}

#[derive(Debug, Clone)]
enum Step {
    Enter(u8),
    End(usize),
    Pass(u64),
    Drop,
    Move(usize, u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0u8..5).prop_map(Step::Enter),
        3 => any::<usize>().prop_map(Step::End),
        2 => (1u64..600).prop_map(Step::Pass),
        1 => Just(Step::Drop),
        1 => (any::<usize>(), 0u8..5).prop_map(|(index, number)| Step::Move(index, number)),
    ]
}

proptest! {
    /// The limits hold, room is not left unused, nobody has more than one more than somebody who
    /// waits, each source's own wait in order, and nothing is kept of those that have ended.
    #[test]
    fn room_is_shared(
        admitted_max in 1usize..8,
        admitted_per_source_max in 1usize..8,
        parked_max in 1usize..6,
        steps in proptest::collection::vec(step(), 0..200),
    ) {
        let mut model = Model::new(PendingLimits { admitted_max, admitted_per_source_max, parked_max });
        for step in steps {
            let at = |index: usize, model: &Model| {
                let len = model.alive.len();
                (len > 0).then(|| *model.alive.keys().nth(index % len).unwrap())
            };
            match step {
                Step::Enter(number) => {
                    model.enter(number);
                }
                Step::End(index) => {
                    if let Some(id) = at(index, &model) {
                        model.end(id);
                    }
                }
                Step::Pass(ms) => model.pass(ms),
                Step::Drop => {
                    let had_some = model.pending.parked() > 0;
                    prop_assert_eq!(model.pending.drop_parked(), had_some);
                    model.apply();
                }
                Step::Move(index, number) => {
                    if let Some(old) = at(index, &model) {
                        // Under a new name, so that the order of names is the order of arrival.
                        model.end(old);
                        model.enter(number);
                    }
                }
            }
        }
        let left: Vec<_> = model.alive.keys().copied().collect();
        for id in left {
            if model.alive.contains_key(&id) {
                model.end(id);
            }
        }
        prop_assert!(model.pending.entries.is_empty() && model.pending.turns.is_empty());
        prop_assert!(model.pending.by_admitted.is_empty() && model.pending.by_parked.is_empty());
    }
}

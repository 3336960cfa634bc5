//! The store against a naive model that keeps everything and marks the publications that remain.

use super::*;
use crate::limits::owner::OwnerId;
use proptest::prelude::*;

/// The charge for a publication besides its bytes: an `u64` as a stored publication.
const PLACE: usize = 24;

/// The charge for a ring besides its publications.
const RING: usize = 40 + 4 * PLACE;

const ROOMY: HistoryLimits = HistoryLimits {
    publications_max: 1_000,
    bytes_max: 1 << 20,
    age_max_ms: 0,
};

fn name(topic: &str) -> Arc<str> {
    Arc::from(topic)
}

#[test]
fn topics_that_keep_publications_are_listed_some_at_a_time() {
    let mut store = HistoryStore::new(1 << 20, 100);
    for number in 0..5 {
        append(&mut store, &format!("t.{number}"), &ROOMY, 0, 1);
    }
    append(&mut store, "t.1", &ROOMY, 0, 1);
    // Known, but nothing is kept of it.
    let none = HistoryLimits {
        publications_max: 0,
        ..ROOMY
    };
    append(&mut store, "t.3", &none, 0, 1);
    let (mut names, mut from) = (Vec::new(), Some(0));
    while let Some(place) = from {
        let (found, next) = store.kept_topics((place, 2), 0, &|name| name != "t.4");
        assert!(found.len() <= 2);
        names.extend(
            found
                .into_iter()
                .map(|topic| (topic.name, topic.publications, topic.kept)),
        );
        from = next;
    }
    let expected = [("t.0", 1, 1), ("t.1", 2, 2), ("t.2", 1, 1)];
    assert_eq!(
        names,
        expected.map(|(topic, count, kept)| (name(topic), count, kept))
    );
    // Rates are over the time between two looks.
    let rate_of = |store: &mut HistoryStore<u64>, now_ms| {
        let (found, _) = store.kept_topics((0, 1), now_ms, &|_| true);
        found[0].per_s
    };
    rate_of(&mut store, 10_000);
    append(&mut store, "t.0", &ROOMY, 0, 1);
    append(&mut store, "t.0", &ROOMY, 0, 1);
    assert_eq!(rate_of(&mut store, 12_000), 1.0);
}

/// Appends a publication that contains its own offset.
fn append(
    store: &mut HistoryStore<u64>,
    topic: &str,
    limits: &HistoryLimits,
    now_ms: u64,
    bytes: usize,
) -> Position {
    let (position, publication) = store.append(
        &name(topic),
        limits,
        now_ms,
        (7, OwnerId::SERVER),
        bytes,
        |position| position.offset,
    );
    assert_eq!(publication, position.offset);
    position
}

fn since(
    store: &mut HistoryStore<u64>,
    limits: &HistoryLimits,
    now_ms: u64,
    offset: u64,
) -> Option<Vec<u64>> {
    let since = Position { epoch: 7, offset };
    let recovery = store.recover(
        &name("t"),
        (Some(since), usize::MAX),
        limits,
        now_ms,
        (8, OwnerId::SERVER),
    );
    assert!(recovery.complete || recovery.publications.is_empty());
    recovery.complete.then_some(recovery.publications)
}

#[test]
fn an_epoch_is_eight_hexadecimal_digits() {
    let position = Position {
        epoch: 0x0bad_cafe,
        offset: 1,
    };
    assert_eq!(position.epoch_hex(), "0badcafe");
    assert_eq!(Position::parse_epoch("0badcafe"), Some(0x0bad_cafe));
    for wrong in [
        "",
        "badcafe",
        "0BADCAFE",
        "+badcafe",
        "00badcafe",
        "0badcafé",
        "0badcafg",
    ] {
        assert_eq!(Position::parse_epoch(wrong), None, "{wrong}");
    }
}

#[test]
fn recovery_is_complete_or_says_that_it_is_not() {
    let mut store = HistoryStore::new(1 << 20, 100);
    let limits = HistoryLimits {
        publications_max: 3,
        ..ROOMY
    };
    assert_eq!(
        store.position(&name("t"), 7),
        Position {
            epoch: 7,
            offset: 0
        }
    );
    assert_eq!(since(&mut store, &limits, 0, 0), Some(vec![]));
    for _ in 0..5 {
        append(&mut store, "t", &limits, 0, 1);
    }
    assert_eq!(since(&mut store, &limits, 0, 1), None);
    assert_eq!(since(&mut store, &limits, 0, 2), Some(vec![3, 4, 5]));
    assert_eq!(since(&mut store, &limits, 0, 5), Some(vec![]));
    assert_eq!(since(&mut store, &limits, 0, 6), None);
    let other = Position {
        epoch: 6,
        offset: 5,
    };
    for asked in [None, Some(other)] {
        let recovery = store.recover(
            &name("t"),
            (asked, usize::MAX),
            &limits,
            0,
            (8, OwnerId::SERVER),
        );
        assert_eq!(
            recovery.position,
            Position {
                epoch: 7,
                offset: 5
            }
        );
        assert!(!recovery.complete && recovery.publications.is_empty());
    }
}

#[test]
fn nothing_is_recovered_across_what_was_not_kept() {
    let mut store = HistoryStore::new(1 << 20, 100);
    let limits = HistoryLimits {
        bytes_max: 100,
        ..ROOMY
    };
    append(&mut store, "t", &limits, 0, 10);
    assert_eq!(append(&mut store, "t", &limits, 0, 101 - PLACE).offset, 2);
    assert_eq!(store.newest("t", &limits, 0), None);
    assert_eq!(since(&mut store, &limits, 0, 1), None);
    assert_eq!(since(&mut store, &limits, 0, 2), Some(vec![]));
    append(&mut store, "t", &limits, 0, 100 - PLACE);
    assert_eq!(since(&mut store, &limits, 0, 1), None);
    assert_eq!(since(&mut store, &limits, 0, 2), Some(vec![3]));
    assert_eq!(store.newest("t", &limits, 0), Some(3));
    assert_eq!(store.counters().publications_oversized, 1);
    assert_eq!(store.bytes(), RING + 100);
}

#[test]
fn a_removed_topic_has_another_epoch() {
    let mut store = HistoryStore::new(1 << 20, 100);
    append(&mut store, "t", &ROOMY, 0, 10);
    assert!(store.remove("t"));
    assert!(!store.remove("t"));
    assert_eq!((store.bytes(), store.topics()), (0, 0));
    assert_eq!(since(&mut store, &ROOMY, 0, 0), None);
    assert_eq!(
        store.position(&name("t"), 9),
        Position {
            epoch: 8,
            offset: 0
        }
    );
}

#[test]
fn pages_go_both_ways() {
    let mut store = HistoryStore::new(1 << 20, 100);
    let limits = HistoryLimits {
        publications_max: 5,
        ..ROOMY
    };
    for _ in 0..7 {
        append(&mut store, "t", &limits, 0, 1);
    }
    // Since, limit, reverse; the publications, and whether there are more.
    type Case = (Option<u64>, usize, bool, &'static [u64], bool);
    let cases: [Case; 14] = [
        (None, 2, false, &[3, 4], true),
        (Some(0), 2, false, &[3, 4], true),
        (Some(4), 2, false, &[5, 6], true),
        (Some(5), 2, false, &[6, 7], false),
        (Some(7), 2, false, &[], false),
        (Some(u64::MAX), 2, false, &[], false),
        (None, usize::MAX, false, &[3, 4, 5, 6, 7], false),
        (None, 2, true, &[7, 6], true),
        (Some(6), 2, true, &[5, 4], true),
        (Some(5), 2, true, &[4, 3], false),
        (Some(3), 2, true, &[], false),
        (Some(0), 2, true, &[], false),
        (Some(u64::MAX), 9, true, &[7, 6, 5, 4, 3], false),
        (None, 0, true, &[], true),
    ];
    for (since, limit, reverse, publications, more) in cases {
        let page = store.page("t", since, limit, reverse, &limits, 0);
        let expected = Page {
            position: Some(Position {
                epoch: 7,
                offset: 7,
            }),
            oldest: 3,
            publications: publications.to_vec(),
            more,
        };
        assert_eq!(page, expected, "{since:?} {limit} {reverse}");
    }
    assert_eq!(store.page("u", None, 9, false, &limits, 0).position, None);
    assert_eq!(store.topics(), 1);
}

#[test]
fn a_sweep_goes_round_all_topics_some_at_a_time() {
    let mut store = HistoryStore::new(1 << 20, 100);
    let limits = HistoryLimits {
        age_max_ms: 100,
        ..ROOMY
    };
    for topic in ["a", "b", "c", "d"] {
        append(&mut store, topic, &limits, 0, 1);
    }
    append(&mut store, "b", &limits, 50, 1);
    store.remove("c");
    assert_eq!(store.sweep(99, |_| limits, 10), 0);
    let short = |topic: &str| HistoryLimits {
        age_max_ms: if topic == "b" { 100 } else { 0 },
        ..ROOMY
    };
    assert_eq!(store.sweep(100, short, 4), 1);
    let dropped: Vec<usize> = (0..4).map(|_| store.sweep(150, |_| limits, 1)).collect();
    let mut sorted = dropped.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, [0, 1, 1, 1], "{dropped:?}");
    assert_eq!((store.bytes(), store.topics()), (0, 3));
    assert_eq!(store.counters().publications_expired, 4);
}

#[test]
fn a_topic_without_publications_is_small() {
    assert_eq!(size_of::<Option<Topic<u64>>>() + 8, 56);
    assert_eq!(size_of::<(Arc<str>, u32)>(), 24);
    assert_eq!(Ring::<u64>::charge(0), PLACE);
    assert_eq!(Ring::<Arc<str>>::charge(100), 132);
}

#[derive(Debug, Clone)]
struct Known {
    topic: usize,
    epoch: u32,
    newest: u64,
    /// Offset, time and charge of each publication that is there.
    kept: Vec<(u64, u64, usize)>,
}

/// Topics from the least to the most recently used.
struct Model {
    known: Vec<Known>,
    bytes_max: usize,
    topics_max: usize,
}

impl Model {
    fn bytes(&self) -> usize {
        let with_ring = self.known.iter().filter(|known| !known.kept.is_empty());
        let of_topic = |known: &Known| known.kept.iter().map(|kept| kept.2).sum::<usize>();
        with_ring.map(|known| RING + of_topic(known)).sum()
    }

    fn used(&mut self, topic: usize, random_epoch: u32) -> &mut Known {
        let at = self.known.iter().position(|known| known.topic == topic);
        let known = match at {
            Some(at) => self.known.remove(at),
            None => {
                if self.known.len() == self.topics_max {
                    let bare = self.known.iter().position(|known| known.kept.is_empty());
                    self.known.remove(bare.unwrap_or(0));
                }
                Known {
                    topic,
                    epoch: random_epoch,
                    newest: 0,
                    kept: Vec::new(),
                }
            }
        };
        self.known.push(known);
        self.known.last_mut().unwrap()
    }

    fn append(
        &mut self,
        topic: usize,
        limits: &HistoryLimits,
        now_ms: u64,
        epoch: u32,
        bytes: usize,
    ) {
        let bytes_max = self.bytes_max;
        let known = self.used(topic, epoch);
        known.newest += 1;
        let charge = bytes + PLACE;
        if limits.publications_max == 0 || charge > limits.bytes_max || RING + charge > bytes_max {
            return known.kept.clear();
        }
        known.kept.push((known.newest, now_ms, charge));
        known.trim(limits, now_ms);
        while self.bytes() > self.bytes_max {
            let oldest = self
                .known
                .iter_mut()
                .find(|known| !known.kept.is_empty())
                .unwrap();
            match oldest.topic {
                other if other != topic => self.make_bare(other),
                _ => drop(oldest.kept.remove(0)),
            }
        }
    }

    /// A topic that loses all its publications counts as used then, among those without.
    fn make_bare(&mut self, topic: usize) {
        let at = self
            .known
            .iter()
            .position(|known| known.topic == topic)
            .unwrap();
        let mut known = self.known.remove(at);
        known.kept.clear();
        self.known.push(known);
    }
}

impl Known {
    fn trim(&mut self, limits: &HistoryLimits, now_ms: u64) {
        let is_over = |kept: &[(u64, u64, usize)]| {
            let bytes: usize = kept.iter().map(|(_, _, charge)| charge).sum();
            let age_ms = now_ms - kept[0].1;
            kept.len() > limits.publications_max
                || bytes > limits.bytes_max
                || (limits.age_max_ms > 0 && age_ms >= limits.age_max_ms)
        };
        while !self.kept.is_empty() && is_over(&self.kept) {
            self.kept.remove(0);
        }
    }
}

#[derive(Debug, Clone)]
enum Step {
    Append { bytes: usize },
    Recover { back: u64, same_epoch: bool },
    Remove,
    Sweep { at_most: usize },
    Newest,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (0usize..200).prop_map(|bytes| Step::Append { bytes }),
        4 => (0u64..9, prop::bool::weighted(0.9))
            .prop_map(|(back, same_epoch)| Step::Recover { back, same_epoch }),
        1 => Just(Step::Remove),
        1 => (0usize..4).prop_map(|at_most| Step::Sweep { at_most }),
        1 => Just(Step::Newest),
    ]
}

fn limits_of(topic: usize) -> HistoryLimits {
    HistoryLimits {
        publications_max: [5, 3, 0, 100, 2, 100][topic],
        bytes_max: [400, 1 << 20, 1 << 20, 1 << 20, 150, 300][topic],
        age_max_ms: [0, 40, 0, 60, 0, 20][topic],
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Every claim of completeness holds, and the store keeps exactly the publications of its rules.
    #[test]
    fn agrees_with_a_naive_model(
        steps in prop::collection::vec((0usize..6, 0u64..12, step()), 0..250),
        bytes_max in 100usize..2_500,
        topics_max in 1usize..7,
    ) {
        let names: Vec<Arc<str>> = (0..6).map(|topic| name(&topic.to_string())).collect();
        let mut store = HistoryStore::new(bytes_max, topics_max);
        let mut model = Model { known: Vec::new(), bytes_max, topics_max };
        let mut now_ms = 0;
        for (epoch, (topic, wait_ms, step)) in (1u32..).zip(steps) {
            now_ms += wait_ms;
            let (name, limits) = (&names[topic], limits_of(topic));
            match step {
                Step::Append { bytes } => {
                    let (position, publication) =
                        store.append(name, &limits, now_ms, (epoch, OwnerId::SERVER), bytes, |position| position.offset);
                    model.append(topic, &limits, now_ms, epoch, bytes);
                    let known = model.known.iter().find(|known| known.topic == topic).unwrap();
                    prop_assert_eq!((position.epoch, position.offset), (known.epoch, known.newest));
                    prop_assert_eq!(publication, position.offset);
                }
                Step::Recover { back, same_epoch } => {
                    recover_both((&mut store, &mut model), topic, (now_ms, epoch), (back, same_epoch))?;
                }
                Step::Remove => {
                    let before = model.known.len();
                    model.known.retain(|known| known.topic != topic);
                    prop_assert_eq!(store.remove(name), model.known.len() < before);
                }
                Step::Sweep { at_most } => {
                    let before = store.bytes();
                    let dropped = store.sweep(now_ms, |name| limits_of(name.parse().unwrap()), at_most);
                    prop_assert_eq!(dropped > 0, store.bytes() < before);
                    // The store chooses which topics it sweeps: go round, so that the model can follow.
                    for _ in 0..6 {
                        store.sweep(now_ms, |name| limits_of(name.parse().unwrap()), 1);
                    }
                    sweep_model(&mut model, &store, now_ms);
                }
                Step::Newest => {
                    let newest = store.newest(name, &limits, now_ms);
                    if let Some(known) = model.known.iter_mut().find(|known| known.topic == topic) {
                        let had = !known.kept.is_empty();
                        known.trim(&limits, now_ms);
                        prop_assert_eq!(newest, known.kept.last().map(|kept| kept.0));
                        if had && known.kept.is_empty() {
                            model.make_bare(topic);
                        }
                    } else {
                        prop_assert_eq!(newest, None);
                    }
                }
            }
            check(&store, &model)?;
        }
    }
}

/// Recovers in the store and in the model, from one beyond the newest publication to some before
/// the oldest.
fn recover_both(
    (store, model): (&mut HistoryStore<u64>, &mut Model),
    topic: usize,
    (now_ms, epoch): (u64, u32),
    (back, same_epoch): (u64, bool),
) -> Result<(), TestCaseError> {
    let (name, limits) = (name(&topic.to_string()), limits_of(topic));
    let known = model.used(topic, epoch);
    let had = !known.kept.is_empty();
    known.trim(&limits, now_ms);
    let (known, lost) = (known.clone(), had && known.kept.is_empty());
    if lost {
        model.make_bare(topic);
    }
    let offset = (known.newest + 1).saturating_sub(back);
    let since = Position {
        epoch: if same_epoch { known.epoch } else { 0 },
        offset,
    };
    let recovery = store.recover(
        &name,
        (Some(since), usize::MAX),
        &limits,
        now_ms,
        (epoch, OwnerId::SERVER),
    );
    let position = Position {
        epoch: known.epoch,
        offset: known.newest,
    };
    prop_assert_eq!(recovery.position, position);
    let after: Vec<u64> = (offset + 1..=known.newest).collect();
    let there = |offset: &u64| known.kept.iter().any(|kept| kept.0 == *offset);
    let complete = same_epoch && offset <= known.newest && after.iter().all(there);
    prop_assert_eq!(recovery.complete, complete);
    prop_assert_eq!(recovery.publications, if complete { after } else { vec![] });
    Ok(())
}

/// Trims every topic of the model; those that lose all follow in the order in which the store met
/// them.
fn sweep_model(model: &mut Model, store: &HistoryStore<u64>, now_ms: u64) {
    let mut lost = Vec::new();
    for known in &mut model.known {
        let had = !known.kept.is_empty();
        let limits = limits_of(known.topic);
        known.trim(&limits, now_ms);
        if had && known.kept.is_empty() {
            lost.push(known.topic);
        }
    }
    for topic in listed(store, BARE) {
        if lost.contains(&topic) {
            model.make_bare(topic);
        }
    }
}

/// The topics of one of the store's lists, the least recently used first.
fn listed(store: &HistoryStore<u64>, list: usize) -> Vec<usize> {
    let mut topics = Vec::new();
    let shelf = store.shelves.get(&OwnerId::SERVER);
    let mut next = shelf.and_then(|Shelf(lists)| lists[list].oldest());
    while let Some(at) = next {
        topics.push(store.topics[at].name.parse().unwrap());
        next = store.topics.newer(at);
    }
    topics
}

/// The gauges, both lists and what each topic keeps are those of the model.
fn check(store: &HistoryStore<u64>, model: &Model) -> Result<(), TestCaseError> {
    prop_assert!(store.bytes() <= store.bytes_max);
    prop_assert_eq!(store.bytes(), model.bytes());
    prop_assert_eq!(store.topics(), model.known.len());
    prop_assert_eq!(store.index.len(), model.known.len());
    for (list, is_kept) in [(KEPT, true), (BARE, false)] {
        let of_list = |known: &&Known| known.kept.is_empty() != is_kept;
        let expected = model.known.iter().filter(of_list).map(|known| known.topic);
        prop_assert_eq!(listed(store, list), expected.collect::<Vec<usize>>());
    }
    for known in &model.known {
        let topic = &store.topics[store.index[&*known.topic.to_string()]];
        prop_assert_eq!((topic.epoch, topic.newest), (known.epoch, known.newest));
        let kept: Vec<u64> = known.kept.iter().map(|kept| kept.0).collect();
        prop_assert_eq!(topic.between(topic.before_oldest(), topic.newest), kept);
    }
    Ok(())
}

/// An owner that fills the store drives out its own topics, not those of others.
#[test]
fn the_owner_with_the_most_gives_way() {
    let (ann, bob) = (OwnerId(1), OwnerId(2));
    let limits = HistoryLimits::of(10);
    let mut store = HistoryStore::new(100 * 1024, 20);
    let publish = |store: &mut HistoryStore<u64>, topic: &str, owner| {
        store.append(&name(topic), &limits, 0, (7, owner), 1_000, |at| at.offset);
    };
    for _ in 0..5 {
        publish(&mut store, "ann", ann);
    }
    for number in 0..1_000 {
        publish(&mut store, &format!("bob.{number}"), bob);
    }
    assert!(store.topics() <= 20);
    let page = store.page("ann", None, 10, false, &limits, 0);
    assert_eq!(page.publications, [1, 2, 3, 4, 5]);
}

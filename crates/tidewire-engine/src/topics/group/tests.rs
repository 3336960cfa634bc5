//! The group against a model in which every message has exactly one place.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

type Group = QueueGroup<u32, u64>;

/// A group that has no limits for these tests, with the messages 1 to `count`.
fn group(count: u64) -> Group {
    let mut group = Group::new(1_000, 1_000);
    for message in 1..=count {
        group.push(message, 1).unwrap();
    }
    group
}

/// The assigned messages now, as (member, message).
fn assigned(group: &mut Group) -> Vec<(u32, u64)> {
    std::iter::from_fn(|| group.next())
        .map(|(member, delivery)| {
            assert_eq!(delivery.id, delivery.message);
            (member, delivery.message)
        })
        .collect()
}

#[test]
fn members_that_do_not_acknowledge_take_turns() {
    let mut group = group(5);
    assert_eq!(group.next(), None);
    assert!(group.join(1, 0, false));
    assert!(group.join(2, 0, false));
    assert!(!group.join(1, 9, true));
    assert_eq!(
        assigned(&mut group),
        [(1, 1), (2, 2), (1, 3), (2, 4), (1, 5)]
    );
    assert_eq!(group.leave(1), 0);
    let counts = GroupCounts {
        members: 1,
        waiting: 0,
        unacknowledged: 0,
        bytes: 0,
        redelivered: 0,
    };
    assert_eq!(group.counts(), counts);
}

#[test]
fn the_least_busy_member_is_served_first() {
    let mut group = group(5);
    group.join(1, 4, true);
    group.join(2, 2, true);
    assert_eq!(
        assigned(&mut group),
        [(1, 1), (2, 2), (1, 3), (2, 4), (1, 5)]
    );
    assert_eq!(group.acknowledge(1, [1, 3, 5]), 3);
    group.push(6, 1).unwrap();
    group.push(7, 1).unwrap();
    assert_eq!(assigned(&mut group), [(1, 6), (1, 7)]);
    // Both have two; the second has no room, the first has.
    for message in 8..=10 {
        group.push(message, 1).unwrap();
    }
    assert_eq!(assigned(&mut group), [(1, 8), (1, 9)]);
    assert_eq!(group.acknowledge(2, [2]), 1);
    assert_eq!(assigned(&mut group), [(2, 10)]);
}

#[test]
fn a_window_is_at_least_one() {
    let mut group = group(2);
    group.join(1, 0, true);
    assert_eq!(assigned(&mut group), [(1, 1)]);
}

#[test]
fn only_own_messages_are_acknowledged_and_only_once() {
    let mut group = group(3);
    group.join(1, 2, true);
    group.join(2, 1, true);
    assert_eq!(assigned(&mut group), [(1, 1), (2, 2), (1, 3)]);
    assert_eq!(group.acknowledge(1, [2, 99, 0]), 0);
    assert_eq!(group.acknowledge(3, [1]), 0);
    assert_eq!(group.acknowledge(1, [1, 1, 2]), 1);
    assert_eq!(group.counts().unacknowledged, 2);
    assert_eq!(group.counts().bytes, 2);
}

#[test]
fn what_a_member_did_not_finish_goes_to_the_front_in_order() {
    let mut group = group(9);
    group.join(1, 3, true);
    group.join(2, 3, true);
    assert_eq!(assigned(&mut group).len(), 6);
    group.acknowledge(1, [3]);
    assigned(&mut group);
    // The first has 1, 5 and 7, the second 2, 4 and 6.
    assert_eq!(group.leave(2), 3);
    assert_eq!(group.leave(1), 3);
    assert_eq!(group.leave(1), 0);
    assert_eq!(group.counts().waiting, 8);
    group.join(3, 100, true);
    let deliveries: Vec<(u64, bool)> = std::iter::from_fn(|| group.next())
        .map(|(_, delivery)| (delivery.id, delivery.redelivered))
        .collect();
    let again = [1, 2, 4, 5, 6, 7].map(|id| (id, true));
    assert_eq!(deliveries[..6], again);
    assert_eq!(deliveries[6..], [(8, false), (9, false)]);
    assert_eq!(group.counts().redelivered, 6);
}

#[test]
fn a_full_group_refuses_and_changes_nothing() {
    let mut group = Group::new(2, 10);
    group.push(1, 4).unwrap();
    assert_eq!(group.push(2, 7), Err(Full));
    assert_eq!(group.push(2, usize::MAX), Err(Full));
    group.push(2, 6).unwrap();
    assert_eq!(group.push(3, 0), Err(Full));
    group.join(1, 5, true);
    assert_eq!(assigned(&mut group), [(1, 1), (1, 2)]);
    // Unacknowledged messages still count in bytes, but not in number.
    group.push(3, 0).unwrap();
    assert_eq!(group.push(4, 1), Err(Full));
    group.acknowledge(1, [2]);
    group.push(4, 6).unwrap();
    assert_eq!(group.counts().bytes, 10);
}

/// Where the model has each message that is not done: id to (bytes, holder, had before).
#[derive(Default)]
struct Model {
    open: BTreeMap<u64, (usize, Option<u32>, bool)>,
    /// Window (0 without acknowledgements) and when the member joined or was served.
    members: BTreeMap<u32, (usize, u64)>,
    clock: u64,
}

impl Model {
    fn held(&self, member: u32) -> usize {
        let holders = self.open.values().map(|(_, holder, _)| *holder);
        holders.filter(|holder| *holder == Some(member)).count()
    }

    fn waiting(&self) -> usize {
        self.open
            .values()
            .filter(|(_, holder, _)| holder.is_none())
            .count()
    }

    fn bytes(&self) -> usize {
        self.open.values().map(|(bytes, ..)| bytes).sum()
    }

    /// The member that must receive the next message, and the message.
    fn next(&mut self) -> Option<(u32, u64, bool)> {
        let (&id, &(_, _, redelivered)) = self
            .open
            .iter()
            .find(|(_, (_, holder, _))| holder.is_none())?;
        let with_room = self
            .members
            .iter()
            .filter(|(member, (window, _))| *window == 0 || self.held(**member) < *window);
        let least = with_room.min_by_key(|(member, (_, turn))| (self.held(**member), *turn));
        let (&member, &(window, _)) = least?;
        self.clock += 1;
        self.members.insert(member, (window, self.clock));
        if window == 0 {
            self.open.remove(&id);
        } else if let Some(message) = self.open.get_mut(&id) {
            (message.1, message.2) = (Some(member), true);
        }
        Some((member, id, redelivered))
    }
}

#[derive(Debug, Clone)]
enum Step {
    Push { bytes: usize },
    Join { member: u32, window: usize },
    Leave { member: u32 },
    Next,
    Acknowledge { member: u32, ids: Vec<u64> },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0usize..20).prop_map(|bytes| Step::Push { bytes }),
        2 => (0u32..6, 0usize..4).prop_map(|(member, window)| Step::Join { member, window }),
        1 => (0u32..6).prop_map(|member| Step::Leave { member }),
        6 => Just(Step::Next),
        4 => (0u32..6, prop::collection::vec(1u64..100, 0..40))
            .prop_map(|(member, ids)| Step::Acknowledge { member, ids }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// No message is lost, none is with two members, and the order is that of their arrival.
    #[test]
    fn agrees_with_a_model(steps in prop::collection::vec(step(), 0..300)) {
        let mut group = Group::new(12, 150);
        let mut model = Model::default();
        let mut id_next = 1;
        for step in steps {
            match step {
                Step::Push { bytes } => {
                    let fits = model.waiting() < 12 && model.bytes() + bytes <= 150;
                    prop_assert_eq!(group.push(id_next, bytes).is_ok(), fits);
                    if fits {
                        model.open.insert(id_next, (bytes, None, false));
                        id_next += 1;
                    }
                }
                Step::Join { member, window } => {
                    let is_new = !model.members.contains_key(&member);
                    prop_assert_eq!(group.join(member, window, window > 0), is_new);
                    if is_new {
                        model.clock += 1;
                        model.members.insert(member, (window, model.clock));
                    }
                }
                Step::Leave { member } => {
                    prop_assert_eq!(group.leave(member), model.held(member));
                    model.members.remove(&member);
                    for message in model.open.values_mut() {
                        message.1 = message.1.filter(|holder| *holder != member);
                    }
                }
                Step::Next => {
                    let next = group.next().map(|(member, delivery)| {
                        (member, delivery.id, delivery.redelivered, delivery.message)
                    });
                    let expected = model.next().map(|(member, id, again)| (member, id, again, id));
                    prop_assert_eq!(next, expected);
                }
                Step::Acknowledge { member, ids } => {
                    let before = model.open.len();
                    for id in &ids {
                        if model.open.get(id).is_some_and(|message| message.1 == Some(member)) {
                            model.open.remove(id);
                        }
                    }
                    prop_assert_eq!(group.acknowledge(member, ids), before - model.open.len());
                }
            }
            let counts = group.counts();
            prop_assert_eq!(counts.members, model.members.len());
            prop_assert_eq!(counts.waiting, model.waiting());
            prop_assert_eq!(counts.unacknowledged, model.open.len() - model.waiting());
            prop_assert_eq!(counts.bytes, model.bytes());
        }
    }
}

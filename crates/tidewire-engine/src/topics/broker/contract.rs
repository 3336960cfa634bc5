//! What every broker must do, whatever it keeps its data in: a new one passes these tests through its factory.

use super::{Broker, Make, MemoryBroker, Missed, Moment, PageQuery, Sink};
use crate::limits::owner::OwnerId;
use crate::model::{ConnectionKey, Position};
use crate::topics::history::HistoryLimits;
use crate::topics::presence::PresenceChange;
use crate::topics::publication::{NewPublication, Placed, Publication};
use std::sync::{Arc, Mutex};
use tidewire_wire::envelope::Priority;

/// Every test, for a broker that `$make` makes.
macro_rules! contract {
    ($name:ident, $make:expr) => {
        mod $name {
            #[allow(unused_imports, reason = "the factory may need anything")]
            use super::*;

            #[test]
            fn positions_follow_each_other_in_the_order_of_delivery() {
                super::positions_follow_each_other(&$make);
            }

            #[test]
            fn many_publishers_have_one_order() {
                super::many_publishers_have_one_order(&$make);
            }

            #[test]
            fn a_recovery_is_complete_or_empty() {
                super::a_recovery_is_complete_or_empty(&$make);
            }

            #[test]
            fn the_newest_comes_where_not_everything_can() {
                super::the_newest_comes(&$make);
            }

            #[test]
            fn a_recovery_and_what_is_delivered_meet() {
                super::a_recovery_and_what_is_delivered_meet(&$make);
            }

            #[test]
            fn pages_and_forgetting() {
                super::pages_and_forgetting(&$make);
            }

            #[test]
            fn connections_of_a_user_are_one_member() {
                super::connections_of_a_user_are_one_member(&$make);
            }
        }
    };
}

contract!(memory, MemoryBroker::new(1 << 20, 1_000));

/// Remembers what it was handed.
#[derive(Default)]
struct Seen(Mutex<Vec<(String, u64)>>);

impl Sink for Seen {
    fn deliver(&self, topic: &Arc<str>, publication: Arc<Publication>) {
        let offset = publication.position.expect("a topic with history").offset;
        let mut seen = self.0.lock().expect("no panic");
        seen.push((topic.to_string(), offset));
    }
}

impl Seen {
    fn offsets(&self) -> Vec<u64> {
        let seen = self.0.lock().expect("no panic");
        seen.iter().map(|(_, offset)| *offset).collect()
    }
}

const LIMITS: HistoryLimits = HistoryLimits {
    publications_max: 5,
    bytes_max: 1 << 16,
    age_max_ms: 0,
};

fn moment(random_epoch: u32) -> Moment {
    Moment {
        now_ms: 1_000,
        random_epoch,
        owner: OwnerId::SERVER,
    }
}

fn publish(broker: &dyn Broker, sink: &dyn Sink, topic: &Arc<str>) -> Position {
    let news = NewPublication::new("t", "1");
    let mut make = |position| {
        Arc::new(news.draft().place(&Placed {
            topic: Some(topic),
            position: Some(position),
            priority: Priority::Normal,
            unix_ms: 0,
        }))
    };
    let make: Make<'_> = &mut make;
    broker.publish(topic, &LIMITS, moment(7), 100, make, sink)
}

fn recovered(broker: &dyn Broker, topic: &Arc<str>, missed: Missed) -> (Position, bool, Vec<u64>) {
    let recovery = broker.recover(topic, &LIMITS, moment(8), missed, &mut || ());
    let offsets = recovery.publications.iter();
    let offsets = offsets.map(|publication| publication.position.expect("kept").offset);
    (recovery.position, recovery.complete, offsets.collect())
}

fn since(epoch: u32, offset: u64) -> Missed {
    Missed {
        since: Some(Position { epoch, offset }),
        or_newest: false,
        limit: usize::MAX,
    }
}

fn positions_follow_each_other(broker: &dyn Broker) {
    let (sink, a, b) = (Seen::default(), "a".into(), "b".into());
    let places = [1, 2, 3].map(|_| publish(broker, &sink, &a));
    assert!(places.iter().all(|place| place.epoch == places[0].epoch));
    assert_eq!(places.map(|place| place.offset), [1, 2, 3]);
    assert_eq!(publish(broker, &sink, &b).offset, 1);
    assert_eq!(sink.offsets(), [1, 2, 3, 1]);
}

fn many_publishers_have_one_order(broker: &dyn Broker) {
    let (sink, topic) = (Seen::default(), "a".into());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..250 {
                    publish(broker, &sink, &topic);
                }
            });
        }
    });
    assert_eq!(sink.offsets(), (1..=1_000).collect::<Vec<_>>());
}

fn a_recovery_is_complete_or_empty(broker: &dyn Broker) {
    let (sink, topic) = (Seen::default(), "a".into());
    let (stands, complete, none) = recovered(broker, &topic, Missed::default());
    assert_eq!((stands.offset, complete, none.len()), (0, false, 0));
    for _ in 0..7 {
        publish(broker, &sink, &topic);
    }
    let epoch = stands.epoch;
    for (offset, expected) in [
        (0, None),
        (1, None),
        (2, Some(vec![3, 4, 5, 6, 7])),
        (6, Some(vec![7])),
        (7, Some(vec![])),
        (8, None),
    ] {
        let (position, complete, offsets) = recovered(broker, &topic, since(epoch, offset));
        assert_eq!((position.epoch, position.offset), (epoch, 7));
        assert_eq!(complete, expected.is_some(), "{offset}");
        assert_eq!(offsets, expected.unwrap_or_default(), "{offset}");
    }
    let (_, complete, _) = recovered(broker, &topic, since(epoch.wrapping_add(1), 7));
    assert!(!complete);
}

fn the_newest_comes(broker: &dyn Broker) {
    let (sink, topic) = (Seen::default(), "a".into());
    let newest = |since| Missed {
        since,
        or_newest: true,
        limit: usize::MAX,
    };
    assert!(recovered(broker, &topic, newest(None)).2.is_empty());
    let places = [1, 2].map(|_| publish(broker, &sink, &topic));
    assert_eq!(recovered(broker, &topic, newest(None)).2, [2]);
    assert_eq!(recovered(broker, &topic, newest(Some(places[0]))).2, [2]);
    assert!(
        recovered(broker, &topic, newest(Some(places[1])))
            .2
            .is_empty()
    );
}

fn a_recovery_and_what_is_delivered_meet(broker: &dyn Broker) {
    let (sink, topic) = (Seen::default(), "a".into());
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..5_000 {
                publish(broker, &sink, &topic);
            }
            is_over.store(true, std::sync::atomic::Ordering::Release);
        });
        while !is_over.load(std::sync::atomic::Ordering::Acquire) {
            let mut delivered = 0;
            let mut locked = || delivered = sink.offsets().len() as u64;
            let nothing = Missed::default();
            let recovery = broker.recover(&topic, &LIMITS, moment(1), nothing, &mut locked);
            assert_eq!(recovery.position.offset, delivered);
        }
    });
}

fn pages_and_forgetting(broker: &dyn Broker) {
    let (sink, topic) = (Seen::default(), "a".into());
    let first = publish(broker, &sink, &topic);
    publish(broker, &sink, &topic);
    let query = PageQuery {
        since: None,
        limit: 1,
        newest_first: true,
    };
    let page = broker.page(&topic, &LIMITS, 1_000, query);
    assert_eq!(page.publications[0].position.expect("kept").offset, 2);
    assert!(page.more);
    assert!(broker.forget(&topic));
    assert!(!broker.forget(&topic));
    let (stands, complete, _) = recovered(broker, &topic, since(first.epoch, 1));
    assert!(!complete && stands.offset == 0 && stands.epoch != first.epoch);
}

fn connections_of_a_user_are_one_member(broker: &dyn Broker) {
    let (topic, ada): (Arc<str>, Arc<str>) = ("a".into(), "ada".into());
    let key = |text: &str| text.parse::<ConnectionKey>().expect("a connection");
    let (one, two) = (key("0-1"), key("0-2"));
    assert_eq!(broker.join(&topic, &ada, one, None), PresenceChange::Joined);
    assert_eq!(
        broker.join(&topic, &ada, two, None),
        PresenceChange::Unchanged
    );
    let data = Some("{}".into());
    assert_eq!(
        broker.join(&topic, &ada, two, data),
        PresenceChange::Updated
    );
    let view = broker.present(&topic, 10);
    assert_eq!(
        (view.users, view.connections, view.members.len()),
        (1, 2, 1)
    );
    assert_eq!(broker.present(&topic, 0).members.len(), 0);
    assert_eq!(broker.leave(&topic, &ada, one), PresenceChange::Unchanged);
    assert_eq!(broker.leave(&topic, &ada, two), PresenceChange::Left);
    assert_eq!(broker.leave(&topic, &ada, two), PresenceChange::Unchanged);
    assert_eq!(broker.present(&topic, 10).users, 0);
}

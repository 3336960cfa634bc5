//! Contract of every broker, whatever it keeps its data in: a new one passes these tests through
//! its [`Subject`].

use super::new_hub;
use crate::cluster::{CallDone, Cluster, LinkLimits, Neighbour};
use crate::config::Config;
use crate::config::broker::{BrokerAddress, BrokerConfig};
use crate::limits::owner::OwnerId;
use crate::model::call_types::NewCall;
use crate::model::{ConnectionKey, Position};
use crate::topics::broker::late::{Delivers, Fate, LateBroker};
use crate::topics::broker::memory::{MemoryBroker, MemoryLimits};
use crate::topics::broker::{
    Broker, BrokerAnswer, ClusterNode, Control, Done, Missed, Moment, Order, PageQuery, Prepare,
    Refusal, Sink, Ticket, TicketOutcome,
};
use crate::topics::config::TopicRule;
use crate::topics::history::HistoryLimits;
use crate::topics::hub::Hub;
use crate::topics::new_publication::NewPublication;
use crate::topics::outlet::Delivery;
use crate::topics::presence::PresenceChange;
use crate::topics::publication::{Publication, Published};
use std::collections::VecDeque;
use std::sync::mpsc::{self, TryRecvError};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tidewire_testkit::redis::RedisServer;

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
            fn an_id_is_published_once() {
                super::an_id_is_published_once(&$make);
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

contract!(memory, Subject::memory());
contract!(late, Subject::late());
contract!(redis, Subject::redis());

/// A broker under test, and what makes it go on.
struct Subject {
    broker: Arc<dyn Broker>,
    seen: Arc<Seen>,
    late: Option<Arc<LateBroker>>,
    shared: Option<Shared>,
}

/// A broker that delivers to a server's topics when Redis requests it.
struct Shared {
    hub: Arc<Hub>,
    _redis: RedisServer,
}

impl Subject {
    fn memory() -> Self {
        Self {
            broker: Arc::new(memory_broker()),
            seen: Arc::default(),
            late: None,
            shared: None,
        }
    }

    /// A link to a Redis of its own, whose deliveries go to the only shard.
    fn redis() -> Self {
        let redis = RedisServer::start("");
        let mut config = Config {
            shards: 1,
            ..Config::default()
        };
        let presence = TopicRule {
            presence: true,
            ..rule()
        };
        config.topics.rules = vec![presence];
        let address = BrokerAddress::parse(&redis.url()).expect("a URL");
        let broker_config = BrokerConfig::new(address);
        let cluster = Cluster::new(&broker_config, &LinkLimits::of(&config)).expect("a link");
        let broker = cluster.broker();
        let hub = new_hub(&config, Some(Arc::clone(&broker))).expect("topics");
        let hub = Arc::new(hub);
        for link in cluster.into_links(&Arc::downgrade(&hub), &Alone) {
            std::thread::spawn(move || link.run().map(drop));
        }
        let seen = Arc::new(Seen {
            hub: Some(Arc::clone(&hub)),
            ..Seen::default()
        });
        Self {
            broker,
            seen,
            late: None,
            shared: Some(Shared { hub, _redis: redis }),
        }
    }

    fn late() -> Self {
        let (seen, late) = (
            Arc::<Seen>::default(),
            Arc::new(LateBroker::new(memory_broker())),
        );
        let sink: Arc<dyn Delivers> = Arc::clone(&seen) as Arc<dyn Delivers>;
        late.attach(Arc::downgrade(&sink));
        Self {
            broker: Arc::clone(&late) as Arc<dyn Broker>,
            seen,
            late: Some(late),
            shared: None,
        }
    }

    /// Whoever wants the publications of a topic is there before it is published to.
    fn follow(&self, topic: &Arc<str>) {
        if let Some(Shared { hub, .. }) = &self.shared {
            hub.add_interest(topic, 0);
            self.prepare(topic);
        }
    }

    /// A server learns of its own publications as the others do: some time after they are accepted.
    fn catch_up(&self, topic: &Arc<str>, offset: u64) {
        let newest = || self.recovered(topic, Missed::default()).0.offset;
        eventually(|| newest() == offset);
    }

    /// The offsets that were delivered, once there are `count`.
    fn delivered(&self, count: usize) -> Vec<u64> {
        let seen = || self.seen.offsets();
        eventually(|| seen().len() >= count);
        seen()
    }

    /// Asks, and makes the broker go on until it has answered.
    fn ask<T>(
        &self,
        ask: impl FnOnce(&mut dyn FnMut() -> Ticket) -> BrokerAnswer<Result<T, Refusal>>,
        read: impl FnOnce(Done) -> Option<T>,
    ) -> T {
        let (sender, outcomes) = mpsc::channel::<TicketOutcome>();
        let mut tickets = || {
            let sender = sender.clone();
            Ticket::of_caller(move |outcome| sender.send(outcome).expect("the test waits"))
        };
        match ask(&mut tickets) {
            BrokerAnswer::Now(result) => result.expect("a broker that answers"),
            BrokerAnswer::Later => loop {
                match outcomes.try_recv() {
                    Ok(outcome) => {
                        let done = outcome.expect("a broker that answers");
                        return read(done).expect("an answer to the question");
                    }
                    Err(TryRecvError::Empty) => self.go_on(),
                    Err(TryRecvError::Disconnected) => panic!("the test holds a sender"),
                }
            },
        }
    }

    fn go_on(&self) {
        let is_idle = match &self.late {
            Some(late) => !late.act(Fate::Done) && !late.tell(0),
            None => true,
        };
        if is_idle {
            std::thread::yield_now();
        }
    }

    fn publish_as(&self, topic: &Arc<str>, publication: &NewPublication) -> Published {
        let (rule, draft) = (rule(), publication.draft());
        let order = Order {
            topic,
            rule: &rule,
            draft: &draft,
            moment: moment(7),
        };
        self.ask(
            |tickets| self.broker.publish(&order, tickets, &*self.seen),
            |done| match done {
                Done::Published(published) => Some(published),
                _ => None,
            },
        )
    }

    fn publish(&self, topic: &Arc<str>) -> Position {
        let published = self.publish_as(topic, &NewPublication::new("t", "1"));
        published.position.expect("a topic with history")
    }

    fn prepare(&self, topic: &Arc<str>) {
        let (rule, wanted) = (
            rule(),
            Prepare {
                since: None,
                newest: u64::MAX,
            },
        );
        self.ask(
            |tickets| self.broker.prepare(topic, &rule, wanted, tickets),
            |done| (done == Done::Prepared).then_some(()),
        );
    }

    fn recovered(&self, topic: &Arc<str>, missed: Missed) -> (Position, bool, Vec<u64>) {
        self.prepare(topic);
        let recovery = self
            .broker
            .recover(topic, &LIMITS, moment(8), missed, &mut || ())
            .expect("a topic that is ready");
        let offsets = recovery.publications.iter();
        let offsets = offsets.map(|publication| publication.position.expect("kept").offset);
        (recovery.position, recovery.complete, offsets.collect())
    }

    fn forget(&self, topic: &Arc<str>) -> bool {
        self.ask(
            |tickets| self.broker.forget(topic, tickets),
            |done| match done {
                Done::Forgotten(was_there) => Some(was_there),
                _ => None,
            },
        )
    }
}

fn memory_broker() -> MemoryBroker {
    MemoryBroker::new(&MemoryLimits {
        history_bytes_max: 1 << 20,
        history_topics_max: 1_000,
        remembered_ids_max: 100,
    })
}

/// The only server of its cluster, without clients.
#[derive(Clone)]
struct Alone;

impl Neighbour for Alone {
    fn obey(&self, _: Control, _: Option<u64>) -> bool {
        true
    }

    fn call(&self, _: ConnectionKey, _: NewCall, _: CallDone) {}

    fn describe(&self) -> ClusterNode {
        ClusterNode::default()
    }

    fn limits(&self) -> String {
        String::new()
    }
}

/// Waits for something that happens on another thread.
fn eventually(is_so: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !is_so() {
        assert!(Instant::now() < end, "in vain");
        std::thread::yield_now();
    }
}

/// Remembers what it was handed, or what its hub has for the only shard.
#[derive(Debug, Default)]
struct Seen {
    deliveries: Mutex<Vec<(String, u64)>>,
    hub: Option<Arc<Hub>>,
}

impl Sink for Seen {
    fn deliver(&self, topic: &Arc<str>, publication: Arc<Publication>) {
        let offset = publication.position.expect("a topic with history").offset;
        let mut deliveries = self.deliveries.lock().expect("no panic");
        deliveries.push((topic.to_string(), offset));
    }
}

impl Seen {
    fn offsets(&self) -> Vec<u64> {
        let mut deliveries = self.deliveries.lock().expect("no panic");
        if let Some(hub) = &self.hub {
            let mut taken = VecDeque::new();
            hub.outlets[0].take(&mut taken);
            for Delivery { publication, .. } in taken {
                hub.outlets[0].settle(publication.cost());
                let offset = publication.position.expect("a topic with history").offset;
                deliveries.push((String::new(), offset));
            }
        }
        deliveries.iter().map(|(_, offset)| *offset).collect()
    }
}

const LIMITS: HistoryLimits = HistoryLimits {
    publications_max: 5,
    bytes_max: 1 << 16,
    age_max_ms: 0,
};

fn rule() -> TopicRule {
    TopicRule {
        history: Some(LIMITS),
        ..TopicRule::new(">")
    }
}

fn moment(random_epoch: u32) -> Moment {
    Moment {
        now_ms: 1_000,
        random_epoch,
        owner: OwnerId::SERVER,
    }
}

fn since(epoch: u32, offset: u64) -> Missed {
    Missed {
        since: Some(Position { epoch, offset }),
        or_newest: false,
        limit: usize::MAX,
    }
}

fn positions_follow_each_other(subject: &Subject) {
    let (a, b) = ("a".into(), "b".into());
    subject.follow(&a);
    subject.follow(&b);
    let places = [1, 2, 3].map(|_| subject.publish(&a));
    assert!(places.iter().all(|place| place.epoch == places[0].epoch));
    assert_eq!(places.map(|place| place.offset), [1, 2, 3]);
    assert_eq!(subject.publish(&b).offset, 1);
    assert_eq!(subject.delivered(4), [1, 2, 3, 1]);
}

fn many_publishers_have_one_order(subject: &Subject) {
    let topic = "a".into();
    subject.follow(&topic);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..250 {
                    subject.publish(&topic);
                }
            });
        }
    });
    assert_eq!(subject.delivered(1_000), (1..=1_000).collect::<Vec<_>>());
}

fn an_id_is_published_once(subject: &Subject) {
    let topic = "a".into();
    subject.follow(&topic);
    subject.follow(&"b".into());
    let publication = NewPublication::new("t", "1").with_id("one");
    let first = subject.publish_as(&topic, &publication);
    let second = subject.publish_as(&topic, &publication);
    assert!(!first.is_duplicate && second.is_duplicate);
    assert_eq!(first.position, second.position);
    assert!(!subject.publish_as(&"b".into(), &publication).is_duplicate);
    assert_eq!(subject.delivered(2), [1, 1]);
}

fn a_recovery_is_complete_or_empty(subject: &Subject) {
    let topic = "a".into();
    let (stands, complete, none) = subject.recovered(&topic, Missed::default());
    assert_eq!((stands.offset, complete, none.len()), (0, false, 0));
    for _ in 0..7 {
        subject.publish(&topic);
    }
    subject.catch_up(&topic, 7);
    let epoch = stands.epoch;
    for (offset, expected) in [
        (0, None),
        (1, None),
        (2, Some(vec![3, 4, 5, 6, 7])),
        (6, Some(vec![7])),
        (7, Some(vec![])),
        (8, None),
    ] {
        let (position, complete, offsets) = subject.recovered(&topic, since(epoch, offset));
        assert_eq!((position.epoch, position.offset), (epoch, 7));
        assert_eq!(complete, expected.is_some(), "{offset}");
        assert_eq!(offsets, expected.unwrap_or_default(), "{offset}");
    }
    let (_, complete, _) = subject.recovered(&topic, since(epoch.wrapping_add(1), 7));
    assert!(!complete);
}

fn the_newest_comes(subject: &Subject) {
    let topic = "a".into();
    let newest = |since| Missed {
        since,
        or_newest: true,
        limit: usize::MAX,
    };
    assert!(subject.recovered(&topic, newest(None)).2.is_empty());
    let places = [1, 2].map(|_| subject.publish(&topic));
    subject.catch_up(&topic, 2);
    assert_eq!(subject.recovered(&topic, newest(None)).2, [2]);
    assert_eq!(subject.recovered(&topic, newest(Some(places[0]))).2, [2]);
    assert!(
        subject
            .recovered(&topic, newest(Some(places[1])))
            .2
            .is_empty()
    );
}

fn a_recovery_and_what_is_delivered_meet(subject: &Subject) {
    let topic: Arc<str> = "a".into();
    subject.follow(&topic);
    subject.prepare(&topic);
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..5_000 {
                subject.publish(&topic);
            }
            is_over.store(true, std::sync::atomic::Ordering::Release);
        });
        while !is_over.load(std::sync::atomic::Ordering::Acquire) {
            let mut delivered = 0;
            let mut locked = || delivered = subject.seen.offsets().len() as u64;
            let nothing = Missed::default();
            let recovery = subject
                .broker
                .recover(&topic, &LIMITS, moment(1), nothing, &mut locked)
                .expect("a topic that is ready");
            assert_eq!(recovery.position.offset, delivered);
        }
    });
}

fn pages_and_forgetting(subject: &Subject) {
    let topic: Arc<str> = "a".into();
    let first = subject.publish(&topic);
    subject.publish(&topic);
    let query = PageQuery {
        since: None,
        limit: 1,
        newest_first: true,
    };
    subject.catch_up(&topic, 2);
    let page = subject.broker.page(&topic, &LIMITS, 1_000, query);
    let page = page.expect("a topic that is ready");
    assert_eq!(page.publications[0].position.expect("kept").offset, 2);
    assert!(page.more);
    assert!(subject.forget(&topic));
    assert!(!subject.forget(&topic));
    subject.catch_up(&topic, 0);
    let (stands, complete, _) = subject.recovered(&topic, since(first.epoch, 1));
    assert!(!complete && stands.offset == 0 && stands.epoch != first.epoch);
}

fn connections_of_a_user_are_one_member(subject: &Subject) {
    let broker = &subject.broker;
    let (topic, ada): (Arc<str>, Arc<str>) = ("a".into(), "ada".into());
    let key = |text: &str| text.parse::<ConnectionKey>().expect("a connection");
    let (one, two) = (key("0-1"), key("0-2"));
    subject.follow(&topic);
    // A broker of several servers notifies the subscribers itself, in the order of all servers.
    let changes = |change| match subject.shared {
        Some(_) => PresenceChange::Unchanged,
        None => change,
    };
    let join = |connection, data| broker.join(&topic, &ada, connection, data);
    let leave = |connection| broker.leave(&topic, &ada, connection);
    assert_eq!(join(one, None), changes(PresenceChange::Joined));
    assert_eq!(join(two, None), PresenceChange::Unchanged);
    let updated = join(two, Some("{}".into()));
    assert_eq!(updated, changes(PresenceChange::Updated));
    let figures = |limit| {
        let view = broker.present(&topic, limit);
        (view.users, view.connections, view.members.len())
    };
    eventually(|| figures(10) == (1, 2, 1));
    assert_eq!(figures(0).2, 0);
    assert_eq!(leave(one), PresenceChange::Unchanged);
    eventually(|| figures(10) == (1, 1, 1));
    assert_eq!(leave(two), changes(PresenceChange::Left));
    assert_eq!(leave(two), PresenceChange::Unchanged);
    eventually(|| figures(10) == (0, 0, 0));
}

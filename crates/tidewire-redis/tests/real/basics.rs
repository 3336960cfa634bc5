//! Publishing, delivery, reading.

use crate::peer::{KEPT, Peer};
use crate::server::Server;
use tidewire_redis::{
    Address, Addressee, Event, LinkOptions, NodeId, PageQuery, Position, Refusal,
};

#[test]
fn publications_of_two_links_arrive_everywhere_in_one_order() {
    let server = Server::start("");
    let mut one = Peer::connect(&server.path(), LinkOptions::default());
    let mut two = Peer::connect(&server.path(), LinkOptions::default());
    let head = one.want("a", KEPT).unwrap();
    assert_eq!(head.offset, 0);
    assert_eq!(two.want("a", KEPT), Some(head));
    for number in 0..500 {
        one.publish("a", KEPT, &format!("{number}"));
        two.publish("a", KEPT, &format!("{}", 1_000 + number));
        if number % 7 == 0 {
            one.turn();
        }
        if number % 11 == 0 {
            two.turn();
        }
    }
    let is_all = |peer: &mut Peer| peer.delivered("a").len() == 1_000;
    one.until("all", |peer| {
        two.turn();
        is_all(peer)
    });
    two.until("all", is_all);
    assert_eq!(one.delivered("a"), two.delivered("a"));
    let offsets: Vec<u64> = one
        .delivered("a")
        .iter()
        .map(|it| it.as_ref().unwrap().0.unwrap().offset)
        .collect();
    assert_eq!(offsets, (1..=1_000).collect::<Vec<_>>());
    // The order of each publisher.
    for first in [0, 1_000] {
        let own: Vec<u64> = one
            .payloads("a")
            .iter()
            .map(|payload| payload.parse().unwrap())
            .filter(|number| (first..first + 500).contains(number))
            .collect();
        assert_eq!(own, (first..first + 500).collect::<Vec<_>>());
    }
    one.until("answers", |peer| peer.published.len() == 500);
    assert_eq!(one.link.counters().settled, 500);
    assert!(
        one.link.counters().batches < 200,
        "{:?}",
        one.link.counters()
    );
}

#[test]
fn a_topic_without_history_has_no_positions() {
    let server = Server::start("");
    let mut one = Peer::connect(&server.path(), LinkOptions::default());
    let mut two = Peer::connect(&server.path(), LinkOptions::default());
    assert_eq!(two.want("a", None), None);
    assert_eq!(one.place("a", None, "1").position, None);
    two.until("delivered", |peer| peer.payloads("a") == ["1"]);
    let exists: i64 = redis::cmd("EXISTS")
        .arg("tw:{0}:t:a")
        .query(&mut server.witness())
        .unwrap();
    assert_eq!(exists, 0);
}

#[test]
fn an_id_is_published_once() {
    let server = Server::start("");
    let mut one = Peer::connect(&server.path(), LinkOptions::default());
    let mut two = Peer::connect(&server.path(), LinkOptions::default());
    two.want("a", KEPT);
    for history in [KEPT, None] {
        let topic = if history.is_some() { "a" } else { "b" };
        let first = one.publish_with(topic, history, "1", Some("x"));
        let again = one.publish_with(topic, history, "2", Some("x"));
        let other = one.publish_with(topic, history, "3", Some("y"));
        let (first, again) = (one.outcome(first).unwrap(), one.outcome(again).unwrap());
        assert!(!first.is_duplicate && again.is_duplicate);
        assert_eq!(first.position, again.position);
        assert!(!one.outcome(other).unwrap().is_duplicate);
        let elsewhere = two.publish_with(topic, history, "4", Some("x"));
        assert!(two.outcome(elsewhere).unwrap().is_duplicate);
    }
    two.until("delivered", |peer| peer.payloads("a") == ["1", "3"]);
}

#[test]
fn what_was_missed_can_be_read() {
    let server = Server::start("");
    let mut peer = Peer::connect(&server.path(), LinkOptions::default());
    let mut last = None;
    for number in 1..=40 {
        last = peer.place("a", KEPT, &number.to_string()).position;
    }
    let head = last.unwrap();
    assert_eq!(head.offset, 40);
    let query = |since: Option<u64>, limit, newest_first| PageQuery {
        since: since.map(|offset| Position { offset, ..head }),
        limit,
        newest_first,
        creates: None,
    };
    let mut read = |topic: &str, query| match peer.read(topic, query) {
        Event::Read {
            outcome: Ok(found), ..
        } => {
            let offsets: Vec<u64> = found.entries.iter().map(|(at, _)| at.offset).collect();
            (found.head, offsets, found.connects, found.has_more)
        }
        other => panic!("{other:?}"),
    };
    let head = Some(head);
    assert_eq!(
        read("a", query(Some(37), 100, false)),
        (head, vec![38, 39, 40], true, false)
    );
    assert_eq!(
        read("a", query(Some(10), 2, false)),
        (head, vec![11, 12], true, true)
    );
    assert_eq!(
        read("a", query(Some(40), 2, false)),
        (head, vec![], true, false)
    );
    assert_eq!(
        read("a", query(Some(41), 2, false)),
        (head, vec![], false, false)
    );
    assert_eq!(
        read("a", query(None, 30, false)),
        (head, (1..=30).collect(), true, true)
    );
    assert_eq!(
        read("a", query(None, 2, true)),
        (head, vec![40, 39], true, true)
    );
    assert_eq!(read("b", query(None, 2, true)), (None, vec![], true, false));
    let other = PageQuery {
        since: Some(Position {
            epoch: 1,
            offset: 2,
        }),
        ..query(None, 9, false)
    };
    assert_eq!(read("a", other), (head, vec![], false, false));
    let creates = PageQuery {
        creates: KEPT,
        ..query(None, 9, false)
    };
    let (created, entries, ..) = read("c", creates);
    assert_eq!((created.unwrap().offset, entries), (0, vec![]));
}

#[test]
fn a_trimmed_topic_does_not_connect() {
    // Else 3 publications and a block would be left.
    let server = Server::start("--stream-node-max-entries 1");
    let mut peer = Peer::connect(&server.path(), LinkOptions::default());
    let short = KEPT.map(|keep| tidewire_redis::Keep {
        publications_max: 3,
        ..keep
    });
    let mut head = Position::default();
    for number in 0..10 {
        head = peer
            .place("a", short, &number.to_string())
            .position
            .unwrap();
    }
    for (since, connects) in [(6, false), (7, true)] {
        let since = Some(Position {
            offset: since,
            ..head
        });
        let query = PageQuery {
            since,
            limit: 9,
            newest_first: false,
            creates: None,
        };
        let Event::Read {
            outcome: Ok(found), ..
        } = peer.read("a", query)
        else {
            panic!("no entries");
        };
        assert_eq!((found.entries.len(), found.connects), (3, connects));
    }
}

#[test]
fn to_forget_begins_a_new_epoch_that_everybody_is_told() {
    let server = Server::start("");
    let mut one = Peer::connect(&server.path(), LinkOptions::default());
    let mut two = Peer::connect(&server.path(), LinkOptions::default());
    two.want("a", KEPT);
    let before = one.place("a", KEPT, "1").position.unwrap();
    let now = one.now();
    one.link.forget(77, &"a".into(), now);
    let mut after = None;
    one.until("forgotten", |peer| {
        after = peer.events.iter().find_map(|event| match event {
            Event::Forgotten {
                number: 77,
                outcome,
            } => Some(*outcome),
            _ => None,
        });
        after.is_some()
    });
    let after = after.unwrap().unwrap().unwrap();
    assert!(after.epoch > before.epoch && after.offset == 0);
    two.until("the gap", |peer| peer.gaps("a") == 1);
    let next = one.place("a", KEPT, "2").position.unwrap();
    assert_eq!(next, Position { offset: 1, ..after });
    two.until("the next", |peer| peer.payloads("a") == ["1", "2"]);
    assert_eq!(two.gaps("a"), 1);
}

#[test]
fn a_pattern_brings_topics_that_nobody_subscribed_to() {
    let server = Server::start("");
    let mut one = Peer::connect(&server.path(), LinkOptions::default());
    let mut two = Peer::connect(&server.path(), LinkOptions::default());
    for pattern in ["a.*", "a.>"] {
        two.link.watch(&pattern.into());
    }
    let watching = |peer: &Peer| {
        let events = peer.events.iter();
        events
            .filter(|event| matches!(event, Event::Watching { .. }))
            .count()
    };
    two.until("watching", |peer| watching(peer) == 2);
    two.want("a.live", KEPT);
    for (topic, history) in [
        ("a.live", KEPT),
        ("a.kept", KEPT),
        ("a.plain", None),
        ("b", KEPT),
    ] {
        one.place(topic, history, topic);
    }
    let matched = |peer: &Peer| {
        let topics = peer.events.iter().filter_map(|event| match event {
            Event::Matched {
                topic, position, ..
            } => Some((topic.to_string(), position.is_some())),
            _ => None,
        });
        topics.collect::<Vec<_>>()
    };
    two.until("the last", |peer| matched(peer).len() == 2);
    assert_eq!(
        matched(&two),
        [("a.kept".to_owned(), true), ("a.plain".to_owned(), false)]
    );
    assert_eq!(two.payloads("a.live"), ["a.live"]);
    // After a lost connection nobody knows what was missed.
    let mut kill = redis::cmd("CLIENT");
    let _: i64 = kill
        .arg("KILL")
        .arg("TYPE")
        .arg("pubsub")
        .query(&mut server.witness())
        .unwrap();
    let gaps = |peer: &Peer| {
        peer.events
            .iter()
            .filter(|event| matches!(event, Event::PatternGap { .. }))
            .count()
    };
    two.until("the gaps", |peer| gaps(peer) == 2);
    let now = two.now();
    two.link.unwatch("a.*", now);
    two.link.unwatch("a.>", now);
    let mut witness = server.witness();
    let mut patterns = || {
        redis::cmd("PUBSUB")
            .arg("NUMPAT")
            .query::<i64>(&mut witness)
            .unwrap()
    };
    two.until("no pattern", |_| patterns() == 0);
}

/// How often Redis sends a message that is published on a channel.
fn receivers(server: &Server, channel: &str) -> i64 {
    let mut publish = redis::cmd("PUBLISH");
    publish.arg(channel).arg("g");
    publish.query(&mut server.witness()).expect("a count")
}

#[test]
fn redis_sends_a_publication_once_however_many_patterns_it_matches() {
    const MANY: usize = 1_000;
    let server = Server::start("");
    let mut one = Peer::connect(&server.path(), LinkOptions::default());
    let mut two = Peer::connect(&server.path(), LinkOptions::default());
    let watch = |peer: &mut Peer, patterns: &[String]| {
        peer.events.clear();
        for pattern in patterns {
            peer.link.watch(&pattern.as_str().into());
        }
        let is_watching = |event: &&Event| matches!(event, Event::Watching { .. });
        let count = |peer: &Peer| peer.events.iter().filter(is_watching).count();
        peer.until("watching", |peer| count(peer) == patterns.len());
    };
    // All match `a.0.0.0.0.0.0.0.0.0.0.x`.
    let stars = (0..MANY).map(|number| {
        let star = |bit: usize| if number >> bit & 1 == 1 { "*" } else { "0" };
        let segments: Vec<_> = (0..10).map(star).collect();
        format!("a.{}.*", segments.join("."))
    });
    let stars: Vec<_> = stars.collect();
    // None matches it, and they begin in more ways than a node subscribes to.
    let rooms: Vec<_> = (0..MANY).map(|number| format!("room{number}.>")).collect();
    watch(&mut two, &stars);
    watch(&mut two, &rooms);
    let topic = format!("a.{}x", "0.".repeat(10));
    one.place(&topic, KEPT, "once");
    let matched = |peer: &Peer| {
        let events = peer.events.iter();
        events
            .filter(|event| matches!(event, Event::Matched { topic: own, .. } if **own == *topic))
            .count()
    };
    two.until("the publication", |peer| matched(peer) == 1);
    for channel in [format!("tw:{{0}}:t:{topic}"), "tw:{0}:t:room7.x".to_owned()] {
        assert_eq!(receivers(&server, &channel), 1, "{channel}");
    }
    let mut witness = server.witness();
    let mut globs = || {
        let command = redis::cmd("PUBSUB").arg("NUMPAT").to_owned();
        command.query::<i64>(&mut witness).unwrap()
    };
    assert!(globs() <= 64, "{}", globs());
    // What is left is subscribed to alone.
    let now = two.now();
    for pattern in stars.iter().chain(&rooms[1..]) {
        two.link.unwatch(pattern, now);
    }
    two.until("one glob", |_| globs() == 1);
    assert_eq!(receivers(&server, "tw:{0}:t:room0.x"), 1);
    assert_eq!(receivers(&server, "tw:{0}:t:room1.x"), 0);
}

#[test]
fn a_subscription_that_is_not_read_is_not_given_up() {
    let server = Server::start("");
    let options = LinkOptions {
        command_ms: 200,
        ..LinkOptions::default()
    };
    let mut one = Peer::connect(&server.path(), LinkOptions::default());
    let mut two = Peer::connect(&server.path(), options);
    two.want("a", KEPT);
    // The confirmation of this subscription and what is published wait in the socket, for longer than a command may.
    two.link.pause();
    two.is_deaf = true;
    let now = two.now();
    two.link.want(&"b".into(), KEPT, now);
    one.place("a", KEPT, "later");
    two.until("a while", |peer| peer.now().ms > now.ms + 600);
    assert_eq!(two.link.counters().disconnects, 0);
    two.is_deaf = false;
    let now = two.now();
    two.link.resume(now);
    let live = |peer: &Peer| {
        let is_b = |event: &Event| matches!(event, Event::Live { topic, .. } if **topic == *"b");
        peer.events.iter().any(is_b)
    };
    two.until("live", |peer| live(peer));
    two.until("the publication", |peer| peer.payloads("a") == ["later"]);
    assert_eq!(two.link.counters().disconnects, 0);
}

#[test]
fn no_topic_catches_up_while_the_owner_has_too_much() {
    let server = Server::start("");
    let mut one = Peer::connect(&server.path(), LinkOptions::default());
    let mut two = Peer::connect(&server.path(), LinkOptions::default());
    two.want("a", KEPT);
    let mut kill = redis::cmd("CLIENT");
    let kill = kill.arg("KILL").arg("TYPE").arg("pubsub");
    let _: i64 = kill.query(&mut server.witness()).unwrap();
    one.place("a", KEPT, "missed");
    two.link.pause();
    two.until("connected again", |peer| {
        peer.link.counters().disconnects > 0 && peer.link.health().is_connected
    });
    let probes = two.link.counters().probes;
    two.until("a probe", |peer| peer.link.counters().probes > probes);
    assert_eq!(two.link.counters().catch_ups, 0);
    let now = two.now();
    two.link.resume(now);
    two.until("the publication", |peer| peer.payloads("a") == ["missed"]);
}

#[test]
fn parcels_reach_a_node_a_user_and_everyone() {
    let server = Server::start("");
    let mut one = Peer::connect(&server.path(), LinkOptions::default());
    let mut two = Peer::connect(&server.path(), LinkOptions::default());
    two.link.add_user_interest(&"ann".into());
    two.turn();
    let mut witness = server.witness();
    let mut subscribers = || {
        let command = redis::cmd("PUBSUB")
            .arg("NUMSUB")
            .arg("tw:{0}:v:ann")
            .to_owned();
        command.query::<(String, i64)>(&mut witness).unwrap().1
    };
    two.until("subscribed", |_| subscribers() == 1);
    let to_two = Address::Node(two.link.node());
    let nobody = Address::Node(NodeId(1));
    let addresses = [
        (to_two, 1),
        (Address::User("ann"), 1),
        (Address::Everyone, 2),
        (nobody, 0),
        (Address::User("bob"), 0),
    ];
    for (number, (address, _)) in addresses.iter().enumerate() {
        let now = one.now();
        one.link.send(number as u64, *address, &[number as u8], now);
    }
    let expected = addresses
        .iter()
        .enumerate()
        .map(|(number, (_, receivers))| Event::Sent {
            number: number as u64,
            outcome: Ok(*receivers),
        });
    for event in expected {
        one.until("sent", |peer| peer.events.contains(&event));
    }
    let parcel = |addressee, byte: u8| Event::Parcel {
        addressee,
        parcel: [byte].into(),
    };
    let everyone = parcel(Addressee::Everyone, 2);
    one.until("everyone", |peer| peer.events.contains(&everyone));
    two.until("everyone", |peer| peer.events.contains(&everyone));
    let ann = parcel(Addressee::User("ann".into()), 1);
    for event in [parcel(Addressee::Node, 0), ann] {
        assert!(two.events.contains(&event) && !one.events.contains(&event));
    }
    two.link.remove_user_interest("ann");
    two.until("unsubscribed", |_| subscribers() == 0);
}

#[test]
fn parcels_are_refused_while_the_broker_is_away() {
    let server = Server::start("");
    let options = LinkOptions {
        broker_wait_ms: 50,
        ..LinkOptions::default()
    };
    let mut peer = Peer::connect(&server.path(), options);
    drop(server);
    peer.until("noticed", |peer| !peer.link.health().is_connected);
    let now = peer.now();
    peer.link.send(1, Address::Everyone, b"x", now);
    let refused = Event::Sent {
        number: 1,
        outcome: Err(Refusal::Unavailable),
    };
    peer.until("refused", |peer| peer.events.contains(&refused));
}

#[test]
fn interest_ends_some_time_after_the_last_subscriber() {
    let server = Server::start("");
    let options = LinkOptions {
        linger_ms: 50,
        ..LinkOptions::default()
    };
    let mut peer = Peer::connect(&server.path(), options);
    let mut witness = server.witness();
    let mut subscribers = || {
        let command = redis::cmd("PUBSUB")
            .arg("NUMSUB")
            .arg("tw:{0}:t:a")
            .to_owned();
        command.query::<(String, i64)>(&mut witness).unwrap().1
    };
    peer.want("a", KEPT);
    assert_eq!(subscribers(), 1);
    let now = peer.now();
    peer.link.unwant("a", now);
    // Wanted again while it lingers: it is still live.
    peer.want("a", KEPT);
    let now = peer.now();
    peer.link.unwant("a", now);
    peer.until("unsubscribed", |_| subscribers() == 0);
    assert_eq!(peer.link.topics(), 0);
}

//! Several databases of one Redis: keys are apart by themselves, and channels by their names.

use crate::peer::{KEPT, Peer};
use crate::server::Server;
use std::sync::Arc;
use std::time::Duration;
use tidewire_redis::{
    Address, Category, Event, LinkOptions, Mark, NodeId, Priority, Problem, Record,
};

fn of(database: u32) -> LinkOptions {
    LinkOptions {
        database,
        ..LinkOptions::default()
    }
}

fn turn_all(peers: &mut [Peer], what: &str, mut is_true: impl FnMut(&[Peer]) -> bool) {
    crate::server::wait_for(what, || {
        peers.iter_mut().for_each(Peer::turn);
        is_true(peers)
    });
}

fn matched(peer: &Peer) -> Vec<String> {
    let all = peer.events.iter().filter_map(|event| match event {
        Event::Matched { record, .. } => Some(Record::decode(record).expect("a record")),
        _ => None,
    });
    all.map(|record| String::from_utf8_lossy(record.payload).into_owned())
        .collect()
}

fn parcels(peer: &Peer) -> Vec<String> {
    let all = peer.events.iter().filter_map(|event| match event {
        Event::Parcel { parcel, .. } => Some(String::from_utf8_lossy(parcel).into_owned()),
        _ => None,
    });
    all.collect()
}

fn send(peer: &mut Peer, address: Address<'_>, text: &str) {
    let now = peer.now();
    peer.link.send(1_000_000, address, text.as_bytes(), now);
}

/// Listens to everything that a cluster sends.
fn listen(peer: &mut Peer) {
    peer.want("kept", KEPT);
    peer.want("plain", None);
    peer.link.watch(&Arc::from("p.*"));
    let is_watching = |peer: &mut Peer| {
        let mut events = peer.events.iter();
        events.any(|event| matches!(event, Event::Watching { .. }))
    };
    peer.until("watching", is_watching);
    peer.link.add_user_interest(&Arc::from("ann"));
    // The confirmation of a later subscription.
    peer.want("behind", None);
}

/// Publishes and sends in every form.
fn say(peer: &mut Peer, text: &str) {
    peer.place("kept", KEPT, text);
    peer.place("plain", None, text);
    peer.place("p.a", KEPT, text);
    send(peer, Address::User("ann"), text);
    send(peer, Address::Everyone, text);
}

#[test]
fn two_databases_of_one_redis_receive_nothing_of_each_other() {
    let server = Server::start("");
    // Two clusters of two servers each, with the same prefix; all connect again in between.
    let databases = [0, 5, 0, 5];
    let mut peers = databases.map(|database| Peer::connect(&server.path(), of(database)));
    peers[2..].iter_mut().for_each(listen);
    let names = ["zero", "five"];
    for round in 0..2 {
        for (peer, name) in peers[..2].iter_mut().zip(names) {
            say(peer, &format!("{name} {round}"));
        }
        let count = 1 + round;
        turn_all(&mut peers, "everything", |peers| {
            peers[2..].iter().all(|peer| {
                let payloads = [peer.payloads("kept"), peer.payloads("plain")];
                payloads.iter().all(|all| all.len() >= count)
                    && matched(peer).len() >= count
                    && parcels(peer).len() >= 2 * count
            })
        });
        if round == 0 {
            let () = redis::cmd("CLIENT")
                .arg(&["KILL", "TYPE", "pubsub"])
                .query(&mut server.witness())
                .expect("killed");
            turn_all(&mut peers, "disconnected", |peers| {
                peers.iter().all(|peer| !peer.link.health().is_connected)
            });
            turn_all(&mut peers, "connected", |peers| {
                peers.iter().all(|peer| peer.link.health().is_connected)
            });
            // Patterns and users are subscribed to again behind the topics.
            peers[2..].iter_mut().for_each(|peer| {
                peer.want("behind again", None);
            });
        }
    }
    for (peer, name) in peers[2..].iter().zip(names) {
        let all = [format!("{name} 0"), format!("{name} 1")];
        assert_eq!(peer.payloads("kept"), all);
        assert_eq!(peer.gaps("kept"), 0, "{:?}", peer.delivered("kept"));
        assert_eq!(peer.payloads("plain"), all);
        assert_eq!(matched(peer), all);
        let twice = [&all[0], &all[0], &all[1], &all[1]];
        assert_eq!(parcels(peer).iter().collect::<Vec<_>>(), twice);
        assert_eq!(peer.link.counters().stale, 0);
    }
}

/// A server of an earlier version, as Redis sees it: it renews its lease, and its channels have the names of keys.
struct Earlier {
    commands: redis::Connection,
    said: usize,
}

impl Earlier {
    const NODE: &str = "00000000000000ff";

    fn start(server: &Server, database: u32) -> Self {
        let mut commands = server.witness();
        let () = redis::cmd("SELECT")
            .arg(database)
            .query(&mut commands)
            .expect("a database");
        let mut earlier = Self { commands, said: 0 };
        earlier.renew(600_000);
        earlier
    }

    fn renew(&mut self, for_ms: i64) {
        let unix = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let ends_ms = unix.expect("a time after 1970").as_millis() as i64 + for_ms;
        let () = redis::cmd("ZADD")
            .arg(&["tw:{0}:nodes", &ends_ms.to_string(), Self::NODE])
            .query(&mut self.commands)
            .expect("a lease");
    }

    /// Publishes on the topic `plain`; how many listened.
    fn publish(&mut self, payload: &str) -> i64 {
        let mut bytes = b"- ".to_vec();
        self.said += 1;
        let record = Record {
            volatile: false,
            binary: false,
            mark: Mark {
                node: NodeId(255),
                batch: self.said as u64,
                index: 0,
            },
            category: Category::Update,
            priority: Priority::Normal,
            published_redis_ms: None,
            expires_redis_ms: None,
            excluded: None,
            also_excluded: &[],
            t: "t",
            id: None,
            key: None,
            payload: payload.as_bytes(),
        };
        let mut text = Vec::new();
        record.encode(&mut text).expect("a record");
        bytes.extend(text);
        redis::cmd("PUBLISH")
            .arg("tw:{0}:t:plain")
            .arg(bytes)
            .query(&mut self.commands)
            .expect("published")
    }
}

#[test]
fn a_cluster_that_is_mixed_during_an_upgrade_loses_nothing() {
    let server = Server::start("");
    let mut earlier = Earlier::start(&server, 5);
    let mut peers = [(); 2].map(|()| Peer::connect(&server.path(), of(5)));
    let [reader, writer] = &mut peers;
    listen(reader);
    // What the earlier version receives.
    let mut witness = server.witness();
    witness
        .set_read_timeout(Some(Duration::from_secs(60)))
        .expect("set");
    let mut witness = witness.as_pubsub();
    witness.psubscribe("tw:{0}:t:plain").expect("subscribed");

    assert_eq!(earlier.publish("1"), 2, "the reader, and the witness");
    say(writer, "2");
    let mut seen = Vec::new();
    for _ in 0..2 {
        let message = witness.get_message().expect("a message");
        let record = message.get_payload_bytes();
        let record = Record::decode(&record[2..]).expect("a record");
        seen.push(String::from_utf8_lossy(record.payload).into_owned());
    }
    assert_eq!(seen, ["1", "2"], "the earlier version receives both");
    turn_all(&mut peers, "both", |peers| {
        peers[0].payloads("plain").len() == 2
    });

    // The last server of the earlier version ends while others publish.
    earlier.renew(-1);
    let (mut said, mut expected) = (Vec::new(), vec!["1".to_owned(), "2".to_owned()]);
    crate::server::wait_for("the shared names are left", || {
        peers.iter_mut().for_each(Peer::turn);
        if said.len() < 20_000 {
            let text = format!("while {}", said.len());
            said.push(peers[1].publish("plain", None, &text));
            expected.push(text);
        }
        let listeners: i64 = redis::cmd("PUBSUB")
            .arg(&["NUMSUB", "tw:{0}:t:plain"])
            .query::<(String, i64)>(&mut earlier.commands)
            .expect("a number")
            .1;
        listeners == 0
    });
    say(&mut peers[1], "3");
    expected.push("3".to_owned());
    assert_eq!(earlier.publish("lost"), 1, "the witness alone");
    turn_all(&mut peers, "the last", |peers| {
        peers[0].payloads("plain").len() == expected.len()
            && matched(&peers[0]).len() == 2
            && parcels(&peers[0]).len() == 4
    });
    assert_eq!(peers[0].payloads("plain"), expected);
    assert_eq!(peers[0].payloads("kept"), ["2", "3"]);
    assert_eq!((peers[0].gaps("plain"), peers[0].gaps("kept")), (0, 0));
    assert_eq!(matched(&peers[0]), ["2", "3"]);
    assert_eq!(parcels(&peers[0]), ["2", "2", "3", "3"]);

    // An earlier version compares the protocol, and does not join any more.
    let protocol: String = redis::cmd("HGET")
        .arg(&["tw:{0}:agreed", "s:protocol of records"])
        .query(&mut earlier.commands)
        .expect("a protocol");
    assert_ne!(protocol, "1");
    let mut third = Peer::connect(&server.path(), of(5));
    third.want("plain", None);
    say(&mut peers[1], "4");
    third.until("received", |peer| peer.payloads("plain") == ["4"]);
    let problems = &third.link.health().problems;
    assert!(!problems.contains_key(&Problem::DoesNotAgree));
}

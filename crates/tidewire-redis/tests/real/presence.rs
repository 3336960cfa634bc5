//! Presence and leases of nodes.

use crate::peer::Peer;
use crate::server::Server;
use std::collections::BTreeMap;
use std::sync::Arc;
use tidewire_redis::{Event, LinkOptions, NodeId, Present};

/// Users, nodes, connections.
type Users = BTreeMap<(String, NodeId), u64>;

/// The view of a peer of a topic, by its events so far; `None` if it was not read.
fn known(peer: &Peer, topic: &str) -> Option<Users> {
    let mut users: Option<Users> = None;
    for event in &peer.events {
        let (is_all, members) = match event {
            Event::PresenceRead {
                topic: name,
                members,
            } if **name == *topic => (true, members.as_slice()),
            Event::PresenceChanged {
                topic: name,
                member,
            } if **name == *topic => (false, std::slice::from_ref(member)),
            _ => continue,
        };
        if is_all {
            users = Some(Users::new());
        }
        let users = users.as_mut().expect("it is read before it changes");
        for member in members {
            let key = (member.user.to_string(), member.node);
            match member.connections {
                0 => users.remove(&key),
                connections => users.insert(key, connections),
            };
        }
    }
    users
}

fn set(peer: &mut Peer, user: &str, connections: u64) {
    set_on(peer, "a", user, connections);
}

fn set_on(peer: &mut Peer, topic: &str, user: &str, connections: u64) {
    let present = (connections > 0).then(|| Present {
        connections,
        data: Some(r#"{"a":1}"#.into()),
    });
    let now = peer.now();
    let (topic, user): (Arc<str>, Arc<str>) = (topic.into(), user.into());
    peer.link.set_presence(&topic, &user, present, now);
}

fn follow(server: &Server) -> Peer {
    let mut peer = Peer::connect(&server.path(), LinkOptions::default());
    peer.want("a", None);
    peer.link.follow_presence(&"a".into());
    peer.until("read", |peer| known(peer, "a").is_some());
    peer
}

fn keys(server: &Server) -> Vec<String> {
    let mut witness = server.witness();
    let mut keys: Vec<String> = redis::cmd("KEYS")
        .arg("tw:{0}:[pun]*")
        .query(&mut witness)
        .expect("keys");
    keys.sort();
    // The version of a topic that nobody is on any more stays for a minute.
    keys.retain(|key| {
        let is_version = key.starts_with("tw:{0}:p:");
        let ttl: i64 = redis::cmd("TTL")
            .arg(key)
            .query(&mut witness)
            .expect("a time");
        !is_version || ttl < 0
    });
    keys
}

#[test]
fn nodes_know_what_the_others_have() {
    let server = Server::start("");
    let mut one = follow(&server);
    set(&mut one, "ann", 1);
    set(&mut one, "bob", 2);
    let one_node = one.link.node();
    one.until("both", |peer| known(peer, "a").unwrap().len() == 2);
    // Read, and told.
    let mut two = follow(&server);
    let two_node = two.link.node();
    assert_eq!(known(&two, "a"), known(&one, "a"));
    set(&mut two, "ann", 3);
    set(&mut one, "bob", 0);
    let expected = Users::from([
        (("ann".to_owned(), one_node), 1),
        (("ann".to_owned(), two_node), 3),
    ]);
    for peer in [&mut two, &mut one] {
        peer.turn();
    }
    two.until("changes", |peer| {
        known(peer, "a").as_ref() == Some(&expected)
    });
    one.until("changes", |peer| {
        known(peer, "a").as_ref() == Some(&expected)
    });
    // Nothing is refreshed.
    let calls = one.link.counters().presence_calls;
    let probes = one.link.counters().probes;
    one.until("probes", |peer| peer.link.counters().probes > probes + 1);
    assert_eq!(one.link.counters().presence_calls, calls);
    // What is no more leaves nothing.
    set(&mut one, "ann", 0);
    one.until("one", |peer| known(peer, "a").unwrap().len() == 1);
    set(&mut two, "ann", 0);
    two.until("nobody", |peer| known(peer, "a").unwrap().is_empty());
    let nodes = [one_node, two_node];
    let mut expected: Vec<String> = nodes
        .iter()
        .map(|node| format!("tw:{{0}}:n:{node}"))
        .collect();
    expected.push("tw:{0}:nodes".to_owned());
    expected.sort();
    assert_eq!(keys(&server), expected);
}

#[test]
fn what_a_node_has_ends_with_its_lease() {
    let server = Server::start("");
    let mut one = follow(&server);
    let mut two = follow(&server);
    for number in 0..700 {
        set(&mut two, &format!("user {number}"), 1);
    }
    let gone = two.link.node();
    two.until("all", |peer| known(peer, "a").unwrap().len() == 700);
    one.until("all", |peer| known(peer, "a").unwrap().len() == 700);
    drop(two);
    // Ten seconds later it would be seen without this.
    let _: () = redis::cmd("ZADD")
        .arg("tw:{0}:nodes")
        .arg(1)
        .arg(gone.to_string())
        .query(&mut server.witness())
        .expect("a score");
    let probes = one.link.counters().probes;
    one.until("probes", |peer| peer.link.counters().probes > probes + 1);
    assert_eq!(known(&one, "a").unwrap().len(), 700, "its lease holds");
    let _: () = redis::cmd("DEL")
        .arg(format!("tw:{{0}}:n:{gone}"))
        .query(&mut server.witness())
        .expect("an end");
    one.until("nobody", |peer| known(peer, "a").unwrap().is_empty());
    one.until("told", |peer| peer.events.contains(&Event::NodeLost(gone)));
    assert_eq!(keys(&server).len(), 2, "{:?}", keys(&server));
}

#[test]
fn a_node_that_leaves_leaves_nothing() {
    let server = Server::start("");
    let mut one = follow(&server);
    let mut two = follow(&server);
    set(&mut two, "ann", 1);
    two.until("ann", |peer| known(peer, "a").unwrap().len() == 1);
    one.until("ann", |peer| known(peer, "a").unwrap().len() == 1);
    let now = two.now();
    two.link.leave(now);
    two.until("gone", |peer| peer.link.has_left());
    one.until("nobody", |peer| known(peer, "a").unwrap().is_empty());
    one.until("a list", |peer| {
        let nodes = peer.events.iter().rev().find_map(|event| match event {
            Event::Nodes(nodes) => Some(nodes.len()),
            _ => None,
        });
        nodes == Some(1)
    });
}

#[test]
fn what_redis_has_lost_is_told_again() {
    let mut server = Server::start("");
    let mut one = follow(&server);
    let mut two = follow(&server);
    set(&mut one, "ann", 1);
    set(&mut two, "bob", 1);
    let is_both = |peer: &mut Peer| known(peer, "a").unwrap().len() == 2;
    two.until("both", |peer| {
        one.turn();
        is_both(peer)
    });
    one.until("both", is_both);
    server.kill();
    server.run();
    let lost = |peer: &mut Peer| peer.link.counters().leases_lost > 0;
    two.until("registered", |peer| {
        one.turn();
        lost(peer) && lost(&mut one)
    });
    let reads = (
        one.link.counters().presence_reads,
        two.link.counters().presence_reads,
    );
    two.until("read again", |peer| {
        one.turn();
        one.link.counters().presence_reads > reads.0
            && peer.link.counters().presence_reads > reads.1
            && is_both(peer)
            && is_both(&mut one)
    });
    // Both were read when both had told theirs again: nobody left and came.
    for peer in [&one, &two] {
        let is_empty = |event: &Event| matches!(event, Event::PresenceChanged { member, .. } if member.connections == 0);
        assert!(!peer.events.iter().any(is_empty));
    }
}

/// Ends the lease of a node in Redis, as ten seconds without Redis would.
fn end_lease(server: &Server, node: NodeId) {
    let mut witness = server.witness();
    let (): () = redis::pipe()
        .cmd("DEL")
        .arg(format!("tw:{{0}}:n:{node}"))
        .ignore()
        .cmd("ZADD")
        .arg("tw:{0}:nodes")
        .arg(1)
        .arg(node.to_string())
        .ignore()
        .query(&mut witness)
        .expect("an end");
}

#[test]
fn the_first_node_back_does_not_take_out_the_others() {
    let server = Server::start("");
    let mut one = follow(&server);
    let mut two = follow(&server);
    set(&mut two, "ann", 1);
    two.until("ann", |peer| known(peer, "a").unwrap().len() == 1);
    one.until("ann", |peer| known(peer, "a").unwrap().len() == 1);
    end_lease(&server, one.link.node());
    end_lease(&server, two.link.node());
    let probes = one.link.counters().probes;
    one.until("probes", |peer| peer.link.counters().probes > probes + 2);
    assert_eq!(one.link.counters().leases_lost, 1);
    two.until("a lease", |peer| peer.link.counters().leases_lost == 1);
    let probes = one.link.counters().probes;
    one.until("probes", |peer| {
        two.turn();
        peer.link.counters().probes > probes + 2
    });
    for peer in [&one, &two] {
        assert_eq!(known(peer, "a").unwrap().len(), 1);
        let is_left = |event: &Event| matches!(event, Event::PresenceChanged { member, .. } if member.connections == 0);
        assert!(
            !peer.events.iter().any(is_left),
            "she was here all the time"
        );
    }
}

#[test]
fn a_redis_without_memory_keeps_leases() {
    let server = Server::start("");
    let mut one = follow(&server);
    let config = |value: &str| {
        let _: () = redis::cmd("CONFIG")
            .arg(&["SET", "maxmemory", value])
            .query(&mut server.witness())
            .expect("a limit");
    };
    config("1");
    set(&mut one, "ann", 1);
    let probes = one.link.counters().probes;
    one.until("probes", |peer| peer.link.counters().probes > probes + 2);
    assert!(one.link.health().is_connected);
    let reason = one.link.health().reason.clone().expect("a reason");
    assert!(reason.contains("OOM"), "{reason}");
    let ttl: i64 = redis::cmd("PTTL")
        .arg(format!("tw:{{0}}:n:{}", one.link.node()))
        .query(&mut server.witness())
        .expect("a time");
    assert!(ttl > 7_000, "renewed by the last probes: {ttl}");
    assert_eq!(known(&one, "a").unwrap().len(), 0);
    config("0");
    one.until("ann", |peer| known(peer, "a").unwrap().len() == 1);
}

#[test]
fn a_key_of_another_type_stops_no_other_topic() {
    let server = Server::start("");
    let mut one = follow(&server);
    let _: () = redis::cmd("SET")
        .arg(&["tw:{0}:p:A", "not ours"])
        .query(&mut server.witness())
        .expect("a text");
    // Both go in one call, that of the other type first.
    set_on(&mut one, "A", "bob", 1);
    set(&mut one, "ann", 1);
    one.until("ann", |peer| known(peer, "a").unwrap().len() == 1);
    let reason = one.link.health().reason.clone().expect("a reason");
    assert!(reason.contains("another type"), "{reason}");
}

#[test]
fn a_link_without_redis_waits() {
    let mut server = Server::start("");
    let mut one = follow(&server);
    set(&mut one, "ann", 1);
    end_lease(&server, one.link.node());
    one.until("a lease", |peer| peer.link.counters().leases_lost == 1);
    server.kill();
    one.until("the end", |peer| !peer.link.health().is_connected);
    // Everything that is due comes due within three seconds; nothing of it may be due for ever.
    let begin_ms = one.now().ms;
    let mut sleeps = 0;
    while one.now().ms < begin_ms + 3_000 {
        one.turn();
        let until_ms = one.link.deadline_ms().expect("it tries again");
        let wait_ms = until_ms.saturating_sub(one.now().ms);
        std::thread::sleep(std::time::Duration::from_millis(wait_ms.min(500)));
        sleeps += 1;
    }
    assert!(sleeps < 300, "{sleeps} turns in three seconds");
}

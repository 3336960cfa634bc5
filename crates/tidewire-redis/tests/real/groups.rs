//! Queue groups whose work several nodes share.

use crate::peer::{KEPT, Peer};
use crate::server::Server;
use std::sync::Arc;
use tidewire_redis::{Event, LinkOptions, NodeId, Position, Record};

/// The work that a peer received for the group, as (payload, may have been done before), in the
/// order of arrival.
fn given(peer: &Peer) -> Vec<(String, bool)> {
    let works = peer.events.iter().filter_map(|event| match event {
        Event::Work { works, .. } => Some(works),
        _ => None,
    });
    let works = works.flatten().map(|work| {
        let record = Record::decode(&work.record).expect("a record");
        let payload = String::from_utf8(record.payload.to_vec()).expect("text");
        (payload, work.is_again)
    });
    works.collect()
}

fn ids(peer: &Peer) -> Vec<Position> {
    let works = peer.events.iter().filter_map(|event| match event {
        Event::Work { works, .. } => Some(works.iter().map(|work| work.id)),
        _ => None,
    });
    works.flatten().collect()
}

/// The number of lost messages that the group was notified of.
fn lost(peer: &Peer) -> Vec<Option<u64>> {
    let losses = peer.events.iter().filter_map(|event| match event {
        Event::Work { lost, .. } => Some(*lost),
        _ => None,
    });
    losses.filter(|lost| *lost != Some(0)).collect()
}

fn names() -> (Arc<str>, Arc<str>) {
    ("a".into(), "workers".into())
}

fn member(server: &Server, options: LinkOptions, room: usize) -> Peer {
    let mut peer = Peer::connect(&server.path(), options);
    peer.want("a", KEPT);
    join(&mut peer, room);
    peer
}

fn join(peer: &mut Peer, room: usize) {
    let (topic, group) = names();
    peer.link.join_group(&topic, &group);
    peer.link.set_group_room(&topic, &group, room);
    peer.until("a place in the group", |peer| {
        let is_in = |event: &Event| matches!(event, Event::GroupJoined { can_join: true, .. });
        peer.events.iter().any(is_in)
    });
}

fn room(peer: &mut Peer, room: usize) {
    let (topic, group) = names();
    peer.link.set_group_room(&topic, &group, room);
}

fn finish(peer: &mut Peer, done: &[Position], handed_back: &[Position]) {
    let (topic, group) = names();
    peer.link.finish_work(&topic, &group, done, handed_back);
}

/// `XLEN` of the work.
fn work_left(server: &Server) -> u64 {
    redis::cmd("XLEN")
        .arg("tw:{0}:q:a")
        .query(&mut server.witness())
        .expect("a length")
}

fn end_lease(server: &Server, node: NodeId) {
    let (): () = redis::pipe()
        .cmd("DEL")
        .arg(format!("tw:{{0}}:n:{node}"))
        .ignore()
        .cmd("ZADD")
        .arg("tw:{0}:nodes")
        .arg(1)
        .arg(node.to_string())
        .ignore()
        .query(&mut server.witness())
        .expect("an end");
}

fn numbers(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|number| number.to_string()).collect()
}

#[test]
fn each_publication_is_taken_by_one_node_and_goes_when_it_is_done() {
    let server = Server::start("");
    let mut one = member(&server, LinkOptions::default(), 10);
    let mut two = member(&server, LinkOptions::default(), 10);
    for number in 0..15 {
        one.publish("a", KEPT, &number.to_string());
    }
    one.until("all", |peer| {
        two.turn();
        given(peer).len() + given(&two).len() == 15
    });
    let mut all: Vec<_> = given(&one).into_iter().chain(given(&two)).collect();
    assert!(all.iter().all(|(_, is_again)| !is_again));
    all.sort_by_key(|(payload, _)| payload.parse::<usize>().expect("a number"));
    let payloads: Vec<_> = all.into_iter().map(|(payload, _)| payload).collect();
    assert_eq!(payloads, numbers(0..15));
    for peer in [&mut one, &mut two] {
        let done = ids(peer);
        finish(peer, &done, &[]);
    }
    one.until("an empty stream", |_| {
        two.turn();
        work_left(&server) == 0
    });
    assert_eq!((lost(&one), lost(&two)), (vec![], vec![]));
}

#[test]
fn work_of_a_node_without_a_lease_goes_to_another() {
    let server = Server::start("");
    let mut one = member(&server, LinkOptions::default(), 3);
    for number in 0..4 {
        one.place("a", KEPT, &number.to_string());
    }
    one.until("three", |peer| given(peer).len() == 3);
    let mut two = member(&server, LinkOptions::default(), 10);
    two.until("the fourth", |peer| given(peer).len() == 1);
    let gone = one.link.node();
    drop(one);
    end_lease(&server, gone);
    two.until("the others", |peer| given(peer).len() == 4);
    let again = numbers(0..3).into_iter().map(|number| (number, true));
    assert_eq!(given(&two)[1..], again.collect::<Vec<_>>());
    assert_eq!(lost(&two), []);
}

#[test]
fn what_is_handed_back_and_what_is_left_goes_to_another() {
    let server = Server::start("");
    let mut one = member(&server, LinkOptions::default(), 3);
    for number in 0..3 {
        one.place("a", KEPT, &number.to_string());
    }
    one.until("three", |peer| given(peer).len() == 3);
    let mut two = member(&server, LinkOptions::default(), 10);
    let (done, back) = (ids(&one)[0], ids(&one)[1]);
    finish(&mut one, &[done], &[back]);
    two.until("the second", |peer| {
        one.turn();
        given(peer).len() == 1
    });
    let (topic, group) = names();
    one.link.leave_group(&topic, &group);
    two.until("the third", |peer| {
        one.turn();
        given(peer).len() == 2
    });
    let expected = [("1".to_owned(), true), ("2".to_owned(), true)];
    assert_eq!(given(&two), expected);
    let kept: Vec<String> = redis::cmd("SMEMBERS")
        .arg(format!("tw:{{0}}:ng:{}", one.link.node()))
        .query(&mut server.witness())
        .expect("groups");
    assert_eq!(kept, [""; 0]);
}

#[test]
fn work_outlives_redis_with_an_append_only_file() {
    let mut server = Server::start("--appendonly yes --appendfsync always");
    let mut one = member(&server, LinkOptions::default(), 2);
    for number in 0..4 {
        one.place("a", KEPT, &number.to_string());
    }
    one.until("two", |peer| given(peer).len() == 2);
    server.kill();
    server.run();
    let done = ids(&one);
    finish(&mut one, &done, &[]);
    room(&mut one, 10);
    one.until("the others", |peer| given(peer).len() == 4);
    let payloads: Vec<_> = given(&one)
        .into_iter()
        .map(|(payload, _)| payload)
        .collect();
    assert_eq!(payloads, numbers(0..4));
}

#[test]
fn a_lost_memory_is_told_and_the_group_goes_on() {
    let server = Server::start("");
    let mut one = member(&server, LinkOptions::default(), 10);
    one.place("a", KEPT, "before");
    one.until("the first", |peer| given(peer).len() == 1);
    let (): () = redis::cmd("FLUSHALL")
        .query(&mut server.witness())
        .expect("an end");
    one.until("a loss", |peer| lost(peer) == [None]);
    one.place("a", KEPT, "after");
    one.until("the second", |peer| given(peer).len() == 2);
    assert_eq!(given(&one)[1], ("after".to_owned(), false));
}

#[test]
fn the_oldest_work_is_dropped_and_told() {
    let server = Server::start("");
    let options = LinkOptions {
        group_waiting_max: 5,
        ..LinkOptions::default()
    };
    let mut one = member(&server, options, 0);
    for number in 0..12 {
        one.place("a", KEPT, &number.to_string());
    }
    room(&mut one, 3);
    one.until("three", |peer| given(peer).len() == 3);
    assert_eq!(lost(&one), [Some(7)]);
    let payloads: Vec<_> = given(&one)
        .into_iter()
        .map(|(payload, _)| payload)
        .collect();
    assert_eq!(payloads, numbers(7..10));
}

#[test]
fn the_newest_work_is_dropped_and_told_if_that_is_asked_for() {
    let server = Server::start("");
    let options = LinkOptions {
        group_waiting_max: 5,
        group_drops_newest: true,
        ..LinkOptions::default()
    };
    let mut one = member(&server, options, 0);
    for number in 0..12 {
        one.place("a", KEPT, &number.to_string());
    }
    room(&mut one, 10);
    one.until("five", |peer| given(peer).len() == 5);
    let done = ids(&one);
    finish(&mut one, &done, &[]);
    one.until("an empty stream", |_| work_left(&server) == 0);
    one.place("a", KEPT, "12");
    one.until("the next", |peer| given(peer).len() == 6);
    assert_eq!(lost(&one), [Some(7)]);
    let payloads = given(&one).into_iter().map(|(payload, _)| payload);
    assert_eq!(
        payloads.collect::<Vec<_>>(),
        ["0", "1", "2", "3", "4", "12"]
    );
}

#[test]
fn a_topic_has_at_most_so_many_groups_and_a_group_without_nodes_ends() {
    let server = Server::start("");
    let options = LinkOptions {
        groups_per_topic_max: 1,
        ..LinkOptions::default()
    };
    let mut one = member(&server, options, 10);
    let (topic, group) = names();
    one.link.join_group(&topic, &"others".into());
    one.until("a refusal", |peer| {
        let is_out = |event: &Event| {
            matches!(
                event,
                Event::GroupJoined {
                    can_join: false,
                    ..
                }
            )
        };
        peer.events.iter().any(is_out)
    });
    one.link.leave_group(&topic, &group);
    let idle = |server: &Server| -> u64 {
        let mut witness = server.witness();
        let listed = redis::cmd("ZCARD").arg("tw:{0}:qi").query(&mut witness);
        listed.expect("a number")
    };
    one.until("a group without nodes", |_| idle(&server) == 1);
    assert_eq!(work_left(&server), 0);
    // A minute later.
    let (): () = redis::cmd("ZADD")
        .arg(&["tw:{0}:qi", "1", "1:aworkers"])
        .query(&mut server.witness())
        .expect("a score");
    one.until("its end", |_| {
        let mut witness = server.witness();
        let left = redis::cmd("EXISTS")
            .arg(&["tw:{0}:q", "tw:{0}:q:a"])
            .query::<u64>(&mut witness);
        left == Ok(0)
    });
}

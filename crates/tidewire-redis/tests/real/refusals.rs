//! A Redis that answers and refuses: each state has a name, and what cannot have run is refused and not unknown.

use crate::peer::{KEPT, Peer};
use crate::server::Server;
use tidewire_redis::{LinkOptions, Problem, Refusal};

fn short() -> LinkOptions {
    LinkOptions {
        broker_wait_ms: 400,
        ..LinkOptions::default()
    }
}

fn ask(server: &Server, command: &[&str]) {
    let (name, arguments) = command.split_first().expect("a command");
    let mut command = redis::cmd(name);
    command.arg(arguments);
    let _: redis::Value = command.query(&mut server.witness()).expect("an answer");
}

/// Redis refuses everything from here on, and the problem and its text say why; then `ends`, and it goes on.
fn assert_refuses(peer: &mut Peer, problem: Problem, words: &str, ends: impl FnOnce()) {
    let number = peer.publish("a", KEPT, "1");
    assert_eq!(peer.outcome(number), Err(Refusal::Unavailable));
    peer.until("a problem", |peer| {
        peer.link.health().problems.contains_key(&problem)
    });
    let text = &peer.link.health().problems[&problem];
    assert!(text.contains(words), "{text}");
    assert!(problem.is_fatal());
    assert_eq!(peer.link.counters().unknown, 0);
    ends();
    peer.until("it goes on", |peer| {
        let number = peer.publish("a", KEPT, "2");
        peer.outcome(number).is_ok() && peer.link.health().problems.is_empty()
    });
    assert_eq!(peer.link.counters().unknown, 0);
}

#[test]
fn a_full_redis_is_a_state_of_its_own() {
    let server = Server::start("");
    let mut peer = Peer::connect(&server.path(), short());
    ask(&server, &["CONFIG", "SET", "maxmemory", "1"]);
    assert_refuses(&mut peer, Problem::Full, "raise maxmemory", || {
        ask(&server, &["CONFIG", "SET", "maxmemory", "0"]);
    });
}

#[test]
fn too_few_replicas_are_a_state_of_their_own() {
    let server = Server::start("");
    let mut peer = Peer::connect(&server.path(), short());
    ask(&server, &["CONFIG", "SET", "min-replicas-to-write", "1"]);
    assert_refuses(
        &mut peer,
        Problem::TooFewReplicas,
        "min-replicas-to-write",
        || {
            ask(&server, &["CONFIG", "SET", "min-replicas-to-write", "0"]);
        },
    );
}

#[test]
fn a_disk_that_fails_is_a_state_of_its_own() {
    let server = Server::start("--dbfilename dump");
    let mut peer = Peer::connect(&server.path(), short());
    // The file that Redis writes cannot take the place of a folder.
    let folder = server.path().with_file_name("dump");
    std::fs::create_dir_all(folder.join("full")).expect("a folder");
    ask(&server, &["CONFIG", "SET", "save", "3600 1000000"]);
    ask(&server, &["BGSAVE"]);
    peer.until("refusals", |peer| {
        peer.link
            .health()
            .problems
            .contains_key(&Problem::DiskFails)
    });
    assert_refuses(&mut peer, Problem::DiskFails, "its disk", || {
        ask(&server, &["CONFIG", "SET", "save", ""]);
    });
}

#[test]
fn commands_that_the_acl_refuses_are_a_state_of_their_own() {
    let server = Server::start("");
    ask(
        &server,
        &[
            "ACL", "SETUSER", "tide", "on", ">secret", "~tw:*", "&tw:*", "+@all",
        ],
    );
    let options = LinkOptions {
        user: Some("tide".to_owned()),
        password: Some("secret".to_owned()),
        ..short()
    };
    let mut peer = Peer::connect(&server.path(), options);
    ask(&server, &["ACL", "SETUSER", "tide", "-@write"]);
    assert_refuses(&mut peer, Problem::CommandsRefused, "+@all", || {
        ask(&server, &["ACL", "SETUSER", "tide", "+@all"]);
    });
}

#[test]
fn entries_that_no_server_wrote_are_removed_and_the_topic_goes_on() {
    let server = Server::start("");
    let mut peer = Peer::connect(&server.path(), LinkOptions::default());
    let mut reader = Peer::connect(&server.path(), LinkOptions::default());
    reader.want("a", KEPT);
    peer.place("a", KEPT, "0");
    for number in 1..6_u64 {
        ask(&server, &["XADD", "tw:{0}:t:a", "*", "foreign", "entry"]);
        let placed = peer.place("a", KEPT, &number.to_string());
        assert_eq!(placed.position.expect("a position").offset, number + 1);
    }
    let expected: Vec<_> = (0..6).map(|number| number.to_string()).collect();
    reader.until("delivered", |peer| peer.payloads("a") == expected);
    assert_eq!(reader.gaps("a"), 0);
    let text = &reader.link.health().problems[&Problem::Unreadable];
    assert!(
        text.contains("1 entries of its stream that no server wrote"),
        "{text}"
    );
    // A reader of a stream whose newest entry is foreign finds the rest.
    ask(&server, &["XADD", "tw:{0}:t:a", "*", "foreign", "entry"]);
    let mut late = Peer::connect(&server.path(), LinkOptions::default());
    let head = late.want("a", KEPT).expect("a head");
    assert_eq!(head.offset, 6);
    assert_eq!(late.link.counters().malformed, 0);
    assert_eq!(peer.link.counters().unknown, 0);
}

//! Rules of access (ACL): the documented one is enough for everything, and what a narrower one refuses fails alone.

use crate::peer::{KEPT, Peer};
use crate::server::Server;
use std::path::Path;
use std::sync::Arc;
use tidewire_redis::{Event, LinkOptions, Problem, Record};

/// A server with a file of users, as an operator writes it. `rule` is what user `tide` may do.
fn server_with(rule: &str, folder: &Path) -> Server {
    let file = folder.join("users.acl");
    let users = format!("user default on nopass ~* &* +@all\nuser tide on >secret {rule}\n");
    std::fs::write(&file, users).expect("written");
    Server::start(&format!("--aclfile {}", file.display()))
}

/// Of docs/scale-out.md.
const DOCUMENTED: &str = "~tw:* &tw:* +@all -@dangerous +info +config|get";

fn options() -> LinkOptions {
    LinkOptions {
        user: Some("tide".to_owned()),
        password: Some("secret".to_owned()),
        ..LinkOptions::default()
    }
}

fn matched(peer: &Peer) -> Vec<String> {
    let all = peer.events.iter().filter_map(|event| match event {
        Event::Matched { record, .. } => Some(Record::decode(record).expect("a record")),
        _ => None,
    });
    all.map(|record| String::from_utf8_lossy(record.payload).into_owned())
        .collect()
}

fn is_watching(peer: &Peer, pattern: &str) -> bool {
    let is_it =
        |event: &Event| matches!(event, Event::Watching { pattern: name } if **name == *pattern);
    peer.events.iter().any(is_it)
}

#[test]
fn every_pattern_works_with_the_documented_rule() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = server_with(DOCUMENTED, folder.path());
    let mut reader = Peer::connect(&server.path(), options());
    let mut writer = Peer::connect(&server.path(), options());
    reader.want("a.live", KEPT);
    let patterns = ["h.a.*", "h.>", "*.b", ">", "[x].*", "q?.*.y", "h.a.*.c"];
    for pattern in patterns {
        reader.link.watch(&Arc::from(pattern));
        reader.until(pattern, |peer| is_watching(peer, pattern));
    }
    let mut expected = Vec::new();
    for (number, topic) in ["h.a.1", "[x].1", "q?.1.y", "a.live", "zz"]
        .iter()
        .enumerate()
    {
        writer.place(topic, KEPT, &number.to_string());
        if *topic != "a.live" {
            expected.push(number.to_string());
        }
    }
    reader.until("all", |peer| matched(peer).len() == expected.len());
    assert_eq!(matched(&reader), expected);
    reader.until("its own", |peer| peer.payloads("a.live") == ["3"]);
    // Clients that come and go with patterns break nothing.
    for round in 0..20 {
        let pattern = Arc::from(format!("r{round}.*"));
        reader.link.watch(&pattern);
        reader.turn();
        let now = reader.now();
        reader.link.unwatch(&pattern, now);
        writer.place("a.live", KEPT, &format!("r{round}"));
    }
    reader.until("all", |peer| peer.payloads("a.live").len() == 21);
    assert_eq!(reader.link.counters().disconnects, 0);
    assert!(
        reader.link.health().problems.is_empty(),
        "{:?}",
        reader.link.health()
    );
}

#[test]
fn a_rule_for_all_channels_brings_only_what_patterns_match() {
    let folder = tempfile::tempdir().expect("a folder");
    let rule = DOCUMENTED.replace("&tw:*", "&*");
    let server = server_with(&rule, folder.path());
    let mut reader = Peer::connect(&server.path(), options());
    reader.link.watch(&Arc::from("h.a.*"));
    reader.until("watching", |peer| is_watching(peer, "h.a.*"));
    for topic in ["h.b.1", "h.a.1"] {
        reader.place(topic, KEPT, &format!("\"{topic}\""));
    }
    reader.until("matched", |peer| !matched(peer).is_empty());
    assert_eq!(matched(&reader), ["\"h.a.1\""]);
}

#[test]
fn what_a_narrow_rule_refuses_fails_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let rule =
        "~tw:* &tw:{0}:t:open.* &tw:{0}:in:* &tw:{0}:all +@all -@dangerous +info +config|get";
    let server = server_with(rule, folder.path());
    let mut peer = Peer::connect(&server.path(), options());
    let now = peer.now();
    for topic in ["open.1", "closed.1", "open.2", "closed.2"] {
        peer.link.want(&Arc::from(topic), KEPT, now);
    }
    peer.link.watch(&Arc::from("open.*"));
    peer.link.watch(&Arc::from("other.*"));
    peer.link.add_user_interest(&Arc::from("ann"));
    let live = |peer: &Peer| {
        let is_live = |event: &&Event| matches!(event, Event::Live { .. });
        peer.events.iter().filter(is_live).count()
    };
    peer.until("the open ones", |peer| live(peer) == 2);
    peer.until("a problem", |peer| !peer.link.health().problems.is_empty());
    let text = &peer.link.health().problems[&Problem::ChannelsRefused];
    assert!(text.contains("&tw:*"), "{text}");
    peer.until("all refusals", |peer| {
        peer.link.counters().channels_refused >= 4
    });
    for number in 0..3 {
        peer.place("open.1", KEPT, &number.to_string());
    }
    peer.until("delivered", |peer| peer.payloads("open.1").len() == 3);
    assert_eq!(peer.link.counters().disconnects, 0);
    assert!(peer.link.health().is_connected);
    // Whoever may, may: what was refused is tried again.
    let mut witness = server.witness();
    let allowed: String = redis::cmd("ACL")
        .arg(&["SETUSER", "tide", "&tw:*"])
        .query(&mut witness)
        .expect("allowed");
    assert_eq!(allowed, "OK");
    peer.until("the rest", |peer| live(peer) == 4);
    peer.until("patterns", |peer| is_watching(peer, "other.*"));
}

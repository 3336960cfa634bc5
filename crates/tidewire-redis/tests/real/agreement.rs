//! Agreement of all nodes of a cluster: terms that must be the same, and rules that may differ for a time.

use crate::peer::{KEPT, Peer};
use crate::server::Server;
use tidewire_redis::{
    Category, Event, History, HistoryRules, Lineage, LinkOptions, Mark, NodeId, Priority, Problem,
    Record,
};

fn durable() -> LinkOptions {
    LinkOptions {
        lineage: Lineage::Single,
        ..LinkOptions::default()
    }
}

fn with_rules(server: &Server, rules: &[(&str, History)]) -> Peer {
    let mut peer = Peer::new(&server.path(), LinkOptions::default());
    let rules = rules
        .iter()
        .map(|(pattern, history)| ((*pattern).to_owned(), *history));
    peer.link.agree(HistoryRules::new(rules.collect()), "");
    peer
}

fn has(peer: &Peer, problem: Problem) -> bool {
    peer.link.health().problems.contains_key(&problem)
}

/// The record of a publication by a server that knows nothing of this one.
fn record(payload: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let record = Record {
        volatile: false,
        binary: false,
        mark: Mark {
            node: NodeId(99),
            batch: 1,
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
    record.encode(&mut bytes).expect("a record");
    bytes
}

#[test]
fn a_server_with_another_durability_does_not_join_until_the_cluster_is_told() {
    let server = Server::start("");
    let mut one = Peer::connect(&server.path(), durable());
    let mut two = Peer::new(&server.path(), LinkOptions::default());
    two.until("a refusal", |peer| has(peer, Problem::DoesNotAgree));
    let text = &two.link.health().problems[&Problem::DoesNotAgree];
    assert!(
        text.contains("broker_is_durable is false here and true in the cluster"),
        "{text}"
    );
    assert!(Problem::DoesNotAgree.is_fatal());
    assert!(!two.link.health().is_connected);
    one.place("a", KEPT, "1");
    // The command of docs/scale-out.md.
    let () = redis::cmd("HSET")
        .arg(&["tw:{0}:agreed", "s:broker_is_durable", "false", "set", "1"])
        .query(&mut server.witness())
        .expect("set");
    two.until("joined", |peer| {
        one.turn();
        peer.link.health().is_connected
    });
    assert!(!has(&two, Problem::DoesNotAgree));
    // The other one goes on, and says that it is to be restarted.
    one.until("notices", |peer| has(peer, Problem::SettingsDiffer));
    one.place("a", KEPT, "2");
}

#[test]
fn when_redis_forgets_those_who_agreed_before_are_right() {
    let server = Server::start("");
    let mut old = [(); 2].map(|()| Peer::connect(&server.path(), durable()));
    for round in 0..5 {
        let () = redis::cmd("FLUSHALL")
            .query(&mut server.witness())
            .expect("empty");
        let mut new = Peer::new(&server.path(), LinkOptions::default());
        new.until("a refusal", |peer| {
            old.iter_mut().for_each(Peer::turn);
            has(peer, Problem::DoesNotAgree) && !peer.link.health().is_connected
        });
        for peer in &mut old {
            peer.place("a", KEPT, &round.to_string());
            assert!(!has(peer, Problem::DoesNotAgree));
        }
    }
}

#[test]
fn servers_with_other_rules_publish_with_history_what_any_of_them_keeps() {
    let server = Server::start("");
    let mut old = with_rules(&server, &[]);
    old.until("connected", |peer| peer.link.health().is_connected);
    old.want("t.a", None);
    let mut new = with_rules(&server, &[("t.*", KEPT)]);
    new.until("connected", |peer| {
        old.turn();
        peer.link.health().is_connected
    });
    new.want("t.a", KEPT);
    for number in 0..50 {
        old.publish("t.a", None, &number.to_string());
        new.publish("t.a", KEPT, &number.to_string());
        old.turn();
        new.turn();
    }
    new.until("all", |peer| {
        old.turn();
        peer.payloads("t.a").len() == 100
    });
    old.until("all", |peer| peer.payloads("t.a").len() == 100);
    assert_eq!((old.gaps("t.a"), new.gaps("t.a")), (0, 0));
    let offsets = new.delivered("t.a").into_iter().flatten();
    let offsets: Vec<_> = offsets
        .map(|(position, _)| position.map(|it| it.offset))
        .collect();
    assert_eq!(
        offsets,
        (1..=100).map(Some).collect::<Vec<_>>(),
        "all are in the history"
    );
    assert!(
        old.delivered("t.a")
            .into_iter()
            .flatten()
            .all(|(position, _)| position.is_none())
    );
    assert!(has(&new, Problem::SettingsDiffer) && !Problem::SettingsDiffer.is_fatal());
    // When the old one is gone nothing differs any more.
    let now = old.now();
    old.link.leave(now);
    old.until("gone", |peer| peer.link.has_left());
    drop(old);
    let mut third = with_rules(&server, &[("t.*", KEPT)]);
    third.until("connected", |peer| peer.link.health().is_connected);
    new.until("agrees", |peer| !has(peer, Problem::SettingsDiffer));
}

#[test]
fn a_publication_in_the_other_form_is_delivered_and_one_in_no_form_is_a_gap() {
    let server = Server::start("");
    let mut peer = Peer::connect(&server.path(), LinkOptions::default());
    peer.want("kept", KEPT);
    peer.want("plain", None);
    let mut witness = server.witness();
    let mut publish = |topic: &str, head: &str, payload: &str| {
        let message = [head.as_bytes(), b" ", &record(payload)].concat();
        let () = redis::cmd("PUBLISH")
            .arg(format!("tw:{{0}}:t:{topic}"))
            .arg(message)
            .query(&mut witness)
            .expect("published");
    };
    publish("kept", "-", "1");
    publish("plain", "5-7", "2");
    peer.place("kept", KEPT, "3");
    peer.until("delivered", |peer| {
        peer.payloads("kept") == ["1", "3"] && peer.payloads("plain") == ["2"]
    });
    assert_eq!(peer.link.counters().other_forms, 2);
    assert!(!has(&peer, Problem::Unreadable));
    publish("kept", "another form", "4");
    peer.until("a gap", |peer| peer.gaps("kept") == 1);
    assert!(has(&peer, Problem::Unreadable) && Problem::Unreadable.is_fatal());
    let is_told = |event: &Event| match event {
        Event::Health(health) => health.problems.contains_key(&Problem::Unreadable),
        _ => false,
    };
    peer.until("told", |peer| peer.events.iter().any(is_told));
    peer.place("kept", KEPT, "5");
    peer.until("goes on", |peer| peer.payloads("kept") == ["1", "3", "5"]);
}

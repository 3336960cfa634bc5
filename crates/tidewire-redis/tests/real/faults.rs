//! Faults: broken connections, a killed process, lost data, lost scripts, full memory.

use crate::peer::{KEPT, Peer};
use crate::proxy::Proxy;
use crate::server::{Server, wait_for};
use std::collections::BTreeMap;
use tidewire_redis::{Event, Lineage, LinkOptions, Position, Refusal};

const DURABLE: &str = "--appendonly yes --appendfsync always";

fn single() -> LinkOptions {
    LinkOptions {
        lineage: Lineage::Single,
        ..LinkOptions::default()
    }
}

/// Positions and payloads of a stream, as the witness sees them.
fn stream(server: &Server, topic: &str) -> BTreeMap<String, String> {
    type Entry = (String, (Vec<u8>, Vec<u8>));
    let entries: Vec<Entry> = redis::cmd("XRANGE")
        .arg(format!("tw:{{0}}:t:{topic}"))
        .arg("-")
        .arg("+")
        .query(&mut server.witness())
        .expect("the entries of a stream");
    let payload = |record: &[u8]| {
        let record = tidewire_redis::Record::decode(record).expect("a record");
        String::from_utf8(record.payload.to_vec()).expect("text")
    };
    entries
        .iter()
        .map(|(id, (_, record))| (id.clone(), payload(record)))
        .collect()
}

#[test]
fn a_batch_whose_answer_was_lost_is_done_once() {
    let server = Server::start("");
    let proxy = Proxy::start(&server.path());
    let mut reader = Peer::connect(&server.path(), LinkOptions::default());
    let mut writer = Peer::connect(&proxy.path(), LinkOptions::default());
    reader.want("a", KEPT);
    for round in 0..20 {
        for number in 0..50 {
            writer.publish("a", KEPT, &format!("{}", round * 50 + number));
        }
        // What Redis answers from now on is lost; what it was asked is done.
        proxy.swallow_answers();
        writer.turn();
        let before = server.witness();
        drop(before);
        let reached = (round + 1) * 50;
        wait_for("the publications", || {
            stream(&server, "a").len() >= reached - 50
        });
        proxy.cut();
        writer.until("answers", |peer| peer.published.len() == reached);
    }
    assert!(
        writer
            .published
            .values()
            .all(|outcome| outcome.is_ok_and(|it| !it.is_duplicate))
    );
    assert!(
        writer.link.counters().repeated_batches >= 10,
        "{:?}",
        writer.link.counters()
    );
    let kept = stream(&server, "a");
    let payloads: Vec<&String> = kept.values().collect();
    assert_eq!(
        payloads.len(),
        1_000,
        "every publication is in the stream once"
    );
    reader.until("delivered", |peer| peer.delivered("a").len() == 1_000);
    let expected: Vec<String> = (0..1_000).map(|number| number.to_string()).collect();
    assert_eq!(
        reader.payloads("a"),
        expected,
        "in the order of their publisher"
    );
    for (number, outcome) in &writer.published {
        let position = outcome.unwrap().position.unwrap();
        assert_eq!(kept[&position.to_string()], (number - 1).to_string());
    }
}

#[test]
fn with_a_durable_lineage_a_killed_redis_keeps_its_epochs() {
    let mut server = Server::start(DURABLE);
    let mut one = Peer::connect(&server.path(), single());
    let mut two = Peer::connect(&server.path(), single());
    assert!(one.link.health().is_durable);
    two.want("a", KEPT);
    let mut count = 0;
    for _ in 0..3 {
        for _ in 0..30 {
            one.publish("a", KEPT, &count.to_string());
            count += 1;
        }
        one.turn();
        server.kill();
        one.turn();
        server.run();
        one.until("answers", |peer| peer.published.len() == count);
        two.until("delivered", |peer| peer.delivered("a").len() >= count);
    }
    let expected: Vec<String> = (0..count).map(|number| number.to_string()).collect();
    assert_eq!(two.payloads("a"), expected);
    assert_eq!(two.gaps("a"), 0);
    let kept = stream(&server, "a");
    for (number, outcome) in &one.published {
        let position = outcome.unwrap().position.unwrap();
        assert_eq!(
            kept[&position.to_string()],
            (number - 1).to_string(),
            "acknowledged means kept"
        );
    }
    assert_eq!(
        (one.link.counters().lineages, two.link.counters().lineages),
        (0, 0)
    );
}

#[test]
fn another_lineage_begins_new_epochs() {
    for (options, link) in [(DURABLE, LinkOptions::default()), ("", single())] {
        let mut server = Server::start(options);
        let mut one = Peer::connect(&server.path(), link.clone());
        let mut two = Peer::connect(&server.path(), link);
        two.want("a", KEPT);
        let before = one.place("a", KEPT, "1").position.unwrap();
        two.until("delivered", |peer| peer.payloads("a").len() == 1);
        server.kill();
        one.until("noticed", |peer| !peer.link.health().is_connected);
        server.run();
        let after = one.place("a", KEPT, "2").position.unwrap();
        assert!(after.epoch > before.epoch, "{before} {after}");
        assert_eq!(after.offset, 1);
        two.until("delivered", |peer| peer.payloads("a").len() == 2);
        assert!(two.gaps("a") >= 1);
        let last = two.delivered("a").pop().unwrap();
        assert_eq!(last, Some((Some(after), "2".to_owned())));
    }
}

#[test]
fn an_emptied_redis_begins_new_epochs() {
    let server = Server::start("");
    let mut one = Peer::connect(&server.path(), LinkOptions::default());
    let mut two = Peer::connect(&server.path(), LinkOptions::default());
    two.want("a", KEPT);
    two.want("silent", KEPT);
    let before = one.place("a", KEPT, "1").position.unwrap();
    let () = redis::cmd("FLUSHALL").query(&mut server.witness()).unwrap();
    let after = one.place("a", KEPT, "2").position.unwrap();
    assert!(after.epoch > before.epoch, "{before} {after}");
    two.until("delivered", |peer| peer.payloads("a") == ["1", "2"]);
    assert_eq!(two.gaps("a"), 1);
    // Nobody publishes on it: the probe finds out.
    two.until("the gap", |peer| peer.gaps("silent") == 1);
}

#[test]
fn forgotten_scripts_are_loaded_again() {
    let server = Server::start("");
    let mut peer = Peer::connect(&server.path(), LinkOptions::default());
    peer.want("a", KEPT);
    let mut witness = server.witness();
    for number in 0..10 {
        let () = redis::cmd("SCRIPT")
            .arg("FLUSH")
            .query(&mut witness)
            .unwrap();
        peer.publish("a", KEPT, &number.to_string());
        peer.want(&format!("b{number}"), KEPT);
    }
    let expected: Vec<String> = (0..10).map(|number| number.to_string()).collect();
    peer.until("delivered", |peer| peer.payloads("a") == expected);
    assert_eq!(peer.link.counters().disconnects, 0);
}

#[test]
fn killed_clients_and_a_paused_redis_lose_nothing() {
    let server = Server::start("");
    let mut one = Peer::connect(&server.path(), LinkOptions::default());
    let mut two = Peer::connect(&server.path(), LinkOptions::default());
    two.want("a", KEPT);
    let mut witness = server.witness();
    for number in 0..300 {
        one.publish("a", KEPT, &number.to_string());
        one.turn();
        if number % 50 == 10 {
            let kind = if number % 100 == 10 {
                "pubsub"
            } else {
                "normal"
            };
            let mut kill = redis::cmd("CLIENT");
            let _: i64 = kill
                .arg("KILL")
                .arg("TYPE")
                .arg(kind)
                .query(&mut witness)
                .unwrap();
        }
        if number % 100 == 60 {
            let () = redis::cmd("CLIENT")
                .arg("PAUSE")
                .arg(300)
                .query(&mut witness)
                .unwrap();
        }
        two.turn();
    }
    let expected: Vec<String> = (0..300).map(|number| number.to_string()).collect();
    one.until("answers", |peer| peer.published.len() == 300);
    two.until("delivered", |peer| peer.payloads("a").len() >= 300);
    assert_eq!(two.payloads("a"), expected);
    assert_eq!(two.gaps("a"), 0);
    assert!(one.published.values().all(Result::is_ok));
}

#[test]
fn a_subscriber_that_was_cut_off_catches_up_from_the_stream() {
    let server = Server::start("");
    let proxy = Proxy::start(&server.path());
    let mut writer = Peer::connect(&server.path(), LinkOptions::default());
    let mut reader = Peer::connect(&proxy.path(), LinkOptions::default());
    reader.want("a", KEPT);
    reader.want("b", None);
    let mut next = 0;
    for _ in 0..5 {
        proxy.cut();
        reader.turn();
        for _ in 0..100 {
            writer.publish("a", KEPT, &next.to_string());
            next += 1;
        }
        writer.until("answers", |peer| peer.published.len() == next);
        reader.until("delivered", |peer| peer.delivered("a").len() >= next);
    }
    let expected: Vec<String> = (0..next).map(|number| number.to_string()).collect();
    assert_eq!(reader.payloads("a"), expected);
    assert_eq!(reader.gaps("a"), 0);
    assert!(reader.link.counters().catch_ups >= 5);
    // Without history nobody knows what was missed: each cut is reported.
    reader.until("gaps", |peer| peer.gaps("b") >= 5);
}

#[test]
fn a_broker_that_is_away_refuses_what_was_not_sent_after_some_time() {
    let mut server = Server::start("");
    let options = LinkOptions {
        broker_wait_ms: 200,
        ..LinkOptions::default()
    };
    let mut peer = Peer::connect(&server.path(), options);
    server.kill();
    peer.until("noticed", |peer| !peer.link.health().is_connected);
    let number = peer.publish("a", KEPT, "1");
    assert_eq!(peer.outcome(number), Err(Refusal::Unavailable));
    let small = LinkOptions {
        waiting_bytes_max: 2_000,
        ..LinkOptions::default()
    };
    let mut peer = Peer::new(&server.path(), small);
    let numbers: Vec<u64> = (0..30)
        .map(|_| peer.publish("a", KEPT, &"1".repeat(100)))
        .collect();
    peer.turn();
    let busy = numbers
        .iter()
        .filter(|it| peer.published.get(it) == Some(&Err(Refusal::Busy)));
    assert!((20..30).contains(&busy.count()));
    assert!(peer.link.health().reason.is_some());
}

#[test]
fn unanswered_batches_are_unknown_after_some_time() {
    let server = Server::start("");
    let proxy = Proxy::start(&server.path());
    let options = LinkOptions {
        broker_wait_ms: 300,
        command_ms: 200,
        ..LinkOptions::default()
    };
    let mut peer = Peer::connect(&proxy.path(), options);
    proxy.swallow_answers();
    let number = peer.publish("a", KEPT, "1");
    peer.turn();
    proxy.refuse();
    assert_eq!(peer.outcome(number), Err(Refusal::Unknown));
    proxy.accept();
    // A slow machine may need more than one try in 300 ms.
    let mut place = None;
    while place.is_none() {
        let next = peer.publish("a", KEPT, "2");
        place = peer.outcome(next).ok();
    }
    let last = place.unwrap().position.unwrap();
    let payloads: Vec<String> = stream(&server, "a").into_values().collect();
    assert!(
        payloads.iter().filter(|payload| *payload == "1").count() <= 1,
        "{payloads:?}"
    );
    assert_eq!(payloads.len() as u64, last.offset);
}

#[test]
fn a_wrong_password_and_a_replica_say_what_to_do() {
    let server = Server::start("--requirepass secret");
    let reason = |options: LinkOptions, server: &Server| {
        let mut peer = Peer::new(&server.path(), options);
        peer.until("a reason", |peer| peer.link.health().reason.is_some());
        assert!(!peer.link.health().is_connected);
        let told = peer.events.iter().any(|event| match event {
            Event::Health(health) => health.reason.is_some(),
            _ => false,
        });
        assert!(told, "the owner is told");
        peer.link.health().reason.clone().unwrap()
    };
    let with = |password: Option<&str>| LinkOptions {
        password: password.map(str::to_owned),
        ..LinkOptions::default()
    };
    for password in [None, Some("wrong")] {
        let reason = reason(with(password), &server);
        assert!(
            reason.contains("correct the user and the password"),
            "{reason}"
        );
    }
    Peer::connect(&server.path(), with(Some("secret")));
    let replica = Server::start("--replicaof 127.0.0.1 1");
    let reason = reason(LinkOptions::default(), &replica);
    assert!(reason.contains("must be a master"), "{reason}");
}

#[test]
fn a_full_redis_refuses_and_nothing_is_lost_when_it_has_room_again() {
    let server = Server::start("--maxmemory 100mb");
    let mut one = Peer::connect(&server.path(), LinkOptions::default());
    let mut two = Peer::connect(&server.path(), LinkOptions::default());
    two.want("a", KEPT);
    two.want("b", None);
    let mut witness = server.witness();
    let mut set = |value: &str| {
        let mut command = redis::cmd("CONFIG");
        let () = command
            .arg("SET")
            .arg("maxmemory")
            .arg(value)
            .query(&mut witness)
            .unwrap();
    };
    one.place("a", KEPT, "0");
    set("1");
    for number in 1..10 {
        one.publish("b", None, &number.to_string());
        one.publish("a", KEPT, &number.to_string());
    }
    one.until("a refusal", |peer| {
        peer.link
            .health()
            .reason
            .as_ref()
            .is_some_and(|reason| reason.contains("Redis is full"))
    });
    set("0");
    one.until("answers", |peer| peer.published.len() == 19);
    assert!(one.published.values().all(Result::is_ok));
    assert_eq!(one.link.health().reason, None);
    let expected: Vec<String> = (0..10).map(|number| number.to_string()).collect();
    two.until("delivered", |peer| peer.payloads("a") == expected);
    two.until("delivered", |peer| peer.payloads("b") == expected[1..]);
}

#[test]
fn a_node_that_does_not_read_for_a_while_misses_nothing() {
    let server = Server::start("");
    let mut one = Peer::connect(&server.path(), LinkOptions::default());
    let mut two = Peer::connect(&server.path(), LinkOptions::default());
    two.want("a", KEPT);
    let mut set = redis::cmd("CONFIG");
    let limit = "pubsub 100kb 0 0";
    let () = set
        .arg("SET")
        .arg("client-output-buffer-limit")
        .arg(limit)
        .query(&mut server.witness())
        .unwrap();
    two.link.pause();
    two.is_deaf = true;
    let payload = format!("\"{}\"", "x".repeat(2_000));
    for _ in 0..900 {
        one.publish("a", KEPT, &payload);
    }
    one.until("answers", |peer| {
        two.turn();
        peer.published.len() == 900
    });
    two.is_deaf = false;
    let now = two.now();
    two.link.resume(now);
    two.until("delivered", |peer| peer.payloads("a").len() == 900);
    assert_eq!(two.gaps("a"), 0);
    let offsets: Vec<u64> = two
        .delivered("a")
        .iter()
        .map(|it| it.as_ref().unwrap().0.unwrap().offset)
        .collect();
    assert_eq!(offsets, (1..=900).collect::<Vec<_>>());
    assert_ne!(
        Position::default().epoch,
        two.delivered("a")[0].as_ref().unwrap().0.unwrap().epoch
    );
}

//! Each message once: the numbered ones of producers, and those whose id has come before.

use crate::common;

use common::topics::{open_topics, subscribe};
use common::{
    Client, SECRET, Said, assert_settled, config, connect_as, connect_v1, frame, start, text_frame,
};
use serde_json::{Value, json};
use tidewire_engine::apps::Echo;
use tidewire_engine::auth::{AuthConfig, KeyMaterial};
use tidewire_engine::{
    AccessRules, Config, Encryption, Handle, ProducerConfig, Rules, Server, Topics,
};
use tidewire_wire::close::CloseCode;
use tidewire_wire::format::{Format, json_to_msgpack};
use tidewire_wire::frame::OpCode;
use tidewire_wire::secure::ExchangeKeyPair;
use tidewire_wire::session::{
    ClientHello, ClientSession, EncryptionVersion, Features, HelloProducer, Now,
};
use tidewire_wire::uuid::Uuid;

/// A session as this producer, and the last of its numbers that was taken.
fn produce(client: &mut Client, id: &str) -> Option<u64> {
    let hello = client.ask(&json!({"t": "client_hello", "p": {"producer": {"id": id}}}));
    assert_eq!(hello["t"], "server_hello", "{hello}");
    let producer = &hello["p"]["producer"];
    assert!(producer.is_null() || producer["id"] == id, "{hello}");
    producer["last"].as_u64()
}

fn producer(server: &Server, id: &str) -> (Client, u64) {
    let mut client = connect_v1(server);
    let last = produce(&mut client, id).expect("a place for the producer");
    (client, last)
}

/// Tells the producer that was forgotten in between from the one that was not.
fn epoch(client: &mut Client) -> String {
    let hello = client.ask(&json!({"t": "client_hello"}));
    let epoch = &hello["p"]["producer"]["epoch"];
    epoch.as_str().expect("an epoch").to_owned()
}

fn numbered(number: u64) -> String {
    json!({"t": "count", "n": number, "p": {"number": number}}).to_string()
}

/// Sends these numbers at once.
fn send(client: &mut Client, numbers: impl IntoIterator<Item = u64>) {
    let frames = numbers
        .into_iter()
        .map(|number| text_frame(&numbered(number)));
    client.send_bytes(&frames.collect::<Vec<_>>().concat());
}

/// The numbers that the application has sent back before `last` is acknowledged.
fn taken(client: &mut Client, last: u64) -> Vec<u64> {
    let mut numbers = Vec::new();
    loop {
        let message = client.next_json();
        match message["t"].as_str() {
            Some("count") => numbers.extend(message["n"].as_u64()),
            Some("message_ack") if message["p"]["last"] == last => return numbers,
            Some("message_ack") => {}
            _ => panic!("{message}"),
        }
    }
}

fn authenticated() -> Config {
    Config {
        auth: Some(AuthConfig::new(KeyMaterial::Hs256(SECRET.to_vec()))),
        ..config()
    }
}

/// All is accounted for when this client is gone.
fn end(client: Client, handle: &Handle) {
    drop(client);
    assert_settled(handle);
}

#[test]
fn numbers_are_taken_once_and_acknowledged() {
    let server = start(config(), Echo);
    let (mut client, last) = producer(&server, "p");
    assert_eq!(last, 0);
    send(&mut client, 1..=5);
    assert_eq!(taken(&mut client, 5), [1, 2, 3, 4, 5]);
    send(&mut client, 3..=6);
    assert_eq!(taken(&mut client, 6), [6]);
    // Nothing but repeats is acknowledged as well.
    send(&mut client, [1, 6]);
    assert!(taken(&mut client, 6).is_empty());
    // The first hello counts.
    let again = client.ask(&json!({"t": "client_hello", "p": {"producer": {"id": "other"}}}));
    let producer = &again["p"]["producer"];
    assert_eq!(
        (&producer["id"], &producer["last"]),
        (&json!("p"), &json!(6))
    );
    let counters = server.handle().counters();
    assert_eq!(
        (counters.messages_delivered, counters.messages_repeated),
        (6, 5)
    );
    end(client, &server.handle());
}

#[test]
fn what_is_read_at_once_is_acknowledged_once() {
    let server = start(config(), Echo);
    let (mut client, _) = producer(&server, "p");
    let messages: Vec<_> = (1..=100).map(numbered).collect();
    // A batch comes as one message, so that it is read at once.
    let values: Vec<Value> = messages
        .iter()
        .map(|text| serde_json::from_str(text).unwrap())
        .collect();
    client.send_text(&json!({"t": "batch", "p": {"messages": values}}).to_string());
    for number in 1..=100 {
        assert_eq!(client.next_json()["n"], number);
    }
    let ack = client.next_json();
    assert_eq!(
        (&ack["t"], &ack["p"]["last"]),
        (&json!("message_ack"), &json!(100))
    );
    assert_eq!(
        client.ask(&json!({"t": "echo"}))["t"],
        "echo",
        "no number, no acknowledgement"
    );
    end(client, &server.handle());
}

#[test]
fn another_connection_goes_on_where_the_first_ended() {
    let server = start(
        Config {
            shards: 2,
            ..config()
        },
        Echo,
    );
    let handle = server.handle();
    let mut last = 0;
    for round in 0..20u64 {
        let (mut client, known) = producer(&server, "p");
        assert_eq!(known, last);
        // What the connection before sent last comes again, as if its acknowledgement had been lost.
        send(&mut client, last.saturating_sub(2).max(1)..=last + 3);
        let new: Vec<u64> = (last + 1..=last + 3).collect();
        last += 3;
        if round % 3 > 0 {
            assert_eq!(taken(&mut client, last), new);
            continue;
        }
        // One that breaks without having read anything: all arrives, since the sender ends in order.
        client.stream.end_writing();
        common::wait_until("the first is taken", || {
            handle.counters().messages_delivered == last
        });
    }
    assert_eq!(assert_settled(&handle).messages_delivered, last);
}

#[test]
fn a_hello_that_was_delayed_does_not_replace_a_newer_connection() {
    let server = start(config(), Echo);
    let [mut newer, mut delayed] = [(); 2].map(|()| connect_v1(&server));
    let hello = |attempt: u64| {
        let producer = json!({"id": "p", "instance": "00c0ffee00c0ffee", "attempt": attempt});
        json!({"t": "client_hello", "p": {"producer": producer}})
    };
    assert_eq!(newer.ask(&hello(2))["p"]["producer"]["last"], 0);
    let told = delayed.ask(&hello(1));
    assert_eq!(told["p"]["code"], "PRODUCER_SUPERSEDED", "{told}");
    delayed.assert_closed(CloseCode::PRODUCER_SUPERSEDED);
    send(&mut newer, [1]);
    assert_eq!(taken(&mut newer, 1), [1]);
}

#[test]
fn the_newest_connection_speaks_for_the_producer() {
    let server = start(config(), Echo);
    let (mut older, _) = producer(&server, "p");
    send(&mut older, 1..=2);
    assert_eq!(taken(&mut older, 2), [1, 2]);
    let epoch = epoch(&mut older);
    let (mut newer, last) = producer(&server, "p");
    assert_eq!((last, self::epoch(&mut newer)), (2, epoch));
    send(&mut older, [3]);
    let told = older.next_json();
    assert_eq!(told["p"]["code"], "PRODUCER_SUPERSEDED", "{told}");
    older.assert_closed(CloseCode::PRODUCER_SUPERSEDED);
    send(&mut newer, [3]);
    assert_eq!(taken(&mut newer, 3), [3]);
    let counters = server.handle().counters();
    assert_eq!(
        (counters.producers_opened, counters.producers_superseded),
        (2, 1)
    );
    assert_eq!(
        (counters.messages_delivered, counters.messages_out_of_turn),
        (3, 1)
    );
    end(newer, &server.handle());
}

#[test]
fn what_comes_after_a_gap_is_refused() {
    let server = start(config(), Echo);
    let (mut client, _) = producer(&server, "p");
    send(&mut client, [1]);
    assert_eq!(taken(&mut client, 1), [1]);
    let after_a_gap: Vec<Value> = [3, 4, 5].map(|n| json!({"t": "count", "n": n})).into();
    client.send_text(&json!({"t": "batch", "p": {"messages": after_a_gap}}).to_string());
    assert!(taken(&mut client, 1).is_empty());
    let told = client.next_json();
    assert_eq!(told["p"]["code"], "MESSAGE_GAP", "{told}");
    assert_eq!(
        (&told["p"]["recoverable"], &told["p"]["refused"]),
        (&json!(true), &json!(3))
    );
    send(&mut client, 2..=5);
    assert_eq!(taken(&mut client, 5), [2, 3, 4, 5]);
    assert_eq!(server.handle().counters().messages_out_of_turn, 3);
    end(client, &server.handle());
}

#[test]
fn a_number_that_is_none_is_refused_and_without_a_producer_it_means_nothing() {
    let server = start(config(), Echo);
    let (mut client, _) = producer(&server, "p");
    for number in [json!("1"), json!(0), json!(-1), json!(1.5)] {
        let answer = client.ask(&json!({"t": "count", "n": number}));
        assert_eq!(answer["p"]["code"], "INVALID_MESSAGE", "{number}");
    }
    let mut other = connect_v1(&server);
    assert_eq!(other.ask(&json!({"t": "count", "n": 7}))["n"], 7);
    assert_eq!(
        other.ask(&json!({"t": "count", "n": "seven"}))["n"],
        "seven"
    );
    drop(other);
    end(client, &server.handle());
}

#[test]
fn messagepack_has_numbers_too() {
    let server = start(config(), Echo);
    let (mut client, _) = producer(&server, "p");
    for (number, repeats) in [(1, false), (2, false), (2, true), (3, false)] {
        let mut packed = b"M:".to_vec();
        json_to_msgpack(numbered(number).as_bytes(), &mut packed).unwrap();
        client.send_binary(&packed);
        if !repeats {
            assert_eq!(client.next(), Said::Binary(packed));
        }
        assert_eq!(client.next_json()["p"]["last"], number);
    }
    end(client, &server.handle());
}

#[test]
fn an_encrypted_session_is_told_too() {
    let server = start(
        Config {
            encryption: Encryption::Optional,
            ..config()
        },
        Echo,
    );
    let mut client = connect_v1(&server);
    let pair = ExchangeKeyPair::from_seed(&[7; 32]).unwrap();
    let producer = HelloProducer {
        id: "p".to_owned(),
        attempt: None,
    };
    let hello = ClientHello {
        client_version: "test",
        features: Features::default(),
        encryption: Some(pair.offer(EncryptionVersion::One)),
        producer: Some(&producer),
    };
    let mut text = Vec::new();
    ClientSession::new(Format::Json, Now::default()).write_hello(
        &hello,
        Uuid::default(),
        Now::default(),
        &mut text,
    );
    client.send_bytes(&frame(OpCode::Text, &text));
    let answer = client.next_json();
    assert!(answer["p"]["encryption_public_key"].is_string(), "{answer}");
    let producer = &answer["p"]["producer"];
    assert_eq!(
        (&producer["id"], &producer["last"]),
        (&json!("p"), &json!(0))
    );
}

#[test]
fn a_user_cannot_speak_for_another() {
    let server = start(authenticated(), Echo);
    let mut ada = connect_as(&server, "ada");
    assert_eq!(produce(&mut ada, "p"), Some(0));
    send(&mut ada, 1..=3);
    assert_eq!(taken(&mut ada, 3), [1, 2, 3]);
    let mut bob = connect_as(&server, "bob");
    assert_eq!(produce(&mut bob, "p"), Some(0));
    send(&mut ada, [4]);
    assert_eq!(taken(&mut ada, 4), [4]);
}

#[test]
fn one_that_finds_no_place_is_told_by_nothing_and_goes_on() {
    let mut config = config();
    config.producers.producers_max = 1;
    let server = start(config, Echo);
    let (first, _) = producer(&server, "a");
    let mut second = connect_v1(&server);
    assert_eq!(produce(&mut second, "b"), None);
    for number in [5, 5] {
        send(&mut second, [number]);
        assert_eq!(
            second.next_json()["n"],
            number,
            "taken as any message, unacknowledged"
        );
    }
    assert_eq!(server.handle().counters().producers_refused, 1);
    drop(first);
    let handle = server.handle();
    common::wait_until("the first is gone", || handle.connections() == 1);
    producer(&server, "b");
}

#[test]
fn one_that_was_away_for_too_long_starts_again() {
    let mut config = config();
    config.producers.producer_ttl_ms = 0;
    let server = start(config, Echo);
    let (mut client, _) = producer(&server, "p");
    let epoch = epoch(&mut client);
    send(&mut client, 1..=2);
    assert_eq!(taken(&mut client, 2), [1, 2]);
    end(client, &server.handle());
    let (mut client, last) = producer(&server, "p");
    assert_eq!(last, 0);
    assert_ne!(self::epoch(&mut client), epoch);
    // So it cannot go on as if nothing had happened.
    send(&mut client, [3]);
    assert!(taken(&mut client, 0).is_empty());
    assert_eq!(client.next_json()["p"]["code"], "MESSAGE_GAP");
}

fn publication(number: u64, topic: &str) -> Value {
    let payload = json!({"topic": topic, "type": "news", "payload": {"number": number}});
    json!({"t": "publish_request", "n": number, "cid": format!("c{number}"), "p": payload})
}

#[test]
fn publications_are_taken_once() {
    let server = start(open_topics(), Echo);
    let mut subscriber = connect_v1(&server);
    subscribe(&mut subscriber, json!(["a"]));
    let (mut client, _) = producer(&server, "p");
    for (number, duplicate) in [(1, false), (2, false), (1, true), (2, true), (3, false)] {
        let answer = client.ask(&publication(number, "a"));
        assert_eq!(answer["t"], "publish_response", "{answer}");
        assert_eq!(answer["cid"], format!("c{number}"));
        assert_eq!(answer["p"]["duplicate"], duplicate, "{number}");
        assert_eq!(
            client.next_json()["p"]["last"],
            number.max(if duplicate { 2 } else { 0 })
        );
    }
    client.send_text(&publication(5, "a").to_string());
    assert_eq!(client.next_json()["p"]["last"], 3);
    assert_eq!(client.next_json()["p"]["code"], "MESSAGE_GAP");
    // The numbers of both kinds of messages are the same.
    send(&mut client, [4]);
    assert_eq!(taken(&mut client, 4), [4]);
    assert_eq!(client.ask(&publication(5, "a"))["p"]["duplicate"], false);
    for number in [1, 2, 3, 5] {
        assert_eq!(subscriber.next_json()["p"]["number"], number);
    }
    let counters = server.handle().counters();
    assert_eq!(
        (
            counters.publications_received,
            counters.publications_repeated
        ),
        (4, 2)
    );
    drop(subscriber);
    end(client, &server.handle());
}

#[test]
fn a_publication_that_is_refused_for_good_does_not_stop_those_after_it() {
    let access = AccessRules {
        publish: Rules {
            allow: vec!["a".to_owned()],
            ..Rules::default()
        },
        ..AccessRules::closed()
    };
    let topics = Topics {
        access,
        ..Topics::default()
    };
    let server = start(Config { topics, ..config() }, Echo);
    let (mut client, _) = producer(&server, "p");
    let answer = client.ask(&publication(1, "b"));
    assert_eq!(answer["p"]["code"], "TOPIC_FORBIDDEN", "{answer}");
    assert_eq!(client.next_json()["p"]["last"], 1);
    assert_eq!(client.ask(&publication(2, "a"))["t"], "publish_response");
    assert_eq!(client.next_json()["p"]["last"], 2);
    end(client, &server.handle());
}

fn deduplicating(config: Config) -> Config {
    Config {
        producers: ProducerConfig {
            deduplicate: true,
            ..ProducerConfig::default()
        },
        ..config
    }
}

/// Sends these ids, `null` for none, and gives those that the application has sent back.
fn sent_back(client: &mut Client, ids: &[Value]) -> Vec<Value> {
    for id in ids {
        client.send_text(&json!({"t": "order", "id": id}).to_string());
    }
    client.send_text(r#"{"t":"end"}"#);
    let answers = std::iter::from_fn(|| {
        let message = client.next_json();
        (message["t"] == "order").then(|| message["id"].clone())
    });
    answers.collect()
}

#[test]
fn an_id_that_has_come_before_is_dropped() {
    let server = start(deduplicating(config()), Echo);
    let mut client = connect_v1(&server);
    let ids = [
        json!("a"),
        json!("b"),
        json!("a"),
        json!(null),
        json!(null),
        json!("a"),
        json!(""),
    ];
    let expected = [json!("a"), json!("b"), json!(null), json!(null), json!("")];
    assert_eq!(sent_back(&mut client, &ids), expected);
    let mut other = connect_v1(&server);
    assert_eq!(
        sent_back(&mut other, &ids[..1]),
        ids[..1],
        "another connection's own id"
    );
    let answer = other.ask(&json!({"t": "order", "id": 5}));
    assert_eq!(answer["p"]["code"], "INVALID_MESSAGE");
    assert_eq!(server.handle().counters().messages_repeated, 2);
    drop(other);
    end(client, &server.handle());
}

#[test]
fn the_ids_of_a_user_are_those_of_all_its_connections() {
    let server = start(deduplicating(authenticated()), Echo);
    let ids = [json!("a"), json!("b")];
    assert_eq!(
        sent_back(&mut connect_as(&server, "ada"), &ids[..1]),
        ids[..1]
    );
    assert_eq!(sent_back(&mut connect_as(&server, "ada"), &ids), ids[1..]);
    assert_eq!(sent_back(&mut connect_as(&server, "bob"), &ids), ids);
}

#[test]
fn the_oldest_ids_are_forgotten() {
    let mut config = deduplicating(config());
    config.producers.remembered_ids_max = 2;
    let server = start(config, Echo);
    let mut client = connect_v1(&server);
    let ids = ["a", "b", "c", "b", "a"].map(|id| json!(id));
    let expected = ["a", "b", "c", "a"].map(|id| json!(id));
    assert_eq!(sent_back(&mut client, &ids), expected);
}

#[test]
fn without_being_asked_nothing_is_dropped() {
    let server = start(config(), Echo);
    let ids = [json!("a"), json!("a"), json!(5)];
    assert_eq!(sent_back(&mut connect_v1(&server), &ids), ids);
}

#[test]
fn a_repeated_id_of_a_producer_takes_its_number() {
    let server = start(deduplicating(config()), Echo);
    let (mut client, _) = producer(&server, "p");
    for (number, is_new) in [(1, true), (2, false), (3, false)] {
        client.send_text(&json!({"t": "order", "n": number, "id": "same"}).to_string());
        if is_new {
            assert_eq!(client.next_json()["t"], "order");
        }
        assert_eq!(client.next_json()["p"]["last"], number);
    }
    end(client, &server.handle());
}

//! One publication in all the forms in which subscribers want it.

use crate::common;

use common::topics::{next, open_topics, publish, subscribe};
use common::{Client, Opening, Said, connect_v1, start};
use serde_json::{Value, json};
use tidewire_engine::apps::Sink;
use tidewire_engine::{Compression, Config, Deflate};
use tidewire_wire::deflate::DeflateParameters;
use tidewire_wire::format::{inflate, json_to_msgpack, msgpack_to_json};

const PAYLOAD_BYTES: usize = 3_000;

fn ready(opening: Opening) -> Client {
    let mut client = opening.open();
    client.next();
    client
}

/// The next message, whatever it is wrapped in.
fn unwrapped(client: &mut Client) -> Value {
    let mut text = Vec::new();
    match client.next() {
        Said::Text(json) => text = json.into_bytes(),
        Said::Binary(bytes) => match bytes.strip_prefix(b"M:") {
            Some(packed) => msgpack_to_json(packed, &mut text).expect("MessagePack"),
            None => {
                let zlib = bytes.strip_prefix(b"C:").expect("a known form");
                inflate(zlib, &mut text, 1 << 20).expect("zlib");
            }
        },
        other => panic!("{other:?}"),
    }
    serde_json::from_slice(&text).expect("JSON")
}

fn subscribe_packed(client: &mut Client) {
    let request =
        json!({"t": "subscription_update", "p": {"action": "subscribe", "topics": ["a"]}});
    let mut packed = b"M:".to_vec();
    json_to_msgpack(request.to_string().as_bytes(), &mut packed).expect("JSON");
    client.send_binary(&packed);
    assert_eq!(unwrapped(client)["t"], "subscription_update");
}

#[test]
fn every_form_says_the_same() {
    let config = Config {
        compression: Compression {
            deflate: Deflate::Shared,
            ..Compression::default()
        },
        ..open_topics()
    };
    let server = start(config, Sink);
    let address = server.address();
    let mut plain = [connect_v1(&server), connect_v1(&server)];
    let mut packed = [0; 2].map(|_| ready(Opening::new(address).target("/ws?format=msgpack")));
    let mut zlib = [0; 2].map(|_| ready(Opening::new(address).target("/ws?compression=true")));
    let mut deflated =
        [0; 2].map(|_| ready(Opening::new(address).deflate(DeflateParameters::default())));
    for client in plain.iter_mut().chain(&mut zlib).chain(&mut deflated) {
        subscribe(client, json!(["a"]));
    }
    packed.iter_mut().for_each(subscribe_packed);
    let mut publisher = connect_v1(&server);
    let filling = "abc ".repeat(PAYLOAD_BYTES / 4);
    let payload = json!({"topic": "a", "type": "count", "payload": {"n": 1, "x": filling}});
    publisher.send_text(&json!({"t": "publish_request", "p": payload}).to_string());
    publish(&mut publisher, "a", 2);
    let expected = unwrapped(&mut plain[0]);
    assert_eq!(expected["p"]["x"], filling);
    assert_eq!(unwrapped(&mut plain[1]), expected);
    for client in packed.iter_mut().chain(&mut zlib).chain(&mut deflated) {
        assert_eq!(unwrapped(client), expected);
        assert_eq!(unwrapped(client)["p"]["n"], 2);
    }
    assert!(deflated.iter().all(|client| client.compressed() == 1));
    // Once for zlib and once for permessage-deflate, however many take it.
    assert_eq!(server.handle().counters().messages_compressed, 2);
}

#[test]
fn who_takes_a_pattern_gets_it_in_its_own_form() {
    let server = start(open_topics(), Sink);
    let mut packed = ready(Opening::new(server.address()).target("/ws?format=msgpack"));
    subscribe_packed(&mut packed);
    let mut plain = connect_v1(&server);
    subscribe(&mut plain, json!(["*"]));
    publish(&mut plain, "a", 7);
    assert_eq!(next(&mut plain).1, 7);
    assert_eq!(unwrapped(&mut packed)["p"]["n"], 7);
}

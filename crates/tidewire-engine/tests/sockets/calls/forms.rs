//! Calls in every form of messages.

use super::common::{Client, Opening, Said, config};
use super::{clerk, outcome, request, start_call};
use serde_json::{Value, json};
use tidewire_engine::{Config, Encryption, NewCall};
use tidewire_wire::format::{Format, json_to_msgpack, msgpack_to_json};
use tidewire_wire::secure::{ExchangeKeyPair, SessionCipher};
use tidewire_wire::session::{
    ClientEvent, ClientHello, ClientSession, EncryptionVersion, Features, Now,
};
use tidewire_wire::uuid::Uuid;

#[test]
fn messagepack_clients_call_and_are_called() {
    let (server, clerk) = clerk(config());
    let mut client = Opening::new(server.address())
        .target("/ws?format=msgpack")
        .open();
    assert_eq!(client.next_json()["t"], "server_ready");
    send_packed(
        &mut client,
        &json!({"t": "client_hello", "p": {"features": {"calls": true}}}),
    );
    assert_eq!(unpacked(&mut client)["t"], "server_hello");
    let payload = json!({"n": [1, -2, 3.5], "text": "\u{e9}"});
    send_packed(&mut client, &request("echo", "m", &payload));
    let answer = unpacked(&mut client);
    assert_eq!(
        (&answer["t"], &answer["cid"]),
        (&json!("call_response"), &json!("m"))
    );
    assert_eq!(answer["p"], json!({"payload": payload}));
    let outcomes = start_call(&server, clerk.connection(), NewCall::new("t", r#"{"a":1}"#));
    let call = unpacked(&mut client);
    assert_eq!(
        (&call["t"], &call["p"]["payload"]),
        (&json!("call_request"), &json!({"a": 1}))
    );
    let response = json!({"t": "call_response", "cid": call["cid"], "p": {"payload": [null]}});
    send_packed(&mut client, &response);
    assert_eq!(outcome(outcomes), Ok("[null]".into()));
}

fn send_packed(client: &mut Client, message: &Value) {
    let mut packed = b"M:".to_vec();
    json_to_msgpack(message.to_string().as_bytes(), &mut packed).expect("JSON");
    client.send_binary(&packed);
}

#[track_caller]
fn unpacked(client: &mut Client) -> Value {
    let Said::Binary(bytes) = client.next() else {
        panic!("not binary")
    };
    let packed = bytes.strip_prefix(b"M:").expect("MessagePack");
    let mut text = Vec::new();
    msgpack_to_json(packed, &mut text).expect("MessagePack");
    serde_json::from_slice(&text).expect("JSON")
}

#[test]
fn encrypted_clients_call_and_are_called() {
    let (server, clerk) = clerk(Config {
        encryption: Encryption::Required,
        ..config()
    });
    let mut client = Opening::new(server.address()).open();
    let mut cipher = exchange(&mut client);
    let sealed = |cipher: &mut SessionCipher, client: &mut Client, message: &Value| {
        let mut out = Vec::new();
        cipher
            .seal(message.to_string().as_bytes(), &mut out)
            .expect("room");
        client.send_binary(&out);
    };
    let opened = |cipher: &mut SessionCipher, client: &mut Client| -> Value {
        let Said::Binary(bytes) = client.next() else {
            panic!("not encrypted")
        };
        let mut plain = Vec::new();
        cipher.open(&bytes, &mut plain).expect("our key");
        serde_json::from_slice(&plain).expect("JSON")
    };
    for t in ["echo", "thread"] {
        sealed(
            &mut cipher,
            &mut client,
            &request(t, "e", &json!({"secret": 1})),
        );
        let answer = opened(&mut cipher, &mut client);
        assert_eq!(
            (&answer["cid"], &answer["p"]["payload"]),
            (&json!("e"), &json!({"secret": 1}))
        );
    }
    let outcomes = start_call(&server, clerk.connection(), NewCall::new("t", "7"));
    let call = opened(&mut cipher, &mut client);
    assert_eq!(
        (&call["t"], &call["p"]["payload"]),
        (&json!("call_request"), &json!(7))
    );
    let response = json!({"t": "call_response", "cid": call["cid"], "p": {"payload": 8}});
    sealed(&mut cipher, &mut client, &response);
    assert_eq!(outcome(outcomes), Ok("8".into()));
}

/// Agrees on a key, in a hello that says that calls are taken.
fn exchange(client: &mut Client) -> SessionCipher {
    let mut session = ClientSession::new(Format::Json, Now::default());
    let handle = |session: &mut ClientSession, message: Value| {
        session
            .handle_message(Format::Json, message.to_string().as_bytes(), Now::default())
            .expect("a message of the protocol")
    };
    handle(&mut session, client.next_json());
    let pair = ExchangeKeyPair::from_seed(&[7; 32]).expect("a seed");
    let hello = ClientHello {
        client_version: "test",
        features: Features {
            encryption: true,
            calls: true,
            ..Features::default()
        },
        encryption: Some(pair.offer(EncryptionVersion::Two)),
        producer: None,
    };
    let mut text = Vec::new();
    session.write_hello(&hello, Uuid::default(), Now::default(), &mut text);
    client.send_text(&String::from_utf8(text).expect("JSON"));
    let answer = client.next_json();
    let ClientEvent::Established {
        encryption: Some(encryption),
        connection_id,
        ..
    } = handle(&mut session, answer)
    else {
        panic!("no key")
    };
    pair.finish(
        EncryptionVersion::Two,
        &encryption,
        &connection_id,
        None,
        [1, 2, 3, 4],
    )
    .expect("the server's key")
}

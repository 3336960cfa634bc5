//! Encrypted sessions, as clients of both versions meet them.

use crate::common;
mod version_2;

use common::{Client, Opening, Said, assert_settled, config, connect_v1, start, wait_until};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tidewire_engine::apps::Echo;
use tidewire_engine::{
    Application, CloseReason, Config, ConnectionKey, Context, Encryption, Message, Outgoing, Peer,
    Protocol, Server,
};
use tidewire_wire::close::CloseCode;
use tidewire_wire::format::{Format, deflate, inflate};
use tidewire_wire::secure::{ExchangeError, ExchangeKeyPair, SessionCipher};
use tidewire_wire::session::{
    ClientEvent, ClientHello, ClientSession, EncryptionVersion, Features, HelloEncryption, Now,
};
use tidewire_wire::uuid::Uuid;

fn encrypting(encryption: Encryption) -> Config {
    Config {
        encryption,
        ..config()
    }
}

/// A session that has exchanged keys.
struct Encrypted {
    client: Client,
    session: ClientSession,
    cipher: SessionCipher,
    hello: HelloEncryption,
    connection_id: String,
}

fn hello(
    session: &mut ClientSession,
    pair: &ExchangeKeyPair,
    version: EncryptionVersion,
) -> String {
    hello_with(session, pair, version, Features::default())
}

fn hello_with(
    session: &mut ClientSession,
    pair: &ExchangeKeyPair,
    version: EncryptionVersion,
    features: Features,
) -> String {
    let hello = ClientHello {
        client_version: "test",
        features,
        encryption: Some(pair.offer(version)),
        producer: None,
    };
    let mut text = Vec::new();
    session.write_hello(&hello, Uuid::default(), Now::default(), &mut text);
    String::from_utf8(text).expect("JSON")
}

fn handle(session: &mut ClientSession, message: &Value) -> ClientEvent {
    session
        .handle_message(Format::Json, message.to_string().as_bytes(), Now::default())
        .expect("a message of the protocol")
}

fn exchange(
    opening: &Opening,
    version: EncryptionVersion,
    pinned: Option<&[u8; 65]>,
) -> Result<Encrypted, ExchangeError> {
    exchange_with(opening, version, Features::default(), pinned)
}

fn exchange_with(
    opening: &Opening,
    version: EncryptionVersion,
    features: Features,
    pinned: Option<&[u8; 65]>,
) -> Result<Encrypted, ExchangeError> {
    let mut client = opening.open();
    let mut session = ClientSession::new(Format::Json, Now::default());
    handle(&mut session, &client.next_json());
    let pair = ExchangeKeyPair::from_seed(&[7; 32]).expect("a seed");
    client.send_text(&hello_with(&mut session, &pair, version, features));
    // The answer is the last plain message.
    let answer = client.next_json();
    let ClientEvent::Established {
        encryption: Some(encryption),
        connection_id,
        ..
    } = handle(&mut session, &answer)
    else {
        panic!("no key in {answer}")
    };
    let cipher = pair.finish(version, &encryption, &connection_id, pinned, [1, 2, 3, 4])?;
    Ok(Encrypted {
        client,
        session,
        cipher,
        hello: *encryption,
        connection_id,
    })
}

impl Encrypted {
    fn send(&mut self, plain: &[u8]) {
        let mut sealed = Vec::new();
        self.cipher.seal(plain, &mut sealed).expect("room");
        self.client.send_binary(&sealed);
    }

    #[track_caller]
    fn next_plain(&mut self) -> Vec<u8> {
        let Said::Binary(sealed) = self.client.next() else {
            panic!("not encrypted")
        };
        let mut plain = Vec::new();
        self.cipher.open(&sealed, &mut plain).expect("our key");
        plain
    }

    #[track_caller]
    fn next_json(&mut self) -> Value {
        serde_json::from_slice(&self.next_plain()).expect("JSON")
    }

    #[track_caller]
    fn ask(&mut self, message: &Value) -> Value {
        self.send(message.to_string().as_bytes());
        self.next_json()
    }
}

const BOTH: [EncryptionVersion; 2] = [EncryptionVersion::One, EncryptionVersion::Two];

#[test]
fn everything_after_the_hello_is_encrypted() {
    let server = start(encrypting(Encryption::Optional), Echo);
    for version in BOTH {
        let mut peer = exchange(&Opening::new(server.address()), version, None).unwrap();
        assert_eq!(peer.hello.version, version);
        let echo = json!({ "t": "trade", "p": { "n": 1 } });
        assert_eq!(peer.ask(&echo), echo);
        let ping = json!({ "t": "ping", "p": { "timestamp": 5 } });
        assert_eq!(peer.ask(&ping)["t"], "PONG");
        assert_eq!(
            peer.ask(&json!({ "t": "health_check" }))["t"],
            "health_check_response"
        );
        assert_eq!(
            peer.ask(&json!({ "no": "type" }))["p"]["code"],
            "INVALID_MESSAGE"
        );
        // The other forms, inside.
        let mut inside = b"C:".to_vec();
        deflate(echo.to_string().as_bytes(), 6, &mut inside);
        peer.send(&inside);
        assert_eq!(peer.next_json(), echo);
        let packed = b"M:\x81\xa1t\xa5trade";
        peer.send(packed);
        assert_eq!(peer.next_plain(), packed);
        // What other threads send.
        let message = Outgoing::Text(echo.to_string().into());
        server.handle().broadcast(message).unwrap();
        assert_eq!(peer.next_json(), echo);
        // What cannot be inside.
        let mut nested = Vec::new();
        peer.cipher.seal(b"{}", &mut nested).unwrap();
        peer.send(&nested);
        assert_eq!(peer.next_json()["p"]["code"], "INVALID_MESSAGE");
    }
    assert_eq!(server.handle().counters().key_exchanges, 2);
    assert_settled(&server.handle());
}

#[test]
fn plain_messages_have_no_encryption_to_require() {
    let config = Config {
        protocol: Protocol::Raw,
        ..encrypting(Encryption::Required)
    };
    assert!(Server::start(config, |_| Echo).is_err());
}

#[test]
fn long_json_is_compressed_and_then_encrypted_if_asked_for() {
    let server = start(encrypting(Encryption::Optional), Echo);
    let opening = Opening::new(server.address()).target("/ws?compression=true");
    let long = json!({ "t": "long", "p": { "text": "again and ".repeat(500) } }).to_string();
    for takes_zlib in [true, false] {
        let features = Features {
            compression: takes_zlib,
            ..Features::default()
        };
        let mut peer = exchange_with(&opening, EncryptionVersion::One, features, None).unwrap();
        peer.send(long.as_bytes());
        let plain = peer.next_plain();
        let mut text = Vec::new();
        match plain.strip_prefix(b"C:") {
            Some(stream) => inflate(stream, &mut text, 100_000).unwrap(),
            None => text.extend_from_slice(&plain),
        }
        assert_eq!(text, long.as_bytes());
        assert_eq!(plain.starts_with(b"C:"), takes_zlib);
    }
}

/// A message that the rate limit refuses is opened all the same, or the next message would be out of order.
#[test]
fn a_refused_message_does_not_break_version_2() {
    let mut config = encrypting(Encryption::Optional);
    config.limits.rate_limit_capacity = 5;
    config.limits.rate_limit_refill_per_s = 20;
    let server = start(config, Echo);
    let mut peer = exchange(
        &Opening::new(server.address()),
        EncryptionVersion::Two,
        None,
    )
    .unwrap();
    for _ in 0..20 {
        peer.send(b"{\"t\":\"a\"}");
    }
    // One that is surely refused changes the key.
    let mut update = Vec::new();
    peer.session
        .write_key_update(false, Uuid::default(), Now::default(), &mut update);
    peer.send(&update);
    assert!(peer.cipher.update_sealing_key());
    wait_until("all of them refused or not", || {
        server.handle().counters().messages_received == 22
    });
    let refused = server.handle().counters().messages_refused_rate;
    assert!(refused > 5, "{refused}");
    std::thread::sleep(Duration::from_millis(200));
    peer.send(b"{\"t\":\"last\"}");
    while peer.next_json()["t"] != "last" {}
    drop(peer);
    assert_settled(&server.handle());
}

/// Reports the sessions that it is notified of, and sends a message to each at once.
#[derive(Clone, Default)]
struct Greets(Arc<AtomicUsize>);

impl Application for Greets {
    fn on_connect(&mut self, context: &mut Context<'_>, _peer: &Peer) {
        self.0.fetch_add(1, Ordering::Relaxed);
        context.send_text(r#"{"t":"secret"}"#);
    }

    fn on_message(&mut self, _context: &mut Context<'_>, _message: Message<'_>) {}

    fn on_close(&mut self, _connection: ConnectionKey, _reason: CloseReason) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[test]
fn nothing_leaves_in_plain_where_encryption_is_required() {
    let mut config = encrypting(Encryption::Required);
    config.limits.handshake_timeout_ms = 300;
    let app = Greets::default();
    let sessions = Arc::clone(&app.0);
    let server = start(config, app);
    let mut silent = connect_v1(&server);
    let mut peer = exchange(
        &Opening::new(server.address()),
        EncryptionVersion::Two,
        None,
    )
    .unwrap();
    let message = Outgoing::Text(r#"{"t":"public"}"#.into());
    server.handle().broadcast(message).unwrap();
    assert_eq!(peer.next_json()["t"], "secret");
    assert_eq!(peer.next_json()["t"], "public");
    assert_eq!(sessions.load(Ordering::Relaxed), 1);
    // A client that never offers a key receives nothing, and the server does not wait for ever.
    assert_eq!(silent.next_json()["p"]["code"], "ENCRYPTION_REQUIRED");
    silent.assert_closed(CloseCode::POLICY_VIOLATION);
    drop(peer);
    assert_settled(&server.handle());
    assert_eq!(sessions.load(Ordering::Relaxed), 0);
}

#[test]
fn a_second_hello_changes_nothing() {
    let server = start(encrypting(Encryption::Optional), Echo);
    for version in BOTH {
        let mut peer = exchange(&Opening::new(server.address()), version, None).unwrap();
        let other = ExchangeKeyPair::from_seed(&[8; 32]).unwrap();
        let again = hello(&mut peer.session, &other, version);
        peer.send(again.as_bytes());
        let answer = peer.next_json();
        assert_eq!(answer["t"], "server_hello");
        assert_eq!(answer["p"]["connection_id"], peer.connection_id);
        let ClientEvent::Established { .. } = handle(&mut peer.session, &answer) else {
            panic!("{answer}")
        };
        // The old key still holds, in both directions.
        let echo = json!({ "t": "trade" });
        assert_eq!(peer.ask(&echo), echo);
    }
}

#[test]
fn a_bad_key_fails_the_exchange() {
    let server = start(encrypting(Encryption::Optional), Echo);
    let not_on_the_curve = {
        let mut point = vec![4u8];
        point.extend([1; 64]);
        base64_of(&point)
    };
    for key in [not_on_the_curve.as_str(), "AAAA", "", "!"] {
        let mut client = connect_v1(&server);
        let hello = json!({ "t": "client_hello", "p": { "encryption_public_key": key } });
        let answer = client.ask(&hello);
        assert_eq!(answer["p"]["code"], "KEY_EXCHANGE_FAILED", "{key}");
        assert_eq!(answer["p"]["recoverable"], false);
        client.assert_closed(CloseCode::POLICY_VIOLATION);
    }
}

fn base64_of(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

#[test]
fn a_server_that_requires_encryption_takes_nothing_else() {
    let server = start(encrypting(Encryption::Required), Echo);
    for first in [
        json!({ "t": "trade" }),
        json!({ "t": "ping", "p": {} }),
        json!({ "t": "client_hello", "p": {} }),
        json!({ "no": "type" }),
    ] {
        let mut client = connect_v1(&server);
        let answer = client.ask(&first);
        assert_eq!(answer["p"]["code"], "ENCRYPTION_REQUIRED", "{first}");
        client.assert_closed(CloseCode::POLICY_VIOLATION);
    }
    for version in BOTH {
        let mut peer = exchange(&Opening::new(server.address()), version, None).unwrap();
        let echo = json!({ "t": "trade" });
        assert_eq!(peer.ask(&echo), echo);
        peer.client.send_text(&echo.to_string());
        assert_eq!(peer.next_json()["p"]["code"], "ENCRYPTION_REQUIRED");
        peer.client.assert_closed(CloseCode::POLICY_VIOLATION);
    }
    assert_settled(&server.handle());
}

#[test]
fn a_server_without_encryption_says_so_and_goes_on() {
    let server = start(config(), Echo);
    let mut client = connect_v1(&server);
    let mut session = ClientSession::new(Format::Json, Now::default());
    let pair = ExchangeKeyPair::from_seed(&[7; 32]).unwrap();
    client.send_text(&hello(&mut session, &pair, EncryptionVersion::Two));
    let answer = client.next_json();
    assert_eq!(answer["t"], "server_hello");
    assert_eq!(answer["p"]["features"]["encryption"], false);
    assert_eq!(answer["p"]["encryption_public_key"], Value::Null);
    client.send_binary(b"E:123456789012345678901234567890");
    assert_eq!(client.next_json()["p"]["code"], "INVALID_MESSAGE");
    assert_eq!(client.ask(&json!({ "t": "x" }))["t"], "x");
}

/// Somebody in between who can change, repeat, drop and insert frames.
#[test]
fn version_2_notices_whatever_is_done_to_its_messages() {
    let server = start(encrypting(Encryption::Optional), Echo);
    type Tamper = fn(&mut Encrypted);
    let tampering: [(&str, Tamper); 4] = [
        ("replayed", |peer| {
            let mut sealed = Vec::new();
            peer.cipher.seal(b"{\"t\":\"a\"}", &mut sealed).unwrap();
            peer.client.send_binary(&sealed);
            assert_eq!(peer.next_json()["t"], "a");
            peer.client.send_binary(&sealed);
        }),
        ("dropped", |peer| {
            peer.cipher.seal(b"{\"t\":\"a\"}", &mut Vec::new()).unwrap();
            peer.send(b"{\"t\":\"b\"}");
        }),
        ("changed", |peer| {
            let mut sealed = Vec::new();
            peer.cipher.seal(b"{\"t\":\"a\"}", &mut sealed).unwrap();
            *sealed.last_mut().unwrap() ^= 1;
            peer.client.send_binary(&sealed);
        }),
        ("inserted", |peer| peer.client.send_text("{\"t\":\"a\"}")),
    ];
    for (name, tamper) in tampering {
        let opening = Opening::new(server.address());
        let mut peer = exchange(&opening, EncryptionVersion::Two, None).unwrap();
        tamper(&mut peer);
        let code = if name == "inserted" {
            "ENCRYPTION_REQUIRED"
        } else {
            "INVALID_MESSAGE"
        };
        assert_eq!(peer.next_json()["p"]["code"], code, "{name}");
        peer.client.assert_closed(CloseCode::POLICY_VIOLATION);
    }
}

#[test]
fn version_1_refuses_what_it_said_itself() {
    let server = start(encrypting(Encryption::Optional), Echo);
    let mut peer = exchange(
        &Opening::new(server.address()),
        EncryptionVersion::One,
        None,
    )
    .unwrap();
    peer.send(b"{\"t\":\"a\"}");
    let Said::Binary(reflected) = peer.client.next() else {
        panic!("not encrypted")
    };
    peer.client.send_binary(&reflected);
    assert_eq!(peer.next_json()["p"]["code"], "INVALID_MESSAGE");
    assert_eq!(peer.ask(&json!({ "t": "b" }))["t"], "b");
}

#[test]
fn keys_change_on_request() {
    let server = start(encrypting(Encryption::Optional), Echo);
    let mut peer = exchange(
        &Opening::new(server.address()),
        EncryptionVersion::Two,
        None,
    )
    .unwrap();
    for round in 0..5 {
        let mut update = Vec::new();
        peer.session
            .write_key_update(true, Uuid::default(), Now::default(), &mut update);
        peer.send(&update);
        assert!(peer.cipher.update_sealing_key());
        assert_eq!(peer.next_json()["t"], "key_update");
        assert!(peer.cipher.update_opening_key());
        let echo = json!({ "t": "trade", "p": { "round": round } });
        assert_eq!(peer.ask(&echo), echo);
    }
    assert_eq!(server.handle().counters().key_updates, 5);

    // Version 1 has no such thing.
    let mut old = exchange(
        &Opening::new(server.address()),
        EncryptionVersion::One,
        None,
    )
    .unwrap();
    let update = json!({ "t": "key_update", "p": { "request": true } });
    assert_eq!(old.ask(&update)["p"]["code"], "INVALID_MESSAGE");
    let mut plain = connect_v1(&server);
    assert_eq!(plain.ask(&update)["p"]["code"], "INVALID_MESSAGE");
    drop((peer, old, plain));
    assert_settled(&server.handle());
}

fn with_identity(folder: &tempfile::TempDir) -> (Server, [u8; 65]) {
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).expect("a key");
    let path = folder.path().join("identity.pem");
    std::fs::write(&path, key.serialize_pem()).expect("room on the disk");
    let point = key
        .public_key_raw()
        .try_into()
        .expect("a point of 65 bytes");
    let config = Config {
        identity_key: Some(path),
        ..encrypting(Encryption::Required)
    };
    (start(config, Echo), point)
}

#[test]
fn a_pinned_identity_tells_the_server_from_another() {
    let folder = tempfile::tempdir().expect("a folder");
    let (server, point) = with_identity(&folder);
    let opening = Opening::new(server.address());
    let mut peer = exchange(&opening, EncryptionVersion::Two, Some(&point)).unwrap();
    assert_eq!(peer.hello.identity.as_ref().unwrap().public_key, point);
    assert_eq!(peer.ask(&json!({ "t": "a" }))["t"], "a");

    let (other, _) = with_identity(&folder);
    let refused = exchange(
        &Opening::new(other.address()),
        EncryptionVersion::Two,
        Some(&point),
    );
    assert_eq!(refused.err(), Some(ExchangeError::Identity));
    let none = start(encrypting(Encryption::Optional), Echo);
    let refused = exchange(
        &Opening::new(none.address()),
        EncryptionVersion::Two,
        Some(&point),
    );
    assert_eq!(refused.err(), Some(ExchangeError::Identity));
}

#[test]
fn an_identity_key_that_is_none_is_told_at_the_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("no.pem");
    std::fs::write(&path, "nothing").expect("room on the disk");
    let config = Config {
        identity_key: Some(path),
        ..encrypting(Encryption::Required)
    };
    let error = Server::start(config, |_| Echo).unwrap_err().to_string();
    assert!(error.contains("no.pem"), "{error}");
}

#[test]
fn a_hundred_exchanges_and_no_session_is_lost() {
    let server = start(encrypting(Encryption::Optional), Echo);
    let mut peers: Vec<_> = (0..100)
        .map(|n| exchange(&Opening::new(server.address()), BOTH[n % 2], None).unwrap())
        .collect();
    for peer in &mut peers {
        assert_eq!(peer.ask(&json!({ "t": "a" }))["t"], "a");
    }
    drop(peers);
    wait_until("all gone", || server.handle().connections() == 0);
    assert_settled(&server.handle());
}

#[test]
fn publications_are_encrypted_also_for_who_subscribed_before_the_keys() {
    for version in BOTH {
        let config = Config {
            encryption: Encryption::Optional,
            ..common::topics::open_topics()
        };
        let server = start(config, Echo);
        let opening = Opening::new(server.address());
        let mut other = connect_v1(&server);
        common::topics::subscribe(&mut other, json!(["a"]));
        let mut client = opening.open();
        let mut session = ClientSession::new(Format::Json, Now::default());
        handle(&mut session, &client.next_json());
        common::topics::subscribe(&mut client, json!(["a"]));
        common::topics::publish(&mut other, "a", 1);
        assert_eq!(common::topics::next(&mut client).1, 1);
        let pair = ExchangeKeyPair::from_seed(&[7; 32]).expect("a seed");
        client.send_text(&hello(&mut session, &pair, version));
        let ClientEvent::Established {
            encryption: Some(encryption),
            connection_id,
            ..
        } = handle(&mut session, &client.next_json())
        else {
            panic!("no key")
        };
        let cipher = pair
            .finish(version, &encryption, &connection_id, None, [1, 2, 3, 4])
            .expect("keys");
        let mut encrypted = Encrypted {
            client,
            session,
            cipher,
            hello: *encryption,
            connection_id,
        };
        common::topics::publish(&mut other, "a", 2);
        assert_eq!(encrypted.next_json()["p"]["n"], 2);
    }
}

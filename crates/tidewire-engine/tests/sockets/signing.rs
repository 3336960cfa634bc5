//! Signed messages, as clients meet them.

use crate::common;

use common::{Client, SECRET, config, connect_as, connect_v1, start, unix_s};
use serde_json::{Value, json};
use tidewire_engine::apps::Echo;
use tidewire_engine::auth::{AuthConfig, KeyMaterial};
use tidewire_engine::{Config, SignatureKey, Signing};
use tidewire_wire::format::Format;
use tidewire_wire::secure::{SignatureVersion, SignedMessage, SigningKey};

fn checking(required: bool) -> Config {
    Config {
        signing: Some(Signing::new(SignatureKey::Hmac(SECRET.to_vec()), required)),
        ..config()
    }
}

/// The message with a signature made at `unix_s`.
fn signed(version: SignatureVersion, message: &Value, unix_s: u64, nonce: u8) -> String {
    let text = message.to_string();
    let found = SignedMessage::find(Format::Json, text.as_bytes()).expect("an envelope");
    let key = SigningKey::hmac(SECRET).expect("a secret");
    let sig = key
        .sign(version, &found, unix_s, &[nonce; 16])
        .expect("a signature");
    let mut message = message.clone();
    message["sig"] = sig.into();
    message.to_string()
}

#[track_caller]
fn ask(client: &mut Client, text: &str) -> Value {
    client.send_text(text);
    client.next_json()
}

const BOTH: [SignatureVersion; 2] = [SignatureVersion::One, SignatureVersion::Two];

#[test]
fn what_is_signed_counts_once() {
    let server = start(checking(true), Echo);
    for (nonce, version) in BOTH.into_iter().enumerate() {
        let mut client = connect_v1(&server);
        let order = json!({ "t": "order", "id": "1", "p": { "n": 1, "text": "ä" } });
        let text = signed(version, &order, unix_s(), nonce as u8);
        assert_eq!(ask(&mut client, &text)["t"], "order");
        assert_eq!(ask(&mut client, &text)["p"]["code"], "INVALID_MESSAGE");
        // Nor on another connection.
        let mut other = connect_v1(&server);
        let said = ask(&mut other, &text);
        assert_eq!(said["p"]["message"], "the signature has been used");
    }
}

/// It costs more than most messages, so it counts as work of whoever sends it.
#[test]
fn the_check_of_a_signature_is_charged() {
    let server = start(checking(false), Echo);
    let mut client = connect_v1(&server);
    let order = json!({ "t": "order", "p": 1 });
    for nonce in 0..100 {
        assert_eq!(ask(&mut client, &order.to_string())["t"], "order");
        let text = signed(SignatureVersion::Two, &order, unix_s(), nonce);
        if nonce == 0 {
            assert_eq!(server.handle().counters().work_us, 0, "none is signed yet");
        }
        assert_eq!(ask(&mut client, &text)["t"], "order");
    }
    // All but the last have been counted.
    assert!(server.handle().counters().work_us >= 99 * 2);
}

#[test]
fn what_was_changed_is_refused() {
    let server = start(checking(false), Echo);
    let mut client = connect_v1(&server);
    for (nonce, version) in BOTH.into_iter().enumerate() {
        let order = json!({ "t": "order", "id": "1", "p": { "n": 1 } });
        let text = signed(version, &order, unix_s(), 10 + nonce as u8);
        let changed = text.replace("\"n\":1", "\"n\":2");
        assert_ne!(changed, text);
        assert_eq!(
            ask(&mut client, &changed)["p"]["message"],
            "the signature is wrong"
        );
        // Version 1 covers the payload alone.
        let renamed = text.replace("\"t\":\"order\"", "\"t\":\"cancel\"");
        let said = ask(&mut client, &renamed);
        match version {
            SignatureVersion::One => assert_eq!(said["t"], "cancel"),
            SignatureVersion::Two => {
                assert_eq!(said["p"]["message"], "the signature is wrong");
            }
        }
    }
    for age in [301, 100_000] {
        let stale = signed(
            SignatureVersion::Two,
            &json!({ "t": "a", "p": 1 }),
            unix_s() - age,
            30,
        );
        assert_eq!(
            ask(&mut client, &stale)["p"]["message"],
            "the signature is stale"
        );
    }
}

#[test]
fn unsigned_messages_pass_unless_signatures_are_required() {
    let order = json!({ "t": "order", "p": {} }).to_string();
    let server = start(checking(false), Echo);
    assert_eq!(ask(&mut connect_v1(&server), &order)["t"], "order");

    let server = start(checking(true), Echo);
    let mut client = connect_v1(&server);
    assert_eq!(
        ask(&mut client, &order)["p"]["message"],
        "the message is not signed"
    );
    for (asked, answered) in [
        (json!({ "t": "ping", "p": { "timestamp": 1 } }), "PONG"),
        (json!({ "t": "client_hello", "p": {} }), "server_hello"),
        (json!({ "t": "health_check" }), "error"),
        (
            json!({ "t": "subscription_update", "p": { "action": "subscribe", "topics": ["a"] } }),
            "error",
        ),
    ] {
        assert_eq!(
            ask(&mut client, &asked.to_string())["t"],
            answered,
            "{asked}"
        );
    }
    // A batch needs none, what is in it does.
    let inside: Value = serde_json::from_str(&signed(
        SignatureVersion::Two,
        &json!({ "t": "a", "p": 1 }),
        unix_s(),
        3,
    ))
    .expect("JSON");
    let batch = json!({ "t": "batch", "p": { "messages": [inside, { "t": "b" }], "count": 2 } });
    assert_eq!(ask(&mut client, &batch.to_string())["t"], "a");
    assert_eq!(
        client.next_json()["p"]["message"],
        "the message is not signed"
    );
}

/// Whoever signs too much is refused, and stays connected; another user is not.
#[test]
fn a_user_has_a_quarter_of_the_remembered_signatures() {
    let mut signing = Signing::new(SignatureKey::Hmac(SECRET.to_vec()), true);
    signing.nonces_max = 8;
    let server = start(
        Config {
            signing: Some(signing),
            auth: Some(AuthConfig::new(KeyMaterial::Hs256(SECRET.to_vec()))),
            ..config()
        },
        Echo,
    );
    let order = json!({ "t": "order", "p": 1 });
    let mut nonces = 0..;
    let mut sign = || {
        let nonce = nonces.next().expect("enough");
        signed(SignatureVersion::One, &order, unix_s(), nonce)
    };
    let (mut ann, mut bob) = (connect_as(&server, "ann"), connect_as(&server, "bob"));
    for _ in 0..2 {
        assert_eq!(ask(&mut ann, &sign())["t"], "order");
    }
    // Far more than the error budget forgives.
    for _ in 0..100 {
        let refused = ask(&mut ann, &sign());
        assert_eq!(refused["p"]["code"], "RATE_LIMITED", "{refused}");
    }
    assert_eq!(ask(&mut bob, &sign())["t"], "order");
    assert_eq!(server.handle().counters().signatures_refused, 100);
}

#[test]
fn a_signature_can_be_shown_to_others() {
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).expect("a key");
    let point: [u8; 65] = key.public_key_raw().try_into().expect("a point");
    let server = start(
        Config {
            signing: Some(Signing::new(SignatureKey::Ecdsa(point), true)),
            ..config()
        },
        Echo,
    );
    let identity = tidewire_wire::secure::IdentityKey::from_pkcs8_pem(&key.serialize_pem())
        .expect("the key again");
    let signing = SigningKey::ecdsa(identity);
    let mut message = json!({ "t": "order", "id": "7", "p": { "n": 1 } });
    let text = message.to_string();
    let found = SignedMessage::find(Format::Json, text.as_bytes()).expect("an envelope");
    let sig = signing
        .sign(SignatureVersion::Two, &found, unix_s(), &[5; 16])
        .expect("a signature");
    message["sig"] = sig.into();
    let mut client = connect_v1(&server);
    assert_eq!(ask(&mut client, &message.to_string())["t"], "order");
    // A MAC made with the public key as the secret is not a signature of its key.
    let forged = signed(
        SignatureVersion::Two,
        &json!({ "t": "order", "p": 1 }),
        unix_s(),
        6,
    );
    assert_eq!(
        ask(&mut client, &forged)["p"]["message"],
        "the signature is wrong"
    );
}

#[test]
fn a_short_secret_is_told_at_the_start() {
    let config = Config {
        signing: Some(Signing::new(SignatureKey::Hmac(vec![1; 31]), true)),
        ..config()
    };
    assert!(tidewire_engine::Server::start(config, |_| Echo).is_err());
}

//! Encryption between both sides, against what another implementation computed and against changed,
//! replayed and reflected messages.

use proptest::prelude::*;
use serde_json::Value;
use std::collections::HashSet;
use tidewire_wire::secure::*;
use tidewire_wire::session::{EncryptionVersion, HelloEncryption, HelloIdentity};
use tidewire_wire::uuid::{Uuid, uuid_v7};

const BOTH: [EncryptionVersion; 2] = [EncryptionVersion::One, EncryptionVersion::Two];

fn key_pair(seed: u8) -> ExchangeKeyPair {
    ExchangeKeyPair::from_seed(&[seed; 32]).expect("a private key")
}

fn id() -> Uuid {
    uuid_v7(1_732_212_345_678, [9; 10])
}

/// The client's and the server's cipher of one connection.
fn pair(version: EncryptionVersion) -> [SessionCipher; 2] {
    let (client, server) = (key_pair(1), key_pair(2));
    let offer = client.offer(version);
    let (server, hello) = server
        .accept(&offer, id(), None, [0; 4])
        .expect("a public key");
    assert_eq!(hello.version, version);
    let client = client.finish(version, &hello, &id().to_string(), None, [0; 4]);
    [client.expect("a public key"), server]
}

fn sealed(cipher: &mut SessionCipher, plain: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    cipher.seal(plain, &mut out).expect("a key with room");
    assert_eq!(out.len(), plain.len() + SEALED_OVERHEAD_BYTES);
    out
}

/// Opens behind bytes that must stay.
fn opened(cipher: &mut SessionCipher, message: &[u8]) -> Result<Vec<u8>, OpenError> {
    let mut out = b"before".to_vec();
    let result = cipher.open(message, &mut out);
    assert!(out.starts_with(b"before"));
    assert!(result.is_ok() || out.len() == 6);
    result.map(|()| out.split_off(6))
}

#[test]
fn known_answers() {
    let text = include_str!("../../../../protocol/vectors/encryption.json");
    let vectors: Value = serde_json::from_str(text).unwrap();
    for case in vectors["cases"].as_array().unwrap() {
        match case["kind"].as_str().unwrap() {
            "public_key" => check_public_key(case),
            _ => check_session(case),
        }
    }
}

fn check_public_key(case: &Value) {
    let mut offer = key_pair(1).offer(EncryptionVersion::One);
    offer.public_key = array(&case["public_key"]);
    for version in BOTH {
        offer.version = version;
        let accepted = key_pair(2).accept(&offer, id(), None, [0; 4]);
        let hello = HelloEncryption {
            public_key: offer.public_key,
            version,
            identity: None,
        };
        let finished = key_pair(2).finish(version, &hello, &id().to_string(), None, [0; 4]);
        if case["usable"] == true {
            assert!(accepted.is_ok() && finished.is_ok(), "{}", case["name"]);
        } else {
            assert_eq!(
                accepted.err(),
                Some(ExchangeError::PeerKey),
                "{}",
                case["name"]
            );
            assert_eq!(
                finished.err(),
                Some(ExchangeError::PeerKey),
                "{}",
                case["name"]
            );
        }
    }
}

fn check_session(case: &Value) {
    let [mut client, mut server] = agreed(case);
    for message in case["messages"].as_array().expect("an array") {
        let (sender, receiver) = match message["from"].as_str().expect("a text") {
            "client" => (&mut client, &mut server),
            _ => (&mut server, &mut client),
        };
        let (plain, expected) = (bytes(&message["plain"]), bytes(&message["sealed"]));
        assert_eq!(sealed(sender, &plain), expected);
        assert_eq!(opened(receiver, &expected), Ok(plain));
        if message.get("then_key").is_some() {
            assert!(sender.update_sealing_key() && receiver.update_opening_key());
        }
    }
    for message in case["opened"].as_array().expect("an array") {
        let receiver = by(message, &mut client, &mut server);
        let plain = opened(receiver, &bytes(&message["sealed"]));
        assert_eq!(plain, Ok(bytes(&message["plain"])));
    }
    for message in case["refused"].as_array().expect("an array") {
        let receiver = by(message, &mut client, &mut server);
        let error = match message["error"].as_str().expect("a text") {
            "reflected" => OpenError::Reflected,
            "out_of_order" => OpenError::OutOfOrder,
            "not_encrypted" => OpenError::NotEncrypted,
            _ => OpenError::Tampered,
        };
        let result = opened(receiver, &bytes(&message["sealed"]));
        assert_eq!(result, Err(error), "{message}");
    }
}

fn by<'a>(
    message: &Value,
    client: &'a mut SessionCipher,
    server: &'a mut SessionCipher,
) -> &'a mut SessionCipher {
    if message["by"] == "client" {
        client
    } else {
        server
    }
}

/// Both ciphers of a case, whose public keys and identity are checked on the way.
fn agreed(case: &Value) -> [SessionCipher; 2] {
    let key_pair =
        |name: &str| ExchangeKeyPair::from_seed(&array(&case[name])).expect("a private key");
    let (client, server) = (
        key_pair("client_private_key"),
        key_pair("server_private_key"),
    );
    assert_eq!(client.public_key(), &array(&case["client_public_key"]));
    assert_eq!(server.public_key(), &array(&case["server_public_key"]));
    if case["version"] == 1 {
        let version = EncryptionVersion::One;
        let randoms = ["client_iv_random", "server_iv_random"].map(|name| array(&case[name]));
        let offer = client.offer(version);
        let (server, hello) = server
            .accept(&offer, id(), None, randoms[1])
            .expect("a public key");
        let client = client.finish(version, &hello, "", None, randoms[0]);
        return [client.expect("a public key"), server];
    }
    let version = EncryptionVersion::Two;
    let connection_id = case["connection_id"].as_str().expect("a text");
    let offer = client.offer(version);
    let (server, hello) = server
        .accept(
            &offer,
            Uuid::parse(connection_id).expect("a public key"),
            None,
            [0; 4],
        )
        .expect("a public key");
    let identity = HelloIdentity {
        public_key: array(&case["identity_public_key"]),
        signature: array(&case["identity_signature"]),
    };
    let key = IdentityKey::from_pkcs8_der(&bytes(&case["identity_pkcs8"])).expect("a private key");
    assert_eq!(key.public_key(), &identity.public_key);
    let hello = HelloEncryption {
        identity: Some(identity),
        ..hello
    };
    let pinned = Some(&identity.public_key);
    let client = client.finish(version, &hello, connection_id, pinned, [0; 4]);
    [client.expect("a public key"), server]
}

#[test]
fn seeds_that_are_no_private_keys() {
    let order = "ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551";
    let order: [u8; 32] = array(&Value::from(order));
    let mut below = order;
    below[31] -= 1;
    assert!(ExchangeKeyPair::from_seed(&below).is_ok());
    for seed in [[0; 32], order, [0xff; 32]] {
        assert!(ExchangeKeyPair::from_seed(&seed).is_err());
    }
}

const IDENTITY_PEM: &str = "-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgERERERERERERERER
ERERERERERERERERERERERERERGhRANCAAQCF+YX8LZEOSgnj5aZnmmiOk8sFSvf
bWzfZuW4AoLU7RlKfevLl3EtLdo8qFqodlpW9F/HWFmWUvKJfGUwbleU
-----END PRIVATE KEY-----
";

fn identity() -> IdentityKey {
    IdentityKey::from_pkcs8_pem(&format!("# for tests\n{IDENTITY_PEM}")).expect("a private key")
}

#[test]
fn identity_keys_in_pem() {
    let begin = "-----BEGIN PRIVATE KEY-----";
    let end = "-----END PRIVATE KEY-----";
    for pem in [
        String::new(),
        begin.to_owned(),
        format!("{begin}\n!\n{end}"),
        IDENTITY_PEM.replace("PRIVATE KEY", "EC PRIVATE KEY"),
        format!("{end}{begin}"),
    ] {
        let result = IdentityKey::from_pkcs8_pem(&pem);
        assert_eq!(result.err(), Some(IdentityKeyError::NotPem), "{pem}");
    }
    for pem in [
        format!("{begin}{end}"),
        format!("{begin}\nAAAA\n{end}"),
        // Another curve: the object identifier is that of P-384's neighbour.
        IDENTITY_PEM.replace("AwEH", "AwEI"),
    ] {
        let result = IdentityKey::from_pkcs8_pem(&pem);
        assert_eq!(result.err(), Some(IdentityKeyError::NotP256), "{pem}");
    }
}

#[test]
fn a_pinned_server_must_prove_itself() {
    let version = EncryptionVersion::Two;
    let id = id();
    let identity = identity();
    let offer = key_pair(1).offer(version);
    let (_, good) = key_pair(2)
        .accept(&offer, id, Some(&identity), [0; 4])
        .unwrap();
    let proof = good.identity.unwrap();
    let pinned = Some(&proof.public_key);
    let finish = |hello: &HelloEncryption, pinned, id: &str| {
        key_pair(1).finish(version, hello, id, pinned, [0; 4]).err()
    };
    let text = id.to_string();
    assert_eq!(finish(&good, pinned, &text), None);
    assert_eq!(finish(&good, None, &text), None);

    let refused = Some(ExchangeError::Identity);
    let other = *key_pair(3).public_key();
    assert_eq!(finish(&good, Some(&other), &text), refused);
    let none = HelloEncryption {
        identity: None,
        ..good
    };
    assert_eq!(finish(&none, None, &text), None);
    assert_eq!(finish(&none, pinned, &text), refused);
    let older = HelloEncryption {
        version: EncryptionVersion::One,
        ..good
    };
    assert_eq!(finish(&older, pinned, &text), refused);
    assert_eq!(finish(&older, None, &text), None);

    // A proof is good for one exchange on one connection: in the middle, any other key shows.
    let in_the_middle = HelloEncryption {
        public_key: *key_pair(3).public_key(),
        ..good
    };
    assert_eq!(finish(&in_the_middle, pinned, &text), refused);
    assert_eq!(finish(&in_the_middle, None, &text), refused);
    let elsewhere = text.replace('7', "6");
    assert_eq!(finish(&good, pinned, &elsewhere), refused);
    let finished = key_pair(4).finish(version, &good, &text, pinned, [0; 4]);
    assert_eq!(finished.err(), refused);
    for index in [0, 31, 63] {
        let mut signature = proof.signature;
        signature[index] ^= 1;
        let changed = HelloEncryption {
            identity: Some(HelloIdentity { signature, ..proof }),
            ..good
        };
        assert_eq!(finish(&changed, pinned, &text), refused);
        assert_eq!(finish(&changed, None, &text), refused);
    }

    assert_eq!(
        finish(&good, pinned, "short"),
        Some(ExchangeError::ConnectionId)
    );
    let not_offered = key_pair(1).finish(EncryptionVersion::One, &good, &text, None, [0; 4]);
    assert_eq!(not_offered.err(), Some(ExchangeError::Version));
}

#[test]
fn a_message_that_comes_back_is_refused() {
    for version in BOTH {
        let [mut client, mut server] = pair(version);
        for _ in 0..3 {
            let (mine, theirs) = (sealed(&mut client, b"a"), sealed(&mut server, b"b"));
            let expected = match version {
                EncryptionVersion::One => OpenError::Reflected,
                EncryptionVersion::Two => OpenError::Tampered,
            };
            assert_eq!(opened(&mut client, &mine), Err(expected));
            assert_eq!(opened(&mut server, &theirs), Err(expected));
            assert_eq!(opened(&mut server, &mine), Ok(b"a".to_vec()));
            assert_eq!(opened(&mut client, &theirs), Ok(b"b".to_vec()));
        }
    }
}

#[test]
fn version_two_takes_each_message_once_and_in_order() {
    let [mut client, mut server] = pair(EncryptionVersion::Two);
    let messages: Vec<_> = (0..3).map(|n| sealed(&mut client, &[n])).collect();
    let out_of_order = Err(OpenError::OutOfOrder);
    assert_eq!(opened(&mut server, &messages[1]), out_of_order);
    assert_eq!(opened(&mut server, &messages[0]), Ok(vec![0]));
    assert_eq!(opened(&mut server, &messages[0]), out_of_order);
    assert_eq!(opened(&mut server, &messages[2]), out_of_order);
    assert_eq!(opened(&mut server, &messages[1]), Ok(vec![1]));
    // The counter starts again with the next key, but old messages do not come back.
    assert!(server.update_opening_key());
    assert_eq!(opened(&mut server, &messages[0]), Err(OpenError::Tampered));
    assert!(client.update_sealing_key());
    let next = sealed(&mut client, &[3]);
    assert_eq!(opened(&mut server, &next), Ok(vec![3]));
}

#[test]
fn version_one_has_no_next_key() {
    let [mut client, mut server] = pair(EncryptionVersion::One);
    assert!(!client.update_sealing_key() && !client.update_opening_key());
    assert!(!client.wants_key_update());
    let message = sealed(&mut client, b"a");
    assert_eq!(opened(&mut server, &message), Ok(b"a".to_vec()));
}

#[test]
fn no_key_and_iv_are_used_twice() {
    for version in BOTH {
        let mut seen = HashSet::new();
        // Zeros encrypted are the key stream, which repeats exactly if key and IV do.
        for cipher in &mut pair(version) {
            for _ in 0..4 {
                for _ in 0..50 {
                    assert!(seen.insert(sealed(cipher, &[0; 32])[14..46].to_vec()));
                }
                assert_eq!(
                    cipher.update_sealing_key(),
                    version == EncryptionVersion::Two
                );
            }
        }
    }
}

#[test]
fn nothing_is_allocated_when_there_is_room() {
    let [mut client, mut server] = pair(EncryptionVersion::Two);
    let mut out = Vec::with_capacity(175 + SEALED_OVERHEAD_BYTES);
    client.seal(&[7; 175], &mut out).unwrap();
    assert_eq!(out.capacity(), 175 + SEALED_OVERHEAD_BYTES);
    let mut plain = Vec::with_capacity(out.len() - 14);
    server.open(&out, &mut plain).unwrap();
    assert_eq!((plain.len(), plain.capacity()), (175, 191));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_sealed_is_opened(
        messages in prop::collection::vec(
            (any::<bool>(), prop::collection::vec(any::<u8>(), 0..300), 0u8..4),
            1..30,
        ),
    ) {
        for version in BOTH {
            let [mut client, mut server] = pair(version);
            for (from_client, plain, update) in &messages {
                let (sender, receiver) = if *from_client {
                    (&mut client, &mut server)
                } else {
                    (&mut server, &mut client)
                };
                let message = sealed(sender, plain);
                prop_assert_eq!(&message[..2], b"E:");
                prop_assert_eq!(&opened(receiver, &message), &Ok(plain.clone()));
                if *update == 0 {
                    prop_assert_eq!(sender.update_sealing_key(), receiver.update_opening_key());
                }
            }
        }
    }

    #[test]
    fn a_changed_message_is_refused(
        plain in prop::collection::vec(any::<u8>(), 0..100),
        bit: prop::sample::Index,
        cut: prop::sample::Index,
    ) {
        for version in BOTH {
            let [mut client, mut server] = pair(version);
            let message = sealed(&mut client, &plain);
            let mut changed = message.clone();
            let bit = bit.index(message.len() * 8);
            changed[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(opened(&mut server, &changed).is_err());
            prop_assert!(opened(&mut server, &message[..cut.index(message.len())]).is_err());
            prop_assert!(opened(&mut server, &[&message[..], b"x"].concat()).is_err());
            prop_assert_eq!(opened(&mut server, &message), Ok(plain.clone()));
        }
    }

    #[test]
    fn any_bytes_are_survived(message in prop::collection::vec(any::<u8>(), 0..80)) {
        for version in BOTH {
            let [_, mut server] = pair(version);
            prop_assert!(opened(&mut server, &message).is_err());
            prop_assert!(opened(&mut server, &[b"E:", &message[..]].concat()).is_err());
        }
    }
}

fn array<const N: usize>(hex: &Value) -> [u8; N] {
    bytes(hex).try_into().expect("as many bytes")
}

fn bytes(hex: &Value) -> Vec<u8> {
    let hex = hex.as_str().expect("hex");
    let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex");
    (0..hex.len()).step_by(2).map(byte).collect()
}

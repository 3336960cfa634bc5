//! Keys agreed, and messages sealed, opened and refused.

use tidewire_testkit::vectors::frames::Side;
use tidewire_testkit::vectors::load;
use tidewire_testkit::vectors::secure::{EncryptionCase, Sealed, Session};
use tidewire_wire::secure::{
    ExchangeError, ExchangeKeyPair, IdentityKey, OpenError, SessionCipher,
};
use tidewire_wire::session::{EncryptionVersion, HelloEncryption, HelloIdentity, KeyOffer};
use tidewire_wire::uuid::Uuid;

pub(crate) fn run(file: &str) {
    for case in load::<EncryptionCase>(file) {
        match case {
            EncryptionCase::Session(session) => run_session(&session),
            EncryptionCase::PublicKey {
                name,
                public_key,
                usable,
            } => check_public_key(&name, array(&public_key), usable),
        }
    }
}

/// The ciphers of both sides.
struct Pair {
    server: SessionCipher,
    client: SessionCipher,
}

impl Pair {
    fn of(&mut self, side: Side) -> &mut SessionCipher {
        match side {
            Side::Server => &mut self.server,
            Side::Client => &mut self.client,
        }
    }
}

fn run_session(case: &Session) {
    let name = &case.name;
    let mut pair = exchange(case);
    for (index, message) in case.messages.iter().enumerate() {
        let name = format!("{name}, message {index}");
        check_message(&name, &mut pair, message);
    }
    for message in &case.opened {
        let found = open(pair.of(message.by), &message.sealed);
        assert_eq!(found.as_deref(), Ok(&message.plain[..]), "{name}");
    }
    for (index, message) in case.refused.iter().enumerate() {
        let found = open(pair.of(message.by), &message.sealed);
        let found = found.map_err(word);
        assert_eq!(
            found,
            Err(message.error.as_str()),
            "{name}, refused {index}"
        );
    }
}

fn exchange(case: &Session) -> Pair {
    let name = &case.name;
    let version = version(case.version);
    let client = ExchangeKeyPair::from_seed(&array(&case.client_private_key)).expect("a key");
    let server = ExchangeKeyPair::from_seed(&array(&case.server_private_key)).expect("a key");
    assert_eq!(
        client.public_key()[..],
        case.client_public_key[..],
        "{name}"
    );
    assert_eq!(
        server.public_key()[..],
        case.server_public_key[..],
        "{name}"
    );
    let connection_id = case.connection_id.clone().unwrap_or_default();
    let identity = case.identity_pkcs8.as_ref();
    let identity = identity.map(|der| IdentityKey::from_pkcs8_der(der).expect("a key"));
    let iv_random = |random: Option<&tidewire_testkit::vectors::Hex>| {
        random.map_or([0; 4], |random| array(random))
    };
    let accepted = server.accept(
        &client.offer(version),
        Uuid::parse(&connection_id).unwrap_or_default(),
        identity.as_ref(),
        iv_random(case.server_iv_random.as_ref()),
    );
    let (server, ours) = accepted.expect("keys that fit");
    assert_eq!(ours.version, version, "{name}");
    // Signatures differ each time, so that the client is given the one of the vector.
    let hello = HelloEncryption {
        identity: case
            .identity_public_key
            .as_ref()
            .map(|public_key| HelloIdentity {
                public_key: array(public_key),
                signature: array(case.identity_signature.as_ref().expect("a signature")),
            }),
        ..ours
    };
    check_identity(case, version, &hello, &connection_id);
    let pinned = hello.identity.map(|identity| identity.public_key);
    let client = client.finish(
        version,
        &hello,
        &connection_id,
        pinned.as_ref(),
        iv_random(case.client_iv_random.as_ref()),
    );
    let client = client.expect("keys that fit");
    Pair { server, client }
}

/// A proof for another connection, another key or by another signer proves nothing.
fn check_identity(
    case: &Session,
    version: EncryptionVersion,
    hello: &HelloEncryption,
    connection_id: &str,
) {
    let Some(identity) = hello.identity else {
        return;
    };
    let finish = |hello: &HelloEncryption, connection_id: &str, pinned: &[u8; 65]| {
        let client = ExchangeKeyPair::from_seed(&array(&case.client_private_key)).expect("a key");
        client
            .finish(version, hello, connection_id, Some(pinned), [0; 4])
            .map(|_| ())
    };
    let refused = Err(ExchangeError::Identity);
    let mut altered = *hello;
    altered.identity.as_mut().expect("an identity").signature[10] ^= 1;
    assert_eq!(
        finish(&altered, connection_id, &identity.public_key),
        refused,
        "{}",
        case.name
    );
    altered.identity = None;
    assert_eq!(
        finish(&altered, connection_id, &identity.public_key),
        refused,
        "{}",
        case.name
    );
    let other_id = connection_id.replace('0', "1");
    assert_eq!(
        finish(hello, &other_id, &identity.public_key),
        refused,
        "{}",
        case.name
    );
    assert_eq!(
        finish(hello, connection_id, &hello.public_key),
        refused,
        "{}",
        case.name
    );
    assert_eq!(
        finish(hello, connection_id, &identity.public_key),
        Ok(()),
        "{}",
        case.name
    );
}

fn check_message(name: &str, pair: &mut Pair, message: &Sealed) {
    let receiver = match message.from {
        Side::Server => Side::Client,
        Side::Client => Side::Server,
    };
    let mut sealed = b"before".to_vec();
    pair.of(message.from)
        .seal(&message.plain, &mut sealed)
        .expect("a key that is not used up");
    assert_eq!(sealed[6..], message.sealed[..], "{name}");
    let opened = open(pair.of(receiver), &message.sealed);
    assert_eq!(opened.as_deref(), Ok(&message.plain[..]), "{name}");
    if message.then_key.is_some() {
        assert!(pair.of(message.from).update_sealing_key(), "{name}");
        assert!(pair.of(receiver).update_opening_key(), "{name}");
    }
}

fn check_public_key(name: &str, public_key: [u8; 65], usable: bool) {
    for version in [EncryptionVersion::One, EncryptionVersion::Two] {
        let pair = || ExchangeKeyPair::from_seed(&[7; 32]).expect("a key");
        let offer = KeyOffer {
            public_key,
            version,
        };
        let accepted = pair()
            .accept(&offer, Uuid::default(), None, [0; 4])
            .map(|_| ());
        let hello = HelloEncryption {
            public_key,
            version,
            identity: None,
        };
        let id = Uuid::default().to_string();
        let finished = pair()
            .finish(version, &hello, &id, None, [0; 4])
            .map(|_| ());
        let expected = if usable {
            Ok(())
        } else {
            Err(ExchangeError::PeerKey)
        };
        assert_eq!(
            (accepted, finished),
            (expected, expected),
            "{name}, {version:?}"
        );
    }
}

fn open(cipher: &mut SessionCipher, sealed: &[u8]) -> Result<Vec<u8>, OpenError> {
    let mut plain = b"before".to_vec();
    let result = cipher.open(sealed, &mut plain);
    assert!(plain.starts_with(b"before"));
    let plain = plain.split_off(6);
    assert!(result.is_ok() || plain.is_empty());
    result.map(|()| plain)
}

fn word(error: OpenError) -> &'static str {
    match error {
        OpenError::NotEncrypted => "not_encrypted",
        OpenError::Reflected => "reflected",
        OpenError::OutOfOrder => "out_of_order",
        OpenError::Tampered => "tampered",
    }
}

fn version(number: u8) -> EncryptionVersion {
    match number {
        1 => EncryptionVersion::One,
        2 => EncryptionVersion::Two,
        other => panic!("no version: {other}"),
    }
}

fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.try_into().expect("as many bytes as the field has")
}

//! Encryption and signatures: only what the peer sealed is opened, once and in its order where version 2
//! says so, any public key is survived, and a signature is valid only for the signed message.
//!
//! Input: two bytes of flags; then steps of a dialogue, a message to open, keys, or messages to sign.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tidewire_wire::envelope::{parse_json, parse_msgpack};
use tidewire_wire::format::Format;
use tidewire_wire::secure::{
    ExchangeKeyPair, NonceWindow, OpenError, SessionCipher, SignatureError, SignatureVersion,
    SignedMessage, SigningKey, VerifyingKey,
};
use tidewire_wire::session::{
    EncryptionVersion, HelloEncryption, HelloIdentity, KeyOffer, PUBLIC_KEY_BYTES,
};
use tidewire_wire::uuid::Uuid;

fuzz_target!(|input: &[u8]| {
    let [kind, flags, bytes @ ..] = input else {
        return;
    };
    let version = if flags & 1 == 0 {
        EncryptionVersion::One
    } else {
        EncryptionVersion::Two
    };
    match kind % 4 {
        0 => dialogue(version, bytes),
        1 => foreign(version, bytes),
        2 => exchange(version, bytes),
        _ => signatures(*flags, bytes),
    }
});

/// The client's and the server's cipher of one connection.
fn pair(version: EncryptionVersion) -> [SessionCipher; 2] {
    let offer = key_pair(1).offer(version);
    let accepted = key_pair(2).accept(&offer, ID, None, [2; 4]);
    let (server, hello) = accepted.expect("a good key");
    let client = key_pair(1).finish(version, &hello, &id(), None, [1; 4]);
    [client.expect("a good answer"), server]
}

/// Steps of two bytes: who seals and what then happens to the message, and its length.
fn dialogue(version: EncryptionVersion, steps: &[u8]) {
    let mut ciphers = pair(version);
    // Whether each side has received all that was sent to it, and nothing else.
    let mut in_order = [true; 2];
    for step in steps.as_chunks::<2>().0.iter().take(64) {
        let sender = usize::from(step[0] & 1);
        let receiver = 1 - sender;
        let plain = vec![step[1]; usize::from(step[1])];
        let mut sealed = Vec::new();
        ciphers[sender]
            .seal(&plain, &mut sealed)
            .expect("a fresh key");
        let is_two = version == EncryptionVersion::Two;
        match step[0] >> 1 & 7 {
            0 => {
                let at = usize::from(step[1]) * 7 % sealed.len();
                sealed[at] ^= 1 << (step[0] >> 4 & 7);
                assert_refused(&mut ciphers[receiver], &sealed);
                in_order[receiver] &= !is_two;
            }
            1 => {
                assert_refused(&mut ciphers[sender], &sealed);
                in_order[receiver] &= !is_two;
            }
            2 => in_order[receiver] &= !is_two,
            3 => {
                let result = open(&mut ciphers[receiver], &sealed);
                assert_eq!(result.is_ok(), in_order[receiver]);
                let again = open(&mut ciphers[receiver], &sealed);
                assert_eq!(again.is_ok(), !is_two, "replayed");
            }
            4 if is_two => {
                let is_received = open(&mut ciphers[receiver], &sealed).is_ok();
                assert_eq!(is_received, in_order[receiver]);
                assert!(ciphers[sender].update_sealing_key());
                if is_received {
                    assert!(ciphers[receiver].update_opening_key());
                }
            }
            _ => {
                let expected = if in_order[receiver] {
                    Ok(plain)
                } else {
                    Err(())
                };
                let result = open(&mut ciphers[receiver], &sealed);
                assert_eq!(result.map_err(drop), expected);
            }
        }
    }
}

/// Messages that the peer never sealed.
fn foreign(version: EncryptionVersion, message: &[u8]) {
    let mut sealed = b"E:".to_vec();
    sealed.extend_from_slice(message);
    for cipher in &mut pair(version) {
        assert_refused(cipher, message);
        assert_refused(cipher, &sealed);
    }
}

fn open(cipher: &mut SessionCipher, message: &[u8]) -> Result<Vec<u8>, OpenError> {
    let mut out = b"before".to_vec();
    let result = cipher.open(message, &mut out);
    assert!(out.starts_with(b"before"));
    assert!(result.is_ok() || out.len() == 6);
    result.map(|()| out.split_off(6))
}

fn assert_refused(cipher: &mut SessionCipher, message: &[u8]) {
    let result = open(cipher, message);
    assert!(result.is_err(), "{result:?}");
}

/// Any keys and identities from the peer.
fn exchange(version: EncryptionVersion, bytes: &[u8]) {
    let mut rest = bytes;
    let offer = KeyOffer {
        public_key: key(&mut rest),
        version,
    };
    let accepted = key_pair(2).accept(&offer, ID, None, [0; 4]);
    assert!(accepted.is_err() || offer.public_key[0] == 4);
    let identity = (!rest.is_empty()).then(|| HelloIdentity {
        public_key: key(&mut rest),
        signature: taken(&mut rest),
    });
    let hello = HelloEncryption {
        public_key: offer.public_key,
        version,
        identity,
    };
    let offered = EncryptionVersion::Two;
    let finish = |pinned| key_pair(1).finish(offered, &hello, &id(), pinned, [0; 4]);
    let is_checked = version == EncryptionVersion::Two && identity.is_some();
    assert!(finish(None).is_err() || !is_checked);
    assert!(finish(Some(key_pair(3).public_key())).is_err());
}

/// A key that is good if the bytes say no other.
fn key(rest: &mut &[u8]) -> [u8; PUBLIC_KEY_BYTES] {
    match rest.split_first() {
        Some((0, after)) => {
            *rest = after;
            *key_pair(4).public_key()
        }
        _ => taken(rest),
    }
}

fn taken<const N: usize>(rest: &mut &[u8]) -> [u8; N] {
    let mut bytes = [0; N];
    let length = rest.len().min(N);
    bytes[..length].copy_from_slice(&rest[..length]);
    *rest = &rest[length..];
    bytes
}

/// Two messages with two bytes 0xff between them: the first is signed, the second claims its signature.
fn signatures(flags: u8, bytes: &[u8]) {
    let format = if flags & 2 == 0 {
        Format::Json
    } else {
        Format::MessagePack
    };
    let end = bytes.windows(2).position(|pair| pair == [0xff, 0xff]);
    let (first, second) = match end {
        Some(end) => (&bytes[..end], &bytes[end + 2..]),
        None => (bytes, bytes),
    };
    let verifying = VerifyingKey::hmac(SECRET).expect("a long secret");
    let signing = SigningKey::hmac(SECRET).expect("a long secret");
    let (Some(mut first), Some(mut second)) = (found(format, first), found(format, second)) else {
        return;
    };
    for message in [&first, &second] {
        assert!(
            verifying.check(message, NOW_S).is_err(),
            "never signed: {message:?}"
        );
    }
    let version = if flags & 4 == 0 {
        SignatureVersion::One
    } else {
        SignatureVersion::Two
    };
    let Ok(signature) = signing.sign(version, &first, NOW_S, &[flags; 16]) else {
        return;
    };
    second.signature = Some(signature.clone().into());
    let is_same = match version {
        SignatureVersion::One => first.payload == second.payload,
        SignatureVersion::Two => parts(&first) == parts(&second),
    };
    assert_eq!(
        verifying.check(&second, NOW_S).is_ok(),
        is_same,
        "{first:?} {second:?}"
    );
    assert!(verifying.check(&second, NOW_S + 301).is_err());

    first.signature = Some(signature.into());
    let mut nonces = NonceWindow::new(1);
    assert_eq!(verifying.verify(&first, NOW_S, &mut nonces), Ok(version));
    let replayed = verifying.verify(&first, NOW_S, &mut nonces);
    assert_eq!(replayed, Err(SignatureError::Replayed));
}

fn parts<'m>(message: &'m SignedMessage<'_>) -> [&'m [u8]; 5] {
    let texts = [
        &message.t,
        &message.id,
        &message.topic,
        &message.correlation_id,
    ];
    let [t, id, topic, correlation_id] = texts.map(|text| text.as_bytes());
    [t, id, topic, correlation_id, message.payload]
}

/// The parts that are signed, which are those that a reader of the message sees.
fn found(format: Format, bytes: &[u8]) -> Option<SignedMessage<'_>> {
    // Text frames are UTF-8 before anyone looks at them.
    if format == Format::Json && std::str::from_utf8(bytes).is_err() {
        return None;
    }
    let found = SignedMessage::find(format, bytes).ok()?;
    let envelope = match format {
        Format::Json => parse_json(bytes),
        Format::MessagePack => parse_msgpack(bytes),
    };
    if let Ok(envelope) = envelope {
        assert_eq!(envelope.t, found.t);
        assert_eq!(envelope.id.unwrap_or_default(), found.id);
        assert_eq!(envelope.topic.unwrap_or_default(), found.topic);
        assert_eq!(
            envelope.correlation_id.unwrap_or_default(),
            found.correlation_id
        );
        assert_eq!(envelope.signature.as_deref(), found.signature.as_deref());
    }
    Some(found)
}

fn key_pair(seed: u8) -> ExchangeKeyPair {
    ExchangeKeyPair::from_seed(&[seed; 32]).expect("a private key")
}

fn id() -> String {
    let mut text = Vec::new();
    ID.write(&mut text);
    String::from_utf8(text).expect("hexadecimal digits")
}

const ID: Uuid = Uuid([7; 16]);
const NOW_S: u64 = 1_732_212_345;
const SECRET: &[u8] = b"a secret for nothing but fuzzing signatures";

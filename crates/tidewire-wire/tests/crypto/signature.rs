//! Signatures against what another implementation computed, and replayed.

use proptest::prelude::*;
use serde_json::Value;
use tidewire_wire::format::Format;
use tidewire_wire::secure::*;

const NOW: u64 = 1_732_212_345;

#[test]
fn known_answers() {
    let text = include_str!("../../../../protocol/vectors/signatures.json");
    let vectors: Value = serde_json::from_str(text).unwrap();
    for case in vectors["cases"].as_array().unwrap() {
        check(case);
    }
}

#[test]
fn hmac_alone() {
    // RFC 4231, test cases 2 and 6.
    let mac = hmac_sha256(b"Jefe", b"what do ya want for nothing?");
    assert_eq!(mac[..4], [0x5b, 0xdc, 0xc1, 0x46]);
    let long = b"Test Using Larger Than Block-Size Key - Hash Key First";
    assert_eq!(
        hmac_sha256(&[0xaa; 131], long)[..4],
        [0x60, 0xe4, 0x31, 0x59]
    );
}

fn check(case: &Value) {
    let name = &case["name"];
    let format = match case["format"].as_str().expect("a text") {
        "json" => Format::Json,
        _ => Format::MessagePack,
    };
    let key = if case["algorithm"] == "hs256" {
        VerifyingKey::hmac(&bytes(&case["secret"])).expect("a long secret")
    } else {
        let point = bytes(&case["public_key"])
            .try_into()
            .expect("as many bytes");
        VerifyingKey::ecdsa(&point).expect("a public key")
    };
    let now_unix_s = case["now_unix_s"].as_u64().expect("a number");
    let message = bytes(&case["message"]);
    let mut nonces = NonceWindow::default();
    let mut verify = || {
        let message = SignedMessage::find(format, &message)?;
        key.verify(&message, now_unix_s, &mut nonces)
    };
    let error = match case["expected"].as_str().expect("a text") {
        "accepted" => {
            let version = match case["version"].as_u64() {
                Some(1) => SignatureVersion::One,
                _ => SignatureVersion::Two,
            };
            assert_eq!(verify(), Ok(version), "{name}");
            assert_eq!(verify(), Err(SignatureError::Replayed), "{name}");
            return check_signing(case, format, version, &message);
        }
        "wrong" => SignatureError::Wrong,
        "stale" => SignatureError::Stale,
        "malformed" => SignatureError::Malformed,
        "missing" => SignatureError::Missing,
        "ambiguous" => SignatureError::Ambiguous,
        other => panic!("{other}"),
    };
    assert_eq!(verify(), Err(error), "{name}");
    assert!(nonces.is_empty(), "{name}");
}

/// Signing with HMAC has one right answer; a nonce of another length is not ours.
fn check_signing(case: &Value, format: Format, version: SignatureVersion, message: &[u8]) {
    let Ok(nonce) = bytes(&case["nonce"]).try_into() else {
        return;
    };
    if case["algorithm"] == "hs256" {
        let key = SigningKey::hmac(&bytes(&case["secret"])).expect("a long secret");
        let message = SignedMessage::find(format, message).expect("an envelope");
        let time = case["time_unix_s"].as_u64().expect("a number");
        let signature = key
            .sign(version, &message, time, &nonce)
            .expect("a signature");
        assert_eq!(Some(signature.as_str()), case["signature"].as_str());
    }
}

fn message(payload: &[u8]) -> SignedMessage<'_> {
    SignedMessage {
        t: "trade".into(),
        payload,
        ..SignedMessage::default()
    }
}

#[test]
fn ecdsa_signs_what_it_verifies() {
    let text = include_str!("../../../../protocol/vectors/encryption.json");
    let vectors: Value = serde_json::from_str(text).unwrap();
    let cases = vectors["cases"].as_array().unwrap();
    let der = cases.iter().find_map(|case| case.get("identity_pkcs8"));
    let key = IdentityKey::from_pkcs8_der(&bytes(der.unwrap())).unwrap();
    let signing = SigningKey::ecdsa(key);
    let verifying = signing.verifying_key().unwrap();
    let mut signed = message(b"{}");
    let one = signing.sign(SignatureVersion::One, &signed, NOW, &[1; 16]);
    assert_eq!(one, Err(SignError::Version));
    let two = signing.sign(SignatureVersion::Two, &signed, NOW, &[1; 16]);
    signed.signature = Some(two.unwrap().into());
    let mut nonces = NonceWindow::default();
    assert_eq!(
        verifying.verify(&signed, NOW, &mut nonces),
        Ok(SignatureVersion::Two)
    );
    signed.payload = b"{ }";
    assert_eq!(
        verifying.verify(&signed, NOW, &mut nonces),
        Err(SignatureError::Wrong)
    );
}

#[test]
fn a_nonce_counts_once_whatever_it_signs() {
    let secret = [7; 32];
    let signing = SigningKey::hmac(&secret).unwrap();
    let verifying = signing.verifying_key().unwrap();
    let mut nonces = NonceWindow::new(2);
    let mut verify = |version, payload, nonce: u8, time| {
        let mut signed = message(payload);
        let signature = signing.sign(version, &signed, time, &[nonce; 16]).unwrap();
        signed.signature = Some(signature.into());
        verifying.verify(&signed, NOW, &mut nonces)
    };
    let (one, two) = (SignatureVersion::One, SignatureVersion::Two);
    assert_eq!(verify(one, b"1", 1, NOW), Ok(one));
    assert_eq!(
        verify(two, b"2", 1, NOW - 200),
        Err(SignatureError::Replayed)
    );
    assert_eq!(verify(two, b"2", 2, NOW), Ok(two));
    assert_eq!(verify(one, b"3", 3, NOW), Err(SignatureError::Full));
    assert_eq!(verify(one, b"3", 3, NOW - 301), Err(SignatureError::Stale));
}

#[test]
fn freshness_is_checked_without_a_window() {
    let signing = SigningKey::hmac(&[7; 32]).unwrap();
    let verifying = signing.verifying_key().unwrap();
    for (time, fresh) in [
        (NOW - 301, false),
        (NOW - 300, true),
        (NOW + 300, true),
        (NOW + 301, false),
    ] {
        let mut signed = message(b"{}");
        let signature = signing.sign(SignatureVersion::Two, &signed, time, &[1; 16]);
        signed.signature = Some(signature.unwrap().into());
        let stale = verifying.check(&signed, NOW) == Err(SignatureError::Stale);
        assert_eq!(stale, !fresh, "{time}");
    }
}

#[test]
fn what_cannot_be_signed() {
    assert_eq!(
        SigningKey::hmac(&[1; 31]).err(),
        Some(SigningKeyError::TooShort)
    );
    assert_eq!(
        VerifyingKey::hmac(&[]).err(),
        Some(SigningKeyError::TooShort)
    );
    assert_eq!(
        VerifyingKey::ecdsa(&[4; 65]).err(),
        Some(SigningKeyError::NotP256)
    );
    let key = SigningKey::hmac(&[1; 32]).unwrap();
    let mut broken = message(b"{}");
    broken.topic = "a\nb".into();
    assert_eq!(
        key.sign(SignatureVersion::Two, &broken, NOW, &[0; 16]),
        Err(SignError::LineBreak)
    );
    assert!(
        key.sign(SignatureVersion::One, &broken, NOW, &[0; 16])
            .is_ok()
    );
}

proptest! {
    #[test]
    fn any_signature_is_survived(signature in "(2:)?[0-9a-f:hs256e_-]{0,120}|\\PC{0,60}") {
        let key = VerifyingKey::hmac(&[1; 32]).unwrap();
        let mut message = message(b"{}");
        message.signature = Some(signature.into());
        let error = key.verify(&message, NOW, &mut NonceWindow::default());
        prop_assert!(matches!(error, Err(SignatureError::Malformed | SignatureError::Wrong)));
    }

    #[test]
    fn any_message_is_survived(message in prop::collection::vec(any::<u8>(), 0..60)) {
        for format in [Format::Json, Format::MessagePack] {
            if let Ok(found) = SignedMessage::find(format, &message) {
                prop_assert!(!found.t.is_empty());
            }
        }
    }
}

fn bytes(hex: &Value) -> Vec<u8> {
    let hex = hex.as_str().expect("hex");
    let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex");
    (0..hex.len()).step_by(2).map(byte).collect()
}

//! Encryption in both hellos, and key updates.

use super::*;

fn encrypting() -> ServerProfile {
    let features = Features {
        encryption: true,
        ..profile().features
    };
    ServerProfile {
        features,
        ..profile()
    }
}

fn offer(version: EncryptionVersion) -> KeyOffer {
    let mut public_key = [7; PUBLIC_KEY_BYTES];
    public_key[0] = 4;
    KeyOffer {
        public_key,
        version,
    }
}

/// The base64 of [`offer`]'s key.
fn offered_key() -> String {
    format!("BAcH{}Bwc=", "BwcH".repeat(20))
}

#[test]
fn key_exchange_from_both_sides() {
    use EncryptionVersion::{One, Two};
    let mut identity_key = offer(Two).public_key;
    identity_key[64] = 1;
    let identity = HelloIdentity {
        public_key: identity_key,
        signature: [0xfe; SIGNATURE_BYTES],
    };
    let profile = encrypting();
    for (format, version, identity) in [
        (Format::Json, One, None),
        (Format::MessagePack, Two, None),
        (Format::Json, Two, Some(identity)),
    ] {
        let (mut server, mut client) = (fresh(format), ClientSession::new(format, NOW));
        let hello = ClientHello {
            client_version: "c/1",
            features: Features::default(),
            encryption: Some(offer(version)),
            producer: None,
        };
        let mut out = Vec::new();
        let op_code = client.write_hello(&hello, id(), NOW, &mut out);
        let hello = content(format, op_code, &out).to_vec();
        let event = server.handle_system(&profile, SystemType::ClientHello, format, &hello);
        let expected = SystemEvent::KeyExchange {
            offer: Box::new(offer(version)),
            correlation_id: None,
            producer: None,
        };
        assert_eq!(event, expected);
        assert!(server.is_established() && server.features().encryption);

        let encryption = HelloEncryption {
            public_key: offer(version).public_key,
            version,
            identity,
        };
        let reply = Reply::Hello {
            correlation_id: None,
            encryption: Some(Box::new(encryption)),
            producer: None,
        };
        out.clear();
        let op_code = server.encode(&profile, &reply, id(), NOW, &mut out);
        let server_hello = content(format, op_code, &out).to_vec();
        // Only the first answer counts.
        for expected in [Some(encryption), None] {
            let event = client.handle_message(format, &server_hello, NOW);
            let Ok(ClientEvent::Established { encryption, .. }) = event else {
                panic!("{event:?}")
            };
            assert_eq!(encryption.as_deref(), expected.as_ref());
        }

        let event = server.handle_system(&profile, SystemType::ClientHello, format, &hello);
        let again = SystemEvent::Hello {
            correlation_id: None,
            producer: None,
        };
        assert_eq!(event, again);
        assert!(server.features().encryption);
    }
}

#[test]
fn keys_in_hello() {
    let hello = |session: &mut ServerSession, profile: &ServerProfile, fields: &str| {
        let text = format!(r#"{{"t":"client_hello","cid":"k","p":{{{fields}}}}}"#);
        let system = SystemType::ClientHello;
        session.handle_system(profile, system, Format::Json, text.as_bytes())
    };
    let key = format!(r#""encryption_public_key":"{}""#, offered_key());
    let key = key.as_str();
    for (fields, version) in [
        (key.to_owned(), EncryptionVersion::One),
        (key.replace('=', ""), EncryptionVersion::One),
        (
            format!(r#"{key},"encryption_version":null"#),
            EncryptionVersion::One,
        ),
        (
            format!(r#"{key},"encryption_version":1"#),
            EncryptionVersion::One,
        ),
        (
            format!(r#"{key},"encryption_version":2"#),
            EncryptionVersion::Two,
        ),
        (
            format!(r#"{key},"encryption_version":9"#),
            EncryptionVersion::Two,
        ),
    ] {
        let event = hello(&mut fresh(Format::Json), &encrypting(), &fields);
        let expected = SystemEvent::KeyExchange {
            offer: Box::new(offer(version)),
            correlation_id: Some("k".into()),
            producer: None,
        };
        assert_eq!(event, expected, "{fields}");
    }
    for fields in [
        r#""encryption_public_key":5"#.to_owned(),
        r#""encryption_public_key":"""#.to_owned(),
        r#""encryption_public_key":"BAcH""#.to_owned(),
        key.replace("BAcH", "AwcH"),
        key.replace("BAcH", "BAcHBwcH"),
        key.replace("BAcH", "B-cH"),
        format!(r#"{key},"encryption_version":0"#),
        format!(r#"{key},"encryption_version":"2""#),
    ] {
        let mut session = fresh(Format::Json);
        let event = hello(&mut session, &encrypting(), &fields);
        assert_eq!(error_code(event), ErrorCode::KeyExchangeFailed, "{fields}");
        assert!(!session.is_established());
    }
    // Without encryption on both sides nobody looks at the key.
    let off = format!(r#""features":{{"encryption":false}},{key}"#);
    let no_key = r#""encryption_public_key":null,"encryption_version":"x""#;
    for (fields, profile) in [
        (key, profile()),
        (r#""encryption_public_key":5"#, profile()),
        (off.as_str(), encrypting()),
        (no_key, encrypting()),
        (r#""features":{"encryption":true}"#, encrypting()),
    ] {
        let mut session = fresh(Format::Json);
        let event = hello(&mut session, &profile, fields);
        assert!(matches!(event, SystemEvent::Hello { .. }), "{fields}");
        assert!(!session.features().encryption);
    }
}

#[test]
fn a_client_reads_keys_only_if_it_asked() {
    let key = offered_key();
    let answer = |fields: String, asked: bool| {
        let mut client = ClientSession::new(Format::Json, NOW);
        let hello = ClientHello {
            client_version: "c/1",
            features: Features::default(),
            encryption: asked.then(|| offer(EncryptionVersion::Two)),
            producer: None,
        };
        client.write_hello(&hello, id(), NOW, &mut Vec::new());
        let text = format!(r#"{{"t":"server_hello","p":{{{fields}}}}}"#);
        match client.handle_message(Format::Json, text.as_bytes(), NOW) {
            Ok(ClientEvent::Established { encryption, .. }) => Ok(encryption),
            Err(error) => Err(error),
            Ok(other) => panic!("{other:?}"),
        }
    };
    let identity = |key: &str, signature: &str| {
        format!(r#","identity_public_key":"{key}","identity_signature":"{signature}""#)
    };
    let signature = format!("{}/w==", "////".repeat(21));
    let good = format!(
        r#""encryption_public_key":"{key}","encryption_version":2{}"#,
        identity(&key, &signature)
    );
    let read = answer(good.clone(), true).unwrap().unwrap();
    assert_eq!(read.identity.unwrap().signature, [0xff; SIGNATURE_BYTES]);
    assert_eq!(answer(String::new(), true), Ok(None));
    for (from, to, field) in [
        (
            format!(":\"{key}\",\"encryption_v"),
            ":1,\"encryption_v".to_owned(),
            "encryption_public_key",
        ),
        (":2".to_owned(), ":0".to_owned(), "encryption_version"),
        (
            identity(&key, &signature),
            identity("", &signature),
            "identity_public_key",
        ),
        (
            identity(&key, &signature),
            identity(&key, "////"),
            "identity_signature",
        ),
    ] {
        let bad = good.replace(&from, &to);
        assert_ne!(bad, good);
        let wrong = EnvelopeError::InvalidField(field);
        assert_eq!(answer(bad.clone(), true), Err(wrong));
        assert_eq!(answer(bad, false), Ok(None));
    }
    assert_eq!(answer(good, false), Ok(None));
}

#[test]
fn a_key_that_comes_late_does_not_count() {
    let mut client = ClientSession::new(Format::Json, NOW);
    let hello = ClientHello {
        client_version: "c/1",
        features: Features::default(),
        encryption: Some(offer(EncryptionVersion::One)),
        producer: None,
    };
    client.write_hello(&hello, id(), NOW, &mut Vec::new());
    let key = format!(r#""encryption_public_key":"{}""#, offered_key());
    for fields in ["", key.as_str()] {
        let text = format!(r#"{{"t":"server_hello","p":{{{fields}}}}}"#);
        let event = client.handle_message(Format::Json, text.as_bytes(), NOW);
        assert!(
            matches!(
                event,
                Ok(ClientEvent::Established {
                    encryption: None,
                    ..
                })
            ),
            "{fields}"
        );
    }
}

#[test]
fn key_updates_both_ways() {
    for format in BOTH {
        for request in [true, false] {
            let (mut server, mut client) = (fresh(format), ClientSession::new(format, NOW));
            let mut out = Vec::new();
            let op_code = client.write_key_update(request, id(), NOW, &mut out);
            let update = content(format, op_code, &out);
            let event = server.handle_system(&profile(), SystemType::KeyUpdate, format, update);
            assert_eq!(event, SystemEvent::KeyUpdate { request });
            out.clear();
            let reply = Reply::KeyUpdate { request };
            let op_code = server.encode(&profile(), &reply, id(), NOW, &mut out);
            let event = client.handle_message(format, content(format, op_code, &out), NOW);
            assert_eq!(event, Ok(ClientEvent::KeyUpdate { request }));
        }
    }
    let mut session = fresh(Format::Json);
    for text in [
        r#"{"t":"key_update"}"#,
        r#"{"t":"key_update","p":{"request":null}}"#,
    ] {
        let expected = SystemEvent::KeyUpdate { request: false };
        assert_eq!(handle(&mut session, text), expected);
    }
    for text in [
        r#"{"t":"key_update","p":{"request":1}}"#,
        r#"{"t":"batch","p":{"messages":[{"t":"key_update"}]}}"#,
    ] {
        let code = error_code(handle(&mut session, text));
        assert_eq!(code, ErrorCode::InvalidMessage, "{text}");
    }
    let mut client = ClientSession::new(Format::Json, NOW);
    let wrong = br#"{"t":"key_update","p":{"request":"yes"}}"#;
    let error = EnvelopeError::InvalidField("request");
    assert_eq!(client.handle_message(Format::Json, wrong, NOW), Err(error));
}

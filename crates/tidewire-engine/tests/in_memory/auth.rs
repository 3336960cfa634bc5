//! Tokens as a server meets them: good ones of every algorithm, and each way to be bad.

#![allow(clippy::unwrap_used, reason = "a test may end in a panic")]

use proptest::prelude::*;
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519};
use rcgen::{PKCS_RSA_SHA256, RsaKeySize};
use serde_json::{Value, json};
use std::sync::LazyLock;
use tidewire_engine::auth::{
    AuthConfig, AuthConfigError, AuthKey, ClaimRules, KeyMaterial, TOKEN_BYTES_MAX, TokenError,
    Verifier, find_token,
};
use tidewire_engine::token::{SignError, SigningKey, sign, sign_text};
use tidewire_wire::handshake::server::{Limits, parse_request};

#[test]
fn every_algorithm_signs_and_verifies() {
    for (private, public) in all_pairs() {
        let verifier = Verifier::new(&AuthConfig::new(public.clone())).unwrap();
        let token = signed(
            &json!({"sub": "ana", "exp": 1_000, "iat": 5, "role": "x"}),
            &private,
        );
        let claims = verifier.verify(&token, 999).unwrap();
        assert_eq!(
            (claims.subject.as_str(), claims.expires_at_s),
            ("ana", 1_000)
        );
        assert_eq!(
            Value::Object(claims.rest),
            json!({"role": "x"}),
            "{public:?}"
        );
        assert_eq!(
            verifier.verify(&tampered(&token), 999),
            Err(TokenError::WrongSignature)
        );
    }
}

#[test]
fn a_key_takes_no_other_algorithm_and_no_other_key() {
    let pairs = all_pairs();
    for (own, (_, public)) in pairs.iter().enumerate() {
        let verifier = Verifier::new(&AuthConfig::new(public.clone())).unwrap();
        for (other, (private, _)) in pairs.iter().enumerate().filter(|(other, _)| *other != own) {
            let result = verifier.verify(&signed(&ana(), private), 0);
            assert_eq!(result, Err(TokenError::WrongAlgorithm), "{other} at {own}");
        }
    }
    let strangers = [secret(9), ec_pair().0, ed_pair().0];
    for (private, public) in strangers.iter().zip([&secret(1), &EC.1, &ED.1]) {
        let verifier = Verifier::new(&AuthConfig::new(public.clone())).unwrap();
        let result = verifier.verify(&signed(&ana(), private), 0);
        assert_eq!(result, Err(TokenError::WrongSignature));
    }
}

#[test]
fn a_public_key_is_no_secret_for_hs256() {
    let KeyMaterial::Rs256Pem(pem) = &RSA.1 else {
        unreachable!()
    };
    let token = signed(&ana(), &KeyMaterial::Hs256(pem.clone()));
    let verifier = Verifier::new(&AuthConfig::new(RSA.1.clone())).unwrap();
    assert_eq!(verifier.verify(&token, 0), Err(TokenError::WrongAlgorithm));
}

#[test]
fn no_algorithm_is_no_token() {
    let verifier = Verifier::new(&AuthConfig::new(secret(1))).unwrap();
    for alg in ["none", "None", "hs256", "HS384", "HS512", ""] {
        for signature in ["", "AAAA"] {
            let header = json!({ "alg": alg }).to_string();
            let token = format!("{}.{signature}", message(&header, &ana().to_string()));
            assert_eq!(
                verifier.verify(&token, 0),
                Err(TokenError::WrongAlgorithm),
                "{alg}"
            );
        }
    }
}

#[test]
fn time_decides_with_the_leeway() {
    let mut config = AuthConfig::new(secret(1));
    config.leeway_s = 10;
    let verifier = Verifier::new(&config).unwrap();
    let token = signed(&json!({"sub": "a", "exp": 200.9, "nbf": 100}), &secret(1));
    for (now, expected) in [
        (0, Some(TokenError::NotYetValid)),
        (89, Some(TokenError::NotYetValid)),
        (90, None),
        (209, None),
        (210, Some(TokenError::Expired)),
        (u64::MAX, Some(TokenError::Expired)),
    ] {
        assert_eq!(verifier.verify(&token, now).err(), expected, "{now}");
    }
    let token = signed(&json!({"sub": "a", "exp": -5}), &secret(1));
    assert_eq!(verifier.verify(&token, 11), Err(TokenError::Expired));
    let token = signed(&json!({"sub": "a", "exp": u64::MAX}), &secret(1));
    assert!(verifier.verify(&token, u64::MAX - 1).is_ok());
}

#[test]
fn claims_have_to_be_there_and_of_their_type() {
    let verifier = Verifier::new(&AuthConfig::new(secret(1))).unwrap();
    for claims in [
        json!({"exp": 9}),
        json!({"sub": "", "exp": 9}),
        json!({"sub": 7, "exp": 9}),
        json!({"sub": null, "exp": 9}),
        json!({"sub": "a"}),
        json!({"sub": "a", "exp": "9"}),
        json!({"sub": "a", "exp": null}),
        json!({"sub": "a", "exp": 9, "nbf": "0"}),
        json!({"sub": "a", "exp": 9, "iss": ["i"]}),
    ] {
        let result = verifier.verify(&signed(&claims, &secret(1)), 0);
        assert_eq!(result, Err(TokenError::Malformed), "{claims}");
    }
}

#[test]
fn a_header_or_claim_that_can_be_read_in_two_ways_is_refused() {
    let verifier = Verifier::new(&AuthConfig::new(secret(1))).unwrap();
    let (header, claims) = (r#"{"alg":"HS256"}"#, r#"{"sub":"a","exp":9}"#);
    assert!(verifier.verify(&signed_text(header, claims), 0).is_ok());
    for claims in [
        r#"{"sub":"a","exp":9,"sub":"root"}"#,
        r#"{"sub":"a","exp":9,"role":1,"role":2}"#,
        r#"["a",9]"#,
        r#"{"sub":"a","exp":9} "x""#,
    ] {
        let result = verifier.verify(&signed_text(header, claims), 0);
        assert_eq!(result, Err(TokenError::Malformed), "{claims}");
    }
    for header in [
        r#"{"alg":"HS256","alg":"none"}"#,
        r#"{"alg":"HS256","crit":["b64"]}"#,
        "{}",
    ] {
        let result = verifier.verify(&signed_text(header, claims), 0);
        assert_eq!(result, Err(TokenError::Malformed), "{header}");
    }
}

#[test]
fn issuer_and_audience_are_checked_if_configured() {
    let mut config = AuthConfig::new(secret(1));
    config.issuer = Some("https://id".to_owned());
    config.audience = Some("live".to_owned());
    let verifier = Verifier::new(&config).unwrap();
    let good = json!({"sub": "a", "exp": 9, "iss": "https://id", "aud": "live"});
    for (change, expected) in [
        (json!({}), None),
        (json!({"aud": ["web", "live"]}), None),
        (json!({"aud": ["web"]}), Some(TokenError::WrongAudience)),
        (json!({"aud": "liv"}), Some(TokenError::WrongAudience)),
        (
            json!({"aud": {"live": "live"}}),
            Some(TokenError::WrongAudience),
        ),
        (
            json!({"iss": "https://other"}),
            Some(TokenError::WrongIssuer),
        ),
    ] {
        let mut claims = good.clone();
        claims
            .as_object_mut()
            .unwrap()
            .extend(change.as_object().unwrap().clone());
        let result = verifier.verify(&signed(&claims, &secret(1)), 0);
        assert_eq!(result.err(), expected, "{claims}");
    }
    let without = json!({"sub": "a", "exp": 9, "aud": "live"});
    assert_eq!(
        verifier.verify(&signed(&without, &secret(1)), 0),
        Err(TokenError::WrongIssuer)
    );
    let without = json!({"sub": "a", "exp": 9, "iss": "https://id"});
    assert_eq!(
        verifier.verify(&signed(&without, &secret(1)), 0),
        Err(TokenError::WrongAudience)
    );
    let lenient = Verifier::new(&AuthConfig::new(secret(1))).unwrap();
    assert!(lenient.verify(&signed(&good, &secret(1)), 0).is_ok());
}

#[test]
fn keys_rotate() {
    let mut config = AuthConfig::new(EC.1.clone());
    config.key.as_mut().unwrap().kid = Some("new".to_owned());
    config.previous_key = Some(AuthKey {
        material: secret(1),
        kid: Some("old".to_owned()),
    });
    let verifier = Verifier::new(&config).unwrap();
    let token = |material: &KeyMaterial, kid: Option<&str>| {
        sign(&ana(), &SigningKey::new(material).unwrap(), kid).unwrap()
    };
    assert!(verifier.verify(&token(&EC.0, Some("new")), 0).is_ok());
    assert!(verifier.verify(&token(&secret(1), Some("old")), 0).is_ok());
    for kid in [None, Some("new"), Some("other")] {
        let result = verifier.verify(&token(&secret(1), kid), 0);
        assert_eq!(result, Err(TokenError::UnknownKey), "{kid:?}");
    }
    let result = verifier.verify(&token(&secret(2), Some("old")), 0);
    assert_eq!(result, Err(TokenError::WrongSignature));

    let mut config = AuthConfig::new(secret(1));
    config.previous_key = Some(AuthKey {
        material: secret(2),
        kid: None,
    });
    let verifier = Verifier::new(&config).unwrap();
    for number in [1, 2] {
        assert!(
            verifier
                .verify(&token(&secret(number), Some("any")), 0)
                .is_ok()
        );
    }
    assert_eq!(
        verifier.verify(&token(&secret(3), None), 0),
        Err(TokenError::WrongSignature)
    );
}

#[test]
fn any_number_of_keys_checks_tokens_that_need_not_be_a_users() {
    let keys = [secret(1), EC.1.clone(), secret(2)].map(|material| AuthKey {
        material,
        kid: None,
    });
    let rules = ClaimRules {
        leeway_s: 5,
        ..ClaimRules::default()
    };
    let verifier = Verifier::with_keys(&keys, rules).unwrap();
    let text = r#"{ "aud":"app", "n":1.50 }"#;
    for private in [&secret(1), &secret(2), &EC.0] {
        let key = SigningKey::new(private).unwrap();
        let token = sign_text(text, &key, None).unwrap();
        assert_eq!(verifier.verify_text(&token, 0), Ok(text.into()));
        assert_eq!(verifier.verify(&token, 0), Err(TokenError::Malformed));
    }
    let stranger = signed(&json!({}), &secret(3));
    let refused = verifier.verify_text(&stranger, 0);
    assert_eq!(refused, Err(TokenError::WrongSignature));
    let short = signed(&json!({"exp": 10}), &secret(2));
    assert!(verifier.verify_text(&short, 14).is_ok());
    assert_eq!(verifier.verify_text(&short, 15), Err(TokenError::Expired));
    let none = Verifier::with_keys([], ClaimRules::default()).unwrap();
    let refused = none.verify_text(&short, 0);
    assert_eq!(refused, Err(TokenError::WrongAlgorithm));
}

#[test]
fn what_is_no_token_is_refused() {
    let verifier = Verifier::new(&AuthConfig::new(secret(1))).unwrap();
    let good = signed(&ana(), &secret(1));
    assert_eq!(verifier.verify("", 0), Err(TokenError::Missing));
    let (dotted, padded) = (format!("{good}."), format!("{good}="));
    for bad in [
        ".", "..", "...", "a", "a.b", "a.b.c", "é.ü.ö", &dotted, &padded,
    ] {
        assert_eq!(verifier.verify(bad, 0), Err(TokenError::Malformed), "{bad}");
    }
    let long = signed(
        &json!({"sub": "a".repeat(TOKEN_BYTES_MAX), "exp": 9}),
        &secret(1),
    );
    assert_eq!(verifier.verify(&long, 0), Err(TokenError::TooLong));
}

#[test]
fn unusable_keys_are_refused_at_the_start() {
    let text = |material: KeyMaterial| {
        Verifier::new(&AuthConfig::new(material))
            .unwrap_err()
            .to_string()
    };
    assert!(
        text(KeyMaterial::Hs256(vec![7; 31])).contains("at least 32 bytes and this one has 31")
    );
    assert!(text(RSA.0.clone()).contains("the RS256 key is a private key"));
    assert!(text(EC.0.clone()).contains("the ES256 key is a private key"));
    let wrong = |material: &KeyMaterial| match material {
        KeyMaterial::Rs256Pem(pem) => KeyMaterial::Es256Pem(pem.clone()),
        KeyMaterial::Es256Pem(pem) => KeyMaterial::EdDsaPem(pem.clone()),
        KeyMaterial::EdDsaPem(pem) => KeyMaterial::Rs256Pem(pem.clone()),
        KeyMaterial::Hs256(_) => KeyMaterial::Rs256Pem(b"not PEM".to_vec()),
    };
    for (private, public) in all_pairs() {
        let found = Verifier::new(&AuthConfig::new(wrong(&public))).unwrap_err();
        assert!(
            matches!(found, AuthConfigError::Unusable { .. }),
            "{public:?}: {found}"
        );
        let found = SigningKey::new(&wrong(&private)).unwrap_err();
        assert!(
            matches!(found, AuthConfigError::Unusable { .. }),
            "{private:?}: {found}"
        );
    }
    let p384 = KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384).unwrap();
    assert!(text(KeyMaterial::Es256Pem(p384.public_key_pem().into())).contains("P-256"));
    assert!(
        SigningKey::new(&RSA.1)
            .unwrap_err()
            .to_string()
            .contains("private key of RSA")
    );
    assert!(SigningKey::new(&KeyMaterial::Hs256(vec![7; 31])).is_err());
}

#[test]
fn only_objects_are_signed() {
    let key = SigningKey::new(&secret(1)).unwrap();
    for text in ["", "[]", "{", "{} {}", "5"] {
        let refused = sign_text(text, &key, None);
        assert!(matches!(refused, Err(SignError::NotAnObject)), "{text}");
    }

    assert!(matches!(
        sign(&json!(["a"]), &key, None),
        Err(SignError::NotAnObject)
    ));
}

#[test]
fn secrets_are_not_shown() {
    let secret = b"do-not-show-this-secret-anywhere".to_vec();
    let as_numbers = format!("{:?}", &secret[..8]);
    let mut config = AuthConfig::new(KeyMaterial::Hs256(secret));
    config.previous_key.clone_from(&config.key);
    let verifier = Verifier::new(&config).unwrap();
    let key = SigningKey::new(&config.key.as_ref().unwrap().material).unwrap();
    let shown = format!("{config:?} {verifier:?} {key:?}");
    assert!(!shown.contains("do-not-show"), "{shown}");
    assert!(
        !shown.contains(as_numbers.trim_matches(['[', ']'])),
        "{shown}"
    );
}

#[test]
fn a_token_is_found_where_it_may_be() {
    let mut config = AuthConfig::new(secret(1));
    let all = "Cookie: x=1; access_token=from-cookie\r\nAuthorization: Bearer from-header\r\n\
               Sec-WebSocket-Protocol: chat, tidewire.token.from-protocol\r\n";
    assert_eq!(found(all, &config).as_deref(), Some("from-cookie"));
    let without_cookie = all.replace("access_token=from-cookie", "access_token=");
    assert_eq!(
        found(&without_cookie, &config).as_deref(),
        Some("from-header")
    );
    let only_protocol = "Sec-WebSocket-Protocol: chat, tidewire.token.from-protocol\r\n";
    assert_eq!(found(only_protocol, &config), None);
    config.subprotocol_prefix = Some("tidewire.token.".to_owned());
    assert_eq!(
        found(only_protocol, &config).as_deref(),
        Some("from-protocol")
    );
    assert_eq!(found("", &config), None);
    config.query_parameter = Some("token".to_owned());
    assert_eq!(found("", &config).as_deref(), Some("from.query"));
    config.query_parameter = Some("empty".to_owned());
    assert_eq!(found("", &config), None);
    config.cookie_name = "x".to_owned();
    assert_eq!(found(all, &config).as_deref(), Some("1"));
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic_or_pass(token in "[A-Za-z0-9_.-]{0,200}|\\PC{0,100}") {
        let verifier = Verifier::new(&AuthConfig::new(secret(1))).unwrap();
        prop_assert!(verifier.verify(&token, 0).is_err());
    }

    #[test]
    fn no_changed_byte_passes(at in any::<prop::sample::Index>(), letter in "[A-Za-z0-9_.-]") {
        let verifier = Verifier::new(&AuthConfig::new(secret(1))).unwrap();
        let good = signed(&ana(), &secret(1));
        let at = at.index(good.len());
        let mut changed = good.clone();
        changed.replace_range(at..=at, &letter);
        prop_assert_eq!(verifier.verify(&changed, 0).is_ok(), changed == good);
    }
}

/// A private and a public key.
type Pair = (KeyMaterial, KeyMaterial);

static RSA: LazyLock<Pair> = LazyLock::new(|| {
    let pair = KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048).unwrap();
    pems(&pair, KeyMaterial::Rs256Pem)
});
static EC: LazyLock<Pair> = LazyLock::new(ec_pair);
static ED: LazyLock<Pair> = LazyLock::new(ed_pair);

/// Keys of the four algorithms.
fn all_pairs() -> [Pair; 4] {
    [(secret(1), secret(1)), RSA.clone(), EC.clone(), ED.clone()]
}

fn ec_pair() -> Pair {
    pems(
        &KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap(),
        KeyMaterial::Es256Pem,
    )
}

fn ed_pair() -> Pair {
    pems(
        &KeyPair::generate_for(&PKCS_ED25519).unwrap(),
        KeyMaterial::EdDsaPem,
    )
}

fn pems(pair: &KeyPair, material: fn(Vec<u8>) -> KeyMaterial) -> Pair {
    (
        material(pair.serialize_pem().into()),
        material(pair.public_key_pem().into()),
    )
}

fn secret(number: u8) -> KeyMaterial {
    KeyMaterial::Hs256(vec![number; 32])
}

fn ana() -> Value {
    json!({"sub": "ana", "exp": 1_000})
}

fn signed(claims: &Value, material: &KeyMaterial) -> String {
    sign(claims, &SigningKey::new(material).unwrap(), None).unwrap()
}

/// A token of exactly these texts, signed with the first secret.
fn signed_text(header: &str, claims: &str) -> String {
    let message = message(header, claims);
    let key = jsonwebtoken::EncodingKey::from_secret(&[1; 32]);
    let algorithm = jsonwebtoken::Algorithm::HS256;
    let signature = jsonwebtoken::crypto::sign(message.as_bytes(), &key, algorithm).unwrap();
    format!("{message}.{signature}")
}

/// The same token for another subject, with the signature it had.
fn tampered(token: &str) -> String {
    let (message, signature) = token.rsplit_once('.').unwrap();
    let (header, _) = message.split_once('.').unwrap();
    format!(
        "{header}.{}.{signature}",
        base64(r#"{"sub":"root","exp":1000}"#)
    )
}

fn message(header: &str, claims: &str) -> String {
    format!("{}.{}", base64(header), base64(claims))
}

fn base64(text: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(text)
}

fn found(headers: &str, config: &AuthConfig) -> Option<String> {
    let text = format!(
        "GET /ws?token=from.query&empty= HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\n\
         Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{headers}\r\n"
    );
    let request = parse_request(text.as_bytes(), &Limits::default())
        .unwrap()
        .unwrap();
    find_token(&request, config).map(std::borrow::Cow::into_owned)
}

//! Tokens: whatever the bytes, only what was signed with a configured key, for its algorithm, gets in,
//! and what is then read of the claims is what they say.
//!
//! Input: one byte of flags; then a token, or changes to a signed one, or header NUL claims NUL signature.

#![no_main]

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, EncodingKey, crypto};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use std::sync::LazyLock;
use tidewire_engine::auth::{AuthConfig, AuthKey, Claims, KeyMaterial, TokenError, Verifier};

fuzz_target!(|input: &[u8]| {
    let [flags, bytes @ ..] = input else {
        return;
    };
    match flags & 3 {
        0 => {
            if let Ok(token) = std::str::from_utf8(bytes) {
                check(token);
            }
        }
        1 => {
            let base = &SIGNED[usize::from(flags >> 2) % SIGNED.len()];
            if let Ok(token) = String::from_utf8(changed(base.clone().into_bytes(), bytes)) {
                check(&token);
            }
        }
        _ => parts(flags >> 2, bytes),
    }
});

/// A token that nobody need have signed.
fn check(token: &str) {
    for verifier in [&*HMAC, &*ECDSA] {
        let accepted = verifier.verify(token, NOW_S);
        assert!(
            accepted.is_err() || SIGNED.iter().any(|signed| signed == token),
            "{token}"
        );
    }
    for signed in &*SIGNED {
        let is_accepted = [&*HMAC, &*ECDSA]
            .iter()
            .any(|verifier| verifier.verify(signed, NOW_S).is_ok());
        assert!(is_accepted, "{signed}");
    }
}

/// Replaces, inserts and removes bytes as triples of `edits` say.
fn changed(mut token: Vec<u8>, edits: &[u8]) -> Vec<u8> {
    for edit in edits.as_chunks::<3>().0 {
        let at = usize::from(u16::from_be_bytes([edit[0] & 0x1f, edit[1]])) % (token.len() + 1);
        match edit[0] >> 5 {
            0 => drop(token.splice(at..at, [edit[2]])),
            1 => token.truncate(at.max(1)),
            2 if at < token.len() => drop(token.remove(at)),
            3 if at < token.len() => token[at] ^= 1 << (edit[2] & 7),
            _ if at < token.len() => token[at] = edit[2],
            _ => {}
        }
    }
    token
}

/// A token of any header and claims, signed rightly, wrongly or not at all.
fn parts(how: u8, bytes: &[u8]) {
    let mut parts = bytes.splitn(3, |byte| *byte == 0);
    let mut part = || parts.next().unwrap_or_default();
    let (header, claims, signature) = (part(), part(), part());
    let message = format!(
        "{}.{}",
        URL_SAFE_NO_PAD.encode(header),
        URL_SAFE_NO_PAD.encode(claims)
    );
    let hmac = |secret: &[u8]| {
        let key = EncodingKey::from_secret(secret);
        crypto::sign(message.as_bytes(), &key, Algorithm::HS256).expect("a secret signs anything")
    };
    let (signature, is_signed) = match how & 3 {
        0 => (hmac(SECRET), true),
        1 => (hmac(PUBLIC_PEM), false),
        2 => (hmac(b""), false),
        _ => (URL_SAFE_NO_PAD.encode(signature), false),
    };
    let token = format!("{message}.{signature}");
    assert!(ECDSA.verify(&token, NOW_S).is_err(), "{token}");
    let accepted = HMAC.verify(&token, NOW_S);
    assert!(is_signed || accepted.is_err(), "{token}");
    match accepted {
        Ok(accepted) => assert_claims(header, claims, &accepted),
        Err(TokenError::WrongSignature) if is_signed => {
            // The one other key is chosen by its name, and this token was not signed with it.
            assert!(String::from_utf8_lossy(header).contains("alg"));
        }
        Err(_) => {}
    }
}

/// Ignored parts of a token need not be sound; the rest is compared if all of it is.
fn assert_claims(header: &[u8], claims: &[u8], accepted: &Claims) {
    if let Ok(header) = serde_json::from_slice::<Value>(header) {
        assert_eq!(header["alg"], "HS256");
    }
    let Ok(claims) = serde_json::from_slice::<Value>(claims) else {
        return;
    };
    assert_eq!(claims["sub"], accepted.subject.as_str());
    assert!(!accepted.subject.is_empty());
    let ends_s = claims["exp"].as_f64().expect("a number");
    assert!(ends_s + 6.0 > NOW_S as f64, "expired");
    let starts_s = claims["nbf"].as_f64();
    assert!(starts_s.is_none_or(|starts_s| starts_s < NOW_S as f64 + 6.0));
    for (name, value) in &accepted.rest {
        assert_eq!(&claims[name], value);
        assert!(!["sub", "exp", "nbf", "iat", "iss", "aud"].contains(&name.as_str()));
    }
}

static HMAC: LazyLock<Verifier> = LazyLock::new(|| {
    let mut config = AuthConfig::new(KeyMaterial::Hs256(SECRET.to_vec()));
    let material = KeyMaterial::Hs256(b"the key before, which is long enough too".to_vec());
    config.previous_key = Some(AuthKey {
        material,
        kid: Some("old".into()),
    });
    Verifier::new(&config).expect("a good key")
});

static ECDSA: LazyLock<Verifier> = LazyLock::new(|| {
    let config = AuthConfig::new(KeyMaterial::Es256Pem(PUBLIC_PEM.to_vec()));
    Verifier::new(&config).expect("a good key")
});

static SIGNED: LazyLock<[String; 2]> = LazyLock::new(|| {
    let header = URL_SAFE_NO_PAD.encode(br#"{"alg":"HS256","typ":"JWT"}"#);
    let claims = URL_SAFE_NO_PAD.encode(br#"{"sub":"ada","exp":4000000000}"#);
    let message = format!("{header}.{claims}");
    let key = EncodingKey::from_secret(SECRET);
    let signature = crypto::sign(message.as_bytes(), &key, Algorithm::HS256).expect("it signs");
    [format!("{message}.{signature}"), ES256_TOKEN.to_owned()]
});

const NOW_S: u64 = 1_732_212_345;
const SECRET: &[u8] = b"a secret for nothing but fuzzing tokens";
const PUBLIC_PEM: &[u8] = b"-----BEGIN PUBLIC KEY-----
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEB1oFiVOsq2NVY1RGV4YecP0KvfAM
4qSSgvBQLiwVUtZqdThGI8/SERkJpmnJCmjraEJzdX6MekWDi5NXcZXzMA==
-----END PUBLIC KEY-----
";
const ES256_TOKEN: &str = "eyJhbGciOiJFUzI1NiIsInR5cCI6IkpXVCJ9.\
    eyJzdWIiOiJhZGEiLCJleHAiOjQwMDAwMDAwMDB9.\
    9Bs_Hr1m-aJMO92GAwAzW40IC-6_FSfVIirbnwyNh3fbML7DLor1zBtpywjYcvW0-D64vVnArvucbFi0Q__MKw";

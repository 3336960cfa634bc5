//! Tokens in the opening handshake of a real server.

use crate::common;

use common::{
    Client, Opening, SECRET, Said, assert_settled, config, raw_config, start, token, token_by,
    unix_s,
};
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256, RsaKeySize};
use serde_json::{Value, json};
use tidewire_engine::apps::Echo;
use tidewire_engine::auth::{AuthConfig, AuthKey, KeyMaterial};
use tidewire_engine::token::{SigningKey, UnusableClaims, check_claims, check_length, sign};
use tidewire_engine::{Config, Server};

fn hs256() -> AuthConfig {
    AuthConfig::new(KeyMaterial::Hs256(SECRET.to_vec()))
}

fn with_auth(auth: AuthConfig) -> Server {
    start(
        Config {
            auth: Some(auth),
            ..config()
        },
        Echo,
    )
}

fn bearer(server: &Server, token: &str) -> Opening {
    Opening::new(server.address()).header("Authorization", format!("Bearer {token}"))
}

fn user(mut client: Client) -> Value {
    client.next_json()["p"]["details"]["user_id"].clone()
}

#[test]
fn a_token_comes_in_a_cookie_or_a_header_and_names_the_user() {
    let server = with_auth(hs256());
    assert_eq!(
        user(bearer(&server, &token(json!({"sub": "ana"}))).open()),
        "ana"
    );
    let cookie = format!(
        "theme=dark; access_token={}; x=y",
        token(json!({"sub": "b\"ö\n"}))
    );
    // A user's name may hold anything that JSON can.
    let opening = Opening::new(server.address()).header("Cookie", cookie);
    assert_eq!(user(opening.clone().open()), "b\"ö\n");
    // The cookie comes first, good or bad.
    let both = Opening::new(server.address())
        .header("Cookie", "access_token=bad")
        .header("Authorization", format!("Bearer {}", token(json!({}))));
    assert_eq!(both.refused().0, 401);
}

#[test]
fn claims_are_checked_before_signing_as_the_server_checks_them() {
    let server = with_auth(hs256());
    let key = SigningKey::new(&KeyMaterial::Hs256(SECRET.to_vec())).unwrap();
    let now = unix_s();
    let soon = now + 600;
    let accepted = [
        json!({"sub": "a", "exp": soon}),
        json!({"sub": "a", "exp": soon as f64 + 0.5, "iat": "yesterday"}),
        json!({"sub": "a", "exp": soon, "nbf": now - 600, "aud": ["b"], "role": {"x": 1}}),
    ];
    let refused = [
        (json!({"exp": soon}), UnusableClaims::Missing("sub")),
        (
            json!({"sub": "", "exp": soon}),
            UnusableClaims::Missing("sub"),
        ),
        (json!({"sub": "a"}), UnusableClaims::Missing("exp")),
        (json!({"sub": "a", "exp": null}), UnusableClaims::WrongType),
        (
            json!({"sub": "a", "exp": "tomorrow"}),
            UnusableClaims::WrongType,
        ),
        (json!({"sub": 1, "exp": soon}), UnusableClaims::WrongType),
        (
            json!({"sub": "a", "exp": soon, "nbf": "now"}),
            UnusableClaims::WrongType,
        ),
        (
            json!({"sub": "a", "exp": soon, "iss": 1}),
            UnusableClaims::WrongType,
        ),
        (
            json!({"sub": "a", "exp": now - 600}),
            UnusableClaims::Expired,
        ),
        (json!(["sub", "exp"]), UnusableClaims::WrongType),
    ];
    for claims in accepted {
        assert_eq!(check_claims(&claims.to_string(), now), Ok(()), "{claims}");
        let token = sign(&claims, &key, None).unwrap();
        assert_eq!(user(bearer(&server, &token).open()), "a", "{claims}");
    }
    for (claims, why) in refused {
        assert_eq!(check_claims(&claims.to_string(), now), Err(why), "{claims}");
        if let Ok(token) = sign(&claims, &key, None) {
            assert_eq!(bearer(&server, &token).refused().0, 401, "{claims}");
        }
    }
    let filled = |bytes: usize| {
        let claims = json!({"sub": "a", "exp": soon, "filling": "x".repeat(bytes)});
        sign(&claims, &key, None).unwrap()
    };
    assert_eq!(check_length(&filled(5900)), Ok(()));
    assert_eq!(user(bearer(&server, &filled(5900)).open()), "a");
    let long = filled(6200);
    let bytes = long.len();
    assert_eq!(check_length(&long), Err(UnusableClaims::TooLong { bytes }));
    assert_eq!(bearer(&server, &long).refused().0, 401);
}

#[test]
fn pages_of_other_origins_may_use_a_subprotocol_or_the_query_if_allowed() {
    let token = token(json!({"sub": "web"}));
    let strict = with_auth(hs256());
    let in_query = format!("/ws?token={token}");
    assert_eq!(
        Opening::new(strict.address()).target(&in_query).refused().0,
        401
    );
    let open = with_auth(AuthConfig {
        query_parameter: Some("token".to_owned()),
        subprotocol_prefix: Some("token.".to_owned()),
        ..hs256()
    });
    assert_eq!(
        user(Opening::new(open.address()).target(&in_query).open()),
        "web"
    );
    let offered = Opening::new(open.address())
        .protocol(format!("token.{token}"))
        .protocol("tidewire");
    let client = offered.open();
    assert_eq!(client.protocol.as_deref(), Some("tidewire"));
    assert_eq!(user(client), "web");
}

#[test]
fn rsa_and_elliptic_keys_work_end_to_end() {
    let rsa = KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048).unwrap();
    let ec = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
    let pem = |text: String| text.into_bytes();
    let pairs = [
        (
            KeyMaterial::Rs256Pem(pem(rsa.serialize_pem())),
            KeyMaterial::Rs256Pem(pem(rsa.public_key_pem())),
        ),
        (
            KeyMaterial::Es256Pem(pem(ec.serialize_pem())),
            KeyMaterial::Es256Pem(pem(ec.public_key_pem())),
        ),
    ];
    for (private, public) in pairs {
        let server = with_auth(AuthConfig::new(public));
        let good = token_by(&private, None, json!({"sub": "ana"}));
        assert_eq!(user(bearer(&server, &good).open()), "ana");
        // Another algorithm, though its key is one that the server trusts for nothing.
        assert_eq!(bearer(&server, &token(json!({}))).refused().0, 401);
    }
}

/// The answer has the reason twice: in the challenge (RFC 6750, section 3), for programs, and in the body.
#[track_caller]
fn assert_refused_because(opening: &Opening, reason: &str) {
    let (status, said) = opening.refused();
    assert_eq!(status, 401, "{said}");
    let challenge = "\r\nWWW-Authenticate: Bearer error=\"invalid_token\", error_description=\"";
    let (_, description) = said.split_once(challenge).expect(&said);
    let (description, _) = description.split_once("\"\r\n").expect(&said);
    assert!(description.starts_with(reason), "{description}");
    assert!(
        !description.contains(['"', '\\', '\r', '\n']),
        "{description}"
    );
    let (_, body) = said.split_once("\r\n\r\n").expect(&said);
    assert!(body.starts_with(reason), "{body}");
}

#[test]
fn each_bad_token_is_refused_before_the_upgrade() {
    let server = with_auth(AuthConfig {
        issuer: Some("us".to_owned()),
        audience: Some("app".to_owned()),
        ..hs256()
    });
    let good = json!({"iss": "us", "aud": ["other", "app"]});
    bearer(&server, &token(good)).open();
    let stranger = KeyMaterial::Hs256(b"another secret of thirty-two bytes".to_vec());
    let none = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJ4IiwiZXhwIjo5OTk5OTk5OTk5OX0.";
    let us = |other: Value| {
        let mut claims = json!({"iss": "us", "aud": "app"});
        for (name, value) in other.as_object().unwrap() {
            claims[name] = value.clone();
        }
        claims
    };
    let bad = [
        (
            token(us(json!({"exp": unix_s() - 60}))),
            "the token has expired",
        ),
        (
            token(us(json!({"nbf": unix_s() + 60}))),
            "the token is not valid yet",
        ),
        (
            token(us(json!({"iss": "them"}))),
            "the token's issuer is not accepted",
        ),
        (
            token(json!({"aud": "app"})),
            "the token's issuer is not accepted",
        ),
        (
            token(us(json!({"aud": "apps"}))),
            "the token is for another audience",
        ),
        (token(us(json!({"sub": ""}))), "the token is malformed"),
        (
            token_by(&stranger, None, us(json!({}))),
            "the token's signature is wrong",
        ),
        (none.to_owned(), "the token's algorithm is not accepted"),
        ("not.a.token".to_owned(), "the token is malformed"),
        ("x".repeat(10_000), "the token is too long"),
        (
            token(us(json!({"topics": {"\"\\\r\n": 1}}))),
            "access rules of the wrong shape",
        ),
    ];
    // The last one is a good token with bad rules.
    let count = bad.len() as u64 - 1;
    for (token, reason) in &bad {
        assert_refused_because(&bearer(&server, token), reason);
    }
    let (status, said) = Opening::new(server.address()).refused();
    assert_eq!(status, 401);
    // RFC 6750, section 3.1: no error is named to who shows no token.
    assert!(said.contains("\r\nWWW-Authenticate: Bearer\r\n"), "{said}");
    assert!(said.ends_with("a token is needed"), "{said}");
    let counters = assert_settled(&server.handle());
    assert_eq!(
        (counters.auth_failures, counters.handshakes_failed),
        (count + 1, count + 2)
    );
}

#[test]
fn both_keys_are_good_while_they_are_rotated() {
    let old = KeyMaterial::Hs256(b"the old secret, of thirty-two bytes".to_vec());
    let key = |material: &KeyMaterial, kid: &str| AuthKey {
        material: material.clone(),
        kid: Some(kid.to_owned()),
    };
    let new = KeyMaterial::Hs256(SECRET.to_vec());
    let server = with_auth(AuthConfig {
        key: Some(key(&new, "new")),
        previous_key: Some(key(&old, "old")),
        ..hs256()
    });
    bearer(&server, &token_by(&new, Some("new"), json!({}))).open();
    bearer(&server, &token_by(&old, Some("old"), json!({}))).open();
    for (material, kid) in [(&new, Some("old")), (&new, Some("other")), (&old, None)] {
        assert_eq!(
            bearer(&server, &token_by(material, kid, json!({})))
                .refused()
                .0,
            401
        );
    }
}

#[test]
fn a_failure_may_be_told_after_the_upgrade() {
    let failing = |config: Config| {
        let config = Config {
            auth: Some(hs256()),
            auth_failure_after_upgrade: true,
            ..config
        };
        start(config, Echo)
    };
    let server = failing(config());
    let mut client = Opening::new(server.address()).open();
    let error = client.next_json();
    assert_eq!(
        (&error["t"], &error["p"]["code"]),
        (&json!("error"), &json!("AUTH_FAILED"))
    );
    assert_eq!(error["p"]["recoverable"], false);
    assert!(matches!(client.next(), Said::Close(Some(4401), _)));
    assert_eq!(client.next(), Said::End);
    let counters = assert_settled(&server.handle());
    assert_eq!(
        (counters.auth_failures, counters.handshakes_completed),
        (1, 0)
    );

    // Neither can a page read why a token whose rights cannot be used is refused.
    let mut config = config();
    config.topics.access_claim = Some("rights".to_owned());
    let server = failing(config);
    let mut client = bearer(&server, &token(json!({"rights": 7}))).open();
    assert_eq!(client.next_json()["p"]["code"], "AUTH_FAILED");
    assert!(matches!(client.next(), Said::Close(Some(4401), _)));

    let raw = failing(raw_config());
    let mut client = bearer(&raw, "bad").open();
    assert!(matches!(client.next(), Said::Close(Some(4401), _)));
    // A failed one takes no place, so that strangers cannot fill the server.
    assert_eq!(raw.handle().connections(), 0);
    bearer(&raw, &token(json!({}))).open();
}

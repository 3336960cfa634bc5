//! Keys of tokens from a set (JWKS), in a file and at a URL: which key checks which token, rotation, and what happens
//! while the URL gives nothing.

use crate::common;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use common::http::{Answer, Http};
use common::{Opening, SECRET, certified, config, start, token, token_by, unix_s, wait_until};
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ED25519, PKCS_RSA_SHA256, RsaKeySize};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use tidewire_engine::apps::Echo;
use tidewire_engine::auth::{
    AuthConfig, AuthKey, KeyMaterial, KeySetSource, KeySetUrl, TokenError, Verifier,
};
use tidewire_engine::{Config, HttpUrl, Server};
use tidewire_net::tls;

/// A private key for a name, and what the set says of it.
struct Signer {
    private: KeyMaterial,
    kid: Option<&'static str>,
    jwk: Value,
}

impl Signer {
    fn with(mut self, member: &str, value: Value) -> Self {
        self.jwk[member] = value;
        self
    }

    fn named(mut self, kid: &'static str) -> Self {
        self.kid = Some(kid);
        self.with("kid", kid.into())
    }

    fn token(&self) -> String {
        token_by(&self.private, self.kid, json!({}))
    }
}

fn ed25519() -> Signer {
    let pair = KeyPair::generate_for(&PKCS_ED25519).expect("a key");
    let x = URL_SAFE_NO_PAD.encode(pair.public_key_raw());
    Signer {
        private: KeyMaterial::EdDsaPem(pair.serialize_pem().into_bytes()),
        kid: None,
        jwk: json!({"kty": "OKP", "crv": "Ed25519", "x": x}),
    }
}

fn p256() -> Signer {
    let pair = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).expect("a key");
    let point = pair.public_key_raw();
    let coordinate = |at: usize| URL_SAFE_NO_PAD.encode(&point[at..at + 32]);
    Signer {
        private: KeyMaterial::Es256Pem(pair.serialize_pem().into_bytes()),
        kid: None,
        jwk: json!({"kty": "EC", "crv": "P-256", "x": coordinate(1), "y": coordinate(33)}),
    }
}

fn rsa() -> Signer {
    let pair = KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048).expect("a key");
    // DER: a sequence of the modulus, with a zero in front, and the exponent.
    let der = pair.public_key_raw();
    assert_eq!(
        (der[4..9].to_vec(), der.len()),
        (vec![2, 0x82, 1, 1, 0], 270)
    );
    Signer {
        private: KeyMaterial::Rs256Pem(pair.serialize_pem().into_bytes()),
        kid: None,
        jwk: json!({"kty": "RSA", "n": URL_SAFE_NO_PAD.encode(&der[9..265]), "e": "AQAB"}),
    }
}

fn set(signers: &[&Signer]) -> String {
    let keys: Vec<_> = signers.iter().map(|signer| &signer.jwk).collect();
    json!({ "keys": keys }).to_string()
}

fn verifier(set: &str) -> Verifier {
    let source = KeySetSource::Text(set.as_bytes().to_vec());
    Verifier::new(&AuthConfig::of_key_set(source)).expect("a usable set")
}

fn verified(verifier: &Verifier, token: &str) -> Result<(), TokenError> {
    verifier.verify(token, unix_s()).map(drop)
}

#[test]
fn the_name_in_a_token_selects_its_key() {
    let signers = [
        ed25519().named("a"),
        p256().named("b"),
        rsa().named("c"),
        p256().named("d"),
    ];
    let all: Vec<_> = signers.iter().collect();
    let verifier = verifier(&set(&all));
    for signer in &signers {
        assert_eq!(verified(&verifier, &signer.token()), Ok(()));
    }
    let [ed, _, rsa, last] = &signers;
    for (signer, kid, expected) in [
        // The key of that name is another one.
        (last, Some("b"), Err(TokenError::WrongSignature)),
        // The key of that name is for another algorithm.
        (ed, Some("c"), Err(TokenError::WrongAlgorithm)),
        (ed, Some("e"), Err(TokenError::UnknownKey)),
        // Without a name: exactly one key of the algorithm.
        (rsa, None, Ok(())),
        (last, None, Err(TokenError::UnknownKey)),
    ] {
        let token = token_by(&signer.private, kid, json!({}));
        assert_eq!(verified(&verifier, &token), expected, "{kid:?}");
    }
}

#[test]
fn a_public_key_is_never_a_secret() {
    let signer = rsa().named("a");
    let verifier = verifier(&set(&[&signer]));
    let public = signer.jwk["n"].as_str().expect("a modulus").as_bytes();
    for secret in [public.to_vec(), set(&[&signer]).into_bytes()] {
        let token = token_by(&KeyMaterial::Hs256(secret), Some("a"), json!({}));
        assert_eq!(verified(&verifier, &token), Err(TokenError::WrongAlgorithm));
    }
}

#[test]
fn the_algorithm_of_the_set_counts() {
    let signer = rsa().named("a").with("alg", "PS256".into());
    let verifier = verifier(&set(&[&signer]));
    let error = verified(&verifier, &signer.token());
    assert_eq!(error, Err(TokenError::WrongAlgorithm), "signed with RS256");
}

#[test]
fn a_secret_may_stand_in_a_file_and_beside_a_set() {
    let k = URL_SAFE_NO_PAD.encode(SECRET);
    let text = json!({"keys": [{"kty": "oct", "k": k}]}).to_string();
    assert_eq!(verified(&verifier(&text), &token(json!({}))), Ok(()));
    // While a server moves from a secret to a set.
    let signer = p256().named("a");
    let source = KeySetSource::Text(set(&[&signer]).into_bytes());
    let config = AuthConfig {
        previous_key: Some(AuthKey {
            material: KeyMaterial::Hs256(SECRET.to_vec()),
            kid: None,
        }),
        ..AuthConfig::of_key_set(source)
    };
    let verifier = Verifier::new(&config).expect("usable keys");
    assert_eq!(verified(&verifier, &token(json!({}))), Ok(()));
    assert_eq!(verified(&verifier, &signer.token()), Ok(()));
}

/// A server of keys: every request gets the same answer, until there is another one.
struct KeyServer {
    address: SocketAddr,
    answer: Arc<Mutex<String>>,
}

trait Socket: Read + Write + Send {}

impl<S: Read + Write + Send> Socket for S {}

impl KeyServer {
    fn start(tls: Option<Arc<rustls::ServerConfig>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let answer: Arc<Mutex<String>> = Arc::default();
        let current = Arc::clone(&answer);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                let stream: Box<dyn Socket> = match &tls {
                    None => Box::new(stream),
                    Some(tls) => {
                        let session = rustls::ServerConnection::new(Arc::clone(tls));
                        Box::new(rustls::StreamOwned::new(session.expect("TLS"), stream))
                    }
                };
                let mut stream = BufReader::new(stream);
                let lines: Vec<_> = stream
                    .by_ref()
                    .lines()
                    .map_while(Result::ok)
                    .take_while(|line| !line.is_empty())
                    .collect();
                if lines.is_empty() {
                    continue;
                }
                assert_eq!(lines[0], "GET /jwks?a=b HTTP/1.1");
                let answer = current.lock().expect("no thread has panicked").clone();
                let _ = stream.get_mut().write_all(answer.as_bytes());
                let _ = stream.get_mut().flush();
            }
        });
        Self { address, answer }
    }

    fn says(&self, answer: &str) {
        *self.answer.lock().expect("no thread has panicked") = answer.to_owned();
    }

    fn has(&self, set: &str) {
        let length = set.len();
        self.says(&format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{set}"
        ));
    }

    fn source(&self, scheme: &str) -> KeySetUrl {
        let url = format!("{scheme}://localhost:{}/jwks?a=b", self.address.port());
        KeySetUrl::new(HttpUrl::parse(&url).expect("a URL"))
    }
}

fn config_for(source: KeySetUrl) -> Config {
    Config {
        auth: Some(AuthConfig::of_key_set(KeySetSource::Url(Box::new(source)))),
        ops_listen: Some(([127, 0, 0, 1], 0).into()),
        ..config()
    }
}

fn ops(server: &Server, path: &str) -> Answer {
    let address = server.ops_address().expect("an operations listener");
    Http::connect(address).ask("GET", path, "", "")
}

fn bearer(server: &Server, token: &str) -> Opening {
    Opening::new(server.address()).header("Authorization", format!("Bearer {token}"))
}

#[test]
fn nobody_is_accepted_before_the_keys_have_come() {
    let keys = KeyServer::start(None);
    keys.says("HTTP/1.1 503 X\r\nContent-Length: 0\r\n\r\n");
    let server = start(config_for(keys.source("http")), Echo);
    let signer = p256().named("a");
    wait_until("a fetch has failed", || {
        !ops(&server, "/metrics")
            .body
            .contains("\ntidewire_jwks_failures_total 0\n")
    });
    let ready = ops(&server, "/ready");
    assert_eq!(
        (ready.status, ready.body.as_str()),
        (503, "{\"status\":\"no_keys\"}\n")
    );
    assert_eq!(ops(&server, "/health").status, 200);
    // A client tries again, because its token may be good.
    assert_eq!(bearer(&server, &signer.token()).refused().0, 503);
    keys.has(&set(&[&signer]));
    wait_until("the keys have come", || {
        ops(&server, "/ready").status == 200
    });
    bearer(&server, &signer.token()).open();
    let metrics = ops(&server, "/metrics").body;
    assert!(metrics.contains("\ntidewire_jwks_keys 1\n"), "{metrics}");
    assert!(
        metrics.contains("\ntidewire_jwks_age_seconds "),
        "{metrics}"
    );
}

#[test]
fn a_reload_fetches_other_keys_and_sessions_stay() {
    let keys = KeyServer::start(None);
    let (old, new) = (p256().named("old"), ed25519().named("new"));
    keys.has(&set(&[&old]));
    let config = config_for(keys.source("http"));
    let server = start(config.clone(), Echo);
    wait_until("the keys have come", || {
        ops(&server, "/ready").status == 200
    });
    let mut session = bearer(&server, &old.token()).open();
    session.next_json();
    assert_eq!(bearer(&server, &new.token()).refused().0, 401);

    // Nonsense changes nothing.
    keys.has("<html>");
    server
        .reloader()
        .reload(&config)
        .expect("the same configuration");
    wait_until("the fetch has failed", || {
        ops(&server, "/metrics")
            .body
            .contains("\ntidewire_jwks_failures_total 1\n")
    });
    assert_eq!(ops(&server, "/ready").status, 200);
    bearer(&server, &old.token()).open();

    keys.has(&set(&[&new]));
    server
        .reloader()
        .reload(&config)
        .expect("the same configuration");
    wait_until("the new key is known", || {
        ops(&server, "/metrics")
            .body
            .contains("\ntidewire_jwks_fetches_total 2\n")
    });
    bearer(&server, &new.token()).open();
    assert_eq!(bearer(&server, &old.token()).refused().0, 401);
    let ping = json!({"t": "ping", "p": {"timestamp": 1}});
    assert_eq!(session.ask(&ping)["t"], "PONG");

    // The place of the keys stays until a restart, and other settings change with the same keys.
    let elsewhere = KeyServer::start(None);
    let mut moved = config_for(elsewhere.source("http"));
    moved.auth.as_mut().expect("tokens").issuer = Some("somebody".to_owned());
    let reloaded = server
        .reloader()
        .reload(&moved)
        .expect("a good configuration");
    assert_eq!(reloaded.needs_restart, ["jwt_jwks_url"]);
    assert_eq!(reloaded.changed, ["jwt_issuer"]);
    let issued = token_by(&new.private, new.kid, json!({"iss": "somebody"}));
    bearer(&server, &issued).open();
    assert_eq!(bearer(&server, &new.token()).refused().0, 401);
}

#[test]
fn a_file_is_read_again_by_a_reload() {
    let (old, new) = (p256().named("old"), p256().named("new"));
    let config = |signer: &Signer| Config {
        auth: Some(AuthConfig::of_key_set(KeySetSource::Text(
            set(&[signer]).into_bytes(),
        ))),
        ..config()
    };
    let server = start(config(&old), Echo);
    bearer(&server, &old.token()).open();
    assert_eq!(bearer(&server, &new.token()).refused().0, 401);
    let reloaded = server.reloader().reload(&config(&new));
    assert_eq!(reloaded.expect("a good set").changed, ["jwt_jwks_file"]);
    bearer(&server, &new.token()).open();
    assert_eq!(bearer(&server, &old.token()).refused().0, 401);
    let mut bad = config(&new);
    bad.auth = Some(AuthConfig::of_key_set(KeySetSource::Text(b"{}".to_vec())));
    assert!(server.reloader().reload(&bad).is_err());
    bearer(&server, &new.token()).open();
}

#[test]
fn keys_come_from_a_server_with_a_trusted_certificate_alone() {
    let (files, _, _folder) = certified();
    let tls = tls::server_config(&files.certificate, &files.key).expect("a certificate");
    let keys = KeyServer::start(Some(tls));
    let signer = p256().named("a");
    keys.has(&set(&[&signer]));
    let mut source = keys.source("https");
    let stranger = start(config_for(source.clone()), Echo);
    wait_until("a fetch has failed", || {
        !ops(&stranger, "/metrics")
            .body
            .contains("\ntidewire_jwks_failures_total 0\n")
    });
    assert_eq!(ops(&stranger, "/ready").status, 503);
    source.authorities = Some(files.certificate.clone());
    let server = start(config_for(source), Echo);
    wait_until("the keys have come", || {
        ops(&server, "/ready").status == 200
    });
    bearer(&server, &signer.token()).open();
}

#[test]
fn a_url_without_tls_is_of_this_machine() {
    let url = HttpUrl::parse("http://login.example/jwks").expect("a URL");
    let config = config_for(KeySetUrl::new(url));
    let error = Server::check(&config).expect_err("nobody is checked");
    assert!(error.to_string().contains("https://"), "{error}");
}

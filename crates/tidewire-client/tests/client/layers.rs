//! Layers of messages: formats, compression, encryption, signatures, TLS; and tokens.

use crate::common::{config, connect_with, payload, payloads, publish, server_config, start, url};
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tidewire_client::config::{Compression, Encryption, Signing, Tls, Token, TokenPlacement};
use tidewire_client::{Client, Config, Error, Format, Publication};
use tidewire_engine::auth::{AuthConfig, KeyMaterial};
use tidewire_engine::token::{SigningKey, sign};
use tidewire_engine::{Config as ServerConfig, Deflate, SignatureKey, TlsFiles};

const SECRET: &[u8] = b"a secret of more than thirty-two bytes";

/// Sends, asks, publishes and receives, small and large.
async fn works(server: ServerConfig, change: impl FnOnce(&mut Config)) {
    let (server, _) = start(server);
    let mut config = config(url(&server));
    change(&mut config);
    let (client, mut events) = connect_with(config).await;
    let large = format!("\"{}\"", "tidewire ".repeat(2_000));
    for text in ["1", &large] {
        client.send("echo", text).await.expect("the client is open");
        assert_eq!(payload(&mut events).await, text);
    }
    assert_eq!(
        client
            .request("double", "4", None)
            .await
            .expect("an answer"),
        "8".into()
    );
    client.subscribe(["kept.a"]).await.expect("an answer");
    client
        .publish(Publication::new("kept.a", "count", "1"))
        .await
        .expect("an answer");
    publish(&server, "kept.a", 2);
    assert_eq!(payloads(&mut events, 2).await, [1, 2]);
    client.ping().await.expect("an answer");
    client.close().await;
}

#[tokio::test]
async fn messagepack() {
    works(server_config(), |config| {
        config.format = Format::MessagePack;
    })
    .await;
}

#[tokio::test]
async fn zlib() {
    works(server_config(), |config| {
        config.compression = Compression::Zlib;
    })
    .await;
    works(server_config(), |config| {
        config.compression = Compression::Zlib;
        config.format = Format::MessagePack;
    })
    .await;
}

#[tokio::test]
async fn permessage_deflate() {
    for deflate in [Deflate::Off, Deflate::Shared, Deflate::PerConnection] {
        let mut server = server_config();
        server.compression.deflate = deflate;
        works(server, |config| config.compression = Compression::Deflate).await;
    }
}

#[tokio::test]
async fn encryption_and_signatures() {
    for (encryption, version_one) in [(Encryption::On, false), (Encryption::VersionOne, true)] {
        for format in [Format::Json, Format::MessagePack] {
            let mut server = server_config();
            server.encryption = tidewire_engine::Encryption::Required;
            let key = SignatureKey::Hmac(SECRET.to_vec());
            server.signing = Some(tidewire_engine::Signing::new(key, true));
            works(server, |config| {
                config.encryption = encryption.clone();
                config.signing = Some(Signing {
                    secret: SECRET.to_vec(),
                    version_one,
                });
                config.format = format;
                config.compression = Compression::Zlib;
            })
            .await;
        }
    }
}

#[tokio::test]
async fn a_server_without_encryption_is_given_up() {
    let (server, _) = start(server_config());
    let mut config = config(url(&server));
    config.encryption = Encryption::On;
    let error = Client::connect(config).await.unwrap_err();
    assert!(error.to_string().contains("does not encrypt"), "{error}");
}

#[tokio::test]
async fn another_server_than_the_pinned_one_is_given_up() {
    let mut server = server_config();
    server.encryption = tidewire_engine::Encryption::Optional;
    let (server, _) = start(server);
    let mut config = config(url(&server));
    let mut pinned = [1; 65];
    pinned[0] = 4;
    config.encryption = Encryption::Pinned(Box::new(pinned));
    let error = Client::connect(config).await.unwrap_err();
    assert!(error.to_string().contains("identity"), "{error}");
}

#[tokio::test]
async fn tls_with_a_file_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let pair = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::File::create(&path)
            .unwrap()
            .write_all(text.as_bytes())
            .unwrap();
        path
    };
    let certificate = write("cert.pem", &pair.cert.pem());
    let key = write("key.pem", &pair.signing_key.serialize_pem());
    let mut server = server_config();
    server.tls = Some(TlsFiles {
        certificate: certificate.clone(),
        key,
    });
    let (server, _) = start(server);
    let address = format!("wss://localhost:{}/ws", server.address().port());
    let mut good = config(address.clone());
    good.tls = Tls::CaFile(certificate);
    let (client, mut events) = connect_with(good).await;
    client.send("echo", "1").await.unwrap();
    assert_eq!(payload(&mut events).await, "1");
    let error = Client::connect(config(address)).await.unwrap_err();
    assert!(error.to_string().contains("certificate"), "{error}");
}

pub(crate) fn with_auth() -> ServerConfig {
    let key = KeyMaterial::Hs256(SECRET.to_vec());
    let mut server = server_config();
    server.auth = Some(AuthConfig {
        query_parameter: Some("token".to_owned()),
        subprotocol_prefix: Some("bearer.".to_owned()),
        ..AuthConfig::new(key)
    });
    server
}

pub(crate) fn token(expires_in_s: i64) -> String {
    let now = std::time::UNIX_EPOCH
        .elapsed()
        .expect("a clock after 1970")
        .as_secs() as i64;
    let claims = serde_json::json!({"sub": "user-1", "exp": now + expires_in_s});
    let key = SigningKey::new(&KeyMaterial::Hs256(SECRET.to_vec()))
        .expect("a secret that is long enough");
    sign(&claims, &key, None).expect("claims that can be signed")
}

#[tokio::test]
async fn tokens_in_every_place() {
    let (server, _) = start(with_auth());
    for placement in [
        TokenPlacement::Header,
        TokenPlacement::Cookie("access_token".to_owned()),
        TokenPlacement::Query("token".to_owned()),
        TokenPlacement::Subprotocol("bearer.".to_owned()),
    ] {
        let mut config = config(url(&server)).with_token(token(60));
        config.token_placement = placement.clone();
        let client = Client::connect(config).await;
        assert!(client.is_ok(), "{placement:?} {client:?}");
    }
    let error = Client::connect(config(url(&server))).await.unwrap_err();
    assert!(matches!(error, Error::Unauthorized(_)), "{error:?}");
    let expired = config(url(&server)).with_token(token(-600));
    assert_eq!(
        Client::connect(expired).await.unwrap_err().code(),
        "AUTH_FAILED"
    );
}

#[tokio::test]
async fn a_provider_is_asked_before_each_connection() {
    let (server, _) = start(with_auth());
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = asked.clone();
    let config = config(url(&server)).with_token_provider(move || {
        let count = counter.fetch_add(1, Ordering::SeqCst);
        // The first is not accepted: the next one is asked for.
        let token = token(if count == 0 { -600 } else { 60 });
        async move { Ok(token) }
    });
    assert!(matches!(config.token, Token::Provider(_)));
    let client = Client::start(config).unwrap();
    client.connected().await.unwrap();
    assert_eq!(asked.load(Ordering::SeqCst), 2);
}

//! Servers whose TLS is not what it should be. What is cut or corrupted on the way is in `proxies`.

use crate::common::{DEADLINE, TestServer, config, find, server_config, start, wait_until};
use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;
use tidewire_client::config::{Config, Tls};
use tidewire_client::{Client, ClientState, Error, Event};
use tidewire_engine::{Config as ServerConfig, TlsFiles};
use tokio::net::TcpListener;
use tokio::time::timeout;

/// A certificate that signs itself, and its key.
struct Certificate {
    folder: TempDir,
}

impl Certificate {
    fn new(name: &str, is_expired: bool) -> Self {
        let mut parameters = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        if is_expired {
            parameters.not_before = date_time_ymd(2_000, 1, 1);
            parameters.not_after = date_time_ymd(2_001, 1, 1);
        }
        let key = KeyPair::generate().expect("randomness");
        let certificate = parameters.self_signed(&key).expect("a key that signs");
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("cert.pem"), certificate.pem()).expect("a file");
        std::fs::write(folder.path().join("key.pem"), key.serialize_pem()).expect("a file");
        Self { folder }
    }

    /// As the manual of OpenSSL makes one.
    fn of_openssl() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let made = Command::new("openssl")
            .args([
                "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
            ])
            .args(["-subj", "/CN=localhost"])
            .args(["-addext", "subjectAltName=DNS:localhost"])
            .args(["-keyout", "key.pem", "-out", "cert.pem"])
            .current_dir(folder.path())
            .output()
            .expect("openssl is installed");
        assert!(made.status.success(), "{made:?}");
        Self { folder }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("cert.pem")
    }

    fn server(&self, listen: SocketAddr) -> TestServer {
        let tls = TlsFiles {
            certificate: self.path(),
            key: self.folder.path().join("key.pem"),
        };
        let config = ServerConfig {
            tls: Some(tls),
            listen,
            ..server_config()
        };
        start(config).0
    }
}

fn any_port() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

fn client_config(host: &str, port: u16, trusted: &Path) -> Config {
    Config {
        tls: Tls::CaFile(trusted.to_owned()),
        ..config(format!("wss://{host}:{port}/ws"))
    }
}

/// The words with which a client says that it cannot connect.
async fn refusal(config: Config) -> String {
    let connected = timeout(DEADLINE, Client::connect(config)).await;
    let connected = connected.expect("an answer in time");
    let error = connected.expect_err("it has no right certificate");
    assert!(matches!(error, Error::Connect { .. }), "{error:?}");
    error.to_string()
}

#[tokio::test]
async fn a_certificate_that_is_not_right_is_named() {
    let good = Certificate::new("localhost", false);
    let other = Certificate::new("localhost", false);
    let expired = Certificate::new("localhost", true);
    for (server, host, trusted, words) in [
        (&good, "localhost", &other, "certificate"),
        (&good, "127.0.0.1", &good, "certificate"),
        (&expired, "localhost", &expired, "xpired"),
    ] {
        let server = server.server(any_port());
        let port = server.address().port();
        let error = refusal(client_config(host, port, &trusted.path())).await;
        assert!(error.contains(words), "{host}: {error}");
    }
}

/// Such a certificate says that it is an authority, which a server's own must not.
#[tokio::test]
async fn the_certificate_of_openssl_is_accepted_where_it_is_named() {
    let (certificate, other) = (Certificate::of_openssl(), Certificate::of_openssl());
    let server = certificate.server(any_port());
    let port = server.address().port();
    let client = Client::connect(client_config("localhost", port, &certificate.path()));
    let client = timeout(DEADLINE, client).await.expect("in time").unwrap();
    client.close().await;
    // Neither another one nor another name.
    for (host, trusted) in [("localhost", &other), ("127.0.0.1", &certificate)] {
        let error = refusal(client_config(host, port, &trusted.path())).await;
        assert!(error.contains("certificate"), "{host}: {error}");
    }
}

#[tokio::test]
async fn a_client_goes_on_until_the_certificate_is_right() {
    let (good, wrong) = (
        Certificate::new("localhost", false),
        Certificate::new("localhost", false),
    );
    let server = wrong.server(any_port());
    let address = server.address();
    let client = Client::start(client_config("localhost", address.port(), &good.path())).unwrap();
    let mut events = client.events();
    let reason = find(&mut events, |event| match event {
        Event::Disconnected(ended) => Some(ended.reason),
        _ => None,
    });
    assert!(reason.await.contains("certificate"));
    server.stop().await;
    let _server = good.server(address);
    timeout(DEADLINE, client.connected())
        .await
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn a_server_without_tls_and_one_with_it_are_not_mistaken_for_each_other() {
    let certificate = Certificate::new("localhost", false);
    let (plain, _) = start(server_config());
    let port = plain.address().port();
    assert!(
        !refusal(client_config("localhost", port, &certificate.path()))
            .await
            .is_empty()
    );
    let secure = certificate.server(any_port());
    let port = secure.address().port();
    let error = refusal(config(format!("ws://localhost:{port}/ws"))).await;
    assert!(!error.is_empty());
}

#[tokio::test]
async fn a_handshake_that_stalls_is_given_up_and_can_be_closed() {
    let certificate = Certificate::new("localhost", false);
    // The kernel accepts, and nobody reads.
    let listener = TcpListener::bind(any_port()).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut config = client_config("localhost", port, &certificate.path());
    config.connect_timeout = Duration::from_millis(50);
    assert!(refusal(config.clone()).await.contains("in time"));
    config.connect_timeout = Duration::from_secs(3_600);
    let client = Client::start(config).unwrap();
    let (_stream, _) = listener.accept().await.unwrap();
    timeout(DEADLINE, client.close()).await.unwrap();
    wait_until("the end", || {
        matches!(client.state(), ClientState::Closed(_))
    })
    .await;
}

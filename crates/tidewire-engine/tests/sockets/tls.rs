//! The same server under TLS.

use crate::common;

use common::{
    Client, DEADLINE, Opening, PAST_SOCKETS_BYTES, Said, assert_settled, config, frame, raw_config,
    read_to_any_end, start, tcp, text_frame, wait_until,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::version::{TLS12, TLS13};
use serde_json::json;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tidewire_engine::apps::Echo;
use tidewire_engine::{Config, Server, StartError, TlsFiles};
use tidewire_net::tls;
use tidewire_wire::close::CloseCode;
use tidewire_wire::frame::OpCode;

/// Files of a certificate for localhost.
struct Certified {
    directory: tempfile::TempDir,
    files: TlsFiles,
}

impl Certified {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let certified = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()])
            .expect("a certificate");
        let write = |name: &str, text: String| {
            let path = directory.path().join(name);
            std::fs::write(&path, text).expect("a file");
            path
        };
        let files = TlsFiles {
            certificate: write("certificate.pem", certified.cert.pem()),
            key: write("key.pem", certified.signing_key.serialize_pem()),
        };
        Self { directory, files }
    }

    fn config(&self, config: Config) -> Config {
        Config {
            tls: Some(self.files.clone()),
            ..config
        }
    }

    /// A client that trusts this certificate and no other.
    fn trust(&self) -> Arc<tls::ClientConfig> {
        tls::client_config(Some(&self.files.certificate)).expect("a certificate")
    }

    /// The same for one version of TLS.
    fn trust_with(
        &self,
        version: &'static rustls::SupportedProtocolVersion,
    ) -> Arc<tls::ClientConfig> {
        let mut roots = rustls::RootCertStore::empty();
        let certificate = CertificateDer::from_pem_file(&self.files.certificate);
        roots
            .add(certificate.expect("a certificate"))
            .expect("a root");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[version])
            .expect("a version that the provider has");
        Arc::new(config.with_root_certificates(roots).with_no_client_auth())
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }
}

fn open(server: &Server, trust: &Arc<tls::ClientConfig>) -> Client {
    Opening::new(server.address()).tls(trust).open()
}

#[test]
fn sessions_of_both_versions_of_tls_work() {
    let certified = Certified::new();
    let server = start(certified.config(config()), Echo);
    let address = server.address();
    for version in [&TLS12, &TLS13] {
        let mut client = Opening::new(address)
            .tls(&certified.trust_with(version))
            .open();
        assert_eq!(client.next_json()["t"], "server_ready");
        assert_eq!(
            client.ask(&json!({"t": "ping", "p": {"timestamp": 1}}))["t"],
            "PONG"
        );
        for bytes in [10, 20_000, 1_000_000] {
            let message = json!({"t": "x", "p": "y".repeat(bytes)});
            assert!(client.ask(&message) == message, "{bytes} bytes");
        }
        client.send_close(CloseCode::NORMAL);
        assert_eq!(client.next(), Said::Close(Some(1000), String::new()));
        assert_eq!(client.next(), Said::End);
    }
    assert_eq!(assert_settled(&server.handle()).sessions_closed_by_peer, 2);
}

#[test]
fn requests_are_judged_and_rules_enforced_as_without_tls() {
    let certified = Certified::new();
    let trust = certified.trust();
    let mut config = certified.config(raw_config());
    config.limits.connections_max = 1;
    let server = start(config, Echo);
    assert_eq!(
        Opening::new(server.address())
            .tls(&trust)
            .target("/no")
            .refused()
            .0,
        404
    );
    let mut client = open(&server, &trust);
    let (status, said) = Opening::new(server.address()).tls(&trust).refused();
    assert_eq!(status, 503);
    assert!(said.contains("\r\nRetry-After: "), "{said}");
    let mut bytes = text_frame("before");
    bytes.extend(frame(OpCode::Ping, b"p"));
    bytes.extend(frame(OpCode::Text, b"\xff"));
    client.send_bytes(&bytes);
    assert_eq!(client.next_text(), "before");
    assert_eq!(client.next(), Said::Pong(b"p".to_vec()));
    client.assert_closed(CloseCode::INVALID_PAYLOAD);
    assert_settled(&server.handle());
}

#[test]
fn a_close_is_heard_by_a_peer_that_has_sent_much_more() {
    let certified = Certified::new();
    let server = start(certified.config(raw_config()), Echo);
    let mut client = open(&server, &certified.trust());
    let mut bytes = frame(OpCode::Text, b"\xff");
    // The client has to encrypt it within the time for which the server reads on.
    bytes.resize(PAST_SOCKETS_BYTES / 3, 0x55);
    client.send_bytes(&bytes);
    client.assert_closed(CloseCode::INVALID_PAYLOAD);
    assert_settled(&server.handle());
}

#[test]
fn a_broken_tls_handshake_is_counted_and_disturbs_nobody() {
    let certified = Certified::new();
    let trust = certified.trust();
    let mut config = certified.config(raw_config());
    config.limits.handshake_timeout_ms = 200;
    let server = start(config, Echo);
    let mut client = open(&server, &trust);
    // What is no TLS at all is cut, after an alert that a plain client cannot read.
    let mut plain = tcp(server.address());
    plain
        .write_all(&Opening::new(server.address()).request())
        .unwrap();
    read_to_any_end(plain);
    // One that starts and goes no further; one that says nothing.
    let mut half = tcp(server.address());
    half.write_all(&[0x16, 3, 1, 2]).unwrap();
    let silent = tcp(server.address());
    for stream in [half, silent] {
        read_to_any_end(stream);
    }
    client.send_text("still here");
    assert_eq!(client.next_text(), "still here");
    drop(client);
    let counters = assert_settled(&server.handle());
    assert_eq!((counters.tls_failures, counters.handshake_timeouts), (1, 2));
    assert_eq!(counters.handshakes_failed, 3);
}

#[test]
fn a_drain_and_a_slow_reader_under_tls() {
    let certified = Certified::new();
    let trust = certified.trust();
    let server = start(certified.config(raw_config()), Echo);
    let mut client = open(&server, &trust);
    let message = frame(OpCode::Binary, &[7; 4096]);
    client
        .stream
        .tcp()
        .set_write_timeout(Some(Duration::from_millis(300)))
        .unwrap();
    // Until the server holds it back.
    let mut sent = 1;
    while client.stream.write_all(&message).is_ok() {
        sent += 1;
        assert!(sent < 100_000, "never held back");
    }
    assert!(server.handle().counters().reading_pauses > 0);
    client
        .stream
        .tcp()
        .set_write_timeout(Some(DEADLINE))
        .unwrap();
    // The last one has not left entirely.
    for _ in 1..sent {
        assert!(client.next() == Said::Binary(vec![7; 4096]));
    }
    client.stream.flush().unwrap();
    assert!(client.next() == Said::Binary(vec![7; 4096]));
    let handle = server.handle();
    let drain = std::thread::spawn(move || server.drain(DEADLINE));
    loop {
        match client.next() {
            Said::Close(code, _) => {
                assert_eq!(code, Some(4300));
                break;
            }
            Said::Binary(_) => {}
            other => panic!("{other:?}"),
        }
    }
    client.send_close(CloseCode::DRAINING);
    assert_eq!(client.next(), Said::End);
    assert_eq!(drain.join().unwrap(), 0);
    wait_until("gone", || handle.connections() == 0);
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let certified = Certified::new();
    let other = Certified::new();
    let try_with = |certificate: &Path, key: &Path| {
        let files = TlsFiles {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
        };
        let config = Config {
            tls: Some(files),
            ..config()
        };
        let error = Server::start(config, |_| Echo).expect_err("files that cannot be used");
        assert!(matches!(error, StartError::Tls(_)), "{error:?}");
        let text = error.to_string();
        assert!(!text.contains('\n'), "{text}");
        text
    };
    let (certificate, key) = (&certified.files.certificate, &certified.files.key);
    let missing = certified.path().join("missing.pem");
    assert!(try_with(&missing, key).contains("missing.pem"));
    assert!(try_with(certificate, &missing).contains("missing.pem"));
    let garbage = certified.path().join("garbage.pem");
    std::fs::write(&garbage, "not PEM").unwrap();
    assert!(try_with(certificate, &garbage).contains("garbage.pem"));
    let text = try_with(&garbage, key);
    assert!(text.contains("certificate"), "{text}");
    // A key of another certificate.
    let text = try_with(certificate, &other.files.key);
    assert!(text.contains("certificate or its key"), "{text}");
    // The wrong way round.
    try_with(key, certificate);
}

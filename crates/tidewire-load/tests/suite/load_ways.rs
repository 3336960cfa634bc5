//! Ways to a service: client certificates, server names, given addresses and source addresses.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use tidewire_load::options::load::LoadOptions;
use tidewire_load::options::tls::TlsOptions;
use tidewire_load::report::TestResult;

use crate::http_service::Service;
use crate::loading::run;

const REQUESTS: u64 = 6;

fn options(url: &str) -> LoadOptions {
    LoadOptions {
        connections: 3,
        threads: 1,
        requests: Some(REQUESTS),
        duration: Some(Duration::from_secs(120)),
        ..LoadOptions::new(url)
    }
}

#[track_caller]
fn assert_all_succeeded(result: &TestResult) {
    let requests = result.load.requests.unwrap();
    assert_eq!(requests.succeeded, REQUESTS, "{:?}", result.load.errors);
}

/// A certificate that is its own authority, and its key.
struct Identity {
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
    certificate_file: PathBuf,
    key_file: PathBuf,
}

impl Identity {
    fn new(folder: &tempfile::TempDir, name: &str) -> Self {
        let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
        let certificate_file = folder.path().join(format!("{name}.pem"));
        let key_file = folder.path().join(format!("{name}.key"));
        std::fs::write(&certificate_file, made.cert.pem()).unwrap();
        std::fs::write(&key_file, made.signing_key.serialize_pem()).unwrap();
        Self {
            certificate: made.cert.der().clone(),
            key: made.signing_key.serialize_der().try_into().unwrap(),
            certificate_file,
            key_file,
        }
    }
}

/// A server that demands the certificate of `client`; its address, and the server names that clients have sent.
fn demanding_server(
    identity: Identity,
    client: &Identity,
) -> (SocketAddr, Arc<Mutex<BTreeSet<String>>>) {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut trusted = RootCertStore::empty();
    trusted.add(client.certificate.clone()).unwrap();
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(trusted), Arc::clone(&provider))
            .build()
            .unwrap();
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier)
        .with_single_cert(vec![identity.certificate], identity.key)
        .unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let names: Arc<Mutex<BTreeSet<String>>> = Arc::default();
    let seen = Arc::clone(&names);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut stream = StreamOwned::new(connection, stream.unwrap());
            let seen = Arc::clone(&seen);
            std::thread::spawn(move || {
                let mut buffer = [0; 4096];
                while matches!(stream.read(&mut buffer), Ok(1..)) {
                    let name = stream.conn.server_name().unwrap_or("none").to_owned();
                    seen.lock().unwrap().insert(name);
                    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
                    if stream.write_all(answer).is_err() {
                        return;
                    }
                }
            });
        }
    });
    (address, names)
}

#[test]
fn a_server_that_demands_a_certificate_gets_it_and_the_name_that_was_given() {
    let folder = tempfile::tempdir().unwrap();
    let (server, client) = (
        Identity::new(&folder, "inner.example"),
        Identity::new(&folder, "client.example"),
    );
    let stranger = Identity::new(&folder, "stranger.example");
    let ca = server.certificate_file.clone();
    let (address, names) = demanding_server(server, &client);
    let with = |identity: Option<&Identity>, sni: Option<&str>| {
        let mut options = options(&format!("https://{address}/"));
        options.tls = TlsOptions {
            ca: Some(ca.clone()),
            cert: identity.map(|identity| identity.certificate_file.clone()),
            key: identity.map(|identity| identity.key_file.clone()),
            sni: sni.map(str::to_owned),
            insecure: false,
        };
        options
    };
    let sni = Some("inner.example");
    assert_all_succeeded(&run(&with(Some(&client), sni)));
    let seen = BTreeSet::from(["inner.example".to_owned()]);
    assert_eq!(*names.lock().unwrap(), seen);

    // The name of the URL is not that of the certificate.
    let mut unnamed = with(Some(&client), None);
    unnamed.duration = Some(Duration::from_millis(300));
    let errors = run(&unnamed).load.errors;
    assert!(errors.contains_key("tls-wrong-name"), "{errors:?}");
    for identity in [None, Some(&stranger)] {
        let mut refused = with(identity, sni);
        refused.duration = Some(Duration::from_millis(300));
        let result = run(&refused);
        let succeeded = result.load.requests.map_or(0, |all| all.succeeded);
        assert_eq!(succeeded, 0);
        assert!(!result.load.errors.is_empty());
    }
    assert_eq!(*names.lock().unwrap(), seen, "nobody else was answered");

    let mut half = with(Some(&client), sni);
    half.tls.key = None;
    let error = half.plan().unwrap_err().to_string();
    assert!(
        error.contains("--cert and --key belong together"),
        "{error}"
    );
}

#[test]
fn a_given_address_replaces_that_of_the_name() {
    let service = Service::start(|_| ("200 OK", Vec::new(), "ok".to_owned()));
    let port = service.address.port();
    let mut options = options(&format!("http://no-such-host.invalid:{port}/a"));
    options.resolve = vec![
        format!("other.example:{port}:127.0.0.9"),
        format!("No-Such-Host.invalid:{port}:127.0.0.1"),
    ];
    assert_all_succeeded(&run(&options));
    let host = format!("no-such-host.invalid:{port}");
    for request in service.requests() {
        assert_eq!(request.header("host"), Some(host.as_str()));
    }
    options.resolve = vec![format!("no-such-host.invalid:{}:127.0.0.1", port ^ 1)];
    let error = options.plan().unwrap_err().to_string();
    assert!(error.contains("no-such-host.invalid"), "{error}");
}

/// All of 127.0.0.0/8 is loopback on this system.
#[cfg(target_os = "linux")]
#[test]
fn connections_come_from_the_given_addresses_in_turn() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let peers: Arc<Mutex<Vec<IpAddr>>> = Arc::default();
    let seen = Arc::clone(&peers);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            seen.lock().unwrap().push(stream.peer_addr().unwrap().ip());
            std::thread::spawn(move || {
                let mut buffer = [0; 4096];
                while matches!(stream.read(&mut buffer), Ok(1..)) {
                    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
                    if stream.write_all(answer).is_err() {
                        return;
                    }
                }
            });
        }
    });
    let given: Vec<IpAddr> = ["127.0.0.2", "127.0.0.3"]
        .map(|address| address.parse().unwrap())
        .to_vec();
    let mut options = options(&format!("http://{address}/"));
    options.connections = 4;
    options.source_addresses = given.clone();
    assert_all_succeeded(&run(&options));
    let mut peers = peers.lock().unwrap().clone();
    peers.sort_unstable();
    assert_eq!(peers, [given[0], given[0], given[1], given[1]]);
}

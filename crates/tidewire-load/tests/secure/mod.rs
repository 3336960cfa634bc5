//! A test server under TLS.

// Outside of `cargo test` it is no test code to the linter.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use tidewire_load::test_server::{Conduct, TestServer};

/// A server under TLS and the file with its certificate, which is its own authority.
pub(crate) fn secure_server(
    folder: &Path,
    names: &[&str],
    year_of_end: i32,
) -> (TestServer, PathBuf) {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut parameters = rcgen::CertificateParams::new(names).unwrap();
    parameters.not_before = rcgen::date_time_ymd(2001, 1, 1);
    parameters.not_after = rcgen::date_time_ymd(year_of_end, 1, 1);
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = parameters.self_signed(&key).unwrap();
    let (chain_file, key_file) = (folder.join("chain.pem"), folder.join("key.pem"));
    std::fs::write(&chain_file, certificate.pem()).unwrap();
    std::fs::write(&key_file, key.serialize_pem()).unwrap();
    let manner = Conduct {
        address: "127.0.0.1:0".parse().unwrap(),
        tls: Some((chain_file.clone(), key_file)),
        ..Conduct::default()
    };
    (TestServer::start(&manner).unwrap(), chain_file)
}

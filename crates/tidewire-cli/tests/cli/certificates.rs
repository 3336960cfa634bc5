//! `load` and `bench` of a server whose certificate signs itself, as `openssl req -x509` makes it.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::program::{Running, run};

#[test]
fn a_certificate_that_signs_itself_is_accepted_as_the_one_that_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    make_certificate(folder.path(), "ours");
    make_certificate(folder.path(), "other");
    let server = Running::serve(&[
        "--no-auth",
        "--app",
        "echo",
        "--tls-certificate",
        &path("ours.pem"),
        "--tls-key",
        &path("ours.key"),
    ]);
    let url = server.url.replace("127.0.0.1", "localhost");
    let load = |ca: &str| {
        run(&[
            "load", &url, "-n", "20", "-c", "2", "-q", "--json", "--ca", ca,
        ])
    };
    let said = load(&path("ours.pem"));
    assert!(matches!(said.code, 0 | 3 | 4), "{said:?}");
    let report: Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!(report["results"][0]["requests"]["succeeded"], 20);
    let said = load(&path("other.pem"));
    assert!(matches!(said.code, 1 | 2), "{said:?}");

    let out = path("report");
    let bench = [
        "bench",
        &url,
        "--test",
        "echo",
        "--connections",
        "2",
        "--duration-s",
        "0.2",
        "--out",
        &out,
    ];
    let said = run(&[&bench[..], &["--ca", &path("ours.pem")]].concat());
    assert!(matches!(said.code, 0 | 3 | 4), "{said:?}");
}

pub(crate) fn make_certificate(folder: &Path, name: &str) {
    let made = Command::new("openssl")
        .args([
            "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
        ])
        .args(["-subj", "/CN=localhost"])
        .args(["-addext", "subjectAltName=DNS:localhost"])
        .args(["-keyout", &format!("{name}.key")])
        .args(["-out", &format!("{name}.pem")])
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
}

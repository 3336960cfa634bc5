//! `tidewire token`. That a server accepts its tokens is tested with the server.

use crate::program::{SECRET, Said, assert_refused, run, tidewire};
use std::fs;

#[test]
fn a_token_has_three_parts_and_a_line_of_its_own() {
    let arguments = [
        "token",
        "--jwt-secret",
        SECRET,
        "--subject",
        "user-1",
        "--claim",
        "role=admin",
    ];
    let said = run(&arguments);
    assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{said:?}");
    let line = said.stdout.strip_suffix('\n').unwrap();
    assert_eq!(line.split('.').count(), 3, "{line}");
    assert!(!line.contains(char::is_whitespace), "{line}");
}

#[test]
fn a_typed_file_counts_before_an_exported_secret() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("secret");
    fs::write(&file, "too short").unwrap();
    let mut command = tidewire(&["token", "--subject", "a", "--jwt-secret-file"]);
    command.arg(&file).env("TIDEWIRE_JWT_SECRET", SECRET);
    // Only the file's secret is too short.
    assert_refused(&command.output().unwrap().into(), &["at least 32 bytes"]);
    fs::write(&file, SECRET).unwrap();
    let said: Said = command.output().unwrap().into();
    assert_eq!(said.code, 0, "{said:?}");
}

#[test]
fn one_key_is_needed() {
    assert_refused(&run(&["token", "--subject", "a"]), &["--jwt-secret"]);
    let both = [
        "token",
        "--subject",
        "a",
        "--jwt-secret",
        SECRET,
        "--jwt-secret-file",
        "f",
    ];
    assert_refused(&run(&both), &["--jwt-secret-file"]);
    let said = run(&[
        "token",
        "--subject",
        "a",
        "--jwt-secret",
        SECRET,
        "--claim",
        "x",
    ]);
    assert_refused(&said, &["NAME=VALUE"]);
}

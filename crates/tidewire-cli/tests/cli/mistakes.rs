//! Every mistake gets one line that says what to do, and exit code 2.

use crate::program::{Running, SECRET, assert_refused, run, tidewire};
use std::fs;
use std::net::TcpListener;

#[test]
fn a_port_in_use() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    assert_refused(
        &run(&["serve", "--no-auth", "--listen", &address]),
        &[&address, "--listen"],
    );
    let said = run(&[
        "serve",
        "--no-auth",
        "--listen",
        "127.0.0.1:0",
        "--ops-listen",
        &address,
    ]);
    assert_refused(&said, &[&address, "--ops-listen"]);
}

#[test]
fn a_port_of_another_tidewire() {
    let server = Running::serve(&["--no-auth"]);
    let said = run(&["serve", "--no-auth", "--listen", server.address()]);
    assert_refused(&said, &["another program listens there"]);
}

#[test]
fn no_key() {
    assert_refused(
        &run(&["serve"]),
        &["--jwt-secret", "--no-auth", "tidewire token"],
    );
}

#[test]
fn a_short_secret() {
    assert_refused(
        &run(&["serve", "--jwt-secret", "short"]),
        &["at least 32 bytes"],
    );
    assert_refused(
        &run(&["token", "--jwt-secret", "short", "--subject", "a"]),
        &["at least 32 bytes"],
    );
}

#[test]
fn encryption_of_plain_websocket() {
    assert_refused(
        &run(&["bench", "--encrypt", "--profile", "raw"]),
        &["--encrypt", "--profile raw"],
    );
    assert_refused(
        &run(&["bench", "--encrypt", "--deflate"]),
        &["--encrypt", "--deflate"],
    );
}

#[test]
fn options_that_exclude_each_other() {
    let said = run(&["serve", "--no-auth", "--jwt-secret", SECRET]);
    assert_refused(&said, &["--no-auth and --jwt-secret"]);
}

#[test]
fn flags_and_values() {
    let cases: [(&[&str], &[&str]); 15] = [
        (
            &[],
            &["serve, partition, top, bench, load, report, test-server, worker or token"],
        ),
        (&["sevre"], &["sevre", "serve"]),
        (&["serve", "--lisen", "a"], &["--lisen", "--listen"]),
        (
            &["serve", "--listen", "nonsense"],
            &["nonsense", "127.0.0.1:5006"],
        ),
        (&["serve", "--path", "ws"], &["slash"]),
        (&["serve", "--shards", "two"], &["two", "--shards"]),
        (
            &["serve", "--no-auth", "--shards", "0"],
            &["--shards", "from 1 to 64"],
        ),
        (
            &["serve", "--no-auth", "--log-level", "a=b=c"],
            &["--log-level"],
        ),
        (&["token", "--jwt-secret", SECRET], &["--subject"]),
        (
            &["serve", "--client-subscribe-allow", "a..b"],
            &["a..b", "empty segment"],
        ),
        (
            &["serve", "--client-publish-allow", "users.{name}"],
            &["{sub}"],
        ),
        (&["serve", "--history", "orders"], &["orders.>=1000"]),
        (&["serve", "--presence", "a.>.b"], &["a.>.b", "wildcard"]),
        (&["top", "https://127.0.0.1:1"], &["http://127.0.0.1:5007"]),
        (&["top", "--interval-s", "0"], &["0.1 to 3600"]),
    ];
    for (arguments, words) in cases {
        assert_refused(&run(arguments), words);
    }
}

#[test]
fn certificates_and_keys() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("not.pem");
    fs::write(&file, "nothing").unwrap();
    let (bad, missing) = (file.to_str().unwrap(), "/nonexistent/cert.pem");
    let tls = |certificate, key| {
        run(&[
            "serve",
            "--no-auth",
            "--tls-certificate",
            certificate,
            "--tls-key",
            key,
        ])
    };
    assert_refused(&tls(bad, bad), &["not.pem", "--tls-certificate"]);
    assert_refused(&tls(missing, bad), &[missing]);
    assert_refused(
        &run(&["serve", "--no-auth", "--tls-key", bad]),
        &["--tls-certificate"],
    );
    assert_refused(
        &run(&["serve", "--jwt-public-key", bad]),
        &["--jwt-algorithm"],
    );
    let said = run(&["serve", "--jwt-public-key", bad, "--jwt-algorithm", "es256"]);
    assert_refused(&said, &["ES256"]);
    assert_refused(&run(&["serve", "--jwt-secret-file", missing]), &[missing]);
}

#[test]
fn keys_of_the_api() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("api.key");
    let path = file.to_str().unwrap();
    fs::write(&file, "too short\n").unwrap();
    let serve = ["serve", "--no-auth", "--api-key-file", path];
    assert_refused(&run(&serve), &["--ops-listen"]);
    let with_ops = [&serve[..], &["--ops-listen", "127.0.0.1:0"]].concat();
    assert_refused(&run(&with_ops), &["api.key", "9 bytes", "16"]);
    fs::write(&file, "sixteen bytes, but spaces\n").unwrap();
    assert_refused(&run(&with_ops), &["api.key", "visible"]);
    fs::remove_file(&file).unwrap();
    assert_refused(&run(&with_ops), &["api.key"]);
}

#[test]
fn the_environment() {
    let mut command = tidewire(&["serve", "--no-auth"]);
    command.env("TIDEWIRE_MESSAGE_BYTES_MAX", "1 MB");
    assert_refused(
        &command.output().unwrap().into(),
        &["TIDEWIRE_MESSAGE_BYTES_MAX", "1 MB"],
    );
}

#[test]
fn the_configuration_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tidewire.toml");
    let path = file.to_str().unwrap();
    let cases: [(&str, &[&str]); 12] = [
        (
            "\n[limits]\nmessage_byte_max = 1\n",
            &[":3: ", "message_byte_max", "message_bytes_max?"],
        ),
        (
            "message_bytes_max = \"big\"\n",
            &[":1: ", "message_bytes_max", "big"],
        ),
        ("app = \"ehco\"\n", &[":1: ", "ehco", "echo, sink"]),
        ("shards = [1, 2]\n", &[":1: ", "shards"]),
        ("listen = \n", &[":1: "]),
        ("[limit]\n", &[":1: ", "[limits]"]),
        ("no_auth = \"perhaps\"\n", &[":1: ", "no_auth", "perhaps"]),
        (
            "[topics]\nclient_publish_allow = [\"a\", \"b..c\"]\n",
            &[":2: ", "client_publish_allow", "b..c"],
        ),
        ("[topics]\nrule = 1\n", &[":2: ", "[[topics.rule]]"]),
        ("[[topics.rule]]\npresence = true\n", &[":1: ", "pattern"]),
        (
            "[[topics.rule]]\npattern = \"a\"\npriority = 7\n",
            &[":3: ", "priority", "8, 10"],
        ),
        (
            "[[topics.rule]]\npattern = \"a\"\nhistory = 7\n",
            &[":3: ", "unknown key history", "history_publications"],
        ),
    ];
    for (text, words) in cases {
        fs::write(&file, text).unwrap();
        let said = run(&["serve", "--no-auth", "--config", path]);
        assert_refused(&said, words);
        assert_refused(&said, &["tidewire.toml"]);
    }
    assert_refused(
        &run(&["serve", "--config", "/nonexistent.toml"]),
        &["/nonexistent.toml"],
    );
}

#[test]
fn help_and_version_are_no_mistakes() {
    for arguments in [
        &["--help"][..],
        &["serve", "--help"],
        &["bench", "--help"],
        &["--version"],
    ] {
        let said = run(arguments);
        assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{said:?}");
        assert!(said.stdout.contains("tidewire"), "{said:?}");
    }
    let mut command = tidewire(&["serve", "--help"]);
    command.env("TIDEWIRE_JWT_SECRET", SECRET);
    let said: crate::program::Said = command.output().unwrap().into();
    assert!(said.stdout.contains("TIDEWIRE_JWT_SECRET") && !said.stdout.contains(SECRET));
}

#[test]
#[cfg(not(feature = "otlp"))]
fn traces_need_the_feature() {
    let serve = ["serve", "--listen", "127.0.0.1:0", "--no-auth"];
    let traced = [&serve[..], &["--otlp-endpoint", "http://127.0.0.1:4318"]].concat();
    assert_refused(&run(&traced), &["--otlp-endpoint", "--features otlp"]);
    let checked = [&traced[..], &["--check"]].concat();
    assert_refused(&run(&checked), &["--features otlp"]);
}

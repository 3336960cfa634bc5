use super::*;
use crate::resp::{Frames, Limits, reply};
use std::ops::ControlFlow;

const SCRIPTS: Scripts = |_| &["return 1"];

fn login() -> Login {
    Login {
        user: None,
        password: Some("secret".to_owned()),
        database: 3,
        name: "tidewire-cmd".to_owned(),
    }
}

fn hello(version: &str, mode: &str) -> Vec<u8> {
    let mut out = Vec::new();
    reply::map(&mut out, 3);
    for text in ["server", "redis", "version", version, "mode", mode] {
        reply::text(&mut out, text.as_bytes());
    }
    out
}

fn rest(role: &str) -> Vec<u8> {
    let mut out = Vec::new();
    reply::simple(&mut out, "OK");
    let info =
        format!("# Server\r\nrun_id:abc\r\n# Replication\r\nrole:{role}\r\nconnected_slaves:2\r\n");
    reply::text(&mut out, info.as_bytes());
    reply::map(&mut out, 2);
    for text in ["appendonly", "yes", "appendfsync", "always"] {
        reply::text(&mut out, text.as_bytes());
    }
    reply::text(&mut out, b"e0e1f9fabfc9d4800c877a703b823ac0578ff8db");
    out
}

/// The kinds of the values in the bytes, one word for each.
fn feed(connection: &mut Connection<u32>, bytes: &[u8]) -> Vec<String> {
    let mut words = Vec::new();
    let mut frames = Frames::new(Limits::default());
    let read = frames.read(bytes, |value| {
        let word = match connection.handle_value(value, 9) {
            Ok(Incoming::Setup) => "setup".to_owned(),
            Ok(Incoming::Ready) => "ready".to_owned(),
            Ok(Incoming::Reply(tag, Ok(value))) => format!("{tag} {value:?}"),
            Ok(Incoming::Reply(tag, Err(error))) => format!("{tag} {:?}", error.kind),
            Ok(Incoming::Push(_)) => "push".to_owned(),
            Err(error) => {
                words.push(error.to_string());
                return ControlFlow::Break(());
            }
        };
        words.push(word);
        ControlFlow::Continue(())
    });
    assert_eq!(read, Ok(()));
    words
}

#[test]
fn the_opening_says_who_we_are_and_learns_who_the_server_is() {
    let mut connection = Connection::<u32>::open(&login(), SCRIPTS, 5);
    let sent = String::from_utf8(std::mem::take(&mut connection.output)).unwrap();
    let words: Vec<&str> = sent
        .split("\r\n")
        .filter(|word| !word.starts_with(['*', '$']))
        .collect();
    assert_eq!(
        words,
        [
            "HELLO",
            "3",
            "AUTH",
            "default",
            "secret",
            "SETNAME",
            "tidewire-cmd",
            ""
        ]
    );
    assert_eq!(connection.deadline_ms(), Some(5));

    assert_eq!(
        feed(&mut connection, &hello("7.0.15", "standalone")),
        ["setup"]
    );
    assert_eq!(connection.deadline_ms(), Some(9));
    let words = feed(&mut connection, &rest("master"));
    assert_eq!(words, ["setup", "setup", "setup", "ready"]);
    let server = ServerInfo {
        version: "7.0.15".to_owned(),
        run_id: "abc".to_owned(),
        role: "master".to_owned(),
        mode: "standalone".to_owned(),
        replicas: 2,
        syncs_always: true,
        eviction_policy: None,
    };
    assert_eq!(connection.server(), &server);
    assert_eq!(connection.deadline_ms(), None);
}

#[test]
fn unsuitable_servers_are_refused_with_a_reason() {
    for (reply, reason) in [
        (hello("6.2.7", "standalone"), "version \"6.2.7\"; Redis 7.0"),
        (hello("7.2.0", "sentinel"), "mode \"sentinel\""),
        (
            b"-ERR unknown command 'HELLO'\r\n".to_vec(),
            "does not know HELLO",
        ),
        (
            b"-WRONGPASS invalid username-password pair\r\n".to_vec(),
            "correct the user and the password",
        ),
        (
            b"-NOAUTH HELLO must be called\r\n".to_vec(),
            "correct the user and the password",
        ),
        (b"-LOADING Redis is loading\r\n".to_vec(), "it is retried"),
    ] {
        let mut connection = Connection::<u32>::open(&login(), SCRIPTS, 5);
        let words = feed(&mut connection, &reply);
        assert!(words[0].contains(reason), "{words:?}");
    }
    let mut connection = Connection::<u32>::open(&login(), SCRIPTS, 5);
    feed(&mut connection, &hello("7.0.15", "standalone"));
    let words = feed(&mut connection, &rest("slave"));
    assert!(words[1].contains("must be a master"), "{words:?}");
}

#[test]
fn replies_belong_to_commands_in_order_and_pushes_to_none() {
    let mut connection = Connection::<u32>::open(&login(), |_| &[], 5);
    feed(&mut connection, &hello("7.0.15", "standalone"));
    feed(
        &mut connection,
        &rest("master")[..rest("master").len() - 47],
    );
    assert!(connection.is_ready());
    connection.send(1, 20, |out| crate::resp::command(out, &[b"A"]));
    connection.send(2, 30, |out| crate::resp::command(out, &[b"B"]));
    let words = feed(&mut connection, b">1\r\n:7\r\n-NOSCRIPT x\r\n");
    assert_eq!(words, ["push", "1 NoScript"]);
    assert_eq!(connection.deadline_ms(), Some(30));
    assert_eq!(
        feed(&mut connection, b":5\r\n:6\r\n"),
        ["2 Integer(5)", "the server sent a reply to no command"]
    );
}

#[test]
fn errors_say_whether_something_was_done() {
    for (text, kind) in [
        (
            "OOM command not allowed when used memory > 'maxmemory'. script: 1",
            ErrorKind::OutOfMemory,
        ),
        (
            "MISCONF Redis is configured to save RDB snapshots",
            ErrorKind::Misconfigured,
        ),
        (
            "READONLY You can't write against a read only replica.",
            ErrorKind::ReadOnly,
        ),
        (
            "ERR max number of clients reached",
            ErrorKind::TooManyClients,
        ),
    ] {
        let error = ServerError::new(text.as_bytes());
        assert_eq!(error.kind, kind);
        assert!(error.is_refusal());
    }
    let error = ServerError::new(b"ERR something in the middle of a script");
    assert!(!error.is_refusal());
    assert_eq!(error.kind, ErrorKind::Other);
}

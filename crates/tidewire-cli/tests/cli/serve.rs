//! `tidewire serve`: what it prints, serves, and how it ends.

use crate::program::{Running, SECRET, assert_refused, get, run, tidewire};
use std::fs;
#[cfg(target_os = "linux")]
use std::net::TcpStream;
use std::process::Stdio;
use tidewire_wire::close::CloseCode;

#[test]
fn it_says_where_it_listens_and_answers_there() {
    let mut server = Running::serve(&["--no-auth", "--ops-listen", "127.0.0.1:0"]);
    assert!(
        server.url.starts_with("ws://127.0.0.1:") && server.url.ends_with("/ws"),
        "{}",
        server.url
    );
    let line = server.line();
    let operations = line.strip_prefix("operations on ").expect(&line);
    let (status, body) = get(operations, "/health");
    assert_eq!(status, 200, "{body}");

    let mut session = server.opening().open();
    assert!(session.next_text().contains("server_ready"));
}

#[cfg(target_os = "linux")]
#[test]
fn servers_share_a_port_only_if_both_are_asked_to() {
    let shares = ["--no-auth", "--reuse-port"];
    let first = Running::serve(&shares);
    let address = first.address().to_owned();
    let mut second = tidewire(&["serve", "--shards", "1", "--listen", &address]);
    second.args(shares);
    let second = Running::start(second);
    assert_eq!(second.address(), address);
    let alone = run(&["serve", "--no-auth", "--listen", &address]);
    assert_refused(&alone, &[&address, "--listen"]);
    // The connections go to either, and the other goes on when one has ended.
    drop(first);
    let mut session = second.opening().open();
    assert!(session.next_text().contains("server_ready"));
}

/// A probe that is not answered would have the orchestrator restart a server that only is full.
#[cfg(target_os = "linux")]
#[test]
fn health_is_answered_at_the_limit_of_open_files() {
    let serve = tidewire(&["serve", "--listen", "127.0.0.1:0", "--shards", "1"]);
    let mut command = std::process::Command::new("sh");
    command
        .args(["-c", "ulimit -n 64; exec \"$0\" \"$@\""])
        .arg(serve.get_program())
        .args(serve.get_args())
        .args(["--no-auth", "--ops-listen", "127.0.0.1:0"]);
    let mut server = Running::start(command);
    let line = server.line();
    let operations = line.strip_prefix("operations on ").expect(&line);
    let descriptors = format!("/proc/{}/fd", server.child.id());
    let free = || 64 - fs::read_dir(&descriptors).unwrap().count();
    let mut sessions = Vec::new();
    while free() > 0 {
        let mut session = server.opening().open();
        session.next_text();
        sessions.push(session);
    }
    assert!(sessions.len() > 20, "{}", sessions.len());
    // Others that wait for a descriptor do not get the probe's.
    let waiting: Vec<_> = (0..5)
        .map(|_| TcpStream::connect(server.address()).unwrap())
        .collect();
    for _ in 0..10 {
        let (status, body) = get(operations, "/health");
        assert_eq!(status, 200, "{body}");
    }
    drop((waiting, sessions));
}

#[test]
fn a_drain_closes_sessions_with_4300_and_tells_how_many_were_left() {
    let mut server = Running::serve(&["--no-auth"]);
    let mut session = server.opening().open();
    session.next_text();
    server.signal("TERM");
    let close = CloseCode::DRAINING;
    assert_eq!(session.close_after_all().0, Some(close.value()));
    session.send_close(close);
    assert_eq!(server.line(), "draining, sessions: 1");
    assert_eq!(server.line(), "stopped, sessions left: 0");
    assert_eq!(server.wait(), Some(0));
}

#[test]
fn sessions_that_do_not_end_are_counted() {
    let mut server = Running::serve(&["--no-auth", "--drain-timeout-ms", "10"]);
    let mut session = server.opening().open();
    session.next_text();
    server.signal("INT");
    server.line();
    assert_eq!(server.line(), "stopped, sessions left: 1");
    assert_eq!(server.wait(), Some(0));
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let limits = [
        "--no-auth",
        "--drain-timeout-ms",
        "600000",
        "--close-timeout-ms",
        "600000",
    ];
    let mut server = Running::serve(&limits);
    let mut session = server.opening().open();
    session.next_text();
    server.signal("TERM");
    assert_eq!(server.line(), "draining, sessions: 1");
    server.signal("TERM");
    assert_eq!(server.wait(), Some(130));
}

#[test]
fn it_ends_with_its_parent_when_told_so() {
    let mut command = tidewire(&[
        "serve",
        "--no-auth",
        "--listen",
        "127.0.0.1:0",
        "--stop-with-stdin",
    ]);
    command.stdin(Stdio::piped());
    let mut server = Running::start(command);
    drop(server.child.stdin.take());
    assert_eq!(server.wait(), Some(0));
}

#[test]
fn a_token_that_was_made_here_is_accepted_and_another_is_not() {
    let mut command = tidewire(&["serve", "--listen", "127.0.0.1:0"]);
    command.env("TIDEWIRE_JWT_SECRET", SECRET);
    let server = Running::start(command);
    let token = |secret| {
        let said = run(&["token", "--jwt-secret", secret, "--subject", "user-1"]);
        assert_eq!((said.code, said.stderr.as_str()), (0, ""));
        said.stdout.trim().to_owned()
    };
    let with = |token: String| {
        let opening = server.opening();
        opening.header("Authorization", format!("Bearer {token}"))
    };
    with(token(SECRET)).open();
    let other = with(token("another secret of sufficient size"));
    for bad in [server.opening(), other] {
        let (status, answer) = bad.refused();
        assert_eq!(status, 401, "{answer}");
    }
}

#[test]
fn flags_count_before_the_environment_and_that_before_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tidewire.toml");
    fs::write(
        &file,
        "path = \"/file\"\nlisten = \"127.0.0.1:0\"\n[auth]\nno_auth = true\n",
    )
    .unwrap();
    let path = |flag: Option<&str>, variable: Option<&str>| {
        let mut command = tidewire(&["serve", "--shards", "1", "--config", file.to_str().unwrap()]);
        command.args(flag.map(|path| format!("--path={path}")));
        command.envs(variable.map(|path| ("TIDEWIRE_PATH", path)));
        let server = Running::start(command);
        server.url.rsplit_once('/').unwrap().1.to_owned()
    };
    assert_eq!(path(None, None), "file");
    assert_eq!(path(None, Some("/environment")), "environment");
    assert_eq!(path(Some("/flag"), Some("/environment")), "flag");
}

#[test]
fn a_key_on_the_command_line_counts_before_no_auth_in_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tidewire.toml");
    fs::write(&file, "no_auth = true\n").unwrap();
    let server = Running::serve(&["--config", file.to_str().unwrap(), "--jwt-secret", SECRET]);
    let (status, answer) = server.opening().refused();
    assert_eq!(status, 401, "{answer}");
}

#[test]
fn plain_websocket_is_served_without_a_key_on_any_path() {
    let server = Running::serve(&["--protocol", "raw", "--path", "any"]);
    let mut session = server.opening().target("/whatever").open();
    session.send_text("not ours");
    assert_eq!(session.next_text(), "not ours");
}

#[test]
fn limits_of_the_command_line_hold() {
    let server = Running::serve(&["--protocol", "raw", "--connections-max", "1"]);
    let first = server.opening().open();
    let (status, answer) = server.opening().refused();
    assert_eq!(status, 503, "{answer}");
    drop(first);
}

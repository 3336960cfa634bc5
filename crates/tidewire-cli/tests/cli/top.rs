//! `tidewire top` against a server that runs.

use crate::program::{Running, assert_refused, run};
use std::net::TcpListener;

#[test]
fn one_look_is_printed_as_text() {
    let options = ["--no-auth", "--topics-open", "--history", "kept.>=10"];
    let mut server = Running::serve(&[&options[..], &["--ops-listen", "127.0.0.1:0"]].concat());
    let line = server.line();
    let operations = line.strip_prefix("operations on ").expect(&line).to_owned();
    let mut session = server.opening().open();
    session.next_text();
    let message =
        r#"{"t":"subscription_update","p":{"action":"subscribe","topics":["orders.eu"]}}"#;
    session.send_text(message);
    session.next_text();
    let message =
        r#"{"t":"publish_request","p":{"topic":"kept.unread","type":"x","payload":1},"cid":"1"}"#;
    session.send_text(message);
    let answer = session.next_text();
    assert!(answer.contains("publish_response"), "{answer}");
    let said = run(&["top", &operations, "--once", "--interval-s", "0.1"]);
    assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{said:?}");
    let process = format!("process {}, 1 shards, up ", server.child.id());
    for words in [
        process.as_str(),
        ", ready\n",
        "connections  1 open, 0/s new",
        "orders.eu",
        "kept.unread                   0           0       1        1\n",
        " of memory\n",
        "99 % of deliveries ",
        "0/s deliveries",
    ] {
        assert!(
            said.stdout.contains(words),
            "no {words:?} in {}",
            said.stdout
        );
    }
    if cfg!(target_os = "linux") {
        let process = said
            .stdout
            .lines()
            .find(|line| line.starts_with("process "));
        let process = process.expect("a line about the process");
        assert!(
            process.contains(" % of a core, ") && process.contains("MB"),
            "{process}"
        );
    }
}

#[test]
fn a_server_that_does_not_answer() {
    // Bound and closed again: nobody listens there.
    let address = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let said = run(&["top", &format!("http://{address}"), "--once"]);
    assert_eq!((said.code, said.stdout.as_str()), (1, ""), "{said:?}");
    assert!(said.stderr.contains("does not answer"), "{said:?}");
    assert_refused(&run(&["top", "nowhere"]), &["nowhere"]);
}

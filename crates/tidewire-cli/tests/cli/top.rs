//! `tidewire top` against a server that runs.

use crate::program::{Running, assert_refused, run};
use std::net::TcpListener;

#[test]
fn one_look_is_printed_as_text() {
    let mut server = Running::serve(&["--no-auth", "--topics-open", "--ops-listen", "127.0.0.1:0"]);
    let line = server.line();
    let operations = line.strip_prefix("operations on ").expect(&line).to_owned();
    let mut session = server.opening().open();
    session.next_text();
    let message =
        r#"{"t":"subscription_update","p":{"action":"subscribe","topics":["orders.eu"]}}"#;
    session.send_text(message);
    session.next_text();
    let said = run(&["top", &operations, "--once", "--interval-s", "0.1"]);
    assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{said:?}");
    let process = format!("process {}, 1 shards, up ", server.child.id());
    for words in [
        process.as_str(),
        ", ready\n",
        "connections  1 open, 0/s new",
        "orders.eu",
        "0/s deliveries",
    ] {
        assert!(
            said.stdout.contains(words),
            "no {words:?} in {}",
            said.stdout
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

//! `tidewire partition` with a real Redis.

use crate::program::{Running, assert_refused, run};
use tidewire_testkit::redis::RedisServer;

const TOPICS: [&str; 5] = ["kept.a", "kept.b", "kept.c", "kept.d", "kept.e"];

fn serve(url: &str, more: &[&str]) -> Running {
    let options = [
        "--no-auth",
        "--topics-open",
        "--history",
        "kept.>=10",
        "--broker",
        url,
    ];
    Running::serve(&[&options[..], more].concat())
}

/// Publishes once to each topic, when the broker is there; the last answers.
fn publish(server: &mut Running) -> Vec<String> {
    let mut session = server.opening().open();
    session.next_text();
    let mut answers = Vec::new();
    for topic in TOPICS {
        let message = format!(
            r#"{{"t":"publish_request","p":{{"topic":"{topic}","type":"x","payload":1}},"cid":"1"}}"#
        );
        session.send_text(&message);
        answers.push(session.next_text());
    }
    answers
}

#[test]
fn topics_are_moved_when_no_server_runs() {
    let redis = RedisServer::start("");
    let url = redis.url();
    let mut server = serve(&url, &[]);
    for answer in publish(&mut server) {
        assert!(answer.contains(r#""offset":1"#), "{answer}");
    }
    let said = run(&["partition", "--broker", &url, "--to", "4"]);
    assert_eq!(said.code, 1, "{said:?}");
    let expected =
        "tidewire: servers of this cluster run, or ended without a word less than 10 s ago: 1;";
    assert!(said.stderr.starts_with(expected), "{said:?}");
    drop(server);
    // Its lease has to end, as it was killed.
    let said = loop {
        let said = run(&["partition", "--broker", &url, "--to", "4"]);
        if !said.stderr.contains("less than 10 s ago") {
            break said;
        }
        std::thread::sleep(std::time::Duration::from_millis(200));
    };
    assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{said:?}");
    // With the topic of commands.
    let words = "of 6 topics with a history were moved, from 1 to 4 partitions; start all servers with \
                 --broker-partitions 4\n";
    assert!(said.stdout.ends_with(words), "{said:?}");
    let mut server = serve(&url, &["--broker-partitions", "4"]);
    for answer in publish(&mut server) {
        assert!(answer.contains(r#""offset":2"#), "{answer}");
    }
}

#[test]
fn mistakes_are_named() {
    let redis = RedisServer::start("");
    let url = redis.url();
    for (words, expected) in [
        (
            vec!["--to", "4"],
            "say where the broker is: --broker or --config",
        ),
        (vec!["--broker", &url, "--to", "65"], "65"),
        (
            vec![
                "--broker",
                &url,
                "--to",
                "1",
                "--to-broker",
                "redis://a,redis://b",
            ],
            "fewer partitions",
        ),
        (
            vec!["--broker", &url, "--to", "2", "--to-broker", "http://a"],
            "--to-broker: there is no broker http://",
        ),
    ] {
        let words = [vec!["partition"], words].concat();
        assert_refused(&run(&words), &[expected]);
    }
    let said = run(&["partition", "--broker", &url, "--to", "4"]);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(
        said.stderr
            .contains("no server has ever used this prefix here"),
        "{said:?}"
    );
}

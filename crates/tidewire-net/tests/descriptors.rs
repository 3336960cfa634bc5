//! Limit of open files. In a test program of its own, because the
//! limit is the process's.
#![cfg(unix)]
#![allow(clippy::unwrap_used)]

mod common;

use common::{Running, TestHandler, check_echo, dial};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};

/// The environment variable that makes this program the server.
const ROLE: &str = "TIDEWIRE_TEST_SERVER";

#[test]
fn newcomers_are_served_when_descriptors_are_free_again() {
    if std::env::var_os(ROLE).is_some() {
        return serve_with_few_descriptors();
    }
    let mut server = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "newcomers_are_served_when_descriptors_are_free_again",
            "--nocapture",
        ])
        .env(ROLE, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let address = lines
        .find_map(|line| {
            line.unwrap()
                .split_once("address ")
                .map(|(_, address)| address.to_owned())
        })
        .expect("the server tells its address");
    let streams: Vec<_> = (0..100).map(|_| dial(address.parse().unwrap())).collect();
    // Later ones are served only because earlier ones leave.
    for stream in streams {
        check_echo(&stream, b"served");
    }
    drop(server.stdin.take());
    assert!(server.wait().unwrap().success());
}

fn serve_with_few_descriptors() {
    use rustix::process::{Resource, Rlimit, setrlimit};
    let server = Running::plain(TestHandler::echo());
    let few = Rlimit {
        current: Some(40),
        maximum: Some(40),
    };
    setrlimit(Resource::Nofile, few).unwrap();
    let mut output = std::io::stdout();
    writeln!(output, "address {}", server.address).unwrap();
    output.flush().unwrap();
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    assert_eq!(server.stop().accepted, 100);
}

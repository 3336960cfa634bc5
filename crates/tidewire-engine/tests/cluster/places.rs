//! Places of the broker: behind sentinels that name another master, behind TLS, behind a name. Each test starts its own
//! `redis-server`.

use crate::common;

use common::cluster::{is_connected, shared_history};
use common::topics::subscribe;
use common::{Client, connect_v1, start, wait_until};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use tidewire_engine::Config;
use tidewire_engine::apps::Sink;
use tidewire_testkit::redis::RedisServer;

pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}

pub(crate) fn config(url: &str) -> Config {
    shared_history(url, 1_000)
}

/// Publishes and waits for the answer's payload.
pub(crate) fn publish(client: &mut Client, number: u64) -> Value {
    let payload = json!({"topic": "h.a", "type": "count", "payload": {"n": number}});
    client.send_text(&json!({"t": "publish_request", "cid": "1", "p": payload}).to_string());
    client.next_json()["p"].clone()
}

/// A sentinel of a master named `main`, which it replaces after two seconds of silence. A busy machine may be silent for
/// half a second.
struct Sentinel {
    child: Child,
    port: u16,
    _folder: tempfile::TempDir,
}

impl Sentinel {
    fn start(master: u16) -> Self {
        let (port, folder) = (free_port(), tempfile::tempdir().expect("a folder"));
        let file = folder.path().join("sentinel.conf");
        let text = format!(
            "port {port}\nbind 127.0.0.1\ndir {}\nsentinel monitor main 127.0.0.1 {master} 1\n\
             sentinel down-after-milliseconds main 2000\nsentinel failover-timeout main 2000\n",
            folder.path().display()
        );
        std::fs::write(&file, text).expect("a file");
        let child = Command::new("redis-server")
            .arg(&file)
            .arg("--sentinel")
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server of Debian's package redis-server");
        let sentinel = Self {
            child,
            port,
            _folder: folder,
        };
        wait_until("the sentinel knows the replica", || {
            ask(port, "INFO sentinel").is_some_and(|text| text.contains("slaves=1"))
        });
        sentinel
    }

    fn url(&self) -> String {
        // One that nobody answers at comes first.
        let dead = free_port();
        format!(
            "redis+sentinel://127.0.0.1:{dead},127.0.0.1:{}/main",
            self.port
        )
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The reply of a Redis or a sentinel to a command; as much as arrives at once.
pub(crate) fn ask(port: u16, command: &str) -> Option<String> {
    let mut socket = TcpStream::connect(("127.0.0.1", port)).ok()?;
    socket.write_all(format!("{command}\r\n").as_bytes()).ok()?;
    let mut bytes = vec![0; 65_536];
    let read = socket.read(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes[..read]).into_owned())
}

/// A master and its replica, in step.
fn replicated() -> [(RedisServer, u16); 2] {
    let (master_port, replica_port) = (free_port(), free_port());
    let master = RedisServer::start(&format!(
        "--port {master_port} --repl-diskless-sync-delay 0"
    ));
    let replica = RedisServer::start(&format!(
        "--port {replica_port} --replicaof 127.0.0.1 {master_port}"
    ));
    wait_until("the replica is in step", || {
        ask(replica_port, "INFO replication")
            .is_some_and(|text| text.contains("master_link_status:up"))
    });
    [(master, master_port), (replica, replica_port)]
}

/// The gap that tells of another broker.
pub(crate) fn wait_for_gap(client: &mut Client) {
    loop {
        let message = client.next_json();
        if message["t"] == "publication_gap" {
            assert_eq!(message["p"]["reason"], "broker", "{message}");
            return;
        }
    }
}

#[test]
fn sentinels_name_the_master_that_takes_the_place_of_a_dead_one() {
    let [(mut master, master_port), _replica] = replicated();
    let sentinel = Sentinel::start(master_port);
    let server = start(config(&sentinel.url()), Sink);
    wait_until("a broker", || is_connected(&server));
    let (mut subscriber, mut publisher) = (connect_v1(&server), connect_v1(&server));
    subscribe(&mut subscriber, json!(["h.a"]));
    let first = publish(&mut publisher, 1);
    assert_eq!(first["offset"], 1, "{first}");
    master.kill();
    wait_until("no broker", || !is_connected(&server));
    wait_until("a broker again", || is_connected(&server));
    let second = publish(&mut publisher, 2);
    // The replica may lack data of the master: the topic has another epoch, and that is reported.
    assert_ne!(second["epoch"], first["epoch"], "{second}");
    wait_for_gap(&mut subscriber);
    let message = subscriber.next_json();
    assert_eq!(message["p"]["n"], 2, "{message}");
}

#[test]
fn a_master_that_was_replaced_while_it_lives_is_left() {
    let [(_master, master_port), (_replica, replica_port)] = replicated();
    let sentinel = Sentinel::start(master_port);
    let server = start(config(&sentinel.url()), Sink);
    wait_until("a broker", || is_connected(&server));
    let mut publisher = connect_v1(&server);
    publish(&mut publisher, 1);
    // Refused while the sentinel does not know the replica well.
    wait_until("the sentinel takes the order", || {
        ask(sentinel.port, "SENTINEL FAILOVER main").as_deref() == Some("+OK\r\n")
    });
    wait_until("the server uses the other master", || {
        ask(replica_port, "CLIENT LIST").is_some_and(|text| text.contains("name=tidewire"))
    });
    wait_until("a publication is taken", || {
        publish(&mut publisher, 2)["offset"].is_u64()
    });
}

#[test]
fn a_name_is_resolved() {
    let port = free_port();
    let _redis = RedisServer::start(&format!("--port {port}"));
    let server = start(config(&format!("redis://localhost:{port}")), Sink);
    wait_until("a broker", || is_connected(&server));
    let nowhere = start(config("redis://no-such-host.invalid"), Sink);
    wait_until("a reason", || {
        let health = nowhere.handle().broker_health().expect("a broker");
        let reason = health.reason.unwrap_or_default();
        reason.contains("no-such-host.invalid")
    });
}

/// A certificate for `localhost` and its key, in files.
fn certificate(folder: &Path) {
    let names = vec!["localhost".to_owned()];
    let made = rcgen::generate_simple_self_signed(names).expect("a certificate");
    std::fs::write(folder.join("cert.pem"), made.cert.pem()).expect("a file");
    std::fs::write(folder.join("key.pem"), made.signing_key.serialize_pem()).expect("a file");
}

#[test]
fn tls_trusts_the_given_authority_and_by_default_those_of_the_web() {
    let folder = tempfile::tempdir().expect("a folder");
    certificate(folder.path());
    let (port, path) = (free_port(), folder.path().display());
    let _redis = RedisServer::start(&format!(
        "--tls-port {port} --tls-cert-file {path}/cert.pem --tls-key-file {path}/key.pem \
         --tls-auth-clients no --tls-ca-cert-file {path}/cert.pem"
    ));
    let mut trusting = config(&format!("rediss://localhost:{port}"));
    let trusting_of_the_web = trusting.clone();
    if let Some(broker) = &mut trusting.broker {
        broker.authorities = Some(folder.path().join("cert.pem"));
    }
    let server = start(trusting, Sink);
    wait_until("a broker", || is_connected(&server));
    let server = start(trusting_of_the_web, Sink);
    wait_until("a refusal", || {
        let health = server.handle().broker_health().expect("a broker");
        assert!(!health.is_connected);
        health.reason.unwrap_or_default().contains("TLS")
    });
}

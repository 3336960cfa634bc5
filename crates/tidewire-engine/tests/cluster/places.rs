//! Places of the broker: behind sentinels that name another master, behind TLS, behind a name. Each test starts its own
//! `redis-server`.

use crate::common;

use common::cluster::{is_connected, is_whole, shared_history};
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

fn config(url: &str) -> Config {
    shared_history(url, 1_000)
}

/// Publishes and waits for the answer's payload.
fn publish(client: &mut Client, number: u64) -> Value {
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
fn ask(port: u16, command: &str) -> Option<String> {
    let mut socket = TcpStream::connect(("127.0.0.1", port)).ok()?;
    socket.write_all(format!("{command}\r\n").as_bytes()).ok()?;
    let mut bytes = [0; 8192];
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
fn wait_for_gap(client: &mut Client) {
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

/// Two nodes of a Redis Cluster. The second has the slot with all keys.
struct Nodes {
    servers: [RedisServer; 2],
    ports: [u16; 2],
    bus_ports: [u16; 2],
}

impl Nodes {
    fn start() -> Self {
        let ports = [free_port(), free_port()];
        let bus_ports = [free_port(), free_port()];
        let server = |node: usize| RedisServer::start(&cluster_flags(ports[node], bus_ports[node]));
        let nodes = Self {
            servers: [server(0), server(1)],
            ports,
            bus_ports,
        };
        // That of `{0}`, the only partition unless there are several.
        let slots = [(0, SLOT - 1), (SLOT, 16_383)];
        for (port, (first, last)) in ports.into_iter().zip(slots) {
            tell(port, &format!("CLUSTER ADDSLOTSRANGE {first} {last}"));
        }
        tell(ports[0], &meet(ports[1], bus_ports[1]));
        for port in ports {
            wait_until("the cluster serves", || is_serving(port));
        }
        nodes
    }

    fn id(&self, node: usize) -> String {
        let answer = ask(self.ports[node], "CLUSTER MYID").expect("an answer");
        answer.lines().nth(1).expect("an id").to_owned()
    }

    /// Moves the slot with its keys to the first node.
    fn move_slot(&self) {
        let [to, from] = self.ports;
        let [to_id, from_id] = [self.id(0), self.id(1)];
        tell(to, &format!("CLUSTER SETSLOT {SLOT} IMPORTING {from_id}"));
        tell(from, &format!("CLUSTER SETSLOT {SLOT} MIGRATING {to_id}"));
        let keys = || {
            let answer = ask(from, &format!("CLUSTER GETKEYSINSLOT {SLOT} 1000"));
            let answer = answer.expect("keys");
            let keys = answer.lines().filter(|line| line.starts_with("tw:"));
            keys.map(str::to_owned).collect::<Vec<_>>()
        };
        wait_until("all keys have moved", || {
            let keys = keys().join(" ");
            if !keys.is_empty() {
                ask(
                    from,
                    &format!("MIGRATE 127.0.0.1 {to} \"\" 0 5000 KEYS {keys}"),
                );
            }
            keys.is_empty()
        });
        for port in [to, from] {
            tell(port, &format!("CLUSTER SETSLOT {SLOT} NODE {to_id}"));
        }
    }
}

/// The slot of `{0}`.
const SLOT: u16 = 13_907;

fn cluster_flags(port: u16, bus_port: u16) -> String {
    format!(
        "--port {port} --cluster-enabled yes --cluster-port {bus_port} --cluster-node-timeout 2000"
    )
}

fn meet(port: u16, bus_port: u16) -> String {
    format!("CLUSTER MEET 127.0.0.1 {port} {bus_port}")
}

fn is_serving(port: u16) -> bool {
    ask(port, "CLUSTER INFO").is_some_and(|text| text.contains("cluster_state:ok"))
}

fn tell(port: u16, command: &str) {
    assert_eq!(ask(port, command).as_deref(), Some("+OK\r\n"), "{command}");
}

#[test]
fn a_cluster_names_the_node_that_has_the_slot_also_after_it_moved() {
    let nodes = Nodes::start();
    // One that nobody answers at comes first, and one that has other slots.
    let dead = free_port();
    let url = format!(
        "redis+cluster://127.0.0.1:{dead},127.0.0.1:{}",
        nodes.ports[0]
    );
    let servers = [(); 2].map(|()| start(config(&url), Sink));
    for server in &servers {
        wait_until("a broker", || is_connected(server));
    }
    let (mut subscriber, mut publisher) = (connect_v1(&servers[0]), connect_v1(&servers[1]));
    subscribe(&mut subscriber, json!(["h.a"]));
    assert_eq!(publish(&mut publisher, 1)["offset"], 1);
    assert_eq!(subscriber.next_json()["p"]["n"], 1);
    nodes.move_slot();
    wait_until("a publication is taken", || {
        publish(&mut publisher, 2)["offset"].is_u64()
    });
    wait_for_gap(&mut subscriber);
    assert_eq!(subscriber.next_json()["p"]["n"], 2);
    let has_link =
        |port| ask(port, "CLIENT LIST").is_some_and(|text| text.contains("name=tidewire"));
    wait_until("all have left the old node", || !has_link(nodes.ports[1]));
    assert!(has_link(nodes.ports[0]));
}

#[test]
fn a_cluster_has_partitions_at_all_its_nodes() {
    let nodes = Nodes::start();
    let url = format!("redis+cluster://127.0.0.1:{}", nodes.ports[0]);
    let servers = [(); 2].map(|()| {
        let mut config = config(&url);
        config.broker.as_mut().expect("a broker").partitions = 4;
        start(config, Sink)
    });
    for server in &servers {
        wait_until("all partitions", || is_whole(server));
    }
    let has_link =
        |port| ask(port, "CLIENT LIST").is_some_and(|text| text.contains("name=tidewire"));
    assert!(nodes.ports.into_iter().all(has_link));
    let (mut subscriber, mut publisher) = (connect_v1(&servers[0]), connect_v1(&servers[1]));
    subscribe(&mut subscriber, json!(["h.*"]));
    // Topics of the partitions 0, 1, 2 and 3.
    let topics = ["h.a", "h.d", "h.c", "h.b"];
    let mut publish = |topic: &str, number: u64| {
        let payload = json!({"topic": topic, "type": "count", "payload": {"n": number}});
        let request = json!({"t": "publish_request", "cid": "1", "p": payload});
        publisher.ask(&request)["p"].clone()
    };
    for topic in topics {
        assert_eq!(publish(topic, 1)["offset"], 1);
        assert_eq!(subscriber.next_json()["tp"], topic);
    }
    // The slot of the first partition moves: the topics of the others have the same epochs as before.
    let before = topics.map(|topic| publish(topic, 2)["epoch"].clone());
    nodes.move_slot();
    wait_until("a publication is taken", || {
        publish("h.a", 3)["offset"].is_u64()
    });
    let after = topics.map(|topic| publish(topic, 4)["epoch"].clone());
    assert_eq!(before[1..], after[1..]);
}

#[test]
fn a_cluster_sends_publications_to_its_other_nodes_only_for_patterns() {
    let nodes = Nodes::start();
    let url = format!("redis+cluster://127.0.0.1:{}", nodes.ports[0]);
    let servers = [(); 2].map(|()| start(config(&url), Sink));
    for server in &servers {
        wait_until("a broker", || is_connected(server));
    }
    let clients = [(); 3].map(|()| connect_v1(&servers[0]));
    let [mut by_name, mut by_pattern, mut by_both] = clients;
    let mut publisher = connect_v1(&servers[1]);
    subscribe(&mut by_name, json!(["h.a"]));
    publish(&mut publisher, 1);
    assert_eq!(by_name.next_json()["p"]["n"], 1);
    let has_sent = || {
        let told = ask(nodes.ports[1], "CLUSTER INFO").expect("an answer");
        assert!(told.contains("messages_ping_sent"), "{told}");
        told.contains("messages_publish_sent")
    };
    assert!(!has_sent(), "the other node has no subscriber");
    subscribe(&mut by_pattern, json!(["h.*"]));
    subscribe(&mut by_both, json!(["h.a", "h.>"]));
    for number in 2..5 {
        publish(&mut publisher, number);
        for client in [&mut by_name, &mut by_pattern, &mut by_both] {
            assert_eq!(client.next_json()["p"]["n"], number);
        }
    }
    assert!(has_sent(), "only the plain form knows patterns");
}

#[test]
fn a_replica_takes_the_place_of_a_dead_node_of_a_cluster() {
    let mut nodes = Nodes::start();
    let (port, bus_port) = (free_port(), free_port());
    let _replica = RedisServer::start(&cluster_flags(port, bus_port));
    tell(port, &meet(nodes.ports[1], nodes.bus_ports[1]));
    let master = nodes.id(1);
    wait_until("the replica knows its master", || {
        ask(port, &format!("CLUSTER REPLICATE {master}")).as_deref() == Some("+OK\r\n")
    });
    wait_until("the replica is in step", || {
        ask(port, "INFO replication").is_some_and(|text| text.contains("master_link_status:up"))
    });
    let url = format!(
        "redis+cluster://127.0.0.1:{},127.0.0.1:{port}",
        nodes.ports[0]
    );
    let server = start(config(&url), Sink);
    wait_until("a broker", || is_connected(&server));
    let mut publisher = connect_v1(&server);
    assert_eq!(publish(&mut publisher, 1)["offset"], 1);
    nodes.servers[1].kill();
    // Two masters are too few to elect one by themselves.
    tell(port, "CLUSTER FAILOVER TAKEOVER");
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

//! A Redis Cluster whose slots move, and which has partitions at several masters. Each test starts its own nodes.

use super::places::{ask, config, free_port, publish};
use super::unreadable::recover;
use crate::common;

use common::cluster::start_connected;
use common::topics::subscribe;
use common::{Client, connect_v1, wait_until};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tidewire_engine::Server;
use tidewire_redis::connection::PubSub;
use tidewire_redis::resp::command;
use tidewire_redis::script::Script;
use tidewire_testkit::redis::RedisServer;

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

    /// Moves the slot with its keys to this node from the other one.
    fn move_slot(&self, to: usize) {
        self.begin_move(to);
        self.move_keys(to, |_| true);
        self.end_move(to);
    }

    fn begin_move(&self, to: usize) {
        let from = 1 - to;
        let words = format!("CLUSTER SETSLOT {SLOT} IMPORTING {}", self.id(from));
        tell(self.ports[to], &words);
        let words = format!("CLUSTER SETSLOT {SLOT} MIGRATING {}", self.id(to));
        tell(self.ports[from], &words);
    }

    /// Moves some of the keys.
    fn move_keys(&self, to: usize, moves: impl Fn(&str) -> bool) {
        let from = self.ports[1 - to];
        let keys = || {
            let answer = ask(from, &format!("CLUSTER GETKEYSINSLOT {SLOT} 1000"));
            let answer = answer.expect("keys");
            let keys = answer.lines().filter(|line| line.starts_with("tw:"));
            let keys = keys.filter(|key| moves(key)).map(str::to_owned);
            keys.collect::<Vec<_>>().join(" ")
        };
        wait_until("the keys have moved", || {
            let keys = keys();
            if !keys.is_empty() {
                let place = format!("127.0.0.1 {}", self.ports[to]);
                ask(
                    from,
                    &format!("MIGRATE {place} \"\" 0 5000 REPLACE KEYS {keys}"),
                );
            }
            keys.is_empty()
        });
    }

    fn end_move(&self, to: usize) {
        let words = format!("CLUSTER SETSLOT {SLOT} NODE {}", self.id(to));
        for node in [to, 1 - to] {
            tell(self.ports[node], &words);
        }
    }
}

/// The servers look this often where the slot is, and a little more.
const LOOK: Duration = Duration::from_millis(2_100);

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

/// Whether a server is connected to this node.
fn has_link(port: u16) -> bool {
    ask(port, "CLIENT LIST").is_some_and(|text| text.contains("name=tidewire"))
}

/// Publishes again until the cluster accepts it; the answer's payload.
fn publish_until_taken(client: &mut Client, number: u64) -> Value {
    let mut answer = Value::Null;
    wait_until("a publication is taken", || {
        answer = publish(client, number);
        answer["offset"].is_u64()
    });
    answer
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
    let servers = [(); 2].map(|()| start_connected(config(&url)));
    let (mut subscriber, mut publisher) = (connect_v1(&servers[0]), connect_v1(&servers[1]));
    subscribe(&mut subscriber, json!(["h.a"]));
    assert_eq!(publish(&mut publisher, 1)["offset"], 1);
    assert_eq!(subscriber.next_json()["p"]["n"], 1);
    let before = publish(&mut publisher, 2);
    assert_eq!(subscriber.next_json()["p"]["n"], 2);
    nodes.move_slot(0);
    let after = publish_until_taken(&mut publisher, 3);
    // All has moved, so that the topic is the same: no gap, and no other epoch.
    assert_eq!(subscriber.next_json()["p"]["n"], 3);
    assert_eq!(
        (&after["epoch"], &after["offset"]),
        (&before["epoch"], &json!(3))
    );
    wait_until("all have left the old node", || !has_link(nodes.ports[1]));
    assert!(has_link(nodes.ports[0]));
    // A server that knew nothing of the first move comes back with the history, and the slot moves back.
    let late = start_connected(config(&url));
    nodes.move_slot(1);
    let mut publisher = connect_v1(&late);
    let after = publish_until_taken(&mut publisher, 4);
    assert_eq!(subscriber.next_json()["p"]["n"], 4);
    assert_eq!(after["epoch"], before["epoch"]);
    let recovered = recover(&late, (&before["epoch"], 0));
    assert_eq!(recovered, (json!(true), vec![1, 2, 3, 4]));
}

#[test]
fn a_slot_that_moves_under_load_loses_nothing_and_keeps_the_order() {
    let nodes = Nodes::start();
    let url = format!("redis+cluster://127.0.0.1:{}", nodes.ports[0]);
    let servers = [(); 2].map(|()| start_connected(config(&url)));
    let mut subscriber = connect_v1(&servers[0]);
    subscribe(&mut subscriber, json!(["h.a"]));
    let (is_over, begun) = (AtomicBool::new(false), Instant::now());
    let publish_all = |server: &Server, first: u64| {
        let mut publisher = connect_v1(server);
        let mut taken = Vec::new();
        for number in (first..).step_by(2) {
            if is_over.load(Ordering::Relaxed) || begun.elapsed() > Duration::from_secs(60) {
                break;
            }
            if let Some(offset) = publish(&mut publisher, number)["offset"].as_u64() {
                taken.push((offset, number));
            }
        }
        taken
    };
    let mut taken = std::thread::scope(|scope| {
        let publishers = [(&servers[0], 0), (&servers[1], 1)];
        let publishers =
            publishers.map(|(server, first)| scope.spawn(move || publish_all(server, first)));
        for to in [0, 1, 0] {
            // Each server needs a look before the move to judge it.
            std::thread::sleep(LOOK);
            nodes.move_slot(to);
            let port = nodes.ports[to];
            wait_until("the servers are there", || {
                let clients = ask(port, "CLIENT LIST").unwrap_or_default();
                // The connections of the only partition, or of the first of several.
                let names = ["-cmd ", "-cmd-0 "].map(|name| clients.matches(name).count());
                names.iter().sum::<usize>() == 2
            });
        }
        is_over.store(true, Ordering::Relaxed);
        let taken = publishers.map(|publisher| publisher.join().expect("it publishes"));
        taken.concat()
    });
    taken.sort_unstable();
    assert!(taken.len() > 100, "{}", taken.len());
    // Publications with an unknown outcome may stand between them.
    for (offset, number) in &taken {
        loop {
            let message = subscriber.next_json();
            assert_eq!(
                message["t"], "count",
                "before {number} at {offset}: {message}"
            );
            if message["p"]["n"] == *number {
                break;
            }
        }
    }
}

#[test]
fn a_new_master_that_restarts_while_a_slot_moves_begins_other_epochs() {
    let mut nodes = Nodes::start();
    let url = format!("redis+cluster://127.0.0.1:{}", nodes.ports[1]);
    let server = start_connected(config(&url));
    let mut publisher = connect_v1(&server);
    let mut publish = |number| {
        let answer = publish_until_taken(&mut publisher, number);
        (answer["epoch"].clone(), answer["offset"].clone())
    };
    let (epoch, _) = publish(1);
    // The first node had the slot once, and has a copy of that on its disk.
    nodes.move_slot(0);
    assert_eq!(publish(2), (epoch.clone(), json!(2)));
    tell(nodes.ports[0], "SAVE");
    nodes.move_slot(1);
    assert_eq!(publish(3), (epoch.clone(), json!(3)));
    // It restarts with that copy in the middle of the next move. The keys that arrive later look valid.
    nodes.begin_move(0);
    nodes.move_keys(0, |key| key.contains("h.a"));
    nodes.servers[0].kill();
    nodes.servers[0].run();
    wait_until("the cluster serves", || is_serving(nodes.ports[0]));
    nodes.move_keys(0, |_| true);
    nodes.end_move(0);
    let (after, offset) = publish(4);
    assert_eq!(offset, 1);
    assert_ne!(after, epoch);
}

#[test]
fn a_cluster_has_partitions_at_all_its_nodes() {
    let nodes = Nodes::start();
    let url = format!("redis+cluster://127.0.0.1:{}", nodes.ports[0]);
    let servers = [(); 2].map(|()| {
        let mut config = config(&url);
        config.broker.as_mut().expect("a broker").partitions = 4;
        start_connected(config)
    });
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
    // The slot of the first partition moves, and takes everything along.
    let before = topics.map(|topic| publish(topic, 2)["epoch"].clone());
    nodes.move_slot(0);
    wait_until("a publication is taken", || {
        publish("h.a", 3)["offset"].is_u64()
    });
    let after = topics.map(|topic| publish(topic, 4)["epoch"].clone());
    assert_eq!(before, after);
}

#[test]
fn a_cluster_sends_publications_to_its_other_nodes_only_for_patterns() {
    let nodes = Nodes::start();
    let url = format!("redis+cluster://127.0.0.1:{}", nodes.ports[0]);
    let servers = [(); 2].map(|()| start_connected(config(&url)));
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
    let server = start_connected(config(&url));
    let mut publisher = connect_v1(&server);
    assert_eq!(publish(&mut publisher, 1)["offset"], 1);
    nodes.servers[1].kill();
    // Two masters are too few to elect one by themselves.
    tell(port, "CLUSTER FAILOVER TAKEOVER");
    publish_until_taken(&mut publisher, 2);
}

/// A key that the old master has deleted since then would come back with the slot.
#[test]
fn a_new_master_that_had_keys_of_the_slot_before_begins_other_epochs() {
    let mut nodes = Nodes::start();
    let url = format!("redis+cluster://127.0.0.1:{}", nodes.ports[1]);
    let first = start_connected(config(&url));
    let before = publish(&mut connect_v1(&first), 1);
    nodes.move_slot(0);
    tell(nodes.ports[0], "SAVE");
    nodes.move_slot(1);
    nodes.servers[0].kill();
    nodes.servers[0].run();
    wait_until("the cluster serves", || is_serving(nodes.ports[0]));
    drop(first);
    let server = start_connected(config(&url));
    std::thread::sleep(LOOK);
    nodes.move_slot(0);
    let after = publish_until_taken(&mut connect_v1(&server), 2);
    assert_ne!(after["epoch"], before["epoch"]);
}

/// If the work has moved and the topic has not, a publication would be accepted without its work.
#[test]
fn nothing_is_taken_while_a_part_of_its_keys_is_elsewhere() {
    let nodes = Nodes::start();
    let url = format!("redis+cluster://127.0.0.1:{}", nodes.ports[1]);
    let server = start_connected(config(&url));
    let (mut worker, mut publisher) = (connect_v1(&server), connect_v1(&server));
    let payload = json!({
        "action": "subscribe", "topics": ["h.a"], "queue_group": "workers", "acknowledge": true, "window": 100,
    });
    let joined = worker.ask(&json!({"t": "subscription_update", "p": payload}));
    assert_eq!(joined["p"]["success_topics"], json!(["h.a"]), "{joined}");
    assert_eq!(publish(&mut publisher, 1)["offset"], 1);
    assert_eq!(worker.next_json()["p"]["n"], 1);
    nodes.begin_move(0);
    nodes.move_keys(0, |key| key.contains(":q:"));
    let refused = publish(&mut publisher, 2);
    assert_eq!(refused["offset"], Value::Null, "{refused}");
    nodes.move_keys(0, |_| true);
    nodes.end_move(0);
    assert_eq!(publish_until_taken(&mut publisher, 3)["offset"], 2);
    assert_eq!(worker.next_json()["p"]["n"], 3);
}

#[test]
fn no_script_begins_what_it_may_not_end_while_the_slot_moves() {
    let nodes = Nodes::start();
    let key = "tw:{0}:f";
    tell(nodes.ports[1], &format!("SET {key} here"));
    nodes.begin_move(0);
    let sources = Script::ALL.map(|script| script.source(PubSub::Sharded));
    // The others declare all of their keys, so that Redis refuses them as a whole.
    let is_open = |source: &&str| source.contains("NUMPAT");
    let sources: Vec<_> = sources.into_iter().filter(is_open).collect();
    assert!(sources.len() >= 10);
    for source in sources {
        let mut question = Vec::new();
        command(
            &mut question,
            &[b"EVAL", source.as_bytes(), b"1", key.as_bytes()],
        );
        let mut socket = TcpStream::connect(("127.0.0.1", nodes.ports[1])).expect("a node");
        socket.write_all(&question).expect("a question");
        let mut answer = [0; 512];
        let read = socket.read(&mut answer).expect("an answer");
        let answer = String::from_utf8_lossy(&answer[..read]);
        assert!(
            answer.starts_with("-TRYAGAIN the slot moves"),
            "{source}: {answer}"
        );
    }
}

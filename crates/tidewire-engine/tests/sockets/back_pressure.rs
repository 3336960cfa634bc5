//! The queue between the server and an application on another thread: a reader that stalls holds the
//! senders back, and nothing is lost, repeated or out of order.

use crate::common;

use common::topics::{open_topics, subscribe};
use common::{
    Client, Said, assert_settled, connect, connect_v1, frame, raw_config, start, wait_until,
};
use serde_json::json;
use std::collections::HashMap;
use std::io::{ErrorKind, Write};
use std::net::TcpStream;
use std::time::Duration;
use tidewire_engine::apps::Sink;
use tidewire_engine::queue::{Event, Receiver, queue};
use tidewire_engine::{CloseReason, ConnectionKey, Server};
use tidewire_wire::close::CloseCode;
use tidewire_wire::frame::OpCode;

/// A server whose messages go to the receiver, behind a queue of N bytes.
fn queued(shards: usize, bytes_max: usize) -> (Server, Receiver) {
    let (sender, receiver) = queue(bytes_max);
    let config = tidewire_engine::Config {
        shards,
        ..raw_config()
    };
    let server = Server::start(config, move |_| sender.application()).expect("a free port");
    (server, receiver)
}

/// The view of a receiver of each connection.
#[derive(Default)]
struct Ledger {
    next: HashMap<ConnectionKey, u64>,
    messages: u64,
    closed: Vec<CloseReason>,
}

impl Ledger {
    /// Takes a batch, if one comes soon; `false` at the end.
    fn take(&mut self, receiver: &Receiver) -> bool {
        let Ok(batch) = receiver.receive(Duration::from_millis(10)) else {
            return false;
        };
        let Some(batch) = batch else { return true };
        assert!(!batch.is_empty());
        assert_eq!(batch.len(), batch.events().count());
        for event in batch.events() {
            match event {
                Event::Connect(peer) => {
                    assert_eq!(self.next.insert(peer.connection, 0), None);
                }
                Event::Message(peer, message) => {
                    let number =
                        u64::from_be_bytes(message.bytes[..8].try_into().expect("8 bytes"));
                    let next = self
                        .next
                        .get_mut(&peer.connection)
                        .expect("announced before");
                    assert_eq!(number, *next, "lost, repeated or out of order");
                    *next += 1;
                    self.messages += 1;
                }
                Event::Close(peer, reason) => {
                    assert!(self.next.contains_key(&peer.connection));
                    self.closed.push(reason);
                }
                Event::Call(..) | Event::Publication(..) | Event::Sync(..) => {
                    panic!("nobody asked")
                }
            }
        }
        true
    }
}

/// Sends numbered messages.
struct Flood {
    client: Client,
    numbers: u64,
    unsent: Vec<u8>,
}

impl Flood {
    fn new(server: &Server) -> Self {
        let client = connect(server);
        let tcp: &TcpStream = client.stream.tcp();
        tcp.set_nonblocking(true).expect("a TCP socket");
        Self {
            client,
            numbers: 0,
            unsent: Vec::new(),
        }
    }

    /// Sends what the socket takes, a few messages at most; whether that was all of them.
    fn send_some(&mut self) -> bool {
        if self.unsent.is_empty() {
            for _ in 0..64 {
                let mut payload = [0x55; 1000];
                payload[..8].copy_from_slice(&self.numbers.to_be_bytes());
                self.unsent.extend(frame(OpCode::Binary, &payload));
                self.numbers += 1;
            }
        }
        match self.client.stream.write(&self.unsent) {
            Ok(bytes) => {
                self.unsent.drain(..bytes);
                self.unsent.is_empty()
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => false,
            Err(error) => panic!("{error}"),
        }
    }
}

fn stall_and_recover(shards: usize, connections: usize) {
    let queue_bytes_max = 1024 * 1024;
    let (server, receiver) = queued(shards, queue_bytes_max);
    let handle = server.handle();
    let mut floods: Vec<_> = (0..connections).map(|_| Flood::new(&server)).collect();
    // Nobody receives: everything fills up, until no socket takes anything for a while.
    let mut idle_rounds = 0;
    while idle_rounds < 30 {
        let mut moved = false;
        for flood in &mut floods {
            moved |= flood.send_some();
        }
        idle_rounds = if moved { 0 } else { idle_rounds + 1 };
        if !moved {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    let stalled = handle.counters();
    assert!(stalled.queue_full_pauses > 0);
    // What is in the queue is bounded: its limit, and one read of each shard.
    let read_buffer_bytes = tidewire_net::ShardConfig::default().read_buffer_bytes;
    let bound = (queue_bytes_max + shards * read_buffer_bytes) as u64;
    assert!(
        stalled.bytes_received <= bound,
        "{} > {bound}",
        stalled.bytes_received
    );
    assert_eq!(handle.connections(), connections);

    // The reader is back, while the senders go on.
    let mut ledger = Ledger::default();
    let target = floods.iter().map(|flood| flood.numbers).sum::<u64>() + 20_000;
    wait_until("the rest is sent", || {
        for flood in &mut floods {
            flood.send_some();
        }
        ledger.take(&receiver);
        let sent: u64 = floods.iter().map(|flood| flood.numbers).sum();
        sent >= target
    });
    wait_until("the last message is sent", || {
        ledger.take(&receiver);
        floods
            .iter_mut()
            .all(|flood| flood.unsent.is_empty() || flood.send_some())
    });
    let sent: u64 = floods.iter().map(|flood| flood.numbers).sum();
    wait_until("all arrived", || {
        ledger.take(&receiver);
        ledger.messages == sent
    });
    drop(floods);
    wait_until("all ends arrived", || {
        ledger.take(&receiver);
        ledger.closed.len() == connections
    });
    let counters = assert_settled(&handle);
    assert_eq!(
        (counters.messages_delivered, counters.messages_received),
        (sent, sent)
    );
    drop(server);
    assert!(!ledger.take(&receiver), "the end");
}

#[test]
fn a_stalled_reader_blocks_one_sender() {
    stall_and_recover(1, 1);
}

#[test]
fn a_stalled_reader_blocks_many_senders_of_several_shards() {
    stall_and_recover(3, 12);
}

#[test]
fn a_queue_of_one_byte_still_moves() {
    for bytes_max in [0, 1] {
        let (server, receiver) = queued(2, bytes_max);
        let mut floods: Vec<_> = (0..4).map(|_| Flood::new(&server)).collect();
        for flood in &mut floods {
            while !flood.send_some() {}
        }
        let mut ledger = Ledger::default();
        wait_until("all arrived", || {
            ledger.take(&receiver);
            ledger.messages == 4 * 64
        });
    }
}

#[test]
fn a_stall_is_not_taken_for_the_silence_of_the_peer() {
    let (sender, receiver) = queue(1);
    let mut config = raw_config();
    config.limits.idle_timeout_ms = 100;
    config.limits.close_timeout_ms = 100;
    let server = Server::start(config, move |_| sender.application()).unwrap();
    let handle = server.handle();
    let mut client = connect(&server);
    // The news of the session fills the queue, so that its messages are not read.
    for number in 0..2u64 {
        client.send_bytes(&frame(OpCode::Binary, &number.to_be_bytes()));
    }
    wait_until("the stall", || handle.counters().queue_full_pauses > 0);
    std::thread::sleep(Duration::from_millis(400));
    assert_eq!(handle.connections(), 1);
    // Also not when the session is being closed: its last messages still arrive.
    handle.start_drain();
    assert!(matches!(client.next(), Said::Close(Some(4300), _)));
    client.send_bytes(&frame(OpCode::Binary, &2u64.to_be_bytes()));
    client.send_close(CloseCode::DRAINING);
    std::thread::sleep(Duration::from_millis(400));
    let mut ledger = Ledger::default();
    wait_until("the end", || {
        ledger.take(&receiver);
        ledger.closed.len() == 1
    });
    assert_eq!(
        (ledger.messages, ledger.closed[0]),
        (3, CloseReason::ByUs(CloseCode::DRAINING))
    );
}

#[test]
fn without_a_receiver_the_server_goes_on() {
    let (server, receiver) = queued(1, 10_000);
    let mut flood = Flood::new(&server);
    wait_until("the stall", || {
        flood.send_some();
        server.handle().counters().queue_full_pauses > 0
    });
    drop(receiver);
    let target = flood.numbers + 10_000;
    wait_until("more is taken", || {
        flood.send_some();
        flood.numbers >= target
    });
    drop(flood);
    assert_settled(&server.handle());
}

#[test]
fn a_server_that_stops_tells_the_end_of_every_session() {
    let (server, receiver) = queued(2, 1024 * 1024);
    let clients: Vec<_> = (0..8).map(|_| connect(&server)).collect();
    server.stop();
    let mut ledger = Ledger::default();
    while ledger.take(&receiver) {}
    assert_eq!((ledger.next.len(), ledger.closed.len()), (8, 8));
    drop(clients);
}

/// A turn writes at most 2 MiB. The rest waits in queues, and a socket that is not blocked takes its queue at once in the next
/// turn. A client that was not read meanwhile is read again.
#[test]
fn a_queue_that_leaves_at_once_does_not_hold_back_its_reader() {
    const CLIENTS: usize = 40;
    const EACH: usize = 5;
    let mut config = open_topics();
    config.shards = 1;
    config.limits.outbox_pause_bytes = 1_000;
    let server = start(config, Sink);
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| connect_v1(&server)).collect();
    for client in &mut clients {
        subscribe(client, json!(["one", "two"]));
    }
    // More than the 2 MiB that a turn writes.
    let payload = json!({ "text": "x".repeat(100_000) });
    // Those of several topics wait for the end of the turn, and leave together.
    let publications = ["one", "two"].map(|topic| {
        let publication = json!({ "topic": topic, "type": "large", "payload": payload });
        json!({ "t": "publish_request", "p": publication }).to_string()
    });
    let has_paused = || server.handle().counters().reading_pauses > 0;
    // Until a queue was long, which a busy machine may need more rounds for.
    for round in (0..200).take_while(|round| *round < 10 || !has_paused()) {
        for _ in 0..EACH {
            let [one, two] = &publications;
            clients[0].send_text(one);
            clients[0].send_text(two);
        }
        // They come while the publications are being written.
        for _ in 0..EACH {
            for client in &mut clients {
                client.send_text(r#"{"t":"ping"}"#);
            }
        }
        for client in &mut clients {
            let found = [(); 3 * EACH].map(|()| client.next_json()["t"].clone());
            let pongs = found.iter().filter(|kind| **kind == "PONG").count();
            assert_eq!(pongs, EACH, "round {round}");
        }
    }
    assert!(has_paused(), "no queue was long");
    server.stop();
}

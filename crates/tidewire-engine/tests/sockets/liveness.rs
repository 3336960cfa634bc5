//! Silent peers, peers that do not read, and what becomes of them.

use crate::common;

use common::{
    Client, Said, assert_settled, config, connect, connect_v1, frame, raw_config, start, wait_until,
};
use serde_json::json;
use std::io::Write;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use tidewire_engine::apps::Echo;
use tidewire_engine::{
    Application, CloseReason, ConnectionKey, Context, Message, Outgoing, Peer, Server,
};
use tidewire_wire::frame::OpCode;

#[test]
fn the_server_pings_and_an_answer_keeps_the_session() {
    let mut config = config();
    config.limits.ping_interval_ms = 20;
    config.limits.idle_timeout_ms = 400;
    let server = start(config, Echo);
    let mut client = connect_v1(&server);
    // Many idle timeouts long.
    for _ in 0..60 {
        let ping = client.next_json();
        assert_eq!((&ping["c"], &ping["t"]), (&json!("WSE"), &json!("ping")));
        assert_eq!(client.next(), Said::Ping(Vec::new()));
        let timestamp = ping["p"]["timestamp"].as_u64().unwrap();
        let pong = json!({"c": "WSE", "t": "PONG", "p": {"client_timestamp": timestamp}});
        client.send_text(&pong.to_string());
    }
    assert_eq!(server.handle().counters().idle_timeouts, 0);
    let (code, _) = client.close_after_all();
    assert_eq!(code, Some(4408));
    drop(client);
    let counters = assert_settled(&server.handle());
    assert_eq!(
        (counters.idle_timeouts, counters.system_messages_received),
        (1, 60)
    );
}

/// A browser's page that only listens: the browser answers pings by itself.
#[test]
fn a_version_1_client_that_only_answers_pings_of_the_websocket_stays() {
    let mut config = config();
    config.limits.ping_interval_ms = 20;
    config.limits.idle_timeout_ms = 400;
    let server = start(config, Echo);
    let mut client = connect_v1(&server);
    for _ in 0..60 {
        assert_eq!(client.next_json()["t"], "ping");
        assert_eq!(client.next(), Said::Ping(Vec::new()));
        client.send_bytes(&frame(OpCode::Pong, b""));
    }
    assert_eq!(server.handle().counters().idle_timeouts, 0);
    assert_eq!(client.close_after_all().0, Some(4408));
}

#[test]
fn a_raw_session_is_pinged_by_the_websocket() {
    let mut config = raw_config();
    config.limits.ping_interval_ms = 20;
    config.limits.idle_timeout_ms = 400;
    let server = start(config, Echo);
    let mut client = connect(&server);
    for _ in 0..60 {
        assert_eq!(client.next(), Said::Ping(Vec::new()));
        client.send_bytes(&frame(OpCode::Pong, b""));
    }
    assert_eq!(client.close_after_all().0, Some(4408));
}

/// Sends until the server has stopped reading, and gives how many bytes that were.
fn fill(client: &mut Client, message: &[u8]) -> usize {
    let tcp = client.stream.tcp();
    tcp.set_write_timeout(Some(Duration::from_millis(500)))
        .expect("a timeout that is not zero");
    let mut sent = 0;
    loop {
        match client.stream.write(&message[sent % message.len()..]) {
            Ok(bytes) => sent += bytes,
            Err(_) => return sent,
        }
    }
}

#[test]
fn a_peer_that_never_reads_is_held_back_and_disturbs_nobody() {
    let server = start(raw_config(), Echo);
    let mut stuck = connect(&server);
    let message = frame(OpCode::Binary, &[7; 1024]);
    let sent = fill(&mut stuck, &message);
    let counters = server.handle().counters();
    assert!(counters.reading_pauses > 0);
    // What the server took: what waits for the peer, and what the sockets between them hold.
    assert!(
        counters.bytes_received < 32 * 1024 * 1024,
        "{}",
        counters.bytes_received
    );
    assert_eq!(
        (counters.outbox_overflows, server.handle().connections()),
        (0, 1)
    );

    let mut other = connect(&server);
    other.send_text("hello");
    assert_eq!(other.next_text(), "hello");

    // It is read again once it reads, and nothing is lost.
    for _ in 0..sent / message.len() {
        assert!(stuck.next() == Said::Binary(vec![7; 1024]));
    }
    drop((stuck, other));
    assert_settled(&server.handle());
}

#[test]
fn a_peer_that_never_reads_ends_by_the_idle_timeout() {
    let mut config = raw_config();
    config.limits.idle_timeout_ms = 300;
    let server = start(config, Echo);
    let mut stuck = connect(&server);
    fill(&mut stuck, &frame(OpCode::Binary, &[7; 1024]));
    wait_until("the idle timeout", || {
        server.handle().counters().idle_timeouts == 1
    });
    let counters = assert_settled(&server.handle());
    assert_eq!(counters.sessions_closed_by_server, 1);
}

#[test]
fn a_small_outbox_pauses_rather_than_overflows() {
    let mut config = raw_config();
    config.limits.outbox_bytes_max = 2 * 1024 * 1024;
    let server = start(config, Echo);
    let mut stuck = connect(&server);
    let message = frame(OpCode::Binary, &[7; 1024]);
    let sent = fill(&mut stuck, &message);
    for _ in 0..sent / message.len() {
        assert!(stuck.next() == Said::Binary(vec![7; 1024]));
    }
    assert_eq!(server.handle().counters().outbox_overflows, 0);
}

/// Tells of connections and of their ends.
struct Announce(Sender<Result<ConnectionKey, CloseReason>>);

impl Application for Announce {
    fn on_connect(&mut self, _context: &mut Context<'_>, peer: &Peer) {
        self.0.send(Ok(peer.connection)).expect("the test listens");
    }

    fn on_message(&mut self, _context: &mut Context<'_>, _message: Message<'_>) {}

    fn on_close(&mut self, _connection: ConnectionKey, reason: CloseReason) {
        let _ = self.0.send(Err(reason));
    }
}

type Announcements = Receiver<Result<ConnectionKey, CloseReason>>;

fn announcing(config: tidewire_engine::Config) -> (Server, Announcements) {
    let (sender, receiver) = channel();
    (
        Server::start(config, move |_| Announce(sender.clone())).expect("a free port"),
        receiver,
    )
}

#[test]
fn sends_to_a_peer_that_never_reads_overflow_its_outbox() {
    let mut config = raw_config();
    config.limits.outbox_bytes_max = 1024 * 1024;
    let (server, seen) = announcing(config);
    let _stuck = connect(&server);
    let key = seen.recv().unwrap().unwrap();
    let handle = server.handle();
    let message = Outgoing::Binary(vec![7; 64 * 1024].into());
    wait_until("an overflow", || {
        // A mailbox that is full is emptied soon.
        let _ = handle.send(key, message.clone());
        handle.counters().outbox_overflows == 1
    });
    assert_eq!(seen.recv().unwrap(), Err(CloseReason::Lost));
    assert_eq!(assert_settled(&handle).sessions_lost, 1);
    // Sends to one that is gone go nowhere, without an error.
    wait_until("an empty mailbox", || {
        handle.send(key, message.clone()).is_ok()
    });
}

#[test]
fn a_peer_that_reads_slowly_is_not_silent() {
    let mut config = raw_config();
    config.limits.idle_timeout_ms = 4_000;
    config.limits.outbox_bytes_max = 128 * 1024 * 1024;
    let (server, seen) = announcing(config);
    let mut slow = connect(&server);
    // Without this limit the kernel may buffer most of the messages for the peer (`tcp_rmem`). Then the server has nothing
    // more to send and cannot know that the peer reads.
    socket2::SockRef::from(slow.stream.tcp())
        .set_recv_buffer_size(256 * 1024)
        .expect("a socket that is open");
    let key = seen.recv().unwrap().unwrap();
    let message = Outgoing::Binary(vec![7; 1024 * 1024].into());
    for _ in 0..48 {
        wait_until("room in the mailbox", || {
            server.handle().send(key, message.clone()).is_ok()
        });
    }
    // With so much waiting for it, the server reads one more message and then nothing.
    wait_until("the pause", || {
        slow.send_text("paused by this");
        server.handle().counters().reading_pauses == 1
    });
    for number in 0..48 {
        assert!(slow.next() == Said::Binary(vec![7; 1024 * 1024]));
        // All of it lasts longer than the timeout, a message much less.
        // What the kernel holds in the end it has taken from the server long before.
        if number < 32 {
            std::thread::sleep(Duration::from_millis(150));
        }
    }
    assert_eq!(server.handle().counters().idle_timeouts, 0);
}

//! Priority lanes and chunks that many connections share.
#![allow(clippy::unwrap_used)]

use crate::common;

use common::{DEADLINE, Running, Seen, TestHandler, assert_same, dial, pattern, read_to_end};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;
use tidewire_net::{Closed, ConnectionId, Handler, Io, Shard, ShardConfig, When, bind, tls};
use tidewire_wire::envelope::Priority;

const OUTBOX_BYTES: usize = 1 << 20;
const OUTBOXES_BYTES: usize = 8 << 20;

fn server_config() -> Arc<tls::ServerConfig> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = made.signing_key.serialize_der().try_into().unwrap();
    tls::server_config_from(vec![made.cert.der().clone()], key).unwrap()
}

/// An echo server and a peer, over TLS or not.
fn pair(is_tls: bool) -> (Running, ConnectionId, Box<dyn Read + Send>) {
    pair_with(TestHandler::echo(), is_tls)
}

fn pair_with(lab: TestHandler, is_tls: bool) -> (Running, ConnectionId, Box<dyn Read + Send>) {
    let config = ShardConfig {
        outbox_bytes_max: OUTBOX_BYTES,
        ..ShardConfig::default()
    };
    let identity = is_tls.then(server_config);
    let server = Running::start(lab, "127.0.0.1:0", identity, &config);
    let stream = dial(server.address);
    let id = server.accepted();
    (server, id, peer_of(stream, is_tls))
}

/// A server with several peers that never read, and a limit for all outboxes together.
fn many(connections: usize) -> (Running, Vec<ConnectionId>, Vec<TcpStream>) {
    let config = ShardConfig {
        outboxes_bytes_max: OUTBOXES_BYTES,
        ..ShardConfig::default()
    };
    let server = Running::start(TestHandler::echo(), "127.0.0.1:0", None, &config);
    let mut peers = Vec::new();
    let mut ids = Vec::new();
    for _ in 0..connections {
        peers.push(dial(server.address));
        let id = server.accepted();
        block(&server, id);
        ids.push(id);
    }
    (server, ids, peers)
}

fn peer_of(stream: TcpStream, is_tls: bool) -> Box<dyn Read + Send> {
    if !is_tls {
        return Box::new(stream);
    }
    let config = tls::client_config(None).unwrap();
    let name = tls::server_name("localhost").unwrap();
    let client = rustls::ClientConnection::new(config, name).unwrap();
    let mut session = rustls::StreamOwned::new(client, stream);
    session.conn.complete_io(&mut session.sock).unwrap();
    Box::new(session)
}

/// A frame that says which it is: its lane, its length and bytes of both.
fn frame(priority: Priority, bytes: usize) -> Vec<u8> {
    let mut frame = vec![priority.number(); bytes.max(5)];
    frame[1..5].copy_from_slice(&(bytes.max(5) as u32).to_be_bytes());
    frame
}

fn read_frame(peer: &mut impl Read) -> Vec<u8> {
    let mut frame = vec![0; 5];
    peer.read_exact(&mut frame).unwrap();
    let bytes = u32::from_be_bytes(frame[1..5].try_into().unwrap());
    frame.resize(bytes as usize, 0);
    peer.read_exact(&mut frame[5..]).unwrap();
    let whole = frame[5..].iter().all(|byte| *byte == frame[0]);
    assert!(whole, "frames were torn apart");
    frame
}

/// Sends low frames until the socket accepts no more; returns their number.
fn block(server: &Running, id: ConnectionId) -> usize {
    server.ask(move |_, io| fill(io, id))
}

/// [`block`] in a turn that goes on: the socket may have room in a later one, though the peer does not read, because the
/// kernel gives it a larger buffer.
fn fill(io: &mut Io, id: ConnectionId) -> usize {
    let mut sent = 0;
    while !io.is_blocked(id) {
        let frame = Arc::new(frame(Priority::Low, 40_000));
        assert!(io.send_shared(id, &frame, Priority::Low, When::Now));
        sent += 1;
    }
    sent
}

#[test]
fn lanes_leave_by_priority_and_frames_stay_whole() {
    for is_tls in [false, true] {
        let (server, id, mut peer) = pair(is_tls);
        let others = [
            Priority::Background,
            Priority::Normal,
            Priority::Critical,
            Priority::Low,
            Priority::High,
        ];
        let low = server.ask(move |_, io| {
            let low = fill(io, id);
            for round in 0..100 {
                for priority in others {
                    let own = frame(priority, 10 + round);
                    io.buffer_in(id, priority).unwrap().extend(own);
                    let shared = Arc::new(frame(priority, 500 + round));
                    assert!(io.send_shared(id, &shared, priority, When::EndOfTurn));
                }
            }
            low
        });
        for _ in 0..low {
            assert_eq!(read_frame(&mut peer).len(), 40_000);
        }
        for priority in Priority::ALL.into_iter().rev() {
            for round in 0..100 {
                assert_eq!(read_frame(&mut peer), frame(priority, 10 + round));
                assert_eq!(read_frame(&mut peer), frame(priority, 500 + round));
            }
        }
        server
            .wait_for(|seen| matches!(seen, Seen::Drained(drained) if drained == id).then_some(()));
        assert!(!server.ask(move |_, io| io.is_blocked(id)));
        drop(peer);
        server.stop();
    }
}

#[test]
fn a_queue_that_leaves_at_once_is_reported_to_who_awaits_it() {
    let (server, id, mut peer) = pair(false);
    let is_drained = |seen: &Seen| matches!(seen, Seen::Drained(drained) if *drained == id);
    for is_awaited in [false, true] {
        server.ask(move |_, io| {
            io.send(id, &[7; 1_000]);
            if is_awaited {
                io.await_drained(id);
            }
            assert!(!io.is_blocked(id), "nothing has been written yet");
        });
        peer.read_exact(&mut [0; 1_000]).unwrap();
        // Nothing is queued any more, so that there is nothing to wait for.
        server.ask(move |_, io| io.await_drained(id));
    }
    server.wait_for(|seen| is_drained(&seen).then_some(()));
    drop(peer);
    server.stop();
}

#[test]
fn what_the_current_connection_has_sent_is_awaited_too() {
    let server = Running::plain(TestHandler::with_data(move |io, id, data| {
        io.send(id, data);
        io.await_drained(id);
        data.len()
    }));
    let mut peer = dial(server.address);
    let id = server.accepted();
    peer.write_all(&[7; 100]).unwrap();
    peer.read_exact(&mut [0; 100]).unwrap();
    server.wait_for(|seen| matches!(seen, Seen::Drained(drained) if drained == id).then_some(()));
    drop(peer);
    server.stop();
}

#[test]
fn a_shared_chunk_is_never_copied() {
    let (server, first, mut first_peer) = pair(false);
    let mut other_peer = dial(server.address);
    let other = server.accepted();
    let chunk = Arc::new(pattern(100_000));
    let sent = Arc::clone(&chunk);
    server.ask(move |_, io| {
        assert!(io.send_shared(first, &sent, Priority::Normal, When::Now));
        assert_eq!(io.queued_bytes(first), 0, "an idle socket takes it at once");
        assert!(io.send_shared(other, &sent, Priority::Normal, When::EndOfTurn));
        assert_eq!(io.queued_bytes(other), sent.len());
        assert_eq!(
            Arc::strong_count(&sent),
            3,
            "here, in the test and in one outbox"
        );
    });
    let mut received = vec![0; chunk.len()];
    first_peer.read_exact(&mut received).unwrap();
    assert_same(&received, &chunk);
    other_peer.read_exact(&mut received).unwrap();
    assert_same(&received, &chunk);
    server.ask(|_, _| ());
    assert_eq!(Arc::strong_count(&chunk), 1, "what has left is not kept");
    drop((first_peer, other_peer));
    server.stop();
}

#[test]
fn what_was_said_to_the_current_connection_goes_before_a_shared_chunk() {
    for when in [When::Now, When::EndOfTurn] {
        let server = Running::plain(TestHandler::with_data(move |io, id, data| {
            io.send(id, b"one ");
            let chunk = Arc::new(b"two ".to_vec());
            assert!(io.send_shared(id, &chunk, Priority::Normal, when));
            io.send(id, b"three ");
            io.buffer_in(id, Priority::Normal).unwrap().extend(b"four ");
            data.len()
        }));
        let stream = dial(server.address);
        common::check_answer(&stream, b"x", b"one two three four ");
        drop(stream);
        server.stop();
    }
}

#[test]
fn a_frame_that_left_the_cork_in_part_is_finished_first() {
    for is_tls in [false, true] {
        let mut lab = TestHandler::echo();
        lab.on_timer = Box::new(|io, id| {
            while !io.is_blocked(id) {
                let buffer = io.buffer(id).unwrap();
                buffer.extend(frame(Priority::Normal, 100_003));
            }
            let buffer = io.buffer_in(id, Priority::Critical).unwrap();
            buffer.extend(frame(Priority::Critical, 10));
            io.close(id);
        });
        let (server, id, mut peer) = pair_with(lab, is_tls);
        server.ask(move |_, io| io.set_timer(id, 0));
        let mut before = 0;
        while read_frame(&mut peer)[0] == Priority::Normal.number() {
            before += 1;
        }
        assert!(before > 1, "{before}");
        for frame in read_to_end(&mut peer).chunks(100_003) {
            assert_eq!(frame.len(), 100_003);
        }
        drop(peer);
        server.stop();
    }
}

#[test]
fn shared_chunks_count_against_the_limit() {
    for when in [When::Now, When::EndOfTurn] {
        let (server, id, _peer) = pair(false);
        let chunk = Arc::new(vec![7; 64 * 1024]);
        let sent = Arc::clone(&chunk);
        let most = server.ask(move |_, io| {
            let mut most = 0;
            while io.send_shared(id, &sent, Priority::High, when) {
                most = most.max(io.queued_bytes(id));
            }
            most
        });
        assert!((OUTBOX_BYTES / 2..=OUTBOX_BYTES).contains(&most), "{most}");
        assert!(matches!(server.closed(), Closed::OutboxOverflow));
        server.ask(|_, _| ());
        assert_eq!(Arc::strong_count(&chunk), 1);
        server.stop();
    }
}

/// All outboxes together have a limit, in which a chunk counts once for all that share it.
#[test]
fn all_outboxes_together_are_limited() {
    const CONNECTIONS: usize = 8;
    let (server, ids, _peers) = many(CONNECTIONS);
    let chunk = Arc::new(vec![7; 64 * 1024]);
    for _ in 0..OUTBOXES_BYTES / chunk.len() / 2 {
        let (chunk, ids) = (Arc::new(chunk.to_vec()), ids.clone());
        server.ask(move |_, io| {
            for id in ids {
                assert!(io.send_shared(id, &chunk, Priority::Normal, When::EndOfTurn));
            }
        });
    }
    // Eight times half of the limit, but shared.
    assert_eq!(server.ask(|_, io| io.connections()), CONNECTIONS);
    server.ask(move |_, io| {
        for id in ids {
            assert!(io.send(id, &vec![7; OUTBOXES_BYTES / 4]));
        }
    });
    assert!(matches!(server.closed(), Closed::OutboxOverflow));
    assert!(
        server.ask(|_, io| io.connections()) > 0,
        "not all have to go"
    );
    server.stop();
}

#[test]
fn the_limit_holds_for_a_socket_that_is_blocked_already() {
    let (server, id, _peer) = pair(false);
    block(&server, id);
    server.ask(move |_, io| {
        let all = vec![7; 2 * OUTBOX_BYTES];
        assert!(io.send(id, &all));
    });
    assert!(matches!(server.closed(), Closed::OutboxOverflow));
    server.stop();
}

#[test]
fn nothing_is_sent_to_a_connection_that_is_gone() {
    let (server, id, mut peer) = pair(false);
    let taken = server.ask(move |_, io| {
        let chunk = Arc::new(b"late".to_vec());
        io.close(id);
        [When::Now, When::EndOfTurn].map(|when| io.send_shared(id, &chunk, Priority::High, when))
    });
    assert_eq!(taken, [false, false]);
    assert_eq!(read_to_end(&mut peer), b"");
    drop(peer);
    server.wait_until_empty();
    let later = server.ask(move |_, io| {
        let chunk = Arc::new(b"late".to_vec());
        let taken = io.send_shared(id, &chunk, Priority::High, When::Now);
        (taken, io.is_blocked(id), io.queued_bytes(id))
    });
    assert_eq!(later, (false, false, 0));
    server.stop();
}

#[test]
fn a_close_sends_all_lanes_first() {
    for is_tls in [false, true] {
        let (server, id, mut peer) = pair(is_tls);
        let low = server.ask(move |_, io| {
            let low = fill(io, id);
            for priority in Priority::ALL {
                for _ in 0..200 {
                    let chunk = Arc::new(frame(priority, 300));
                    assert!(io.send_shared(id, &chunk, priority, When::Now));
                }
            }
            io.close(id);
            low
        });
        for _ in 0..low {
            read_frame(&mut peer);
        }
        for priority in Priority::ALL.into_iter().rev() {
            for _ in 0..200 {
                assert_eq!(read_frame(&mut peer), frame(priority, 300));
            }
        }
        assert_eq!(read_to_end(&mut peer), b"");
        drop(peer);
        server.wait_until_empty();
        server.stop();
    }
}

#[test]
fn many_small_pieces_keep_their_order() {
    for is_tls in [false, true] {
        let (server, id, mut peer) = pair(is_tls);
        let expected = pattern(300_000);
        let bytes = expected.clone();
        server.ask(move |_, io| {
            let mut bytes = &bytes[..];
            for number in 0.. {
                let length = (1 + number * 37 % 200).min(bytes.len());
                let (piece, rest) = bytes.split_at(length);
                if number % 3 == 0 {
                    assert!(io.send(id, piece));
                } else {
                    let chunk = Arc::new(piece.to_vec());
                    let when = [When::Now, When::EndOfTurn][number % 2];
                    assert!(io.send_shared(id, &chunk, Priority::Normal, when));
                }
                bytes = rest;
                if bytes.is_empty() {
                    return;
                }
            }
        });
        let mut received = vec![0; expected.len()];
        peer.read_exact(&mut received).unwrap();
        assert_same(&received, &expected);
        drop(peer);
        server.stop();
    }
}

/// Tells of its turns.
struct Turns(Sender<()>);

impl Handler for Turns {
    type Mail = ();

    fn handle_data(&mut self, _: &mut Io, _: ConnectionId, data: &mut [u8]) -> usize {
        data.len()
    }

    fn handle_close(&mut self, _: &mut Io, _: ConnectionId, _: Closed) {}

    fn handle_mail(&mut self, io: &mut Io, (): ()) {
        io.stop();
    }

    fn handle_turn(&mut self, io: &mut Io) {
        let now_ms = io.now().monotonic_ms;
        let ahead = io.instant_at(now_ms + 70) - io.instant_at(now_ms);
        assert_eq!(ahead, Duration::from_millis(70));
        assert!(io.instant_at(now_ms) <= std::time::Instant::now());
        self.0.send(()).unwrap();
    }
}

#[test]
fn a_ring_without_mail_makes_a_turn() {
    let (sender, turns) = channel();
    let (mut shard, mailbox) = Shard::new(&ShardConfig::default(), Turns(sender)).unwrap();
    let mut listeners = bind("127.0.0.1:0".parse().unwrap(), 1, 16).unwrap();
    shard.listen(listeners.remove(0), None).unwrap();
    let running = std::thread::spawn(move || shard.run().unwrap());
    turns.recv_timeout(DEADLINE).unwrap();
    for _ in 0..100 {
        // What came of the rings before has been seen, so a turn after this one is owed to it.
        while turns.try_recv().is_ok() {}
        mailbox.wake();
        turns.recv_timeout(DEADLINE).unwrap();
    }
    mailbox.send(()).unwrap();
    running.join().unwrap();
}

//! Peers that are slow, and handlers that are.
#![allow(clippy::unwrap_used)]

use crate::common;

use common::{Running, Seen, TestHandler, assert_same, check_echo, dial, pattern, read_to_end};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use tidewire_net::{Closed, ConnectionId, Io, ShardConfig};

const OUTBOX_BYTES: usize = 1 << 20;

fn small_outbox(lab: TestHandler) -> Running {
    let config = ShardConfig {
        outbox_bytes_max: OUTBOX_BYTES,
        ..ShardConfig::default()
    };
    Running::start(lab, "127.0.0.1:0", None, &config)
}

/// Hands on what arrives.
fn collector() -> (TestHandler, Receiver<Vec<u8>>) {
    let (sender, receiver) = channel();
    let lab = TestHandler::with_data(move |_, _, data| {
        sender.send(data.to_vec()).unwrap();
        data.len()
    });
    (lab, receiver)
}

fn all(received: &Receiver<Vec<u8>>) -> Vec<u8> {
    received.try_iter().flatten().collect()
}

/// Writes until TCP accepts no more, also after turns of the shard; returns the number of bytes.
fn fill(server: &Running, stream: &TcpStream, bytes: &[u8]) -> usize {
    stream.set_nonblocking(true).unwrap();
    let mut writer = stream;
    let mut taken = 0;
    let mut refusals = 0;
    while refusals < 20 {
        match writer.write(&bytes[taken..]) {
            Ok(more) => {
                taken += more;
                refusals = 0;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => refusals += 1,
            Err(error) => panic!("{error}"),
        }
        assert!(taken < bytes.len(), "nobody holds the sender back");
        server.ask(|_, _| ());
    }
    stream.set_nonblocking(false).unwrap();
    taken
}

#[test]
fn a_peer_that_never_reads_ends_at_the_limit() {
    let server = small_outbox(TestHandler::echo());
    let stream = dial(server.address);
    let other = dial(server.address);
    let id = server.accepted();
    let chunk = Arc::new(vec![7; 64 * 1024]);
    let mut most = 0;
    loop {
        let chunk = Arc::clone(&chunk);
        let (sent, queued) = server.ask(move |_, io| (io.send(id, &chunk), io.queued_bytes(id)));
        most = most.max(queued);
        if !sent {
            break;
        }
    }
    assert!(
        (OUTBOX_BYTES / 2..=OUTBOX_BYTES + chunk.len()).contains(&most),
        "{most}"
    );
    assert!(matches!(server.closed(), Closed::OutboxOverflow));
    check_echo(&other, &pattern(10_000));
    drop(stream);
    server.stop();
}

#[test]
fn one_call_cannot_queue_without_limit() {
    for from_own_call in [false, true] {
        let chunk = vec![7; 64 * 1024];
        let (sender, receiver) = channel();
        let flood = move |io: &mut Io, id: ConnectionId| {
            let taken = (0..16_000).take_while(|_| io.send(id, &chunk)).count();
            sender.send(taken).unwrap();
        };
        let mut lab = TestHandler::echo();
        if from_own_call {
            lab.on_accept = Box::new(flood.clone());
        }
        let server = small_outbox(lab);
        let _stream = dial(server.address);
        let id = server.accepted();
        if !from_own_call {
            server.ask(move |_, io| flood(io, id));
        }
        let taken = receiver.recv_timeout(common::DEADLINE).unwrap();
        // A gigabyte was offered; the outbox and the buffers of the kernel hold some megabytes.
        assert!(taken < 1_000, "{taken}");
        assert!(matches!(server.closed(), Closed::OutboxOverflow));
        server.stop();
    }
}

#[test]
fn a_paused_sender_is_blocked_and_loses_nothing() {
    let (mut lab, received) = collector();
    lab.on_accept = Box::new(|io, id| io.pause_reading(id));
    let server = Running::plain(lab);
    let stream = dial(server.address);
    let id = server.accepted();
    let sent = pattern(32 << 20);
    let taken = fill(&server, &stream, &sent);
    assert_eq!(all(&received).len(), 0);
    server.ask(move |_, io| io.resume_reading(id));
    let mut writer = &stream;
    writer.write_all(&sent[taken..]).unwrap();
    drop(stream);
    assert!(matches!(server.closed(), Closed::ByPeer));
    assert_same(&all(&received), &sent);
    server.stop();
}

#[test]
fn may_read_blocks_the_sender_as_well() {
    let (mut lab, received) = collector();
    let open = Arc::new(AtomicBool::new(true));
    let gate = Arc::clone(&open);
    lab.may_read = Box::new(move |_| gate.load(Ordering::Relaxed));
    let server = Running::plain(lab);
    let stream = dial(server.address);
    let id = server.accepted();
    let mut sent = pattern(64 << 20);
    let mut taken = 0;
    for _ in 0..3 {
        server.ask({
            let open = Arc::clone(&open);
            move |_, _| open.store(false, Ordering::Relaxed)
        });
        let before = taken;
        taken += fill(&server, &stream, &sent[taken..]);
        assert!(all(&received).is_empty());
        server.ask({
            let open = Arc::clone(&open);
            move |_, io| {
                open.store(true, Ordering::Relaxed);
                io.resume_reading(id);
            }
        });
        let mut got = Vec::new();
        while got.len() < taken - before {
            got.extend(received.recv_timeout(common::DEADLINE).unwrap());
        }
        assert_same(&got, &sent[before..taken]);
    }
    sent.truncate(taken);
    drop(stream);
    assert!(matches!(server.closed(), Closed::ByPeer));
    server.stop();
}

#[test]
fn what_came_before_the_end_is_read_after_a_pause() {
    for bytes in [0, 1, 100_000, 600_000] {
        let (mut lab, received) = collector();
        lab.on_accept = Box::new(|io, id| io.pause_reading(id));
        let server = Running::plain(lab);
        let mut stream = dial(server.address);
        let id = server.accepted();
        let sent = pattern(bytes);
        let paused_writer = {
            let sent = sent.clone();
            std::thread::spawn(move || {
                stream.write_all(&sent).unwrap();
                stream.shutdown(Shutdown::Write).unwrap();
                stream
            })
        };
        // Most sizes fit the kernel's buffers, so that data and end come in one report.
        if bytes <= 100_000 {
            while !paused_writer.is_finished() {
                server.ask(|_, _| ());
            }
        }
        let_turns_pass(&server);
        assert!(
            server
                .rest()
                .iter()
                .all(|seen| !matches!(seen, Seen::Close(..)))
        );
        server.ask(move |_, io| io.resume_reading(id));
        assert!(matches!(server.closed(), Closed::ByPeer));
        assert_same(&all(&received), &sent);
        paused_writer.join().unwrap();
        server.stop();
    }
}

/// The shard has seen what came before this.
fn let_turns_pass(server: &Running) {
    for _ in 0..3 {
        server.ask(|_, _| ());
    }
}

#[test]
fn pausing_in_the_middle_of_the_data_loses_nothing() {
    let (sender, received) = channel();
    let mut lab = TestHandler::with_data(move |io, id, data| {
        // The most that can be taken now; the rest, up to the whole read buffer, waits.
        let used = data.len().min(30_000);
        sender.send(data[..used].to_vec()).unwrap();
        io.pause_reading(id);
        io.set_timer(id, 0);
        used
    });
    lab.on_timer = Box::new(|io, id| io.resume_reading(id));
    let server = Running::plain(lab);
    let mut stream = dial(server.address);
    let sent = pattern(2 << 20);
    stream.write_all(&sent).unwrap();
    drop(stream);
    assert!(matches!(server.closed(), Closed::ByPeer));
    assert_same(&all(&received), &sent);
    server.stop();
}

#[test]
fn what_was_left_at_a_pause_comes_again_although_nothing_follows() {
    let (sender, received) = channel();
    let server = Running::plain(TestHandler::with_data(move |io, id, data| {
        sender.send(data.to_vec()).unwrap();
        io.pause_reading(id);
        data.len() / 2
    }));
    let mut stream = dial(server.address);
    stream.write_all(b"12345678").unwrap();
    let id = server.accepted();
    for expected in [b"12345678".as_slice(), b"5678", b"78", b"8"] {
        assert_eq!(received.recv_timeout(common::DEADLINE).unwrap(), expected);
        server.ask(move |_, io| io.resume_reading(id));
    }
    server.stop();
}

#[test]
fn a_pause_while_connecting_reads_nothing_before_its_end() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (lab, received) = collector();
    let client = Running::plain(lab);
    let id = client.ask(move |_, io| {
        let id = io
            .connect(tidewire_net::Connect {
                address: address.into(),
                source: None,
                tls: None,
                usage: tidewire_net::Usage::Any,
            })
            .unwrap();
        io.pause_reading(id);
        id
    });
    let (mut stream, _) = listener.accept().unwrap();
    stream.write_all(b"early").unwrap();
    drop(stream);
    assert_eq!(client.connected(), id);
    let_turns_pass(&client);
    assert!(all(&received).is_empty());
    client.ask(move |_, io| io.resume_reading(id));
    assert!(matches!(client.closed(), Closed::ByPeer));
    assert_eq!(all(&received), b"early");
    client.stop();
}

#[test]
fn write_now_moves_much_without_queueing() {
    const CHUNK: usize = 1 << 20;
    const TOTAL: usize = 64 << 20;
    let chunk = Arc::new(pattern(CHUNK));
    let source = Arc::clone(&chunk);
    let mut sent = 0;
    let mut lab = TestHandler::with_data(|_, _, data| data.len());
    lab.on_drained = Box::new(move |io, id| {
        while sent < TOTAL {
            let bytes = &source[sent % CHUNK..];
            let taken = io.write_now(id, bytes);
            assert_eq!(io.queued_bytes(id), 0);
            sent += taken;
            if taken < bytes.len() {
                return;
            }
        }
        io.close(id);
    });
    let server = Running::plain(lab);
    let mut stream = dial(server.address);
    let id = server.accepted();
    server.ask(move |lab, io| (lab.on_drained)(io, id));
    let mut part = vec![0; CHUNK];
    for _ in 0..TOTAL / CHUNK {
        stream.read_exact(&mut part).unwrap();
        assert_same(&part, &chunk);
    }
    assert_eq!(stream.read(&mut part).unwrap(), 0);
    drop(stream);
    server.wait_until_empty();
    server.stop();
}

#[test]
fn write_now_follows_what_was_queued() {
    let server = Running::plain(TestHandler::with_data(|io, id, data| {
        assert!(io.send(id, b"queued "));
        assert_eq!(io.write_now(id, b"direct"), 6);
        data.len()
    }));
    let mut stream = dial(server.address);
    let id = server.accepted();
    server.ask(move |_, io| {
        assert!(io.send(id, b"queued "));
        assert_eq!(io.write_now(id, b"direct"), 6);
    });
    stream.write_all(b"x").unwrap();
    let mut received = [0; 26];
    stream.read_exact(&mut received).unwrap();
    assert_eq!(&received, b"queued directqueued direct");
    server.stop();
}

#[test]
fn a_close_sends_what_is_queued_first() {
    let last = Arc::new(pattern(12 << 20));
    for (peer_sends, peer_ends) in [(0, false), (1_000_000, false), (1_000, true), (0, true)] {
        let mut lab = TestHandler::echo();
        lab.on_accept = Box::new(|io, id| io.pause_reading(id));
        let server = Running::plain(lab);
        let mut stream = dial(server.address);
        let id = server.accepted();
        let mut writer = stream.try_clone().unwrap();
        let peer = std::thread::spawn(move || {
            writer.write_all(&pattern(peer_sends)).unwrap();
            if peer_ends {
                writer.shutdown(Shutdown::Write).unwrap();
            }
        });
        let bytes = Arc::clone(&last);
        server.ask(move |_, io| {
            assert!(io.send(id, &bytes));
            io.close(id);
            assert!(!io.send(id, b"too late"));
        });
        assert!(matches!(server.closed(), Closed::ByUs));
        peer.join().unwrap();
        assert_same(&read_to_end(&mut stream), &last);
        drop(stream);
        server.wait_until_empty();
        server.stop();
    }
}

#[test]
fn the_last_words_reach_a_peer_that_is_still_talking() {
    let server = Running::plain(TestHandler::with_data(|io, id, data| {
        io.send(id, b"enough");
        io.close(id);
        data.len()
    }));
    for _ in 0..20 {
        let mut stream = dial(server.address);
        let mut writer = stream.try_clone().unwrap();
        let talker = std::thread::spawn(move || {
            writer.write_all(&pattern(4 << 20)).unwrap();
        });
        assert_eq!(read_to_end(&mut stream), b"enough");
        talker.join().unwrap();
        assert!(matches!(server.closed(), Closed::ByUs));
    }
    server.wait_until_empty();
    server.stop();
}

#[test]
fn a_blocked_echo_goes_on_when_its_peer_reads() {
    let server = Running::plain(TestHandler::echo());
    let stream = dial(server.address);
    let sent = pattern(8 << 20);
    let mut writer = &stream;
    writer.write_all(&sent).unwrap();
    // All of it is on its way back, and most of it in the outbox.
    let mut received = vec![0; sent.len()];
    let mut reader = &stream;
    reader.read_exact(&mut received).unwrap();
    assert_same(&received, &sent);
    check_echo(&stream, b"and once more");
    server.stop();
}

/// A sender that finds a paused reader fills the receive buffer and its own send buffer, so the difference shows the
/// receive buffer.
#[test]
fn a_fast_sender_gets_a_larger_receive_buffer_within_the_limit() {
    let taken_with = |receive_buffer_bytes_max| {
        let config = ShardConfig {
            receive_buffer_bytes_max,
            ..ShardConfig::default()
        };
        let (lab, received) = collector();
        let server = Running::start(lab, "127.0.0.1:0", None, &config);
        let stream = dial(server.address);
        socket2::SockRef::from(&stream)
            .set_send_buffer_size(SEND_BUFFER_BYTES)
            .unwrap();
        let id = server.accepted();
        let sent = pattern(32 << 20);
        let first = 1 << 20;
        (&stream).write_all(&sent[..first]).unwrap();
        let mut arrived = Vec::new();
        while arrived.len() < first {
            arrived.extend(received.recv().unwrap());
        }
        server.ask(move |_, io: &mut Io| io.pause_reading(id));
        let taken = fill(&server, &stream, &sent[first..]);
        server.ask(move |_, io: &mut Io| io.resume_reading(id));
        while arrived.len() < first + taken {
            arrived.extend(received.recv().unwrap());
        }
        assert_same(&arrived, &sent[..first + taken]);
        drop(stream);
        server.stop();
        taken
    };
    let (small, large) = (taken_with(1 << 20), taken_with(4 << 20));
    // What a system allows that caps buffers below that is the same for both.
    if large_buffers_are_allowed() {
        assert!(large > small + (1 << 20), "{small} and {large}");
    }
    assert!(large < 16 << 20, "{large}");
}

fn large_buffers_are_allowed() -> bool {
    let maximum = std::fs::read_to_string("/proc/sys/net/core/rmem_max");
    maximum.is_ok_and(|text| {
        text.trim()
            .parse()
            .is_ok_and(|bytes: usize| bytes >= 4 << 20)
    })
}

const SEND_BUFFER_BYTES: usize = 64 * 1024;

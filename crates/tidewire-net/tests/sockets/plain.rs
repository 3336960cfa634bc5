//! Bytes over plain TCP, both sides.
#![allow(clippy::unwrap_used)]

use crate::common;

use common::{Running, Seen, TestHandler, assert_same, check_echo, dial, pattern, read_to_end};
use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener};
use std::sync::mpsc::channel;
use tidewire_net::{Closed, Connect, ShardConfig, Usage, bind};

fn to(address: SocketAddr) -> Connect {
    Connect {
        address: address.into(),
        source: None,
        tls: None,
        usage: Usage::Any,
    }
}

#[test]
fn everything_comes_back_over_both_families() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let server = Running::start(TestHandler::echo(), address, None, &ShardConfig::default());
        let stream = dial(server.address);
        for bytes in [
            1,
            2,
            175,
            4096,
            65_536,
            65_537,
            524_288,
            524_289,
            1 << 20,
            8 << 20,
        ] {
            check_echo(&stream, &pattern(bytes));
        }
        drop(stream);
        assert!(matches!(server.closed(), Closed::ByPeer));
        server.stop();
    }
}

#[test]
fn single_bytes_arrive_in_order() {
    let (sender, receiver) = channel();
    let server = Running::plain(TestHandler::with_data(move |_, _, data| {
        sender.send(data.to_vec()).unwrap();
        data.len()
    }));
    let mut stream = dial(server.address);
    let sent = pattern(500);
    for byte in &sent {
        stream.write_all(&[*byte]).unwrap();
    }
    drop(stream);
    assert!(matches!(server.closed(), Closed::ByPeer));
    server.stop();
    assert_same(&receiver.iter().flatten().collect::<Vec<_>>(), &sent);
}

#[test]
fn unused_bytes_come_back_in_front() {
    let (sender, receiver) = channel();
    let server = Running::plain(TestHandler::with_data(move |_, _, data| {
        sender.send(data.to_vec()).unwrap();
        data.len() / 10 * 10
    }));
    let mut stream = dial(server.address);
    let mut calls = Vec::new();
    for part in [b"0123456".as_slice(), b"789abcd", b"efghijKL", b"M"] {
        stream.write_all(part).unwrap();
        calls.push(receiver.recv_timeout(common::DEADLINE).unwrap());
    }
    let expected: [&[u8]; 4] = [b"0123456", b"0123456789abcd", b"abcdefghijKL", b"KLM"];
    assert_eq!(calls, expected);
    server.stop();
}

#[test]
fn a_handler_that_hoards_loses_the_connection() {
    let server = Running::plain(TestHandler::with_data(|_, _, _| 0));
    let stream = dial(server.address);
    let writer = std::thread::spawn(move || {
        let mut stream = stream;
        let _ = stream.write_all(&pattern(4 << 20));
    });
    assert!(matches!(server.closed(), Closed::ByUs));
    writer.join().unwrap();
    server.stop();
}

#[test]
fn a_connection_is_made_from_the_chosen_address() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let client = Running::plain(TestHandler::echo());
    for last in [1, 5, 77] {
        let source = IpAddr::from([127, 0, 0, last]);
        let connect = Connect {
            source: Some(source),
            ..to(address)
        };
        let id = client.ask(move |_, io| io.connect(connect)).unwrap();
        let (stream, peer) = listener.accept().unwrap();
        assert_eq!(peer.ip(), source);
        assert_eq!(client.connected(), id);
        assert_eq!(client.ask(move |_, io| io.peer_address(id)), Some(address));
        check_echo(&common::with_deadline(stream), &pattern(300_000));
        assert!(matches!(client.closed(), Closed::ByPeer));
    }
    let foreign = Connect {
        source: Some(IpAddr::from([192, 0, 2, 1])),
        ..to(address)
    };
    assert!(client.ask(move |_, io| io.connect(foreign).is_err()));
    client.stop();
}

/// Also where the client was expected to write first, and does not.
#[test]
fn every_use_of_a_connection_carries_bytes_both_ways() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let client = Running::plain(TestHandler::echo());
    for usage in [Usage::Any, Usage::WritesFirst, Usage::WritesOnce] {
        let connect = Connect {
            usage,
            ..to(address)
        };
        let id = client.ask(move |_, io| io.connect(connect)).unwrap();
        assert_eq!(client.connected(), id);
        let (stream, _) = listener.accept().unwrap();
        check_echo(&common::with_deadline(stream), &pattern(300_000));
        assert!(matches!(client.closed(), Closed::ByPeer));
    }
    client.stop();
}

#[test]
fn a_peer_that_speaks_first_and_ends_is_heard() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, receiver) = channel();
    let client = Running::plain(TestHandler::with_data(move |_, _, data| {
        sender.send(data.to_vec()).unwrap();
        data.len()
    }));
    let peer = std::thread::spawn(move || {
        for _ in 0..200 {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(b"hello").unwrap();
        }
    });
    for _ in 0..200 {
        client.ask(move |_, io| io.connect(to(address))).unwrap();
    }
    for _ in 0..200 {
        assert!(matches!(client.closed(), Closed::ByPeer));
    }
    peer.join().unwrap();
    assert_eq!(client.stop().connected, 200);
    assert_eq!(receiver.iter().flatten().count(), 200 * 5);
}

#[test]
fn shards_talk_to_each_other() {
    const CONNECTIONS: usize = 100;
    const ROUNDS: usize = 50;
    let server = Running::plain(TestHandler::echo());
    let mut rounds = vec![0; CONNECTIONS];
    let mut lab = TestHandler::with_data(move |io, id, data| {
        if data.len() < 175 {
            return 0;
        }
        assert_eq!(data.len(), 175);
        rounds[id.index()] += 1;
        if rounds[id.index()] == ROUNDS {
            io.close(id);
        } else {
            io.send(id, data);
        }
        data.len()
    });
    lab.on_connect = Box::new(|io, id| assert!(io.send(id, &[b'x'; 175])));
    let client = Running::plain(lab);
    let address = server.address;
    client.ask(move |_, io| {
        for _ in 0..CONNECTIONS {
            io.connect(to(address)).unwrap();
        }
    });
    for _ in 0..CONNECTIONS {
        assert!(matches!(client.closed(), Closed::ByUs));
        assert!(matches!(server.closed(), Closed::ByPeer));
    }
    client.wait_until_empty();
    server.wait_until_empty();
    assert_eq!(client.stop().connected, CONNECTIONS);
    assert_eq!(server.stop().accepted, CONNECTIONS);
}

#[test]
fn a_refused_connection_was_never_connected() {
    let address = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let client = Running::plain(TestHandler::echo());
    for _ in 0..20 {
        let id = client.ask(move |_, io| io.connect(to(address))).unwrap();
        let (closed, why) = client.wait_for(|seen| {
            if let Seen::Close(id, why) = seen {
                Some((id, why))
            } else {
                None
            }
        });
        assert_eq!(closed, id);
        let Closed::NotConnected(error) = why else {
            panic!("{why:?}")
        };
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
    }
    let lab = client.stop();
    assert_eq!((lab.connected, lab.gone.len()), (0, 20));
}

#[test]
fn a_peer_that_has_ended_still_gets_its_answer() {
    // The buffers of the kernel hold some 10 MB, so most of the largest is in the outbox at the end.
    let config = ShardConfig {
        outbox_bytes_max: 64 << 20,
        ..ShardConfig::default()
    };
    let server = Running::start(TestHandler::echo(), "127.0.0.1:0", None, &config);
    for bytes in [1, 100_000, 40 << 20] {
        let sent = pattern(bytes);
        let stream = dial(server.address);
        let mut reader = stream.try_clone().unwrap();
        let writer = std::thread::spawn({
            let sent = sent.clone();
            move || {
                let mut stream = stream;
                stream.write_all(&sent).unwrap();
                stream.shutdown(Shutdown::Write).unwrap();
            }
        });
        writer.join().unwrap();
        assert_same(&read_to_end(&mut reader), &sent);
        assert!(matches!(server.closed(), Closed::ByPeer));
    }
    server.wait_until_empty();
    server.stop();
}

#[test]
fn a_reset_ends_the_connection_once() {
    let server = Running::plain(TestHandler::with_data(|_, _, data| data.len()));
    for _ in 0..50 {
        let mut stream = dial(server.address);
        stream.write_all(b"x").unwrap();
        server.wait_for(|seen| matches!(seen, Seen::Data(..)).then_some(()));
        let socket = socket2::Socket::from(stream);
        socket.set_linger(Some(std::time::Duration::ZERO)).unwrap();
        drop(socket);
        let why = server.closed();
        assert!(matches!(why, Closed::Failed(_)), "{why:?}");
    }
    assert_eq!(server.stop().gone.len(), 50);
}

#[test]
fn shards_share_a_port() {
    let listeners = bind("127.0.0.1:0".parse().unwrap(), 2, 1024).unwrap();
    let shards: Vec<_> = listeners
        .into_iter()
        .map(|listener| {
            Running::start_on(TestHandler::echo(), listener, None, &ShardConfig::default())
        })
        .collect();
    let streams: Vec<_> = (0..200).map(|_| dial(shards[0].address)).collect();
    for mut stream in &streams {
        stream.write_all(b"x").unwrap();
        stream.read_exact(&mut [0]).unwrap();
    }
    let accepted: Vec<_> = shards
        .into_iter()
        .map(|shard| shard.stop().accepted)
        .collect();
    assert_eq!(accepted.iter().sum::<usize>(), 200);
    // That one of two gets nothing of 200 has a probability of 2^-199.
    assert!(
        accepted.iter().all(|accepted| *accepted > 0),
        "{accepted:?}"
    );
}

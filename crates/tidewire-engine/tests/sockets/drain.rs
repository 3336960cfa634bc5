//! Ends of a server: a drain, in which nothing is lost, or an immediate stop.

use crate::common;

use common::{
    Client, Opening, Said, answer, assert_settled, config, connect, connect_v1, frame, raw_config,
    start, status, tcp, text_frame, wait_until,
};
use serde_json::json;
use std::collections::HashSet;
use std::io::Write;
use std::time::Duration;
use tidewire_engine::apps::{Echo, Sink};
use tidewire_engine::{Config, StartError};
use tidewire_wire::close::CloseCode;
use tidewire_wire::frame::OpCode;

#[test]
fn a_drain_sends_everybody_elsewhere_and_loses_nothing() {
    let ops_listen = Some("127.0.0.1:0".parse().unwrap());
    let server = start(
        Config {
            ops_listen,
            shards: 2,
            ..config()
        },
        Echo,
    );
    let (address, ops, handle) = (
        server.address(),
        server.ops_address().unwrap(),
        server.handle(),
    );
    let ready = move || {
        status(&answer(
            ops,
            "GET /ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        ))
    };
    assert_eq!(ready(), 200);
    let mut clients: Vec<_> = (0..6).map(|_| connect_v1(&server)).collect();
    let mut opening = tcp(address);
    opening.write_all(b"GET /ws HTTP/1.1\r\n").unwrap();
    wait_until("half a handshake", || {
        handle.counters().handshakes_in_progress == 1
    });

    let drain = std::thread::spawn(move || server.drain(Duration::from_secs(30)));
    for client in &mut clients {
        assert_sent_away(client);
    }
    assert!(handle.is_draining());
    assert_eq!(ready(), 503);
    let (status, said) = Opening::new(address).refused();
    assert_eq!(status, 503);
    assert!(said.contains("\r\nRetry-After: "), "{said}");
    // Sent after the close was, but before it is answered.
    for client in &mut clients {
        client.send_bytes(&[text_frame(r#"{"t":"late"}"#), frame(OpCode::Ping, b"")].concat());
        client.send_close(CloseCode::DRAINING);
        // Nothing may follow a close, so that neither is answered.
        assert_eq!(client.next(), Said::End);
    }
    assert_eq!(drain.join().unwrap(), 0);
    let counters = handle.counters();
    assert_eq!(
        (counters.messages_delivered, counters.drained_connections),
        (6, 6)
    );
    assert_eq!(
        (
            counters.sessions_closed_by_server,
            counters.handshakes_in_progress
        ),
        (6, 0)
    );
    assert!(std::net::TcpStream::connect(address).is_err());
}

/// The client receives a time to reconnect, and is closed.
#[track_caller]
fn assert_sent_away(client: &mut Client) -> u64 {
    let told = client.next_json();
    assert_eq!(told["t"], "reconnect", "{told}");
    assert!(matches!(client.next(), Said::Close(Some(4300), _)));
    told["p"]["after_ms"].as_u64().expect("a number")
}

#[test]
fn clients_are_told_different_times_to_come_back() {
    let mut config = config();
    config.drain.reconnect_spread_ms = 1_000_000;
    let server = start(config, Echo);
    let mut clients: Vec<_> = (0..50).map(|_| connect_v1(&server)).collect();
    server.handle().start_drain();
    let mut times_ms: Vec<_> = clients.iter_mut().map(assert_sent_away).collect();
    times_ms.sort_unstable();
    assert!(times_ms.iter().all(|after_ms| *after_ms <= 1_000_000));
    // Each quarter has some of them, but for one seed in some hundred thousand.
    let quarters: HashSet<_> = times_ms.iter().map(|after_ms| after_ms / 250_001).collect();
    assert_eq!(quarters.len(), 4, "{times_ms:?}");
}

#[test]
fn nobody_is_told_anything_if_there_is_no_spread() {
    let mut config = config();
    config.drain.reconnect_spread_ms = 0;
    let server = start(config, Echo);
    let mut client = connect_v1(&server);
    server.handle().start_drain();
    assert!(matches!(client.next(), Said::Close(Some(4300), _)));
}

#[test]
fn many_leave_one_after_the_other_and_are_served_until_then() {
    let mut config = config();
    config.drain.rate_per_s = 1;
    let server = start(config, Echo);
    let mut clients: Vec<_> = (0..120).map(|_| connect_v1(&server)).collect();
    server.handle().start_drain();
    assert_sent_away(&mut clients[0]);
    // Two minutes before its turn.
    assert_eq!(clients[119].ask(&json!({"t": "echo"}))["t"], "echo");
    assert_eq!(Opening::new(server.address()).refused().0, 503);
    assert_sent_away(&mut clients[1]);
    assert!(server.handle().counters().drained_connections < 120);
    server.stop();
}

#[test]
fn without_a_rate_a_hundred_leave_at_once_and_the_others_over_half_the_time() {
    let server = start(config(), Echo);
    let handle = server.handle();
    let mut clients: Vec<_> = (0..102).map(|_| connect_v1(&server)).collect();
    // One every ten minutes after the first hundred.
    let drain = std::thread::spawn(move || server.drain(Duration::from_secs(2_400)));
    for client in &mut clients[..100] {
        assert_sent_away(client);
    }
    for client in &mut clients[100..] {
        assert_eq!(client.ask(&json!({"t": "echo"}))["t"], "echo");
    }
    assert_eq!(handle.counters().drained_connections, 100);
    drop(clients);
    assert_eq!(drain.join().unwrap(), 0);
}

#[test]
fn a_peer_that_does_not_answer_the_close_is_cut() {
    let mut config = raw_config();
    config.limits.close_timeout_ms = 50;
    let server = start(config, Echo);
    let handle = server.handle();
    let mut client = connect(&server);
    handle.start_drain();
    assert!(matches!(client.next(), Said::Close(Some(4300), _)));
    assert!(matches!(client.next(), Said::End | Said::Reset));
    assert_eq!(assert_settled(&handle).sessions_closed_by_server, 1);
    assert_eq!(server.drain(Duration::from_secs(30)), 0);
}

#[test]
fn a_drain_that_runs_out_of_time_says_how_many_are_left() {
    let server = start(raw_config(), Sink);
    let clients: Vec<_> = (0..3).map(|_| connect(&server)).collect();
    assert_eq!(server.drain(Duration::from_millis(100)), 3);
    drop(clients);
}

#[test]
fn a_stop_while_busy_ends_at_once() {
    let server = start(
        Config {
            shards: 2,
            ..raw_config()
        },
        Echo,
    );
    let handle = server.handle();
    let senders: Vec<_> = (0..4)
        .map(|_| {
            let mut client = connect(&server);
            std::thread::spawn(move || {
                let bytes = text_frame("busy").repeat(1000);
                while client.stream.write_all(&bytes).is_ok() {
                    for _ in 0..1000 {
                        // A stop waits only so long for peers to end, so that it may cut them.
                        if matches!(client.next(), Said::End | Said::Reset) {
                            return;
                        }
                    }
                }
            })
        })
        .collect();
    wait_until("it is busy", || {
        handle.counters().messages_received > 10_000
    });
    server.stop();
    for sender in senders {
        sender.join().unwrap();
    }
    assert_eq!(
        (handle.connections(), handle.counters().connections_open),
        (0, 0)
    );
}

#[test]
fn a_stopped_server_gives_its_address_back() {
    let again = Config {
        listen: tidewire_testkit::ports::free_address(),
        ..config()
    };
    let server = start(again, Echo);
    let taken = Config {
        listen: server.address(),
        ..config()
    };
    let error = tidewire_engine::Server::start(taken.clone(), |_| Echo).unwrap_err();
    assert!(matches!(error, StartError::Listen { .. }), "{error}");
    assert!(
        error.to_string().contains(&taken.listen.to_string()),
        "{error}"
    );
    // The same for the operations listener; the server does not start without it.
    let ops_taken = Config {
        ops_listen: Some(server.address()),
        ..config()
    };
    let error = tidewire_engine::Server::start(ops_taken, |_| Echo).unwrap_err();
    assert!(matches!(error, StartError::Listen { address, .. } if address == server.address()));
    server.stop();
    let mut client = connect_v1(&start(taken, Echo));
    // The server is gone with the end of the line above.
    assert_eq!(client.next(), Said::End);
}

#[test]
fn health_tells_of_the_drain() {
    let server = start(config(), Echo);
    let mut client = connect_v1(&server);
    assert_eq!(
        client.ask(&json!({"t": "health_check"}))["p"]["status"],
        "healthy"
    );
    server.handle().start_drain();
    server.handle().start_drain();
    assert_sent_away(&mut client);
    client.send_close(CloseCode::DRAINING);
    assert_eq!(client.next(), Said::End);
    assert_eq!(assert_settled(&server.handle()).drained_connections, 1);
}

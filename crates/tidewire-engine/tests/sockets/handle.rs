//! Handle: calls of applications and other threads for the sessions of a running server.

use crate::common;

use common::{
    Opening, SECRET, Said, answer, assert_settled, close_frame, config, connect, connect_v1,
    raw_config, start, status, text_frame, token, wait_until,
};
use serde_json::{Value, json};
use std::sync::mpsc::{Receiver, Sender, channel};
use tidewire_engine::apps::Echo;
use tidewire_engine::auth::{AuthConfig, KeyMaterial};
use tidewire_engine::{
    Application, CloseReason, Config, ConnectionKey, Context, Message, Outgoing, Peer, SendError,
    Server,
};
use tidewire_wire::close::CloseCode;

/// The events of an application.
#[derive(Debug, PartialEq)]
enum Told {
    Connect(Peer),
    Message(Vec<u8>),
    Close(ConnectionKey, CloseReason),
}

/// Tells the test everything; greets, and does what messages ask for.
#[derive(Clone)]
struct Scripted {
    tell: Sender<Told>,
    close_at_once: bool,
}

impl Application for Scripted {
    fn on_connect(&mut self, context: &mut Context<'_>, peer: &Peer) {
        self.tell
            .send(Told::Connect(peer.clone()))
            .expect("the test listens");
        context.send_text("welcome");
        if self.close_at_once {
            context.close(CloseCode::FORBIDDEN, "not you");
        }
    }

    fn on_message(&mut self, context: &mut Context<'_>, message: Message<'_>) {
        self.tell
            .send(Told::Message(message.bytes.to_vec()))
            .expect("the test listens");
        if message.bytes == b"close me" {
            context.send_binary(b"as you like");
            context.close(CloseCode::POLICY_VIOLATION, "asked for");
        } else {
            context.send(message);
        }
    }

    fn on_close(&mut self, connection: ConnectionKey, reason: CloseReason) {
        let _ = self.tell.send(Told::Close(connection, reason));
    }
}

fn scripted(config: Config, close_at_once: bool) -> (Server, Receiver<Told>) {
    let (tell, told) = channel();
    (
        start(
            config,
            Scripted {
                tell,
                close_at_once,
            },
        ),
        told,
    )
}

#[track_caller]
fn connected(told: &Receiver<Told>) -> Peer {
    loop {
        match told.recv().expect("the server runs") {
            Told::Connect(peer) => return peer,
            // Of one before.
            Told::Close(..) => {}
            other @ Told::Message(_) => panic!("{other:?}"),
        }
    }
}

#[test]
fn the_application_is_told_everything_once_and_in_order() {
    let auth = Some(AuthConfig::new(KeyMaterial::Hs256(SECRET.to_vec())));
    let (server, told) = scripted(
        Config {
            auth,
            ..raw_config()
        },
        false,
    );
    let opening = Opening::new(server.address()).header(
        "Authorization",
        format!("Bearer {}", token(json!({"sub": "ana"}))),
    );
    let mut client = opening.open();
    let peer = connected(&told);
    assert_eq!(peer.user.as_deref(), Some("ana"));
    assert_eq!(
        peer.address,
        Some(client.stream.tcp().local_addr().unwrap())
    );
    client.send_bytes(&[text_frame("one"), text_frame("two"), close_frame(None)].concat());
    assert_eq!(told.recv().unwrap(), Told::Message(b"one".to_vec()));
    assert_eq!(told.recv().unwrap(), Told::Message(b"two".to_vec()));
    assert_eq!(
        told.recv().unwrap(),
        Told::Close(peer.connection, CloseReason::ByPeer(None))
    );
    drop(server);
    assert!(told.recv().is_err(), "nothing more");
}

#[test]
fn an_application_can_end_a_session_in_any_call() {
    let (server, told) = scripted(raw_config(), true);
    let mut client = connect(&server);
    assert_eq!(client.next_text(), "welcome");
    assert_eq!(client.next(), Said::Close(Some(4403), "not you".to_owned()));
    client.send_bytes(&[text_frame("too late"), close_frame(None)].concat());
    assert_eq!(client.next(), Said::End);
    let peer = connected(&told);
    assert_eq!(told.recv().unwrap(), Told::Message(b"too late".to_vec()));
    let ended = CloseReason::ByUs(CloseCode::FORBIDDEN);
    assert_eq!(told.recv().unwrap(), Told::Close(peer.connection, ended));

    let (server, _told) = scripted(raw_config(), false);
    let mut client = connect(&server);
    assert_eq!(client.next_text(), "welcome");
    client.send_bytes(&[text_frame("close me"), text_frame("x")].concat());
    assert_eq!(client.next(), Said::Binary(b"as you like".to_vec()));
    assert_eq!(
        client.next(),
        Said::Close(Some(1008), "asked for".to_owned())
    );
    client.send_close(CloseCode::POLICY_VIOLATION);
    assert_eq!(client.next(), Said::End);
    assert_eq!(assert_settled(&server.handle()).messages_sent, 2);
}

#[test]
fn other_threads_send_and_close() {
    let (server, told) = scripted(
        Config {
            shards: 2,
            ..raw_config()
        },
        false,
    );
    let handle = server.handle();
    let mut clients: Vec<_> = (0..8)
        .map(|_| {
            let client = connect(&server);
            (client, connected(&told).connection)
        })
        .collect();
    assert_eq!(
        (handle.connections(), handle.counters().connections_open),
        (8, 8)
    );
    for (number, (_, key)) in clients.iter().enumerate() {
        handle
            .send(*key, Outgoing::Text(format!("for {number}").into()))
            .unwrap();
        handle
            .send(*key, Outgoing::Binary(vec![number as u8; 70_000].into()))
            .unwrap();
    }
    for (number, (client, key)) in clients.iter_mut().enumerate() {
        assert_eq!(client.next_text(), "welcome");
        assert_eq!(client.next_text(), format!("for {number}"));
        assert!(client.next() == Said::Binary(vec![number as u8; 70_000]));
        handle
            .close(*key, CloseCode::SERVICE_RESTART, "soon back")
            .unwrap();
        // What is sent behind the close goes nowhere.
        handle.send(*key, Outgoing::Text("unheard".into())).unwrap();
        handle.close(*key, CloseCode::NORMAL, "again").unwrap();
        assert_eq!(
            client.next(),
            Said::Close(Some(1012), "soon back".to_owned())
        );
        client.send_close(CloseCode::SERVICE_RESTART);
        assert_eq!(client.next(), Said::End);
    }
    let counters = assert_settled(&handle);
    assert_eq!(
        (counters.sessions_closed_by_server, counters.messages_sent),
        (8, 24)
    );
}

#[test]
fn names_of_those_that_are_gone_reach_nobody() {
    let (server, told) = scripted(raw_config(), false);
    let handle = server.handle();
    let old: Vec<_> = (0..4)
        .map(|_| {
            let _gone_at_once = connect(&server);
            connected(&told).connection
        })
        .collect();
    assert_settled(&handle);

    // The next one takes the place of one of them.
    let mut next = connect(&server);
    for key in &old {
        handle
            .send(*key, Outgoing::Text("for the dead".into()))
            .unwrap();
        handle.close(*key, CloseCode::NORMAL, "").unwrap();
    }
    next.send_text("mine");
    assert_eq!(
        (next.next_text(), next.next_text()),
        ("welcome".to_owned(), "mine".to_owned())
    );
    server.stop();
    assert_eq!(
        handle.send(old[0], Outgoing::Text("x".into())),
        Err(SendError::Stopped)
    );
    assert_eq!(
        handle.close(old[0], CloseCode::NORMAL, ""),
        Err(SendError::Stopped)
    );
}

#[test]
fn the_operations_listener_tells_what_the_handle_tells() {
    let ops_listen = Some("127.0.0.1:0".parse().unwrap());
    let server = start(
        Config {
            ops_listen,
            shards: 2,
            ..config()
        },
        Echo,
    );
    let ops = server.ops_address().unwrap();
    let page = |path: &str| {
        let said = answer(
            ops,
            format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"),
        );
        assert_eq!(status(&said), 200, "{said}");
        said.split_once("\r\n\r\n").expect("a head").1.to_owned()
    };
    let mut clients: Vec<_> = (0..5).map(|_| connect_v1(&server)).collect();
    for client in &mut clients {
        assert_eq!(client.ask(&json!({"t": "x"}))["t"], "x");
        assert_eq!(client.ask(&json!({"t": "ping"}))["t"], "PONG");
    }
    let handle = server.handle();
    wait_until("all counted", || handle.counters().messages_received == 10);
    let stats: Value = serde_json::from_str(&page("/stats")).unwrap();
    let total = serde_json::to_value(handle.counters()).unwrap();
    assert_eq!(stats["total"], total, "{stats}");
    assert_eq!(stats["shards"].as_array().unwrap().len(), 2);
    let metrics = page("/metrics");
    let sum: f64 = metrics
        .lines()
        .filter(|line| line.starts_with("tidewire_messages_delivered_total"))
        .map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap())
        .sum();
    assert_eq!(sum, 5.0, "{metrics}");
    page("/health");
    page("/ready");
    drop(clients);
    assert_settled(&handle);
}

//! Connections that the application has accepted itself.

use crate::common;

use common::{Client, Opening, SECRET, Said, config, raw_config, start, status, token, wait_until};
use serde::Deserialize;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::thread;
use tidewire_engine::apps::{Echo, Sink};
use tidewire_engine::auth::{AuthConfig, KeyMaterial};
use tidewire_engine::{
    Adoption, AdoptionTicket, Application, Config, ConnectDecision, Context, Handle,
    ListeningSockets, Message, Peer, Server,
};
use tidewire_testkit::vectors;
use tidewire_wire::close::CloseCode;

/// A server that listens nowhere.
fn unbound<A: Application + Clone>(config: Config, application: A) -> Server {
    let sockets = ListeningSockets {
        adopts_only: true,
        ..ListeningSockets::default()
    };
    let server = Server::start_on(sockets, config, move |_| application.clone());
    server.expect("a server")
}

/// A connection as an HTTP server hands it over.
fn adoption(stream: TcpStream, received: Vec<u8>) -> Adoption {
    Adoption {
        stream,
        received,
        address: None,
        is_local: true,
        decision: None,
        ticket: None,
    }
}

/// An HTTP server that hands every connection over, once it has read a request; its address. `change` has a look at each first.
fn front(handle: Handle, change: impl Fn(&mut Adoption) + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let mut received = vec![0; 4096];
            let bytes = stream.read(&mut received).expect("a request");
            received.truncate(bytes);
            let mut adoption = adoption(stream, received);
            change(&mut adoption);
            if handle.adopt(adoption).is_err() {
                return;
            }
        }
    });
    address
}

#[test]
fn a_connection_that_is_handed_over_is_one_of_the_server() {
    let server = unbound(
        Config {
            shards: 2,
            ..raw_config()
        },
        Echo,
    );
    assert_eq!(server.address().port(), 0);
    let address = front(server.handle(), |_| {});
    // The shards have them in turn.
    let mut clients: Vec<Client> = (0..4).map(|_| Opening::new(address).open()).collect();
    for client in &mut clients {
        client.send_text("hello");
        assert_eq!(client.next_text(), "hello");
    }
    assert_eq!(server.handle().connections(), 4);
    assert_eq!(Opening::new(address).target("/elsewhere").refused().0, 404);
    assert_eq!(server.handle().counters().connections_accepted, 5);
    server.stop();
    for client in &mut clients {
        assert_eq!(client.next(), Said::End);
    }
}

#[test]
fn the_other_end_of_a_pair_is_a_client_with_the_address_that_is_given() {
    let (tell, told) = std::sync::mpsc::channel();
    let server = unbound(raw_config(), Welcome(Arc::new(Mutex::new(tell))));
    let (theirs, mut ours) = UnixStream::pair().expect("a pair");
    let request = Opening::new(([127, 0, 0, 1], 80).into()).request();
    let address = "[2001:db8::1]:4711".parse().expect("an address");
    let adopted = server.handle().adopt(Adoption {
        address: Some(address),
        ticket: Some(AdoptionTicket::new(7, |_| {})),
        ..adoption(TcpStream::from(OwnedFd::from(theirs)), request)
    });
    adopted.expect("the server runs");
    let mut answer = [0; 12];
    ours.read_exact(&mut answer).expect("an answer");
    assert_eq!(status(&String::from_utf8_lossy(&answer)), 101);
    let peer = told.recv().expect("an announcement");
    assert_eq!(peer.address, Some(address));
    assert_eq!(peer.adoption.map(|ticket| ticket.number()), Some(7));
    drop(ours);
    let handle = server.handle();
    wait_until("it leaves", || handle.connections() == 0);
}

/// Tells of every client.
#[derive(Clone)]
struct Welcome(Arc<Mutex<std::sync::mpsc::Sender<Peer>>>);

impl Application for Welcome {
    fn on_connect(&mut self, _: &mut Context<'_>, peer: &Peer) {
        let tell = self.0.lock().expect("no panic");
        let _ = tell.send(peer.clone());
    }

    fn on_message(&mut self, _: &mut Context<'_>, _: Message<'_>) {}
}

#[test]
fn bytes_that_were_read_already_are_not_lost_and_too_many_are_refused() {
    let server = unbound(raw_config(), Echo);
    let request = Opening::new(([127, 0, 0, 1], 80).into()).request();
    let frames = |count: usize| vec![[0x81, 0x81, 0, 0, 0, 0, b'x']; count].concat();
    for (early, late, is_taken) in [(0, 3, true), (3, 0, true), (2, 1, true), (5_000, 0, false)] {
        let (theirs, mut ours) = UnixStream::pair().expect("a pair");
        let received = [request.clone(), frames(early)].concat();
        let stream = TcpStream::from(OwnedFd::from(theirs));
        let adopted = server.handle().adopt(adoption(stream, received));
        adopted.expect("the server runs");
        let _ = ours.write_all(&frames(late));
        let mut heard = Vec::new();
        let mut piece = [0; 1024];
        while !heard.ends_with(&[0x81, 1, b'x'].repeat(3)) {
            match ours.read(&mut piece).expect("an answer or an end") {
                0 => break,
                bytes => heard.extend_from_slice(&piece[..bytes]),
            }
        }
        assert_eq!(heard.starts_with(b"HTTP/1.1 101"), is_taken);
    }
}

/// One of `admissions.json`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    answer: Value,
    status: u16,
    words: Option<String>,
    #[serde(default)]
    user: Option<String>,
    #[serde(default)]
    allowed: Vec<String>,
    #[serde(default)]
    forbidden: Vec<String>,
    #[serde(default)]
    subscribed: Vec<String>,
    closed: Option<u16>,
}

/// The next change of subscriptions that the client is told of.
fn changed(client: &mut Client) -> Value {
    loop {
        let message = client.next_json();
        if message["t"] == "subscription_update" {
            return message["p"].clone();
        }
    }
}

#[test]
fn the_application_decides_who_may_connect() {
    for_each_admission(|decision| {
        let server = unbound(config(), Sink);
        let address = front(server.handle(), move |adoption| {
            adoption.decision = decision();
        });
        (server, address)
    });
}

/// The decision about a client.
pub(crate) type Decide = Box<dyn Fn() -> Option<ConnectDecision> + Send>;

/// Connects to a server for each case of `admissions.json`.
pub(crate) fn for_each_admission(serve: impl Fn(Decide) -> (Server, SocketAddr)) {
    for case in vectors::load::<Case>("admissions") {
        // What a language makes of an answer.
        let decision = match &case.answer {
            Value::Bool(true) => None,
            Value::Bool(false) | Value::Null => Some(json!({"refused": {}})),
            answer => Some(answer.clone()),
        };
        let (_server, address) = serve(Box::new(move || {
            decision.as_ref().map(|decision| {
                ConnectDecision::from_json(decision.to_string().as_bytes())
                    .unwrap_or_else(|_| ConnectDecision::unavailable())
            })
        }));
        let opening = Opening::new(address);
        if case.status != 101 {
            let (status, body) = opening.refused();
            assert_eq!(status, case.status, "{}", case.name);
            assert!(
                body.contains(case.words.as_deref().unwrap_or_default()),
                "{body}"
            );
            continue;
        }
        let mut client = opening.open();
        let ready = client.next_json();
        let user = ready["p"]["details"]["user_id"].as_str();
        assert_eq!(user, case.user.as_deref(), "{}", case.name);
        for topic in &case.subscribed {
            let told = changed(&mut client);
            assert_eq!(told["success_topics"], json!([topic]));
        }
        for topic in case.allowed.iter().chain(&case.forbidden) {
            let asked = json!({"action": "subscribe", "topics": [topic]});
            client.send_text(&json!({"t": "subscription_update", "p": asked}).to_string());
            let told = changed(&mut client);
            let is_allowed = told["success_topics"] == json!([topic]);
            assert_eq!(is_allowed, case.allowed.contains(topic), "{topic}");
        }
        if let Some(code) = case.closed {
            assert_eq!(client.close_after_all().0, Some(code), "{}", case.name);
        }
    }
}

#[test]
fn a_decision_takes_the_place_of_the_token() {
    let auth = AuthConfig::new(KeyMaterial::Hs256(SECRET.to_vec()));
    let with_tokens = Config {
        auth: Some(auth),
        ..config()
    };
    let server = unbound(with_tokens, Sink);
    let by_token = front(server.handle(), |_| {});
    assert_eq!(Opening::new(by_token).refused().0, 401);
    let bearer = format!("Bearer {}", token(json!({"sub": "by token"})));
    let user = |address| {
        let opening = Opening::new(address).header("Authorization", bearer.clone());
        opening.open().next_json()["p"]["details"]["user_id"].clone()
    };
    assert_eq!(user(by_token), "by token");
    let decided = front(server.handle(), |adoption| {
        let decision = ConnectDecision::from_json(br#"{"user": "by session"}"#);
        adoption.decision = Some(decision.expect("a decision"));
    });
    assert_eq!(user(decided), "by session");
}

#[test]
fn pages_of_other_hosts_are_refused_where_only_this_machine_can_connect() {
    let server = unbound(config(), Sink);
    for (is_local, is_decided, expected) in [
        (true, false, Some(421)),
        (false, false, None),
        (true, true, None),
    ] {
        let address = front(server.handle(), move |adoption| {
            adoption.is_local = is_local;
            adoption.decision =
                is_decided.then(|| ConnectDecision::from_json(b"{}").expect("a decision"));
        });
        let mut opening = Opening::new(address).header("Origin", "http://evil.example");
        opening.host = "evil.example".to_owned();
        match expected {
            Some(code) => assert_eq!(opening.refused().0, code),
            None => drop(opening.open()),
        }
    }
}

#[test]
fn a_ticket_ends_with_its_connection() {
    let server = start(raw_config(), Sink);
    let ended = Arc::new(Mutex::new(Vec::new()));
    let tickets = Arc::clone(&ended);
    let numbers = std::sync::atomic::AtomicU64::new(0);
    let address = front(server.handle(), move |adoption| {
        let number = numbers.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let ended = Arc::clone(&tickets);
        adoption.ticket = Some(AdoptionTicket::new(number, move |number| {
            ended.lock().expect("no panic").push(number);
        }));
    });
    let is_ended = |number| ended.lock().expect("no panic").contains(&number);
    Opening::new(address).target("/elsewhere").refused();
    wait_until("the refused one has ended", || is_ended(0));
    let mut client = Opening::new(address).open();
    client.send_close(CloseCode::NORMAL);
    client.assert_closed(CloseCode::NORMAL);
    wait_until("the closed one has ended", || is_ended(1));
    drop(TcpStream::connect(address).and_then(|mut stream| stream.write_all(b"GET ")));
    wait_until("the lost one has ended", || is_ended(2));
    let handle = server.handle();
    server.stop();
    let (theirs, _ours) = UnixStream::pair().expect("a pair");
    let late = handle.adopt(adoption(TcpStream::from(OwnedFd::from(theirs)), Vec::new()));
    assert_eq!(
        late.expect_err("stopped").to_string(),
        "the server has stopped"
    );
}

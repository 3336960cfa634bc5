//! Clients of the server's own port about whom the application decides.

use crate::adopting::{Decide, for_each_admission};
use crate::common;

use common::{Client, Opening, SECRET, config, raw_config, status, token, wait_until};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tidewire_engine::auth::{AuthConfig, KeyMaterial};
use tidewire_engine::queue::queue;
use tidewire_engine::{
    AdoptionTicket, Application, Config, ConnectDecision, ConnectRequest, ConnectRequests, Context,
    ListeningSockets, Message, OriginPolicy, Peer, Server,
};

/// An application that decides about every client, elsewhere: each is sent there.
#[derive(Clone)]
struct Gate {
    requests: Arc<Mutex<Sender<ConnectRequest>>>,
    peers: Arc<Mutex<Sender<Peer>>>,
}

impl Application for Gate {
    fn decides_connections(&self) -> bool {
        true
    }

    fn on_connect_request(&mut self, request: ConnectRequest) {
        // Without a receiver the request is dropped.
        let _ = self.requests.lock().expect("no panic").send(request);
    }

    fn on_connect(&mut self, _: &mut Context<'_>, peer: &Peer) {
        let _ = self.peers.lock().expect("no panic").send(peer.clone());
    }

    fn on_message(&mut self, context: &mut Context<'_>, message: Message<'_>) {
        context.send(message);
    }
}

/// A server, the clients that wait for a decision, and those that were let in.
fn gated(config: Config) -> (Server, Receiver<ConnectRequest>, Receiver<Peer>) {
    let (requests, waiting) = mpsc::channel();
    let (peers, announced) = mpsc::channel();
    let gate = Gate {
        requests: Arc::new(Mutex::new(requests)),
        peers: Arc::new(Mutex::new(peers)),
    };
    (common::start(config, gate), waiting, announced)
}

/// A server whose clients wait in a queue, and what tells of each.
fn queueing(config: Config) -> (Server, Arc<ConnectRequests>, Receiver<()>) {
    let (sender, _events) = queue(1 << 20);
    let requests = Arc::new(ConnectRequests::default());
    let (wake, woken) = mpsc::channel();
    requests.decide_all(move || {
        let _ = wake.send(());
    });
    let sender = sender.with_connect_requests(Arc::clone(&requests));
    let sockets = ListeningSockets::default();
    let server = Server::start_on(sockets, config, |_| sender.application());
    (server.expect("a server"), requests, woken)
}

/// A server that decides about every client in the same way, on a thread that empties its queue.
fn queued(config: Config, decide: Decide) -> Server {
    let (server, requests, woken) = queueing(config);
    std::thread::spawn(move || {
        while woken.recv().is_ok() {
            while let Some(request) = requests.take() {
                request.responder.decide(decide(), None);
            }
        }
    });
    server
}

fn decision(json: &Value) -> Option<ConnectDecision> {
    Some(ConnectDecision::from_json(json.to_string().as_bytes()).expect("a decision"))
}

fn user_of(client: &mut Client) -> Value {
    client.next_json()["p"]["details"]["user_id"].clone()
}

/// A connection that has sent a request, and what follows it.
fn asking(address: SocketAddr, opening: &Opening, rest: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("a connection");
    let request = [opening.request(), rest.to_vec()].concat();
    stream.write_all(&request).expect("a request");
    stream
}

fn answer(stream: &mut TcpStream) -> String {
    let mut head = [0; 12];
    stream.read_exact(&mut head).expect("an answer");
    String::from_utf8_lossy(&head).into_owned()
}

#[test]
fn each_decision_means_at_the_own_port_what_it_means_for_a_connection_handed_over() {
    for_each_admission(|decide| {
        let server = queued(config(), decide);
        let address = server.address();
        (server, address)
    });
}

#[test]
fn the_application_sees_the_request_and_finds_the_connection_by_its_ticket() {
    let (server, waiting, announced) = gated(raw_config());
    let opening = Opening::new(server.address())
        .target("/ws?room=tea%20house&x=1")
        .header("Cookie", "sid=1".to_owned())
        .header("cookie", "b=\u{e9}".to_owned());
    let frame = [0x81, 0x81, 0, 0, 0, 0, b'x'];
    let mut stream = asking(server.address(), &opening, &frame);
    let request = waiting.recv().expect("a request");
    assert_eq!(request.target, "/ws?room=tea%20house&x=1");
    assert_eq!(request.address, stream.local_addr().ok());
    assert!(!request.is_tls);
    let cookies = request.headers.iter();
    let cookies = cookies.filter(|(name, _)| name.eq_ignore_ascii_case("cookie"));
    let cookies: Vec<_> = cookies.cloned().collect();
    assert_eq!(
        cookies,
        [
            ("Cookie".to_owned(), b"sid=1".to_vec()),
            ("cookie".to_owned(), "b=\u{e9}".as_bytes().to_vec())
        ]
    );
    // Others do not wait for it.
    let other = asking(server.address(), &Opening::new(server.address()), &[]);
    let second = waiting.recv().expect("a request");
    assert_ne!(
        second.responder.connection(),
        request.responder.connection()
    );
    let connection = request.responder.connection();
    let (end, ended) = mpsc::channel();
    let ticket = AdoptionTicket::new(7, move |number| {
        let _ = end.send(number);
    });
    request
        .responder
        .decide(decision(&json!({"user": "ann"})), Some(ticket));
    assert_eq!(status(&answer(&mut stream)), 101);
    let peer = announced.recv().expect("an announcement");
    assert_eq!(peer.connection, connection);
    assert_eq!(peer.user.as_deref(), Some("ann"));
    assert_eq!(peer.adoption.as_ref().map(AdoptionTicket::number), Some(7));
    drop(peer);
    // What came behind the request is not lost.
    let mut heard = Vec::new();
    while !heard.ends_with(&[0x81, 1, b'x']) {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("an echo");
        heard.extend(byte);
    }
    drop(stream);
    assert_eq!(ended.recv(), Ok(7));
    drop((other, second));
}

#[test]
fn a_decision_that_does_not_come_is_503_and_a_late_one_is_counted() {
    let mut hasty = raw_config();
    hasty.limits.call_timeout_ms = 50;
    hasty.limits.handshake_timeout_ms = 20;
    let (server, waiting, _announced) = gated(hasty);
    let opening = Opening::new(server.address());
    let mut stream = asking(server.address(), &opening, &[]);
    let late = waiting.recv().expect("a request");
    assert_eq!(late.timeout_ms, 50);
    assert_eq!(status(&answer(&mut stream)), 503);
    let (end, ended) = mpsc::channel();
    let ticket = AdoptionTicket::new(3, move |number| {
        let _ = end.send(number);
    });
    late.responder.decide(None, Some(ticket));
    assert_eq!(ended.recv(), Ok(3));
    let handle = server.handle();
    wait_until("it is counted", || handle.counters().call_answers_late == 1);
    let mut stream = asking(server.address(), &opening, &[]);
    drop(waiting.recv().expect("a request"));
    assert_eq!(status(&answer(&mut stream)), 503);
    // Of a client that has left nothing remains.
    let stream = asking(server.address(), &opening, &[]);
    let left = waiting.recv().expect("a request");
    drop(stream);
    left.responder.decide(None, None);
    wait_until("all have left", || {
        handle.counters().handshakes_failed + handle.counters().handshakes_completed == 3
            && handle.connections() == 0
    });
}

#[test]
fn the_token_decides_where_the_application_does_not() {
    let auth = AuthConfig::new(KeyMaterial::Hs256(SECRET.to_vec()));
    let (server, waiting, _announced) = gated(Config {
        auth: Some(auth),
        ..config()
    });
    std::thread::spawn(move || {
        for decision in [None, None, decision(&json!({"user": "by session"}))] {
            let request = waiting.recv().expect("a request");
            request.responder.decide(decision, None);
        }
    });
    assert_eq!(Opening::new(server.address()).refused().0, 401);
    let bearer = format!("Bearer {}", token(json!({"sub": "by token"})));
    let opening = || Opening::new(server.address()).header("Authorization", bearer.clone());
    assert_eq!(user_of(&mut opening().open()), "by token");
    assert_eq!(user_of(&mut opening().open()), "by session");
}

#[test]
fn nobody_is_asked_about_a_request_that_is_refused_anyway() {
    let (server, waiting, _announced) = gated(Config {
        origins: OriginPolicy::SameHost,
        ..config()
    });
    let opening = || Opening::new(server.address());
    assert_eq!(opening().target("/elsewhere").refused().0, 404);
    let foreign = opening().header("Origin", "http://elsewhere.example".to_owned());
    assert_eq!(foreign.refused().0, 403);
    assert!(waiting.try_recv().is_err());
    // A page of another host, where only this machine can connect: the decision counts, and without one it is refused.
    let mut named = asking_as("evil.example", &server);
    waiting
        .recv()
        .expect("a request")
        .responder
        .decide(None, None);
    assert_eq!(status(&answer(&mut named)), 421);
    let mut named = asking_as("evil.example", &server);
    let request = waiting.recv().expect("a request");
    request.responder.decide(decision(&json!({})), None);
    assert_eq!(status(&answer(&mut named)), 101);
}

fn asking_as(host: &str, server: &Server) -> TcpStream {
    let origin = format!("http://{host}");
    let mut opening = Opening::new(server.address()).header("Origin", origin);
    opening.host = host.to_owned();
    asking(server.address(), &opening, &[])
}

/// A server that reads few handshakes at once, those of one address.
fn narrow(handshakes_max: usize, per_address: usize) -> Config {
    let mut config = raw_config();
    config.shards = 1;
    config.limits.handshakes_max = handshakes_max;
    config.limits.handshakes_per_address_max = per_address;
    config
}

#[test]
fn who_waits_for_a_decision_does_not_give_way_to_others_of_its_address() {
    let (server, waiting, _announced) = gated(narrow(8, 4));
    let opening = Opening::new(server.address());
    let mut first: Vec<TcpStream> = (0..4)
        .map(|_| asking(server.address(), &opening, &[]))
        .collect();
    let requests: Vec<ConnectRequest> = waiting.iter().take(4).collect();
    // There is no room for another one, and it is told so at once.
    let mut others: Vec<TcpStream> = (0..4)
        .map(|_| asking(server.address(), &opening, &[]))
        .collect();
    for other in &mut others {
        assert_eq!(status(&answer(other)), 503);
    }
    // Longer than slow handshakes have while others wait.
    std::thread::sleep(Duration::from_millis(700));
    assert_eq!(server.handle().counters().handshakes_in_progress, 4);
    for request in requests {
        assert!(request.responder.is_waiting());
        request.responder.decide(decision(&json!({})), None);
    }
    for stream in &mut first {
        assert_eq!(status(&answer(stream)), 101);
    }
    assert!(
        waiting.try_recv().is_err(),
        "the others were not asked about"
    );
    let mut next = asking(server.address(), &opening, &[]);
    let request = waiting.recv().expect("there is room again");
    request.responder.decide(decision(&json!({})), None);
    assert_eq!(status(&answer(&mut next)), 101);
    wait_until("nobody waits", || {
        server.handle().counters().handshakes_in_progress == 0
    });
}

#[test]
fn one_address_leaves_room_for_the_others() {
    let (server, waiting, _announced) = gated(narrow(4, 4));
    let opening = Opening::new(server.address());
    let mut greedy: Vec<TcpStream> = (0..4)
        .map(|_| asking(server.address(), &opening, &[]))
        .collect();
    let requests: Vec<ConnectRequest> = waiting.iter().take(4).collect();
    let mut other = from_address([127, 0, 0, 2], &server);
    let request = waiting.recv().expect("it is asked about");
    assert_eq!(status(&answer(&mut greedy[0])), 503);
    let still_wait = requests
        .iter()
        .map(|request| request.responder.is_waiting());
    assert_eq!(still_wait.collect::<Vec<_>>(), [false, true, true, true]);
    request.responder.decide(decision(&json!({})), None);
    assert_eq!(status(&answer(&mut other)), 101);
    drop(requests);
    for stream in &mut greedy[1..] {
        assert_eq!(status(&answer(stream)), 503);
    }
    // Nobody was late: the decision about the first one was dropped.
    assert_eq!(server.handle().counters().call_answers_late, 0);
}

fn from_address(address: [u8; 4], server: &Server) -> TcpStream {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
    let socket = socket.expect("a socket");
    let own = SocketAddr::from((address, 0));
    socket.bind(&own.into()).expect("a loopback address");
    socket
        .connect(&server.address().into())
        .expect("a connection");
    let mut stream = TcpStream::from(socket);
    let request = Opening::new(server.address()).request();
    stream.write_all(&request).expect("a request");
    stream
}

#[test]
fn nobody_is_asked_about_clients_of_a_server_that_has_stopped() {
    let (server, requests, woken) = queueing(raw_config());
    let opening = Opening::new(server.address());
    let _clients = [(); 3].map(|()| asking(server.address(), &opening, &[]));
    for _ in 0..3 {
        woken.recv().expect("a request");
    }
    let first = requests.take().expect("a request");
    server.stop();
    assert!(!first.responder.is_waiting());
    assert!(requests.take().is_none());
}

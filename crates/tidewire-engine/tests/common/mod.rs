//! Servers on free ports, and the client of the tests.
#![allow(dead_code, missing_docs, unreachable_pub, unused_imports)]

pub mod api;
pub mod cluster;
pub mod held;
pub mod hostile;
pub mod http;
pub mod simulated;
pub mod topics;
pub mod world;

use serde_json::{Value, json};
use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidewire_engine::auth::KeyMaterial;
use tidewire_engine::counters::Snapshot;
use tidewire_engine::token::{SigningKey, sign};
use tidewire_engine::{Application, Config, Context, Handle, Message, Protocol, Server, TlsFiles};
use tidewire_net::tls;
pub use tidewire_testkit::websocket::blocking::{DEADLINE, status};
pub use tidewire_testkit::websocket::*;

/// More than the two sockets of a connection hold: it can only be sent if the server reads.
pub const PAST_SOCKETS_BYTES: usize = 64 * 1024 * 1024;

pub const SECRET: &[u8] = b"a secret of more than thirty-two bytes";

/// One shard on a free port, version 1, everyone accepted.
pub fn config() -> Config {
    Config {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        shards: 1,
        ..Config::default()
    }
}

/// The same without version 1.
pub fn raw_config() -> Config {
    Config {
        protocol: Protocol::Raw,
        ..config()
    }
}

pub fn start<A: Application + Clone>(config: Config, application: A) -> Server {
    Server::start(config, move |_| application.clone()).expect("a server on a free port")
}

/// A certificate for localhost, a client that trusts it, and the folder that is to be kept as long as either.
pub fn certified() -> (TlsFiles, Arc<tls::ClientConfig>, tempfile::TempDir) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]);
    let made = made.expect("a certificate");
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: String| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("a file");
        path
    };
    let files = TlsFiles {
        certificate: write("certificate.pem", made.cert.pem()),
        key: write("key.pem", made.signing_key.serialize_pem()),
    };
    let trust = tls::client_config(Some(&files.certificate)).expect("a certificate");
    (files, trust, folder)
}

/// A connection to the default path, past the opening handshake.
pub fn connect(server: &Server) -> Client {
    Opening::new(server.address()).open()
}

/// A connection that has read `server_ready` too.
pub fn connect_v1(server: &Server) -> Client {
    let mut client = connect(server);
    assert_eq!(client.next_json()["t"], "server_ready");
    client
}

/// The same with a token of this user.
pub fn connect_as(server: &Server, user: &str) -> Client {
    let bearer = format!("Bearer {}", token(json!({ "sub": user })));
    let opening = Opening::new(server.address());
    let mut client = opening.header("Authorization", bearer).open();
    assert_eq!(client.next_json()["t"], "server_ready");
    client
}

/// Waits until `condition` holds.
#[track_caller]
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !condition() {
        assert!(Instant::now() < deadline, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Waits until all connections are gone, and checks that every one and every message is accounted for.
#[track_caller]
pub fn assert_settled(handle: &Handle) -> Snapshot {
    wait_until("all connections gone", || {
        let now = handle.counters();
        let ended = now.sessions_closed_by_peer + now.sessions_closed_by_server + now.sessions_lost;
        handle.connections() == 0
            && now.connections_accepted == now.handshakes_failed + now.handshakes_completed
            && now.handshakes_completed == ended
    });
    let now = handle.counters();
    let pending = now.handshakes_in_progress + now.handshakes_parked;
    assert_eq!((now.connections_open, pending), (0, 0));
    assert_messages_add_up(&now);
    now
}

#[track_caller]
pub fn assert_messages_add_up(now: &Snapshot) {
    let refused =
        now.messages_refused_rate + now.messages_refused_size + now.messages_refused_invalid;
    let numbered = now.messages_repeated + now.messages_out_of_turn;
    let accounted = now.messages_delivered + now.system_messages_received + refused + numbered;
    assert_eq!(now.messages_received, accounted, "{now:?}");
}

/// A token of `SECRET` for `claims`, which are good for an hour but for what they say themselves.
pub fn token(claims: Value) -> String {
    token_by(&KeyMaterial::Hs256(SECRET.to_vec()), None, claims)
}

pub fn token_by(key: &KeyMaterial, kid: Option<&str>, claims: Value) -> String {
    let mut all = json!({ "sub": "user-1", "exp": unix_s() + 3600 });
    for (name, value) in claims.as_object().expect("claims are an object") {
        all[name] = value.clone();
    }
    sign(&all, &SigningKey::new(key).expect("a good key"), kid).expect("a good key signs")
}

pub fn unix_s() -> u64 {
    std::time::UNIX_EPOCH
        .elapsed()
        .expect("a clock after 1970")
        .as_secs()
}

/// The answer of an HTTP server to `request`, to the end of the connection.
pub fn answer(address: SocketAddr, request: impl AsRef<[u8]>) -> String {
    let mut stream = tcp(address);
    stream
        .write_all(request.as_ref())
        .expect("the request fits the socket");
    read_to_end(stream)
}

/// Sends every message back, and lets the engine check what it says, as an application does that reads it.
#[derive(Clone, Copy)]
pub struct CheckedEcho;

impl Application for CheckedEcho {
    fn on_message(&mut self, context: &mut Context<'_>, message: Message<'_>) {
        context.send(message);
    }
}

//! Applications that panic: the errors for clients, and the sessions that continue.

use crate::common;

use common::{Client, Said, assert_settled, config, connect_v1, start, wait_until};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tidewire_engine::{
    Application, Call, CloseReason, ConnectionKey, Context, Handle, Message, Peer, Responder,
    Server, SyncRequest,
};

/// Panics on request.
#[derive(Clone, Default)]
struct Fragile {
    at_connect: Arc<AtomicBool>,
    at_close: Arc<AtomicBool>,
    at_turn: Arc<AtomicBool>,
    when_asked: Arc<AtomicBool>,
}

impl Application for Fragile {
    fn on_connect(&mut self, _: &mut Context<'_>, _: &Peer) {
        assert!(!self.at_connect.swap(false, Ordering::AcqRel), "at connect");
    }

    fn on_message(&mut self, context: &mut Context<'_>, message: Message<'_>) {
        assert!(!message.bytes.ends_with(b"\"boom\"}"), "at a message");
        context.send(message);
    }

    fn on_call(&mut self, _: &mut Context<'_>, call: Call<'_>, _: Responder) {
        panic!("at the call {}", call.t);
    }

    fn on_sync(&mut self, _: &mut Context<'_>, _: &SyncRequest<'_>) -> bool {
        panic!("at a sync");
    }

    fn on_close(&mut self, _: ConnectionKey, _: CloseReason) {
        assert!(!self.at_close.swap(false, Ordering::AcqRel), "at a close");
    }

    fn on_turn(&mut self) {
        assert!(!self.at_turn.swap(false, Ordering::AcqRel), "at a turn");
    }

    fn is_ready(&self) -> bool {
        assert!(!self.when_asked.swap(false, Ordering::AcqRel), "when asked");
        true
    }
}

fn echo(client: &mut Client) {
    assert_eq!(client.ask(&json!({"t": "echo"}))["t"], "echo");
}

#[track_caller]
fn assert_failed(client: &mut Client) {
    let (code, reason) = client.close_after_all();
    assert_eq!(
        (code, reason.as_str()),
        (Some(1011), "the application failed")
    );
    assert_eq!(client.next(), Said::End);
}

fn settled(server: &Server, panics: u64) {
    let counters = assert_settled(&server.handle());
    assert_eq!(counters.application_panics, panics);
    assert_eq!(server.handle().failure(), None);
}

#[test]
fn a_panic_for_a_connection_ends_that_connection() {
    let app = Fragile::default();
    let mut config = config();
    config.topics.access = tidewire_engine::AccessRules::open();
    let server = start(config, app.clone());
    let mut other = connect_v1(&server);
    let requests: [Value; 3] = [
        json!({"t": "boom"}),
        json!({"t": "call_request", "cid": "1", "p": {"type": "x"}}),
        json!({"t": "sync_request", "p": {"topics": ["a"], "include_snapshots": true}}),
    ];
    for request in &requests {
        let mut client = connect_v1(&server);
        echo(&mut client);
        // Earlier messages are answered, later ones are not.
        client.send_text(r#"{"t":"before"}"#);
        client.send_text(&request.to_string());
        client.send_text(r#"{"t":"after"}"#);
        assert_eq!(client.next_json()["t"], "before");
        assert_failed(&mut client);
        echo(&mut other);
    }
    app.at_connect.store(true, Ordering::Release);
    let mut client = connect_v1(&server);
    assert_failed(&mut client);
    echo(&mut other);
    app.at_close.store(true, Ordering::Release);
    drop(connect_v1(&server));
    wait_until("its end", || server.handle().connections() == 1);
    echo(&mut other);
    drop(other);
    settled(&server, 5);
}

#[test]
fn a_panic_in_a_batch_ends_the_connection_once() {
    let server = start(config(), Fragile::default());
    let mut client = connect_v1(&server);
    let messages = [
        json!({"t": "one"}),
        json!({"t": "boom"}),
        json!({"t": "boom"}),
    ];
    client.send_text(&json!({"t": "batch", "p": {"messages": messages}}).to_string());
    assert_eq!(client.next_json()["t"], "one");
    assert_failed(&mut client);
    settled(&server, 1);
}

#[test]
fn a_panic_for_no_connection_ends_all_of_the_shard() {
    type Fuse = fn(&Fragile) -> &AtomicBool;
    let fuses: [Fuse; 2] = [|app| &*app.at_turn, |app| &*app.when_asked];
    for fuse in fuses {
        let app = Fragile::default();
        let server = start(config(), app.clone());
        let mut clients = [(); 3].map(|()| connect_v1(&server));
        fuse(&app).store(true, Ordering::Release);
        clients[0].send_text(r#"{"t":"any"}"#);
        clients.iter_mut().for_each(assert_failed);
        // The shard goes on.
        let mut newcomer = connect_v1(&server);
        echo(&mut newcomer);
        drop(newcomer);
        settled(&server, 1);
    }
}

/// Panics at the last moment, when nobody is left to be told.
struct LastWords(Arc<AtomicBool>);

impl Application for LastWords {
    fn on_message(&mut self, _: &mut Context<'_>, _: Message<'_>) {}

    fn on_turn(&mut self) {
        assert!(!self.0.load(Ordering::Acquire), "at the end");
    }
}

#[test]
fn a_server_whose_application_always_panics_stops() {
    let fuse = Arc::new(AtomicBool::new(false));
    let app = Arc::clone(&fuse);
    let server = Server::start(config(), move |_| LastWords(Arc::clone(&app))).expect("a server");
    fuse.store(true, Ordering::Release);
    let handle: Handle = server.handle();
    server.stop();
    assert_eq!(handle.failure(), None);
}

//! A server of which one shard can be held in a turn of its loop.

use super::{Client, connect_v1, wait_until};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use tidewire_engine::{Application, Config, Context, Message, Peer, Server};

/// A server whose shards are held by any message of the application, the number of the shard of the newest session, and
/// what lets a held shard go on.
pub fn start_held(config: Config) -> (Server, Arc<AtomicU64>, Arc<Gate>) {
    let (newest, gate) = (Arc::new(AtomicU64::new(0)), Arc::new(Gate::default()));
    let server = Server::start(config, |shard| Held {
        shard: shard as u64,
        newest: Arc::clone(&newest),
        gate: Arc::clone(&gate),
    });
    (server.expect("a server"), newest, gate)
}

/// Knows which shard its sessions are on, and holds it at the request of one of them.
pub struct Held {
    shard: u64,
    newest: Arc<AtomicU64>,
    gate: Arc<Gate>,
}

#[derive(Default)]
pub struct Gate {
    is_shut: Mutex<bool>,
    changed: Condvar,
}

impl Application for Held {
    fn on_connect(&mut self, _: &mut Context<'_>, _: &Peer) {
        self.newest.store(self.shard, Ordering::Release);
    }

    fn on_message(&mut self, _: &mut Context<'_>, _: Message<'_>) {
        let mut is_shut = self.gate.is_shut.lock().expect("no panic");
        *is_shut = true;
        self.gate.changed.notify_all();
        let opened = self.gate.changed.wait_while(is_shut, |is_shut| *is_shut);
        drop(opened.expect("no panic"));
    }
}

impl Gate {
    pub fn wait_until_shut(&self) {
        let is_shut = self.is_shut.lock().expect("no panic");
        let shut = self.changed.wait_while(is_shut, |is_shut| !*is_shut);
        drop(shut.expect("no panic"));
    }

    pub fn open(&self) {
        *self.is_shut.lock().expect("no panic") = false;
        self.changed.notify_all();
    }
}

/// A client on this shard, wherever the operating system puts the others that are tried.
pub fn connect_to(server: &Server, shard: u64, newest: &AtomicU64) -> Client {
    loop {
        newest.store(u64::MAX, Ordering::Release);
        let client = connect_v1(server);
        wait_until("it is announced", || {
            newest.load(Ordering::Acquire) != u64::MAX
        });
        if newest.load(Ordering::Acquire) == shard {
            return client;
        }
    }
}

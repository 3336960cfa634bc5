//! Redis in memory: what the link uses of it, for tests and simulations.
//!
//! It reads the bytes of clients and writes the bytes of a server. The scripts are done in Rust, as their heads
//! describe them; a test compares them with a real server. The clock stands still until it is set.

mod agree;
mod commands;
mod groups;
mod nodes;
mod producers;
mod publishing;
mod scripts;
mod store;
mod work;

use crate::redis_model::store::Store;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use tidewire_redis::connection::PubSub;
use tidewire_redis::layout::Position;
use tidewire_redis::resp::{Frames, Limits, Value, reply};
use tidewire_redis::script::Script;

/// A server, its data and its clients.
#[derive(Debug)]
pub struct Redis {
    store: Store,
    /// How many processes there have been: the run id.
    runs: u64,
    seed: u64,
    syncs_always: bool,
    is_replica: bool,
    is_cluster: bool,
    /// Loaded scripts by their hash.
    scripts: BTreeMap<Vec<u8>, (Script, PubSub)>,
    /// How the current script notifies subscribers.
    pub_sub: PubSub,
    clients: BTreeMap<ClientId, Client>,
    last_client: u64,
    /// Errors to be given instead of the next replies to scripts.
    refusal: Option<&'static str>,
    commands: u64,
}

/// A connection to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(u64);

#[derive(Debug)]
struct Client {
    frames: Frames,
    output: Vec<u8>,
    channels: BTreeSet<Vec<u8>>,
    shard_channels: BTreeSet<Vec<u8>>,
    globs: BTreeSet<Vec<u8>>,
}

/// The data of a server at some time.
#[derive(Debug, Clone)]
pub struct Snapshot(Store);

impl Redis {
    /// An empty server. Run ids are made from `seed`.
    #[must_use]
    pub fn new(seed: u64, unix_ms: u64) -> Self {
        Self {
            store: Store::new(unix_ms),
            runs: 1,
            seed,
            syncs_always: false,
            is_replica: false,
            is_cluster: false,
            pub_sub: PubSub::default(),
            scripts: BTreeMap::new(),
            clients: BTreeMap::new(),
            last_client: 0,
            refusal: None,
            commands: 0,
        }
    }

    /// The reply of `CONFIG GET` about `appendonly` and `appendfsync`.
    pub fn set_durable(&mut self, syncs_always: bool) {
        self.syncs_always = syncs_always;
    }

    /// The role in the reply of `INFO`.
    pub fn set_replica(&mut self, is_replica: bool) {
        self.is_replica = is_replica;
    }

    /// The mode in the reply of `HELLO`: `cluster` or `standalone`.
    pub fn set_cluster(&mut self, is_cluster: bool) {
        self.is_cluster = is_cluster;
    }

    /// From now on scripts are answered with this error, such as `OOM no`.
    pub fn refuse(&mut self, error: Option<&'static str>) {
        self.refusal = error;
    }

    /// Sets the clock, milliseconds since 1970.
    pub fn set_time(&mut self, unix_ms: u64) {
        self.store.unix_ms = unix_ms;
    }

    /// Commands that were done.
    #[must_use]
    pub fn commands(&self) -> u64 {
        self.commands
    }

    /// A new connection.
    pub fn open(&mut self) -> ClientId {
        self.last_client += 1;
        let id = ClientId(self.last_client);
        let frames = Frames::new(Limits::default());
        let client = Client {
            frames,
            output: Vec::new(),
            channels: BTreeSet::new(),
            shard_channels: BTreeSet::new(),
            globs: BTreeSet::new(),
        };
        self.clients.insert(id, client);
        id
    }

    /// The end of a connection.
    pub fn close(&mut self, id: ClientId) {
        self.clients.remove(&id);
    }

    /// Whether a connection is open.
    #[must_use]
    pub fn is_open(&self, id: ClientId) -> bool {
        self.clients.contains_key(&id)
    }

    /// Bytes of a client: the commands that are whole are done. Bytes that are no commands end the connection.
    pub fn receive(&mut self, id: ClientId, bytes: &[u8]) {
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        let nothing = Frames::new(Limits::default());
        let mut frames = std::mem::replace(&mut client.frames, nothing);
        let read = frames.read(bytes, |value| {
            let arguments: Option<Vec<&[u8]>> = value.items().map(Value::text).collect();
            match arguments {
                Some(arguments) if !arguments.is_empty() => {
                    self.commands += 1;
                    self.command(id, &arguments);
                    ControlFlow::Continue(())
                }
                _ => ControlFlow::Break(()),
            }
        });
        match (read, self.clients.get_mut(&id)) {
            (Ok(()), Some(client)) => client.frames = frames,
            _ => self.close(id),
        }
    }

    /// The bytes of the server for a client.
    pub fn take_output(&mut self, id: ClientId) -> Vec<u8> {
        self.clients
            .get_mut(&id)
            .map(|client| std::mem::take(&mut client.output))
            .unwrap_or_default()
    }

    /// The data as it is now.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot(self.store.clone())
    }

    /// Another process with this data, or with none: all connections end.
    pub fn restart(&mut self, data: Option<Snapshot>) {
        let unix_ms = self.store.unix_ms;
        self.store = data.map_or_else(|| Store::new(unix_ms), |data| data.0);
        self.store.unix_ms = unix_ms;
        self.runs += 1;
        self.scripts.clear();
        self.clients.clear();
    }

    /// `FLUSHALL`.
    pub fn flush_all(&mut self) {
        self.store = Store::new(self.store.unix_ms);
    }

    /// `SCRIPT FLUSH`.
    pub fn flush_scripts(&mut self) {
        self.scripts.clear();
    }

    /// The positions and records of a stream.
    #[must_use]
    pub fn stream(&self, key: &[u8]) -> Vec<(Position, Vec<u8>)> {
        self.store.entries(key)
    }

    /// The run id of this process.
    #[must_use]
    pub fn run_id(&self) -> String {
        format!("{:020x}{:020x}", self.seed, self.runs)
    }

    /// Notifies the subscribers of a channel as the scripts do.
    fn tell(&mut self, channel: &[u8], message: &[u8]) {
        if self.pub_sub == PubSub::Sharded {
            self.publish_in_shard(channel, message);
            if self.clients.values().all(|client| client.globs.is_empty()) {
                return;
            }
        }
        self.publish_to_all(channel, message);
    }

    /// `SPUBLISH`; how often the message was sent.
    fn publish_in_shard(&mut self, channel: &[u8], message: &[u8]) -> i64 {
        let clients = self.clients.values_mut();
        let listening = clients.filter(|client| client.shard_channels.contains(channel));
        let sent = listening.map(|client| client.push(&[b"smessage", channel, message]));
        sent.count() as i64
    }

    /// `PUBLISH`; how often the message was sent.
    fn publish_to_all(&mut self, channel: &[u8], message: &[u8]) -> i64 {
        let mut count = 0;
        for client in self.clients.values_mut() {
            if client.channels.contains(channel) {
                count += 1;
                client.push(&[b"message", channel, message]);
            }
            let globs = client.globs.iter().filter(|glob| matches(glob, channel));
            for glob in globs.cloned().collect::<Vec<_>>() {
                count += 1;
                client.push(&[b"pmessage", &glob, channel, message]);
            }
        }
        count
    }
}

impl Client {
    fn push(&mut self, parts: &[&[u8]]) {
        reply::push(&mut self.output, parts.len());
        for part in parts {
            reply::text(&mut self.output, part);
        }
    }
}

/// Globs with `*` and escaped bytes, which is what the link sends.
fn matches(glob: &[u8], text: &[u8]) -> bool {
    match glob {
        [] => text.is_empty(),
        [b'*', rest @ ..] => (0..=text.len()).any(|skipped| matches(rest, &text[skipped..])),
        [b'\\', byte, rest @ ..] | [byte, rest @ ..] => {
            text.first() == Some(byte) && matches(rest, &text[1..])
        }
    }
}

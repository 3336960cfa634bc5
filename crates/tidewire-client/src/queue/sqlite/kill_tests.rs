//! A process that is killed at any write of the queue's file: after the restart nothing is lost or doubled.
//!
//! A process that is killed leaves what it had written before. SQLite writes a commit to the log, frame by frame,
//! and copies the log's pages to the file in a checkpoint. So the files before and after a call, and the pieces that are
//! written between them, give every state in which a kill can leave them; each is opened as a restarted client would.

use super::SqliteStore;
use crate::config::{Queue, Uncertain};
use crate::priority_queue::Priority;
use crate::queue::{Durable, Store as _};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The file and its log, as they are on the disk.
#[derive(Clone, PartialEq)]
struct Files {
    data: Vec<u8>,
    log: Option<Vec<u8>>,
}

impl Files {
    fn read(path: &Path) -> Self {
        Self {
            data: std::fs::read(path).unwrap(),
            log: std::fs::read(log_path(path)).ok(),
        }
    }

    fn write(&self, path: &Path) {
        std::fs::write(path, &self.data).unwrap();
        if let Some(log) = &self.log {
            std::fs::write(log_path(path), log).unwrap();
        }
    }
}

fn log_path(path: &Path) -> PathBuf {
    path.with_extension("db-wal")
}

/// Every state between two, in the order of the writes, and both of them.
fn between(before: &Files, after: &Files) -> Vec<Files> {
    let mut states = vec![before.clone()];
    let old_log = before.log.clone().unwrap_or_default();
    let log = after.log.clone().unwrap_or_else(|| old_log.clone());
    for end in log_pieces(&old_log, &log) {
        let mut written = log[..end].to_vec();
        written.extend_from_slice(old_log.get(end..).unwrap_or_default());
        states.push(Files {
            data: before.data.clone(),
            log: Some(written),
        });
    }
    let pages = after.data.len().div_ceil(PAGE_BYTES);
    for page in (0..pages).filter(|_| before.data != after.data) {
        let end = ((page + 1) * PAGE_BYTES).min(after.data.len());
        let mut data = after.data[..end].to_vec();
        data.extend_from_slice(before.data.get(end..).unwrap_or_default());
        states.push(Files {
            data,
            log: Some(log.clone()),
        });
    }
    states.push(after.clone());
    states
}

/// Where the writes of a log end: its head, and of each frame the head and the page. Each is also cut in its middle.
fn log_pieces(old: &[u8], new: &[u8]) -> Vec<usize> {
    let same = old.iter().zip(new).take_while(|(old, new)| old == new);
    let same = same.count();
    let mut ends = Vec::new();
    let mut end = 0;
    for bytes in [LOG_HEAD_BYTES]
        .into_iter()
        .chain([FRAME_HEAD_BYTES, PAGE_BYTES].repeat(new.len() / PAGE_BYTES))
    {
        ends.extend([end + bytes / 2, end + bytes]);
        end += bytes;
    }
    ends.retain(|end| *end > same && *end <= new.len());
    ends
}

/// The world outside of the file: a server, an application, and the promises to it.
#[derive(Clone, Default)]
struct World {
    epoch: u32,
    /// The last number that the server has accepted.
    last: u64,
    /// The messages it has accepted, in order.
    delivered: Vec<String>,
    /// The messages reported as stored.
    promised: BTreeSet<String>,
    /// The messages reported to the application as uncertain, or sent again.
    told: BTreeSet<String>,
}

impl World {
    /// The server accepts a message if its number is new.
    fn deliver(&mut self, number: u64, payload: &[u8]) {
        if number > self.last {
            assert_eq!(number, self.last + 1, "one is missing");
            self.last = number;
            self.delivered.push(text(payload));
        }
    }

    fn tell(&mut self, payload: &[u8]) {
        self.told.insert(text(payload));
    }
}

fn text(payload: &[u8]) -> String {
    String::from_utf8(payload.to_vec()).unwrap()
}

fn message(payload: &str) -> Durable {
    Durable {
        topic: None,
        t: "order".to_owned(),
        payload: payload.as_bytes().to_vec(),
        is_binary: false,
        priority: Priority::Normal,
        key: None,
        expires_unix_ms: None,
    }
}

/// One client's life, call by call. After each call every kill in it is tried.
struct Life {
    folder: tempfile::TempDir,
    store: Option<SqliteStore>,
    uncertain: Uncertain,
    world: World,
    kills: usize,
}

impl Life {
    fn new(uncertain: Uncertain) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut life = Self {
            store: None,
            folder,
            uncertain,
            world: World {
                epoch: 1,
                ..World::default()
            },
            kills: 0,
        };
        // The first thing that is written to a new file is its head.
        let empty = rusqlite::Connection::open(life.path()).unwrap();
        empty.pragma_update(None, "journal_mode", "WAL").unwrap();
        drop(empty);
        life.open();
        life
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("queue.db")
    }

    /// Does `call`, tries every kill in it, and then records its result.
    fn call<T>(
        &mut self,
        call: impl FnOnce(&mut SqliteStore) -> T,
        note: impl FnOnce(&mut World, T),
    ) {
        let before = Files::read(&self.path());
        let returned = call(self.store.as_mut().unwrap());
        let after = Files::read(&self.path());
        self.kill_between(&before, &after);
        note(&mut self.world, returned);
    }

    fn open(&mut self) {
        let before = Files::read(&self.path());
        let store = SqliteStore::open(&self.path(), &Queue::default(), "me").unwrap();
        // A checkpoint each few commits, so that there are some.
        store
            .connection
            .pragma_update(None, "wal_autocheckpoint", 9)
            .unwrap();
        self.store = Some(store);
        let after = Files::read(&self.path());
        self.kill_between(&before, &after);
    }

    /// The client is closed in good order.
    fn close(&mut self) {
        let before = Files::read(&self.path());
        self.store = None;
        let after = Files::read(&self.path());
        self.kill_between(&before, &after);
    }

    fn kill_between(&mut self, before: &Files, after: &Files) {
        for files in between(before, after) {
            self.kills += 1;
            restart(&files, self.world.clone(), self.uncertain);
        }
    }

    fn push(&mut self, payloads: &[&str]) {
        let messages: Vec<_> = payloads.iter().map(|payload| message(payload)).collect();
        self.call(
            |store| store.push(&messages, 0).unwrap(),
            |world, _| {
                let payloads = payloads.iter().map(|&payload| payload.to_owned());
                world.promised.extend(payloads);
            },
        );
    }

    /// A new connection to the server as it is.
    fn resume(&mut self) {
        let (epoch, last, uncertain) = (self.world.epoch, self.world.last, self.uncertain);
        self.call(
            |store| store.resume(epoch, last, uncertain).unwrap(),
            |world, resumed| {
                for message in resumed.resent {
                    world.tell(message.payload.as_bytes());
                }
            },
        );
    }

    /// Sends the waiting messages; the server accepts the first `delivered` of them.
    fn send(&mut self, delivered: usize) {
        self.call(
            |store| store.take(100, 1 << 20, 0).unwrap().messages,
            |world, messages| {
                for message in messages.iter().take(delivered) {
                    world.deliver(message.number, &message.message.payload);
                }
            },
        );
    }

    fn acknowledge(&mut self) {
        let last = self.world.last;
        self.call(|store| store.acknowledge(last).unwrap(), |_, _| {});
    }

    /// The application receives the event about uncertain messages.
    fn take_uncertain(&mut self) {
        let page = self.store.as_mut().unwrap().uncertain(1 << 20).unwrap();
        for (_, message) in &page {
            self.world.tell(&message.payload);
        }
        let rows: Vec<_> = page.into_iter().map(|(row, _)| row).collect();
        self.call(|store| store.forget(&rows).unwrap(), |_, ()| {});
    }

    /// The server starts again and has forgotten its clients.
    fn restart_server(&mut self) {
        self.world.epoch += 1;
        self.world.last = 0;
    }
}

/// Starts the client again on the files of a killed one, and checks that all promises hold.
fn restart(files: &Files, mut world: World, uncertain: Uncertain) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("queue.db");
    files.write(&path);
    let mut store = SqliteStore::open(&path, &Queue::default(), "me").unwrap();
    let resumed = store.resume(world.epoch, world.last, uncertain).unwrap();
    for message in resumed.resent {
        world.tell(message.payload.as_bytes());
    }
    loop {
        let taken = store.take(2, 1 << 20, 0).unwrap().messages;
        for message in &taken {
            world.deliver(message.number, &message.message.payload);
        }
        store.acknowledge(world.last).unwrap();
        if taken.is_empty() {
            break;
        }
    }
    for (_, message) in store.uncertain(1 << 20).unwrap() {
        world.tell(&message.payload);
    }
    for payload in &world.promised {
        let count = world.delivered.iter().filter(|one| *one == payload).count();
        assert!(
            count > 0 || world.told.contains(payload),
            "{payload} is lost"
        );
        let is_sent_again = uncertain == Uncertain::Resend && payload.starts_with("on its way");
        assert!(count < 2 || is_sent_again, "{payload} came twice");
    }
    assert!(
        world.told.iter().all(|told| told.starts_with("on its way")),
        "{:?}",
        world.told
    );
}

fn a_life(uncertain: Uncertain) {
    let mut life = Life::new(uncertain);
    life.push(&["a", "b", "c"]);
    life.resume();
    life.send(2);
    life.acknowledge();
    // The third was on its way when the connection was lost.
    life.resume();
    life.push(&["d"]);
    life.send(1);
    life.resume();
    life.send(1);
    life.acknowledge();
    life.push(&["on its way 1", "on its way 2"]);
    // One has arrived and one has not when the server is started again.
    life.send(1);
    life.restart_server();
    life.push(&["e"]);
    life.resume();
    life.send(3);
    life.take_uncertain();
    life.acknowledge();
    life.close();
    life.open();
    life.push(&["f"]);
    life.resume();
    life.send(1);
    life.acknowledge();
    assert_eq!(life.store.as_ref().unwrap().depth().messages, 0);
    life.close();
    assert!(life.kills > 300, "{}", life.kills);
}

#[test]
fn no_kill_loses_or_doubles_what_was_promised() {
    a_life(Uncertain::Drop);
}

#[test]
fn no_kill_loses_what_is_sent_again() {
    a_life(Uncertain::Resend);
}

const PAGE_BYTES: usize = 4_096;
const LOG_HEAD_BYTES: usize = 32;
const FRAME_HEAD_BYTES: usize = 24;

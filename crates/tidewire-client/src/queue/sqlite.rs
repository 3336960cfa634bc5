//! A store in an SQLite file, which survives a crash of the process or of the machine at any point.
//!
//! A number is on the disk before its message leaves, so that after a crash the message is sent again with the
//! same number, and the server drops it if it has accepted it before. Write-ahead logging with
//! `synchronous = FULL`: a stored message survives even a power cut. That costs a sync of the disk for each
//! commit, not for each message, because all waiting messages are committed together.

#[cfg(test)]
mod kill_tests;
mod log;
mod schema;

use super::lock::{FileLock, in_use};
use super::{
    Durable, MessageLimits, Numbered, QueueDepth, Resumed, Store, StoreError, Taken, expiry,
    private,
};
use crate::clock::steady_unix_ms;
use crate::config::{Queue, Uncertain};
use crate::priority_queue::Priority;
use log::Place;
use rusqlite::{Connection, Row, params};
use schema::{meta, prepare};
use std::path::{Path, PathBuf};

#[derive(Debug)]
pub(super) struct SqliteStore {
    config: Queue,
    path: PathBuf,
    connection: Connection,
    /// The file could not be opened again after it was closed.
    is_closed: bool,
    /// Where the connection writes, as far as that is known.
    place: Option<Place>,
    /// Behind the connection, which is closed first.
    _lock: FileLock,
    producer: String,
    limits: MessageLimits,
    epoch: Option<u32>,
    sent: u64,
    next_number: u64,
    depth: QueueDepth,
}

impl SqliteStore {
    /// Opens or makes the file; `fresh_id` becomes the producer's id of a new one.
    pub(super) fn open(path: &Path, config: &Queue, fresh_id: &str) -> Result<Self, StoreError> {
        let lock = FileLock::acquire(path)?;
        let mut connection = connect(path)?;
        let transaction = connection.transaction().map_err(failed)?;
        prepare(&transaction, fresh_id)?;
        let producer = meta(&transaction, "producer")?.unwrap_or_else(|| fresh_id.to_owned());
        let epoch = meta(&transaction, "epoch")?.and_then(|epoch| epoch.parse().ok());
        limit_ages(&transaction, config)?;
        let (messages, bytes, last): (u64, u64, u64) = transaction
            .query_row(
                "SELECT count(*), coalesce(sum(length(payload)), 0), coalesce(max(number), 0)
                 FROM messages",
                [],
                |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
            )
            .map_err(failed)?;
        transaction.commit().map_err(failed)?;
        // The log is beside the file itself, not beside a link to it.
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        Ok(Self {
            config: config.clone(),
            connection,
            is_closed: false,
            place: Place::of(&path),
            path,
            _lock: lock,
            producer,
            limits: MessageLimits::default(),
            epoch,
            sent: 0,
            next_number: last + 1,
            depth: QueueDepth {
                messages: messages as usize,
                bytes,
            },
        })
    }

    /// Opens the file again if the connection writes to a log that was removed. A call before a write keeps the
    /// write out of such a log; a call after it rescues the writes that went there meanwhile.
    fn keep_place(&mut self) -> Result<(), StoreError> {
        let place = self.place.as_ref();
        if !self.is_closed && !place.is_some_and(|place| place.has_lost_its_log(&self.path)) {
            return Ok(());
        }
        tracing::warn!(path = %self.path.display(), "another library has closed the queue's file");
        if !self.is_closed {
            // What only the log has that nobody will look at.
            self.connection
                .query_row("PRAGMA wal_checkpoint(FULL)", [], |_| Ok(()))
                .map_err(failed)?;
        }
        self.is_closed = true;
        self.connection = Connection::open_in_memory().map_err(failed)?;
        self.connection = connect(&self.path)?;
        self.is_closed = false;
        self.place = Place::of(&self.path);
        Ok(())
    }

    /// Subtracts deleted rows from the depth; returns the rows in order.
    fn release(&mut self, deleted: Vec<(u64, u64)>) -> Vec<u64> {
        for (_, bytes) in &deleted {
            self.depth.messages -= 1;
            self.depth.bytes -= bytes;
        }
        let mut rows: Vec<_> = deleted.into_iter().map(|(row, _)| row).collect();
        rows.sort_unstable();
        rows
    }
}

impl Store for SqliteStore {
    fn producer(&self) -> &str {
        &self.producer
    }

    fn push(&mut self, messages: &[Durable], now_unix_ms: u64) -> Result<Vec<u64>, StoreError> {
        let bytes: u64 = messages
            .iter()
            .map(|message| message.payload.len() as u64)
            .sum();
        if self.depth.messages + messages.len() > self.config.messages_max
            || self.depth.bytes.saturating_add(bytes) > self.config.bytes_max
        {
            return Err(StoreError::Full);
        }
        self.keep_place()?;
        let transaction = self.connection.transaction().map_err(failed)?;
        let mut rows = Vec::with_capacity(messages.len());
        {
            let mut insert = transaction
                .prepare_cached(
                    "INSERT INTO messages (level, topic, type, payload, key, expires_ms, binary)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                )
                .map_err(failed)?;
            for message in messages {
                let expires_ms = expiry(message, &self.config, now_unix_ms).map(signed);
                let row = insert.insert(params![
                    message.priority.number(),
                    message.topic,
                    message.t,
                    message.payload,
                    message.key,
                    expires_ms,
                    message.is_binary,
                ]);
                rows.push(row.map_err(failed)? as u64);
            }
        }
        transaction.commit().map_err(failed)?;
        self.depth.messages += messages.len();
        self.depth.bytes += bytes;
        self.keep_place()?;
        Ok(rows)
    }

    fn resume(
        &mut self,
        epoch: u32,
        last: u64,
        uncertain: Uncertain,
    ) -> Result<Resumed, StoreError> {
        self.keep_place()?;
        let transaction = self.connection.transaction().map_err(failed)?;
        let mut resumed = Resumed::default();
        let mut deleted = Vec::new();
        let is_forgotten = self.epoch.is_some_and(|known| known != epoch);
        if is_forgotten {
            let numbered = numbered(&transaction, 0, usize::MAX)?;
            resumed.uncertain = numbered.iter().map(|one| one.row).collect();
            let mark = match uncertain {
                Uncertain::Drop => "uncertain = 1",
                Uncertain::Resend => "uncertain = 0",
            };
            let sql = format!(
                "UPDATE messages SET number = NULL, expires_ms = NULL, {mark} WHERE number > 0"
            );
            transaction.execute(&sql, []).map_err(failed)?;
            if uncertain == Uncertain::Resend {
                resumed.resent = numbered.into_iter().map(|one| one.message.into()).collect();
            }
        } else {
            deleted = delete(&transaction, "number <= ?1", signed(last))?;
        }
        transaction
            .execute(
                "INSERT OR REPLACE INTO meta VALUES ('epoch', ?1)",
                [epoch.to_string()],
            )
            .map_err(failed)?;
        transaction.commit().map_err(failed)?;
        resumed.acknowledged = self.release(deleted);
        let next = last.saturating_add(1);
        self.next_number = if is_forgotten {
            next
        } else {
            self.next_number.max(next)
        };
        self.epoch = Some(epoch);
        self.sent = last;
        Ok(resumed)
    }

    fn take(
        &mut self,
        count_max: usize,
        bytes_max: usize,
        now_unix_ms: u64,
    ) -> Result<Taken, StoreError> {
        let count_max = count_max.max(1);
        let mut bytes = 0;
        let mut fits = |is_first: bool, message: &Durable| {
            bytes += message.payload.len();
            is_first || bytes <= bytes_max
        };
        self.keep_place()?;
        let transaction = self.connection.transaction().map_err(failed)?;
        let is_old = "number IS NULL AND uncertain = 0 AND expires_ms < ?1";
        let expired = delete(&transaction, is_old, signed(now_unix_ms))?;
        let mut messages = Vec::new();
        let mut is_full = false;
        for message in numbered(&transaction, self.sent, count_max)? {
            is_full = !fits(messages.is_empty(), &message.message);
            if is_full {
                break;
            }
            messages.push(message);
        }
        let mut next_number = self.next_number;
        let (mut too_large, mut unsupported) = (Vec::new(), Vec::new());
        let room = if is_full {
            0
        } else {
            count_max - messages.len()
        };
        for (row, message) in waiting(&transaction, room)? {
            if !message.fits(self.limits.bytes_max) {
                too_large.extend(delete(&transaction, "row = ?1", signed(row))?);
                continue;
            }
            if message.is_binary && !self.limits.takes_binary {
                unsupported.extend(delete(&transaction, "row = ?1", signed(row))?);
                continue;
            }
            if !fits(messages.is_empty(), &message) {
                break;
            }
            if next_number >= i64::MAX as u64 {
                return Err(StoreError::Failed("the numbers are used up".to_owned()));
            }
            let number = next_number;
            set_number(&transaction, row, number)?;
            messages.push(Numbered {
                row,
                number,
                message,
            });
            next_number += 1;
        }
        transaction.commit().map_err(failed)?;
        self.next_number = next_number;
        if self.keep_place().is_err() {
            // Numbers that are not on the disk must not leave.
            messages.clear();
        }
        self.sent = messages.last().map_or(self.sent, |last| last.number);
        Ok(Taken {
            messages,
            expired: self.release(expired),
            too_large: self.release(too_large),
            unsupported: self.release(unsupported),
        })
    }

    fn acknowledge(&mut self, last: u64) -> Result<Vec<u64>, StoreError> {
        self.keep_place()?;
        let last = signed(last.min(self.sent));
        let deleted = delete(&self.connection, "number <= ?1", last)?;
        Ok(self.release(deleted))
    }

    fn rewind(&mut self, last: u64) {
        self.sent = self.sent.min(last);
    }

    fn uncertain(&mut self, bytes_max: usize) -> Result<Vec<(u64, Durable)>, StoreError> {
        let mut statement = self
            .connection
            .prepare_cached(
                "SELECT row, topic, type, payload, level, key, expires_ms, binary FROM messages
                 WHERE uncertain = 1 ORDER BY row LIMIT ?1",
            )
            .map_err(failed)?;
        let rows = statement.query_map([PAGE_ROWS_MAX], |row| Ok((row.get(0)?, read(row)?)));
        let mut page = Vec::new();
        let mut bytes = 0;
        for one in rows.map_err(failed)? {
            let (row, message): (u64, Durable) = one.map_err(failed)?;
            bytes += message.payload.len();
            if !page.is_empty() && bytes > bytes_max {
                break;
            }
            page.push((row, message));
        }
        Ok(page)
    }

    fn forget(&mut self, rows: &[u64]) -> Result<(), StoreError> {
        self.keep_place()?;
        let transaction = self.connection.transaction().map_err(failed)?;
        let mut deleted = Vec::new();
        for row in rows {
            let condition = "uncertain = 1 AND row = ?1";
            deleted.extend(delete(&transaction, condition, signed(*row))?);
        }
        transaction.commit().map_err(failed)?;
        self.release(deleted);
        Ok(())
    }

    fn limit_messages(&mut self, limits: MessageLimits) {
        self.limits = limits;
    }

    fn depth(&self) -> QueueDepth {
        self.depth
    }
}

/// A message that was stored while the clock was ahead would otherwise be kept until the clock is there again.
fn limit_ages(transaction: &Connection, config: &Queue) -> Result<(), StoreError> {
    let age_ms = u64::try_from(config.age_max.as_millis()).unwrap_or(u64::MAX);
    if age_ms > 0 {
        let sql = "UPDATE messages SET expires_ms = ?1 WHERE expires_ms > ?1 AND number IS NULL";
        let latest_ms = signed(steady_unix_ms().saturating_add(age_ms));
        transaction.execute(sql, [latest_ms]).map_err(failed)?;
    }
    Ok(())
}

/// Opens the file for this client alone.
fn connect(path: &Path) -> Result<Connection, StoreError> {
    private::create(path);
    let connection = Connection::open(path).map_err(failed)?;
    private::restrict(path);
    let settings = [
        // Programs of others find the file locked, too, and cannot change it in between.
        ("locking_mode", "EXCLUSIVE"),
        ("journal_mode", "WAL"),
        ("synchronous", "FULL"),
    ];
    for (name, value) in settings {
        connection
            .pragma_update(None, name, value)
            .map_err(failed)?;
    }
    Ok(connection)
}

/// Deletes what `condition` names; which rows those were, and the bytes of their payloads.
fn delete(
    connection: &Connection,
    condition: &str,
    value: i64,
) -> Result<Vec<(u64, u64)>, StoreError> {
    let sql = format!("DELETE FROM messages WHERE {condition} RETURNING row, length(payload)");
    let mut statement = connection.prepare_cached(&sql).map_err(failed)?;
    let rows = statement.query_map([value], |row| Ok((row.get(0)?, row.get(1)?)));
    rows.and_then(Iterator::collect).map_err(failed)
}

/// Messages that have numbers after `sent`.
fn numbered(
    connection: &Connection,
    sent: u64,
    count_max: usize,
) -> Result<Vec<Numbered>, StoreError> {
    let mut statement = connection
        .prepare_cached(
            "SELECT row, topic, type, payload, level, key, expires_ms, binary, number FROM messages
             WHERE number > ?1 ORDER BY number LIMIT ?2",
        )
        .map_err(failed)?;
    let limit = i64::try_from(count_max).unwrap_or(i64::MAX);
    let rows = statement.query_map([signed(sent), limit], |row| {
        Ok(Numbered {
            row: row.get(0)?,
            number: row.get(8)?,
            message: read(row)?,
        })
    });
    rows.and_then(Iterator::collect).map_err(failed)
}

/// Messages that were never sent, in the order in which they will be.
fn waiting(connection: &Connection, count_max: usize) -> Result<Vec<(u64, Durable)>, StoreError> {
    let mut statement = connection
        .prepare_cached(
            "SELECT row, topic, type, payload, level, key, expires_ms, binary FROM messages
             WHERE number IS NULL AND uncertain = 0 ORDER BY level DESC, row LIMIT ?1",
        )
        .map_err(failed)?;
    let rows = statement.query_map([count_max], |row| Ok((row.get(0)?, read(row)?)));
    rows.and_then(Iterator::collect).map_err(failed)
}

fn set_number(connection: &Connection, row: u64, number: u64) -> Result<(), StoreError> {
    let mut update = connection
        .prepare_cached("UPDATE messages SET number = ?2 WHERE row = ?1")
        .map_err(failed)?;
    update
        .execute([signed(row), signed(number)])
        .map_err(failed)?;
    Ok(())
}

/// The message in columns 1 to 7.
fn read(row: &Row<'_>) -> rusqlite::Result<Durable> {
    let level: u64 = row.get(4)?;
    Ok(Durable {
        topic: row.get(1)?,
        t: row.get(2)?,
        payload: row.get(3)?,
        is_binary: row.get(7)?,
        priority: Priority::from_number(level).unwrap_or_default(),
        key: row.get(5)?,
        expires_unix_ms: row.get(6)?,
    })
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) fn failed(error: rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::DatabaseBusy | rusqlite::ErrorCode::DatabaseLocked) => in_use(),
        _ => StoreError::Failed(error.to_string()),
    }
}

/// Uncertain messages that are read at once.
const PAGE_ROWS_MAX: usize = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str) -> Durable {
        Durable {
            topic: Some("orders.eu".to_owned()),
            t: "order".to_owned(),
            payload: text.as_bytes().to_vec(),
            is_binary: false,
            priority: Priority::High,
            key: Some("k".to_owned()),
            expires_unix_ms: Some(u64::MAX),
        }
    }

    #[test]
    fn everything_survives_the_process() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("queue.db");
        let config = Queue::default();
        let mut store = SqliteStore::open(&path, &config, "first").unwrap();
        store
            .push(&[message("1"), message("2"), message("3")], 0)
            .unwrap();
        store.resume(7, 40, Uncertain::Drop).unwrap();
        let taken = store.take(2, 1_000, 0).unwrap();
        drop(store);
        let mut store = SqliteStore::open(&path, &config, "second").unwrap();
        assert_eq!(store.producer(), "first");
        assert_eq!(
            store.depth(),
            QueueDepth {
                messages: 3,
                bytes: 3
            }
        );
        // The server accepted 41 and knows the epoch: 42 is given out again, and the third gets the next number.
        let resumed = store.resume(7, 41, Uncertain::Drop).unwrap();
        assert_eq!(resumed.acknowledged, [taken.messages[0].row]);
        let again = store.take(10, 1_000, 0).unwrap().messages;
        assert_eq!(again[0], taken.messages[1]);
        assert_eq!(
            (again[1].number, again[1].message.payload.as_slice()),
            (43, &b"3"[..])
        );
    }

    /// The messages that a restarted client finds in the files as they are now.
    fn messages_on_disk(path: &Path) -> usize {
        let folder = tempfile::tempdir().unwrap();
        let copy = folder.path().join("queue.db");
        std::fs::copy(path, &copy).unwrap();
        let log = |path: &Path| path.with_extension("db-wal");
        std::fs::copy(log(path), log(&copy)).unwrap();
        let store = SqliteStore::open(&copy, &Queue::default(), "a").unwrap();
        store.depth().messages
    }

    #[test]
    fn what_is_stored_is_there_though_another_library_removes_the_log() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("queue.db");
        let link = folder.path().join("link.db");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let mut store = SqliteStore::open(&link, &Queue::default(), "a").unwrap();
        for count in 1..5 {
            store.push(&[message("1")], 0).unwrap();
            assert_eq!(messages_on_disk(&path), count);
            std::fs::remove_file(path.with_extension("db-wal")).unwrap();
        }
        store.resume(7, 0, Uncertain::Drop).unwrap();
        assert_eq!(store.take(10, 1_000, 0).unwrap().messages.len(), 4);
        assert_eq!(store.acknowledge(4).unwrap(), [1, 2, 3, 4]);
        assert_eq!(messages_on_disk(&path), 0);
    }

    #[test]
    fn a_file_that_was_removed_itself_is_used_to_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("queue.db");
        let mut store = SqliteStore::open(&path, &Queue::default(), "a").unwrap();
        store.push(&[message("1")], 0).unwrap();
        std::fs::remove_file(&path).unwrap();
        std::fs::remove_file(path.with_extension("db-wal")).unwrap();
        store.push(&[message("2")], 0).unwrap();
        store.resume(7, 0, Uncertain::Drop).unwrap();
        assert_eq!(store.take(10, 1_000, 0).unwrap().messages.len(), 2);
    }

    #[test]
    fn a_clock_that_was_ahead_keeps_nothing_for_years() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("queue.db");
        let open = || SqliteStore::open(&path, &Queue::default(), "a").unwrap();
        let (now_ms, day_ms) = (steady_unix_ms(), 86_400_000);
        let kept = Durable {
            expires_unix_ms: None,
            ..message("1")
        };
        open().push(&[kept], now_ms + 3_650 * day_ms).unwrap();
        let mut store = open();
        store.resume(7, 0, Uncertain::Drop).unwrap();
        let taken = store.take(10, 1_000, now_ms + 2 * day_ms).unwrap();
        assert_eq!((taken.messages.len(), taken.expired.len()), (0, 1));
    }

    #[test]
    fn a_second_client_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("queue.db");
        let _first = SqliteStore::open(&path, &Queue::default(), "a").unwrap();
        let Err(StoreError::Failed(words)) = SqliteStore::open(&path, &Queue::default(), "b")
        else {
            panic!("two clients have one file");
        };
        assert!(words.contains("another client"), "{words}");
    }

    #[test]
    fn a_file_that_is_none_of_ours() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("queue.db");
        std::fs::write(
            &path,
            "not a database, but long enough to be looked at as one",
        )
        .unwrap();
        assert!(SqliteStore::open(&path, &Queue::default(), "a").is_err());
    }
}

//! A store in an SQLite file, which survives a crash of the process or of the machine at any point.
//!
//! A number is on the disk before its message leaves, so that after a crash the message is sent again with the same
//! number, and the server drops it if it has taken it. Write-ahead logging with `synchronous = FULL`: what was
//! stored is there even after a power cut. That costs a sync of the disk for each commit, not for each message,
//! because whatever waits is committed together.

use super::{Durable, Numbered, QueueDepth, Resumed, Store, StoreError, Taken, expiry};
use crate::config::{Queue, Uncertain};
use crate::priority_queue::Priority;
use rusqlite::{Connection, OptionalExtension as _, Row, Transaction, params};
use std::path::Path;

#[derive(Debug)]
pub(super) struct SqliteStore {
    config: Queue,
    connection: Connection,
    producer: String,
    message_bytes_max: usize,
    epoch: Option<u32>,
    sent: u64,
    next_number: u64,
    depth: QueueDepth,
}

impl SqliteStore {
    /// Opens or makes the file; `fresh_id` becomes the producer's id of a new one.
    pub(super) fn open(path: &Path, config: &Queue, fresh_id: &str) -> Result<Self, StoreError> {
        let mut connection = Connection::open(path).map_err(failed)?;
        // A second process finds the file locked, and does not speak for the same producer.
        connection
            .pragma_update(None, "locking_mode", "EXCLUSIVE")
            .map_err(failed)?;
        connection
            .pragma_update(None, "journal_mode", "WAL")
            .map_err(failed)?;
        connection
            .pragma_update(None, "synchronous", "FULL")
            .map_err(failed)?;
        let transaction = connection.transaction().map_err(failed)?;
        create(&transaction, fresh_id)?;
        let producer = meta(&transaction, "producer")?.unwrap_or_else(|| fresh_id.to_owned());
        let epoch = meta(&transaction, "epoch")?.and_then(|epoch| epoch.parse().ok());
        let (messages, bytes, last): (u64, u64, u64) = transaction
            .query_row(
                "SELECT count(*), coalesce(sum(length(payload)), 0), coalesce(max(number), 0)
                 FROM messages",
                [],
                |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
            )
            .map_err(failed)?;
        transaction.commit().map_err(failed)?;
        Ok(Self {
            config: config.clone(),
            connection,
            producer,
            message_bytes_max: 0,
            epoch,
            sent: 0,
            next_number: last + 1,
            depth: QueueDepth {
                messages: messages as usize,
                bytes,
            },
        })
    }

    /// Deletes what `condition` names, and says which rows those were.
    fn delete(&mut self, condition: &str, value: i64) -> Result<Vec<u64>, StoreError> {
        let sql = format!("DELETE FROM messages WHERE {condition} RETURNING row, length(payload)");
        let mut statement = self.connection.prepare_cached(&sql).map_err(failed)?;
        let deleted: Result<Vec<(u64, u64)>, _> = statement
            .query_map([value], |row| Ok((row.get(0)?, row.get(1)?)))
            .and_then(Iterator::collect);
        let mut rows = Vec::new();
        for (row, bytes) in deleted.map_err(failed)? {
            self.depth.messages -= 1;
            self.depth.bytes -= bytes;
            rows.push(row);
        }
        rows.sort_unstable();
        Ok(rows)
    }

    fn numbered(&self, count_max: usize) -> Result<Vec<Numbered>, StoreError> {
        let mut statement = self
            .connection
            .prepare_cached(
                "SELECT row, topic, type, payload, level, key, expires_ms, number FROM messages
                 WHERE number > ?1 ORDER BY number LIMIT ?2",
            )
            .map_err(failed)?;
        let rows = statement.query_map(params![signed(self.sent), count_max], |row| {
            Ok(Numbered {
                row: row.get(0)?,
                number: row.get(7)?,
                message: read(row)?,
            })
        });
        rows.and_then(Iterator::collect).map_err(failed)
    }

    fn waiting(&self, count_max: usize) -> Result<Vec<(u64, Durable)>, StoreError> {
        let mut statement = self
            .connection
            .prepare_cached(
                "SELECT row, topic, type, payload, level, key, expires_ms FROM messages
                 WHERE number IS NULL ORDER BY level DESC, row LIMIT ?1",
            )
            .map_err(failed)?;
        let rows = statement.query_map([count_max], |row| Ok((row.get(0)?, read(row)?)));
        rows.and_then(Iterator::collect).map_err(failed)
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
        let transaction = self.connection.transaction().map_err(failed)?;
        let mut rows = Vec::with_capacity(messages.len());
        {
            let mut insert = transaction
                .prepare_cached(
                    "INSERT INTO messages (level, topic, type, payload, key, expires_ms)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
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
                ]);
                rows.push(row.map_err(failed)? as u64);
            }
        }
        transaction.commit().map_err(failed)?;
        self.depth.messages += messages.len();
        self.depth.bytes += bytes;
        Ok(rows)
    }

    fn resume(
        &mut self,
        epoch: u32,
        last: u64,
        uncertain: Uncertain,
    ) -> Result<Resumed, StoreError> {
        let mut resumed = Resumed::default();
        if self.epoch.is_some_and(|known| known != epoch) {
            resumed.uncertain = match uncertain {
                Uncertain::Drop => self.delete("number > ?1", 0)?,
                Uncertain::Resend => {
                    let again = self.numbered_rows()?;
                    self.connection
                        .execute(
                            "UPDATE messages SET number = NULL, expires_ms = NULL WHERE number > 0",
                            [],
                        )
                        .map_err(failed)?;
                    again
                }
            };
            self.next_number = last.saturating_add(1);
        } else {
            resumed.acknowledged = self.delete("number <= ?1", signed(last))?;
            self.next_number = self.next_number.max(last.saturating_add(1));
        }
        self.connection
            .execute(
                "INSERT OR REPLACE INTO meta VALUES ('epoch', ?1)",
                [epoch.to_string()],
            )
            .map_err(failed)?;
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
        let now_ms = signed(now_unix_ms);
        let mut taken = Taken {
            expired: self.delete("number IS NULL AND expires_ms < ?1", now_ms)?,
            ..Taken::default()
        };
        let count_max = count_max.max(1);
        let mut bytes = 0;
        let mut fits = |is_first: bool, message: &Durable| {
            bytes += message.payload.len();
            is_first || bytes <= bytes_max
        };
        for message in self.numbered(count_max)? {
            if !fits(taken.messages.is_empty(), &message.message) {
                return Ok(taken);
            }
            self.sent = message.number;
            taken.messages.push(message);
        }
        let room = count_max - taken.messages.len();
        if room == 0 {
            return Ok(taken);
        }
        let mut number = self.next_number;
        let mut fresh = Vec::new();
        for (row, message) in self.waiting(room)? {
            if !message.fits(self.message_bytes_max) {
                taken.too_large.push(row);
                continue;
            }
            if !fits(taken.messages.is_empty() && fresh.is_empty(), &message) {
                break;
            }
            if number >= i64::MAX as u64 {
                return Err(StoreError::Failed("the numbers are used up".to_owned()));
            }
            fresh.push(Numbered {
                row,
                number,
                message,
            });
            number += 1;
        }
        if let Some(last) = fresh.last() {
            let last = last.number;
            let transaction = self.connection.transaction().map_err(failed)?;
            number_rows(&transaction, &fresh)?;
            transaction.commit().map_err(failed)?;
            (self.next_number, self.sent) = (number, last);
            taken.messages.append(&mut fresh);
        }
        for row in &taken.too_large {
            self.delete("row = ?1", signed(*row))?;
        }
        Ok(taken)
    }

    fn acknowledge(&mut self, last: u64) -> Result<Vec<u64>, StoreError> {
        self.delete("number <= ?1", signed(last.min(self.sent)))
    }

    fn rewind(&mut self, last: u64) {
        self.sent = self.sent.min(last);
    }

    fn limit_messages(&mut self, bytes_max: usize) {
        self.message_bytes_max = bytes_max;
    }

    fn depth(&self) -> QueueDepth {
        self.depth
    }
}

impl SqliteStore {
    fn numbered_rows(&self) -> Result<Vec<u64>, StoreError> {
        let mut statement = self
            .connection
            .prepare_cached("SELECT row FROM messages WHERE number > 0 ORDER BY number")
            .map_err(failed)?;
        let rows = statement.query_map([], |row| row.get(0));
        rows.and_then(Iterator::collect).map_err(failed)
    }
}

/// Makes the tables of a new file, and refuses the file of a later version.
fn create(transaction: &Transaction<'_>, fresh_id: &str) -> Result<(), StoreError> {
    let version: u32 = transaction
        .query_row("PRAGMA user_version", [], |row| row.get(0))
        .map_err(failed)?;
    match version {
        0 => {
            transaction.execute_batch(SCHEMA).map_err(failed)?;
            transaction
                .execute(
                    "INSERT OR IGNORE INTO meta VALUES ('producer', ?1)",
                    [fresh_id],
                )
                .map_err(failed)?;
            Ok(())
        }
        VERSION => Ok(()),
        later => Err(StoreError::Failed(format!(
            "the file has version {later} of the queue, this program knows {VERSION}"
        ))),
    }
}

fn number_rows(transaction: &Transaction<'_>, fresh: &[Numbered]) -> Result<(), StoreError> {
    let mut update = transaction
        .prepare_cached("UPDATE messages SET number = ?2 WHERE row = ?1")
        .map_err(failed)?;
    for message in fresh {
        let (row, number) = (signed(message.row), signed(message.number));
        update.execute([row, number]).map_err(failed)?;
    }
    Ok(())
}

fn meta(transaction: &Transaction<'_>, name: &str) -> Result<Option<String>, StoreError> {
    transaction
        .query_row("SELECT value FROM meta WHERE name = ?1", [name], |row| {
            row.get(0)
        })
        .optional()
        .map_err(failed)
}

/// The message in columns 1 to 6.
fn read(row: &Row<'_>) -> rusqlite::Result<Durable> {
    let level: u64 = row.get(4)?;
    Ok(Durable {
        topic: row.get(1)?,
        t: row.get(2)?,
        payload: row.get(3)?,
        priority: Priority::from_number(level).unwrap_or_default(),
        key: row.get(5)?,
        expires_unix_ms: row.get(6)?,
    })
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn failed(error: rusqlite::Error) -> StoreError {
    let busy = matches!(
        error.sqlite_error_code(),
        Some(rusqlite::ErrorCode::DatabaseBusy | rusqlite::ErrorCode::DatabaseLocked)
    );
    StoreError::Failed(if busy {
        "the file is in use by another client; give each its own".to_owned()
    } else {
        error.to_string()
    })
}

const VERSION: u32 = 1;

const SCHEMA: &str = "
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE messages (
    row INTEGER PRIMARY KEY AUTOINCREMENT,
    level INTEGER NOT NULL,
    number INTEGER,
    topic TEXT,
    type TEXT NOT NULL,
    payload BLOB NOT NULL,
    key TEXT,
    expires_ms INTEGER
);
CREATE INDEX waiting ON messages (level DESC, row) WHERE number IS NULL;
CREATE INDEX expiring ON messages (expires_ms) WHERE number IS NULL;
CREATE UNIQUE INDEX numbered ON messages (number) WHERE number IS NOT NULL;
PRAGMA user_version = 1;
";

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str) -> Durable {
        Durable {
            topic: Some("orders.eu".to_owned()),
            t: "order".to_owned(),
            payload: text.as_bytes().to_vec(),
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
        // The server took 41 and knows the epoch: 42 comes again, and the third gets the next number.
        let resumed = store.resume(7, 41, Uncertain::Drop).unwrap();
        assert_eq!(resumed.acknowledged, [taken.messages[0].row]);
        let again = store.take(10, 1_000, 0).unwrap().messages;
        assert_eq!(again[0], taken.messages[1]);
        assert_eq!(
            (again[1].number, again[1].message.payload.as_slice()),
            (43, &b"3"[..])
        );
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

//! The tables of a queue's file, and how the file of an earlier version gets them.

use super::failed;
use crate::queue::StoreError;
use rusqlite::{OptionalExtension as _, Transaction};

/// Makes the tables of a new file, brings those of an earlier version up to date, and refuses the file of a later one.
pub(super) fn prepare(transaction: &Transaction<'_>, fresh_id: &str) -> Result<(), StoreError> {
    let version: u32 = transaction
        .query_row("PRAGMA user_version", [], |row| row.get(0))
        .map_err(failed)?;
    let steps = match version {
        0 => [VERSION_1, VERSION_2, VERSION_3].as_slice(),
        1 => &[VERSION_2, VERSION_3],
        2 => &[VERSION_3],
        VERSION => &[],
        later => {
            return Err(StoreError::Failed(format!(
                "the file has version {later} of the queue, this program knows {VERSION}"
            )));
        }
    };
    for step in steps {
        transaction.execute_batch(step).map_err(failed)?;
    }
    transaction
        .execute(
            "INSERT OR IGNORE INTO meta VALUES ('producer', ?1)",
            [fresh_id],
        )
        .map_err(failed)?;
    Ok(())
}

/// The entry of the file under this name, beside messages.
pub(super) fn meta(
    transaction: &Transaction<'_>,
    name: &str,
) -> Result<Option<String>, StoreError> {
    transaction
        .query_row("SELECT value FROM meta WHERE name = ?1", [name], |row| {
            row.get(0)
        })
        .optional()
        .map_err(failed)
}

const VERSION: u32 = 3;

/// `number` is set while a message is on its way.
const VERSION_1: &str = "
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

/// `uncertain` is 1 for a message of which it is not known whether the server accepted it, until the
/// application has received the event about it; such a message has no number.
const VERSION_2: &str = "
ALTER TABLE messages ADD COLUMN uncertain INTEGER NOT NULL DEFAULT 0;
DROP INDEX waiting;
DROP INDEX expiring;
CREATE INDEX waiting ON messages (level DESC, row) WHERE number IS NULL AND uncertain = 0;
CREATE INDEX expiring ON messages (expires_ms) WHERE number IS NULL AND uncertain = 0;
CREATE INDEX uncertain ON messages (row) WHERE uncertain = 1;
PRAGMA user_version = 2;
";

/// `binary` is 1 for a payload of bytes, of which the column has the base64 in quotes.
const VERSION_3: &str = "
ALTER TABLE messages ADD COLUMN binary INTEGER NOT NULL DEFAULT 0;
PRAGMA user_version = 3;
";

#[cfg(test)]
mod tests {
    use super::super::SqliteStore;
    use super::*;
    use crate::config::{Queue, Uncertain};
    use crate::queue::Store as _;
    use rusqlite::Connection;

    #[test]
    fn a_file_of_version_1_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("queue.db");
        let old = Connection::open(&path).unwrap();
        old.execute_batch(VERSION_1).unwrap();
        old.execute_batch(
            "INSERT INTO meta VALUES ('producer', 'old'), ('epoch', '7');
             INSERT INTO messages (level, number, type, payload) VALUES (5, 3, 'count', x'31');
             INSERT INTO messages (level, type, payload) VALUES (5, 'count', x'32');",
        )
        .unwrap();
        drop(old);
        let mut store = SqliteStore::open(&path, &Queue::default(), "new").unwrap();
        assert_eq!((store.producer(), store.depth().messages), ("old", 2));
        assert_eq!(store.resume(8, 0, Uncertain::Drop).unwrap().uncertain, [1]);
        let taken = store.take(10, 1_000, 0).unwrap().messages;
        assert_eq!((taken.len(), taken[0].row, taken[0].number), (1, 2, 1));
        assert_eq!(store.uncertain(1_000).unwrap()[0].1.payload, b"1");
    }

    #[test]
    fn a_file_of_a_later_version_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("queue.db");
        let later = Connection::open(&path).unwrap();
        later.pragma_update(None, "user_version", 4).unwrap();
        drop(later);
        let Err(StoreError::Failed(words)) = SqliteStore::open(&path, &Queue::default(), "a")
        else {
            panic!("it knows what will be");
        };
        assert!(words.contains("version 4"), "{words}");
    }
}

//! The lock of a queue's file: one client at a time uses it.
//!
//! SQLite locks its file by `fcntl`. Such locks are the process's, and it loses them when anything in it closes the same
//! file, such as another copy of SQLite that was looking into it. So the client also holds a lock of its own, by
//! `flock`, on a file beside it: that one is lost when this is dropped, and never before.

use super::{StoreError, private};
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

/// Held as long as this lives.
#[derive(Debug)]
pub(super) struct FileLock(File);

impl FileLock {
    /// Locks the file at `path`, which need not be there.
    pub(super) fn acquire(path: &Path) -> Result<Self, StoreError> {
        let path = lock_path(path);
        let failed = |error| StoreError::Failed(format!("{}: {error}", path.display()));
        let file = private::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(failed)?;
        private::restrict(&path);
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(in_use()),
            // Some file systems have no such locks; SQLite's own is left.
            Err(TryLockError::Error(error)) => {
                tracing::warn!(path = %path.display(), %error, "a queue's file cannot be locked");
            }
        }
        Ok(Self(file))
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // Closing the file does it as well, unless a forked process has it, too.
        let _ = self.0.unlock();
    }
}

pub(super) fn in_use() -> StoreError {
    StoreError::Failed("the file is in use by another client; give each its own".to_owned())
}

/// The same for all names of a file.
fn lock_path(path: &Path) -> PathBuf {
    let full = path.canonicalize().unwrap_or_else(|_| {
        let parent = path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new("."));
        let parent = parent.canonicalize().unwrap_or_else(|_| parent.to_owned());
        parent.join(path.file_name().unwrap_or_default())
    });
    let mut name = full.into_os_string();
    name.push("-lock");
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time_by_whatever_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("queue.db");
        let other = folder.path().join("other.db");
        let first = FileLock::acquire(&path).unwrap();
        assert!(FileLock::acquire(&path).is_err());
        File::create(&path).unwrap();
        std::os::unix::fs::symlink(&path, &other).unwrap();
        assert!(FileLock::acquire(&other).is_err());
        drop(first);
        assert!(FileLock::acquire(&other).is_ok());
    }
}

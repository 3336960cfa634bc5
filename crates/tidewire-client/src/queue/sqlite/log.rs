//! The log beside a queue's file, and whether it is still there.
//!
//! SQLite locks its file by `fcntl`, by which no part of a process locks out another. A second copy of SQLite
//! in the process, such as that of Python, may open the file. When that copy closes the file, it assumes
//! that it is the last user, copies the log to the file and removes the log. A write to the removed log is lost
//! with the process. So the log is checked around each write.

use std::path::{Path, PathBuf};

/// The file and the log that a connection has open.
#[derive(Debug)]
pub(super) struct Place {
    file: FileId,
    log: FileId,
}

/// Which file it is, whatever its name.
type FileId = (u64, u64);

impl Place {
    /// The identity of the file at `path` now; `None` where files cannot be distinguished.
    pub(super) fn of(path: &Path) -> Option<Self> {
        Some(Self {
            file: file_id(path)?,
            log: file_id(&log_path(path))?,
        })
    }

    /// Whether the log has been removed, or is another. If the file itself was removed or replaced, another connection
    /// would find nothing of this one there.
    pub(super) fn has_lost_its_log(&self, path: &Path) -> bool {
        file_id(path) == Some(self.file) && file_id(&log_path(path)) != Some(self.log)
    }
}

fn log_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push("-wal");
    name.into()
}

#[cfg(unix)]
fn file_id(path: &Path) -> Option<FileId> {
    use std::os::unix::fs::MetadataExt as _;
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

/// Elsewhere a file that is open cannot be removed.
#[cfg(not(unix))]
fn file_id(_: &Path) -> Option<FileId> {
    Some((0, 0))
}

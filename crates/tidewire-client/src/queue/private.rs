//! Permissions of a queue's files: messages are read and written by their owner alone.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};

/// Options that make a file with mode 0600.
pub(super) fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Makes the file if it is not there. SQLite gives the files beside it the same permissions.
///
/// It never opens an existing file: closing it would release the locks by `fcntl` that another part of the
/// process holds on it.
pub(super) fn create(path: &Path) {
    // Another error is one that SQLite reports.
    let _ = options().write(true).create_new(true).open(path);
}

/// Removes all access but the owner's from the file and those beside it: an older version made them readable for all.
pub(super) fn restrict(path: &Path) {
    for suffix in ["", "-wal", "-shm"] {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        restrict_one(&PathBuf::from(name));
    }
}

#[cfg(unix)]
fn restrict_one(path: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    let Ok(metadata) = std::fs::metadata(path) else {
        return;
    };
    let mut permissions = metadata.permissions();
    let mode = permissions.mode();
    if mode & 0o077 == 0 || !metadata.is_file() {
        return;
    }
    permissions.set_mode(mode & !0o077);
    if let Err(error) = std::fs::set_permissions(path, permissions) {
        tracing::warn!(path = %path.display(), %error, "others can read a queue's file");
    }
}

/// Elsewhere a file has the permissions of its folder.
#[cfg(not(unix))]
fn restrict_one(_: &Path) {}

#[cfg(unix)]
#[cfg(test)]
mod tests {
    use crate::config::Queue;
    use crate::queue::open;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;

    /// The names and modes of the files in a folder.
    fn modes(folder: &Path) -> Vec<(String, u32)> {
        let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
        let mut modes: Vec<_> = entries
            .map(|entry| {
                let name = entry.file_name().into_string().unwrap();
                (name, entry.metadata().unwrap().permissions().mode() & 0o777)
            })
            .collect();
        modes.sort_unstable();
        modes
    }

    #[test]
    fn only_the_owner_reads_the_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("queue.db");
        let config = Queue {
            path: Some(path.clone()),
            ..Queue::default()
        };
        let expected =
            ["queue.db", "queue.db-lock", "queue.db-wal"].map(|name| (name.to_owned(), 0o600));
        let store = open(&config, "p").unwrap();
        assert_eq!(modes(folder.path()), expected);
        drop(store);
        // As an older version left them.
        for (name, _) in modes(folder.path()) {
            fs::set_permissions(folder.path().join(name), Permissions::from_mode(0o644)).unwrap();
        }
        let _store = open(&config, "p").unwrap();
        assert_eq!(modes(folder.path()), expected);
    }
}

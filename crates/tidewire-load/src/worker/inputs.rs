//! Inputs: the files and the variables of the environment that options name.
//!
//! A worker on another machine has neither. The controller notes what its own plan reads, and the worker plans with
//! exactly that. Options are read on one thread and in one piece, so the inputs belong to the thread for that time.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Serialize};

/// The contents of files and variables, in base64 because neither need be text.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Inputs {
    /// Files by their paths.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<PathBuf, String>,
    /// Variables by their names.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub variables: BTreeMap<String, String>,
}

impl Inputs {
    /// Adds those that were read later.
    pub fn add(&mut self, later: Self) {
        self.files.extend(later.files);
        self.variables.extend(later.variables);
    }
}

#[derive(Default)]
enum Scope {
    /// Those of this process.
    #[default]
    Own,
    /// The same, noted.
    Noted(Inputs),
    /// Only these.
    Given(Arc<Inputs>),
}

thread_local! {
    static SCOPE: RefCell<Scope> = RefCell::default();
}

/// Does something and returns the inputs that it has read, too.
pub fn noted<T>(act: impl FnOnce() -> T) -> (T, Inputs) {
    match within(Scope::Noted(Inputs::default()), act) {
        (done, Scope::Noted(inputs)) => (done, inputs),
        (done, _) => (done, Inputs::default()),
    }
}

/// Does something that has only these inputs.
pub fn given<T>(inputs: Arc<Inputs>, act: impl FnOnce() -> T) -> T {
    within(Scope::Given(inputs), act).0
}

fn within<T>(scope: Scope, act: impl FnOnce() -> T) -> (T, Scope) {
    let before = SCOPE.replace(scope);
    let done = act();
    (done, SCOPE.replace(before))
}

/// The content of a file.
///
/// # Errors
/// It cannot be read, or was not given.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    SCOPE.with_borrow_mut(|scope| match scope {
        Scope::Given(inputs) => {
            let content = inputs.files.get(path);
            let content = content.and_then(|content| BASE64_STANDARD.decode(content).ok());
            content.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "it was not given"))
        }
        Scope::Own => std::fs::read(path),
        Scope::Noted(inputs) => {
            let content = std::fs::read(path)?;
            let encoded = BASE64_STANDARD.encode(&content);
            inputs.files.insert(path.to_owned(), encoded);
            Ok(content)
        }
    })
}

/// The content of a file that is text.
///
/// # Errors
/// The same, and a content that is no UTF-8.
pub fn read_to_string(path: &Path) -> io::Result<String> {
    String::from_utf8(read(path)?).map_err(|_| io::Error::other("it is not text in UTF-8"))
}

/// The value of a variable of the environment.
pub(crate) fn variable(name: &str) -> Option<Vec<u8>> {
    // The system has no variable without a name, and may not be asked for one.
    let own = || std::env::var_os(name).filter(|_| !name.is_empty());
    SCOPE.with_borrow_mut(|scope| match scope {
        Scope::Given(inputs) => BASE64_STANDARD.decode(inputs.variables.get(name)?).ok(),
        Scope::Own => own().map(OsString::into_encoded_bytes),
        Scope::Noted(inputs) => {
            let value = own()?.into_encoded_bytes();
            let encoded = BASE64_STANDARD.encode(&value);
            inputs.variables.insert(name.to_owned(), encoded);
            Some(value)
        }
    })
}

/// A file for a library that reads files itself: the one with this path, or a copy of what was given.
#[derive(Debug)]
pub(crate) struct Readable {
    path: PathBuf,
    is_copy: bool,
}

impl Readable {
    /// The file of this path.
    ///
    /// # Errors
    /// It was not given, or the copy cannot be written.
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        let is_own = SCOPE.with_borrow(|scope| matches!(scope, Scope::Own));
        let is_given = SCOPE.with_borrow(|scope| matches!(scope, Scope::Given(_)));
        // What is no file, such as a pipe, can be read once.
        if is_given || !is_own && !path.is_file() {
            return Self::copy(&read(path)?);
        }
        if !is_own {
            read(path)?;
        }
        Ok(Self {
            path: path.to_owned(),
            is_copy: false,
        })
    }

    /// A copy of a content, which only this user can read and which lasts as long as this value.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn copy(content: &[u8]) -> io::Result<Self> {
        static COPIES: AtomicU64 = AtomicU64::new(0);
        let number = COPIES.fetch_add(1, Ordering::Relaxed);
        // Another process may have had the same id, and left something behind.
        let now = std::time::SystemTime::now();
        let now = now
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap_or_default();
        let name = format!(
            "tidewire-input-{}-{number}-{:x}",
            std::process::id(),
            now.as_nanos()
        );
        let copy = Self {
            path: std::env::temp_dir().join(name),
            is_copy: true,
        };
        let mut options = std::fs::OpenOptions::new();
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.write(true).create_new(true).open(&copy.path)?;
        file.write_all(content)?;
        Ok(copy)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Readable {
    fn drop(&mut self) {
        if self.is_copy {
            // It has been read, or is of no use.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_noted_is_there_without_the_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.bin");
        std::fs::write(&path, [0xff, 0]).unwrap();
        let ((), inputs) = noted(|| {
            assert_eq!(read(&path).unwrap(), [0xff, 0]);
            assert!(variable("PATH").is_some() && variable("").is_none());
            assert!(read(&folder.path().join("none")).is_err());
        });
        assert_eq!((inputs.files.len(), inputs.variables.len()), (1, 1));
        let sent = serde_json::to_string(&inputs).unwrap();
        std::fs::remove_file(&path).unwrap();
        given(serde_json::from_str(&sent).unwrap(), || {
            assert_eq!(read(&path).unwrap(), [0xff, 0]);
            assert!(variable("PATH").is_some() && variable("HOME").is_none());
            let copy = Readable::of(&path).unwrap();
            assert_ne!(copy.path(), path);
            assert_eq!(std::fs::read(copy.path()).unwrap(), [0xff, 0]);
            let place = copy.path().to_owned();
            drop(copy);
            assert!(!place.exists());
            assert!(read(Path::new("/etc/passwd")).is_err());
        });
        assert!(read(Path::new("/etc/passwd")).is_ok());
    }
}

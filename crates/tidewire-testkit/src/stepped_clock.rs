//! A clock that a test sets forward and back, for processes that it starts: a library that is loaded into them.
//! Debian's libfaketime is no such library for a Redis: it clashes with its allocator before the server starts.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;

/// What time it is in a process, besides the seconds that are added.
#[derive(Debug)]
pub struct SteppedClock {
    folder: tempfile::TempDir,
    seconds: File,
}

impl SteppedClock {
    /// A clock that is right until it is set.
    ///
    /// # Panics
    /// There is no C compiler.
    #[must_use]
    pub fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let source = folder.path().join("stepped_clock.c");
        std::fs::write(&source, include_str!("stepped_clock.c")).expect("written");
        let status = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .arg(folder.path().join("stepped_clock.so"))
            .arg(&source)
            .status()
            .expect("cc, a C compiler");
        assert!(status.success(), "the C compiler fails");
        let seconds = File::create(folder.path().join("seconds")).expect("a file");
        let clock = Self { folder, seconds };
        clock.set(0);
        clock
    }

    /// Adds this number of seconds to the right time; negative ones set the clock back.
    ///
    /// # Panics
    /// The file cannot be written.
    pub fn set(&self, seconds: i64) {
        let bytes = seconds.to_ne_bytes();
        self.seconds.write_all_at(&bytes, 0).expect("written");
    }

    /// The environment of a process that has this clock.
    #[must_use]
    pub fn environment(&self) -> [(&'static str, PathBuf); 2] {
        let path = |name: &str| self.folder.path().join(name);
        [
            ("LD_PRELOAD", path("stepped_clock.so")),
            ("TIDEWIRE_STEPPED_CLOCK", path("seconds")),
        ]
    }
}

impl Default for SteppedClock {
    fn default() -> Self {
        Self::new()
    }
}

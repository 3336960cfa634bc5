//! A `redis-server` of the test's own, on a Unix socket in a temporary folder.

use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Ends with the value.
pub(crate) struct Server {
    folder: tempfile::TempDir,
    child: Option<Child>,
    options: Vec<String>,
}

impl Server {
    /// With these arguments of `redis-server`, such as `--appendonly yes`.
    pub(crate) fn start(options: &str) -> Self {
        let mut server = Self {
            folder: tempfile::tempdir().expect("a temporary folder"),
            child: None,
            options: options.split_whitespace().map(str::to_owned).collect(),
        };
        server.run();
        server
    }

    pub(crate) fn run(&mut self) {
        let child = Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--unixsocket"])
            .arg(self.path())
            .arg("--dir")
            .arg(self.folder.path())
            .args(&self.options)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("redis-server of Debian's package redis-server is installed");
        self.child = Some(child);
        wait_for("redis-server", || UnixStream::connect(self.path()).is_ok());
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = std::fs::remove_file(self.path());
    }

    /// A client that nobody here wrote.
    pub(crate) fn witness(&self) -> redis::Connection {
        let url = format!("unix://{}", self.path().display());
        let client = redis::Client::open(url).expect("the address of the witness");
        let mut found = None;
        wait_for("the witness", || {
            found = client.get_connection().ok().filter(|_| true);
            let Some(connection) = &mut found else {
                return false;
            };
            // Loading is over.
            redis::cmd("EXISTS")
                .arg("x")
                .query::<i64>(connection)
                .is_ok()
                || redis::cmd("PING")
                    .query::<String>(connection)
                    .is_err_and(|error| error.to_string().contains("NOAUTH"))
        });
        found.expect("a connection")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Waits for a condition, for a minute at most.
pub(crate) fn wait_for(what: &str, mut is_true: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !is_true() {
        assert!(
            Instant::now() < end,
            "{what} did not happen within a minute"
        );
        std::thread::sleep(Duration::from_millis(2));
    }
}

//! A `redis-server` of the test's own, on a Unix socket in a temporary folder. The variable `TIDEWIRE_REDIS_SERVER`
//! names another program, such as `valkey-server`.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Runs until it is dropped.
#[derive(Debug)]
pub struct RedisServer {
    folder: tempfile::TempDir,
    child: Option<Child>,
    options: Vec<String>,
    environment: Vec<(&'static str, PathBuf)>,
}

impl RedisServer {
    /// With these arguments of `redis-server`, such as `--appendonly yes`.
    ///
    /// # Panics
    /// Debian's package redis-server is not installed, or the program that the variable names.
    #[must_use]
    pub fn start(options: &str) -> Self {
        Self::start_in(options, [].into())
    }

    /// The same in an environment with these variables.
    ///
    /// # Panics
    /// As [`start`](Self::start).
    #[must_use]
    pub fn start_in(options: &str, environment: Vec<(&'static str, PathBuf)>) -> Self {
        let mut server = Self {
            environment,
            folder: tempfile::tempdir().expect("a temporary folder"),
            child: None,
            options: options.split_whitespace().map(str::to_owned).collect(),
        };
        server.run();
        server
    }

    /// Runs it again after [`kill`](Self::kill), with what it has written.
    ///
    /// # Panics
    /// It does not start.
    pub fn run(&mut self) {
        let child = Command::new(program())
            .args(["--port", "0", "--save", "", "--unixsocket"])
            .arg(self.socket())
            .arg("--dir")
            .arg(self.folder.path())
            .args(&self.options)
            .envs(self.environment.iter().cloned())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("redis-server of Debian's package redis-server");
        self.child = Some(child);
        let end = Instant::now() + START_TIME;
        while UnixStream::connect(self.socket()).is_err() {
            assert!(Instant::now() < end, "redis-server does not start");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// The path of its socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    /// Its URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    /// The id of its process, while it runs.
    #[must_use]
    pub fn process_id(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Pauses it (SIGSTOP): the system still accepts connections and bytes, but the server does not answer.
    ///
    /// # Panics
    /// It does not run.
    pub fn pause(&self) {
        self.signal("-STOP");
    }

    /// Lets it go on after [`pause`](Self::pause).
    ///
    /// # Panics
    /// It does not run.
    pub fn go_on(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, name: &str) {
        let id = self.process_id().expect("it runs").to_string();
        let status = Command::new("kill").args([name, &id]).status();
        assert!(status.expect("kill").success());
    }

    /// Sends a command of one line and returns the first 256 bytes of the answer.
    ///
    /// # Panics
    /// It cannot be reached.
    pub fn ask(&self, command: &str) -> String {
        let mut socket = UnixStream::connect(self.socket()).expect("a connection");
        write!(socket, "{command}\r\n").expect("sent");
        let mut bytes = [0; 256];
        let read = socket.read(&mut bytes).expect("an answer");
        String::from_utf8_lossy(&bytes[..read]).into_owned()
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended by itself.
            let _: io::Result<()> = child.kill();
            let _ = child.wait();
        }
        let _ = std::fs::remove_file(self.socket());
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Redis, or another server that speaks as it does, such as Valkey's.
fn program() -> String {
    std::env::var("TIDEWIRE_REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned())
}

const START_TIME: Duration = Duration::from_secs(60);

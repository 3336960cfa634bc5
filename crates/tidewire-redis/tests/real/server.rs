//! A server of the test's own, and a client that nobody here wrote.

use std::path::PathBuf;
use std::time::{Duration, Instant};
use tidewire_testkit::redis::RedisServer;
use tidewire_testkit::stepped_clock::SteppedClock;

/// Ends with the value.
pub(crate) struct Server(RedisServer);

impl Server {
    /// With these arguments of `redis-server`, such as `--appendonly yes`.
    pub(crate) fn start(options: &str) -> Self {
        Self(RedisServer::start(options))
    }

    /// The same with a clock of its own.
    pub(crate) fn start_with(clock: &SteppedClock) -> Self {
        Self(RedisServer::start_in("", clock.environment().into()))
    }

    /// Runs it again after [`kill`](Self::kill), with what it has written.
    pub(crate) fn run(&mut self) {
        self.0.run();
    }

    /// The path of its socket.
    pub(crate) fn path(&self) -> PathBuf {
        self.0.socket()
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self) {
        self.0.kill();
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

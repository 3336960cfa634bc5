//! The server that `bench` starts if it has no URL: this program again, as a child process.

use crate::failure::Failure;
use rand::TryRngCore;
use rand::rngs::OsRng;
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// An address of this machine with any free port.
pub(crate) const FREE_PORT: &str = "127.0.0.1:0";

/// A server that ends with this value, or with this process, however the process ends.
#[derive(Debug)]
pub(crate) struct EmbeddedServer {
    child: Child,
    /// The child ends when this is closed.
    stdin: Option<ChildStdin>,
    log: Arc<Mutex<VecDeque<String>>>,
    log_reader: Option<JoinHandle<()>>,
    is_gone: Arc<AtomicBool>,
    /// The URL for connections.
    pub(crate) url: String,
    /// Its operations listener.
    pub(crate) stats_url: String,
    /// The secret that signs its tokens.
    pub(crate) secret: String,
}

impl EmbeddedServer {
    /// Starts a server at an address with these further arguments and waits until it listens. If no
    /// secret is given, the server gets a random one. If the server ends without being stopped, `stop` is set.
    ///
    /// # Errors
    /// The child cannot be started or ends at once; its last output is in the message.
    pub(crate) fn start(
        arguments: &[&str],
        listen: &str,
        secret: Option<String>,
        stop: &Arc<AtomicBool>,
    ) -> Result<Self, Failure> {
        let secret = match secret {
            Some(secret) => secret,
            None => random_secret()?,
        };
        let mut child = command(arguments, listen, &secret)?
            .spawn()
            .map_err(|error| Failure::run(format!("cannot start the server: {error}")))?;
        let log = Arc::default();
        let stderr = child.stderr.take();
        let log_reader = stderr.map(|stderr| keep_last_lines(stderr, Arc::clone(&log)));
        let is_gone = Arc::new(AtomicBool::new(false));
        let lines = match child.stdout.take() {
            Some(stdout) => lines(stdout, Arc::clone(&is_gone), Arc::clone(stop)),
            None => return Err(Failure::run("the server has no standard output")),
        };
        let (url, stats_url) = (String::new(), String::new());
        let stdin = child.stdin.take();
        let mut server = Self {
            child,
            stdin,
            log,
            log_reader,
            is_gone,
            url,
            stats_url,
            secret,
        };
        server.url = server.expect(&lines, "listening on ")?;
        server.stats_url = server.expect(&lines, "operations on ")?;
        Ok(server)
    }

    /// The process.
    pub(crate) fn process_id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended by itself. Its connections break shortly before its end is visible.
    pub(crate) fn is_gone(&mut self) -> bool {
        self.is_gone.load(Ordering::Acquire) || self.wait(NOTICE_TIMEOUT).is_some()
    }

    /// The exit status and the last output of a server that has ended by itself.
    pub(crate) fn last_words(&mut self) -> String {
        let status = self.wait(LAST_WORDS_TIMEOUT);
        if let (Some(_), Some(reader)) = (status, self.log_reader.take()) {
            // Its pipe has ended with the child, so this does not wait.
            let _ = reader.join();
        }
        let how = status.map_or_else(
            || "closed its output".to_owned(),
            |status| status.to_string(),
        );
        let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let words = log
            .iter()
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join("; ");
        if words.is_empty() {
            format!("({how})")
        } else {
            format!("({how}): {words}")
        }
    }

    fn expect(&mut self, lines: &Receiver<String>, start: &str) -> Result<String, Failure> {
        match lines.recv_timeout(START_TIMEOUT) {
            Ok(line) => match line.strip_prefix(start) {
                Some(rest) => Ok(rest.to_owned()),
                None => Err(Failure::run(format!(
                    "the server printed {line:?} instead of {start:?}"
                ))),
            },
            Err(RecvTimeoutError::Timeout) => Err(Failure::run(format!(
                "the server did not start in {START_TIMEOUT:?}"
            ))),
            Err(RecvTimeoutError::Disconnected) => Err(Failure::run(format!(
                "the server did not start {}",
                self.last_words()
            ))),
        }
    }

    fn wait(&mut self, timeout: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + timeout;
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) if Instant::now() < deadline => std::thread::sleep(WAIT_POLL),
                _ => return None,
            }
        }
    }
}

impl Drop for EmbeddedServer {
    fn drop(&mut self) {
        drop(self.stdin.take());
        if self.wait(STOP_TIMEOUT).is_none() {
            // It may have ended between the two calls, which is fine.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn command(arguments: &[&str], listen: &str, secret: &str) -> Result<Command, Failure> {
    let program = std::env::current_exe()
        .map_err(|error| Failure::run(format!("cannot find this program: {error}")))?;
    let mut command = Command::new(program);
    // Variables for other servers must not affect this one.
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("TIDEWIRE_") {
            command.env_remove(name);
        }
    }
    command
        .args(["serve", "--listen", listen, "--ops-listen", "127.0.0.1:0"])
        .args([
            "--stop-with-stdin",
            "--drain-timeout-ms",
            "1000",
            "--log-level",
            "warn",
        ])
        .args(["--rate-limit-capacity", "0"])
        .args(arguments)
        .env("TIDEWIRE_JWT_SECRET", secret)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    // A Ctrl-C is for the generator, which closes its sessions first.
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    Ok(command)
}

fn random_secret() -> Result<String, Failure> {
    let mut bytes = [0; 32];
    OsRng
        .try_fill_bytes(&mut bytes)
        .map_err(|error| Failure::run(format!("cannot draw a random secret: {error}")))?;
    Ok(bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    }))
}

/// The lines of a child's output. The end of the output is the end of the child.
fn lines(
    output: impl Read + Send + 'static,
    is_gone: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            // Nobody reads the later lines, but the pipe must not fill up.
            let _ = sender.send(line);
        }
        is_gone.store(true, Ordering::Release);
        stop.store(true, Ordering::Release);
    });
    receiver
}

fn keep_last_lines(
    output: impl Read + Send + 'static,
    log: Arc<Mutex<VecDeque<String>>>,
) -> JoinHandle<()> {
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
            if log.len() == LOG_LINES_MAX {
                log.pop_front();
            }
            log.push_back(line);
        }
    })
}

const START_TIMEOUT: Duration = Duration::from_secs(10);
/// Longer than the child's own drain.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
const NOTICE_TIMEOUT: Duration = Duration::from_millis(100);
const LAST_WORDS_TIMEOUT: Duration = Duration::from_secs(1);
const WAIT_POLL: Duration = Duration::from_millis(10);
const LOG_LINES_MAX: usize = 4;

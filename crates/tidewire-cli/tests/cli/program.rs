//! Running the program and looking at what it says.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use tidewire_testkit::websocket::Opening;

/// A secret that is long enough.
pub(crate) const SECRET: &str = "0123456789abcdef0123456789abcdef";

/// The program without any setting of the environment that this test runs in.
pub(crate) fn tidewire(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidewire"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("TIDEWIRE_") {
            command.env_remove(name);
        }
    }
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Starts a program that would run for long, once it has written a line to its standard error that begins like this.
/// Gives what it writes there from then on.
pub(crate) fn start_until(command: &mut Command, begin: &str) -> (Child, impl BufRead + use<>) {
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.starts_with(begin) {
        line.clear();
        assert!(lines.read_line(&mut line).unwrap() > 0, "it has ended");
    }
    (child, lines)
}

/// The output of a finished program.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl From<Output> for Said {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().expect("the program ended by a signal"),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

/// Runs the program to its end.
pub(crate) fn run(arguments: &[&str]) -> Said {
    tidewire(arguments).output().unwrap().into()
}

/// Asserts that the program has refused with exit code 2 and one line on standard error that holds
/// these words.
#[track_caller]
pub(crate) fn assert_refused(said: &Said, words: &[&str]) {
    assert_eq!(said.code, 2, "{said:?}");
    assert_eq!(said.stdout, "", "{said:?}");
    assert_eq!(said.stderr.lines().count(), 1, "{said:?}");
    assert!(said.stderr.starts_with("tidewire: "), "{said:?}");
    for word in words {
        assert!(said.stderr.contains(word), "no {word:?} in {said:?}");
    }
}

/// A running `tidewire serve`; killed when dropped.
pub(crate) struct Running {
    pub(crate) child: Child,
    stdout: BufReader<ChildStdout>,
    /// The address that it printed after `listening on `.
    pub(crate) url: String,
}

impl Running {
    /// Starts the program and waits until it listens.
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let mut running = Self {
            child,
            stdout,
            url: String::new(),
        };
        let line = running.line();
        match line.strip_prefix("listening on ") {
            Some(url) => running.url = url.to_owned(),
            None => panic!(
                "expected `listening on …`, got {line:?}, {}",
                running.stderr()
            ),
        }
        running
    }

    /// `serve` on a free port with these arguments.
    pub(crate) fn serve(arguments: &[&str]) -> Self {
        let mut command = tidewire(&["serve", "--listen", "127.0.0.1:0", "--shards", "1"]);
        command.args(arguments);
        Self::start(command)
    }

    /// The next line of standard output; empty at its end.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// `host:port` of the URL.
    pub(crate) fn address(&self) -> &str {
        let (_, rest) = self.url.split_once("://").unwrap();
        rest.split('/').next().unwrap()
    }

    /// The opening handshake of a client.
    pub(crate) fn opening(&self) -> Opening {
        Opening::new(self.address().parse().unwrap())
    }

    /// Sends a signal, such as `TERM`.
    pub(crate) fn signal(&self, name: &str) {
        signal(self.child.id(), name);
    }

    /// Waits for the end; the exit code, if it was not killed.
    pub(crate) fn wait(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }

    /// Ends the program; what it wrote to standard error.
    pub(crate) fn end(mut self) -> String {
        // Whoever is killed writes no line that waits.
        if self.child.try_wait().unwrap().is_none() {
            self.signal("TERM");
            self.wait();
        }
        self.stderr()
    }

    fn stderr(&mut self) -> String {
        let mut text = String::new();
        let _ = self.child.kill();
        self.child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut text)
            .unwrap();
        text
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a signal to a process.
pub(crate) fn signal(process_id: u32, name: &str) {
    // The shell's own, as not every system has a program of that name.
    let command = format!("kill -s {name} {process_id}");
    let status = Command::new("sh").args(["-c", &command]).status().unwrap();
    assert!(status.success());
}

/// The children of a process, by the fourth field of `/proc/PID/stat` (proc(5)).
#[cfg(target_os = "linux")]
pub(crate) fn children(parent: u32) -> Vec<u32> {
    let is_child = |process: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        let after_name = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
        after_name.split(' ').nth(1) == Some(&parent.to_string())
    };
    let names = std::fs::read_dir("/proc")
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    names
        .filter_map(|name| name.to_str()?.parse().ok())
        .filter(is_child)
        .collect()
}

/// Status code and body of `GET` on an operations listener, given what was printed of it.
pub(crate) fn get(base_url: &str, path: &str) -> (u16, String) {
    request(base_url, "GET", path, "", "")
}

/// The same for any method, with a key of the API and a body.
pub(crate) fn request(
    base_url: &str,
    method: &str,
    path: &str,
    key: &str,
    body: &str,
) -> (u16, String) {
    let address = base_url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\
         X-API-Key: {key}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (
        head.split(' ').nth(1).unwrap().parse().unwrap(),
        body.to_owned(),
    )
}

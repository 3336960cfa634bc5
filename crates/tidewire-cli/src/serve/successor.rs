//! The next server, which takes over the sockets of this one.

use super::sockets::{CLIENTS, OPERATIONS, PREDECESSOR, PREDECESSOR_OF_KEPT, SERVES};
use command_fds::{CommandFdExt as _, FdMapping};
use std::io::{self, Read as _};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::{Duration, Instant};
use tidewire_engine::ListeningSockets;

/// How to start the next server: the program at the path at which this one was found, with the same
/// arguments, so that a new version of the program and of its configuration takes over.
#[derive(Debug)]
pub(super) struct Succession {
    program: PathBuf,
    are_kept: bool,
}

/// A starting server, which is to replace this one.
#[derive(Debug)]
pub(super) struct Successor {
    child: Child,
    /// Brings its word, or ends.
    word: UnixStream,
    deadline: Instant,
}

/// How far the next server is.
#[derive(Debug)]
pub(super) enum Progress {
    Starts,
    Serves,
    Failed(String),
}

impl Succession {
    /// To be called before the program's file is replaced.
    ///
    /// # Errors
    /// The operating system does not report the path of the program.
    pub(super) fn new(are_kept: bool) -> io::Result<Self> {
        let program = std::env::current_exe()?;
        Ok(Self { program, are_kept })
    }

    /// Starts the next server with the sockets of this one.
    ///
    /// # Errors
    /// The program cannot be started.
    pub(super) fn start(&self, sockets: &ListeningSockets) -> io::Result<Successor> {
        let (word, its_end) = UnixStream::pair()?;
        word.set_nonblocking(true)?;
        let of = |name, listener: &TcpListener| Ok((name, OwnedFd::from(listener.try_clone()?)));
        let clients = sockets.clients.iter().map(|socket| of(CLIENTS, socket));
        let operations = sockets
            .operations
            .iter()
            .map(|socket| of(OPERATIONS, socket));
        let predecessor = match self.are_kept {
            true => PREDECESSOR_OF_KEPT,
            false => PREDECESSOR,
        };
        let last = std::iter::once(Ok((predecessor, OwnedFd::from(its_end))));
        let named = clients.chain(operations).chain(last);
        let (names, descriptors): (Vec<_>, Vec<_>) =
            named.collect::<io::Result<Vec<_>>>()?.into_iter().unzip();
        let mappings = descriptors.into_iter().zip(FIRST_DESCRIPTOR..);
        let mappings = mappings.map(|(parent_fd, child_fd)| FdMapping {
            parent_fd,
            child_fd,
        });
        let mut command = Command::new(&self.program);
        command
            .args(std::env::args_os().skip(1))
            .env("LISTEN_FDS", names.len().to_string())
            .env("LISTEN_FDNAMES", names.join(":"))
            // They name this process.
            .env_remove("LISTEN_PID")
            .env_remove("WATCHDOG_PID")
            .fd_mappings(mappings.collect())
            .map_err(io::Error::other)?;
        let child = command.spawn()?;
        let deadline = Instant::now() + SUCCESSOR_START_TIMEOUT;
        Ok(Successor {
            child,
            word,
            deadline,
        })
    }
}

impl Successor {
    /// The number of its process.
    pub(super) fn process(&self) -> u32 {
        self.child.id()
    }

    /// Looks how far it is.
    pub(super) fn progress(&mut self) -> Progress {
        let mut word = [0; SERVES.len()];
        match self.word.read(&mut word) {
            Ok(count) if &word[..count] == SERVES => Progress::Serves,
            Err(error)
                if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < self.deadline =>
            {
                Progress::Starts
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.end();
                Progress::Failed(format!(
                    "it did not serve within {SUCCESSOR_START_TIMEOUT:?}"
                ))
            }
            // Its end of the stream is closed, so it has ended or is about to.
            _ => Progress::Failed(self.end()),
        }
    }

    /// Ends it, and returns how it ended.
    pub(super) fn end(&mut self) -> String {
        let ended = self.child.try_wait();
        if !matches!(ended, Ok(Some(_))) {
            // It may end by itself in this moment.
            let _ = self.child.kill();
        }
        match self.child.wait() {
            Ok(status) => format!("it ended: {status}"),
            Err(error) => error.to_string(),
        }
    }
}

/// The first descriptor of sd_listen_fds(3).
const FIRST_DESCRIPTOR: i32 = 3;

/// The time that the next server has until it serves.
const SUCCESSOR_START_TIMEOUT: Duration = Duration::from_secs(60);

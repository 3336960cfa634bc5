//! Listening sockets that another process has opened: systemd (socket activation, sd_listen_fds(3)), or the server
//! before this one.

use crate::failure::Failure;
use listenfd::ListenFd;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use tidewire_engine::ListeningSockets;

/// The sockets that the process was started with.
#[derive(Debug, Default)]
pub(super) struct Inheritance {
    pub(super) sockets: ListeningSockets,
    /// Another process keeps the sockets open while no server runs.
    pub(super) are_kept: bool,
    /// The server before this one. It waits for the word that this one serves.
    predecessor: Option<UnixStream>,
}

impl Inheritance {
    /// Acquires the sockets that the environment names (`LISTEN_FDS`, `LISTEN_PID`, `LISTEN_FDNAMES`); none,
    /// if it names none.
    pub(super) fn take() -> Result<Self, Failure> {
        let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
        let mut names = names.split(':');
        let mut descriptors = ListenFd::from_env();
        let mut inheritance = Self {
            are_kept: descriptors.len() > 0,
            ..Self::default()
        };
        for index in 0..descriptors.len() {
            let name = names.next().unwrap_or_default();
            inheritance
                .add(&mut descriptors, index, name)
                .map_err(|error| {
                    Failure::usage(format!(
                        "the socket {index} of LISTEN_FDS, named {name:?}: {error}"
                    ))
                })?;
        }
        Ok(inheritance)
    }

    fn add(&mut self, from: &mut ListenFd, index: usize, name: &str) -> std::io::Result<()> {
        if [PREDECESSOR, PREDECESSOR_OF_KEPT].contains(&name) {
            self.are_kept = name == PREDECESSOR_OF_KEPT;
            let stream = from.take_unix_listener(index)?.map(OwnedFd::from);
            self.predecessor = stream.map(UnixStream::from);
            return Ok(());
        }
        let socket = from.take_tcp_listener(index)?;
        if name == OPERATIONS || name == OPERATIONS_UNIT {
            if self.sockets.operations.is_some() {
                return Err(std::io::Error::other(
                    "there can be one socket for operations",
                ));
            }
            self.sockets.operations = socket;
        } else {
            self.sockets.clients.extend(socket);
        }
        Ok(())
    }

    /// Reports to the server before this one, if there is one, that this one serves.
    pub(super) fn take_over(&mut self) {
        if let Some(mut predecessor) = self.predecessor.take() {
            // One that has ended already needs no word.
            let _ = predecessor.write_all(SERVES);
        }
    }
}

/// The names of the descriptors, in `LISTEN_FDNAMES`. All other names are sockets for clients.
pub(super) const OPERATIONS: &str = "operations";

/// The name that systemd gives the socket if its unit has none.
const OPERATIONS_UNIT: &str = "tidewire-operations.socket";

pub(super) const CLIENTS: &str = "clients";

/// A stream to the server before this one, which opened the sockets itself.
pub(super) const PREDECESSOR: &str = "predecessor";

/// The same, of sockets that another process keeps open.
pub(super) const PREDECESSOR_OF_KEPT: &str = "predecessor-of-kept";

/// The word of a server that serves.
pub(super) const SERVES: &[u8] = b"serves\n";

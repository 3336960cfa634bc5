//! Servers for the built-in applications. Their event loops are compiled in this crate, with the functions that they call for
//! each message.

use super::{ListeningSockets, Server, StartError};
use crate::apps::{Echo, Sink};
use crate::config::Config;

impl Server {
    /// Starts a server for [`Echo`], as [`Server::start_on`] does.
    ///
    /// # Errors
    /// [`StartError`], before anything was accepted.
    pub fn start_echo(sockets: ListeningSockets, config: Config) -> Result<Self, StartError> {
        Self::start_on(sockets, config, |_| Echo)
    }

    /// Starts a server for [`Sink`], as [`Server::start_on`] does.
    ///
    /// # Errors
    /// [`StartError`], before anything was accepted.
    pub fn start_sink(sockets: ListeningSockets, config: Config) -> Result<Self, StartError> {
        Self::start_on(sockets, config, |_| Sink)
    }
}

//! Ready-made applications for trials and measurements.

use crate::config::Config;
use crate::model::Message;
use crate::server::{ListeningSockets, Server, StartError};
use crate::session::application::Application;
use crate::session::context::Context;

/// Sends every message back as it came, unread: a client that sends what nobody can read gets it back.
#[derive(Debug, Clone, Copy, Default)]
pub struct Echo;

impl Echo {
    /// Starts a server for it, as [`Server::start_on`] does. The event loop is then compiled here, with the functions that
    /// it calls for each message.
    ///
    /// # Errors
    /// [`StartError`], before anything was accepted.
    pub fn start_on(sockets: ListeningSockets, config: Config) -> Result<Server, StartError> {
        Server::start_on(sockets, config, |_| Self)
    }
}

impl Application for Echo {
    #[inline]
    fn reads_messages(&self) -> bool {
        false
    }

    #[inline]
    fn on_message(&mut self, context: &mut Context<'_>, message: Message<'_>) {
        context.send(message);
    }
}

/// Takes every message and does nothing with it; the engine counts it as delivered.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sink;

impl Sink {
    /// Starts a server for it, as [`Echo::start_on`] does.
    ///
    /// # Errors
    /// [`StartError`], before anything was accepted.
    pub fn start_on(sockets: ListeningSockets, config: Config) -> Result<Server, StartError> {
        Server::start_on(sockets, config, |_| Self)
    }
}

impl Application for Sink {
    #[inline]
    fn reads_messages(&self) -> bool {
        false
    }

    #[inline]
    fn on_message(&mut self, _context: &mut Context<'_>, _message: Message<'_>) {}
}

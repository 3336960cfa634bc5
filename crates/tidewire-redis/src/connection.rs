//! One connection to a server: the setup, commands in a pipeline with a deadline each, replies in their order,
//! pushes apart from them.

mod refused;
mod setup;

pub use refused::{ErrorKind, ServerError};
pub use setup::{Login, PubSub, Scripts, ServerInfo};

use crate::connection::setup::Setup;
use crate::resp::{RespError, Value};
use std::collections::VecDeque;

/// The commands of a connection that have no reply yet. `T` is the data that the owner needs when the reply
/// arrives.
#[derive(Debug)]
pub struct Connection<T> {
    setup: Setup,
    pending: VecDeque<Pending<T>>,
    /// Bytes to be sent.
    pub output: Vec<u8>,
}

#[derive(Debug)]
struct Pending<T> {
    /// `None` for the setup's own.
    tag: Option<T>,
    deadline_ms: u64,
    /// It has no reply unless the ACL refuses it: its confirmations are pushes.
    is_silent: bool,
}

/// The kind of a value from the server.
#[derive(Debug)]
pub enum Incoming<'a, T> {
    /// The setup goes on.
    Setup,
    /// The connection can be used from now on.
    Ready,
    /// The reply to a command.
    Reply(T, Result<Value<'a>, ServerError>),
    /// A push: a message of a subscription, or its confirmation.
    Push(Value<'a>),
}

/// Why a connection cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConnectionError {
    /// Bytes that are no RESP3.
    #[error(transparent)]
    Resp(#[from] RespError),
    /// The server refused the setup.
    #[error(transparent)]
    Refused(#[from] ServerError),
    /// The server is not one that the link can use.
    #[error("{0}")]
    Unsuitable(String),
    /// A reply to no command.
    #[error("the server sent a reply to no command")]
    Unasked,
}

impl<T> Connection<T> {
    /// Begins the setup: `HELLO 3` with the login, then `SELECT`, `INFO`, `CONFIG GET` and, in
    /// [`Connection::handle_value`], a `SCRIPT LOAD` for each of `scripts`.
    #[must_use]
    pub fn open(login: &Login, scripts: Scripts, deadline_ms: u64) -> Self {
        let mut connection = Self {
            setup: Setup::new(scripts),
            pending: VecDeque::new(),
            output: Vec::new(),
        };
        let commands = connection.setup.begin(login, &mut connection.output);
        connection.expect_opening(commands, deadline_ms);
        connection
    }

    fn expect_opening(&mut self, commands: usize, deadline_ms: u64) {
        for _ in 0..commands {
            self.pending.push_back(Pending {
                tag: None,
                deadline_ms,
                is_silent: false,
            });
        }
    }

    /// Whether the setup is done.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.setup.is_done()
    }

    /// The description of the server, whole once the connection is ready.
    #[must_use]
    pub fn server(&self) -> &ServerInfo {
        &self.setup.server
    }

    /// Sends one command, whose bytes `write` appends, and waits for its reply until `deadline_ms`.
    pub fn send(&mut self, tag: T, deadline_ms: u64, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.output);
        self.pending.push_back(Pending {
            tag: Some(tag),
            deadline_ms,
            is_silent: false,
        });
    }

    /// Sends a command that has no reply but pushes, such as `UNSUBSCRIBE`.
    pub fn send_unanswered(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.output);
    }

    /// Sends a command that has no reply but pushes, unless the ACL refuses it: then the tag is returned with
    /// the error. A command with a reply, such as `PING`, must follow it.
    pub fn send_silent(&mut self, tag: T, deadline_ms: u64, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.output);
        self.pending.push_back(Pending {
            tag: Some(tag),
            deadline_ms,
            is_silent: true,
        });
    }

    /// Sends `SCRIPT LOAD` for all scripts again, after a server has forgotten them.
    pub fn load_scripts(&mut self, deadline_ms: u64) {
        let commands = self.setup.load_scripts(&mut self.output);
        self.expect_opening(commands, deadline_ms);
    }

    /// When the oldest command without a reply should have had one.
    #[must_use]
    pub fn deadline_ms(&self) -> Option<u64> {
        self.pending.front().map(|pending| pending.deadline_ms)
    }

    /// No command without a reply is late before this time.
    pub fn extend(&mut self, deadline_ms: u64) {
        for pending in &mut self.pending {
            pending.deadline_ms = pending.deadline_ms.max(deadline_ms);
        }
    }

    /// How many commands have no reply.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Handles the next value of the server.
    pub fn handle_value<'a>(
        &mut self,
        value: Value<'a>,
        deadline_ms: u64,
    ) -> Result<Incoming<'a, T>, ConnectionError> {
        if let Value::Push(_) = value {
            return Ok(Incoming::Push(value));
        }
        let result = match value {
            Value::Error(text) => Err(ServerError::new(text)),
            value => Ok(value),
        };
        // A silent command that was done has no reply, so this reply belongs to the command behind it.
        let is_refused = result.as_ref().is_err_and(ServerError::is_of_subscription);
        while !is_refused && self.pending.front().is_some_and(|it| it.is_silent) {
            self.pending.pop_front();
        }
        let pending = self.pending.pop_front().ok_or(ConnectionError::Unasked)?;
        if let Some(tag) = pending.tag {
            return Ok(Incoming::Reply(tag, result));
        }
        let was_done = self.is_ready();
        let commands = self.setup.handle_reply(result, &mut self.output)?;
        self.expect_opening(commands, deadline_ms);
        let is_new = self.is_ready() && !was_done;
        Ok(if is_new {
            Incoming::Ready
        } else {
            Incoming::Setup
        })
    }

    /// The tags of the commands without a reply, in their order, when the connection is gone.
    pub fn into_pending(self) -> impl Iterator<Item = T> {
        self.pending.into_iter().filter_map(|pending| pending.tag)
    }
}

#[cfg(test)]
mod tests;

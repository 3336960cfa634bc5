//! The setup of a connection: who we are, who the server is, and the scripts.

use crate::connection::ConnectionError;
use crate::connection::refused::{ErrorKind, ServerError};
use crate::resp::{Value, command};
use std::collections::VecDeque;

/// The credentials and the name of a connection.
#[derive(Debug, Clone, Default)]
pub struct Login {
    /// The ACL user; `None` is `default`.
    pub user: Option<String>,
    /// The password; `None` sends no `AUTH`.
    pub password: Option<String>,
    /// The database; 0 sends no `SELECT`.
    pub database: u32,
    /// The name in `CLIENT LIST`, without spaces.
    pub name: String,
}

/// The description of a server by itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerInfo {
    /// Such as `7.0.15`.
    pub version: String,
    /// 40 characters, drawn when the process starts.
    pub run_id: String,
    /// `master` or `slave`.
    pub role: String,
    /// `standalone`, `sentinel` or `cluster`.
    pub mode: String,
    /// Connected replicas.
    pub replicas: u64,
    /// `appendonly yes` and `appendfsync always`, read back by `CONFIG GET`. `false` if that is not allowed.
    pub syncs_always: bool,
    /// The eviction policy at `maxmemory`, if `CONFIG GET` is allowed.
    pub eviction_policy: Option<String>,
}

/// The form of publish and subscribe that a server needs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum PubSub {
    /// `PUBLISH` and `SUBSCRIBE`.
    #[default]
    Plain,
    /// `SPUBLISH` and `SSUBSCRIBE`, which a Redis Cluster does not forward to its other nodes. Patterns need the plain
    /// form as well.
    Sharded,
}

impl PubSub {
    /// The command that sends a message to those who subscribe to a channel by its name.
    #[must_use]
    pub fn publish(self) -> &'static [u8] {
        match self {
            Self::Plain => b"PUBLISH",
            Self::Sharded => b"SPUBLISH",
        }
    }

    /// The command that begins to listen to channels.
    #[must_use]
    pub fn subscribe(self) -> &'static [u8] {
        match self {
            Self::Plain => b"SUBSCRIBE",
            Self::Sharded => b"SSUBSCRIBE",
        }
    }

    /// The command that ends it.
    #[must_use]
    pub fn unsubscribe(self) -> &'static [u8] {
        match self {
            Self::Plain => b"UNSUBSCRIBE",
            Self::Sharded => b"SUNSUBSCRIBE",
        }
    }
}

impl ServerInfo {
    /// The form of publish and subscribe that it needs.
    #[must_use]
    pub fn pub_sub(&self) -> PubSub {
        match self.mode.as_str() {
            "cluster" => PubSub::Sharded,
            _ => PubSub::Plain,
        }
    }
}

/// Gives the texts of the scripts to be loaded, for the form of publish and subscribe.
pub type Scripts = fn(PubSub) -> &'static [&'static str];

/// The steps that are still to be answered.
#[derive(Debug)]
pub(super) struct Setup {
    steps: VecDeque<Step>,
    pub(super) server: ServerInfo,
    scripts: Scripts,
    wants_database: Option<u32>,
    is_done: bool,
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Hello,
    Select,
    Info,
    Config,
    Script,
}

impl Setup {
    pub(super) fn new(scripts: Scripts) -> Self {
        Self {
            steps: VecDeque::new(),
            server: ServerInfo::default(),
            scripts,
            wants_database: None,
            is_done: false,
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.is_done
    }

    /// Writes `HELLO`; how many commands that were.
    pub(super) fn begin(&mut self, login: &Login, out: &mut Vec<u8>) -> usize {
        let mut arguments: Vec<&[u8]> = vec![b"HELLO", b"3"];
        if let Some(password) = &login.password {
            let user = login.user.as_deref().unwrap_or("default");
            arguments.extend([b"AUTH", user.as_bytes(), password.as_bytes()]);
        }
        arguments.extend([b"SETNAME", login.name.as_bytes()]);
        command(out, &arguments);
        self.steps.push_back(Step::Hello);
        self.wants_database = (login.database != 0).then_some(login.database);
        1
    }

    /// Handles the reply of the oldest step. Returns how many commands were written for it.
    pub(super) fn handle_reply(
        &mut self,
        reply: Result<Value<'_>, ServerError>,
        out: &mut Vec<u8>,
    ) -> Result<usize, ConnectionError> {
        let commands = self.step(reply, out)?;
        self.is_done |= self.steps.is_empty();
        Ok(commands)
    }

    fn step(
        &mut self,
        reply: Result<Value<'_>, ServerError>,
        out: &mut Vec<u8>,
    ) -> Result<usize, ConnectionError> {
        match self.steps.pop_front() {
            None => Err(ConnectionError::Unasked),
            Some(Step::Hello) => {
                self.hello(reply)?;
                Ok(self.ask(out))
            }
            Some(Step::Info) => {
                self.info(reply?.text().unwrap_or_default());
                self.check_role()?;
                Ok(0)
            }
            Some(Step::Config) => {
                // Managed servers do not allow it: then nothing is known, and nothing is durable.
                if let Ok(value) = reply {
                    self.config(value);
                }
                Ok(0)
            }
            Some(Step::Select | Step::Script) => reply.map(|_| 0).map_err(Into::into),
        }
    }

    fn hello(&mut self, reply: Result<Value<'_>, ServerError>) -> Result<(), ConnectionError> {
        let value = reply.map_err(|error| match error.kind {
            ErrorKind::UnknownCommand => ConnectionError::Unsuitable(format!(
                "the server does not know HELLO ({}); Redis 7.0 or Valkey is needed",
                error.text
            )),
            _ => error.into(),
        })?;
        let mut items = value.items();
        while let (Some(name), Some(value)) = (items.next(), items.next()) {
            let text = || String::from_utf8_lossy(value.text().unwrap_or_default()).into_owned();
            match name.text() {
                Some(b"version") => self.server.version = text(),
                Some(b"mode") => self.server.mode = text(),
                _ => {}
            }
        }
        let major = self
            .server
            .version
            .split('.')
            .next()
            .and_then(|major| major.parse().ok());
        if major.is_none_or(|major: u32| major < VERSION_MIN) {
            return Err(ConnectionError::Unsuitable(format!(
                "the server has version {:?}; Redis {VERSION_MIN}.0 or Valkey is needed",
                self.server.version
            )));
        }
        // Of a cluster all keys are in one slot, and the node that has it is as a single master.
        if !["standalone", "cluster"].contains(&self.server.mode.as_str()) {
            return Err(ConnectionError::Unsuitable(format!(
                "the server runs in mode {:?}; give the address of a master",
                self.server.mode
            )));
        }
        Ok(())
    }

    /// Asks for everything else at once.
    fn ask(&mut self, out: &mut Vec<u8>) -> usize {
        if let Some(database) = self.wants_database {
            command(out, &[b"SELECT", database.to_string().as_bytes()]);
            self.steps.push_back(Step::Select);
        }
        command(out, &[b"INFO", b"server", b"replication"]);
        self.steps.push_back(Step::Info);
        command(
            out,
            &[
                b"CONFIG",
                b"GET",
                b"appendonly",
                b"appendfsync",
                b"maxmemory-policy",
            ],
        );
        self.steps.push_back(Step::Config);
        self.load_scripts(out);
        self.steps.len()
    }

    /// Writes `SCRIPT LOAD` for each script; how many that were.
    pub(super) fn load_scripts(&mut self, out: &mut Vec<u8>) -> usize {
        let scripts = (self.scripts)(self.server.pub_sub());
        for script in scripts {
            command(out, &[b"SCRIPT", b"LOAD", script.as_bytes()]);
            self.steps.push_back(Step::Script);
        }
        scripts.len()
    }

    fn info(&mut self, text: &[u8]) {
        for line in text.split(|byte| *byte == b'\n') {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let Some(colon) = memchr::memchr(b':', line) else {
                continue;
            };
            let value = String::from_utf8_lossy(&line[colon + 1..]).into_owned();
            match &line[..colon] {
                b"run_id" => self.server.run_id = value,
                b"role" => self.server.role = value,
                b"connected_slaves" => self.server.replicas = value.parse().unwrap_or(0),
                _ => {}
            }
        }
    }

    fn check_role(&self) -> Result<(), ConnectionError> {
        if self.server.role != "master" {
            return Err(ConnectionError::Unsuitable(format!(
                "the server has the role {:?}; the broker must be a master",
                self.server.role
            )));
        }
        if self.server.run_id.is_empty() {
            let message = "the server hides its run_id in INFO, so a restart could not be noticed";
            return Err(ConnectionError::Unsuitable(message.to_owned()));
        }
        Ok(())
    }

    fn config(&mut self, value: Value<'_>) {
        let mut items = value.items();
        let (mut appends, mut always) = (false, false);
        while let (Some(name), Some(value)) = (items.next(), items.next()) {
            let value = value.text().unwrap_or_default();
            match name.text() {
                Some(b"appendonly") => appends = value == b"yes",
                Some(b"appendfsync") => always = value == b"always",
                Some(b"maxmemory-policy") => {
                    self.server.eviction_policy = Some(String::from_utf8_lossy(value).into_owned());
                }
                _ => {}
            }
        }
        self.server.syncs_always = appends && always;
    }
}

const VERSION_MIN: u32 = 7;

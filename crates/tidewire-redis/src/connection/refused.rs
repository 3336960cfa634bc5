//! Errors of a server: whose fault, and whether a retry helps.

use std::fmt;

/// An error reply, with what it means for the link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerError {
    /// The kind of the error.
    pub kind: ErrorKind,
    /// The server's words, shortened to 300 characters.
    pub text: String,
    /// The script itself reported that nothing was done.
    is_undone: bool,
}

/// The kind of an error reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The server reads its data from disk.
    Loading,
    /// The server is a replica.
    ReadOnly,
    /// A replica without its master.
    MasterDown,
    /// The memory is at `maxmemory` and nothing may be evicted.
    OutOfMemory,
    /// The server cannot write its data to disk.
    Misconfigured,
    /// The server has fewer replicas than `min-replicas-to-write`.
    NoReplicas,
    /// A script of somebody runs too long.
    Busy,
    /// The ACL user may not do this.
    NoPermission,
    /// The password is wrong or missing.
    Authentication,
    /// The key is at another node of a cluster.
    Moved,
    /// A cluster that does not serve the key now.
    ClusterDown,
    /// The server has forgotten a script.
    NoScript,
    /// A stream has no consumer group of this name, or is gone itself.
    NoGroup,
    /// The server does not know the command.
    UnknownCommand,
    /// More connections than `maxclients`.
    TooManyClients,
    /// Anything else.
    Other,
}

impl ServerError {
    /// The error of these bytes, without the leading `-`.
    #[must_use]
    pub fn new(text: &[u8]) -> Self {
        // Before the words of Redis about the first write of a script.
        let undone = text.strip_prefix(b"REFUSED ");
        let (text, is_undone) = (undone.unwrap_or(text), undone.is_some());
        let text = text.strip_prefix(b"-").unwrap_or(text);
        let code = text.split(|byte| *byte == b' ').next().unwrap_or_default();
        let kind = match code {
            b"LOADING" => ErrorKind::Loading,
            b"READONLY" => ErrorKind::ReadOnly,
            b"MASTERDOWN" => ErrorKind::MasterDown,
            b"OOM" => ErrorKind::OutOfMemory,
            b"MISCONF" => ErrorKind::Misconfigured,
            b"NOREPLICAS" => ErrorKind::NoReplicas,
            b"BUSY" => ErrorKind::Busy,
            b"NOPERM" => ErrorKind::NoPermission,
            b"WRONGPASS" | b"NOAUTH" => ErrorKind::Authentication,
            b"MOVED" | b"ASK" => ErrorKind::Moved,
            b"CLUSTERDOWN" | b"TRYAGAIN" => ErrorKind::ClusterDown,
            b"NOSCRIPT" => ErrorKind::NoScript,
            b"NOGROUP" => ErrorKind::NoGroup,
            // Of a command inside a script: Redis 7.0, and later ones.
            b"ERR" if text.starts_with(b"ERR The user executing the script can't") => {
                ErrorKind::NoPermission
            }
            b"ERR" if text.starts_with(b"ERR ACL failure in script") => ErrorKind::NoPermission,
            b"ERR" if text.starts_with(b"ERR unknown command") => ErrorKind::UnknownCommand,
            b"ERR" if text.starts_with(b"ERR max number of clients") => ErrorKind::TooManyClients,
            b"ERR" if text.starts_with(b"ERR AUTH") => ErrorKind::Authentication,
            _ => ErrorKind::Other,
        };
        let text = String::from_utf8_lossy(text)
            .chars()
            .take(TEXT_CHARS)
            .collect();
        Self {
            kind,
            text,
            is_undone,
        }
    }

    /// Whether the server has certainly done no part of the command. True for all errors that occur before a
    /// script runs or at its first write.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        // If a permission is missing in the middle of a script, nobody knows how much of it was done.
        let is_whole = self.text.starts_with("NOPERM");
        match self.kind {
            ErrorKind::Other => self.is_undone,
            ErrorKind::NoPermission => self.is_undone || is_whole,
            _ => true,
        }
    }

    /// Whether the ACL has refused a subscription, and not the `PING` behind it.
    pub(super) fn is_of_subscription(&self) -> bool {
        self.kind == ErrorKind::NoPermission && !self.text.contains("'ping'")
    }

    /// Whether another connection to the same name may reach a server that can.
    #[must_use]
    pub fn is_wrong_server(&self) -> bool {
        matches!(
            self.kind,
            ErrorKind::ReadOnly | ErrorKind::MasterDown | ErrorKind::Moved
        )
    }

    fn advice(&self) -> &'static str {
        match self.kind {
            ErrorKind::Loading => "Redis reads its data from disk; it is retried",
            ErrorKind::ReadOnly => "the address leads to a replica; give that of the master",
            ErrorKind::MasterDown => "the address leads to a replica that has lost its master",
            ErrorKind::OutOfMemory => "Redis is full; raise maxmemory or keep less history",
            ErrorKind::Misconfigured => "Redis refuses writes; see its log and its disk",
            ErrorKind::NoReplicas => {
                "Redis has fewer replicas than min-replicas-to-write; bring them back or lower it"
            }
            ErrorKind::Busy => "a script of another program blocks Redis; it is retried",
            ErrorKind::NoPermission => {
                "the ACL user needs ~tw:* &tw:* +@all -@dangerous +info +config|get (with your prefix)"
            }
            ErrorKind::Authentication => "correct the user and the password of the broker",
            ErrorKind::Moved => {
                "another node of the cluster has the keys; give the URL redis+cluster://"
            }
            ErrorKind::ClusterDown => "the cluster does not serve this slot now; it is retried",
            ErrorKind::NoScript => "the scripts are loaded again",
            ErrorKind::NoGroup => "the node joins the queue group again",
            ErrorKind::UnknownCommand => {
                "Redis 7.0 or Valkey is needed, and the command must not be renamed"
            }
            ErrorKind::TooManyClients => "raise maxclients of Redis",
            ErrorKind::Other => "this is unexpected; please report it",
        }
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the broker refused: {}; {}", self.text, self.advice())
    }
}

impl std::error::Error for ServerError {}

const TEXT_CHARS: usize = 300;

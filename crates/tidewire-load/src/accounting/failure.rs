//! Failures of connections that could not be opened or broke, by kind.

use std::collections::BTreeMap;
use std::fmt;
use std::io;

use tidewire_net::{Closed, tls};
use tidewire_wire::handshake::client::ResponseError;

/// The reason for which one connection failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Failure {
    /// Nothing listens at the address.
    Refused,
    /// The connection was reset.
    Reset,
    /// No answer in time.
    TimedOut,
    /// The upgrade was answered with this HTTP status.
    Status(u16),
    /// No source port was left on this side.
    NoPort,
    /// This process may not open more files.
    OpenFiles,
    /// This machine is short of memory or of socket buffers.
    Memory,
    /// The TLS handshake or a TLS record failed.
    Tls,
    /// The peer broke HTTP, RFC 6455, or what both have agreed on.
    Protocol,
    /// The plan requests permessage-deflate, and the server does not accept the offer.
    NoDeflate,
    /// The plan requests encryption, and the server does not agree on a key.
    NoEncryption,
    /// The server refuses the subscription.
    NotSubscribed,
    /// The peer ended the connection without a close frame.
    Closed,
    /// The peer closed the connection with this code.
    ClosedWith(u16),
    /// The run was interrupted before the connection was ready.
    Interrupted,
    /// The worker that held the connection has ended.
    WorkerEnded,
    /// The host or network is not reachable.
    Unreachable,
    /// Anything else.
    Other,
}

impl Failure {
    /// The kind of an operating system's error.
    #[must_use]
    pub fn of_io(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionRefused => Self::Refused,
            io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe => Self::Reset,
            io::ErrorKind::TimedOut => Self::TimedOut,
            io::ErrorKind::AddrInUse | io::ErrorKind::AddrNotAvailable => Self::NoPort,
            io::ErrorKind::OutOfMemory => Self::Memory,
            io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => Self::Unreachable,
            _ => Self::of_errno(error),
        }
    }

    #[cfg(target_os = "linux")]
    fn of_errno(error: &io::Error) -> Self {
        use rustix::io::Errno;
        match Errno::from_io_error(error) {
            Some(Errno::MFILE | Errno::NFILE) => Self::OpenFiles,
            Some(Errno::NOMEM | Errno::NOBUFS) => Self::Memory,
            _ => Self::Other,
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn of_errno(_error: &io::Error) -> Self {
        Self::Other
    }

    /// The kind of the end of a connection.
    #[must_use]
    pub fn of_closed(closed: &Closed) -> Self {
        match closed {
            Closed::ByPeer => Self::Closed,
            Closed::NotConnected(error) | Closed::Failed(error) => Self::of_io(error),
            Closed::Tls(_) => Self::Tls,
            Closed::ByUs | Closed::OutboxOverflow => Self::Other,
        }
    }

    /// A stable name for reports, in kebab case.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Reset => "reset",
            Self::TimedOut => "connect-timeout",
            Self::Status(_) => "unexpected-status",
            Self::NoPort => "no-port",
            Self::OpenFiles => "open-files",
            Self::Memory => "memory",
            Self::Tls => "tls",
            Self::Protocol => "protocol",
            Self::NoDeflate => "no-deflate",
            Self::NoEncryption => "no-encryption",
            Self::NotSubscribed => "not-subscribed",
            Self::Closed | Self::ClosedWith(_) => "closed",
            Self::Interrupted => "interrupted",
            Self::WorkerEnded => "worker-ended",
            Self::Unreachable => "unreachable",
            Self::Other => "other",
        }
    }

    /// The close code or HTTP status, of a kind that has one.
    #[must_use]
    pub fn code(self) -> Option<u16> {
        match self {
            Self::Status(code) | Self::ClosedWith(code) => Some(code),
            _ => None,
        }
    }

    /// The kind with this name and code; [`Failure::Other`] for a name that is none.
    #[must_use]
    pub fn of_name(name: &str, code: Option<u16>) -> Self {
        match code {
            Some(code) if name == Self::Status(code).name() => return Self::Status(code),
            Some(code) if name == Self::ClosedWith(code).name() => return Self::ClosedWith(code),
            _ => {}
        }
        let mut known = NAMED.into_iter();
        known
            .find(|failure| failure.name() == name)
            .unwrap_or(Self::Other)
    }

    /// The kind of an unexpected answer to the upgrade.
    #[must_use]
    pub fn of_response(error: &ResponseError) -> Self {
        match error {
            ResponseError::Refused { status, .. } => Self::Status(*status),
            _ => Self::Protocol,
        }
    }
}

/// A stable name for an error of TLS, in kebab case.
#[must_use]
pub fn tls_error_name(error: &tls::Error) -> &'static str {
    match error {
        tls::Error::InvalidCertificate(problem) => match problem {
            tls::CertificateError::Expired | tls::CertificateError::ExpiredContext { .. } => {
                "tls-certificate-expired"
            }
            tls::CertificateError::NotValidForName
            | tls::CertificateError::NotValidForNameContext { .. } => "tls-wrong-name",
            tls::CertificateError::UnknownIssuer => "tls-unknown-issuer",
            _ => "tls-bad-certificate",
        },
        tls::Error::AlertReceived(tls::AlertDescription::NoApplicationProtocol) => NO_PROTOCOL,
        tls::Error::AlertReceived(_) => "tls-refused-by-server",
        _ => "tls",
    }
}

/// The server speaks neither of the versions of HTTP that were offered to it.
pub const NO_PROTOCOL: &str = "tls-no-common-protocol";

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = match self {
            Self::Refused => "refused",
            Self::Reset => "reset",
            Self::TimedOut => "timed out",
            Self::Status(status) => return write!(f, "answered with HTTP {status}"),
            Self::NoPort => "without a free source port",
            Self::OpenFiles => "beyond this process's limit of open files",
            Self::Memory => "short of memory",
            Self::Tls => "failed in TLS",
            Self::Protocol => "broke the protocol",
            Self::NoDeflate => "ended: the server does not accept permessage-deflate",
            Self::NoEncryption => "ended: the server does not agree on a key for encryption",
            Self::NotSubscribed => "ended: the server refuses the subscription",
            Self::Closed => "closed by the server",
            Self::ClosedWith(code) => return write!(f, "closed by the server with code {code}"),
            Self::Interrupted => "not ready when the run was interrupted",
            Self::WorkerEnded => "lost with their worker",
            Self::Unreachable => "unreachable",
            Self::Other => "failed for another reason",
        };
        f.write_str(words)
    }
}

/// Numbers of failed connections, by kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Failures(BTreeMap<Failure, u64>);

impl Failures {
    /// Counts one more.
    pub fn add(&mut self, failure: Failure) {
        *self.0.entry(failure).or_default() += 1;
    }

    /// Counts more of one kind.
    pub fn add_many(&mut self, failure: Failure, count: u64) {
        if count > 0 {
            *self.0.entry(failure).or_default() += count;
        }
    }

    /// Each kind and its number.
    pub fn iter(&self) -> impl Iterator<Item = (Failure, u64)> + '_ {
        self.0.iter().map(|(failure, count)| (*failure, *count))
    }

    /// Adds those of another worker.
    pub fn merge(&mut self, other: &Self) {
        for (failure, count) in &other.0 {
            *self.0.entry(*failure).or_default() += count;
        }
    }

    /// All of them.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }

    /// The most frequent kind.
    #[must_use]
    pub fn most_common(&self) -> Option<Failure> {
        self.0
            .iter()
            .max_by_key(|(_, count)| **count)
            .map(|(failure, _)| *failure)
    }

    /// `3 refused, 1 timed out`; `None` without any.
    #[must_use]
    pub fn in_words(&self) -> Option<String> {
        let parts: Vec<String> = self
            .0
            .iter()
            .map(|(failure, count)| format!("{count} {failure}"))
            .collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}

/// The kinds that a name without a code stands for.
pub(crate) const NAMED: [Failure; 15] = [
    Failure::Refused,
    Failure::Reset,
    Failure::TimedOut,
    Failure::NoPort,
    Failure::OpenFiles,
    Failure::Memory,
    Failure::Tls,
    Failure::Protocol,
    Failure::NoDeflate,
    Failure::NoEncryption,
    Failure::NotSubscribed,
    Failure::Closed,
    Failure::Interrupted,
    Failure::WorkerEnded,
    Failure::Unreachable,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_and_a_code_are_a_kind() {
        let coded = [Failure::Status(503), Failure::ClosedWith(4408)];
        for failure in NAMED.into_iter().chain(coded) {
            assert_eq!(Failure::of_name(failure.name(), failure.code()), failure);
        }
        assert_eq!(Failure::of_name("of another version", None), Failure::Other);
    }

    #[test]
    fn failures_are_told_by_kind() {
        let mut failures = Failures::default();
        assert_eq!(failures.in_words(), None);
        failures.add(Failure::Refused);
        let mut others = Failures::default();
        others.add(Failure::Refused);
        others.add(Failure::Status(503));
        failures.merge(&others);
        assert_eq!(
            failures.in_words().unwrap(),
            "2 refused, 1 answered with HTTP 503"
        );
        assert_eq!(
            (failures.total(), failures.most_common()),
            (3, Some(Failure::Refused))
        );
    }

    #[test]
    fn errors_have_their_kind() {
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        assert_eq!(
            Failure::of_closed(&Closed::NotConnected(refused)),
            Failure::Refused
        );
        assert_eq!(Failure::of_closed(&Closed::ByPeer), Failure::Closed);
        let no_port = io::Error::from(io::ErrorKind::AddrNotAvailable);
        assert_eq!(Failure::of_io(&no_port), Failure::NoPort);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_descriptor_table_is_told_apart() {
        let error = io::Error::from(rustix::io::Errno::MFILE);
        assert_eq!(Failure::of_io(&error), Failure::OpenFiles);
    }
}

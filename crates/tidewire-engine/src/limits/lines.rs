//! Limits of the log lines that strangers can cause: some for each kind and address in a minute, and one line that
//! counts the others.
//!
//! Whoever reaches a listener can be refused as often as it likes. The lines about that are for the operator, who needs
//! the first ones of each address, and a count of the rest. All tables are bounded by the lines of one minute.

use crate::limits::source::Source;
use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tracing::Level;

/// Lines about the same event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LineKind {
    TokenRefused,
    SessionTokenRefused,
    TopicTokenRefused,
    TokenExpired,
    OriginRefused,
    HostRefused,
    OperationsHostRefused,
    ProxyHeaderRefused,
    OutboxOverflow,
    ErrorBudget,
    FirstSubscriptions,
    ApplicationPanic,
    PublicationLost,
    GroupFull,
    GroupAbandoned,
    UnfinishedMessage,
    NotAdopted,
}

/// The limits of a server.
#[derive(Debug, Default)]
pub(crate) struct LineLimits {
    windows: [Mutex<Window>; KINDS.len()],
    /// Some kind has a count that its summary has yet to report.
    has_left_out: AtomicBool,
    /// The lines that were left out, since the start.
    left_out: AtomicU64,
}

/// The lines of one kind in the current minute.
#[derive(Debug, Default)]
struct Window {
    since_ms: u64,
    lines: u32,
    /// The sources that lines were logged of.
    sources: HashMap<Source, Lines>,
    /// The names that lines were logged of.
    names: HashSet<String>,
    left_out: u64,
}

/// The lines of one source in the current minute.
#[derive(Debug, Default)]
struct Lines {
    logged: u32,
    left_out: u64,
    /// An address of the source.
    address: Option<SocketAddr>,
}

impl LineLimits {
    /// True if a line about an address may be logged now; if not, it is counted.
    #[must_use]
    pub(crate) fn permit(&self, kind: LineKind, address: Option<SocketAddr>, unix_ms: u64) -> bool {
        self.permit_for(kind, None, address, unix_ms)
    }

    /// [`permit`](Self::permit) for a name that a peer chooses: each has one line in a minute.
    #[must_use]
    pub(crate) fn permit_named(
        &self,
        kind: LineKind,
        name: &str,
        address: Option<SocketAddr>,
        unix_ms: u64,
    ) -> bool {
        self.permit_for(kind, Some(name), address, unix_ms)
    }

    fn permit_for(
        &self,
        kind: LineKind,
        name: Option<&str>,
        address: Option<SocketAddr>,
        unix_ms: u64,
    ) -> bool {
        let mut window = self.window(kind);
        if window.is_over(unix_ms) {
            window.renew(kind, unix_ms);
        }
        let source = address.map_or(Source::Unknown, |address| Source::of(address.ip()));
        let is_permitted = window.admit(source, name, address);
        if !is_permitted {
            self.left_out.fetch_add(1, Ordering::Relaxed);
            self.has_left_out.store(true, Ordering::Relaxed);
        }
        is_permitted
    }

    /// True if [`summarize`](Self::summarize) may have a count to report.
    #[inline]
    pub(crate) fn has_left_out(&self) -> bool {
        self.has_left_out.load(Ordering::Relaxed)
    }

    /// Logs the counts of lines that were left out in minutes that are over.
    #[cold]
    pub(crate) fn summarize(&self, unix_ms: u64) {
        self.has_left_out.store(false, Ordering::Relaxed);
        for (kind, ..) in KINDS {
            let mut window = self.window(kind);
            if window.is_over(unix_ms) {
                window.renew(kind, unix_ms);
            }
            if window.left_out > 0 {
                self.has_left_out.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Logs the counts of the current minute, too: the server ends.
    pub(crate) fn finish(&self, unix_ms: u64) {
        for (kind, ..) in KINDS {
            self.window(kind).renew(kind, unix_ms);
        }
    }

    /// The lines that were left out since the start.
    pub(crate) fn left_out(&self) -> u64 {
        self.left_out.load(Ordering::Relaxed)
    }

    fn window(&self, kind: LineKind) -> MutexGuard<'_, Window> {
        let window = &self.windows[kind as usize];
        window.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Window {
    fn is_over(&self, unix_ms: u64) -> bool {
        // A clock that was set back ends it, too.
        unix_ms < self.since_ms || unix_ms - self.since_ms >= WINDOW_MS
    }

    /// Counts a line; true if it is to be logged.
    fn admit(&mut self, source: Source, name: Option<&str>, address: Option<SocketAddr>) -> bool {
        let is_known = name.is_some_and(|name| self.names.contains(name));
        let has_room = self.lines < LINES_PER_KIND && !is_known;
        let lines = match self.sources.get_mut(&source) {
            Some(lines) => lines,
            None if has_room => self.sources.entry(source).or_default(),
            None => {
                self.left_out += 1;
                return false;
            }
        };
        if !has_room || lines.logged >= LINES_PER_SOURCE {
            lines.left_out += 1;
            self.left_out += 1;
            return false;
        }
        lines.logged += 1;
        lines.address = address;
        self.lines += 1;
        self.names.extend(name.map(str::to_owned));
        true
    }

    /// Reports the lines that were left out, and starts another minute.
    fn renew(&mut self, kind: LineKind, unix_ms: u64) {
        let ended = std::mem::take(self);
        self.since_ms = unix_ms;
        if ended.left_out == 0 {
            return;
        }
        let most = ended.sources.values().max_by_key(|lines| lines.left_out);
        let most = most.filter(|lines| lines.left_out > 0);
        let (_, level, words) = KINDS[kind as usize];
        let address = most.and_then(|lines| lines.address);
        let of_address = most.map(|lines| lines.left_out);
        // A summary has the level of its lines: who does not want those does not want their count.
        match level {
            Level::INFO => tracing::info!(
                kind = words,
                lines = ended.left_out,
                address = address.map(tracing::field::display),
                of_address,
                "{SUMMARY}",
            ),
            _ => tracing::warn!(
                kind = words,
                lines = ended.left_out,
                address = address.map(tracing::field::display),
                of_address,
                "{SUMMARY}",
            ),
        }
    }
}

/// The kinds in the order of [`LineKind`], with the level of their lines and the words for their summaries.
const KINDS: [(LineKind, Level, &str); 17] = [
    (
        LineKind::TokenRefused,
        Level::INFO,
        "a token is not accepted",
    ),
    (
        LineKind::SessionTokenRefused,
        Level::INFO,
        "another token for a session is not accepted",
    ),
    (
        LineKind::TopicTokenRefused,
        Level::INFO,
        "a token for a topic is not accepted",
    ),
    (
        LineKind::TokenExpired,
        Level::INFO,
        "a session ends because its token has expired",
    ),
    (
        LineKind::OriginRefused,
        Level::WARN,
        "an origin is not allowed",
    ),
    (LineKind::HostRefused, Level::WARN, "a host is not allowed"),
    (
        LineKind::OperationsHostRefused,
        Level::WARN,
        "a host is not allowed on the operations listener",
    ),
    (
        LineKind::ProxyHeaderRefused,
        Level::WARN,
        "a PROXY header is refused",
    ),
    (
        LineKind::OutboxOverflow,
        Level::INFO,
        "a connection ends because its peer does not read",
    ),
    (
        LineKind::ErrorBudget,
        Level::INFO,
        "a connection is closed because too much of it had to be refused",
    ),
    (
        LineKind::FirstSubscriptions,
        Level::WARN,
        "first subscriptions of the backend are not made",
    ),
    (
        LineKind::ApplicationPanic,
        Level::ERROR,
        "the application panicked",
    ),
    (
        LineKind::PublicationLost,
        Level::WARN,
        "a publication of the application is lost",
    ),
    (LineKind::GroupFull, Level::WARN, "a queue group is full"),
    (
        LineKind::GroupAbandoned,
        Level::WARN,
        "nobody came back to a queue group",
    ),
    (
        LineKind::UnfinishedMessage,
        Level::INFO,
        "a connection ends because too many unfinished messages wait for their rest",
    ),
    (
        LineKind::NotAdopted,
        Level::WARN,
        "a connection could not be handed over",
    ),
];

const SUMMARY: &str =
    "lines of the log were left out, because there were too many of this kind within a minute";

/// Lines of one kind about one address, or the /64 network of an IPv6 address, in a minute.
const LINES_PER_SOURCE: u32 = 5;

/// Lines of one kind about all addresses in a minute.
const LINES_PER_KIND: u32 = 100;

/// A minute, in milliseconds.
const WINDOW_MS: u64 = 60_000;

#[cfg(test)]
mod tests {
    use super::*;

    /// A time in milliseconds since 1970.
    const START: u64 = 1_732_000_000_000;

    fn address(text: &str) -> Option<SocketAddr> {
        Some(SocketAddr::new(text.parse().unwrap(), 1))
    }

    #[test]
    fn kinds_are_in_their_order() {
        for (index, (kind, ..)) in KINDS.iter().enumerate() {
            assert_eq!(*kind as usize, index);
        }
    }

    #[test]
    fn an_address_has_some_lines_of_each_kind_in_a_minute() {
        let limits = LineLimits::default();
        let ann = address("192.0.2.1");
        let count = |kind, address, at_ms| {
            let permitted = (0..50).filter(|_| limits.permit(kind, address, START + at_ms));
            permitted.count() as u32
        };
        assert_eq!(count(LineKind::TokenRefused, ann, 1_000), LINES_PER_SOURCE);
        assert_eq!(count(LineKind::TokenRefused, ann, 60_999), 0);
        assert_eq!(count(LineKind::ErrorBudget, ann, 1_000), LINES_PER_SOURCE);
        let bob = address("192.0.2.2");
        assert_eq!(count(LineKind::TokenRefused, bob, 1_000), LINES_PER_SOURCE);
        assert_eq!(count(LineKind::TokenRefused, ann, 61_000), LINES_PER_SOURCE);
        assert_eq!(limits.left_out(), 45 + 50 + 45 + 45 + 45);
    }

    #[test]
    fn a_network_of_ipv6_is_one_address_and_all_together_are_bounded() {
        let limits = LineLimits::default();
        let of_network = |number: u32| address(&format!("2001:db8::{number:x}"));
        let permitted = (0..1_000)
            .filter(|number| limits.permit(LineKind::HostRefused, of_network(*number), 5));
        assert_eq!(permitted.count() as u32, LINES_PER_SOURCE);
        let networks = (1..1_000).map(|number| address(&format!("2001:db8:0:{number:x}::1")));
        let permitted = networks
            .filter(|address| limits.permit(LineKind::HostRefused, *address, 5))
            .count() as u32;
        assert_eq!(permitted, LINES_PER_KIND - LINES_PER_SOURCE);
        let window = limits.window(LineKind::HostRefused);
        assert!(window.sources.len() <= LINES_PER_KIND as usize);
        assert_eq!(window.left_out, 1_999 - u64::from(LINES_PER_KIND));
    }

    #[test]
    fn a_name_has_one_line_in_a_minute_and_invented_ones_fill_nothing() {
        let limits = LineLimits::default();
        let permit = |name: &str, from, at_ms| {
            limits.permit_named(LineKind::OriginRefused, name, address(from), START + at_ms)
        };
        assert!(permit("https://a", "192.0.2.1", 1_000));
        assert!(!permit("https://a", "192.0.2.2", 2_000));
        let invented = (0..1_000).map(|number| format!("https://{number}"));
        let permitted = invented.filter(|name| permit(name, "192.0.2.9", 3_000));
        assert_eq!(permitted.count() as u32, LINES_PER_SOURCE);
        assert!(permit("https://b", "192.0.2.1", 4_000));
        assert!(permit("https://a", "192.0.2.2", 61_000));
        assert_eq!(limits.window(LineKind::OriginRefused).names.len(), 1);
    }

    #[test]
    fn a_summary_is_due_until_its_minute_is_over() {
        let limits = LineLimits::default();
        for _ in 0..=LINES_PER_SOURCE {
            let _ = limits.permit(LineKind::TokenRefused, None, START);
        }
        assert!(limits.has_left_out());
        limits.summarize(START + 59_999);
        assert!(limits.has_left_out());
        limits.summarize(START + 60_000);
        assert!(!limits.has_left_out());
    }
}

//! Host names that a server accepts in `Host`: a guard against DNS rebinding.
//!
//! A page of `evil.example` may have that name resolved to 127.0.0.1 and then talk to a server on this
//! machine as one of its own host: `Origin` and `Host` agree. The page cannot choose the value of `Host`, so
//! a server that knows its own names recognizes such a page.

use crate::limits::lines::{LineKind, LineLimits};
use crate::model::ConnectionKey;
use crate::model::spelling::OptionSpelling;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Which values of the `Host` header are accepted. Addresses, `localhost` and names below it are
/// always accepted: no page can have them resolved to a server of its choice.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum HostPolicy {
    /// Any, but no other name from web pages on a loopback address without authentication, where
    /// the server is most likely meant for this machine alone. A page whose origin is listed, and
    /// what a trusted proxy forwards, may use any name. On the operations listener: no other name
    /// from anybody on a loopback address.
    #[default]
    Local,
    /// Any, everywhere.
    Any,
    /// These from everybody, such as `app.example.com`, or `*.example.com` for the names below it.
    /// Without a port.
    Listed(Vec<String>),
}

/// A text that is no name of a host. The caller's fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected a host without scheme and port, such as app.example.com or *.example.com, or any"
)]
pub struct InvalidHost;

impl HostPolicy {
    /// The policy that a list of names means: `any` among them is [`HostPolicy::Any`], none is
    /// [`HostPolicy::Local`].
    ///
    /// # Errors
    /// [`InvalidHost`].
    pub fn from_names(names: Vec<String>) -> Result<Self, InvalidHost> {
        for name in &names {
            check(name)?;
        }
        Ok(if names.is_empty() {
            Self::Local
        } else if names.iter().any(|name| name == ANY) {
            Self::Any
        } else {
            Self::Listed(names)
        })
    }

    /// True if a `Host` is accepted. `is_guarded`: without a list, only names of this machine are accepted.
    fn allows(&self, host: &str, is_guarded: bool) -> bool {
        let name = without_port(host);
        match self {
            Self::Any => true,
            Self::Local => !is_guarded || is_local(name),
            Self::Listed(names) => is_local(name) || names.iter().any(|known| matches(known, name)),
        }
    }
}

/// Whether a text can stand in the list: a host, with `*.` in front of it or not, or `any`.
///
/// # Errors
/// [`InvalidHost`].
pub fn check(name: &str) -> Result<(), InvalidHost> {
    let host = name.strip_prefix("*.").unwrap_or(name);
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    let is_name = !host.is_empty() && host.bytes().all(is_part);
    let is_address = name.parse::<IpAddr>().is_ok();
    (is_name || is_address).then_some(()).ok_or(InvalidHost)
}

/// A policy at work on one listener: what it refuses is counted, and logged at most once a minute for each host.
#[derive(Debug)]
pub(crate) struct HostGuard {
    policy: HostPolicy,
    spelling: OptionSpelling,
    refused: AtomicU64,
    kind: LineKind,
    lines: Arc<LineLimits>,
}

/// The client that names a host, for the log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HostCaller {
    /// Its connection; none on the operations listener.
    pub(crate) connection: Option<ConnectionKey>,
    pub(crate) address: Option<SocketAddr>,
    pub(crate) unix_ms: u64,
}

impl HostGuard {
    /// `kind` names the listener in the log.
    pub(crate) fn new(
        policy: HostPolicy,
        spelling: OptionSpelling,
        kind: LineKind,
        lines: Arc<LineLimits>,
    ) -> Self {
        Self {
            policy,
            spelling,
            refused: AtomicU64::new(0),
            kind,
            lines,
        }
    }

    /// Whether a `Host` is accepted; if not, the words to refuse it with.
    pub(crate) fn check(
        &self,
        host: &str,
        is_guarded: bool,
        caller: HostCaller,
    ) -> Result<(), String> {
        if self.policy.allows(host, is_guarded) {
            return Ok(());
        }
        self.refused.fetch_add(1, Ordering::Relaxed);
        let name: String = without_port(host).chars().take(NAME_CHARS_MAX).collect();
        let advice = self.spelling.advice("allow_host", &name);
        let words = format!("host {name} is not allowed; {advice}");
        let lines = &self.lines;
        if lines.permit_named(self.kind, &name, caller.address, caller.unix_ms) {
            tracing::warn!(
                connection = caller.connection.map(tracing::field::display),
                address = caller.address.map(tracing::field::display),
                "{words}",
            );
        }
        Err(words)
    }

    /// How many requests were refused.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

fn without_port(host: &str) -> &str {
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => host.split_once(':').map_or(host, |(name, _)| name),
    };
    name.strip_suffix('.').unwrap_or(name)
}

/// Addresses and the names of this machine itself (RFC 6761, section 6.3).
fn is_local(name: &str) -> bool {
    let is_address = name.parse::<IpAddr>().is_ok();
    is_address || name.eq_ignore_ascii_case("localhost") || matches("*.localhost", name)
}

fn matches(known: &str, name: &str) -> bool {
    match known.strip_prefix('*') {
        Some(suffix) => {
            let start = name.len().checked_sub(suffix.len());
            let end = start.and_then(|start| name.get(start..));
            start != Some(0) && end.is_some_and(|end| end.eq_ignore_ascii_case(suffix))
        }
        None => known.eq_ignore_ascii_case(name),
    }
}

const ANY: &str = "any";

/// The part of a name that messages repeat, in characters; names in DNS have 253 at most.
const NAME_CHARS_MAX: usize = 253;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_this_machine_are_always_allowed() {
        let listed = HostPolicy::Listed(vec!["app.example".to_owned()]);
        for host in [
            "localhost",
            "LOCALHOST:5006",
            "app.localhost:1",
            "localhost.",
            "127.0.0.1",
            "127.0.0.1:5006",
            "[::1]",
            "[::1]:5006",
            "192.0.2.1",
        ] {
            assert!(HostPolicy::Local.allows(host, true), "{host}");
            assert!(listed.allows(host, true), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:5006",
            "localhost.evil.example",
            "evillocalhost",
            "127.0.0.1.evil.example",
            "",
            ".localhost",
            "[evil.example]",
            "0x7f.1",
        ] {
            assert!(!HostPolicy::Local.allows(host, true), "{host}");
            assert!(!listed.allows(host, false), "{host}");
            assert!(HostPolicy::Local.allows(host, false), "{host}");
            assert!(HostPolicy::Any.allows(host, true), "{host}");
        }
    }

    #[test]
    fn listed_names_have_any_port_and_case() {
        let names = ["app.example", "*.apps.example"].map(str::to_owned);
        let policy = HostPolicy::from_names(names.to_vec()).unwrap();
        for host in [
            "app.example",
            "App.Example:443",
            "app.example.",
            "a.apps.example",
            "b.a.apps.example:1",
        ] {
            assert!(policy.allows(host, false), "{host}");
        }
        for host in [
            "apps.example",
            ".apps.example",
            "xapps.example",
            "x.app.example",
            "app.example.evil",
        ] {
            assert!(!policy.allows(host, false), "{host}");
        }
    }

    #[test]
    fn lists_are_checked() {
        let of = |names: &[&str]| {
            HostPolicy::from_names(names.iter().map(|&name| name.to_owned()).collect())
        };
        assert_eq!(of(&[]), Ok(HostPolicy::Local));
        assert_eq!(of(&["a", "any"]), Ok(HostPolicy::Any));
        for bad in ["", "*.", "*", "http://a", "a:80", "a/b", "a b", "*.*.a"] {
            assert_eq!(of(&[bad]), Err(InvalidHost), "{bad}");
        }
    }

    #[test]
    fn what_is_refused_is_counted_and_told_how_to_allow() {
        let caller = HostCaller {
            connection: None,
            address: None,
            unix_ms: 1,
        };
        let words = |spelling, host: &str| {
            let lines = Arc::default();
            let guard = HostGuard::new(HostPolicy::Local, spelling, LineKind::HostRefused, lines);
            assert_eq!(guard.check("localhost", true, caller), Ok(()));
            let words = guard.check(host, true, caller).unwrap_err();
            assert_eq!(guard.refused(), 1);
            words
        };
        let advice = [
            (
                OptionSpelling::Flag,
                "allow it with --allow-host evil.example",
            ),
            (OptionSpelling::Keyword, "add it to the option allow_host"),
            (OptionSpelling::CamelCase, "add it to the option allowHost"),
        ];
        for (spelling, advice) in advice {
            let expected = format!("host evil.example is not allowed; {advice}");
            assert_eq!(words(spelling, "evil.example:5006"), expected);
        }
        assert!(words(OptionSpelling::Flag, &"a".repeat(10_000)).len() < 700);
    }
}

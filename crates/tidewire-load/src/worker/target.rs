//! Targets: URL, address, TLS and token.

use std::fmt;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tidewire_net::tls;

/// A WebSocket server under load.
#[derive(Debug, Clone)]
pub struct Target {
    /// The URL as it was given, without secrets: see [`redacted`].
    pub url: String,
    /// The resolved address of the URL's host; of several addresses the first that accepts
    /// connections.
    pub address: SocketAddr,
    /// Value of the `Host` header: with the port unless it is the scheme's default.
    pub host_header: String,
    /// Path and query, percent-encoded; `/` when the URL has none.
    pub path_and_query: String,
    /// Present for `wss`. Any certificate is accepted unless [`Target::trusting`] is called.
    pub tls: Option<TargetTls>,
    /// The credentials of a connection. Default [`TokenSource::None`].
    pub token: TokenSource,
    /// The place of the token. Default [`TokenPlace::Bearer`].
    pub token_place: TokenPlace,
}

/// TLS towards a target.
#[derive(Debug, Clone)]
pub struct TargetTls {
    /// The trusted authorities; shared, so that sessions are resumed.
    pub config: Arc<tls::ClientConfig>,
    /// The host name or address of the URL.
    pub host: String,
    /// The trusted authorities in PEM, for workers that are processes of their own; `None` if any certificate
    /// is accepted.
    pub authorities_pem: Option<Arc<str>>,
}

impl TargetTls {
    /// The same for HTTP/2, which it alone offers.
    #[must_use]
    pub fn over_http2(self) -> Self {
        Self {
            config: tls::client_offering(&self.config, &["h2"]),
            ..self
        }
    }
}

/// The source of a connection's token.
#[derive(Clone, Default)]
pub enum TokenSource {
    /// No token is sent.
    #[default]
    None,
    /// The same for all.
    Fixed(String),
    /// Created for the connection with this number, counted from 0; called on the worker's thread. `None`
    /// sends no token.
    PerConnection(Arc<dyn Fn(usize) -> Option<String> + Send + Sync>),
}

/// The header that carries the token.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum TokenPlace {
    /// `Authorization: Bearer …`.
    #[default]
    Bearer,
    /// `Cookie: name=…`, with this name.
    Cookie(String),
}

/// The error of a target; the caller's fault, except for a name that does not resolve now.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// A scheme other than `ws` and `wss`, or none.
    #[error("`{0}`: the URL has to start with ws:// or wss://")]
    Scheme(String),
    /// A scheme that a service load does not support, or none.
    #[error("`{0}`: the URL has to start with http://, https://, ws:// or wss://")]
    ServiceScheme(String),
    /// No host, or a part that is not valid in a URL.
    #[error("`{url}`: {what}")]
    Malformed {
        /// The URL.
        url: String,
        /// The error.
        what: &'static str,
    },
    /// The host has no address.
    #[error("`{host}` does not resolve to an address: {source}")]
    Unresolved {
        /// Host and port.
        host: String,
        /// The resolver's reason.
        source: std::io::Error,
    },
    /// The host is not valid in a certificate, or the authorities cannot be read.
    #[error(transparent)]
    Tls(#[from] tls::TlsError),
}

impl Target {
    /// The target of a `ws://` or `wss://` URL. Resolves its host, which blocks until the resolver
    /// answers. If it has several addresses, as `localhost` often has, they are tried until one
    /// accepts a connection.
    ///
    /// # Errors
    /// [`TargetError`], with a text for the user who typed the URL.
    pub fn parse(url: &str) -> Result<Self, TargetError> {
        let parts = Parts::of(url)?;
        let unresolved = |source| TargetError::Unresolved {
            host: format!("{}:{}", parts.host, parts.port),
            source,
        };
        let addresses: Vec<SocketAddr> = (parts.host, parts.port)
            .to_socket_addrs()
            .map_err(unresolved)?
            .collect();
        let address = first_reachable(&addresses)
            .ok_or_else(|| unresolved(std::io::ErrorKind::NotFound.into()))?;
        let tls = if parts.is_secure {
            tls::server_name(parts.host)?;
            Some(TargetTls {
                config: tls::client_config(None)?,
                host: parts.host.to_owned(),
                authorities_pem: None,
            })
        } else {
            None
        };
        Ok(Self {
            url: redacted(url),
            address,
            host_header: parts.authority.to_owned(),
            path_and_query: parts.path_and_query(),
            tls,
            token: TokenSource::None,
            token_place: TokenPlace::Bearer,
        })
    }

    /// The same, with only the certificate authorities in a PEM file. Without TLS nothing changes.
    ///
    /// # Errors
    /// [`TargetError::Tls`] if the file is not usable.
    pub fn trusting(mut self, authorities: &Path) -> Result<Self, TargetError> {
        if let Some(tls) = &mut self.tls {
            tls.config = tls::client_config(Some(authorities))?;
            tls.authorities_pem = std::fs::read_to_string(authorities).ok().map(Into::into);
        }
        Ok(self)
    }

    /// The URL with all that it may contain, secrets too.
    #[must_use]
    pub fn whole_url(&self) -> String {
        let scheme = if self.tls.is_some() { "wss" } else { "ws" };
        format!("{scheme}://{}{}", self.host_header, self.path_and_query)
    }

    /// The same with a token.
    #[must_use]
    pub fn with_token(self, token: TokenSource) -> Self {
        Self { token, ..self }
    }

    /// Whether the server is reached through the loopback interface.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        self.address.ip().is_loopback()
    }
}

impl TokenSource {
    /// The token of the connection with this number.
    #[must_use]
    pub fn token(&self, connection: usize) -> Option<String> {
        match self {
            Self::None => None,
            Self::Fixed(token) => Some(token.clone()),
            Self::PerConnection(make) => make(connection),
        }
    }
}

impl fmt::Debug for TokenSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A token is secret; a log must not contain it.
        f.write_str(match self {
            Self::None => "None",
            Self::Fixed(_) => "Fixed(…)",
            Self::PerConnection(_) => "PerConnection(…)",
        })
    }
}

/// The first address that accepts a connection; the first of all if none does, so that the next
/// connection attempt reports the reason.
pub(crate) fn first_reachable(addresses: &[SocketAddr]) -> Option<SocketAddr> {
    let takes = |address: &&SocketAddr| TcpStream::connect_timeout(address, TRY_TIMEOUT).is_ok();
    match addresses {
        [_, _, ..] => addresses.iter().find(takes).or(addresses.first()).copied(),
        _ => addresses.first().copied(),
    }
}

/// A URL without possible secrets: the user name and password, and the values of its query except
/// for [`SHOWN_PARAMETERS`]. `…` replaces them. Also accepts text that is not a URL.
#[must_use]
pub fn redacted(url: &str) -> String {
    let (scheme, rest) = match url.split_once("://") {
        Some((scheme, rest)) => (format!("{scheme}://"), rest),
        None => (String::new(), url),
    };
    let (rest, fragment) = match rest.split_once('#') {
        Some((rest, _)) => (rest, "#…"),
        None => (rest, ""),
    };
    let (rest, query) = match rest.split_once('?') {
        Some((rest, query)) => (rest, Some(query)),
        None => (rest, None),
    };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let authority = match authority.rsplit_once('@') {
        Some((_, host)) => format!("…@{host}"),
        None => authority.to_owned(),
    };
    let shown = |part: &str| match part.split_once('=') {
        Some((name, _)) if !SHOWN_PARAMETERS.contains(&name) => format!("{name}=…"),
        Some(_) => part.to_owned(),
        None if part.is_empty() => String::new(),
        None => HIDDEN.to_owned(),
    };
    let query = query.map_or_else(String::new, |query| {
        let parts: Vec<String> = query.split('&').map(shown).collect();
        format!("?{}", parts.join("&"))
    });
    format!("{scheme}{authority}{path}{query}{fragment}")
}

/// Parameters of a query that are not secret.
pub const SHOWN_PARAMETERS: [&str; 2] = ["format", "version"];
const HIDDEN: &str = "…";

/// The parts of a URL that are needed here.
#[derive(Debug)]
pub(crate) struct Parts<'a> {
    pub(crate) is_secure: bool,
    pub(crate) is_websocket: bool,
    pub(crate) authority: &'a str,
    pub(crate) host: &'a str,
    pub(crate) port: u16,
    rest: &'a str,
}

impl<'a> Parts<'a> {
    /// Those of a WebSocket URL.
    fn of(url: &'a str) -> Result<Self, TargetError> {
        let parts = Self::of_service(url);
        match parts {
            Ok(parts) if parts.is_websocket => Ok(parts),
            Ok(_) | Err(TargetError::ServiceScheme(_)) => Err(TargetError::Scheme(redacted(url))),
            Err(error) => Err(error),
        }
    }

    /// Those of an HTTP or WebSocket URL.
    pub(crate) fn of_service(url: &'a str) -> Result<Self, TargetError> {
        let malformed = |what| TargetError::Malformed {
            url: redacted(url),
            what,
        };
        let (scheme, rest) = url
            .split_once("://")
            .ok_or_else(|| TargetError::ServiceScheme(redacted(url)))?;
        let (is_websocket, is_secure) = match scheme.to_ascii_lowercase().as_str() {
            "ws" => (true, false),
            "wss" => (true, true),
            "http" => (false, false),
            "https" => (false, true),
            _ => return Err(TargetError::ServiceScheme(redacted(url))),
        };
        if !rest.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(malformed(
                "spaces, controls and non-ASCII characters must be encoded",
            ));
        }
        let (authority, rest) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        if rest.contains('#') {
            return Err(malformed(
                "a fragment (`#…`) is not sent to a server; leave it out",
            ));
        }
        if authority.contains('@') {
            return Err(malformed(
                "user names in the URL are not supported; give a token or a header instead",
            ));
        }
        let (host, port) = match authority.strip_prefix('[') {
            Some(bracketed) => bracketed
                .split_once(']')
                .ok_or_else(|| malformed("the `[` is never closed"))?,
            None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
        };
        let port = match port.strip_prefix(':') {
            Some(digits) => digits.parse().ok().filter(|&port| port > 0),
            None if port.is_empty() => Some(if is_secure { 443 } else { 80 }),
            None => None,
        };
        let port = port.ok_or_else(|| malformed("the port is not a number from 1 to 65535"))?;
        if host.is_empty() {
            return Err(malformed("there is no host"));
        }
        Ok(Self {
            is_secure,
            is_websocket,
            authority,
            host,
            port,
            rest,
        })
    }

    pub(crate) fn path_and_query(&self) -> String {
        if self.rest.starts_with('/') {
            self.rest.to_owned()
        } else {
            format!("/{}", self.rest)
        }
    }
}

const TRY_TIMEOUT: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn of_several_addresses_the_first_that_listens_is_taken() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let open = listener.local_addr().unwrap();
        let closed = TcpListener::bind("127.0.0.2:0")
            .unwrap()
            .local_addr()
            .unwrap();
        assert_eq!(first_reachable(&[closed, open]), Some(open));
        assert_eq!(first_reachable(&[closed, closed]), Some(closed));
        assert_eq!(first_reachable(&[closed]), Some(closed));
        assert_eq!(first_reachable(&[]), None);
    }

    #[test]
    fn the_parts_of_a_url_become_a_target() {
        let target = Target::parse("ws://127.0.0.1:5006/ws?format=msgpack").unwrap();
        assert_eq!(target.address, "127.0.0.1:5006".parse().unwrap());
        assert_eq!(target.host_header, "127.0.0.1:5006");
        assert_eq!(target.path_and_query, "/ws?format=msgpack");
        assert!(target.is_loopback() && target.tls.is_none());

        let target = Target::parse("WSS://[::1]?a=b").unwrap();
        assert_eq!(target.address, "[::1]:443".parse().unwrap());
        assert_eq!(
            (target.host_header.as_str(), target.path_and_query.as_str()),
            ("[::1]", "/?a=b")
        );
        assert!(target.tls.is_some());
    }

    #[test]
    fn a_bad_url_says_what_is_wrong() {
        let cases = [
            ("127.0.0.1:80", "ws:// or wss://"),
            ("http://127.0.0.1", "ws:// or wss://"),
            ("ws://", "no host"),
            ("ws://:80/", "no host"),
            ("ws://127.0.0.1:0/", "port"),
            ("ws://127.0.0.1:99999/", "port"),
            ("ws://[::1/", "never closed"),
            ("ws://a@127.0.0.1/", "token"),
            ("ws://127.0.0.1/a b", "encoded"),
            ("ws://127.0.0.1/#x", "fragment"),
        ];
        for (url, expected) in cases {
            let message = Target::parse(url).unwrap_err().to_string();
            assert!(message.contains(expected), "{url}: {message}");
        }
    }

    #[test]
    fn what_may_be_secret_is_not_shown() {
        let cases = [
            ("ws://h:1/ws?format=json", "ws://h:1/ws?format=json"),
            (
                "ws://h/?token=abc&format=msgpack&k=%20",
                "ws://h/?token=…&format=msgpack&k=…",
            ),
            ("ws://h/?abc", "ws://h/?…"),
            ("ws://me:pass@h/p", "ws://…@h/p"),
            ("ws://me:p@ss@h/p?a=b#c", "ws://…@h/p?a=…#…"),
            ("me:pass@h:80", "…@h:80"),
            ("wss://h?", "wss://h?"),
            ("", ""),
        ];
        for (url, shown) in cases {
            assert_eq!(redacted(url), shown, "{url}");
        }
        let target = Target::parse("ws://127.0.0.1:5006/?token=abc").unwrap();
        assert_eq!(target.url, "ws://127.0.0.1:5006/?token=…");
        assert_eq!(target.path_and_query, "/?token=abc");
        for url in [
            "ws://me:pass@h/",
            "me:pass@h",
            "ws://me:pass@h/ x",
            "http://h/?token=pass",
        ] {
            let message = Target::parse(url).unwrap_err().to_string();
            assert!(!message.contains("pass"), "{message}");
        }
    }

    #[test]
    fn a_token_is_not_logged() {
        let source = TokenSource::Fixed("secret".into());
        assert!(!format!("{source:?}").contains("secret"));
        let numbered = TokenSource::PerConnection(Arc::new(|number| Some(format!("t{number}"))));
        assert_eq!(numbered.token(7).as_deref(), Some("t7"));
    }
}

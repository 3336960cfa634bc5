//! URLs of HTTP servers that this server asks: a backend, and a set of keys.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

/// The URL of an HTTP server that this one asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpUrl {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) is_tls: bool,
    /// The path with its query.
    pub(crate) target: String,
}

/// Why a text is no such URL. The caller's fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}; expected http://host[:port][/path] or https://host[:port][/path]")]
pub struct InvalidHttpUrl(&'static str);

impl HttpUrl {
    /// Reads `http://` or `https://`.
    ///
    /// # Errors
    /// [`InvalidHttpUrl`].
    pub fn parse(text: &str) -> Result<Self, InvalidHttpUrl> {
        let (is_tls, rest) = match text.split_once("://") {
            Some(("http", rest)) => (false, rest),
            Some(("https", rest)) => (true, rest),
            _ => return Err(InvalidHttpUrl("the scheme is not http or https")),
        };
        let (place, target) = match rest.find(['/', '?']) {
            Some(at) => rest.split_at(at),
            None => (rest, "/"),
        };
        if place.contains('@') {
            return Err(InvalidHttpUrl("a user or password cannot be given"));
        }
        // The colons of an IPv6 address are in brackets.
        let bracketed = place.strip_prefix('[');
        let (host, port) = match bracketed.and_then(|rest| rest.split_once(']')) {
            Some((host, port)) => (host, port.strip_prefix(':')),
            None => match place.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (place, None),
            },
        };
        let is_host_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        let is_host = match bracketed {
            Some(_) => host.parse::<Ipv6Addr>().is_ok(),
            None => !host.is_empty() && host.bytes().all(is_host_byte),
        };
        if !is_host {
            return Err(InvalidHttpUrl(
                "a host is a name, an IPv4 address, or an IPv6 address in brackets",
            ));
        }
        let scheme_port = if is_tls { 443 } else { 80 };
        let port = port.map_or(Ok(scheme_port), str::parse);
        let target = match target.strip_prefix('?') {
            Some(query) => format!("/?{query}"),
            None => target.to_owned(),
        };
        let is_target_byte = |byte: u8| byte.is_ascii_graphic() && byte != b'#';
        if !target.bytes().all(is_target_byte) {
            return Err(InvalidHttpUrl(
                "the path has a character that must be percent-encoded",
            ));
        }
        Ok(Self {
            host: host.to_owned(),
            port: port.map_err(|_| InvalidHttpUrl("the port is a number from 0 to 65535"))?,
            is_tls,
            target,
        })
    }

    /// The URL as it may be shown: some services expect a token in the query.
    #[must_use]
    pub fn without_query(&self) -> String {
        let path = self.target.split('?').next().unwrap_or_default();
        let target = path.to_owned();
        let shown = Self {
            target,
            ..self.clone()
        };
        shown.to_string()
    }

    /// Whether the host is this machine: a loopback address, or `localhost`.
    pub(crate) fn is_loopback(&self) -> bool {
        let address = self.host.parse::<IpAddr>();
        self.host == "localhost" || address.is_ok_and(|address| address.is_loopback())
    }

    /// The value of the header `Host`.
    pub(crate) fn host_value(&self) -> String {
        let scheme_port = if self.is_tls { 443 } else { 80 };
        tidewire_http::request::host_value(&self.host, self.port, scheme_port)
    }
}

impl fmt::Display for HttpUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_tls { "https" } else { "http" };
        write!(formatter, "{scheme}://{}{}", self.host_value(), self.target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read() {
        for (text, shown) in [
            (
                "http://127.0.0.1:8080/tidewire",
                "http://127.0.0.1:8080/tidewire",
            ),
            ("https://a.example", "https://a.example/"),
            ("http://[::1]:90?x=1", "http://[::1]:90/?x=1"),
        ] {
            assert_eq!(HttpUrl::parse(text).expect(text).to_string(), shown);
        }
    }

    #[test]
    fn a_query_is_not_shown() {
        let url = HttpUrl::parse("https://a.example/keys?token=x").expect("a URL");
        assert_eq!(url.without_query(), "https://a.example/keys");
    }

    #[test]
    fn what_is_no_url_says_what_a_url_is() {
        for (text, words) in [
            ("127.0.0.1:80", "scheme"),
            ("ftp://a", "scheme"),
            ("http://", "a host"),
            ("http://a:b", "port"),
            ("http://u:p@a", "password"),
            ("http://a/b c", "percent-encoded"),
            ("http://a,b", "a host"),
            ("http://[::1", "a host"),
            ("http://[a]", "a host"),
            ("http://::1", "a host"),
        ] {
            let error = HttpUrl::parse(text).expect_err(text).to_string();
            assert!(error.contains(words), "{text}: {error}");
            assert!(error.contains("https://host"), "{text}: {error}");
        }
    }

    #[test]
    fn this_machine_is_known() {
        for (host, is_loopback) in [
            ("localhost", true),
            ("127.0.0.9", true),
            ("[::1]", true),
            ("localhost.example", false),
            ("192.0.2.1", false),
        ] {
            let url = HttpUrl::parse(&format!("http://{host}:80/")).expect(host);
            assert_eq!(url.is_loopback(), is_loopback, "{host}");
        }
    }
}

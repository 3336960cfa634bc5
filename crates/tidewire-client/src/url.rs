//! Addresses of servers: `ws://` and `wss://`.

use crate::error::Error;

/// The parts of a server's address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Url {
    pub(crate) is_secure: bool,
    /// Without brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Path and query; begins with `/`.
    pub(crate) target: String,
}

impl Url {
    /// Reads an address. A fragment, a user and characters that a request cannot carry are refused.
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        let wrong = |what: &str| Error::invalid(format!("the address {:?} {what}", shown(text)));
        let (is_secure, rest) = match text.split_once("://") {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("ws") => (false, rest),
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("wss") => (true, rest),
            _ => return Err(wrong("does not begin with ws:// or wss://")),
        };
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(wrong("has characters that have to be percent-encoded"));
        }
        if rest.contains('#') {
            return Err(wrong("has a fragment"));
        }
        let path_at = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(path_at);
        if authority.contains('@') {
            return Err(wrong("has a user; give a token instead"));
        }
        let (host, port) = split_port(authority).ok_or_else(|| wrong("has no usable port"))?;
        if host.is_empty() {
            return Err(wrong("has no host"));
        }
        let slash = if path.starts_with('/') { "" } else { "/" };
        Ok(Self {
            is_secure,
            host: host.to_owned(),
            port: port.unwrap_or(if is_secure { 443 } else { 80 }),
            target: format!("{slash}{path}"),
        })
    }

    /// The value of `Host`.
    pub(crate) fn host_header(&self) -> String {
        let host = if self.host.contains(':') {
            format!("[{}]", self.host)
        } else {
            self.host.clone()
        };
        match (self.is_secure, self.port) {
            (true, 443) | (false, 80) => host,
            (_, port) => format!("{host}:{port}"),
        }
    }

    /// The target with these query parameters behind its own; they are percent-encoded.
    pub(crate) fn target_with(&self, parameters: &[(&str, &str)]) -> String {
        let mut target = self.target.clone();
        for (name, value) in parameters {
            target.push(if target.contains('?') { '&' } else { '?' });
            encode(name, &mut target);
            target.push('=');
            encode(value, &mut target);
        }
        target
    }
}

/// The address as errors repeat it: without a user, whose password may be in it, and without the values of its query.
pub(crate) fn shown(text: &str) -> String {
    let (before, query) = text.split_once('?').unwrap_or((text, ""));
    let scheme_bytes = before.find("://").map_or(0, |at| at + 3);
    let (scheme, rest) = before.split_at(scheme_bytes);
    let rest = rest.rsplit_once('@').map_or(rest, |(_, rest)| rest);
    let hidden = if query.is_empty() { "" } else { "?…" };
    format!("{scheme}{rest}{hidden}")
}

fn split_port(authority: &str) -> Option<(&str, Option<u16>)> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']')?;
            (
                host,
                if after.is_empty() {
                    None
                } else {
                    Some(after.strip_prefix(':')?)
                },
            )
        }
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    match port {
        None => Some((host, None)),
        Some(port) if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) => port
            .parse()
            .ok()
            .filter(|port| *port > 0)
            .map(|port| (host, Some(port))),
        Some(_) => None,
    }
}

fn encode(text: &str, out: &mut String) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push('%');
            for nibble in [byte >> 4, byte & 15] {
                out.push(char::from(b"0123456789ABCDEF"[usize::from(nibble)]));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_addresses() {
        for (text, secure, host, port, target, header) in [
            ("ws://a:5006/ws", false, "a", 5006, "/ws", "a:5006"),
            ("WSS://a.example", true, "a.example", 443, "/", "a.example"),
            ("ws://a?x=1", false, "a", 80, "/?x=1", "a"),
            ("wss://[::1]:9/w?x", true, "::1", 9, "/w?x", "[::1]:9"),
        ] {
            let url = Url::parse(text).unwrap();
            assert_eq!(
                (url.is_secure, url.host.as_str(), url.port),
                (secure, host, port)
            );
            assert_eq!(
                (url.target.as_str(), url.host_header().as_str()),
                (target, header)
            );
        }
    }

    #[test]
    fn parameters_are_encoded() {
        let url = Url::parse("ws://a/ws?x=1").unwrap();
        assert_eq!(
            url.target_with(&[("t", "a b&é")]),
            "/ws?x=1&t=a%20b%26%C3%A9"
        );
        assert_eq!(
            Url::parse("ws://a")
                .unwrap()
                .target_with(&[("b", "1"), ("c", "")]),
            "/?b=1&c="
        );
    }

    #[test]
    fn errors_repeat_no_password() {
        for text in [
            "ws://user:hunter2@host/ws",
            "ws://user:hunter2@host:x/ws?token=hunter2",
            "http://user:hunter2@host",
            "user:hunter2@host",
            "ws://user:hunt@er2@host",
            "ws://host/#?token=hunter2",
        ] {
            let error = Url::parse(text).unwrap_err().to_string();
            let is_told = error.contains("hunter2") || error.contains("er2");
            assert!(!is_told && error.contains("host"), "{error}");
        }
    }

    #[test]
    fn wrong_addresses() {
        for text in [
            "",
            "http://a",
            "ws:/a",
            "ws://",
            "ws://:1",
            "ws://a:0",
            "ws://a:x",
            "ws://a:70000",
            "ws://a:",
            "ws://u@a",
            "ws://a/#x",
            "ws://a/ b",
            "ws://a/é",
            "ws://[::1",
            "ws://[::1]x",
            "ws://a/\r\nX: y",
            "ws://a:1:2",
        ] {
            assert!(Url::parse(text).is_err(), "{text:?}");
        }
    }
}

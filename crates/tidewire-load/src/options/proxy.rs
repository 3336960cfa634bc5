//! An HTTP proxy between the load and the service.

use std::fmt;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tidewire_http::request::{BodyLength, RequestHead};

use super::OptionError;
use super::request::USER_AGENT;
use crate::worker::target::{Parts, redacted};

/// A proxy in the form of its URL.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Proxy {
    pub(super) host: String,
    pub(super) port: u16,
    /// The value of `Proxy-Authorization`.
    authorization: Option<String>,
}

impl Proxy {
    /// Reads `http://host:port` or `http://user:password@host:port`, with user and password percent-encoded.
    ///
    /// # Errors
    /// The text is not such a URL. The message does not contain the password.
    pub(super) fn parse(url: &str) -> Result<Self, OptionError> {
        let wrong = |what: &dyn fmt::Display| OptionError::new(format_args!("--proxy: {what}"));
        let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
        if !scheme.eq_ignore_ascii_case("http") {
            return Err(wrong(&format_args!(
                "`{}`: connections to a proxy are plain HTTP: write http://host:port",
                redacted(url)
            )));
        }
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let (user, authority) = match authority.rsplit_once('@') {
            Some((user, authority)) => (Some(user), authority),
            None => (None, authority),
        };
        let plain = format!("http://{authority}{path}");
        let parts = Parts::of_service(&plain).map_err(|error| wrong(&error))?;
        let authorization = user.map(|user| format!("Basic {}", STANDARD.encode(decoded(user))));
        Ok(Self {
            host: parts.host.to_owned(),
            port: parts.port,
            authorization,
        })
    }

    /// The headers that the proxy needs in each request that it forwards.
    pub(super) fn headers(&self) -> Vec<(String, String)> {
        let name = || "Proxy-Authorization".to_owned();
        let value = self.authorization.iter();
        value.map(|value| (name(), value.clone())).collect()
    }

    /// The request for a tunnel to a server.
    ///
    /// # Errors
    /// The server's name is not valid in a request.
    pub(super) fn connect(&self, parts: &Parts<'_>) -> Result<Arc<[u8]>, OptionError> {
        let authority = match parts.host.contains(':') {
            true => format!("[{}]:{}", parts.host, parts.port),
            false => format!("{}:{}", parts.host, parts.port),
        };
        let mut headers = vec![("User-Agent", USER_AGENT)];
        if let Some(value) = &self.authorization {
            headers.push(("Proxy-Authorization", value));
        }
        let head = RequestHead {
            method: "CONNECT",
            target: &authority,
            host: &authority,
            headers: &headers,
            body: BodyLength::None,
        };
        let mut bytes = Vec::new();
        head.write(&mut bytes).map_err(OptionError::new)?;
        Ok(bytes.into())
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A password is secret; a log must not contain it.
        write!(f, "Proxy({}:{})", self.host, self.port)
    }
}

/// Percent-decoded; a `%` without two hexadecimal digits stays as it is.
fn decoded(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let digit = |at: usize| (*bytes.get(at)? as char).to_digit(16);
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        match (bytes[at], digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                out.push((high * 16 + low) as u8);
                at += 3;
            }
            (byte, ..) => {
                out.push(byte);
                at += 1;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_and_a_password_become_a_header() {
        let proxy = Proxy::parse("http://Aladdin:open%20sesame@proxy.example:3128/").unwrap();
        assert_eq!((proxy.host.as_str(), proxy.port), ("proxy.example", 3128));
        // The example of RFC 7617, section 2.
        let value = "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==";
        assert_eq!(
            proxy.headers(),
            [("Proxy-Authorization".into(), value.into())]
        );
        assert!(!format!("{proxy:?}").contains("sesame"));
        assert!(
            Proxy::parse("http://[::1]:80")
                .unwrap()
                .headers()
                .is_empty()
        );
        assert_eq!(decoded("100%/%4x%41"), b"100%/%4xA");
    }

    #[test]
    fn a_tunnel_is_asked_for_by_host_and_port() {
        let connect = |proxy: &str, url: &str| {
            let proxy = Proxy::parse(proxy).unwrap();
            let bytes = proxy.connect(&Parts::of_service(url).unwrap()).unwrap();
            String::from_utf8(bytes.to_vec()).unwrap()
        };
        let request = connect("http://p:3128", "https://a.example/x?y");
        assert!(request.starts_with("CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n"));
        assert!(!request.contains("Proxy-Authorization"));
        let request = connect("http://u:p@p:3128", "wss://[::1]:9/");
        assert!(request.starts_with("CONNECT [::1]:9 HTTP/1.1\r\n"));
        assert!(request.contains("\r\nProxy-Authorization: Basic dTpw\r\n"));
    }

    #[test]
    fn what_is_no_proxy_is_refused_without_its_password() {
        for url in [
            "https://u:secret@p",
            "p:3128",
            "socks5://u:secret@p",
            "http://u:secret@",
        ] {
            let error = Proxy::parse(url).unwrap_err().to_string();
            assert!(
                error.contains("--proxy") && !error.contains("secret"),
                "{error}"
            );
        }
    }
}

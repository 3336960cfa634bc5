//! The checks of the request (RFC 6455, sections 4.2.1 and 11.3), whose head `tidewire-http` reads as every server of
//! this repository does.

use super::{Limits, RequestError};
use crate::header::{is_token, is_visible, list, list_has};
use base64::Engine as _;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use std::borrow::Cow;
use tidewire_http::server::{self as http, read_head};
use tidewire_http::{BodyLength, Version};

/// A valid upgrade request of RFC 6455.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    head: http::Request<'a>,
    path: &'a str,
    query: &'a str,
    named: Named<'a>,
    head_bytes: usize,
}

/// Reads a request from the bytes received so far; `Ok(None)` if it is incomplete.
///
/// # Errors
/// As soon as the bytes cannot be an opening handshake, or fill `head_bytes_max`; also for an incomplete request.
pub fn parse_request<'a>(
    bytes: &'a [u8],
    limits: &Limits,
) -> Result<Option<Request<'a>>, RequestError> {
    let limits = http::Limits {
        head_bytes_max: limits.head_bytes_max,
        // A token may be in the query.
        request_line_bytes_max: limits.head_bytes_max,
        ..http::Limits::default()
    };
    let mut named = Named::default();
    let mut problem = None;
    let whole = read_head(bytes, &limits, |name, value| {
        if let Err(error) = named.note(name, value) {
            problem.get_or_insert(error);
        }
    });
    let Some((head_bytes, head)) = whole? else {
        // Rejects another method before the head is complete, whatever follows.
        let is_other = |start: &[u8]| !start.starts_with(b"GET ") && start.contains(&b' ');
        let start = bytes.trim_ascii_start();
        return match is_other(&start[..start.len().min(METHOD_BYTES_MAX)]) {
            true => Err(RequestError::MethodNotAllowed),
            false => Ok(None),
        };
    };
    if head.method != "GET" {
        return Err(RequestError::MethodNotAllowed);
    }
    if head.version == Version::Http10 {
        return Err(http::RequestError::UnsupportedVersion.into());
    }
    // Proxies write an empty body as a length of 0.
    if !matches!(head.body, BodyLength::None | BodyLength::Bytes(0)) {
        return Err(RequestError::Ambiguous("an opening handshake has no body"));
    }
    let is_ours = |(scheme, _): &(&str, &str)| {
        SCHEMES
            .iter()
            .any(|known| scheme.eq_ignore_ascii_case(known))
    };
    if !head.target.starts_with('/') && head.target.split_once("://").filter(is_ours).is_none() {
        return Err(RequestError::Malformed("the target is not a path"));
    }
    match problem {
        Some(error) => return Err(error),
        None => named.check()?,
    }
    Ok(Some(Request {
        path: head.path(),
        query: head.query(),
        named,
        head,
        head_bytes,
    }))
}

impl<'a> Request<'a> {
    /// The path of the target, still percent-encoded; starts with `/`.
    pub fn path(&self) -> &'a str {
        self.path
    }

    /// The query of the target, still percent-encoded; empty if there is none.
    pub fn query(&self) -> &'a str {
        self.query
    }

    /// The first value of the query parameter `name`, decoded as a form (`+` is a space). `None` if it
    /// is missing or not UTF-8. A `%` without two hex digits is kept.
    pub fn query_value(&self, name: &str) -> Option<Cow<'a, str>> {
        self.query.split('&').find_map(|pair| {
            let (encoded_name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (form_decode(encoded_name)? == name).then(|| form_decode(value))?
        })
    }

    /// `Sec-WebSocket-Key`, for [`write_accept`](super::write_accept).
    pub fn key(&self) -> &'a str {
        self.named.key.unwrap_or_default()
    }

    /// `Origin`, if a browser sent one.
    pub fn origin(&self) -> Option<&'a str> {
        self.named.origin
    }

    /// `Host`, with the port if it was given.
    pub fn host(&self) -> &'a str {
        self.named.host.unwrap_or_default()
    }

    /// The value of the first header called `name`, in any case; `None` if it is missing or not UTF-8.
    pub fn header(&self, name: &str) -> Option<&'a str> {
        let value = self.values(name).next()?;
        std::str::from_utf8(value).ok()
    }

    /// The value of the first cookie called exactly `name`, without quotes around it. Other cookies may
    /// have any bytes.
    pub fn cookie(&self, name: &str) -> Option<&'a str> {
        let cookies = self.listed(&self.named.cookies, "cookie");
        let mut pairs = cookies.flat_map(|value| value.split(|byte| *byte == b';'));
        pairs.find_map(|pair| {
            let pair = pair.trim_ascii();
            let value = pair.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
            let quoted = value
                .strip_prefix(b"\"")
                .and_then(|value| value.strip_suffix(b"\""));
            std::str::from_utf8(quoted.unwrap_or(value)).ok()
        })
    }

    /// The token of `Authorization: Bearer …`.
    pub fn bearer(&self) -> Option<&'a str> {
        let (scheme, token) = self.named.authorization?.split_once(' ')?;
        let token = token.trim_matches(' ');
        (scheme.eq_ignore_ascii_case("bearer") && is_visible(token)).then_some(token)
    }

    /// The offered subprotocols, in the client's order of preference.
    pub fn protocols(&self) -> impl Iterator<Item = &'a str> {
        self.listed(&self.named.protocols, "sec-websocket-protocol")
            .filter_map(|value| std::str::from_utf8(value).ok())
            .flat_map(list)
    }

    /// The subprotocol that the response confirms (PROTOCOL.md, section 2.5 (2)). `configured` has those of the
    /// application in any order; it is empty if the client chooses. A subprotocol that starts with `token_prefix` has
    /// a token, and is confirmed only if the client offers no other: a browser fails a connection without a confirmed
    /// subprotocol.
    pub fn chosen_protocol(
        &self,
        configured: &[String],
        token_prefix: Option<&str>,
    ) -> Option<&'a str> {
        let carries_token =
            |name: &&str| token_prefix.is_some_and(|prefix| name.starts_with(prefix));
        let is_known =
            |name: &&str| configured.is_empty() || configured.iter().any(|known| known == name);
        if self.protocols().all(|name| carries_token(&name)) {
            return self.protocols().next();
        }
        self.protocols()
            .filter(|name| !carries_token(name))
            .find(is_known)
    }

    /// The token in the subprotocols: the rest of the first one that starts with `prefix` and is longer.
    pub fn protocol_token(&self, prefix: &str) -> Option<&'a str> {
        self.protocols()
            .filter_map(|name| name.strip_prefix(prefix))
            .find(|token| !token.is_empty())
    }

    /// The values of `Sec-WebSocket-Extensions`, for
    /// [`DeflateParameters::accept`](crate::deflate::DeflateParameters::accept).
    pub fn extensions(&self) -> impl Iterator<Item = &'a str> {
        self.listed(&self.named.extensions, "sec-websocket-extensions")
            .filter_map(|value| std::str::from_utf8(value).ok())
    }

    /// The length of the head with the empty line, in bytes. Frames follow it.
    pub fn head_bytes(&self) -> usize {
        self.head_bytes
    }

    /// The target as it came: the path and the query, or a whole URL.
    pub fn target(&self) -> &'a str {
        self.head.target
    }

    /// The headers, in their order.
    pub fn headers(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        self.head.headers()
    }

    /// The values of all headers called `name`, in any case, in their order.
    pub fn values(&self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        self.head.headers().values(name)
    }

    /// The same of a list, without a search if it has one line at most.
    fn listed(&self, list: &Listed<'a>, name: &str) -> impl Iterator<Item = &'a [u8]> {
        let others = list.has_others.then(|| self.values(name).skip(1));
        list.first.into_iter().chain(others.into_iter().flatten())
    }
}

/// The headers of the handshake: some must or may occur once, others form a list.
#[derive(Clone, Debug, Default)]
struct Named<'a> {
    host: Option<&'a str>,
    key: Option<&'a str>,
    version: Option<&'a str>,
    upgrade: Option<&'a str>,
    origin: Option<&'a str>,
    authorization: Option<&'a str>,
    cookies: Listed<'a>,
    protocols: Listed<'a>,
    extensions: Listed<'a>,
    connection_upgrades: bool,
}

/// The lines of a header that may be repeated.
#[derive(Clone, Debug, Default)]
struct Listed<'a> {
    first: Option<&'a [u8]>,
    has_others: bool,
}

impl<'a> Listed<'a> {
    fn note(&mut self, value: &'a [u8]) {
        match self.first {
            None => self.first = Some(value),
            Some(_) => self.has_others = true,
        }
    }
}

impl<'a> Named<'a> {
    fn note(&mut self, name: &str, value: &'a [u8]) -> Result<(), RequestError> {
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        let single = match name.len() {
            4 if is("host") => &mut self.host,
            6 if is("origin") => &mut self.origin,
            7 if is("upgrade") => &mut self.upgrade,
            13 if is("authorization") => &mut self.authorization,
            17 if is("sec-websocket-key") => &mut self.key,
            21 if is("sec-websocket-version") => &mut self.version,
            6 if is("cookie") => {
                self.cookies.note(value);
                return Ok(());
            }
            10 if is("connection") => {
                self.connection_upgrades |= list_has(ascii(value)?, "upgrade");
                return Ok(());
            }
            22 if is("sec-websocket-protocol") => {
                self.protocols.note(value);
                let all_tokens = list(ascii(value)?).all(is_token);
                let wrong = RequestError::Malformed("a subprotocol is not a token");
                return if all_tokens { Ok(()) } else { Err(wrong) };
            }
            24 if is("sec-websocket-extensions") => {
                self.extensions.note(value);
                return Ok(());
            }
            _ => return Ok(()),
        };
        if single.replace(ascii(value)?).is_some() {
            return Err(RequestError::Ambiguous(
                "a header that may come once comes twice",
            ));
        }
        Ok(())
    }

    fn check(&self) -> Result<(), RequestError> {
        if !self.host.is_some_and(is_visible) {
            return Err(RequestError::Malformed("Host is empty"));
        }
        let upgrade = self.upgrade.unwrap_or_default();
        if !self.connection_upgrades || !list_has(upgrade, "websocket") {
            return Err(RequestError::NotWebSocket);
        }
        if self.version != Some("13") {
            return Err(RequestError::VersionNotSupported);
        }
        if !self.key.is_some_and(is_key) {
            return Err(RequestError::BadKey);
        }
        Ok(())
    }
}

/// Whether this is the base64 of 16 bytes.
fn is_key(key: &str) -> bool {
    let mut decoded = [0; 18];
    key.len() == 24 && KEY_BASE64.decode_slice(key, &mut decoded) == Ok(16)
}

fn ascii(value: &[u8]) -> Result<&str, RequestError> {
    match std::str::from_utf8(value) {
        Ok(value) if value.is_ascii() => Ok(value),
        _ => Err(RequestError::Malformed(
            "a header of the handshake is not ASCII",
        )),
    }
}

fn form_decode(encoded: &str) -> Option<Cow<'_, str>> {
    if !encoded.bytes().any(|byte| byte == b'%' || byte == b'+') {
        return Some(Cow::Borrowed(encoded));
    }
    let mut decoded = Vec::with_capacity(encoded.len());
    let mut rest = encoded.as_bytes();
    while let [byte, tail @ ..] = rest {
        rest = tail;
        match (byte, tail) {
            (b'+', _) => decoded.push(b' '),
            (b'%', [high, low, after @ ..])
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                let nibble = |digit: u8| char::from(digit).to_digit(16).unwrap_or_default() as u8;
                decoded.push((nibble(*high) << 4) | nibble(*low));
                rest = after;
            }
            _ => decoded.push(*byte),
        }
    }
    String::from_utf8(decoded).ok().map(Cow::Owned)
}

/// The key of the example in RFC 6455, section 4.1, has bits behind its 16th byte that are not zero.
const KEY_BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

/// The longest method that the reader accepts, with its space.
const METHOD_BYTES_MAX: usize = 33;
const SCHEMES: [&str; 4] = ["http", "https", "ws", "wss"];

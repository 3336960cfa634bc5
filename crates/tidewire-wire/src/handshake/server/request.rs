//! Reading and checking the request (RFC 6455, sections 4.2.1 and 11.3; RFC 9112).
//!
//! Where HTTP allows several interpretations, the strict one applies: a request that a proxy in front could
//! interpret differently is rejected.

use super::super::{HEADERS_MAX, has_bare_line_feed};
use super::{Limits, RequestError};
use crate::header::{is_token, is_visible, list, list_has};
use base64::Engine as _;
use std::borrow::Cow;

/// A valid upgrade request of RFC 6455.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    path: &'a str,
    query: &'a str,
    host: &'a str,
    key: &'a str,
    origin: Option<&'a str>,
    headers: [httparse::Header<'a>; HEADERS_MAX],
    header_count: usize,
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
    let window = &bytes[..bytes.len().min(limits.head_bytes_max)];
    check_method_start(window)?;
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Request::new(&mut headers);
    let status = parsed.parse(window);
    let status = status.map_err(|error| http_error(error, window, parsed.method))?;
    if parsed.method.is_some_and(|method| method != "GET") {
        return Err(RequestError::MethodNotAllowed);
    }
    if parsed.version == Some(0) {
        return Err(RequestError::HttpVersion);
    }
    let head_bytes = match status {
        httparse::Status::Complete(head_bytes) => head_bytes,
        httparse::Status::Partial => {
            check_line_ends(window)?;
            if bytes.len() >= limits.head_bytes_max {
                return Err(RequestError::HeadTooLarge);
            }
            return Ok(None);
        }
    };
    check_line_ends(&window[..head_bytes])?;
    let header_count = parsed.headers.len();
    let (path, query) = split_target(parsed.path.unwrap_or_default())?;
    let singles = check_headers(&headers[..header_count])?;
    Ok(Some(Request {
        path,
        query,
        host: singles.host,
        key: singles.key,
        origin: singles.origin,
        headers,
        header_count,
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
        self.key
    }

    /// `Origin`, if a browser sent one.
    pub fn origin(&self) -> Option<&'a str> {
        self.origin
    }

    /// `Host`, with the port if it was given.
    pub fn host(&self) -> &'a str {
        self.host
    }

    /// The value of the first header called `name`, in any case; `None` if it is missing or not UTF-8.
    pub fn header(&self, name: &str) -> Option<&'a str> {
        let value = self.values(name).next()?;
        std::str::from_utf8(value).ok()
    }

    /// The value of the first cookie called exactly `name`, without quotes around it. Other cookies may
    /// have any bytes.
    pub fn cookie(&self, name: &str) -> Option<&'a str> {
        let mut pairs = self
            .values("cookie")
            .flat_map(|value| value.split(|byte| *byte == b';'));
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
        let (scheme, token) = self.header("authorization")?.split_once(' ')?;
        let token = token.trim_matches(' ');
        (scheme.eq_ignore_ascii_case("bearer") && is_visible(token)).then_some(token)
    }

    /// The offered subprotocols, in the client's order of preference.
    pub fn protocols(&self) -> impl Iterator<Item = &'a str> {
        self.values("sec-websocket-protocol")
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
        self.values("sec-websocket-extensions")
            .filter_map(|value| std::str::from_utf8(value).ok())
    }

    /// The length of the head with the empty line, in bytes. Frames follow it.
    pub fn head_bytes(&self) -> usize {
        self.head_bytes
    }

    /// The values of all headers called `name`, in any case, in their order.
    pub fn values(&self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        self.headers[..self.header_count]
            .iter()
            .filter(move |header| header.name.eq_ignore_ascii_case(name))
            .map(|header| header.value)
    }
}

/// The headers that must or may come once.
struct Singles<'a> {
    host: &'a str,
    key: &'a str,
    origin: Option<&'a str>,
}

fn check_headers<'a>(headers: &[httparse::Header<'a>]) -> Result<Singles<'a>, RequestError> {
    let (mut host, mut key, mut origin) = (None, None, None);
    let (mut version, mut upgrade, mut authorization) = (None, None, None);
    let mut connection_upgrades = false;
    for header in headers {
        let single = match header.name {
            name if name.eq_ignore_ascii_case("host") => &mut host,
            name if name.eq_ignore_ascii_case("origin") => &mut origin,
            name if name.eq_ignore_ascii_case("upgrade") => &mut upgrade,
            name if name.eq_ignore_ascii_case("authorization") => &mut authorization,
            name if name.eq_ignore_ascii_case("sec-websocket-key") => &mut key,
            name if name.eq_ignore_ascii_case("sec-websocket-version") => &mut version,
            name if name.eq_ignore_ascii_case("connection") => {
                connection_upgrades |= list_has(ascii(header)?, "upgrade");
                continue;
            }
            name if name.eq_ignore_ascii_case("sec-websocket-protocol") => {
                if !list(ascii(header)?).all(is_token) {
                    return Err(RequestError::Malformed("a subprotocol is not a token"));
                }
                continue;
            }
            name if name.eq_ignore_ascii_case("content-length")
                || name.eq_ignore_ascii_case("transfer-encoding") =>
            {
                return Err(RequestError::Ambiguous("an opening handshake has no body"));
            }
            _ => continue,
        };
        if single.replace(ascii(header)?).is_some() {
            return Err(RequestError::Ambiguous(
                "a header that may come once comes twice",
            ));
        }
    }
    let host = host.filter(|host| is_visible(host));
    let host = host.ok_or(RequestError::Malformed("Host is missing or not a host"))?;
    if !connection_upgrades || !upgrade.is_some_and(|value| list_has(value, "websocket")) {
        return Err(RequestError::NotWebSocket);
    }
    if version != Some("13") {
        return Err(RequestError::VersionNotSupported);
    }
    let key = key.filter(|key| is_key(key)).ok_or(RequestError::BadKey)?;
    Ok(Singles { host, key, origin })
}

/// Whether this is the base64 of 16 bytes.
fn is_key(key: &str) -> bool {
    let mut decoded = [0; 18];
    key.len() == 24
        && base64::engine::general_purpose::STANDARD.decode_slice(key, &mut decoded) == Ok(16)
}

fn ascii<'a>(header: &httparse::Header<'a>) -> Result<&'a str, RequestError> {
    match std::str::from_utf8(header.value) {
        Ok(value) if value.is_ascii() => Ok(value),
        _ => Err(RequestError::Malformed(
            "a header of the handshake is not ASCII",
        )),
    }
}

/// A method is a short word in capitals. Other bytes (TLS, a port scan, noise) are detected by the first
/// bytes, without waiting for a line end that may never arrive.
fn check_method_start(bytes: &[u8]) -> Result<(), RequestError> {
    let start = &bytes[..bytes.len().min(METHOD_BYTES_MAX + 1)];
    let word = start
        .iter()
        .take_while(|byte| byte.is_ascii_uppercase() || **byte == b'-')
        .count();
    match start.get(word) {
        Some(b' ') if word > 0 => Ok(()),
        None if word <= METHOD_BYTES_MAX => Ok(()),
        _ => Err(RequestError::Malformed("this is not HTTP")),
    }
}

fn check_line_ends(head: &[u8]) -> Result<(), RequestError> {
    if has_bare_line_feed(head) {
        return Err(RequestError::Malformed("a line ends with LF alone"));
    }
    Ok(())
}

fn http_error(error: httparse::Error, bytes: &[u8], method: Option<&str>) -> RequestError {
    match error {
        httparse::Error::TooManyHeaders => RequestError::HeadTooLarge,
        // A preface of HTTP/2 and the like; `GET / nonsense` is not even HTTP.
        httparse::Error::Version => {
            let line = bytes
                .split(|byte| *byte == b'\r')
                .next()
                .unwrap_or_default();
            let version = line.rsplit(|byte| *byte == b' ').next().unwrap_or_default();
            match version {
                // The version is the right one, but not where the second word ends.
                b"HTTP/1.1" => RequestError::Malformed("the request line is broken"),
                [b'H', b'T', b'T', b'P', b'/', b'0'..=b'9', ..] => RequestError::HttpVersion,
                _ => RequestError::Malformed("the request line is broken"),
            }
        }
        httparse::Error::HeaderName => RequestError::Malformed("a header name is broken"),
        httparse::Error::HeaderValue => RequestError::Malformed("a header value is broken"),
        _ if method.is_some() => RequestError::Malformed("the request line is broken"),
        _ => RequestError::Malformed("this is not HTTP"),
    }
}

/// Path and query of a target in origin form or absolute form (RFC 9112, section 3.2).
fn split_target(target: &str) -> Result<(&str, &str), RequestError> {
    if !is_visible(target) || target.contains('#') {
        return Err(RequestError::Malformed("the target is not a path"));
    }
    let origin_form = if target.starts_with('/') {
        target
    } else {
        let (_, rest) = target
            .split_once("://")
            .filter(|(scheme, _)| {
                SCHEMES
                    .iter()
                    .any(|known| scheme.eq_ignore_ascii_case(known))
            })
            .ok_or(RequestError::Malformed("the target is not a path"))?;
        rest.find(['/', '?']).map_or("/", |at| &rest[at..])
    };
    let (path, query) = origin_form.split_once('?').unwrap_or((origin_form, ""));
    Ok((if path.is_empty() { "/" } else { path }, query))
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

const METHOD_BYTES_MAX: usize = 16;
const SCHEMES: [&str; 4] = ["http", "https", "ws", "wss"];

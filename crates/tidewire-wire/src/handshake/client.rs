//! The client's side: writes the request and reads the response.

use super::accept_value;
use crate::deflate::{DeflateError, DeflateParameters};
use crate::header::{is_header_value, is_token, is_visible, list_has, write_header};
use base64::Engine as _;
use tidewire_http::Version;
use tidewire_http::response::{self as http, Head, read_final_head};

/// The request of a client.
#[derive(Clone, Copy, Debug)]
pub struct RequestHead<'a> {
    /// `Host`, with the port unless it is the scheme's default.
    pub host: &'a str,
    /// Path and query, percent-encoded; starts with `/`.
    pub target: &'a str,
    /// The offer, which the response of the server has to match.
    pub offer: Offer<'a>,
    /// Further headers.
    pub headers: &'a [(&'a str, &'a str)],
}

/// The part of a request that the response refers to.
#[derive(Clone, Copy, Debug)]
pub struct Offer<'a> {
    /// 16 random bytes, sent as `Sec-WebSocket-Key`.
    pub key: &'a [u8; 16],
    /// The offered subprotocols, the preferred one first.
    pub protocols: &'a [&'a str],
    /// permessage-deflate, if it is offered.
    pub deflate: Option<DeflateParameters>,
}

/// A part of a [`RequestHead`] that would make the request invalid: the caller's fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} has characters that a request cannot carry")]
pub struct InvalidHeader {
    /// `host`, `target`, `protocol`, or the header's name.
    pub what: String,
}

fn behind(detail: &Option<String>) -> String {
    let detail = detail.as_ref();
    detail.map_or_else(String::new, |detail| format!(": {detail}"))
}

impl RequestHead<'_> {
    /// Appends the request.
    ///
    /// # Errors
    /// A host, target, subprotocol or header has a line end or another character that is not allowed there; `out`
    /// is unchanged.
    pub fn write(&self, out: &mut Vec<u8>) -> Result<(), InvalidHeader> {
        self.check()?;
        out.extend_from_slice(b"GET ");
        out.extend_from_slice(self.target.as_bytes());
        out.extend_from_slice(b" HTTP/1.1\r\n");
        write_header("Host", self.host, out);
        out.extend_from_slice(b"Upgrade: websocket\r\nConnection: Upgrade\r\n");
        out.extend_from_slice(b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: ");
        out.extend_from_slice(&encode_key(self.offer.key));
        out.extend_from_slice(b"\r\n");
        for (index, protocol) in self.offer.protocols.iter().enumerate() {
            out.extend_from_slice(if index == 0 {
                b"Sec-WebSocket-Protocol: "
            } else {
                b", "
            });
            out.extend_from_slice(protocol.as_bytes());
        }
        if !self.offer.protocols.is_empty() {
            out.extend_from_slice(b"\r\n");
        }
        if let Some(deflate) = &self.offer.deflate {
            write_header("Sec-WebSocket-Extensions", &deflate.offer(), out);
        }
        for (name, value) in self.headers {
            write_header(name, value, out);
        }
        out.extend_from_slice(b"\r\n");
        Ok(())
    }

    fn check(&self) -> Result<(), InvalidHeader> {
        let require = |allowed: bool, what: &str| {
            if allowed {
                Ok(())
            } else {
                Err(InvalidHeader {
                    what: what.to_owned(),
                })
            }
        };
        require(is_visible(self.host), "host")?;
        require(
            is_visible(self.target) && self.target.starts_with('/'),
            "target",
        )?;
        for protocol in self.offer.protocols {
            require(is_token(protocol), "protocol")?;
        }
        for (name, value) in self.headers {
            require(is_token(name) && is_header_value(value), name)?;
        }
        Ok(())
    }
}

/// A response that accepts the upgrade.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The length of the head with the empty line, in bytes. Frames follow it.
    pub head_bytes: usize,
    /// The selected subprotocol, one of those offered.
    pub protocol: Option<String>,
    /// The parameters of the compression, if the server accepted it.
    pub deflate: Option<DeflateParameters>,
    /// The header `Server`, if the response has one.
    pub server: Option<String>,
}

/// The reason why the response does not accept the upgrade.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResponseError {
    /// The server answered with a status other than 101, which determines whether a retry helps.
    #[error("the server refused the connection: {status} {reason}{}", behind(.detail))]
    Refused {
        /// The HTTP status.
        status: u16,
        /// The reason phrase.
        reason: String,
        /// Of status 401: the reason why the token is rejected, from `WWW-Authenticate` (RFC 6750, section 3).
        detail: Option<String>,
        /// `Retry-After` in seconds, if it was given as a number.
        retry_after: Option<u64>,
        /// `Retry-After` unchanged, if it is not a number: usually an HTTP date.
        retry_at: Option<String>,
        /// `Date` unchanged: the current time by the clock of `retry_at`.
        date: Option<String>,
    },
    /// Not HTTP, or beyond a limit of [`tidewire_http::response`].
    #[error(transparent)]
    Http(#[from] http::ResponseError),
    /// 101, but not as HTTP/1.1 has it.
    #[error("the answer is not HTTP/1.1: {0}")]
    Malformed(&'static str),
    /// 101, but not a response to this request (RFC 6455, section 4.1).
    #[error("the answer does not accept a WebSocket connection: {0}")]
    NotAccepted(&'static str),
    /// 101 with extensions that do not match the offer.
    #[error("the answer does not accept a WebSocket connection: {0}")]
    Extensions(#[from] DeflateError),
}

impl ResponseError {
    /// A stable name for reports, in kebab case.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Refused { .. } => "refused",
            Self::Http(error) => error.name(),
            Self::Malformed(_) => "malformed",
            Self::NotAccepted(_) => "not-accepted",
            Self::Extensions(_) => "extensions",
        }
    }
}

/// Reads the response to a request with this offer from the bytes received so far; `Ok(None)` if it is incomplete.
/// Interim responses before it (RFC 9110, section 15.2) are skipped, at most [`INTERIM_MAX`].
///
/// # Errors
/// The response is no acceptance, or breaks a limit: `head_bytes_max` for its head, and the same for all interim responses.
pub fn parse_response(
    bytes: &[u8],
    offer: &Offer<'_>,
    head_bytes_max: usize,
) -> Result<Option<Response>, ResponseError> {
    let limits = http::Limits {
        head_bytes_max,
        interim_max: INTERIM_MAX,
        ..http::Limits::default()
    };
    let Some((head_bytes, head)) = read_final_head(bytes, &limits)? else {
        return Ok(None);
    };
    let headers = Headers(&head);
    if head.status != 101 {
        let retry = headers.first("retry-after");
        let retry_after = retry.and_then(|value| value.parse().ok());
        return Err(ResponseError::Refused {
            status: head.status,
            reason: head.reason().to_owned(),
            detail: (head.status == 401)
                .then(|| headers.token_problem())
                .flatten(),
            retry_after,
            retry_at: retry.filter(|_| retry_after.is_none()).map(str::to_owned),
            date: headers.first("date").map(str::to_owned),
        });
    }
    if head.has_bare_line_feed() {
        return Err(ResponseError::Malformed("a line ends with LF alone"));
    }
    if head.version == Version::Http10 {
        return Err(ResponseError::Malformed("the version is 1.0"));
    }
    headers.check_acceptance(offer.key)?;
    let deflate = headers.extensions(offer.deflate)?;
    let protocol = headers.first("sec-websocket-protocol");
    if protocol.is_some_and(|protocol| !offer.protocols.contains(&protocol)) {
        return Err(ResponseError::NotAccepted(
            "a subprotocol that was not offered",
        ));
    }
    Ok(Some(Response {
        head_bytes,
        protocol: protocol.map(str::to_owned),
        deflate,
        server: headers.first("server").map(str::to_owned),
    }))
}

struct Headers<'h, 'a>(&'h Head<'a>);

impl<'a> Headers<'_, 'a> {
    fn check_acceptance(&self, key: &[u8; 16]) -> Result<(), ResponseError> {
        let mut upgrades = self.all("upgrade");
        if !upgrades.any(|value| value.eq_ignore_ascii_case("websocket")) {
            return Err(ResponseError::NotAccepted("Upgrade is not websocket"));
        }
        if !self
            .all("connection")
            .any(|value| list_has(value, "upgrade"))
        {
            return Err(ResponseError::NotAccepted("Connection does not upgrade"));
        }
        let expected = accept_value(&encode_key(key));
        let mut accepts = self.all("sec-websocket-accept");
        let matches = accepts
            .next()
            .is_some_and(|value| value.as_bytes() == expected);
        if !matches || accepts.next().is_some() {
            return Err(ResponseError::NotAccepted(
                "Sec-WebSocket-Accept does not match",
            ));
        }
        Ok(())
    }

    /// The agreed parameters, if any.
    fn extensions(
        &self,
        offered: Option<DeflateParameters>,
    ) -> Result<Option<DeflateParameters>, DeflateError> {
        let mut answers = self.all("sec-websocket-extensions");
        let Some(answer) = answers.next() else {
            return Ok(None);
        };
        match offered {
            Some(offered) if answers.next().is_none() => offered.parse_response(answer).map(Some),
            _ => Err(DeflateError::NotOffered),
        }
    }

    /// The error of a challenge for a bearer token; without an error it means that there was no token.
    fn token_problem(&self) -> Option<String> {
        let challenge = self.first("www-authenticate")?;
        let (scheme, parameters) = challenge.split_once(' ').unwrap_or((challenge, ""));
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        let Some((_, description)) = parameters.split_once("error_description=\"") else {
            let is_missing = !parameters.contains("error=");
            return is_missing.then(|| "a token is needed".to_owned());
        };
        let (description, _) = description.split_once('"')?;
        Some(description.to_owned())
    }

    fn first(&self, name: &str) -> Option<&'a str> {
        self.all(name).next()
    }

    fn all<'n>(&self, name: &'n str) -> impl Iterator<Item = &'a str> + use<'a, 'n> {
        self.0
            .headers()
            .values(name)
            .filter_map(|value| std::str::from_utf8(value).ok())
    }
}

/// Interim responses that may precede the final one.
pub const INTERIM_MAX: u32 = 100;

/// Bytes of the head of an answer that a client reads, as of any other response.
pub const HEAD_BYTES_MAX: usize = 65_535;

fn encode_key(key: &[u8; 16]) -> [u8; 24] {
    let mut encoded = [0; 24];
    base64::engine::general_purpose::STANDARD
        .encode_slice(key, &mut encoded)
        .expect("16 bytes are 24 characters of base64");
    encoded
}

#[cfg(test)]
mod tests {
    use super::super::server::{Limits, parse_request, write_accept, write_rejection};
    use super::*;
    use proptest::prelude::*;

    const KEY: &[u8; 16] = b"the sample nonce";
    const ACCEPTED: &str = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\
        Connection: Upgrade\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

    fn head() -> RequestHead<'static> {
        RequestHead {
            host: "localhost:1",
            target: "/ws?a=b",
            offer: OFFER,
            headers: &[("Authorization", "Bearer t")],
        }
    }

    const OFFER: Offer<'_> = Offer {
        key: KEY,
        protocols: &["a", "b"],
        deflate: None,
    };

    fn parse(text: &str) -> Result<Option<Response>, ResponseError> {
        parse_response(text.as_bytes(), &OFFER, 1000)
    }

    #[test]
    fn the_two_sides_understand_each_other() {
        let mut sent = Vec::new();
        head().write(&mut sent).unwrap();
        let request = parse_request(&sent, &Limits::default()).unwrap().unwrap();
        assert_eq!(request.head_bytes(), sent.len());
        assert_eq!(request.bearer(), Some("t"));
        assert_eq!(request.protocols().collect::<Vec<_>>(), ["a", "b"]);
        let mut answer = Vec::new();
        write_accept(
            request.key(),
            Some("b"),
            &[("Server", "tidewire")],
            &mut answer,
        );
        let head_bytes = answer.len();
        answer.extend_from_slice(b"\x81\x00");
        let response = parse_response(&answer, &OFFER, 1000).unwrap().unwrap();
        let (protocol, server) = (Some("b".into()), Some("tidewire".into()));
        assert_eq!(
            response,
            Response {
                head_bytes,
                protocol,
                deflate: None,
                server
            }
        );
    }

    #[test]
    fn a_refusal_says_when_to_come_back() {
        let mut answer = Vec::new();
        write_rejection(503, &[("Retry-After", "7")], "full", &mut answer);
        let refused = parse_response(&answer, &OFFER, 1000).unwrap_err();
        let reason = "Service Unavailable".to_owned();
        let expected = ResponseError::Refused {
            status: 503,
            reason,
            detail: None,
            retry_after: Some(7),
            retry_at: None,
            date: None,
        };
        assert_eq!(refused, expected);
    }

    #[test]
    fn a_challenge_says_what_is_wrong_with_the_token() {
        let detail = |challenge: &str| {
            let mut answer = Vec::new();
            write_rejection(401, &[("WWW-Authenticate", challenge)], "", &mut answer);
            match parse_response(&answer, &OFFER, 1000) {
                Err(ResponseError::Refused { detail, .. }) => detail,
                other => panic!("{other:?}"),
            }
        };
        let expired =
            "bearer error=\"invalid_token\", error_description=\"it has expired\", x=\"y\"";
        assert_eq!(detail(expired).as_deref(), Some("it has expired"));
        assert_eq!(detail("Bearer").as_deref(), Some("a token is needed"));
        assert_eq!(detail("Bearer error=\"invalid_token\""), None);
        assert_eq!(detail("Bearer error_description=\"open"), None);
        assert_eq!(detail("Basic realm=\"a\""), None);
    }

    #[test]
    fn nothing_is_injected() {
        let mut out = b"x".to_vec();
        for head in [
            RequestHead {
                host: "a\r\nb",
                ..head()
            },
            RequestHead { host: "", ..head() },
            RequestHead {
                target: "/a b",
                ..head()
            },
            RequestHead {
                target: "a",
                ..head()
            },
            RequestHead {
                offer: Offer {
                    protocols: &["a,b"],
                    ..OFFER
                },
                ..head()
            },
            RequestHead {
                headers: &[("X", "a\r\nY: b")],
                ..head()
            },
            RequestHead {
                headers: &[("X:", "a")],
                ..head()
            },
        ] {
            assert!(head.write(&mut out).is_err(), "{head:?}");
        }
        assert_eq!(out, b"x");
    }

    #[test]
    fn parts_ask_for_more_up_to_the_limit() {
        for length in 0..ACCEPTED.len() {
            assert_eq!(parse(&ACCEPTED[..length]), Ok(None), "{length}");
        }
        assert!(parse(ACCEPTED).unwrap().is_some());
        let endless = format!("HTTP/1.1 101 {}", "a".repeat(1000));
        assert_eq!(
            parse(&endless),
            Err(http::ResponseError::HeadTooLong.into())
        );
        let noise = http::ResponseError::BadStatusLine;
        assert_eq!(parse("SSH-2.0-x"), Err(noise.into()));
    }

    #[test]
    fn what_is_no_acceptance() {
        let replace = |from, to| parse(&ACCEPTED.replace(from, to));
        for answer in [
            replace("Upgrade: websocket\r\n", ""),
            replace("Upgrade: websocket", "Upgrade: h2c"),
            replace("Connection: Upgrade\r\n", ""),
            replace("s3pP", "s3pQ"),
            replace("\r\n\r\n", "\r\nSec-WebSocket-Accept: x\r\n\r\n"),
            replace("\r\n\r\n", "\r\nSec-WebSocket-Protocol: c\r\n\r\n"),
        ] {
            assert!(
                matches!(answer, Err(ResponseError::NotAccepted(_))),
                "{answer:?}"
            );
        }
    }

    #[test]
    fn extensions_have_to_be_offered() {
        let with = |extensions: &str| {
            let headers = format!("\r\nSec-WebSocket-Extensions: {extensions}\r\n\r\n");
            ACCEPTED.replace("\r\n\r\n", &headers)
        };
        for extensions in ["x", "permessage-deflate"] {
            assert_eq!(
                parse(&with(extensions)),
                Err(ResponseError::Extensions(DeflateError::NotOffered))
            );
        }
        let offer = Offer {
            deflate: Some(DeflateParameters::default()),
            ..OFFER
        };
        let answer = |text: &str| parse_response(text.as_bytes(), &offer, 1000);
        let agreed = answer(&with("permessage-deflate; server_max_window_bits=10")).unwrap();
        let deflate = agreed.unwrap().deflate.unwrap();
        assert_eq!(deflate.server_max_window_bits, 10);
        assert_eq!(answer(ACCEPTED).unwrap().unwrap().deflate, None);
        let twice = with("permessage-deflate\r\nSec-WebSocket-Extensions: permessage-deflate");
        assert_eq!(
            answer(&twice),
            Err(ResponseError::Extensions(DeflateError::NotOffered))
        );
    }

    #[test]
    fn a_line_feed_alone_ends_no_line() {
        let answer = ACCEPTED.replace("Upgrade: websocket\r\n", "Upgrade: websocket\n");
        assert!(matches!(parse(&answer), Err(ResponseError::Malformed(_))));
    }

    proptest! {
        #[test]
        fn a_refusal_stays_whatever_follows(
            good in 0..ACCEPTED.len(),
            bytes in prop::collection::vec(any::<u8>(), 1..100),
            cut in 0.0..1.0,
        ) {
            let whole = [&ACCEPTED.as_bytes()[..good], &bytes].concat();
            let known = (whole.len() as f64 * cut) as usize;
            if parse_response(&whole[..known], &OFFER, 1000).is_err() {
                prop_assert!(parse_response(&whole, &OFFER, 1000).is_err());
            }
        }
    }
}

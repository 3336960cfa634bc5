//! The opening handshake: requests by the server's side, answers by the client's.

use tidewire_http::response::ResponseError as HttpError;
use tidewire_http::server::RequestError as RequestHttpError;
use tidewire_testkit::vectors::handshake::{
    AcceptedRequest, RefusedRequest, RequestCase, ResponseCase,
};
use tidewire_testkit::vectors::http::RequestCase as HttpCase;
use tidewire_testkit::vectors::{latin_1, load};
use tidewire_wire::deflate::DeflateParameters;
use tidewire_wire::handshake::client::{Offer, ResponseError, parse_response};
use tidewire_wire::handshake::server::{
    Limits, Request, RequestError, parse_request, write_accept,
};

pub(crate) fn run_requests(file: &str) {
    for case in load::<RequestCase>(file) {
        let bytes = latin_1(&case.request);
        let limits = Limits {
            head_bytes_max: case.head_bytes_max,
        };
        let name = &case.name;
        match (
            parse_request(&bytes, &limits),
            &case.accepted,
            &case.refused,
        ) {
            (Ok(Some(request)), Some(accepted), None) => {
                check_request(name, &request, accepted);
                check_prefixes(name, &bytes, accepted.head_bytes, &limits);
            }
            (Err(error), None, Some(refused)) => check_refusal(name, &error, refused),
            (Ok(None), None, None) => assert!(case.incomplete, "{name}"),
            (found, ..) => panic!("{name}: {found:?}"),
        }
    }
}

/// The judge of handshakes reads heads as every server of HTTP: it refuses what they refuse, with the same status, and what
/// they take only for what a handshake asks for besides.
pub(crate) fn run_http_requests(file: &str) {
    let mut heads = 0;
    for case in load::<HttpCase>(file) {
        let limits = Limits {
            head_bytes_max: case.head_bytes_max,
        };
        let is_of_head = case.requests.is_empty()
            && !case.incomplete
            && !case.end
            && case.request_line_bytes_max >= case.head_bytes_max.min(8192)
            && !BODY_ERRORS.contains(&case.error.as_ref().map_or("", |error| error.name.as_str()));
        let name = &case.name;
        let found = parse_request(&latin_1(&case.bytes), &limits).map(|_| ());
        match (&case.error, found) {
            (Some(error), Err(found)) if is_of_head => {
                assert_eq!(
                    (found.name(), found.status()),
                    (error.name.as_str(), error.status),
                    "{name}"
                );
                heads += 1;
            }
            (_, Err(RequestError::Http(found))) if case.error.is_none() => {
                let is_1_0 = found == RequestHttpError::UnsupportedVersion
                    && case.bytes.contains("HTTP/1.0");
                assert!(is_1_0, "{name}: {found}");
            }
            (Some(_), Ok(())) if is_of_head => panic!("{name}: taken"),
            _ => {}
        }
    }
    assert!(heads > 25, "only {heads} heads");
}

/// What a server finds behind a head.
const BODY_ERRORS: [&str; 7] = [
    "body-too-large",
    "bad-chunk",
    "chunk-size-overflow",
    "chunk-line-too-long",
    "bad-trailer",
    "trailers-too-long",
    "truncated-body",
];

pub(crate) fn run_responses(file: &str) {
    for case in load::<ResponseCase>(file) {
        let bytes = latin_1(&case.response);
        let found = parse(&case, &bytes);
        let name = &case.name;
        match (found, &case.accepted, &case.refused) {
            (Ok(Some(response)), Some(accepted), None) => {
                assert_eq!(response.head_bytes, accepted.head_bytes, "{name}");
                assert_eq!(response.protocol, accepted.protocol, "{name}");
                assert_eq!(response.server, accepted.server, "{name}");
                assert_eq!(response.deflate.is_some(), accepted.deflate, "{name}");
                for length in 0..accepted.head_bytes {
                    let part = parse(&case, &bytes[..length]);
                    assert_eq!(part, Ok(None), "{name}, {length} bytes");
                }
            }
            (Err(error), None, Some(refused)) => {
                let (word, status, retry_after) = refusal(&error);
                assert_eq!(word, refused.error, "{name}: {error}");
                assert_eq!(
                    (status, retry_after),
                    (refused.status, refused.retry_after),
                    "{name}"
                );
            }
            (Ok(None), None, None) => assert!(case.incomplete, "{name}"),
            (found, ..) => panic!("{name}: {found:?}"),
        }
    }
}

fn check_request(name: &str, request: &Request<'_>, expected: &AcceptedRequest) {
    assert_eq!(request.path(), expected.path, "{name}");
    assert_eq!(request.query(), expected.query, "{name}");
    assert_eq!(request.host(), expected.host, "{name}");
    assert_eq!(request.head_bytes(), expected.head_bytes, "{name}");
    assert_eq!(request.origin(), expected.origin.as_deref(), "{name}");
    assert_eq!(
        request.protocols().collect::<Vec<_>>(),
        expected.protocols,
        "{name}"
    );
    assert_eq!(
        request.extensions().collect::<Vec<_>>(),
        expected.extensions,
        "{name}"
    );
    for row in &expected.confirmed {
        let prefix = row.token_prefix.as_deref();
        let token = prefix.and_then(|prefix| request.protocol_token(prefix));
        assert_eq!(token, row.token.as_deref(), "{name}: {row:?}");
        let chosen = request.chosen_protocol(&row.configured, prefix);
        assert_eq!(chosen, row.protocol.as_deref(), "{name}: {row:?}");
    }
    for (parameter, value) in &expected.parameters {
        let found = request.query_value(parameter);
        assert_eq!(found.as_deref(), value.as_deref(), "{name}: {parameter}");
    }
    for (cookie, value) in &expected.cookies {
        assert_eq!(request.cookie(cookie), value.as_deref(), "{name}: {cookie}");
    }
    if let Some(bearer) = &expected.bearer {
        assert_eq!(request.bearer(), bearer.as_deref(), "{name}");
    }
    let mut answer = Vec::new();
    write_accept(request.key(), None, &[], &mut answer);
    let answer = String::from_utf8(answer).expect("ASCII");
    let line = format!("\r\nSec-WebSocket-Accept: {}\r\n", expected.accept);
    assert!(answer.contains(&line), "{name}: {answer}");
}

/// A part of a good request is never refused.
fn check_prefixes(name: &str, bytes: &[u8], head_bytes: usize, limits: &Limits) {
    for length in 0..head_bytes {
        let part = parse_request(&bytes[..length], limits);
        assert!(matches!(part, Ok(None)), "{name}, {length} bytes: {part:?}");
    }
}

fn check_refusal(name: &str, error: &RequestError, expected: &RefusedRequest) {
    assert_eq!(
        (error.name(), error.status()),
        (expected.error.as_str(), expected.status),
        "{name}"
    );
    let mut answer = Vec::new();
    error.write(&mut answer);
    let answer = String::from_utf8(answer).expect("ASCII");
    let start = format!("HTTP/1.1 {} ", expected.status);
    assert!(answer.starts_with(&start), "{name}: {answer}");
    for (header, value) in &expected.headers {
        let line = format!("\r\n{header}: {value}\r\n");
        assert!(answer.contains(&line), "{name}: {answer}");
    }
}

fn parse(
    case: &ResponseCase,
    bytes: &[u8],
) -> Result<Option<tidewire_wire::handshake::client::Response>, ResponseError> {
    let protocols: Vec<&str> = case.protocols.iter().map(String::as_str).collect();
    let offer = Offer {
        key: case.key[..].try_into().expect("16 bytes"),
        protocols: &protocols,
        deflate: case.offers_deflate.then(DeflateParameters::default),
    };
    parse_response(bytes, &offer, case.head_bytes_max)
}

fn refusal(error: &ResponseError) -> (&'static str, Option<u16>, Option<u64>) {
    match error {
        ResponseError::Refused {
            status,
            retry_after,
            ..
        } => ("refused", Some(*status), *retry_after),
        ResponseError::Http(HttpError::HeadTooLong | HttpError::TooManyHeaders) => {
            ("head_too_large", None, None)
        }
        ResponseError::Http(HttpError::TooManyInterims) => ("too_many_interims", None, None),
        ResponseError::Http(_) | ResponseError::Malformed(_) => ("malformed", None, None),
        ResponseError::NotAccepted(_) => ("not_accepted", None, None),
        ResponseError::Extensions(_) => ("extensions", None, None),
    }
}

//! The server's side of the opening handshake, from outside: bytes in, request or refusal out.

use proptest::prelude::*;
use tidewire_http::server::RequestError as HttpError;
use tidewire_wire::handshake::server::{Limits, Request, RequestError, parse_request};

const GOOD: &str = "GET /ws?format=msgpack&token=a%2Bb+c HTTP/1.1\r\n\
    Host: example.com:8080\r\n\
    Upgrade: WebSocket\r\n\
    Connection: keep-alive, Upgrade\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
    Sec-WebSocket-Version: 13\r\n\
    Origin: https://example.com\r\n\
    Cookie: other=\"x; access_token2=no; access_token=abc.def\r\n\
    Authorization: bearer  x.y.z\r\n\
    Sec-WebSocket-Protocol: a, b\r\n\
    Sec-WebSocket-Protocol: c\r\n\r\n";

fn parse(text: &[u8]) -> Result<Option<Request<'_>>, RequestError> {
    parse_request(text, &Limits::default())
}

fn error_of(text: &str) -> RequestError {
    match parse(text.as_bytes()) {
        Err(error) => error,
        Ok(request) => panic!("taken: {:?} for {text}", request.is_some()),
    }
}

/// The good request with one line replaced, or left out.
fn with(name: &str, line: &str) -> String {
    let mut text = String::new();
    for old in GOOD.split_inclusive("\r\n") {
        let replaced = old.starts_with(name);
        text.push_str(if replaced { line } else { old });
    }
    assert_ne!(text, GOOD);
    text
}

/// The good request with one line more.
fn adding(line: &str) -> String {
    with("\r\n", &format!("{line}\r\n"))
}

fn is_malformed(error: &RequestError) -> bool {
    error.status() == 400 && !matches!(error, RequestError::Ambiguous(_) | RequestError::BadKey)
}

fn is_ambiguous(error: &RequestError) -> bool {
    use HttpError::{AmbiguousLength, BadHost, ConflictingLengths};
    let of_http = [AmbiguousLength, BadHost, ConflictingLengths].map(RequestError::Http);
    matches!(error, RequestError::Ambiguous(_)) || of_http.contains(error)
}

#[test]
fn a_good_request() {
    let with_frames = format!("{GOOD}frames");
    let request = parse(with_frames.as_bytes()).unwrap().unwrap();
    assert_eq!(request.path(), "/ws");
    assert_eq!(request.query(), "format=msgpack&token=a%2Bb+c");
    assert_eq!(request.query_value("format").as_deref(), Some("msgpack"));
    assert_eq!(request.query_value("token").as_deref(), Some("a+b c"));
    assert_eq!(request.query_value("form"), None);
    assert_eq!(request.host(), "example.com:8080");
    assert_eq!(request.key(), "dGhlIHNhbXBsZSBub25jZQ==");
    assert_eq!(request.origin(), Some("https://example.com"));
    assert_eq!(request.cookie("access_token"), Some("abc.def"));
    assert_eq!(request.cookie("access"), None);
    assert_eq!(request.bearer(), Some("x.y.z"));
    assert_eq!(request.header("upgrade"), Some("WebSocket"));
    assert_eq!(request.protocols().collect::<Vec<_>>(), ["a", "b", "c"]);
    assert_eq!(request.head_bytes(), GOOD.len());
}

#[test]
fn every_part_of_a_good_request_asks_for_more() {
    for length in 0..GOOD.len() {
        let part = parse(&GOOD.as_bytes()[..length]);
        assert!(matches!(part, Ok(None)), "{length}: {part:?}");
    }
}

#[test]
fn garbage_is_refused_by_its_first_bytes() {
    for text in ["\x16\x03\x01", "\0", " GET", "GET\t/", "{\"t\""] {
        assert!(is_malformed(&error_of(text)), "{text:?}");
    }
    for text in [
        "GET / nonsense",
        "GET /a b",
        "GET  /",
        "GET /\x01",
        "GET / HTTP/1.1\r\nA b: c\r\n",
    ] {
        assert!(is_malformed(&error_of(text)), "{text:?}");
    }
    for other in ["POST /ws HT", "get /", "\r\nPOST "] {
        assert_eq!(error_of(other), RequestError::MethodNotAllowed, "{other}");
    }
    for (text, error) in [
        (
            "ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEFG",
            HttpError::MethodTooLong,
        ),
        (
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            HttpError::UnsupportedVersion,
        ),
        ("GET / HTTP/2.0\r\n", HttpError::UnsupportedVersion),
        ("\r\n\r\n\r\n\r\n\r\n", HttpError::BadRequestLine),
    ] {
        assert_eq!(error_of(text), error.into(), "{text}");
    }
}

#[test]
fn line_structure_is_strict() {
    assert!(is_malformed(&error_of(&GOOD.replace("\r\n", "\n"))));
    assert!(is_malformed(&error_of(&GOOD.replacen("13\r\n", "13\n", 1))));
    assert!(is_malformed(&error_of("GET / HTTP/1.1\n")));
    assert!(is_malformed(&error_of(&adding("X: a\r\n folded\r\n"))));
    assert!(is_malformed(&error_of(&adding(" X: a\r\n"))));
    assert!(is_malformed(&error_of(&adding("X : a\r\n"))));
    assert!(is_malformed(&error_of(&adding("X: a\rb\r\n"))));
    assert!(is_malformed(&error_of(&adding("X: \0\r\n"))));
    assert!(is_malformed(&error_of(&adding("no colon\r\n"))));
}

#[test]
fn what_two_servers_could_read_differently() {
    for line in [
        "Host: other\r\n",
        "Upgrade: websocket\r\n",
        "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
        "Sec-WebSocket-Version: 13\r\n",
        "Origin: https://evil.example\r\n",
        "Authorization: Bearer other\r\n",
        "Content-Length: 0\r\nContent-Length: 0\r\n",
        "Content-Length: 0\r\nTransfer-Encoding: chunked\r\n",
        "content-length: 5\r\n",
        "Transfer-Encoding: chunked\r\n",
    ] {
        assert!(is_ambiguous(&error_of(&adding(line))), "{line}");
    }
}

#[test]
fn missing_and_wrong_headers() {
    assert!(is_malformed(&error_of(&with("Host", ""))));
    assert!(is_malformed(&error_of(&with("Host", "Host: \r\n"))));
    assert!(is_malformed(&error_of(&with(
        "Host",
        "Host: ex\u{e4}mple\r\n"
    ))));
    assert!(is_malformed(&error_of(&with(
        "Origin",
        "Origin: \u{e4}\r\n"
    ))));
    assert!(is_malformed(&error_of(&adding(
        "Sec-WebSocket-Protocol: a b\r\n"
    ))));
    assert_eq!(error_of(&with("Upgrade", "")), RequestError::NotWebSocket);
    assert_eq!(
        error_of(&with("Upgrade", "Upgrade: h2c\r\n")),
        RequestError::NotWebSocket
    );
    assert_eq!(
        error_of(&with("Connection", "")),
        RequestError::NotWebSocket
    );
    assert_eq!(
        error_of(&with("Connection", "Connection: close\r\n")),
        RequestError::NotWebSocket
    );
    let version = |line| error_of(&with("Sec-WebSocket-Version", line));
    assert_eq!(version(""), RequestError::VersionNotSupported);
    assert_eq!(
        version("Sec-WebSocket-Version: 8\r\n"),
        RequestError::VersionNotSupported
    );
    for line in [
        "",
        "Sec-WebSocket-Key: \r\n",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=\r\n",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ!!\r\n",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZVhY\r\n",
    ] {
        assert_eq!(
            error_of(&with("Sec-WebSocket-Key", line)),
            RequestError::BadKey,
            "{line}"
        );
    }
}

#[test]
fn the_head_is_limited() {
    let limits = Limits {
        head_bytes_max: GOOD.len(),
    };
    assert!(parse_request(GOOD.as_bytes(), &limits).unwrap().is_some());
    let limits = Limits {
        head_bytes_max: GOOD.len() - 1,
    };
    let refused = parse_request(GOOD.as_bytes(), &limits).unwrap_err();
    assert_eq!(refused, HttpError::HeadTooLong.into());
    let endless = format!("GET /{}", "a".repeat(16_384));
    assert_eq!(error_of(&endless), HttpError::TargetTooLong.into());
    let lines = "X: y\r\n".repeat(100);
    assert_eq!(error_of(&adding(&lines)), HttpError::TooManyHeaders.into());
}

#[test]
fn targets() {
    let parts = |target: &str| {
        let text = with("GET", &format!("GET {target} HTTP/1.1\r\n"));
        let request = parse(text.as_bytes())?.expect("complete");
        Ok::<_, RequestError>((request.path().to_owned(), request.query().to_owned()))
    };
    let owned = |path: &str, query: &str| Ok((path.to_owned(), query.to_owned()));
    assert_eq!(parts("/"), owned("/", ""));
    assert_eq!(parts("/a?b?c"), owned("/a", "b?c"));
    assert_eq!(parts("ws://host:1/a?b"), owned("/a", "b"));
    assert_eq!(parts("HTTP://host"), owned("/", ""));
    assert_eq!(parts("http://host?b"), owned("/", "b"));
    for wrong in ["*", "host:443", "ftp://host/", "/a#b", "/\u{e4}"] {
        assert!(is_malformed(&parts(wrong).unwrap_err()), "{wrong}");
    }
}

#[test]
fn cookies_and_queries_of_odd_shape() {
    let mut text = with("Cookie", "Cookie: a=\"quoted\"; b=; c=d=e;f=1;f=2\r\n").into_bytes();
    let end = text.len() - 2;
    text.splice(end..end, *b"Cookie: raw=\xff; g=3\r\n");
    let request = parse(&text).unwrap().unwrap();
    assert_eq!(request.cookie("a"), Some("quoted"));
    assert_eq!(request.cookie("b"), Some(""));
    assert_eq!(request.cookie("c"), Some("d=e"));
    assert_eq!(request.cookie("f"), Some("1"));
    assert_eq!(request.cookie("raw"), None);
    assert_eq!(request.cookie("g"), Some("3"));

    let text = with("GET", "GET /?a=%zz%4&b=%FF&%63=x&d&e=1&e=2 HTTP/1.1\r\n");
    let request = parse(text.as_bytes()).unwrap().unwrap();
    assert_eq!(request.query_value("a").as_deref(), Some("%zz%4"));
    assert_eq!(request.query_value("b"), None);
    assert_eq!(request.query_value("c").as_deref(), Some("x"));
    assert_eq!(request.query_value("d").as_deref(), Some(""));
    assert_eq!(request.query_value("e").as_deref(), Some("1"));
}

#[test]
fn other_authorization_is_no_bearer() {
    for line in ["Basic abc", "Bearer", "Bearer ", "Bearer a b", "Bearerabc"] {
        let text = with("Authorization", &format!("Authorization: {line}\r\n"));
        assert_eq!(
            parse(text.as_bytes()).unwrap().unwrap().bearer(),
            None,
            "{line}"
        );
    }
}

proptest! {
    #[test]
    fn a_refusal_stays_whatever_follows(
        good in 0..GOOD.len(),
        bytes in prop::collection::vec(any::<u8>(), 1..100),
        cut in 0.0..1.0,
    ) {
        let whole = [&GOOD.as_bytes()[..good], &bytes].concat();
        let known = (whole.len() as f64 * cut) as usize;
        if parse(&whole[..known]).is_err() {
            prop_assert!(parse(&whole).is_err());
        }
    }

    #[test]
    fn a_request_with_a_changed_byte_keeps_to_its_bytes(at in 0..GOOD.len(), byte: u8) {
        let mut bytes = GOOD.as_bytes().to_vec();
        bytes[at] = byte;
        if let Ok(Some(request)) = parse(&bytes) {
            prop_assert!(request.path().starts_with('/'));
            prop_assert!(request.head_bytes() <= bytes.len());
            let _ = (request.cookie("access_token"), request.bearer(), request.query_value("token"));
        }
    }
}

//! The opening handshake of both sides: a part of a head is not judged otherwise than the whole, what is
//! accepted has no second reading, and each side understands what the other writes.
//!
//! Input: one byte of flags, then the bytes of a request, of a response, or parts of a request to write.

#![no_main]

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use libfuzzer_sys::fuzz_target;
use tidewire_wire::deflate::DeflateParameters;
use tidewire_wire::handshake::client::{Offer, RequestHead, ResponseError, parse_response};
use tidewire_wire::handshake::server::{
    Limits, Request, RequestError, parse_request, write_accept,
};

fuzz_target!(|input: &[u8]| {
    let [flags, bytes @ ..] = input else {
        return;
    };
    let head_bytes_max = [100, 400, 2000, 16_384][usize::from(flags >> 2 & 3)];
    match flags & 3 {
        0 | 1 => request(bytes, &Limits { head_bytes_max }),
        2 => response(bytes, head_bytes_max),
        _ => written(bytes),
    }
});

fn request(bytes: &[u8], limits: &Limits) {
    let whole = parse_request(bytes, limits);
    for length in prefixes(bytes.len()) {
        match (parse_request(&bytes[..length], limits), &whole) {
            (Ok(None), _) => {}
            (Ok(Some(part)), Ok(Some(whole))) => assert_eq!(summary(&part), summary(whole)),
            // More bytes may show another error first, but never make a wrong request good.
            (Err(_), Err(_)) => {}
            (part, whole) => panic!("{length} bytes: {part:?}, all: {whole:?}"),
        }
    }
    match &whole {
        Ok(None) => {}
        Ok(Some(request)) => accepted(bytes, request, limits),
        Err(error) => refused(error),
    }
}

/// Each accessor's answer.
fn summary(request: &Request<'_>) -> String {
    let protocols: Vec<&str> = request.protocols().collect();
    let parts = (
        request.path(),
        request.query(),
        request.key(),
        request.origin(),
        request.host(),
    );
    let values = (
        request.cookie("access_token"),
        request.bearer(),
        request.query_value("format"),
    );
    format!(
        "{parts:?} {values:?} {protocols:?} {}",
        request.head_bytes()
    )
}

fn accepted(bytes: &[u8], request: &Request<'_>, limits: &Limits) {
    let head = &bytes[..request.head_bytes()];
    assert!(head.len() <= limits.head_bytes_max);
    let head = head.trim_ascii_start();
    assert!(head.starts_with(b"GET ") && head.ends_with(b"\r\n\r\n"));
    let lines: Vec<&[u8]> = head.split(|byte| *byte == b'\n').collect();
    let (last, lines) = lines.split_last().expect("one at least");
    assert!(
        last.is_empty() && lines.iter().all(|line| line.ends_with(b"\r")),
        "a bare LF"
    );
    let lower: Vec<Vec<u8>> = lines[1..]
        .iter()
        .map(|line| line.to_ascii_lowercase())
        .collect();
    let count = |name: &[u8]| lower.iter().filter(|line| line.starts_with(name)).count();
    assert_eq!(count(b"host:"), 1);
    assert_eq!(count(b"sec-websocket-key:"), 1);
    assert_eq!(count(b"sec-websocket-version:"), 1);
    assert_eq!(count(b"transfer-encoding:"), 0);
    assert!(count(b"content-length:") <= 1);
    assert_eq!(count(b" ") + count(b"\t"), 0, "a folded line");
    assert!(count(b"authorization:") <= 1 && count(b"origin:") <= 1);
    assert!(request.path().starts_with('/'));

    // The last character may have bits behind the 16th byte.
    let lenient = GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true);
    let key: [u8; 16] = GeneralPurpose::new(&STANDARD, lenient)
        .decode(request.key())
        .expect("the key was checked")
        .try_into()
        .expect("16 bytes");
    if GeneralPurpose::new(&STANDARD, lenient).encode(key) != request.key() {
        // No client of ours writes such a key.
        return;
    }
    let offered: Vec<&str> = request.protocols().collect();
    let mut answer = Vec::new();
    write_accept(
        request.key(),
        offered.first().copied(),
        &[("Server", "x")],
        &mut answer,
    );
    let offer = Offer {
        key: &key,
        protocols: &offered,
        deflate: None,
    };
    let response = parse_response(&answer, &offer, 16_384 + answer.len());
    let response = response.expect("our own answer").expect("a whole one");
    assert_eq!(response.protocol.as_deref(), offered.first().copied());
    assert_eq!(
        (response.head_bytes, response.server.as_deref()),
        (answer.len(), Some("x"))
    );
}

fn refused(error: &RequestError) {
    let mut answer = Vec::new();
    error.write(&mut answer);
    match parse_response(&answer, &OFFER, 16_384) {
        Err(ResponseError::Refused { status, .. }) => assert_eq!(status, error.status()),
        other => panic!("{error:?} was written so that it reads as {other:?}"),
    }
}

fn response(bytes: &[u8], head_bytes_max: usize) {
    let deflate = DeflateParameters {
        server_max_window_bits: 12,
        ..DeflateParameters::default()
    };
    let offer = Offer {
        deflate: Some(deflate),
        ..OFFER
    };
    let parse = |bytes| parse_response(bytes, &offer, head_bytes_max);
    let whole = parse(bytes);
    for length in prefixes(bytes.len()) {
        match (parse(&bytes[..length]), &whole) {
            (Ok(None), _) => {}
            (Ok(Some(part)), Ok(Some(whole))) => assert_eq!(&part, whole),
            (Err(_), Err(_)) => {}
            (part, whole) => panic!("{length} bytes: {part:?}, all: {whole:?}"),
        }
    }
    if let Ok(Some(response)) = whole {
        let head = &bytes[..response.head_bytes];
        assert!(head.windows(ACCEPT.len()).any(|window| window == ACCEPT));
        assert!(
            response
                .protocol
                .is_none_or(|chosen| OFFER.protocols.contains(&chosen.as_str()))
        );
    }
}

/// A request that a client writes is read by a server with the same content.
fn written(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let mut parts = text
        .splitn(4, '\0')
        .map(|part| if part.is_empty() { "/" } else { part });
    let mut part = || parts.next().unwrap_or("/");
    let (host, target, protocol, value) = (part(), part(), part(), part());
    let head = RequestHead {
        host,
        target,
        offer: Offer {
            protocols: &[protocol],
            ..OFFER
        },
        headers: &[("X-Value", value)],
    };
    let mut out = Vec::new();
    if head.write(&mut out).is_err() {
        assert!(out.is_empty());
        return;
    }
    let limits = Limits {
        head_bytes_max: out.len() + 1,
    };
    match parse_request(&out, &limits) {
        Ok(Some(request)) => {
            assert_eq!(request.head_bytes(), out.len());
            assert_eq!(
                (request.host(), request.key()),
                (host, "dGhlIHNhbXBsZSBub25jZQ==")
            );
            assert_eq!(request.protocols().collect::<Vec<_>>(), [protocol]);
            let trimmed = value.trim_matches([' ', '\t']);
            assert_eq!(
                request
                    .header("x-value")
                    .map(|value| value.trim_matches([' ', '\t'])),
                Some(trimmed)
            );
        }
        // A fragment is the one thing in a visible target that a server does not take.
        other => assert!(
            target.contains('#'),
            "{other:?} for {:?}",
            String::from_utf8_lossy(&out)
        ),
    }
}

/// Every length of a short input; of a long one the first, the last and some between.
fn prefixes(bytes: usize) -> impl Iterator<Item = usize> {
    let step = (bytes / 200).max(1);
    (0..bytes).filter(move |length| length % step == 0 || bytes - length < 20)
}

const OFFER: Offer<'_> = Offer {
    key: b"the sample nonce",
    protocols: &["chat", "tidewire"],
    deflate: None,
};
const ACCEPT: &[u8] = b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

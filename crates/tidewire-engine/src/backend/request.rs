//! The bytes of a request to the backend, with its signature.

use crate::backend::Backend;
use crate::trace::TraceContext;
use aws_lc_rs::hmac;
use std::fmt::Write as _;
use tidewire_http::{BodyLength, RequestHead};

/// A whole request with this body at this time; `host` is the value of the header `Host`.
pub(crate) fn request(
    backend: &Backend,
    host: &str,
    (body, trace): (&[u8], Option<TraceContext>),
    unix_ms: u64,
) -> Vec<u8> {
    let signature = backend.key.as_ref().map(|key| {
        let time = unix_ms / 1000;
        format!("t={time},v1={}", signature(key, time, body))
    });
    let mut headers = vec![
        ("Content-Type", "application/json"),
        ("Accept", "application/json"),
        ("User-Agent", USER_AGENT),
    ];
    headers.extend(signature.as_deref().map(|value| (SIGNATURE, value)));
    let trace = trace.map(|trace| trace.to_string());
    headers.extend(trace.as_deref().map(|value| ("traceparent", value)));
    let head = RequestHead {
        method: "POST",
        target: &backend.config.url.target,
        host,
        headers: &headers,
        body: BodyLength::Bytes(body.len() as u64),
    };
    let mut bytes = Vec::with_capacity(body.len() + HEAD_BYTES_ABOUT);
    head.write(&mut bytes)
        .expect("the URL was checked, and the other fields are made here");
    bytes.extend_from_slice(body);
    bytes
}

/// The signature of a body at a time, in seconds since 1970, in hexadecimal digits.
fn signature(key: &hmac::Key, time: u64, body: &[u8]) -> String {
    let mut context = hmac::Context::with_key(key);
    context.update(time.to_string().as_bytes());
    context.update(b".");
    context.update(body);
    let tag = context.sign();
    let mut digits = String::with_capacity(64);
    for byte in tag.as_ref() {
        let _ = write!(digits, "{byte:02x}");
    }
    digits
}

const SIGNATURE: &str = "Tidewire-Signature";

const USER_AGENT: &str = concat!("tidewire/", env!("CARGO_PKG_VERSION"));

/// Room for the head of a request, in bytes.
const HEAD_BYTES_ABOUT: usize = 512;

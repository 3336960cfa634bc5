//! Headers of proxies: however the bytes of a PROXY header are cut, the same is found, within its limit; and whatever
//! a list of forwarded addresses holds, the client is one of it or the proxy.
//!
//! Input: the bytes of a connection, which are a header's value as well.

#![no_main]

use libfuzzer_sys::fuzz_target;
use std::net::{IpAddr, SocketAddr};
use tidewire_wire::forwarded::ForwardedHeader;
use tidewire_wire::proxy::{HEADER_BYTES_MAX, ProxyHeader, parse};

fuzz_target!(|data: &[u8]| {
    let all = parse(data);
    let mut known = None;
    for end in 0..=data.len() {
        let found = parse(&data[..end]);
        match known {
            Some(known) => assert_eq!(found, known),
            None if found != Ok(None) => known = Some(found),
            None => assert!(end < HEADER_BYTES_MAX),
        }
    }
    assert_eq!(known.unwrap_or(Ok(None)), all);
    if let Ok(Some(ProxyHeader::Present { bytes, .. })) = all {
        assert!(bytes <= data.len().min(HEADER_BYTES_MAX));
    }
    if let Ok(line) = std::str::from_utf8(data) {
        forwarded(line);
    }
});

fn forwarded(line: &str) {
    let peer = SocketAddr::from(([10, 0, 0, 1], 1));
    let is_trusted = |address: IpAddr| matches!(address, IpAddr::V4(v4) if v4.octets()[0] == 10);
    for header in [ForwardedHeader::XForwardedFor, ForwardedHeader::Forwarded] {
        let one = header.client([line].into_iter(), peer, is_trusted);
        // A line in front of one that ends with a stranger changes nothing.
        if !is_trusted(one.ip()) {
            let two = header.client(["192.0.2.1", line].into_iter(), peer, is_trusted);
            assert_eq!(one, two);
        }
    }
}

//! The PROXY protocol, bytes in, header out.

use proptest::prelude::*;
use std::net::{IpAddr, SocketAddr};
use tidewire_wire::proxy::{HEADER_BYTES_MAX, ProxyHeader, ProxyHeaderError, parse};

const SIGNATURE_2: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// A header of version 2.
fn binary(command: u8, family: u8, body: &[u8]) -> Vec<u8> {
    let length = u16::try_from(body.len())
        .expect("a short body")
        .to_be_bytes();
    [SIGNATURE_2, &[command, family], &length, body].concat()
}

/// The addresses and ports of version 2.
fn addresses(source: SocketAddr, destination: SocketAddr) -> Vec<u8> {
    let octets = |address: IpAddr| match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    let mut body = octets(source.ip());
    body.extend(octets(destination.ip()));
    body.extend(source.port().to_be_bytes());
    body.extend(destination.port().to_be_bytes());
    body
}

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

/// The header that is found when the bytes arrive one by one, and the number of bytes before it was found.
fn by_single_bytes(data: &[u8]) -> Option<(usize, Result<ProxyHeader, ProxyHeaderError>)> {
    (0..=data.len()).find_map(|end| {
        let found = parse(&data[..end]).transpose()?;
        Some((end, found))
    })
}

#[test]
fn headers_of_both_versions() {
    let v4 = addresses(address("192.0.2.1:51000"), address("198.51.100.7:443"));
    let v6 = addresses(address("[2001:db8::1]:51000"), address("[2001:db8::2]:443"));
    let with_fields = [v4.as_slice(), &[0x04, 0, 3, 1, 2, 3]].concat();
    let none = None;
    let cases: [(Vec<u8>, Option<&str>); 16] = [
        (b"PROXY TCP4 192.0.2.1 198.51.100.7 51000 443\r\n".to_vec(), Some("192.0.2.1:51000")),
        (b"PROXY TCP6 2001:db8::1 2001:db8::2 51000 443\r\n".to_vec(), Some("[2001:db8::1]:51000")),
        (b"PROXY TCP4 192.0.2.1 198.51.100.7 0 65535\r\n".to_vec(), Some("192.0.2.1:0")),
        (b"PROXY UNKNOWN\r\n".to_vec(), none),
        (b"PROXY UNKNOWN ffff:f... what ever\r\n".to_vec(), none),
        (
            b"PROXY TCP6 ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535\r\n".to_vec(),
            Some("[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535"),
        ),
        (binary(0x21, 0x11, &v4), Some("192.0.2.1:51000")),
        (binary(0x21, 0x21, &v6), Some("[2001:db8::1]:51000")),
        (binary(0x21, 0x11, &with_fields), Some("192.0.2.1:51000")),
        // Not TCP over IP.
        (binary(0x21, 0x12, &v4), none),
        (binary(0x21, 0x22, &v6), none),
        (binary(0x21, 0x31, &[b'/'; 216]), none),
        (binary(0x21, 0x00, &[]), none),
        (binary(0x21, 0x00, &[1, 2, 3]), none),
        // The proxy's own connection.
        (binary(0x20, 0x11, &v4), none),
        (binary(0x20, 0x00, &[]), none),
    ];
    for (header, source) in cases {
        let expected = ProxyHeader::Present {
            bytes: header.len(),
            source: source.map(address),
        };
        let all = [header.as_slice(), b"GET / HTTP/1.1\r\n\r\n"].concat();
        assert_eq!(parse(&all), Ok(Some(expected)), "{all:?}");
        assert_eq!(by_single_bytes(&all), Some((header.len(), Ok(expected))));
    }
}

#[test]
fn other_beginnings_are_no_headers() {
    for (data, needed) in [
        (&b"GET / HTTP/1.1\r\n"[..], 1),
        (b"POST / HTTP/1.1\r\n", 2),
        (b"PROXYX", 6),
        // A ClientHello of TLS.
        (b"\x16\x03\x01\x02\x00", 1),
        (b"\r\n\r\nGET", 5),
        (b"\r\n\r\n\0\r\nQUIT\r", 12),
    ] {
        let found = Some((needed, Ok(ProxyHeader::Absent)));
        assert_eq!(by_single_bytes(data), found, "{data:?}");
    }
    assert_eq!(parse(b""), Ok(None));
}

#[test]
fn malformed_headers_are_refused() {
    let v4 = addresses(address("192.0.2.1:51000"), address("198.51.100.7:443"));
    for data in [
        b"PROXY \r\n".to_vec(),
        b"PROXY TCP5 192.0.2.1 198.51.100.7 51000 443\r\n".to_vec(),
        b"PROXY tcp4 192.0.2.1 198.51.100.7 51000 443\r\n".to_vec(),
        b"PROXY TCP4 192.0.2.1 198.51.100.7 51000\r\n".to_vec(),
        b"PROXY TCP4 192.0.2.1 198.51.100.7 51000 443 \r\n".to_vec(),
        b"PROXY TCP4  192.0.2.1 198.51.100.7 51000 443\r\n".to_vec(),
        b"PROXY TCP4 192.0.2.1 198.51.100.7 65536 443\r\n".to_vec(),
        b"PROXY TCP4 192.0.2.1 198.51.100.7 +1 443\r\n".to_vec(),
        b"PROXY TCP4 192.0.2.1 198.51.100.7 01 443\r\n".to_vec(),
        b"PROXY TCP4 192.0.2.1 198.51.100.7 443\n51000 443\r\n".to_vec(),
        b"PROXY TCP4 2001:db8::1 2001:db8::2 51000 443\r\n".to_vec(),
        b"PROXY TCP6 192.0.2.1 198.51.100.7 51000 443\r\n".to_vec(),
        b"PROXY TCP4 192.0.2.256 198.51.100.7 51000 443\r\n".to_vec(),
        b"PROXY TCP4 \xff\xff\r\n".to_vec(),
        binary(0x11, 0x11, &v4),
        binary(0x22, 0x11, &v4),
        binary(0x21, 0x13, &v4),
        binary(0x21, 0x11, &v4[..11]),
        binary(0x21, 0x21, &v4),
    ] {
        let found = by_single_bytes(&data);
        let is_refused = |found: Option<(usize, _)>| {
            matches!(found, Some((_, Err(ProxyHeaderError::Malformed(_)))))
        };
        assert!(is_refused(found), "{data:?}: {found:?}");
    }
}

#[test]
fn headers_past_their_limit_are_refused() {
    let endless = [b"PROXY UNKNOWN ".as_slice(), &[b'a'; 200]].concat();
    assert_eq!(
        by_single_bytes(&endless),
        Some((107, Err(ProxyHeaderError::TooLong)))
    );
    let largest = HEADER_BYTES_MAX - SIGNATURE_2.len() - 4;
    let fits = binary(0x21, 0x00, &vec![0; largest]);
    let expected = ProxyHeader::Present {
        bytes: HEADER_BYTES_MAX,
        source: None,
    };
    assert_eq!(parse(&fits), Ok(Some(expected)));
    // The length alone decides, so that nothing is kept of it.
    let too_long = binary(0x21, 0x00, &vec![0; largest + 1]);
    assert_eq!(parse(&too_long[..16]), Err(ProxyHeaderError::TooLong));
}

/// Bytes that are a header more often than not, and are not cut where a header is.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let any_bytes = || proptest::collection::vec(any::<u8>(), 0..300);
    let text = "PROXY (TCP4|TCP6|UNKNOWN|X) ([0-9.:a-f]{0,12} ){0,4}[0-9]{0,6}(\r\n|\r|\n)?";
    let binary_header = (any::<u8>(), any::<u8>(), any_bytes());
    prop_oneof![
        any_bytes(),
        text.prop_map(String::into_bytes),
        binary_header.prop_map(|(command, family, body)| binary(command, family, &body)),
        (
            0x20u8..0x22,
            prop::sample::select(vec![0x00, 0x11, 0x21, 0x31]),
            any_bytes()
        )
            .prop_map(|(command, family, body)| binary(command, family, &body)),
    ]
}

proptest! {
    /// The result does not depend on how the bytes are cut: it never changes once it is known, and it is known as
    /// soon as the limit is reached.
    #[test]
    fn every_split_gives_the_same(header in bytes(), rest in proptest::collection::vec(any::<u8>(), 0..50)) {
        let data = [header, rest].concat();
        let all = parse(&data);
        match by_single_bytes(&data) {
            None => prop_assert_eq!(all, Ok(None)),
            Some((needed, found)) => {
                for end in needed..=data.len() {
                    prop_assert_eq!(parse(&data[..end]).transpose(), Some(found));
                }
            }
        }
        prop_assert!(data.len() < HEADER_BYTES_MAX || all != Ok(None));
    }

    #[test]
    fn what_a_proxy_writes_is_read(source in any::<SocketAddr>(), destination in any::<SocketAddr>()) {
        let (is_v4, source) = match source {
            SocketAddr::V4(_) => (true, source),
            SocketAddr::V6(address) => (false, SocketAddr::new((*address.ip()).into(), address.port())),
        };
        prop_assume!(is_v4 == destination.is_ipv4());
        let (family, name) = if is_v4 { (0x11, "TCP4") } else { (0x21, "TCP6") };
        let header = binary(0x21, family, &addresses(source, destination));
        let expected = ProxyHeader::Present { bytes: header.len(), source: Some(source) };
        prop_assert_eq!(parse(&header), Ok(Some(expected)));
        let ports = format!("{} {}", source.port(), destination.port());
        let line = format!("PROXY {name} {} {} {ports}\r\n", source.ip(), destination.ip());
        let expected = ProxyHeader::Present { bytes: line.len(), source: Some(source) };
        prop_assert_eq!(parse(line.as_bytes()), Ok(Some(expected)));
    }
}

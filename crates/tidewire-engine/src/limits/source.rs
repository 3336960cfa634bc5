//! Sources of connections: the addresses that one party controls, for limits per party.

use std::net::{IpAddr, Ipv4Addr};

/// The origin of connections. One party has an IPv4 address or, as providers assign them, an IPv6 network
/// with a prefix of 64 bits (RFC 6177), so that all addresses of such a network are one source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Source {
    V4(Ipv4Addr),
    /// The first 64 bits.
    V6(u64),
    /// A trusted proxy that has not reported yet whom it forwards.
    Proxy(IpAddr),
    /// The peer is gone already, so that the system does not know its address any more.
    Unknown,
}

impl Source {
    /// The source of an address. IPv4 addresses that are written as IPv6 ones (`::ffff:192.0.2.1`)
    /// are IPv4 addresses.
    pub(crate) fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self::V4(address),
            IpAddr::V6(address) => Self::V6((address.to_bits() >> 64) as u64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv6_network_is_one_source() {
        let of = |text: &str| Source::of(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:ffff:ffff:ffff"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    }
}

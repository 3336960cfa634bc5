//! Networks: an address and the length of its prefix in bits.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// An IPv4 or IPv6 network, as `10.0.0.0/8`, `2001:db8::/32`, or a single address.
///
/// ```
/// use tidewire_engine::Network;
///
/// let network: Network = "10.0.0.0/8".parse().unwrap();
/// assert!(network.contains([10, 1, 2, 3].into()));
/// assert_eq!("10.0.0.0/33".parse::<Network>().unwrap_err().to_string(),
///     "expected an address such as 10.0.0.1, or a network such as 10.0.0.0/8");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

/// A text that is no [`Network`]. The caller's fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected an address such as 10.0.0.1, or a network such as 10.0.0.0/8")]
pub struct InvalidNetwork;

impl Network {
    /// The network of the addresses that have the first `prefix` bits of `address`; the other bits
    /// of it do not count.
    ///
    /// # Errors
    /// [`InvalidNetwork`] if an address has fewer bits.
    pub fn new(address: IpAddr, prefix: u8) -> Result<Self, InvalidNetwork> {
        if prefix > bits(address) {
            return Err(InvalidNetwork);
        }
        Ok(Self { address, prefix })
    }

    /// Whether an address is in it. An IPv4 address that is written as an IPv6 one
    /// (`::ffff:192.0.2.1`) counts as the former.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let different = own.to_bits() ^ other.to_bits();
                different.leading_zeros() >= u32::from(self.prefix)
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let different = own.to_bits() ^ other.to_bits();
                different.leading_zeros() >= u32::from(self.prefix)
            }
            _ => false,
        }
    }
}

impl FromStr for Network {
    type Err = InvalidNetwork;

    fn from_str(text: &str) -> Result<Self, InvalidNetwork> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| InvalidNetwork)?;
        let prefix = match prefix {
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                digits.parse().map_err(|_| InvalidNetwork)?
            }
            Some(_) => return Err(InvalidNetwork),
            None => bits(address),
        };
        Self::new(address, prefix)
    }
}

impl fmt::Display for Network {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.prefix == bits(self.address) {
            write!(formatter, "{}", self.address)
        } else {
            write!(formatter, "{}/{}", self.address, self.prefix)
        }
    }
}

fn bits(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_bits_decide() {
        for (network, inside, outside) in [
            ("10.0.0.0/8", "10.255.0.1", "11.0.0.0"),
            ("10.1.2.3/8", "10.255.0.1", "11.0.0.0"),
            ("192.0.2.1", "192.0.2.1", "192.0.2.0"),
            ("192.0.2.0/31", "::ffff:192.0.2.1", "192.0.2.2"),
            ("0.0.0.0/0", "192.0.2.1", "::1"),
            ("::/0", "2001:db8::1", "192.0.2.1"),
            ("2001:db8::/32", "2001:db8:ffff::1", "2001:db9::"),
            ("::1", "::1", "::2"),
        ] {
            let parsed: Network = network.parse().unwrap();
            assert!(
                parsed.contains(inside.parse().unwrap()),
                "{network} {inside}"
            );
            assert!(
                !parsed.contains(outside.parse().unwrap()),
                "{network} {outside}"
            );
            assert_eq!(parsed.to_string(), network);
        }
    }

    #[test]
    fn texts_that_are_no_networks() {
        for text in [
            "",
            "10.0.0.0/",
            "10.0.0.0/33",
            "10.0.0.0/-1",
            "10.0.0.0/+8",
            "::/129",
            "10.0.0",
            "proxy.example",
            "10.0.0.0/8/8",
        ] {
            assert_eq!(text.parse::<Network>(), Err(InvalidNetwork), "{text}");
        }
    }
}

//! The address of a client behind proxies, in the header `X-Forwarded-For` or `Forwarded` (RFC 7239).
//!
//! A proxy appends the address from which it received the request. Therefore the list is trustworthy from its right
//! end up to the first address that is not a trusted proxy. That address may have written everything left of it.

use core::net::{IpAddr, Ipv6Addr, SocketAddr};

/// The header that the proxies write. Only one header is trusted, because a proxy forwards other headers unchanged
/// from the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ForwardedHeader {
    /// `X-Forwarded-For`: addresses, separated by commas.
    #[default]
    XForwardedFor,
    /// `Forwarded`: the parameters `for` of its elements (RFC 7239, section 5.2).
    Forwarded,
}

impl ForwardedHeader {
    /// Its name, in lower case.
    pub fn name(self) -> &'static str {
        match self {
            Self::XForwardedFor => "x-forwarded-for",
            Self::Forwarded => "forwarded",
        }
    }

    /// The address of the client of a request that `peer`, a trusted proxy, sent with these header lines in their order:
    /// the right-most address that is not a trusted proxy, or the left-most if all are. An element that is not an
    /// address ends the list, because nobody knows who wrote the elements left of it. The port is 0 if it is missing.
    pub fn client<'a>(
        self,
        lines: impl DoubleEndedIterator<Item = &'a str>,
        peer: SocketAddr,
        is_trusted: impl Fn(IpAddr) -> bool,
    ) -> SocketAddr {
        let mut client = peer;
        for line in lines.rev() {
            let mut nodes = Vec::new();
            match self {
                Self::XForwardedFor => nodes.extend(line.split(',').map(node)),
                Self::Forwarded => forwarded_nodes(line, &mut nodes),
            }
            for node in nodes.into_iter().rev() {
                let Some(address) = node else {
                    return client;
                };
                client = address;
                if !is_trusted(client.ip()) {
                    return client;
                }
            }
        }
        client
    }
}

/// An address, with or without a port: `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]` or
/// `[2001:db8::1]:80`.
fn node(text: &str) -> Option<SocketAddr> {
    let text = text.trim_matches([' ', '\t']);
    let bracketed = || {
        let address = text.strip_prefix('[')?.strip_suffix(']')?;
        address.parse::<Ipv6Addr>().ok().map(IpAddr::V6)
    };
    let address = text.parse::<IpAddr>().ok().or_else(bracketed);
    let address = address.map(|address| SocketAddr::new(address, 0));
    address.or_else(|| text.parse().ok())
}

/// The value of `for` in each element of a `Forwarded` line; `None` for an element without an address (`unknown`, or
/// an obfuscated name).
fn forwarded_nodes(line: &str, nodes: &mut Vec<Option<SocketAddr>>) {
    for element in unquoted_parts(line, ',') {
        let parameters = unquoted_parts(element, ';');
        let values = parameters.into_iter().filter_map(|parameter| {
            let (name, value) = parameter.split_once('=')?;
            let is_for = name.trim_matches([' ', '\t']).eq_ignore_ascii_case("for");
            is_for.then(|| value.trim_matches([' ', '\t']))
        });
        let mut values = values.fuse();
        let value = values.next().filter(|_| values.next().is_none());
        nodes.push(value.and_then(|value| {
            let quoted = value
                .strip_prefix('"')
                .and_then(|value| value.strip_suffix('"'));
            node(quoted.unwrap_or(value))
        }));
    }
}

/// The parts between separators outside quotes. No address has a quote or a backslash, so escapes are recognized but
/// not resolved.
fn unquoted_parts(text: &str, separator: char) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut start, mut is_quoted, mut is_escaped) = (0, false, false);
    for (index, character) in text.char_indices() {
        match character {
            _ if is_escaped => is_escaped = false,
            '\\' if is_quoted => is_escaped = true,
            '"' => is_quoted = !is_quoted,
            _ if character == separator && !is_quoted => {
                parts.push(&text[start..index]);
                start = index + character.len_utf8();
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: &str = "10.0.0.1:5555";

    fn client(header: ForwardedHeader, lines: &[&str]) -> String {
        let is_trusted = |address: IpAddr| match address {
            IpAddr::V4(address) => address.octets()[0] == 10,
            IpAddr::V6(address) => address.segments()[0] == 0xfd00,
        };
        let peer = PEER.parse().unwrap();
        let client = header.client(lines.iter().copied(), peer, is_trusted);
        client.to_string()
    }

    #[test]
    fn the_right_most_stranger_is_the_client() {
        let of = |lines: &[&str]| client(ForwardedHeader::XForwardedFor, lines);
        for (lines, expected) in [
            (&["192.0.2.1"][..], "192.0.2.1:0"),
            (&["198.51.100.1, 192.0.2.1"], "192.0.2.1:0"),
            (
                &["198.51.100.1, 192.0.2.1,10.0.0.2 ,\t10.0.0.3"],
                "192.0.2.1:0",
            ),
            (&["198.51.100.1, 192.0.2.1", "10.0.0.2"], "192.0.2.1:0"),
            (&["198.51.100.1", "192.0.2.1"], "192.0.2.1:0"),
            (&["2001:db8::1"], "[2001:db8::1]:0"),
            (&["2001:db8::1, fd00::1"], "[2001:db8::1]:0"),
            (&["192.0.2.1:81"], "192.0.2.1:81"),
            (&["[2001:db8::1]:81"], "[2001:db8::1]:81"),
            (&["[2001:db8::1]"], "[2001:db8::1]:0"),
            // All of them are proxies: the first one asked for itself.
            (&["10.0.0.3, 10.0.0.2"], "10.0.0.3:0"),
            (&[], PEER),
            // What stands left of a word that is no address may be anybody's.
            (&["192.0.2.1, unknown"], PEER),
            (&["192.0.2.1, unknown, 10.0.0.2"], "10.0.0.2:0"),
            (&["192.0.2.1,"], PEER),
            (&[""], PEER),
            (&["192.0.2.256"], PEER),
        ] {
            assert_eq!(of(lines), expected, "{lines:?}");
        }
    }

    #[test]
    fn the_standard_header() {
        let of = |lines: &[&str]| client(ForwardedHeader::Forwarded, lines);
        for (lines, expected) in [
            (&["for=192.0.2.1"][..], "192.0.2.1:0"),
            (
                &["For=\"[2001:db8:cafe::17]:4711\""],
                "[2001:db8:cafe::17]:4711",
            ),
            (
                &["for=192.0.2.60;proto=http;by=203.0.113.43"],
                "192.0.2.60:0",
            ),
            (
                &["for=198.51.100.1, for=192.0.2.1;by=\"a,b;for=x\", by=x; FOR = 10.0.0.2"],
                "192.0.2.1:0",
            ),
            (&["for=198.51.100.1", "for=192.0.2.1"], "192.0.2.1:0"),
            (&["for=192.0.2.1, for=unknown"], PEER),
            (&["for=192.0.2.1, for=\"_hidden\""], PEER),
            (&["for=192.0.2.1, proto=https"], PEER),
            (&["for=192.0.2.1;for=192.0.2.2"], PEER),
            (&["for=\"192.0.2.1"], PEER),
            (&["by=\"\\\"\";for=192.0.2.1"], "192.0.2.1:0"),
        ] {
            assert_eq!(of(lines), expected, "{lines:?}");
        }
    }
}

//! The PROXY protocol, versions 1 and 2: a header with the address of the client, which a proxy writes before the
//! bytes of a connection (<https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt>).
//!
//! [`parse`] reads the bytes received so far. Use it only for connections of trusted proxies: anybody can write such a
//! header.

use core::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

/// The start of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyHeader {
    /// No header: the bytes are those of the connection itself.
    Absent,
    /// A header of `bytes` bytes, which the bytes of the connection follow.
    Present {
        /// The length of the header.
        bytes: usize,
        /// The address of the client. `None` if the proxy opened the connection itself, for example for a health check,
        /// or does not know an IP address.
        source: Option<SocketAddr>,
    },
}

/// The reason why a header is invalid: the proxy's fault. The connection cannot continue, because nobody knows where
/// its own bytes start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProxyHeaderError {
    /// A field is missing or invalid.
    #[error("the PROXY header is malformed: {0}")]
    Malformed(&'static str),
    /// It is longer than [`HEADER_BYTES_MAX`], or than the limit of version 1.
    #[error("the PROXY header is too long")]
    TooLong,
}

/// Reads a header at the front of `data`, the bytes received so far; `Ok(None)` if more bytes are needed, of which
/// there are at most [`HEADER_BYTES_MAX`].
///
/// # Errors
/// [`ProxyHeaderError`], as soon as bytes that start like a header cannot be a valid one.
///
/// ```
/// use tidewire_wire::proxy::{ProxyHeader, parse};
///
/// let data = b"PROXY TCP4 192.0.2.1 198.51.100.7 51000 443\r\nGET / HTTP/1.1\r\n";
/// let source = Some("192.0.2.1:51000".parse().unwrap());
/// assert_eq!(parse(data), Ok(Some(ProxyHeader::Present { bytes: 45, source })));
/// assert_eq!(parse(&data[..20]), Ok(None));
/// assert_eq!(parse(b"GET / HTTP/1.1\r\n"), Ok(Some(ProxyHeader::Absent)));
/// ```
pub fn parse(data: &[u8]) -> Result<Option<ProxyHeader>, ProxyHeaderError> {
    for (signature, parse_rest) in VERSIONS {
        let common = data.len().min(signature.len());
        if data[..common] == signature[..common] {
            return if common < signature.len() {
                Ok(None)
            } else {
                parse_rest(data)
            };
        }
    }
    Ok(Some(ProxyHeader::Absent))
}

/// The reader of the bytes after a signature.
type Parse = fn(&[u8]) -> Result<Option<ProxyHeader>, ProxyHeaderError>;

/// The signatures; none is a prefix of another.
const VERSIONS: [(&[u8], Parse); 2] = [(SIGNATURE_1, parse_text), (SIGNATURE_2, parse_binary)];

/// Version 1 (section 2.1): a line of text.
fn parse_text(data: &[u8]) -> Result<Option<ProxyHeader>, ProxyHeaderError> {
    let window = &data[..data.len().min(LINE_BYTES_MAX)];
    let Some(end) = window.windows(2).position(|pair| pair == b"\r\n") else {
        return if data.len() < LINE_BYTES_MAX {
            Ok(None)
        } else {
            Err(ProxyHeaderError::TooLong)
        };
    };
    let line = std::str::from_utf8(&window[SIGNATURE_1.len()..end]);
    let line = line.map_err(|_| ProxyHeaderError::Malformed("it is not ASCII"))?;
    let mut fields = line.split(' ');
    let source = match fields.next() {
        // Whatever follows is not to be looked at.
        Some("UNKNOWN") => None,
        Some("TCP4") => Some(addresses::<Ipv4Addr>(fields)?),
        Some("TCP6") => Some(addresses::<Ipv6Addr>(fields)?),
        _ => {
            return Err(ProxyHeaderError::Malformed(
                "the protocol is none of TCP4, TCP6 and UNKNOWN",
            ));
        }
    };
    Ok(Some(ProxyHeader::Present {
        bytes: end + 2,
        source,
    }))
}

/// The source of the fields source, destination, source's port and destination's port.
fn addresses<'a, A: std::str::FromStr + Into<core::net::IpAddr>>(
    mut fields: impl Iterator<Item = &'a str>,
) -> Result<SocketAddr, ProxyHeaderError> {
    let mut address = || {
        let field = fields.next()?;
        field.parse::<A>().ok().map(Into::into)
    };
    let (source, destination) = (address(), address());
    let (Some(source), Some(_)) = (source, destination) else {
        return Err(ProxyHeaderError::Malformed(
            "an address is missing or none of its kind",
        ));
    };
    let ports = (fields.next().and_then(port), fields.next().and_then(port));
    let ((Some(port), Some(_)), None) = (ports, fields.next()) else {
        return Err(ProxyHeaderError::Malformed(
            "there are not two ports at its end",
        ));
    };
    Ok(SocketAddr::new(source, port))
}

/// A port in decimal digits, without a zero in front.
fn port(text: &str) -> Option<u16> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    let is_short = text == "0" || !text.starts_with('0');
    text.parse().ok().filter(|_| is_plain && is_short)
}

/// Version 2 (section 2.2): command, family, length, addresses, and further fields, which are ignored.
fn parse_binary(data: &[u8]) -> Result<Option<ProxyHeader>, ProxyHeaderError> {
    let malformed = |why| Err(ProxyHeaderError::Malformed(why));
    let mut rest = data[SIGNATURE_2.len()..].iter().copied();
    let Some(version_and_command) = rest.next() else {
        return Ok(None);
    };
    if version_and_command >> 4 != 2 {
        return malformed("the version is not 2");
    }
    let is_local = match version_and_command & 0xf {
        0 => true,
        1 => false,
        _ => return malformed("the command is neither LOCAL nor PROXY"),
    };
    let Some(family) = rest.next() else {
        return Ok(None);
    };
    let address_bytes = match family {
        FAMILY_UNSPECIFIED => 0,
        FAMILY_TCP4 | FAMILY_UDP4 => 12,
        FAMILY_TCP6 | FAMILY_UDP6 => 36,
        FAMILY_UNIX_STREAM | FAMILY_UNIX_DATAGRAM => 216,
        _ => return malformed("the address family is not known"),
    };
    let (Some(high), Some(low)) = (rest.next(), rest.next()) else {
        return Ok(None);
    };
    let length = usize::from(u16::from_be_bytes([high, low]));
    let bytes = FIXED_BYTES + length;
    if bytes > HEADER_BYTES_MAX {
        return Err(ProxyHeaderError::TooLong);
    }
    if length < address_bytes && !is_local {
        return malformed("it is too short for its addresses");
    }
    let Some(body) = data.get(FIXED_BYTES..bytes) else {
        return Ok(None);
    };
    let source = match family {
        _ if is_local => None,
        FAMILY_TCP4 => source_of::<4>(body),
        FAMILY_TCP6 => source_of::<16>(body),
        // Not a TCP connection over IP: no address that anybody could have a use for.
        _ => None,
    };
    Ok(Some(ProxyHeader::Present { bytes, source }))
}

/// The source of addresses of `N` bytes: source, destination, source's port, destination's port.
fn source_of<const N: usize>(body: &[u8]) -> Option<SocketAddr>
where
    core::net::IpAddr: From<[u8; N]>,
{
    let (address, rest) = body.split_first_chunk::<N>()?;
    let port = rest.get(N..)?.first_chunk::<2>()?;
    Some(SocketAddr::new(
        (*address).into(),
        u16::from_be_bytes(*port),
    ))
}

/// The maximum length of a header, in bytes. Version 1 has at most 107; headers of version 2 usually have a few
/// hundred, mostly fields about TLS at the proxy.
pub const HEADER_BYTES_MAX: usize = 4 * 1024;

/// The longest line of version 1, with its end.
const LINE_BYTES_MAX: usize = 107;

const SIGNATURE_1: &[u8] = b"PROXY ";

const SIGNATURE_2: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// The length of version 2 before the addresses.
const FIXED_BYTES: usize = SIGNATURE_2.len() + 4;

const FAMILY_UNSPECIFIED: u8 = 0x00;
const FAMILY_TCP4: u8 = 0x11;
const FAMILY_UDP4: u8 = 0x12;
const FAMILY_TCP6: u8 = 0x21;
const FAMILY_UDP6: u8 = 0x22;
const FAMILY_UNIX_STREAM: u8 = 0x31;
const FAMILY_UNIX_DATAGRAM: u8 = 0x32;

//! The destination of a load: its address, TLS, a proxy's tunnel, and the source addresses.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidewire_net::Address;

use super::OptionError;
use super::load::{LoadOptions, needs_tunnel};
use super::scenario::Host;
use crate::fleet::preflight;
use crate::worker::service::order::{Endpoint, ServiceTarget};
use crate::worker::target::first_reachable;

impl LoadOptions {
    pub(super) fn endpoint(&self, host: &Host<'_>) -> Result<Endpoint, OptionError> {
        let (proxy, parts) = (self.proxy()?, &host.parts);
        let unix_socket = self.unix_socket.as_ref().filter(|_| host.is_own());
        let (address, resolver_time) = match (unix_socket, &proxy) {
            (Some(_), Some(_)) => {
                return Err(OptionError::new(
                    "--unix-socket and --proxy exclude each other",
                ));
            }
            (Some(path), None) => (Address::Unix(path.clone()), None),
            (None, Some(proxy)) => self.address_of(&proxy.host, proxy.port)?,
            (None, None) => self.address_of(parts.host, parts.port)?,
        };
        Ok(Endpoint {
            address,
            resolver_time,
            tls: parts
                .is_secure
                .then(|| self.tls.target(host, self.http2 && !parts.is_websocket))
                .transpose()?,
            tunnel: proxy
                .filter(|_| needs_tunnel(parts))
                .map(|proxy| proxy.connect(parts))
                .transpose()?,
        })
    }

    /// The address of a host, and the time that the resolver needed for it.
    fn address_of(
        &self,
        host: &str,
        port: u16,
    ) -> Result<(Address, Option<Duration>), OptionError> {
        for rule in &self.resolve {
            let wrong = || {
                OptionError::new(format_args!(
                    "--resolve {rule}: write host:port:address, such as api.example:443:127.0.0.1"
                ))
            };
            let (name, rest) = rule.split_once(':').ok_or_else(wrong)?;
            let (number, address) = rest.split_once(':').ok_or_else(wrong)?;
            let number: u16 = number.parse().map_err(|_| wrong())?;
            let address = address.trim_start_matches('[').trim_end_matches(']');
            let address: IpAddr = address.parse().map_err(|_| wrong())?;
            if name.eq_ignore_ascii_case(host) && number == port {
                return Ok((Address::Tcp(SocketAddr::new(address, port)), None));
            }
        }
        let unresolved = |error: &dyn std::fmt::Display| {
            OptionError::new(format_args!(
                "`{host}` does not resolve to an address: {error}"
            ))
        };
        let asked = Instant::now();
        let addresses = (host, port).to_socket_addrs();
        let addresses: Vec<SocketAddr> = addresses.map_err(|error| unresolved(&error))?.collect();
        let took = asked.elapsed();
        let is_number = host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
        let address =
            first_reachable(&addresses).ok_or_else(|| unresolved(&"it has no address"))?;
        Ok((Address::Tcp(address), (!is_number).then_some(took)))
    }

    /// Additional loopback addresses if one has too few ports.
    pub(super) fn sources(&self, targets: &[ServiceTarget], users: usize) -> Arc<[IpAddr]> {
        if !self.source_addresses.is_empty() {
            return self.source_addresses.clone().into();
        }
        let is_loopback = targets.iter().all(|target| match target.endpoint.address {
            Address::Tcp(address) => address.ip().is_ipv4() && address.ip().is_loopback(),
            Address::Unix(_) => false,
        });
        // Each connection that this side closes keeps its port for a while, unless the system
        // reuses it.
        let wanted = match (is_loopback, self.keep_alive) {
            (false, _) => return Arc::new([]),
            (true, false) if !preflight::reuses_ports() => {
                (users as u64).max(PORTS_OF_SHORT_CONNECTIONS)
            }
            (true, _) => users as u64,
        };
        let sources = preflight::source_addresses(wanted, &preflight::port_range());
        match sources.len() {
            0 | 1 => Arc::new([]),
            _ => sources.into_iter().map(IpAddr::V4).collect(),
        }
    }
}

/// Ports that closed short connections may occupy: with fewer, a fast run runs out of ports.
const PORTS_OF_SHORT_CONNECTIONS: u64 = 150_000;

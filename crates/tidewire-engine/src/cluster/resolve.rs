//! The address of a broker as sockets want it.

use crate::config::broker::{BrokerAddress, Place};
use std::io;
use std::net::ToSocketAddrs;
use std::sync::Arc;
use tidewire_net::tls::{self, ClientConfig};
use tidewire_net::{Address, Connect};

/// How the link connects: where to, and by which TLS.
#[derive(Debug, Clone)]
pub(crate) struct Route {
    pub(crate) address: BrokerAddress,
    /// For an address with TLS.
    pub(crate) tls: Option<Arc<ClientConfig>>,
}

impl Route {
    /// Resolves the name; blocks as long as the system's resolver does.
    pub(crate) fn connect(&self, attempt: usize) -> io::Result<Connect> {
        let (host, port, is_tls) = match &self.address.place {
            Place::Unix(path) => {
                return Ok(Connect {
                    address: Address::Unix(path.clone()),
                    source: None,
                    tls: None,
                });
            }
            Place::Tcp { host, port, is_tls } => (host, *port, *is_tls),
        };
        let addresses: Vec<_> = (host.as_str(), port).to_socket_addrs()?.collect();
        let none = || io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        // Another one each time, in case one does not answer.
        let address = *addresses
            .get(attempt % addresses.len().max(1))
            .ok_or_else(none)?;
        let tls = match (&self.tls, is_tls) {
            (Some(config), true) => {
                let name = tls::server_name(host).map_err(io::Error::other)?;
                Some((Arc::clone(config), name))
            }
            _ => None,
        };
        Ok(Connect {
            address: Address::Tcp(address),
            source: None,
            tls,
        })
    }
}
